"""Neighbours: there is a session when there is something to send, and it carries the right messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.queues.localqueue import SystemQueue
from mqproto.routing import NextHop, Peer, Routes
from mqproto.session.acknowledgment import ACK_DELAY_MS
from mqproto.turn.effects import CloseTransport, OpenTransport
from mqproto.wire import (
    NULL_GUID,
    Guid,
    PacketBuffer,
    SessionAck,
    UserMessage,
    decode_packet,
    encode_packet,
    establish_connection,
)
from mqproto.wire.layouts.internal import EstablishConnection
from tests.pair import Net, at, chain, direct, guid_of, queue
from tests.sessions import an_ack

ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)
RETRY_MS = Settings().try_connect_interval_ms


def a_pair(settings: Settings | None = None) -> Net:
    return chain("a", "c", queues=[ORDERS, NOTES], settings=settings)


def sessions(net: Net, name: str) -> int:
    return net.nodes[name].up.status().sessions_open


def reasons(net: Net, name: str) -> list[object]:
    return [note.facts["reason"] for note in net.nodes[name].notes if note.name == "session-closed"]


# Connecting


@pytest.mark.spec("[MS-MQQB] 3.1.5.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.12")
def test_there_is_no_session_until_there_is_something_to_send() -> None:
    net = a_pair()
    net.pass_ms(60_000)
    assert net.traffic == []
    net.send("a", at("c", 17), "x")
    net.run()
    assert sessions(net, "a") == sessions(net, "c") == 1
    assert net.receive("c", "notes") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
@pytest.mark.spec("[MS-MQQB] 3.1.2.3")
def test_a_refused_connection_is_tried_again_after_each_interval() -> None:
    net = a_pair()
    net.kill("c")
    net.send("a", at("c", 17), "x")
    net.pass_ms(3 * RETRY_MS + 100)
    assert reasons(net, "a") == ["connection refused"] * 4
    status = net.nodes["a"].up.status().outgoing[0]
    assert (status.state, status.last_failure) == ("disconnected", "connection refused")
    net.start("c")
    net.pass_ms(RETRY_MS)
    assert net.receive("c", "notes") == [b"x"]
    assert net.nodes["a"].up.status().outgoing[0].last_failure == ""


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_lost_session_is_opened_again_while_anything_waits_for_its_order_ack() -> None:
    """All messages have session acknowledgments; the OrderAck is lost with the destination's memory."""
    net = a_pair()
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    net.kill("c")
    net.start("c")
    net.pass_ms(RETRY_MS + 30_000 + 1_000)
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0
    assert net.receive("c", "orders") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.4.1")
def test_a_node_that_starts_connects_where_the_outgoing_table_is_not_empty() -> None:
    net = a_pair()
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    net.kill("a")
    net.start("a")
    net.run()
    assert sessions(net, "a") == 1
    net.pass_ms(40_000)
    assert net.nodes["a"].up.status().outgoing[0].waiting == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_session_that_closed_with_nothing_left_is_opened_again_at_once() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x")
    net.pass_ms(700_000)
    assert sessions(net, "a") == 0
    net.send("a", at("c", 17), "y")
    net.run()
    assert net.receive("c", "notes") == [b"x", b"y"]


@pytest.mark.spec("[MS-MQQB] 3.1.6.2")
def test_an_idle_session_closes_within_two_intervals_and_opens_for_the_next_message() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x")
    net.pass_ms(599_000)
    assert sessions(net, "a") == 1
    net.pass_ms(2_000)
    assert sessions(net, "a") == sessions(net, "c") == 0
    assert any("no messages" in str(reason) for reason in reasons(net, "a") + reasons(net, "c"))


@pytest.mark.spec("[MS-MQQB] 3.1.6.6")
def test_a_connection_that_says_nothing_is_closed_after_the_initialization_time() -> None:
    net = a_pair()
    core = net.nodes["c"].up
    core.accepted("10.0.0.66", net.now)
    net.pass_ms(59_000)
    assert len(core.inspect().transports.sessions) == 1
    net.pass_ms(1_000)
    assert core.inspect().transports.sessions == {}
    assert "WAITING_EC_MSG" in str(reasons(net, "c")[0])


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_incoming_connections_beyond_the_maximum_are_refused() -> None:
    net = a_pair(Settings(maximum_sessions=2))
    core = net.nodes["c"].up
    keys = [core.accepted(f"10.0.0.{n}", net.now) for n in range(3)]
    for key in keys:
        client = guid_of(f"stranger {key}")
        core.receive(
            key,
            encode_packet(establish_connection(client=client, server=guid_of("c"), time_stamp_ms=0)),
            net.now,
        )
    batch = core.take(net.now)
    answers = [decode_packet(send.chunks[0]) for send in batch.sends]
    assert [answer.refused for answer in answers if isinstance(answer, EstablishConnection)] == [
        False,
        False,
        True,
    ]
    assert [close.session for close in batch.closes] == [keys[2]]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
