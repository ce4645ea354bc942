"""Hosts: which of them have connected, what each of them did, and how long that is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqproto.base.configuration import Settings
from mqproto.neighbours.hosts import GONE, GONE_MS, MANAGERS_OF_HOST, SLOT_MS, SLOTS, Figures, HostTally, Who
from mqproto.neighbours.peerstatus import (
    FLOOD_BYTES,
    FLOOD_MESSAGES,
    FLOOD_REFUSALS,
    FLOOD_SESSIONS,
    FLOODS_SHOWN,
    FloodStatus,
    Kind,
    PeerStatus,
    floods,
)
from mqproto.routing import Peer
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    Guid,
    MessageClass,
    encode_packet,
    establish_connection,
    guid_text,
)
from tests.pair import START, Net, at, chain, guid_of, queue

OPEN = replace(queue("open", 16, transactional=False), strangers=True)
CLOSED = queue("closed", 17, transactional=False)
A, C, X = guid_of("a"), guid_of("c"), guid_text(guid_of("x"))


def with_strangers(*names: str, claims: str = "") -> Net:
    """Return a net of `a`, its neighbour `c` with two queues, and strangers.

    The first stranger presents the GUID of the node `claims`, if one is given.
    """
    net = chain("a", "c", queues=[OPEN, CLOSED])
    for name in "ac":
        node = net.nodes[name]
        node.routes = replace(node.routes, peers=net.peers_of(name))
    for name in names:
        net.add(name).cloned_from = claims if name == names[0] else ""
        net.route(name, "c", "c")
    net.start()
    return net


def connected(net: Net, manager: Guid, host: str, more: bytes = b"") -> int:
    """Open a session with `c` from a host under this GUID; further packets are in the same chunk."""
    core = net.nodes["c"].up
    key = core.accepted(host, net.now)
    parameters = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    request = establish_connection(client=manager, server=NULL_GUID, time_stamp_ms=0)
    core.receive(key, encode_packet(request) + encode_packet(parameters) + more, net.now)
    core.take(net.now)
    return key


def peers(net: Net, name: str = "c") -> dict[tuple[str, Kind], PeerStatus]:
    return {(peer.host, peer.kind): peer for peer in net.nodes[name].up.peers(net.now).peers}


def test_each_is_listed_with_what_it_sent_and_what_was_refused() -> None:
    net = with_strangers("x")
    net.send("a", at("c", 16), "from a neighbour")
    net.send("x", at("c", 16), "let in", recoverable=True)
    net.send("x", at("c", 17), "refused")
    net.run()
    found = peers(net)
    assert set(found) == {("a", Kind.NEIGHBOUR), ("x", Kind.STRANGER)}
    neighbour, stranger = found["a", Kind.NEIGHBOUR], found["x", Kind.STRANGER]
    assert (neighbour.messages, neighbour.refused, neighbour.reason) == (1, 0, "")
    assert (stranger.manager, stranger.sessions, stranger.half_open, stranger.opened) == (X, 1, 0, 1)
    assert (stranger.messages, stranger.refused) == (2, 1)
    assert stranger.reason == MessageClass.NACK_ACCESS_DENIED.name
    assert stranger.size_bytes > 2 * 100
    assert stranger.sent_bytes > 0
    [us] = peers(net, "a").values()
    assert (us.host, us.sent, us.opened, us.messages) == ("c", 1, 0, 0)
    assert us.sent_bytes > 100


def test_who_presents_the_guid_of_another_claims_to_be_it() -> None:
    net = with_strangers("x", claims="a")
    net.send("x", at("c", 16), "taken")
    net.run()
    [claim] = peers(net).values()
    assert (claim.kind, claim.host, claim.manager) == (Kind.CLAIMS, "x", guid_text(guid_of("a")))


def test_who_has_not_said_who_it_is_is_listed_by_its_host() -> None:
    net = with_strangers()
    core = net.nodes["c"].up
    silent, wrong = (core.accepted("10.0.0.9", net.now) for _ in range(2))
    core.receive(wrong, b"GET / HTTP/1.1\r\nHost: c\r\n\r\n", net.now)
    core.take(net.now)
    [host] = peers(net).values()
    assert (host.host, host.kind, host.half_open, host.opened, host.ended) == (
        "10.0.0.9",
        Kind.UNKNOWN,
        1,
        2,
        1,
    )
    assert host.reason.startswith("base.version_number at byte 0")
    core.lost(silent, "closed by the peer", net.now)
    [host] = peers(net).values()
    assert (host.half_open, host.ended) == (0, 1), "to close a connection is not a fault"


def test_a_session_that_is_not_granted_is_the_hosts() -> None:
    net = with_strangers()
    core = net.nodes["c"].up
    key = core.accepted("10.0.0.9", net.now)
    request = establish_connection(client=guid_of("x"), server=guid_of("y"), time_stamp_ms=0)
    core.receive(key, encode_packet(request), net.now)
    core.take(net.now)
    [host] = peers(net).values()
    assert (host.kind, host.ended) == (Kind.UNKNOWN, 1)
    assert host.reason.startswith("it asks for queue manager")


def test_a_session_that_ends_with_what_opened_it_is_its_queue_managers() -> None:
    net = with_strangers()
    connected(net, guid_of("x"), "10.0.0.9", b"GET / HTTP/1.1\r\nHost: c\r\n\r\n")
    [stranger] = peers(net).values()
    assert (stranger.kind, stranger.manager, stranger.sessions, stranger.ended) == (Kind.STRANGER, X, 0, 1)


def test_one_that_is_gone_is_remembered_for_a_day() -> None:
    net = with_strangers("x")
    net.send("x", at("c", 16), "one")
    net.run()
    net.kill("x")
    net.run()
    gone = peers(net)["x", Kind.STRANGER]
    assert (gone.sessions, gone.messages) == (0, 1)
    net.pass_ms(GONE_MS - SLOT_MS)
    assert ("x", Kind.STRANGER) in peers(net)
    net.pass_ms(2 * SLOT_MS)
    assert peers(net) == {}


def test_so_many_that_are_gone_are_remembered_and_those_of_last() -> None:
    net = with_strangers()
    core = net.nodes["c"].up
    for number in range(GONE + 10):
        core.count_blocked(f"10.0.{number // 256}.{number % 256}", net.now)
    found = [peer.host for peer in core.peers(net.now).peers]
    assert len(found) == GONE
    assert found[0] == "10.0.0.10"
    core.count_blocked("10.0.0.10", net.now)
    core.count_blocked("10.0.9.9", net.now)
    found = [peer.host for peer in core.peers(net.now).peers]
    assert "10.0.0.10" in found
    assert "10.0.0.11" not in found


def test_who_presents_many_guids_has_few_lines() -> None:
    net = with_strangers()
    core = net.nodes["c"].up
    for number in range(MANAGERS_OF_HOST + 5):
        core.lost(connected(net, guid_of(f"x{number}"), "10.0.0.9"), "closed by the peer", net.now)
    found = core.peers(net.now).peers
    assert [peer.kind for peer in found].count(Kind.STRANGER) == MANAGERS_OF_HOST
    [others] = [peer for peer in found if peer.kind is Kind.OTHERS]
    assert (others.opened, others.manager, others.sessions) == (5, "", 0)


def test_the_last_minute_forgets_and_the_total_does_not() -> None:
    tally = HostTally(Who("x"), START)
    for number in range(SLOTS + 4):
        now = replace(START, uptime_ms=START.uptime_ms + number * SLOT_MS)
        tally.at(now).messages += 1
    assert tally.total.messages == SLOTS + 4
    assert tally.last_minute(now).messages == SLOTS + 1
    later = replace(now, uptime_ms=now.uptime_ms + (SLOTS + 1) * SLOT_MS)
    assert tally.last_minute(later).messages == 0
    assert tally.total.messages == SLOTS + 4


def test_what_it_began_and_what_waits_for_it_stands_beside_it() -> None:
    net = chain("a", "c", queues=[queue("orders", 16)])
    for name in "ac":
        node = net.nodes[name]
        node.routes = replace(node.routes, peers=net.peers_of(name))
    net.start()
    net.send("a", at("c", 16), "one", transactional=True)
    net.run()
    net.blocked.add(frozenset("ac"))
    net.kill("a")
    net.pass_ms(Settings().order_ack_timeout_ms)
    [sender] = peers(net).values()
    assert (sender.sessions, sender.sequences, sender.held_bytes, sender.acknowledgments) == (0, 1, 0, 1)


# Floods


@pytest.mark.parametrize(
    ("figures", "is_flood"),
    [
        (Figures(opened=FLOOD_SESSIONS), True),
        (Figures(opened=FLOOD_SESSIONS - 1), False),
        (Figures(messages=FLOOD_MESSAGES), True),
        (Figures(messages=FLOOD_MESSAGES - 1), False),
        (Figures(size_bytes=FLOOD_BYTES), True),
        (Figures(messages=300, refused=FLOOD_REFUSALS), False),
        (Figures(messages=300, refused=160), True),
        (Figures(messages=300, refused=150), False),
        (Figures(opened=120, ended=FLOOD_REFUSALS), True),
        (Figures(ended=300), False),
    ],
)
def test_a_host_that_does_far_more_or_is_mostly_refused_is_a_flood(
    figures: Figures, *, is_flood: bool
) -> None:
    quiet, loud = HostTally(Who("10.0.0.8"), START), HostTally(Who("10.0.0.9"), START)
    quiet.at(START).add(Figures(opened=99, messages=1_000, size_bytes=2**20))
    loud.at(START).add(figures)
    found = floods([quiet, loud], {}, START)
    assert [flood.host for flood in found] == ["10.0.0.9"] * is_flood


def test_no_host_of_many_that_do_the_same_does_far_more() -> None:
    tallies = [HostTally(Who(f"10.0.0.{number}"), START) for number in range(3)]
    for tally in tallies:
        tally.at(START).messages += FLOOD_MESSAGES
    assert floods(tallies, {}, START) == []


def test_what_a_neighbour_sends_is_no_flood_and_its_address_is_named_where_a_stranger_has_it_too() -> None:
    neighbour = HostTally(Who("10.0.0.7", A, is_proven=True), START)
    neighbour.at(START).messages += 100 * FLOOD_MESSAGES
    peers = {A: Peer(("10.0.0.0/24",)), C: Peer(("any", "c"))}
    assert floods([neighbour], peers, START) == []
    stranger = HostTally(Who("10.0.0.7", guid_of("x")), START)
    stranger.at(START).add(Figures(opened=1, messages=2 * FLOOD_MESSAGES, size_bytes=9, refused=5))
    [flood] = floods([neighbour, stranger], peers, START)
    assert flood == FloodStatus("10.0.0.7", 0, 2 * FLOOD_MESSAGES, 9, 5, [guid_text(A)])


def test_so_many_floods_are_told_at_once() -> None:
    tallies = [HostTally(Who(f"10.0.0.{number}"), START) for number in range(FLOODS_SHOWN + 2)]
    for number, tally in enumerate(tallies):
        tally.at(START).add(Figures(opened=FLOOD_REFUSALS + number, ended=FLOOD_REFUSALS))
    assert [flood.host for flood in floods(tallies, {}, START)] == [
        f"10.0.0.{number}" for number in range(FLOODS_SHOWN + 1, 1, -1)
    ]
