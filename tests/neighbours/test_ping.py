"""Pings: sent before a transport is opened, and answered."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.timers import Timer
from mqproto.manager.queuemanager import QueueManager
from mqproto.neighbours.ping import PING_RESPONSE_MS, answer_ping
from mqproto.routing import NextHop, Routes
from mqproto.testing import pings
from mqproto.turn.effects import OpenTransport, SendPing
from mqproto.wire import NULL_GUID, EstablishConnection, Guid, PacketBuffer, Ping, decode_packet, ping_packet
from tests.pair import START, Net, at, chain, direct, guid_of, queue

NOTES = queue("notes", 17, transactional=False)
PINGING = Settings(require_pings=True)
RETRY_MS = PINGING.try_connect_interval_ms
US, THEM = guid_of("a"), guid_of("c")


def a_pair(settings: Settings = PINGING) -> Net:
    return chain("a", "c", queues=[NOTES], settings=settings)


def asking() -> tuple[Net, QueueManager, SendPing]:
    """Let `a` send one Ping; return the net, the queue manager of `a`, and that Ping."""
    net = a_pair()
    net.send("a", at("c", 17), "x")
    core = net.nodes["a"].up
    batch = core.take(net.now)
    assert batch.connects == []
    [ping] = batch.pings
    return net, core, ping


def a_response(
    ping: SendPing, *, refused: bool = False, manager: Guid = THEM, cookie: int | None = None
) -> bytes:
    request = ping_packet.decode(ping.datagram)
    response = Ping(cookie=request.cookie if cookie is None else cookie, qm_guid=manager)
    response.refused = refused
    return ping_packet.encode(response)


def failures(net: Net, name: str = "a") -> list[tuple[object, object]]:
    notes = [note.facts for note in net.nodes[name].notes if note.name == "session-closed"]
    return [(facts["section"], facts["reason"]) for facts in notes]


def test_by_default_pings_are_answered_and_nobody_is_asked() -> None:
    net = a_pair(Settings())
    net.send("a", at("c", 17), "x")
    batch = net.nodes["a"].up.take(net.now)
    assert (batch.pings, len(batch.connects)) == ([], 1)
    assert net.nodes["c"].up.pinged(ping_packet.encode(Ping(cookie=1, qm_guid=US))) is not None


REQUEST = bytes.fromhex("0000 4855 07000000") + US
"""A Ping as Windows Server 2003 sends it before it connects: no flag, the signature, a cookie of 7, and its GUID."""


@pytest.mark.spec("[MS-MQQB] 2.1.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.7")
@pytest.mark.parametrize("answers", [True, False])
def test_whether_pings_are_answered_is_a_setting_of_its_own(answers: bool) -> None:
    net = a_pair(Settings(answer_pings=answers, require_pings=not answers))
    response = net.nodes["c"].up.pinged(REQUEST)
    assert response == (bytes.fromhex("0000 4855 07000000") + THEM if answers else None)


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.2")
def test_who_asks_first_and_who_does_not_work_in_one_network() -> None:
    """`a` pings first, as Windows Server 2003 does; `b` neither pings nor answers, as newer Windows does; `c` behaves
    as usual.

    `a` does not call `b`, but it accepts messages from `b`; and `b` accepts messages from `a` once it has called `a`.
    """
    net = Net()
    a = net.add("a", NOTES, settings=PINGING)
    net.add("b", NOTES, settings=Settings(answer_pings=False))
    net.add("c", NOTES)
    for here in "abc":
        for there in "abc":
            if here != there:
                net.route(here, there, there)
    net.start()
    for name in "bc":
        net.send("a", at(name, 17), f"to {name}")
        net.send(name, at("c" if name == "b" else "b", 17), f"from {name}")
    net.pass_ms(3 * RETRY_MS)
    assert sorted(net.receive("c", "notes")) == [b"from b", b"to c"]
    assert net.receive("b", "notes") == [b"from c"]
    assert [section for section, _ in failures(net)] == ["3.1.6.8"] * 3
    assert "b" not in {end for wire in a.wires.values() for end in wire.ends}
    net.send("b", at("a", 17), "b calls")
    net.pass_ms(RETRY_MS)
    assert net.receive("a", "notes") == [b"b calls"]
    assert net.receive("b", "notes") == [b"to b"]


# The initiator asks


@pytest.mark.spec("[MS-MQQB] 3.1.7.6")
def test_a_request_has_our_guid_and_no_flag_and_each_has_the_next_cookie() -> None:
    net = Net()
    net.add("a", settings=PINGING)
    for name in "bcd":
        net.route("a", name, name)
    net.start()
    for name in "bcd":
        net.send("a", at(name, 17), "x")
    requests = [ping_packet.decode(ping.datagram) for ping in net.nodes["a"].up.take(net.now).pings]
    assert requests == [Ping(flags=0, cookie=cookie, qm_guid=US) for cookie in (1, 2, 3)]


@pytest.mark.spec("[MS-MQQB] 3.1.7.6")
def test_the_cookie_wraps_at_32_bits() -> None:
    net = a_pair()
    core = net.nodes["a"].up
    core.inspect().transports.pings._cookie = 2**32 - 1
    net.send("a", at("c", 17), "x")
    [ping] = core.take(net.now).pings
    assert ping_packet.decode(ping.datagram).cookie == 0
    core.ping_answered(ping.session, a_response(ping))
    assert len(core.take(net.now).connects) == 1


@pytest.mark.parametrize(
    ("ping", "asked"), [(None, ("10.0.0.3", 3527)), (("10.0.0.4", 3528), ("10.0.0.4", 3528))]
)
def test_a_neighbour_is_pinged_at_its_own_port_and_called_at_its_other(
    ping: tuple[str, int] | None, asked: tuple[str, int]
) -> None:
    net = a_pair()
    net.nodes["a"].routes = Routes({THEM: (NextHop(THEM, "10.0.0.3", 1802, ping),)})
    net.start("a")
    net.send("a", at("c", 17), "x")
    core = net.nodes["a"].up
    [request] = core.take(net.now).pings
    assert (request.host, request.port) == asked
    core.ping_answered(request.session, a_response(request))
    assert core.take(net.now).connects == [OpenTransport(request.session, "10.0.0.3", 1802)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.9")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.9")
def test_a_good_response_opens_the_transport_once_and_stops_the_timer() -> None:
    net, core, ping = asking()
    for _ in range(3):
        core.ping_answered(ping.session, a_response(ping))
    assert core.take(net.now).connects == [OpenTransport(ping.session, "c", 1801)]
    assert not core.inspect().desk.timers.runs(Timer.PING_RESPONSE, ping.session)


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.9")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.9")
def test_a_refusal_is_a_failed_attempt_with_its_reason() -> None:
    net, core, ping = asking()
    core.ping_answered(ping.session, a_response(ping, refused=True))
    net.run()
    assert net.nodes["a"].wires == {}
    assert failures(net) == [("3.1.7.9", "c:3527 answers a ping that it would refuse a session")]
    status = core.status().outgoing[0]
    assert (status.state, status.waiting) == ("disconnected", 1)
    assert status.last_failure == failures(net)[0][1]


@pytest.mark.spec("[MS-MQQB] 3.1.2.9")
@pytest.mark.spec("[MS-MQQB] 3.1.6.8")
@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.9")
def test_silence_for_a_second_is_a_failed_attempt() -> None:
    net, core, _ = asking()
    net.pass_ms(PING_RESPONSE_MS - 1)
    assert failures(net) == []
    net.pass_ms(1)
    [(section, reason)] = failures(net)
    assert section == "3.1.6.8"
    assert str(reason).startswith("no answer to a ping from c:3527 within 1000 ms")
    assert core.status().outgoing[0].state == "disconnected"


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.2")
@pytest.mark.spec("[MS-MQQB] 3.1.6.1")
def test_each_try_pings_again_and_the_first_good_response_lets_everything_through() -> None:
    net = a_pair()
    net.blocked.add(frozenset("ac"))
    net.send("a", at("c", 17), "x")
    net.pass_ms(2 * (PING_RESPONSE_MS + RETRY_MS) + PING_RESPONSE_MS)
    assert [section for section, _ in failures(net)] == ["3.1.6.8"] * 3
    net.blocked.clear()
    net.pass_ms(RETRY_MS)
    assert net.receive("c", "notes") == [b"x"]
    assert len(failures(net)) == 3


@pytest.mark.spec("[MS-MQQB] 3.1.7.8")
@given(st.one_of(st.binary(max_size=48), pings().map(ping_packet.encode)))
def test_what_is_no_response_to_the_request_is_ignored(datagram: bytes) -> None:
    net, core, ping = asking()
    cookie = ping_packet.decode(ping.datagram).cookie
    if len(datagram) == 24 and int.from_bytes(datagram[4:8], "little") == cookie:
        datagram = datagram[:4] + bytes(4) + datagram[8:]
    core.ping_answered(ping.session, datagram)
    core.ping_answered(ping.session + 1, a_response(ping))
    batch = core.take(net.now)
    assert (batch.connects, batch.closes) == ([], [])
    core.ping_answered(ping.session, a_response(ping))
    assert len(core.take(net.now).connects) == 1


@pytest.mark.spec("[MS-MQQB] 3.1.7.8")
def test_a_response_that_comes_too_late_is_ignored() -> None:
    net, core, ping = asking()
    net.pass_ms(PING_RESPONSE_MS)
    core.ping_answered(ping.session, a_response(ping))
    assert core.take(net.now).connects == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.8")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_neighbours_pinged_at_once_are_both_heard(order: tuple[int, int]) -> None:
    net = a_pair()
    net.send("a", direct("c", "notes"), "x")
    net.send("a", direct("10.0.0.9"), "x")
    core = net.nodes["a"].up
    requests = core.take(net.now).pings
    for index in order:
        core.ping_answered(requests[index].session, a_response(requests[index]))
    assert {connect.host for connect in core.take(net.now).connects} == {"c", "10.0.0.9"}


def test_a_request_that_cannot_be_sent_fails_with_the_shells_reason() -> None:
    net, core, ping = asking()
    core.lost(ping.session, "no computer is found under c:3527", net.now)
    assert core.status().outgoing[0].last_failure == "no computer is found under c:3527"
    assert not core.inspect().desk.timers.runs(Timer.PING_RESPONSE, ping.session)
    core.ping_answered(ping.session, a_response(ping))
    assert core.take(net.now).connects == []


def test_a_manager_that_stops_waits_for_no_response() -> None:
    net, core, ping = asking()
    core.stop()
    batch = core.take(net.now)
    assert [close.session for close in batch.closes] == [ping.session]
    assert not core.inspect().desk.timers.runs(Timer.PING_RESPONSE, ping.session)


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.3")
@pytest.mark.parametrize("settings", [PINGING, Settings()])
def test_the_handshake_says_whether_a_ping_went_before(settings: Settings) -> None:
    net = a_pair(settings)
    net.send("a", at("c", 17), "x")
    net.run()
    handshake = [decode_packet(PacketBuffer().feed(chunk)[0]) for _, _, chunk in net.traffic[:2]]
    said = [packet.no_ping for packet in handshake if isinstance(packet, EstablishConnection)]
    assert said == [not settings.require_pings] * 2
    assert net.receive("c", "notes") == [b"x"]


def test_a_response_with_our_own_guid_is_refused_by_name() -> None:
    net, core, ping = asking()
    core.ping_answered(ping.session, a_response(ping, manager=US))
    net.run()
    assert net.nodes["a"].wires == {}
    assert "our own GUID" in str(failures(net))


# The acceptor answers


@pytest.mark.spec("[MS-MQQB] 3.1.7.7")
@given(pings(), st.booleans())
def test_a_response_has_the_requests_cookie_and_type_our_guid_and_our_verdict(
    ping: Ping, accepting: bool
) -> None:
    datagram = answer_ping(ping_packet.encode(ping), THEM, accepting=accepting)
    assert datagram is not None
    response = ping_packet.decode(datagram)
    assert (response.cookie, response.client, response.qm_guid) == (ping.cookie, ping.client, THEM)
    assert response.refused == (not accepting or ping.qm_guid in (THEM, NULL_GUID))


@pytest.mark.spec("[MS-MQQB] 3.1.7.7")
@given(st.binary(max_size=64))
def test_a_response_is_as_long_as_its_request_and_what_is_no_ping_gets_none(datagram: bytes) -> None:
    response = answer_ping(datagram, THEM, accepting=True)
    is_ping = len(datagram) == 24 and datagram[2:4] == b"HU"
    assert (response is not None) == is_ping
    assert response is None or len(response) == len(datagram)


@pytest.mark.spec("[MS-MQQB] 3.1.7.7")
@pytest.mark.parametrize(("client", "sessions", "refused"), [("x", 1, False), ("x", 2, True), ("c", 0, True)])
def test_a_manager_refuses_by_ping_whom_it_would_refuse_by_session(
    client: str, sessions: int, refused: bool
) -> None:
    net = a_pair(Settings(maximum_sessions=2))
    core = net.nodes["c"].up
    for number in range(sessions):
        core.accepted(f"10.0.0.{number}", net.now)
    datagram = core.pinged(ping_packet.encode(Ping(cookie=9, qm_guid=guid_of(client))))
    assert datagram is not None
    assert ping_packet.decode(datagram).refused is refused


def test_an_answer_is_nothing_to_carry_out() -> None:
    net = a_pair()
    core = net.nodes["c"].up
    core.take(START)
    idle = core.take(START)
    assert core.pinged(ping_packet.encode(Ping(qm_guid=US)))
    assert core.take(START) == idle