@pytest.mark.parametrize(("presented", "refused"), [("a", False), ("x", True)])
def test_who_has_shown_a_certificate_is_nobody_but_the_manager_that_it_is_pinned_to(
    presented: str, refused: bool
) -> None:
    net = a_pair()
    core = net.nodes["c"].up
    session = core.accepted("10.0.0.1", net.now, guid_of("a"))
    request = establish_connection(client=guid_of(presented), server=guid_of("c"), time_stamp_ms=0)
    core.receive(session, encode_packet(request), net.now)
    batch = core.take(net.now)
    answer = decode_packet(batch.sends[0].chunks[0])
    assert isinstance(answer, EstablishConnection)
    assert answer.refused == refused
    assert [close.section for close in batch.closes] == ["3.1.5.3.1"] * refused


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
def test_two_nodes_with_one_identity_are_told_and_exchange_nothing() -> None:
    net = a_pair()
    net.add("z", NOTES).cloned_from = "a"
    net.start("z")
    net.send("a", direct("z", "notes"), "x")
    net.pass_ms(100)
    assert any("presents our own GUID" in str(reason) for reason in reasons(net, "z"))
    assert ["presents our own GUID" in str(reason) for reason in reasons(net, "a")] == [True]
    assert net.nodes["a"].up.status().outgoing[0].waiting == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
def test_whoever_answers_under_another_identity_gets_nothing() -> None:
    net = a_pair()
    net.route("a", "z", "z")
    impostor = net.add("z", queue("notes", 17, transactional=False))
    impostor.routes = net.nodes["c"].routes
    net.start("z")
    net.kill("a")
    node = net.nodes["a"]
    node.routes = Routes({guid_of("c"): (NextHop(guid_of("c"), "z"),)})
    net.start("a")
    net.send("a", at("c", 17), "secret")
    net.pass_ms(20_000)
    assert not any(b"secret" in chunk for _, _, chunk in net.traffic)
    assert len(reasons(net, "a")) >= 3


# Two sessions, one session


@pytest.mark.spec("[MS-MQQB] 3.1.5.10")
def test_both_sides_may_connect_at_once_and_everything_arrives() -> None:
    net = Net()
    for name in "ac":
        net.add(name, ORDERS, NOTES)
    net.route("a", "c", "c")
    net.route("c", "a", "a")
    net.start()
    for number in range(10):
        net.send("a", at("c"), str(number), transactional=True)
        net.send("c", at("a"), str(number), transactional=True)
    net.turn_together()
    net.pass_ms(2_000)
    for name in "ac":
        assert net.receive(name, "orders") == [str(number).encode() for number in range(10)]
        assert net.nodes[name].up.status().outgoing[0].waiting == 0
    assert sessions(net, "a") == sessions(net, "c") == 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.2")
def test_what_goes_back_uses_the_session_that_the_neighbour_opened() -> None:
    net = a_pair()
    net.send("a", at("c"), "x", transactional=True)
    net.pass_ms(1_000)
    assert sessions(net, "a") == sessions(net, "c") == 1


@pytest.mark.spec("[MS-MQQB] 3.1.5.2")
def test_when_our_own_session_breaks_the_neighbours_serves_at_the_next_try() -> None:
    net = Net()
    for name in "ac":
        net.add(name, ORDERS, NOTES)
    net.route("a", "c", "c")
    net.route("c", "a", "a")
    net.start()
    net.send("a", at("c", 17), "x")
    net.send("c", at("a", 17), "x")
    net.turn_together()
    net.run()
    assert sessions(net, "a") == 2
    ours = next(iter(net.nodes["a"].up.inspect().neighbours._by_session))
    net.blocked.add(frozenset("ac"))
    net._break(net.nodes["a"].wires[ours], "reset")
    net.send("a", at("c", 17), "y", recoverable=True)
    net.pass_ms(RETRY_MS + 100)
    assert sessions(net, "a") == 1
    assert b"y" in net.receive("c", "notes")


