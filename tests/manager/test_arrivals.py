"""How arriving messages are treated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager.arriving.inserting import NoRoomError
from mqproto.manager.arriving.transit import HOP_LIMIT
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL
from mqproto.queues.localqueue import SystemQueue
from mqproto.transfer.incoming import held_name
from mqproto.turn.effects import IncomingRow, QueueKind, QueueRow, Writes
from mqproto.wire import (
    NULL_GUID,
    FinalAck,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAck,
    OrderAckBody,
    QueueName,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    user_message,
    with_hop_counted,
    without_session_header,
)
from tests.observing import acknowledgments, arrive, brought, final_acks, messages, packets, publish
from tests.pair import Net, at, chain, direct, guid_of, queue, remote

A, B, C = guid_of("a"), guid_of("b"), guid_of("c")
ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
SEQUENCE = TxSequenceId(time_stamp=50, ordinal=1)
ORDERS_NUMBER = 1
"""The number that the store gives to the queue `orders`, the first one of a new node."""


def a_message(number: int = 0, *, previous: int | None = None, **changes: Any) -> UserMessage:
    """Return a message from `a` to `c`; it is transactional if it has a number."""
    header = None
    if number:
        header = TransactionHeader(
            tx_sequence_id=SEQUENCE,
            tx_sequence_number=number,
            previous_tx_sequence_number=number - 1 if previous is None else previous,
        )
    values: dict[str, Any] = {
        "source": A,
        "destination_manager": C,
        "destination": 16 if number else 17,
        "message_id": number or 1,
        "sent_time_s": 0,
        "body": f"m{number}".encode(),
        "transaction": header,
    }
    return user_message(**values | changes)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS, NOTES])


# Ours


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.5")
@pytest.mark.parametrize(
    ("destination", "manager"),
    [
        (17, C),
        (17, NULL_GUID),
        (r"TCP:10.0.0.3\PRIVATE$\Notes", NULL_GUID),
        (r"OS:c\notes", NULL_GUID),
        (guid_of("public"), C),
    ],
)
def test_a_queue_is_found_by_its_number_its_name_or_its_guid(
    destination: int | str | Guid, manager: Guid
) -> None:
    net = chain("a", "c", queues=[ORDERS])
    node = net.nodes["c"]
    node.queues = (ORDERS, queue("Notes", 17, transactional=False, public=guid_of("public")))
    net.start("c")
    arrive(net, node.name, a_message(destination=destination, destination_manager=manager))
    assert net.receive("c", "notes") == [b"m0"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_a_message_that_comes_twice_is_delivered_once(net: Net) -> None:
    arrive(net, "c", a_message(), a_message())
    assert net.receive("c", "notes") == [b"m0"]
    assert net.nodes["c"].up.status().duplicates == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_a_recoverable_message_that_comes_again_after_a_crash_is_still_known(net: Net) -> None:
    arrive(net, "c", a_message(recoverable=True))
    net.kill("c")
    net.start("c")
    arrive(net, "c", a_message(recoverable=True))
    assert net.receive("c", "notes") == [b"m0"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.spec("[MS-MQQB] 3.1.6.9")
def test_nothing_beyond_a_gap_is_delivered_or_acknowledged_and_all_of_it_when_it_is_closed() -> None:
    net = chain("a", "c", queues=[ORDERS])
    node = net.nodes["c"]
    arrive(net, node.name, a_message(1), a_message(2), a_message(4), a_message(6))
    net.pass_ms(600)
    assert acknowledgments(net, "c", "a") == [(MessageClass.ORDER_ACK, OrderAckBody(SEQUENCE, 2, 1))]
    assert net.receive("c", "orders") == [b"m1", b"m2"]
    assert node.store.waiting(QueueKind.HELD) == 2
    net.kill("c")
    net.start("c")
    assert [q.held for q in node.up.status().local if q.name == "orders"] == [2]
    arrive(net, node.name, a_message(3))
    net.pass_ms(600)
    assert net.receive("c", "orders") == [b"m3", b"m4"]
    assert acknowledgments(net, "c", "a")[-1][1].tx_sequence_number == 4
    arrive(net, node.name, a_message(6, previous=4))
    assert net.receive("c", "orders") == [b"m6"]
    net.pass_ms(2_000)
    assert node.store.waiting(QueueKind.HELD) == 0, "the one that was held is nobody's need"


@pytest.mark.spec("[MS-MQQB] 3.1.6.9")
def test_an_order_ack_says_if_nothing_was_accepted_of_the_sequence_that_came() -> None:
    """If the destination ever acknowledged the beginning, its store has since lost that state."""
    net = chain("a", "c", queues=[ORDERS])
    arrive(net, "c", a_message(2))
    net.pass_ms(600)
    assert acknowledgments(net, "c", "a") == [(MessageClass.ORDER_ACK, OrderAckBody(SEQUENCE, 0, 0))]


@pytest.mark.spec("[MS-MQQB] 3.1.6.9")
def test_a_duplicate_asks_for_the_order_ack_again() -> None:
    net = chain("a", "c", queues=[ORDERS])
    arrive(net, "c", a_message(1))
    net.pass_ms(600)
    arrive(net, "c", a_message(1))
    net.pass_ms(600)
    assert [body.tx_sequence_number for _, body in acknowledgments(net, "c", "a")] == [1, 1]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_beyond_the_limit_of_what_is_held_a_message_is_dropped_and_counted() -> None:
    net = chain("a", "c", queues=[ORDERS], settings=Settings(held_messages_limit=1))
    arrive(net, "c", a_message(3), a_message(5))
    status = net.nodes["c"].up.status()
    assert (status.held_ever, status.overflowed) == (1, 1)
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_what_is_over_when_its_gap_is_closed_is_refused_and_the_sequence_goes_on_behind_it() -> None:
    net = chain("a", "c", queues=[ORDERS])
    now_s = net.now.utc_s
    held = a_message(2, sent_time_s=now_s, time_to_reach_queue_s=1)
    arrive(net, "c", held, a_message(3))
    net.pass_ms(3_000)
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 2
    arrive(net, "c", a_message(1))
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_REACH_QUEUE_TIMEOUT]
    assert acknowledgments(net, "c", "a")[-1][1].tx_sequence_number == 3
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0
    assert net.receive("c", "orders") == [b"m1", b"m3"]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.4")
def test_what_is_held_for_a_queue_that_is_deleted_is_forgotten_and_its_sender_still_has_it() -> None:
    net = chain("a", "c", queues=[ORDERS, queue("others", 18)])
    arrive(
        net, "c", a_message(2), a_message(4), a_message(2, source=B, destination=18), a_message(1, source=B)
    )
    net.nodes["c"].up.delete("orders")
    net.pass_ms(2_000)
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 1
    assert acknowledgments(net, "c", "a") == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_a_copy_of_what_came_before_its_queue_was_deleted_is_not_refused() -> None:
    """Otherwise, the sender would be told that a message never arrived, although it was received."""
    net = chain("a", "c", queues=[ORDERS])
    arrive(net, "c", a_message(1))
    assert net.receive("c", "orders") == [b"m1"]
    net.nodes["c"].up.delete("orders")
    arrive(net, "c", a_message(1), a_message(2))
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_BAD_DST_Q]
    assert net.nodes["c"].up.counts()["duplicates"] == 1


# Time and room


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("age_s", [5, 6])
def test_a_message_that_is_over_is_refused_at_its_destination(number: int, age_s: int) -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES])
    message = a_message(number, sent_time_s=net.now.utc_s - age_s, time_to_reach_queue_s=5)
    arrive(net, "c", message)
    net.pass_ms(1_000)
    assert net.receive("c", "orders" if number else "notes") == [b"m%d" % number] * (age_s == 5)
    refused = [MessageClass.NACK_REACH_QUEUE_TIMEOUT] * (age_s == 6 and number)
    assert final_acks(net, "c", "a") == refused


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("number", [0, 1])
def test_an_intermediate_refuses_what_is_over_but_passes_transactional_messages_on(
    net: Net, number: int
) -> None:
    """Only the destination knows whether it has already had a transactional message."""
    arrive(net, "b", a_message(number, sent_time_s=net.now.utc_s - 6, time_to_reach_queue_s=5))
    assert len(messages(net, "b", "c")) == number
    assert net.nodes["b"].up.status().refused == 1 - number


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_a_store_that_is_full_takes_nothing_but_duplicates_and_acknowledgments() -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES], settings=Settings(quota_bytes=2_000))
    known = a_message(body=bytes(1_850), recoverable=True)
    arrive(net, "c", known)
    for message in (a_message(1), a_message(message_id=2)):
        with pytest.raises(NoRoomError, match="quota_bytes = 2,000 allows: receive or purge"):
            arrive(net, "c", message)
    body = OrderAckBody(SEQUENCE, 1, 0)
    acknowledgment = OrderAck(
        source=A, destination_manager=C, destination=4, message_id=9, sent_time_s=0, body=body
    ).message()
    arrive(net, "c", known, acknowledgment)
    assert net.nodes["c"].up.status().duplicates == 1
    assert "stray-acknowledgment" in net.nodes["c"].note_names()
    net.receive("c", "notes")
    net.pass_ms(2_000)
    arrive(net, "c", a_message(1))
    assert net.receive("c", "orders") == [b"m1"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
def test_what_the_disk_has_no_room_for_stays_with_the_neighbour_and_what_needs_none_is_taken() -> None:
    net = chain("a", "c", queues=[NOTES])
    core = net.nodes["c"].up

    def note(message_id: int) -> UserMessage:
        return a_message(message_id=message_id, body=bytes(300), recoverable=True)

    arrive(net, "c", note(1))
    net.pass_ms(2_000)
    core.has_room(500)
    arrive(net, "c", note(2))
    core.has_room(100)
    with pytest.raises(NoRoomError, match="the disk is full: make room, or receive or purge"):
        arrive(net, "c", note(3))
    core.has_room(0)
    arrive(net, "c", note(1), a_message(message_id=4))
    assert core.status().duplicates == 1
    assert [len(each) for each in net.receive("c", "notes")] == [300, 300, 2]
    core.has_room(None)
    arrive(net, "c", note(3))
    assert [len(each) for each in net.receive("c", "notes")] == [300]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.8")
@pytest.mark.parametrize("to", ["b", "c"])
def test_on_a_full_disk_express_messages_stay_with_the_neighbour_when_memory_has_no_place_for_them(
    to: str,
) -> None:
    net = chain("a", "b", "c", queues=[NOTES], settings=Settings(resident_messages=2))
    net.nodes["b"].queues = (NOTES,)
    net.start("b")
    net.blocked.add(frozenset("bc"))
    net.cut("b", "c")
    core = net.nodes["b"].up

    def note(message_id: int) -> UserMessage:
        return a_message(message_id=message_id, body=bytes(300), destination_manager=guid_of(to))

    core.has_room(0)
    arrive(net, "b", note(1), note(2))
    with pytest.raises(NoRoomError, match="the disk is full: make room, or receive or purge"):
        arrive(net, "b", note(3))
    core.has_room(700)
    with pytest.raises(NoRoomError, match="the disk is full: make room, or receive or purge"):
        arrive(net, "b", note(3), note(4))
    net.run()
    assert len(net.nodes["b"].store.messages) == 1


def test_beyond_the_limit_of_sequences_a_new_sender_is_turned_away_and_the_known_ones_go_on() -> None:
    net = chain("a", "c", queues=[ORDERS], settings=Settings(maximum_sequences=2))
    for name in "ab":
        arrive(net, "c", a_message(1, source=guid_of(name)))
    with pytest.raises(NoRoomError, match="2 senders are known, which is maximum_sequences"):
        arrive(net, "c", a_message(1, source=guid_of("z")))
    arrive(net, "c", a_message(2))
    assert net.receive("c", "orders") == [b"m1", b"m1", b"m2"]


# What follows an arrival


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.10")
@pytest.mark.parametrize("number", [0, 1])
def test_who_asks_to_hear_of_arrivals_hears_of_them(number: int) -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES])
    arrive(net, "c", a_message(number, admin_queue=9, acknowledgments=ACKNOWLEDGE_ARRIVAL))
    told = [message for message in messages(net, "c", "a") if message.user.destination_queue == 9]
    assert [message.properties.message_class for message in told] == [MessageClass.ACK_REACH_QUEUE]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
def test_a_traced_message_is_reported_where_it_comes_by() -> None:
    net = chain(
        "a", "c", queues=[ORDERS, queue("reports", 17, transactional=False, public=guid_of("reports"))]
    )
    publish(net, {"reports": "c"})
    arrive(net, "c", a_message(1, trace_queue=guid_of("reports")))
    (report,) = net.receive("c", "reports")
    assert "MESSAGE ID" in report.decode("utf-16-le")


# Refusals: 3.1.5.8.2


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (a_message(1, destination=99), "NACK_BAD_DST_Q"),
        (a_message(1, destination=17), "NACK_NOT_TRANSACTIONAL_Q"),
        (a_message(destination=99), "NACK_BAD_DST_Q"),
        (a_message(destination=16), "NACK_NOT_TRANSACTIONAL_MSG"),
        (a_message(destination=4), "NACK_BAD_DST_Q"),
        (a_message(destination=4, message_class=MessageClass.ORDER_ACK), "NACK_BAD_DST_Q"),
    ],
)
def test_what_cannot_be_delivered_is_refused_and_a_transactional_sender_is_told(
    message: UserMessage, reason: str
) -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES])
    arrive(net, "c", message)
    (note,) = [note for note in net.nodes["c"].notes if note.name == "message-refused"]
    assert note.facts["reason"] == reason
    assert net.nodes["c"].up.status().refused == 1
    told = [message_class for message_class, _ in acknowledgments(net, "c", "a")]
    assert told == ([MessageClass[reason]] if message.transaction else [])


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_refused_message_is_withdrawn_and_later_ones_bridge_the_gap_and_arrive() -> None:
    """The queue is of the other kind at first; its owner changes that while messages are on their way."""
    settings = Settings(resend_timeouts_short_s=1)
    net = chain("a", "c", queues=[queue("orders", transactional=False)], settings=settings)
    node = net.nodes["c"]
    net.send("a", at("c"), "m1", transactional=True)
    net.send("a", at("c"), "m2", transactional=True)
    net.run()
    assert [note.facts["class"] for note in net.nodes["a"].notes if "destination" in note.name] == [
        MessageClass.NACK_NOT_TRANSACTIONAL_Q
    ] * 2
    net.pass_ms(2_000)
    assert net.nodes["a"].store.messages == {}
    net.kill("c")
    node.queues = (ORDERS,)
    net.start("c")
    net.send("a", at("c"), "m3", transactional=True)
    net.pass_ms(10_000)
    assert net.receive("c", "orders") == [b"m3"]


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_intermediate_whose_next_hop_is_down_stores_each_message_once_however_often_it_comes() -> None:
    settings = Settings(resend_timeouts_short_s=1, resend_timeouts_medium_s=1, resident_messages=4)
    net = chain("a", "b", "c", queues=[ORDERS], settings=settings)
    net.kill("c")
    for number in range(20):
        net.send("a", at("c"), f"m{number}", transactional=True)
    net.pass_ms(8_000)
    assert net.nodes["a"].up.status().resent >= 60
    assert len(net.nodes["b"].store.messages) == 20
    net.start("c")
    net.pass_ms(30_000)
    assert net.receive("c", "orders") == [f"m{number}".encode() for number in range(20)]
    assert net.nodes["c"].up.status().duplicates <= 20
    assert net.nodes["b"].store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_when_only_some_messages_are_refused_the_others_arrive_in_order_over_the_gap() -> None:
    settings = Settings(resend_timeouts_short_s=1, try_connect_interval_ms=200)
    net = chain("a", "c", queues=[ORDERS], settings=settings)
    node = net.nodes["c"]
    for number in range(1, 4):
        net.send("a", at("c"), f"m{number}", transactional=True)
    net.pass_ms(300)  # All three are accepted, and no OrderAck has left.
    net.kill("c")
    node.queues = (queue("orders", transactional=False),)
    net.start("c")
    for number in range(4, 6):
        net.send("a", at("c"), f"m{number}", transactional=True)
    net.pass_ms(250)  # Both are refused.
    assert len([note for note in node.notes if note.name == "message-refused"]) >= 2
    net.kill("c")
    node.queues = (ORDERS,)
    net.start("c")
    net.send("a", at("c"), "m6", transactional=True)
    net.pass_ms(20_000)
    received = net.receive("c", "orders")
    assert received[:3] == [b"m1", b"m2", b"m3"]
    assert received[-1] == b"m6"
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
@pytest.mark.parametrize("number", [0, 1])
def test_the_thirtieth_forwarding_is_refused_and_a_transactional_sender_told_by_who_stopped_it(
    net: Net, number: int
) -> None:
    last = a_message(number)
    last.user.hop_count = HOP_LIMIT - 1
    arrive(net, "b", last)
    assert messages(net, "b", "c")[0].user.hop_count == HOP_LIMIT
    over = a_message(number, message_id=2)
    over.user.hop_count = HOP_LIMIT
    arrive(net, "b", over)
    assert len(messages(net, "b", "c")) == 1
    told = [message_class for message_class, _ in acknowledgments(net, "b", "a")]
    assert told == [MessageClass.NACK_HOP_COUNT_EXCEEDED] * number


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_own_message_that_came_round_too_often_and_is_not_waited_for_is_dropped(net: Net) -> None:
    message = a_message(1, source=B)
    message.user.hop_count = HOP_LIMIT
    arrive(net, "b", message)
    assert net.nodes["b"].up.status().refused == 0
    assert net.traffic == []


# Somebody else's


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_intermediate_passes_packets_on_byte_for_byte_but_for_hop_count_and_session_header(
    net: Net,
) -> None:
    for number in range(5):
        net.send("a", at("c"), f"m{number}", transactional=True, label="order", extension=b"\1\2")
        net.send("a", at("c", 17), f"n{number}", recoverable=number % 2 == 0)
    net.pass_ms(1_000)
    came = {}
    for raw in packets(net, "a", "b"):
        packet = decode_packet(raw)
        if isinstance(packet, UserMessage):
            came[packet.user.message_id] = with_hop_counted(without_session_header(raw))
    went = {}
    for raw in packets(net, "b", "c"):
        packet = decode_packet(raw)
        if isinstance(packet, UserMessage):
            went[packet.user.message_id] = without_session_header(raw)
    assert len(went) == 10
    assert went == came


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_an_intermediate_keeps_no_state_of_a_sequence(net: Net) -> None:
    arrive(net, "b", a_message(7), a_message(3))
    arrive(net, "b", a_message(7))  # The first one has left.
    assert [m.transaction.tx_sequence_number for m in messages(net, "b", "c") if m.transaction] == [7, 3, 7]
    assert list(net.nodes["b"].up.inspect().incoming) == []
    assert net.nodes["b"].store.incoming == {}
    assert net.nodes["b"].store.outgoing == {}
    assert {row.kind for row in net.nodes["b"].store.queues.values() if row.name not in set(SystemQueue)} == {
        QueueKind.OUTGOING
    }


# Acknowledgments of what we sent


def waiting(net: Net) -> int:
    return sum(q.waiting for q in net.nodes["a"].up.status().outgoing if q.sequence)


def strays(net: Net) -> int:
    return net.nodes["a"].note_names().count("stray-acknowledgment")


@pytest.fixture
def retaining() -> tuple[Net, TxSequenceId]:
    """Make `a` retain three messages that `c` has; their OrderAck has not been sent yet."""
    net = chain("a", "c", queues=[ORDERS])
    for number in range(3):
        net.send("a", at("c"), f"m{number}", transactional=True, final_ack=number == 2)
    net.run()
    assert waiting(net) == 3
    (row,) = net.nodes["a"].store.outgoing.values()
    return net, TxSequenceId(time_stamp=row.time_stamp, ordinal=row.ordinal)


def an_order_ack(body: OrderAckBody, source: Guid = C, message_id: int = 900) -> UserMessage:
    return OrderAck(
        source=source, destination_manager=A, destination=4, message_id=message_id, sent_time_s=0, body=body
    ).message()


def a_final_ack(
    body: FinalAckBody, message_class: int = MessageClass.ACK_RECEIVE, source: Guid = C
) -> UserMessage:
    return FinalAck(
        source=source,
        destination_manager=A,
        destination=4,
        message_id=901,
        sent_time_s=0,
        message_class=message_class,
        body=body,
    ).message()


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.parametrize(
    ("ordinal_change", "stamp_change", "number", "source"),
    [(0, 0, 4, C), (0, 0, 2**32 - 1, C), (1, 0, 1, C), (0, 1, 1, C), (0, 0, 3, B)],
    ids=["never sent", "all", "sequence to come", "unknown sequence", "wrong manager"],
)
def test_an_order_ack_that_cannot_be_meant_for_us_is_noted_and_touches_nothing(
    retaining: tuple[Net, TxSequenceId], ordinal_change: int, stamp_change: int, number: int, source: Guid
) -> None:
    net, identifier = retaining
    identifier = TxSequenceId(
        time_stamp=identifier.time_stamp + stamp_change, ordinal=identifier.ordinal + ordinal_change
    )
    kept = dict(net.nodes["a"].store.messages)
    arrive(net, "a", an_order_ack(OrderAckBody(identifier, number, max(number - 1, 0)), source))
    assert (strays(net), waiting(net)) == (1, 3)
    assert net.nodes["a"].store.messages == kept


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
def test_an_order_ack_that_goes_back_or_is_for_a_finished_sequence_is_old_news(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, identifier = retaining
    node = net.nodes["a"]
    arrive(net, node.name, an_order_ack(OrderAckBody(identifier, 2, 1), message_id=900))
    arrive(net, node.name, an_order_ack(OrderAckBody(identifier, 1, 0), message_id=901))
    assert (strays(net), waiting(net)) == (0, 1)
    arrive(net, node.name, an_order_ack(OrderAckBody(identifier, 3, 2), message_id=902))
    net.send("a", at("c"), "m4", transactional=True)
    net.run()
    arrive(net, node.name, an_order_ack(OrderAckBody(identifier, 3, 2), message_id=903))
    assert (strays(net), waiting(net)) == (0, 1)


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_number_in_the_sequence_id_is_recognised_where_it_can_mean_only_one_sequence(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, _ = retaining
    arrive(net, "a", an_order_ack(OrderAckBody(TxSequenceId(time_stamp=0, ordinal=2), 0, 0)))
    assert (strays(net), waiting(net)) == (0, 1)


@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_number_in_the_sequence_id_is_a_stray_where_no_sequence_has_sent_it(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, _ = retaining
    net.send("a", at("c", 17), "other", transactional=True)
    net.run()
    arrive(net, "a", an_order_ack(OrderAckBody(TxSequenceId(time_stamp=0, ordinal=5), 0, 0)))
    assert (strays(net), waiting(net)) == (1, 3)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
def test_a_message_with_final_ack_is_kept_until_an_application_has_received_it(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, _ = retaining
    net.pass_ms(2_000)
    store = net.nodes["a"].store
    assert waiting(net) == 0
    assert store.waiting(QueueKind.FINAL) == len(store.messages) == 1
    net.receive("c", "orders")
    net.pass_ms(2_000)
    assert store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_final_ack_that_overtakes_the_order_ack_settles_all_up_to_its_message(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, _ = retaining
    net.receive("c", "orders")
    assert waiting(net) == 0
    net.pass_ms(2_000)
    assert net.nodes["a"].store.messages == {}
    assert strays(net) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize(
    ("message_class", "source", "meant_for", "number", "stamp_change", "ordinal_change"),
    [
        (MessageClass.ACK_RECEIVE, C, B, 3, 0, 0),
        (MessageClass.ACK_RECEIVE, B, A, 3, 0, 0),
        (MessageClass.NACK_BAD_DST_Q, B, A, 3, 0, 0),
        (MessageClass.ACK_RECEIVE, C, A, 4, 0, 0),
        (MessageClass.NACK_BAD_DST_Q, C, A, 0, 0, 0),
        (MessageClass.ACK_RECEIVE, C, A, 3, 1, 0),
        (MessageClass.ACK_RECEIVE, C, A, 3, 0, 1),
    ],
    ids=["for another", "wrong manager", "wrong refuser", "never sent", "none", "unknown", "to come"],
)
def test_a_final_ack_that_cannot_be_meant_for_us_is_noted_and_touches_nothing(
    retaining: tuple[Net, TxSequenceId],
    message_class: int,
    source: Guid,
    meant_for: Guid,
    number: int,
    stamp_change: int,
    ordinal_change: int,
) -> None:
    net, identifier = retaining
    identifier = TxSequenceId(
        time_stamp=identifier.time_stamp + stamp_change, ordinal=identifier.ordinal + ordinal_change
    )
    kept = dict(net.nodes["a"].store.messages)
    arrive(net, "a", a_final_ack(FinalAckBody(identifier, number, 2, meant_for, 3), message_class, source))
    assert (strays(net), waiting(net)) == (1, 3)
    assert net.nodes["a"].store.messages == kept


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_whoever_stops_a_message_that_went_too_far_may_say_so(retaining: tuple[Net, TxSequenceId]) -> None:
    net, identifier = retaining
    body = FinalAckBody(identifier, 2, 1, A, 2)
    arrive(net, "a", a_final_ack(body, MessageClass.NACK_HOP_COUNT_EXCEEDED, B))
    assert (strays(net), waiting(net)) == (0, 2)


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_refusal_that_comes_after_the_order_ack_is_told_and_ends_the_wait(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    """An application may reject a message that its queue has accepted: [MS-MQMQ] 2.2.18.1.6, NACK_RECEIVE_REJECTED."""
    net, identifier = retaining
    net.pass_ms(2_000)
    store = net.nodes["a"].store
    (row,) = store.messages.values()
    body = FinalAckBody(identifier, 3, 2, A, row.message_id)
    arrive(net, "a", a_final_ack(body, MessageClass.NACK_RECEIVE_REJECTED))
    assert "message-refused-by-destination" in net.nodes["a"].note_names()
    assert store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_final_ack_that_was_taken_and_not_acted_upon_when_the_node_was_killed_is_acted_upon_then(
    retaining: tuple[Net, TxSequenceId],
) -> None:
    net, identifier = retaining
    net.pass_ms(2_000)
    node = net.nodes["a"]
    (row,) = node.store.messages.values()
    packet = encode_packet(a_final_ack(FinalAckBody(identifier, 3, 2, A, row.message_id)))
    brought(net, "a", packet, remote("c"))
    writes = node.up.take(net.now).writes
    assert writes is not None
    node.store.commit(writes)
    net.kill("a")
    assert node.store.waiting(QueueKind.ORDER) == 1
    net.start("a")
    net.run()
    assert node.store.messages == {}


# Applications at the destination


def test_two_names_of_one_queue_are_two_sequences_at_their_sender_and_both_arrive() -> None:
    net = chain("a", "c", queues=[ORDERS])
    for number in range(3):
        net.send("a", at("c"), f"private {number}", transactional=True)
        net.send("a", direct("c"), f"direct {number}", transactional=True, final_ack=True)
    net.pass_ms(1_000)
    net.kill("c")
    net.start("c")
    net.send("a", at("c"), "private 3", transactional=True)
    net.send(
        "a", Destination(r"DIRECT=TCP:C\q", None, r"TCP:C\private$\ORDERS", "c"), "DIRECT", transactional=True
    )
    net.pass_ms(1_000)
    net.send("a", direct("c"), "direct 3", transactional=True)
    net.pass_ms(1_000)
    received = net.receive("c", "orders")
    assert b"DIRECT" in received
    for name in (b"private", b"direct"):
        assert [body for body in received if body.startswith(name)] == [
            b"%s %d" % (name, n) for n in range(4)
        ]
    net.pass_ms(10_000)
    assert net.nodes["a"].store.messages == {}


SPELLINGS = (
    16,
    guid_of("public"),
    r"OS:c\PRIVATE$\orders",
    r"os:C\private$\ORDERS",
    r"TCP:c\private$\orders",
    r"TCP:127.0.0.3\PRIVATE$\Orders",
)
PUBLIC_ORDERS = queue("orders", public=guid_of("public"))


def spelled(name: QueueName, number: int, **changes: Any) -> UserMessage:
    """Return a transactional message for `orders`, addressed by one of the queue's names."""
    manager = NULL_GUID if isinstance(name, str) else C
    return a_message(number, destination=name, destination_manager=manager, **changes)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@given(
    names=st.lists(st.sampled_from(SPELLINGS), min_size=2, max_size=12),
    lost=st.sets(st.integers(1, 12)),
    restarts=st.sets(st.integers(1, 12)),
)
def test_a_stream_goes_on_under_any_spelling_of_its_queue(
    names: list[QueueName], lost: set[int], restarts: set[int]
) -> None:
    """Each message may spell the queue's name differently; a lost one is sent again under the name that it had."""
    net = chain("a", "c", queues=[PUBLIC_ORDERS])
    stream = [spelled(name, number) for number, name in enumerate(names, 1)]
    for number, message in enumerate(stream, 1):
        if number in restarts:
            net.kill("c")
            net.start("c")
        if number not in lost:
            arrive(net, "c", message)
    arrive(net, "c", *stream, *stream)
    assert net.receive("c", "orders") == [b"m%d" % number for number in range(1, len(names) + 1)]
    net.pass_ms(2_000)
    assert net.nodes["c"].store.waiting(QueueKind.HELD) == 0
    assert acknowledgments(net, "c", "a")[-1][1].tx_sequence_number == len(names)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_what_begins_under_another_name_is_a_sequence_of_its_own() -> None:
    """A sender may count messages under two names separately, and use the same numbers for both."""
    net = chain("a", "c", queues=[PUBLIC_ORDERS])
    one, other = SPELLINGS[0], SPELLINGS[4]
    for number in (1, 2, 3):
        arrive(net, "c", spelled(one, number, body=b"one %d" % number))
        arrive(net, "c", spelled(other, number, message_id=number + 10, body=b"other %d" % number))
    received = net.receive("c", "orders")
    for name in (b"one", b"other"):
        assert [body for body in received if body.startswith(name)] == [
            b"%s %d" % (name, n) for n in (1, 2, 3)
        ]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_what_came_before_its_queue_was_deleted_is_known_under_any_spelling() -> None:
    net = chain("a", "c", queues=[PUBLIC_ORDERS])
    arrive(net, "c", spelled(SPELLINGS[2], 1), spelled(SPELLINGS[2], 2))
    assert net.receive("c", "orders") == [b"m1", b"m2"]
    net.nodes["c"].up.delete("orders")
    arrive(net, "c", spelled(SPELLINGS[3], 2), spelled(SPELLINGS[0], 2), spelled(SPELLINGS[0], 3))
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.NACK_BAD_DST_Q]
    assert net.nodes["c"].up.counts()["duplicates"] == 2


