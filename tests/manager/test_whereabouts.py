"""Where each message is reported to be, at each step of its way."""

from __future__ import annotations

import pytest

from mqproto.base.configuration import Settings
from mqproto.manager.whereabouts import Found, Spot, describe_message
from mqproto.queues.localqueue import SystemQueue
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import POSITION_BITS
from mqproto.wire import (
    MessageClass,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    guid_text,
    user_message,
)
from tests.observing import brought
from tests.pair import START, Net, at, chain, direct, guid_of, queue, remote

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
TO_ORDERS, TO_NOTES = at("c"), at("c", 17)
C = guid_text(guid_of("c"))


def a_chain(settings: Settings | None = None) -> Net:
    return chain("a", "b", "c", queues=[ORDERS, NOTES], settings=settings)


def found(net: Net, name: str) -> list[Found]:
    """Return all messages that a node reports, in the order of their keys; acknowledgments are left out."""
    node = net.nodes[name]
    whereabouts = node.up.whereabouts()
    messages = [whereabouts.stored(key, row.packet) for key, row in node.store.messages.items()]
    messages += whereabouts.unstored()
    return sorted(
        (one for one in messages if one is not None and not one.queue.endswith(ORDER_SUFFIX)),
        key=lambda one: one.key,
    )


def spots(net: Net, name: str) -> list[tuple[str, Spot, str]]:
    return [(text(one), one.spot, one.queue) for one in found(net, name)]


def text(one: Found) -> str:
    message = decode_packet(one.packet)
    assert isinstance(message, UserMessage)
    return message.properties.message_body.decode()


def block(net: Net, *names: str) -> None:
    net.blocked.add(frozenset(names))
    net.cut(*names)
    net.run()


def test_a_transactional_message_is_found_at_each_step_of_its_way() -> None:
    net = a_chain()
    name = TO_ORDERS.name
    block(net, "b", "c")
    net.send("a", TO_ORDERS, "m", transactional=True, final_ack=True)
    net.turn("a")
    assert spots(net, "a") == [("m", Spot.UNSENT, name)]
    net.run()
    assert spots(net, "a") == [("m", Spot.IN_FLIGHT, name)]
    net.pass_ms(ACK_DELAY_MS)
    assert spots(net, "a") == [("m", Spot.AWAITING_ORDER_ACK, name)]
    assert spots(net, "b") == [("m", Spot.UNSENT, C)]
    net.blocked.clear()
    net.pass_ms(10_000)
    assert spots(net, "a") == [("m", Spot.AWAITING_FINAL_ACK, name)]
    assert spots(net, "b") == []
    assert spots(net, "c") == [("m", Spot.IN_QUEUE, "orders")]
    net.nodes["c"].up.consume(1, "orders", 1, transactional=True)
    net.run()
    assert spots(net, "c") == [("m", Spot.UNSETTLED, "orders")]
    net.nodes["c"].up.settle(1, "orders", net.now, commit=True)
    net.pass_ms(2_000)
    assert [spots(net, name) for name in net.nodes] == [[], [], []]


def test_what_the_next_hop_has_not_acknowledged_is_in_flight_and_unsent_when_the_session_breaks() -> None:
    net = a_chain(Settings(window_size=1))
    net.send("a", TO_NOTES, "opens the session")
    net.run()
    for number in range(2):
        net.send("a", TO_ORDERS, f"x{number}", transactional=True)
        net.send("a", TO_NOTES, f"n{number}")
        net.send("a", direct("b", "notes"), f"r{number}", recoverable=True)
    for session in list(net.nodes["a"].wires):
        del net.nodes["a"].wires[session]  # Nothing that is sent arrives.
    net.turn("a")
    by_spot = {spot: [message for message, where, _ in spots(net, "a") if where is spot] for spot in Spot}
    assert len(by_spot[Spot.IN_FLIGHT]) == 1
    assert len(by_spot[Spot.UNSENT]) == 5
    assert sum(queue.in_flight for queue in net.nodes["a"].up.status().outgoing) == 1
    for session in list(net.nodes["a"].up.inspect().transports.sessions):
        net.nodes["a"].up.lost(session, "reset", net.now)
    assert {spot for _, spot, _ in spots(net, "a")} == {Spot.UNSENT}
    assert len(spots(net, "a")) == 6