def test_two_hops_to_one_manager_do_not_take_one_session_for_both() -> None:
    net = a_pair()
    node = net.nodes["a"]
    node.routes = Routes(node.routes.managers, {"c": NextHop(guid_of("c"), "c", 1_802)})
    net.start()
    net.send("c", at("a", 99), "x")  # c opens a session to a, which serves one of the two hops.
    net.run()
    net.send("a", at("c", 17), "routed")
    net.send("a", direct("c", "notes"), "direct")
    net.run()
    assert sorted(net.receive("c", "notes")) == [b"direct", b"routed"]
    assert sessions(net, "a") == 2


# Several next hops


def two_ways(settings: Settings | None = None) -> Net:
    """Return a net in which `a` reaches `c` through `b`, or through `d` if necessary; `c` reaches `a` in the same
    way.
    """
    net = Net()
    for name in "abcd":
        net.add(name, *((ORDERS, NOTES) if name == "c" else ()), settings=settings)
    net.route("a", "c", "b", "d")
    net.route("c", "a", "b", "d")
    for name in "bd":
        net.route(name, "a", "a")
        net.route(name, "c", "c")
    net.start()
    return net


def way_of(net: Net, name: str = "a") -> tuple[str, str]:
    """Return the next hop that is in use, and the state of its session."""
    (status,) = net.nodes[name].up.status().outgoing
    return status.next_hop, status.state


def attempts(net: Net, name: str = "a") -> list[tuple[str, str, str]]:
    (status,) = net.nodes[name].up.status().outgoing
    return [(attempt.address, attempt.status, attempt.reason) for attempt in status.history]


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1.3")
def test_the_first_next_hop_serves_as_long_as_it_can() -> None:
    net = two_ways()
    for number in range(3):
        net.send("a", at("c", 17), str(number), recoverable=True)
        net.pass_ms(3 * RETRY_MS)
    assert net.receive("c", "notes") == [b"0", b"1", b"2"]
    assert way_of(net) == ("b:1801", "connected")
    assert sessions(net, "d") == 0
    (status,) = net.nodes["a"].up.status().outgoing
    assert (status.next_hops, status.retry_at_ms) == (["b:1801", "d:1801"], None)


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
def test_a_next_hop_that_cannot_be_had_is_followed_by_the_next_at_once() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.run()
    assert way_of(net) == ("d:1801", "connected")
    assert net.receive("c", "notes") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
def test_after_the_last_next_hop_the_timer_runs_and_the_first_is_next() -> None:
    net = two_ways()
    net.kill("b")
    net.kill("d")
    net.send("a", at("c", 17), "x")
    net.run()
    assert way_of(net) == ("b:1801", "disconnected")
    assert reasons(net, "a") == ["connection refused"] * 2
    (status,) = net.nodes["a"].up.status().outgoing
    assert status.retry_at_ms == net.now.uptime_ms + RETRY_MS
    net.pass_ms(RETRY_MS - 1)
    assert len(reasons(net, "a")) == 2
    net.start("b")
    net.pass_ms(1)
    assert way_of(net) == ("b:1801", "connected")
    assert net.receive("c", "notes") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.3")
@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
def test_what_was_in_flight_when_a_next_hop_died_goes_over_the_next_one_in_order() -> None:
    net = two_ways()
    net.send("a", at("c", 17), "first")
    net.run()
    for number in range(5):
        net.send("a", at("c", 17), str(number), recoverable=number % 2 == 0)
    batch = net.nodes["a"].up.take(net.now)
    assert batch.sends
    assert batch.writes
    net.nodes["a"].store.commit(batch.writes)
    net.kill("b")  # The bytes never arrive.
    net.run()
    assert net.receive("c", "notes") == [b"first", b"0", b"1", b"2", b"3", b"4"]
    assert way_of(net) == ("d:1801", "connected")


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_what_a_dead_next_hop_took_with_it_comes_again_over_the_next_one() -> None:
    """The session acknowledged the message, so only the resend shows that it is missing."""
    net = two_ways()
    net.blocked.add(frozenset("bc"))
    for number in range(3):
        net.send("a", at("c"), str(number), transactional=True)
    net.run()
    net.kill("b")
    net.send("a", at("c"), "3", transactional=True)
    net.pass_ms(31_000)
    assert net.receive("c", "orders") == [b"0", b"1", b"2", b"3"]
    net.start("b")
    net.blocked.clear()
    net.pass_ms(120_000)
    assert net.receive("c", "orders") == []
    assert [q.waiting for q in net.nodes["a"].up.status().outgoing] == [0]