@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
def test_a_message_under_another_spelling_is_answered_for_when_it_is_received() -> None:
    net = chain("a", "c", queues=[PUBLIC_ORDERS])
    arrive(net, "c", spelled(SPELLINGS[4], 1), spelled(SPELLINGS[2], 2, journal_negative=True))
    assert net.receive("c", "orders") == [b"m1", b"m2"]
    net.pass_ms(2_000)
    assert final_acks(net, "c", "a") == [MessageClass.ACK_RECEIVE]


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
@pytest.mark.parametrize("time_stamps", [(60, 50), (50, 60)])
def test_a_sender_that_counts_apart_what_differs_in_case_loses_nothing(time_stamps: tuple[int, int]) -> None:
    """Our nodes counted in this way with stores of layout 4; each spelling has its own TimeStamp."""
    net = chain("a", "c", queues=[ORDERS])
    spellings = (r"TCP:c\PRIVATE$\ORDERS", r"TCP:c\PRIVATE$\orders")
    expected = []
    for ordinal in (1, 2):
        for number in (1, 2, 3):
            for name, time_stamp in zip(spellings, time_stamps, strict=True):
                identifier = TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)
                header = TransactionHeader(
                    tx_sequence_id=identifier,
                    tx_sequence_number=number,
                    previous_tx_sequence_number=number - 1,
                )
                expected.append(b"%s %d %d" % (name[-6:].encode(), ordinal, number))
                arrive(net, "c", spelled(name, number, transaction=header, body=expected[-1]))
        net.kill("c")
        net.start("c")
    assert net.receive("c", "orders") == expected


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
def test_two_sequences_of_one_name_that_an_older_store_kept_apart_both_go_on() -> None:
    """In stores of layout 4, names that differed only in case were different names, and each had its own TimeStamp."""
    net = chain("a", "c", queues=[ORDERS])
    upper, lower = r"TCP:c\PRIVATE$\ORDERS", r"TCP:c\PRIVATE$\orders"
    streams = {upper: TxSequenceId(time_stamp=60, ordinal=3), lower: TxSequenceId(time_stamp=50, ordinal=9)}
    store = net.nodes["c"].store
    writes = Writes()
    for number, (name, identifier) in enumerate(streams.items(), 90):
        writes.queues.append(QueueRow(number, QueueKind.HELD, held_name((A, ORDERS_NUMBER, name))))
        row = IncomingRow(A, number, identifier.time_stamp, identifier.ordinal, 4, 0, 0, "a")
        writes.incoming[A, number] = row
    net.run()
    store.commit(writes)
    net.kill("c")
    net.start("c")

    def sent(name: str, number: int, previous: int, ordinal: int = 0) -> UserMessage:
        identifier = streams[name]
        header = TransactionHeader(
            tx_sequence_id=replace(identifier, ordinal=identifier.ordinal + ordinal),
            tx_sequence_number=number,
            previous_tx_sequence_number=previous,
        )
        return spelled(
            name, number, transaction=header, body=b"%s %d %d" % (name[-6:].encode(), ordinal, number)
        )

    arrive(
        net,
        "c",
        sent(upper, 4, 3),
        sent(lower, 5, 4),
        sent(upper, 5, 4),
        sent(lower, 1, 0, 1),
        sent(upper, 1, 0, 1),
    )
    assert net.receive("c", "orders") == [b"orders 0 5", b"ORDERS 0 5", b"orders 1 1", b"ORDERS 1 1"]


def test_an_unknown_queue_is_refused_with_the_names_of_those_that_there_are() -> None:
    net = chain("a", "c", queues=[ORDERS, NOTES])
    with pytest.raises(UsageError, match="there are: orders, notes"):
        net.nodes["c"].up.peek("order", 1)
    with pytest.raises(
        UsageError, match=r"there are: system\$;journal, system\$;deadletter, system\$;deadxact$"
    ):
        net.nodes["a"].up.peek("order", 1)
