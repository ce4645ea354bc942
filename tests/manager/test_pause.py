"""Outgoing queues that an operator pauses and resumes, and the order in which the other queues send."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.wire import SessionAck, acknowledgment_in, decode_packet, guid_text
from tests.examples import a_transaction_header, a_user_message
from tests.observing import DEADLETTER, arrive, bodies, messages, packets
from tests.pair import Net, at, chain, guid_of, queue

NOTES, ORDERS, OTHERS = (queue("notes", 17, transactional=False), queue("orders"), queue("other orders", 18))
TO_C, TO_B = guid_text(guid_of("c")), guid_text(guid_of("b"))
QUICK = Settings(try_connect_interval_ms=200, resend_timeouts_short_s=1, resend_timeouts_medium_s=1)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[NOTES, ORDERS, OTHERS], settings=QUICK)


def hold(net: Net, name: str, *, on_hold: bool = True) -> None:
    net.nodes["a"].up.hold(name, on_hold=on_hold)
    net.run()


def session_acks(net: Net, sender: str, receiver: str) -> list[SessionAck]:
    found = [decode_packet(raw) for raw in packets(net, sender, receiver)]
    return [packet for packet in found if isinstance(packet, SessionAck)]


def states(net: Net) -> dict[str, str]:
    return {each.name: each.state for each in net.nodes["a"].up.status().outgoing}


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
def test_a_paused_queue_tells_its_neighbour_of_a_window_of_one_and_the_session_goes_on(net: Net) -> None:
    net.send("a", at("c"), "first", transactional=True)
    net.pass_ms(2_000)
    hold(net, at("c").name)
    (said,) = session_acks(net, "a", "b")[-1:]
    assert said.session.window_size == 1
    assert (said.session.user_msg_sequence_number, said.session.recoverable_msg_seq_number) == (1, 1)
    assert said.session.ack_sequence_number == len(messages(net, "b", "a"))
    net.send("a", at("c", 18), "other", transactional=True)
    net.pass_ms(2_000)
    assert net.receive("c", "other orders") == [b"other"]
    assert net.nodes["a"].note_names().count("session-closed") == 0
    assert net.nodes["b"].note_names().count("session-closed") == 0


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
def test_a_queue_with_several_priorities_says_once_that_it_is_paused(net: Net) -> None:
    for priority in (1, 2, 3):
        net.send("a", at("c", 17), "x", priority=priority)
    net.run()
    before = len(session_acks(net, "a", "b"))
    hold(net, TO_C)
    assert len(session_acks(net, "a", "b")) == before + 1


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
@pytest.mark.spec("[MS-MQQB] 3.1.7.14")
def test_a_paused_sequence_sends_nothing_and_goes_on_where_it_was_when_it_is_resumed(net: Net) -> None:
    net.send("a", at("c"), "0", transactional=True)
    net.blocked.add(frozenset("bc"))  # No OrderAck comes, so that a resend would be due.
    net.run()
    hold(net, at("c").name)
    for number in range(1, 4):
        net.send("a", at("c"), str(number), transactional=True)
    sent = len(messages(net, "a", "b"))
    net.pass_ms(20_000)
    assert len(messages(net, "a", "b")) == sent
    assert states(net)[at("c").name] == "on hold"
    net.blocked.clear()
    net.pass_ms(2_000)
    hold(net, at("c").name, on_hold=False)
    net.pass_ms(2_000)
    assert net.receive("c", "orders") == [b"0", b"1", b"2", b"3"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
@pytest.mark.parametrize("restart", [False, True])
def test_a_pause_holds_for_all_priorities_also_those_that_come_later_and_survives_a_restart(
    net: Net, restart: bool
) -> None:
    net.send("a", at("c", 17), "p3", priority=3, recoverable=True)
    net.pass_ms(1_000)
    hold(net, TO_C)
    net.send("a", at("c", 17), "p7", priority=7, recoverable=True)
    if restart:
        net.turn("a")
        net.kill("a")
        net.start("a")
    net.send("a", at("c", 17), "p5", priority=5, recoverable=True)
    net.send("a", at("c"), "order", transactional=True)
    net.pass_ms(5_000)
    assert net.receive("c", "orders") == [b"order"]
    assert net.receive("c", "notes") == [b"p3"]
    hold(net, TO_C, on_hold=False)
    net.pass_ms(5_000)
    assert net.receive("c", "notes") == [b"p7", b"p5"]
    if restart:
        net.kill("a")
        net.start("a")
    net.send("a", at("c", 17), "p1", priority=1)
    net.pass_ms(5_000)
    assert net.receive("c", "notes") == [b"p1"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.14")
def test_a_paused_queue_calls_nobody_until_it_is_resumed(net: Net) -> None:
    net.kill("b")
    net.send("a", at("c", 17), "x", recoverable=True)
    net.run()
    hold(net, TO_C)
    net.start("b")
    net.pass_ms(10_000)
    assert messages(net, "a", "b") == []
    assert net.nodes["b"].up.status().sessions_open == 0
    hold(net, TO_C, on_hold=False)
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"x"]


def test_messages_expire_in_a_paused_queue(net: Net) -> None:
    net.send("a", at("c", 17), "sent")
    net.run()
    hold(net, TO_C)
    net.send("a", at("c", 17), "x", time_to_reach_queue_s=10, journal_negative=True)
    net.pass_ms(12_000)
    assert bodies(net, "a", DEADLETTER) == [b"x"]


def test_only_a_queue_that_is_there_can_be_paused_and_the_error_names_those(net: Net) -> None:
    with pytest.raises(UsageError, match="no outgoing queue nothing here; there are: none"):
        hold(net, "nothing")
    net.send("a", at("c", 17), "x")
    with pytest.raises(UsageError, match=f"there are: {TO_C}"):
        hold(net, "nothing")


# Who sends first


def order_of_sending(net: Net) -> list[bytes]:
    return [message.properties.message_body[:1] for message in messages(net, "a", "b")]


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.28")
def test_within_a_destination_the_higher_priority_goes_first_always(net: Net) -> None:
    net.kill("b")
    for priority in (0, 3, 7):
        for _ in range(100):
            net.send("a", at("c", 17), str(priority), priority=priority)
    net.run()
    net.start("b")
    net.pass_ms(1_000)
    assert order_of_sending(net) == [b"7"] * 100 + [b"3"] * 100 + [b"0"] * 100


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.28")
@pytest.mark.parametrize(("window", "together"), [(64, 96), (1, 3), (7, 21)])
def test_between_destinations_all_have_their_turns_whatever_their_priorities(
    window: int, together: int
) -> None:
    """There are three destinations behind one neighbour; none of them waits until the others have nothing left to
    send.
    """
    net = chain("a", "b", "c", queues=[NOTES, ORDERS], settings=replace(QUICK, window_size=window))
    net.kill("b")
    for _ in range(100):
        net.send("a", at("b", 17), "b", priority=0)
        net.send("a", at("c", 17), "c", priority=7)
        net.send("a", at("c"), "t", transactional=True)
    net.run()
    net.start("b")
    net.pass_ms(1_000)
    order = order_of_sending(net)
    assert len(order) == 300
    for begin in range(0, 300 - together, together):
        some = order[begin : begin + together]
        assert [some.count(body) for body in (b"b", b"c", b"t")] == [together // 3] * 3


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
def test_acknowledgments_go_first_on_a_session_whatever_the_priority_of_the_rest(net: Net) -> None:
    net.nodes["a"].queues = (ORDERS,)
    net.start("a")
    net.send("c", at("a"), "x", transactional=True)
    net.run()
    net.kill("b")
    for _ in range(100):
        net.send("a", at("c", 17), "7", priority=7)
    net.pass_ms(1_000)
    net.start("b")
    net.pass_ms(1_000)
    [*sent] = messages(net, "a", "b")
    assert len(sent) > 100
    assert acknowledgment_in(sent[0]) is not None


@pytest.mark.spec("[MS-MQDMPR] 3.1.7.1.32")
def test_a_transactional_message_has_no_priority_whatever_its_packet_says(net: Net) -> None:
    """If a sender sets a priority nevertheless, its sequence must not be reordered on the way."""
    net.blocked.add(frozenset("bc"))
    for number in range(1, 9):
        header = a_transaction_header(tx_sequence_number=number, previous_tx_sequence_number=number - 1)
        message = a_user_message(
            source=guid_of("a"),
            destination_manager=guid_of("c"),
            destination=16,
            message_id=number,
            sent_time_s=net.now.utc_s,
            body=str(number).encode(),
            transaction=header,
        )
        message.base.priority = number % 8
        arrive(net, "b", message)
    net.blocked.clear()
    net.pass_ms(1_000)
    assert [m.properties.message_body for m in messages(net, "b", "c")] == [b"%d" % n for n in range(1, 9)]
    assert net.receive("c", "orders") == [b"%d" % number for number in range(1, 9)]