@pytest.mark.spec("[MS-MQQB] 3.1.5.4.2")
def test_a_next_hop_that_takes_the_connection_and_no_session_is_followed_by_the_next() -> None:
    net = two_ways()
    node = net.nodes["b"]
    node.cloned_from = "z"  # Somebody else has its address now.
    net.start("b")
    net.send("a", at("c", 17), "x")
    net.run()
    assert net.receive("c", "notes") == [b"x"]
    assert [address for address, *_ in attempts(net)] == ["b:1801", "d:1801"]


@pytest.mark.spec("[MS-MQQB] 3.1.2.3")
def test_the_queues_return_to_the_preferred_next_hop_when_it_works_again() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.pass_ms(3 * RETRY_MS)
    assert way_of(net) == ("d:1801", "connected")
    net.start("b")
    net.pass_ms(RETRY_MS)
    assert way_of(net) == ("b:1801", "connected")
    net.traffic.clear()
    net.send("a", at("c", 17), "y")
    net.run()
    assert net.receive("c", "notes") == [b"x", b"y"]
    assert not any({here, there} == set("ad") for here, there, _ in net.traffic)
    assert [q.retry_at_ms for q in net.nodes["a"].up.status().outgoing] == [None]
    net.pass_ms(700_000)
    assert sessions(net, "a") == 0, "the session with the other closes when it is idle"


def test_what_is_on_its_way_over_a_later_next_hop_is_not_overtaken() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x", recoverable=True)
    net.run()
    net.start("b")
    core, store = net.nodes["a"].up, net.nodes["a"].store
    net.send("a", at("c", 17), "y", recoverable=True)
    batch = core.take(net.now)
    assert batch.writes
    store.commit(batch.writes)  # It leaves for `d`, who is slow to answer.
    net._advance(net.now.uptime_ms + RETRY_MS)
    core.tick(net.now)
    net.run()
    net.send("a", at("c", 17), "z", recoverable=True)
    net.run()
    assert way_of(net) == ("d:1801", "connected")
    (late,) = batch.sends
    net.transmit(net.nodes["a"], late.session, b"".join(late.chunks))
    net.run()
    assert way_of(net) == ("b:1801", "connected")
    assert net.receive("c", "notes") == [b"x", b"y", b"z"]


def test_a_later_next_hop_that_dies_on_the_way_back_leaves_its_work_to_the_preferred_one() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x", recoverable=True)
    net.run()
    net.start("b")
    net._advance(net.now.uptime_ms + RETRY_MS)
    core = net.nodes["a"].up
    core.tick(net.now)
    (connect,) = core.take(net.now).connects
    net.kill("d")
    assert way_of(net) == ("b:1801", "connecting")
    net.connect(net.nodes["a"], connect.session, connect.host)
    net.send("a", at("c", 17), "y", recoverable=True)
    net.run()
    assert net.receive("c", "notes") == [b"x", b"y"]


def test_a_preferred_next_hop_that_calls_us_serves_from_then_on() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.run()
    net.start("b")
    net.send("b", at("a", 99), "hello")
    net.run()
    assert way_of(net) == ("b:1801", "connected")
    assert attempts(net)[-1] == ("b", "Established", "")


def test_a_next_hop_that_calls_us_while_none_can_be_had_serves() -> None:
    net = two_ways()
    net.kill("b")
    net.kill("d")
    net.send("a", at("c", 17), "x")
    net.run()
    net.start("d")
    net.send("d", at("a", 99), "hello")
    net.run()
    assert way_of(net) == ("d:1801", "connected")
    assert net.receive("c", "notes") == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
def test_nobody_calls_the_first_next_hop_because_a_later_one_calls_while_nothing_waits() -> None:
    """The hop that is called might call another one for the same reason; in a ring, such calls would go on forever."""
    net = two_ways()
    net.send("a", at("c", 17), "x")
    net.run()
    net.pass_ms(2 * Settings().session_cleanup_timeout_ms)
    assert sessions(net, "a") == 0
    net.send("d", at("a", 99), "hello")
    net.pass_ms(2 * RETRY_MS)
    assert (sessions(net, "a"), sessions(net, "b")) == (1, 0)


def test_a_session_that_was_left_for_a_better_one_serves_again_when_that_is_lost() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.run()
    net.start("b")
    net.pass_ms(RETRY_MS)
    net.send("a", at("c"), "y", transactional=True)
    net.traffic.clear()
    net.kill("b")
    net.pass_ms(100)
    assert {q.next_hop for q in net.nodes["a"].up.status().outgoing} == {"d:1801"}
    assert net.receive("c", "orders") == [b"y"]
    packets = [
        packet for _, there, chunk in net.traffic for packet in PacketBuffer().feed(chunk) if there == "d"
    ]
    assert not any(isinstance(decode_packet(packet), EstablishConnection) for packet in packets)


