"""What an operator sees of queues and sequences while messages pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.manager.status import IncomingStatus, LocalStatus, OutgoingStatus
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import Peer
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.wire import TransactionHeader, TxSequenceId, encode_packet, guid_text
from mqproto.wire.messages import user_message
from tests.observing import brought
from tests.pair import START, Net, at, chain, direct, guid_of, queue, remote

ORDERS = queue("orders")
NOTES = QueueDeclaration("notes", 17, quota_bytes=5_000)
TO_ORDERS, TO_NOTES = at("c"), at("c", 17)
QUICK = Settings(try_connect_interval_ms=200, resend_timeouts_short_s=1, resend_timeouts_medium_s=2)


@pytest.fixture
def net() -> Net:
    return chain("a", "b", "c", queues=[ORDERS, NOTES], settings=QUICK)


def outgoing(net: Net, name: str = "a", of: str = TO_ORDERS.name) -> OutgoingStatus:
    [found] = [one for one in net.nodes[name].up.status().outgoing if one.name == of]
    return found


def local(net: Net, name: str) -> LocalStatus:
    [found] = [one for one in net.nodes["c"].up.status().local if one.name == name]
    return found


def incoming(net: Net) -> IncomingStatus:
    [found] = net.nodes["c"].up.status().incoming
    return found


def send_orders(net: Net, count: int) -> None:
    for number in range(count):
        net.send("a", TO_ORDERS, str(number), transactional=True)
    net.run()


def part(net: Net, *names: str) -> None:
    """Break the link between two nodes."""
    net.blocked.add(frozenset(names))
    net.cut(*names)
    net.run()


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.4")
def test_a_sequence_tells_what_its_destination_has_acknowledged_and_when_it_sends_again(net: Net) -> None:
    send_orders(net, 2)
    net.pass_ms(ACK_DELAY_MS)
    status = outgoing(net)
    assert (status.last_ack_s, status.last_ack_count) == (None, 0)
    assert (status.first_unacked, status.last_unacked, status.unacked, status.next_number) == (1, 2, 2, 3)
    assert (status.waiting, status.unsent, status.in_flight) == (2, 0, 0)
    assert status.identifier == incoming(net).sequence
    assert (status.resend_interval_ms, status.resend_at_ms) == (1_000, START.uptime_ms + 1_000)
    part(net, "b", "c")
    send_orders(net, 3)
    net.pass_ms(2_500)
    status = outgoing(net)
    assert (status.first_unacked, status.last_unacked, status.unacked, status.waiting) == (1, 5, 5, 5)
    assert (status.resend_attempt, status.resent) == (2, 10)
    assert status.resend_at_ms == START.uptime_ms + 3_000
    net.blocked.clear()
    net.pass_ms(2_000)
    status = outgoing(net)
    assert (status.waiting, status.unacked, status.first_unacked, status.last_unacked) == (0, 0, 0, 0)
    assert status.last_ack_count > 0
    assert START.utc_s + 2 <= (status.last_ack_s or 0) <= net.now.utc_s
    assert (status.resend_attempt, status.resend_at_ms) == (0, None)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.4")
def test_what_was_withdrawn_does_not_count_among_what_was_sent(net: Net) -> None:
    part(net, "b", "c")
    for number in range(6):
        lifetime = {"time_to_reach_queue_s": 1} if number in (3, 4) else {}
        net.send("a", TO_ORDERS, str(number), transactional=True, **lifetime)
        if number == 2:
            net.pass_ms(ACK_DELAY_MS)
            part(net, "a", "b")  # 1 to 3 have been sent.
    net.pass_ms(3_000)
    status = outgoing(net)
    assert (status.waiting, status.unsent, status.unacked) == (4, 1, 3)
    assert (status.first_unacked, status.last_unacked, status.next_number) == (1, 3, 7)
    net.blocked.discard(frozenset(("a", "b")))
    net.pass_ms(500)
    status = outgoing(net)
    assert (status.waiting, status.unsent, status.unacked, status.last_unacked) == (4, 0, 4, 6)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.3")
def test_a_queue_is_one_whatever_priorities_its_messages_have(net: Net) -> None:
    part(net, "a", "b")
    for priority in (1, 3, 3, 7):
        net.send("a", TO_NOTES, "", priority=priority)
    net.run()
    status = outgoing(net, of=guid_text(guid_of("c")))
    assert (status.waiting, status.unsent, status.in_flight, status.sequence) == (4, 4, 0, False)
    assert (status.state, status.next_hop) == ("disconnected", "b:1801")
    assert status.last_failure == "connection refused"
    assert status.retry_at_ms == net.now.uptime_ms + 200
    assert status.failing_since_s == START.utc_s
    net.pass_ms(5_000)
    assert outgoing(net, of=guid_text(guid_of("c"))).failing_since_s == START.utc_s
    net.blocked.clear()
    net.pass_ms(300)
    status = outgoing(net, of=guid_text(guid_of("c")))
    assert (status.state, status.waiting, status.retry_at_ms, status.last_failure) == (
        "connected",
        0,
        None,
        "",
    )


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
def test_a_paused_queue_and_one_without_a_way_say_so(net: Net) -> None:
    a = net.nodes["a"]
    a.routes = replace(a.routes, peers={**net.peers_of("a"), guid_of("z"): Peer(("z",))})
    net.start("a")
    send_orders(net, 1)
    net.nodes["a"].up.hold(TO_ORDERS.name, on_hold=True)
    assert outgoing(net).state == "on hold"
    nowhere = at("z")
    net.send("a", nowhere, "", transactional=True)
    net.run()
    assert (outgoing(net, of=nowhere.name).state, outgoing(net, of=nowhere.name).next_hop) == ("no route", "")


def test_a_local_queue_tells_what_it_takes_and_who_receives(net: Net) -> None:
    net.send("a", TO_NOTES, "1")
    net.send("a", TO_NOTES, "2")
    net.run()
    status = local(net, "notes")
    assert (status.waiting, status.unsettled, status.consumers, status.quota_bytes) == (2, 0, 0, 5_000)
    assert status.held == 0
    assert 0 < status.size_bytes < 5_000
    core = net.nodes["c"].up
    core.consume(1, "notes", 1, transactional=True)
    core.consume(2, "orders", 1, transactional=True)
    net.run()
    assert (local(net, "notes").unsettled, local(net, "notes").consumers) == (1, 1)
    assert (local(net, "orders").unsettled, local(net, "orders").consumers) == (0, 1)
    core.purge("notes")
    net.run()
    assert (local(net, "notes").waiting, local(net, "notes").purging) == (1, True)
    core.settle(1, "notes", net.now, commit=False)
    net.run()
    assert (local(net, "notes").waiting, local(net, "notes").purging) == (0, False)


def test_a_local_queue_tells_what_came_and_went_also_after_a_restart(net: Net) -> None:
    def told() -> tuple[int, int, int, int | None]:
        status = local(net, "orders")
        age = None if status.oldest_s is None else net.now.utc_s - status.oldest_s
        return status.waiting, status.entered, status.left, age

    assert told() == (0, 0, 0, None)
    send_orders(net, 2)
    net.pass_ms(60_000)
    send_orders(net, 1)
    assert told() == (3, 3, 0, 60)
    core = net.nodes["c"].up
    core.consume(1, "orders", 2, transactional=True)
    net.run()
    assert told() == (3, 3, 0, 60), "what a consumer has is the oldest still"
    core.settle(1, "orders", net.now, commit=True)
    net.run()
    assert told() == (1, 3, 2, 0)
    assert net.receive("c", "orders") == [b"0"]
    assert told() == (0, 3, 3, None)
    send_orders(net, 1)
    net.kill("c")
    net.start("c")
    net.run()
    assert told()[:3] == (1, 0, 0), "counts begin with the process"
    assert net.receive("c", "orders") == [b"0"]
    assert told()[:3] == (0, 0, 1)


def test_sessions_tell_their_windows_and_refusals_their_cause(net: Net) -> None:
    for _ in range(6):
        net.send("a", TO_NOTES, "x" * 2_000)
    net.run()
    status = net.nodes["c"].up.status()
    assert status.refusals == {"NACK_Q_EXCEED_QUOTA": status.refused}
    assert status.refused > 0
    [session] = net.nodes["a"].up.status().sessions
    assert (session.host, session.manager) == ("b", guid_text(guid_of("b")))
    assert (session.window, session.unacknowledged) == (64, 0)


def test_a_purge_is_over_when_what_was_out_is_rejected(net: Net) -> None:
    net.send("a", at("c"), "x", transactional=True)
    net.pass_ms(2_000)
    core = net.nodes["c"].up
    core.consume(1, "orders", 1, transactional=True)
    net.run()
    core.purge("orders")
    net.run()
    assert local(net, "orders").purging
    core.reject(1, "orders")
    net.run()
    assert not local(net, "orders").purging


def test_a_deleted_queue_is_shown_until_its_last_message_has_left(net: Net) -> None:
    net.send("a", TO_NOTES, "1")
    net.run()
    core = net.nodes["c"].up
    core.delete("notes")
    assert local(net, "notes").purging
    net.run()
    assert "notes" not in {queue.name for queue in core.status().local}


def arrive(net: Net, number: int, *, ordinal: int = 1, previous: int | None = None) -> None:
    """Make a message of a sequence from `a` arrive at `c`, as if a session had brought it."""
    header = TransactionHeader(
        tx_sequence_id=TxSequenceId(time_stamp=50, ordinal=ordinal),
        tx_sequence_number=number,
        previous_tx_sequence_number=number - 1 if previous is None else previous,
    )
    message = user_message(
        source=guid_of("a"),
        destination_manager=guid_of("c"),
        destination=16,
        message_id=1_000 * ordinal + number,
        sent_time_s=0,
        body=b"",
        transaction=header,
    )
    brought(net, "c", encode_packet(message), remote("b"))
    net.run()


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
def test_an_incoming_sequence_tells_what_it_holds_and_what_is_missing(net: Net) -> None:
    arrive(net, 1)
    assert (incoming(net).held, incoming(net).missing, incoming(net).reject_count) == (0, None, 0)
    net.pass_ms(5_000)
    arrive(net, 4)
    arrive(net, 6)
    status = incoming(net)
    assert (status.queue, status.name, status.source) == (
        "orders",
        TO_ORDERS.name.replace("\\10", "\\00000010"),
        guid_text(guid_of("a")),
    )
    assert (status.number, status.sequence, status.last_access_s) == (1, (50, 1), START.utc_s + 5)
    assert (status.held, status.missing, status.reject_count) == (2, (2, 3), 2)
    assert local(net, "orders").held == 2
    net.kill("c")
    net.start("c")
    assert incoming(net) == status
    arrive(net, 3, previous=1)  # 2 was withdrawn by its sender.
    assert (incoming(net).number, incoming(net).held, incoming(net).missing) == (4, 1, (5, 5))


def test_what_was_dropped_as_a_duplicate_is_counted_by_sender(net: Net) -> None:
    for number in (1, 1, 1, 2, 2):
        arrive(net, number)
    found = net.nodes["c"].up.status()
    assert [(one.source, one.dropped) for one in found.duplicates_of] == [(guid_text(guid_of("a")), 3)]
    assert found.duplicates == 3
    assert net.nodes["a"].up.status().duplicates_of == []


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
def test_what_is_missing_of_a_newer_sequence_is_counted_from_its_beginning(net: Net) -> None:
    arrive(net, 5, previous=0)
    arrive(net, 3, ordinal=2)
    assert incoming(net).missing == (1, 2)


@pytest.mark.parametrize(
    ("destination", "name"),
    [
        (TO_ORDERS, f"PRIVATE={guid_text(guid_of('c'))}\\00000010"),
        (direct("c"), r"DIRECT=TCP:c\private$\orders"),
    ],
)
def test_a_sequence_goes_by_the_name_that_its_sender_has_for_the_queue(
    destination: object, name: str
) -> None:
    net = chain("a", "c", queues=[ORDERS])
    net.send("a", destination, "", transactional=True)  # type: ignore[arg-type]
    net.run()
    assert [one.name for one in net.nodes["c"].up.status().incoming] == [name]


def test_it_is_told_how_long_messages_were_on_their_way_and_in_their_queue(net: Net) -> None:
    part(net, "a", "b")
    send_orders(net, 2)
    net.pass_ms(40_000)
    net.blocked.clear()
    net.pass_ms(2_000)
    status = net.nodes["c"].up.status()
    assert status.arrived == 2
    assert 2 * 40 <= status.ages_s <= 2 * 43
    assert dict(status.ages_within)[30.0] == 0
    assert dict(status.ages_within)[60.0] == 2
    came_ms = net.now.uptime_ms
    net.pass_ms(7_000)
    net.nodes["c"].up.consume(1, "orders", 2, transactional=True)
    net.run()
    net.nodes["c"].up.settle(1, "orders", net.now, commit=True)
    net.run()
    orders = local(net, "orders")
    assert orders.received == 2
    assert 2 * 7 <= orders.waited_s <= 2 * (net.now.uptime_ms - came_ms + 2_000) / 1_000
    assert dict(orders.waited_within)[5.0] == 0
    assert local(net, "system$;journal").waited_within == []