def test_messages_behind_a_gap_are_held() -> None:
    net = a_chain()
    arrive_at_c(net, 1, 3, 4)
    assert spots(net, "c") == [
        ("1", Spot.IN_QUEUE, "orders"),
        ("3", Spot.HELD, "orders"),
        ("4", Spot.HELD, "orders"),
    ]
    whereabouts = net.nodes["c"].up.whereabouts()
    assert {one.key >> POSITION_BITS for one in found(net, "c")} == set(whereabouts.numbers_of("orders"))
    arrive_at_c(net, 2)
    assert {spot for _, spot, _ in spots(net, "c")} == {Spot.IN_QUEUE}


def arrive_at_c(net: Net, *numbers: int) -> None:
    """Make messages of a sequence from `a` arrive, as if a session had brought them."""
    for number in numbers:
        header = TransactionHeader(
            tx_sequence_id=TxSequenceId(time_stamp=50, ordinal=1),
            tx_sequence_number=number,
            previous_tx_sequence_number=number - 1,
        )
        message = user_message(
            source=guid_of("a"),
            destination_manager=guid_of("c"),
            destination=16,
            message_id=number,
            sent_time_s=0,
            body=str(number).encode(),
            transaction=header,
        )
        brought(net, "c", encode_packet(message), remote("b"))
    net.run()


def test_a_dead_letter_says_in_its_class_why_it_is_one() -> None:
    net = a_chain()
    block(net, "a", "b")
    net.send("a", TO_ORDERS, "late", transactional=True, journal_negative=True, time_to_reach_queue_s=5)
    net.pass_ms(4_000)
    [one] = found(net, "a")
    status = describe_message(one)
    assert (status.spot, status.queue) == (Spot.UNSENT, TO_ORDERS.name)
    assert (status.sent_s, status.reach_by_s, status.receive_by_s) == (START.utc_s, START.utc_s + 5, None)
    assert (status.transactional, status.number, status.message_class) == (True, 1, MessageClass.NORMAL)
    net.pass_ms(4_000)
    [dead] = map(describe_message, found(net, "a"))
    assert (dead.spot, dead.queue) == (Spot.IN_QUEUE, SystemQueue.DEADXACT)
    assert dead.message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert (dead.source, dead.ordinal) == (status.source, status.ordinal)


@pytest.mark.parametrize("recoverable", [False, True])
def test_what_left_a_moment_ago_is_nowhere_though_the_store_still_has_it(recoverable: bool) -> None:
    net = a_chain()
    net.send("a", TO_NOTES, "gone", recoverable=recoverable)
    net.pass_ms(ACK_DELAY_MS)
    assert len(net.nodes["a"].store.messages) == recoverable
    assert spots(net, "a") == []
    assert spots(net, "c") == [("gone", Spot.IN_QUEUE, "notes")]


def test_what_an_operator_has_purged_is_nowhere_though_the_store_still_has_it() -> None:
    net = a_chain()
    block(net, "a", "b")
    net.send("a", TO_ORDERS, "deleted", transactional=True, final_ack=True)
    net.run()
    net.nodes["a"].up.purge(TO_ORDERS.name)
    assert len(net.nodes["a"].store.messages) == 1
    assert spots(net, "a") == []


def test_the_numbers_of_a_queue_lead_to_all_that_waits_in_it() -> None:
    net = a_chain()
    block(net, "a", "b")
    for priority in (1, 5):
        net.send("a", TO_NOTES, f"p{priority}", recoverable=True, priority=priority)
    net.send("a", TO_ORDERS, "m", transactional=True)
    net.run()
    whereabouts = net.nodes["a"].up.whereabouts()
    by_number = {one.key >> POSITION_BITS: text(one) for one in found(net, "a")}
    assert [by_number[number] for number in whereabouts.numbers_of(C)] == ["p5", "p1"]
    assert [by_number[number] for number in whereabouts.numbers_of(TO_ORDERS.name)] == ["m"]
    assert whereabouts.numbers_of("nothing") == []
    [one] = net.nodes["c"].up.whereabouts().numbers_of("orders")
    assert one