def three_ways() -> Net:
    """Return a net in which `a` reaches `c` through `b`, `d` or `e`; the first two are down, so the third is used."""
    net = Net()
    for name in "abdec":
        net.add(name, *((ORDERS, NOTES) if name == "c" else ()))
    net.route("a", "c", "b", "d", "e")
    for name in "bde":
        net.route(name, "a", "a")
        net.route(name, "c", "c")
    net.start()
    net.kill("b")
    net.kill("d")
    net.send("a", at("c", 17), "x")
    net.run()
    assert way_of(net) == ("e:1801", "connected")
    return net


def test_all_that_are_preferred_are_tried_before_the_timer_runs_again() -> None:
    net = three_ways()
    net.pass_ms(RETRY_MS)
    refused = [address for address, status, _ in attempts(net) if status == "SocketConnectFailure"]
    assert refused == ["b:1801", "d:1801"] * 2
    net.start("d")
    net.pass_ms(RETRY_MS)
    assert way_of(net) == ("d:1801", "connected")
    net.start("b")
    net.pass_ms(RETRY_MS)
    assert way_of(net) == ("b:1801", "connected")


def test_who_calls_while_a_preferred_next_hop_is_tried_serves_if_that_fails() -> None:
    net = three_ways()
    core = net.nodes["a"].up
    net._advance(net.now.uptime_ms + RETRY_MS)
    core.tick(net.now)
    (connect,) = core.take(net.now).connects
    assert connect.host == "b"
    net.start("d")
    net.send("d", at("a", 99), "hello")
    net.run()
    assert way_of(net) == ("e:1801", "connected")
    core.lost(connect.session, "no answer", net.now)
    net.run()
    assert way_of(net) == ("d:1801", "connected")


def test_a_next_hop_that_does_not_answer_is_called_once_however_often_another_comes_and_goes() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    core = net.nodes["a"].up
    [to_b] = core.take(net.now).connects
    core.lost(to_b.session, "connection refused", net.now)
    [to_d] = core.take(net.now).connects
    for _ in range(3):
        net.start("b")
        net.send("b", at("a", 99), "hello")
        net.run()
        assert way_of(net) == ("b:1801", "connected")
        net.kill("b")
        net.send("a", at("c", 17), "y")
        net.run()
        sessions = core.inspect().transports.sessions.values()
        assert [session.key for session in sessions if session.remote_address == "d"] == [to_d.session]


def test_when_all_next_hops_die_at_once_all_begins_anew() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    net.start("b")
    net.blocked.add(frozenset("bc"))
    net.blocked.add(frozenset("dc"))
    net.send("a", at("c"), "y", transactional=True)
    net.pass_ms(RETRY_MS)
    for name in "bd":
        net.kill(name)
        net.start(name)
    net.blocked.clear()
    net.pass_ms(200_000)
    assert net.receive("c", "orders") == [b"x", b"y"]
    (status,) = net.nodes["a"].up.status().outgoing
    assert (status.next_hop, status.waiting) == ("b:1801", 0)


def test_with_nothing_left_to_send_the_next_session_begins_with_the_first_next_hop() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.run()
    net.start("b")
    net.kill("d")
    assert way_of(net) == ("b:1801", "disconnected")
    net.send("a", at("c", 17), "y")
    net.run()
    assert way_of(net) == ("b:1801", "connected")
    assert net.receive("c", "notes") == [b"x", b"y"]


@pytest.mark.spec("[MS-MQQB] 3.1.4.2")
def test_a_manager_that_stops_goes_on_to_no_other_next_hop() -> None:
    net = two_ways()
    net.blocked.add(frozenset("bc"))
    net.send("a", at("c"), "x", transactional=True)
    net.run()
    core = net.nodes["a"].up
    core.stop()
    batch = core.take(net.now)
    assert (len(batch.closes), batch.connects) == (1, [])


# Connection history


@pytest.mark.spec("[MS-MQQB] 3.1.5.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
def test_each_try_is_remembered_with_its_time_address_and_outcome() -> None:
    net = two_ways()
    net.kill("b")
    net.send("a", at("c"), "x", transactional=True)
    begun_s = net.now.utc_s
    net.run()
    (status,) = net.nodes["a"].up.status().outgoing
    assert [attempt.time_s for attempt in status.history] == [begun_s, begun_s]
    assert attempts(net) == [
        ("b:1801", "SocketConnectFailure", "connection refused"),
        ("d:1801", "Established", ""),
    ]
    net.kill("c")  # So that the message keeps waiting for its OrderAck.
    net.kill("d")
    net.run()
    assert attempts(net)[1:] == [("d:1801", "Established", "connection reset")]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.2")
@pytest.mark.spec("[MS-MQQB] 3.1.5.4.2")
def test_a_try_is_remembered_as_far_as_it_has_come() -> None:
    net = a_pair()
    core, peer = net.nodes["a"].up, net.nodes["c"].up
    net.send("a", at("c", 17), "x")
    (connect,) = core.take(net.now).connects
    assert attempts(net) == [("c:1801", "InProcess", "")]
    accepted = peer.accepted("a", net.now)
    core.opened(connect.session, net.now)
    seen = []
    for _ in range(2):
        for send in core.take(net.now).sends:
            peer.receive(accepted, b"".join(send.chunks), net.now)
        seen += [status for _, status, _ in attempts(net)]
        for send in peer.take(net.now).sends:
            core.receive(connect.session, b"".join(send.chunks), net.now)
    assert seen == ["InProcess", "EstablishPacketReceived"]
    assert attempts(net) == [("c:1801", "Established", "")]


@pytest.mark.spec("[MS-MQQB] 3.1.5.2")
def test_a_refusal_and_a_failure_without_a_name_are_told_apart() -> None:
    net = a_pair(Settings(maximum_sessions=1))
    net.nodes["c"].routes = replace(net.nodes["c"].routes, peers={guid_of("z"): Peer()})
    net.start("c")
    net.nodes["c"].up.accepted("10.0.0.9", net.now)
    net.send("a", at("c", 17), "x")
    net.run()
    [(address, status, reason)] = attempts(net)
    assert (address, status) == ("c:1801", "ConnectionRefused")
    assert reason.startswith(
        "the acceptor refused the connection: it may have met our GUID at another address"
    )
    core = net.nodes["a"].up
    net._advance(net.now.uptime_ms + RETRY_MS)
    core.tick(net.now)
    (connect,) = core.take(net.now).connects
    core.opened(connect.session, net.now)
    core.lost(connect.session, "closed by peer", net.now)
    assert attempts(net)[1:] == [("c:1801", "UnknownFailure", "closed by peer")]


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.2")
def test_a_next_hop_that_answers_no_ping_is_remembered_so_and_followed_by_the_next() -> None:
    net = two_ways(Settings(require_pings=True))
    net.kill("b")
    net.send("a", at("c", 17), "x")
    net.pass_ms(1_000)
    ((address, status, reason), established) = attempts(net)
    assert (address, status) == ("b:1801", "PingFailure")
    assert "ping" in reason
    assert established == ("d:1801", "Established", "")
    assert net.receive("c", "notes") == [b"x"]


def test_of_the_tries_the_last_sixteen_are_remembered() -> None:
    net = a_pair()
    net.kill("c")
    net.send("a", at("c", 17), "x")
    net.pass_ms(20 * RETRY_MS)
    (status,) = net.nodes["a"].up.status().outgoing
    assert len(status.history) == 16
    assert status.history[-1].time_s == net.now.utc_s


# Loss


@pytest.mark.spec("[MS-MQQB] 3.1.7.3")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.6")
def test_what_was_on_its_way_when_the_session_broke_goes_again_in_order() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "first")
    net.run()
    for number in range(5):
        net.send("a", at("c", 17), str(number))
    core = net.nodes["a"].up
    batch = core.take(net.now)
    assert batch.sends
    net.cut("a", "c")  # The bytes never arrive.
    net.pass_ms(RETRY_MS)
    assert net.receive("c", "notes") == [b"first", b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_an_acknowledgment_that_came_just_before_the_session_broke_still_counts() -> None:
    """The acknowledgment and the break arrive in the same turn.

    The message must not stay in the count of waiting messages, and must not be sent again.
    """
    net = a_pair()
    net.send("a", at("c", 17), "x")
    net.run()
    net.send("a", at("c", 17), "y", recoverable=True)
    core = net.nodes["a"].up
    batch = core.take(net.now)
    assert batch.writes is not None
    net.nodes["a"].store.commit(batch.writes)
    (send,) = batch.sends
    core.receive(send.session, encode_packet(an_ack(2, base=1, flags=1)), net.now)
    core.lost(send.session, "connection reset", net.now)
    net.pass_ms(2_000)
    assert [q.waiting for q in core.status().outgoing] == [0]
    assert net.nodes["a"].store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.6.3")
def test_a_neighbour_that_acknowledges_nothing_loses_the_session() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x")
    net.run()
    net.send("a", at("c", 17), "y", recoverable=True)
    core = net.nodes["a"].up
    core.take(net.now)  # It leaves, and nothing comes back.
    net.pass_ms(45_000)
    assert any("session acknowledgment" in str(reason) for reason in reasons(net, "a"))


@pytest.mark.spec("[MS-MQQB] 3.1.4.2")
def test_a_manager_that_stops_closes_every_session_and_writes_what_could_have_waited() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x", recoverable=True)
    net.pass_ms(ACK_DELAY_MS)
    core = net.nodes["a"].up
    core.stop()
    batch = core.take(net.now)
    assert [type(close) for close in batch.closes] == [CloseTransport]
    assert batch.closes[0].section == "3.1.4.2"
    assert batch.writes is not None
    assert batch.writes.removals


def acknowledgments(net: Net) -> int:
    """Return the number of session acknowledgments that `c` has sent to `a`."""
    packets = [
        decode_packet(chunk) for sender, receiver, chunk in net.traffic if (sender, receiver) == ("c", "a")
    ]
    return sum(isinstance(packet, SessionAck) for packet in packets)


@pytest.mark.spec("[MS-MQQB] 3.1.6.4")
def test_an_acknowledgment_leaves_by_itself_when_nothing_else_happens() -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x", recoverable=True)
    net.pass_ms(ACK_DELAY_MS - 1)
    assert acknowledgments(net) == 0
    assert net.nodes["a"].up.status().outgoing[0].in_flight == 1
    net.pass_ms(1)
    assert acknowledgments(net) == 1
    assert net.nodes["a"].up.status().outgoing[0].in_flight == 0
    net.pass_ms(60_000)
    assert acknowledgments(net) == 1


@pytest.mark.spec("[MS-MQQB] 3.1.4.2")
def test_a_manager_that_stops_acknowledges_what_it_has_received() -> None:
    """Otherwise, the neighbours would send these messages again."""
    net = a_pair()
    net.send("a", at("c", 17), "x", recoverable=True)
    net.run()
    core = net.nodes["c"].up
    core.stop()
    batch = core.take(net.now)
    [chunk] = [chunk for send in batch.sends for chunk in send.chunks]
    assert isinstance(decode_packet(chunk), SessionAck)
    assert [close.section for close in batch.closes] == ["3.1.4.2"]


def test_what_happens_to_an_unknown_session_is_no_error() -> None:
    net = a_pair()
    core = net.nodes["a"].up
    core.opened(99, net.now)
    core.lost(99, "gone", net.now)
    core.receive(99, b"x", net.now)
    core.inspect().transports.expired(Timer.SESSION_ACK_WAIT, 99, net.now)
    assert core.take(net.now).closes == []


# Turns


@pytest.mark.spec("[MS-MQQB] 3.1.7.16")
def test_queues_to_one_neighbour_take_turns() -> None:
    net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=Settings(window_size=64))
    net.blocked.add(frozenset("ab"))
    for number in range(100):
        net.send("a", at("c"), f"t{number}", transactional=True)
        net.send("a", at("c", 17), f"r{number}", recoverable=True)
    net.run()
    net.blocked.clear()
    net.pass_ms(RETRY_MS)
    order = [chunk for here, there, chunk in net.traffic if (here, there) == ("a", "b")]
    first = next(chunk for chunk in order if b"t0" in chunk)
    raw = PacketBuffer().feed(first)
    assert sum(b"t" in packet[-4:] for packet in raw) == sum(b"r" in packet[-4:] for packet in raw) == 32


def test_a_connect_names_the_host_and_port_of_the_hop() -> None:
    net = a_pair()
    net.send("a", direct("10.9.9.9"), "x")
    assert net.nodes["a"].up.take(net.now).connects == [OpenTransport(1, "10.9.9.9", 1801)]


def test_a_connect_to_a_hop_with_tls_names_the_manager_whose_certificate_is_wanted() -> None:
    net = a_pair()
    net.nodes["a"].routes = Routes({guid_of("c"): (NextHop(guid_of("c"), "10.9.9.9", 1_811, tls=True),)})
    net.start("a")
    net.send("a", at("c", 17), "x")
    connects = net.nodes["a"].up.take(net.now).connects
    assert connects == [OpenTransport(1, "10.9.9.9", 1_811, tls=guid_of("c"))]


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
@pytest.mark.parametrize(("host", "manager"), [("10.9.9.9", NULL_GUID), ("c", guid_of("c"))])
def test_a_request_for_a_direct_name_leaves_the_manager_open_unless_its_host_is_declared(
    host: str, manager: Guid
) -> None:
    net = a_pair()
    net.send("a", direct(host), "x")
    (connect,) = net.nodes["a"].up.take(net.now).connects
    net.nodes["a"].up.opened(connect.session, net.now)
    (send,) = net.nodes["a"].up.take(net.now).sends
    request = decode_packet(send.chunks[0])
    assert isinstance(request, EstablishConnection)
    assert request.server_guid == manager


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.4")
@pytest.mark.parametrize("recoverable", [True, False])
def test_a_message_that_is_to_be_journaled_is_when_the_neighbour_has_answered_for_it(
    recoverable: bool,
) -> None:
    net = a_pair()
    net.send("a", at("c", 17), "x", journal_positive=True, recoverable=recoverable)
    net.send("a", at("c", 17), "y")
    core = net.nodes["a"].up
    while b"x" not in b"".join(chunk for _, _, chunk in net.traffic):
        net.turn("a")
        net.turn("c")
    assert core.peek(SystemQueue.JOURNAL, 9) == [], "it was sent, and nothing came back yet"
    net.run()
    assert net.receive("a", SystemQueue.JOURNAL) == [b"x"]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_a_message_whose_time_is_over_when_its_turn_comes_is_not_sent() -> None:
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    net.send("a", at("c", 17), "late", time_to_reach_queue_s=60)
    net.send("a", at("c", 17), "early")
    net.run()
    net.blocked.clear()
    net.now = Moment(
        net.now.uptime_ms + RETRY_MS, net.now.utc_s + 100
    )  # The clock was set; no timer has noticed.
    core = net.nodes["a"].up
    core.tick(net.now)
    net.run()
    assert bodies_sent(net, "a", "c") == ["early"]
    assert core.status().expired == 1


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
def test_who_has_no_session_is_told_nothing_of_a_pause() -> None:
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    net.send("a", at("c"), "x", transactional=True)
    net.nodes["a"].up.hold(at("c").name, on_hold=True)
    net.run()
    assert net.traffic == []


# Priorities  [MS-MQMQ] 2.2.19.1


def bodies_sent(net: Net, here: str, there: str) -> list[str]:
    """Return the bodies of the messages that went from one node to another, in order."""
    buffer = PacketBuffer()
    chunks = [chunk for sender, receiver, chunk in net.traffic if (sender, receiver) == (here, there)]
    packets = [decode_packet(raw) for chunk in chunks for raw in buffer.feed(chunk)]
    return [
        packet.properties.message_body.decode()
        for packet in packets
        if isinstance(packet, UserMessage) and not packet.properties.message_class
    ]


@given(
    priorities=st.lists(st.integers(0, 7), min_size=1, max_size=40),
    restarted=st.booleans(),
    window_size=st.sampled_from([1, 3, 64]),
)
def test_to_one_destination_the_highest_priority_goes_first_and_nothing_overtakes_what_is_to_be_read(
    priorities: list[int], restarted: bool, window_size: int
) -> None:
    net = a_pair(Settings(resident_messages=4, window_size=window_size))
    net.blocked.add(frozenset("ac"))
    for number, priority in enumerate(priorities):
        net.send("a", at("c", 17), str(number), priority=priority, recoverable=True)
    net.run()
    if restarted:
        net.kill("a")
        net.start("a")
    net.blocked.clear()
    net.pass_ms(RETRY_MS)
    in_order = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
    assert bodies_sent(net, "a", "c") == [str(number) for number in in_order]


def test_a_destination_with_urgent_messages_does_not_hold_up_another() -> None:
    net = chain("a", "b", "c", queues=[NOTES], settings=Settings(resident_messages=4, window_size=2))
    net.nodes["b"].queues = (NOTES,)
    net.start("b")
    net.blocked.add(frozenset("ab"))
    for number in range(200):
        net.send("a", at("c", 17), f"urgent {number}", priority=7, recoverable=True)
    net.send("a", at("b", 17), "slow", priority=0, recoverable=True)
    net.run()
    net.blocked.clear()
    net.pass_ms(RETRY_MS)
    sent = bodies_sent(net, "a", "b")
    assert len(sent) == 201
    assert sent.index("slow") < 100


def test_a_paused_priority_does_not_hold_up_the_others() -> None:
    """Pausing a queue by name pauses all of its priorities."""
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    for priority in (7, 3):
        net.send("a", at("c", 17), str(priority), priority=priority)
    urgent = next(queue for queue in net.nodes["a"].up.inspect().outbound if queue.priority == 7)
    urgent.on_hold = True
    net.blocked.clear()
    net.pass_ms(RETRY_MS)
    assert bodies_sent(net, "a", "c") == ["3"]
