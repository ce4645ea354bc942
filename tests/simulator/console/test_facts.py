"""A page shows what nodes report: its figures are those of `mqproto queues --json`, whatever they are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import given, strategies as st

from mqproto.captures.drawing.placing import Room
from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.neighbours.peerstatus import SessionStatus
from mqproto.simulator.client.oversee import queues_as_json
from mqproto.simulator.console.facts import (
    local_facts,
    node_facts,
    numbers_of,
    on_the_way,
    outgoing_facts,
)
from mqproto.simulator.console.rates import SPAN_S, Rates
from mqproto.simulator.console.routemap import (
    AROUND,
    Pair,
    drawn_map,
    label_room,
    link_facts,
    other_sessions,
    pairs_of,
)
from mqproto.simulator.topology import load
from mqproto.wire.guid import guid_text
from tests.simulator.statuses import EXPRESS, HELD, INTERMEDIATE, NOW_MS, NOW_S, QUEUE, SEQUENCE, THREE

COUNT = st.integers(0, 2**40)


@given(counts=st.lists(COUNT, min_size=14, max_size=14))
def test_the_figures_are_those_of_queues_as_json(counts: list[int]) -> None:
    local = [
        replace(QUEUE, waiting=counts[0], unsettled=counts[1], held=counts[2], entered=counts[3], left=counts[4],
                size_bytes=counts[5], consumers=counts[6]),
        replace(QUEUE, name="system$;deadxact", waiting=counts[7]),
    ]  # fmt: skip
    outgoing = [
        replace(SEQUENCE, waiting=counts[8], unsent=counts[9], unacked=counts[10], resent=counts[11]),
        EXPRESS,
    ]
    status = NodeStatus(
        local=local,
        outgoing=outgoing,
        uptime_ms=NOW_MS,
        utc_s=NOW_S,
        forwarded=counts[12],
        duplicates=counts[13],
    )
    [said] = queues_as_json(THREE, {"sender": status})
    node = node_facts(THREE, "sender", status, 0.0, Rates(), 1.0)
    assert {name: node[name] for name in ("forwarded", "duplicates", "resent", "sessions_open")} == {
        name: said[name] for name in ("forwarded", "duplicates", "resent", "sessions_open")
    }
    shown = {fact["name"]: fact for fact in local_facts("sender", status, Rates(), 1.0)}
    for queue in said["local"]:
        if queue["waiting"] or queue["name"] == "orders":
            same(shown.pop(queue["name"]), queue)
    assert shown == {}
    for fact, queue in zip(outgoing_facts(THREE, "sender", status, {}), said["outgoing"], strict=True):
        same(fact, queue)


def test_what_a_source_keeps_until_its_order_ack_is_on_the_way_once() -> None:
    sequence = replace(SEQUENCE, waiting=40, unsent=0, unacked=40)
    transit = replace(EXPRESS, name=guid_text(THREE.nodes["destination"].guid), waiting=40)
    source, passing = (
        NodeStatus(local=[], outgoing=[queue], uptime_ms=NOW_MS, utc_s=NOW_S) for queue in (sequence, transit)
    )
    assert on_the_way(THREE, [source, passing]) == 40
    assert on_the_way(THREE, [passing]) == 40
    more = replace(passing, outgoing=[replace(transit, waiting=43)])
    assert on_the_way(THREE, [source, more]) == 43


def same(fact: dict[str, Any], said: dict[str, Any]) -> None:
    common = fact.keys() & said.keys() - {"next_hop"}
    assert len(common) >= 8
    assert {name: fact[name] for name in common} == {name: said[name] for name in common}


def test_a_gap_at_the_destination_is_seen_in_the_sequence_of_the_sender() -> None:
    queue = replace(
        SEQUENCE, identifier=(50, 1), next_number=9, last_ack=1, first_unacked=2, last_unacked=8, unacked=7
    )
    found = numbers_of(queue, HELD)
    assert (found.confirmed, found.accepted, found.missing, found.held, found.sent, found.last) == (
        1,
        2,
        (3, 3),
        4,
        8,
        8,
    )
    ahead = numbers_of(replace(queue, next_number=2, last_ack=0, unacked=1, last_unacked=1), HELD)
    assert (ahead.accepted, ahead.missing) == (None, None)


def test_what_came_of_an_earlier_sequence_is_no_part_of_this_one() -> None:
    queue = replace(SEQUENCE, identifier=(50, 2), next_number=9, last_unacked=8, unacked=8)
    found = numbers_of(queue, replace(HELD, held=0, missing=None))
    assert (found.accepted, found.missing, found.held) == (0, None, 0)
    begun = numbers_of(queue, replace(HELD, held=2, missing=(1, 3)))
    assert (begun.accepted, begun.missing, begun.held) == (0, (1, 3), 2)
    later = numbers_of(replace(queue, identifier=(49, 7)), HELD)
    assert (later.accepted, later.missing) == (None, None)


def test_what_waits_behind_a_link_that_was_broken_by_hand_says_so() -> None:
    status = NodeStatus(outgoing=[replace(EXPRESS, waiting=5), replace(SEQUENCE, waiting=0)], utc_s=NOW_S)
    waits, rests = outgoing_facts(THREE, "sender", status, {"sender-intermediate": "stall"})
    assert waits["why"].startswith("the link is stalled by hand; connection refused by")
    assert rests["why"] == ""
    other, _ = outgoing_facts(THREE, "sender", status, {"intermediate-destination": "cut"})
    assert other["why"].startswith("connection refused by")


def test_a_link_is_known_by_what_its_ends_say() -> None:
    status = NodeStatus(outgoing=[replace(EXPRESS, waiting=5)], utc_s=NOW_S, uptime_ms=NOW_MS)
    pairs = pairs_of(THREE)
    said = {"sender": (status, PeersStatus([], [], [], 0, 0, NOW_S))}
    first, _ = link_facts(THREE, pairs, said, {"sender-intermediate": "cut"}, Rates(), 1.0)
    assert (first["key"], first["broken"], first["open"]) == ("sender-intermediate", "cut", False)
    assert (first["ways"][0]["waiting"], first["ways"][0]["why"]) == (5, EXPRESS.last_failure)


def test_a_session_with_a_stranger_is_shown_as_well() -> None:
    known, other = guid_text(INTERMEDIATE.guid), "00000000-0000-0000-0000-000000000017"
    sessions = [
        SessionStatus("127.0.0.2", known, 64, 3, 1, 0.25, 0.000_21),
        SessionStatus("127.0.0.2", known, 0, 0, 3, 0.125),
        SessionStatus("10.0.0.9", other, 32, 5, 2, 1.5),
    ]
    said = {"sender": (NodeStatus(sessions=sessions), PeersStatus([], [], [], 0, 0, NOW_S))}
    first, _ = link_facts(THREE, pairs_of(THREE), said, {}, Rates(), 1.0)
    assert (first["ways"][0]["window"], first["ways"][0]["unacknowledged"], first["open"]) == (64, 3, True)
    assert (first["ways"][0]["acknowledged"], first["ways"][0]["round_trip"]) == ("250 ms", "0.2 ms")
    assert (first["ways"][1]["acknowledged"], first["ways"][1]["round_trip"]) == ("", "")
    [way] = other_sessions(THREE, said, Rates(), 1.0)
    assert (way["acknowledged"], way["round_trip"]) == ("1.5 s", "")
    assert (way["to"], way["window"], way["unacknowledged"]) == (f"10.0.0.9 ({other})", 32, 5)


def test_every_shipped_topology_has_a_map_on_wide_and_narrow_screens() -> None:
    for name in ("three-node", "sites", "pair"):
        topology = load(name)
        for sheet in drawn_map(topology, pairs_of(topology)).values():
            assert {node["name"] for node in sheet["nodes"]} == set(topology.nodes)
            for node in sheet["nodes"]:
                assert node["width"] / 2 <= node["x"] <= sheet["width"] - node["width"] / 2
                assert AROUND <= node["y"] <= sheet["height"] - AROUND
        assert drawn_map(topology, pairs_of(topology))["narrow"]["width"] <= 360


def test_what_stands_beside_a_link_is_behind_no_node_and_over_nothing_else() -> None:
    """The map in this test has links that cross, and links that pass a node that is not one of their endpoints."""
    topology = load("three-node")
    pairs = [*pairs_of(topology), Pair("sender", "destination")]
    for sheet in drawn_map(topology, pairs).values():
        rooms = [Room(node["x"], node["y"], node["width"], node["height"]) for node in sheet["nodes"]]
        for link in sheet["links"]:
            rooms.append(label_room(link["middle"], link["beside"]))
            assert rooms[-1].x >= rooms[-1].width / 2
        assert not any(one.meets(other) for one, other in combinations(rooms, 2)), rooms


@given(st.lists(st.integers(0, 1_000), min_size=2, max_size=30))
def test_a_rate_is_over_the_last_seconds_and_never_below_nothing(steps: list[int]) -> None:
    rates, total = Rates(), 0
    history = []
    for second, step in enumerate(steps):
        total += step
        history.append(total)
        found = rates.of("count", total, float(second))
        assert found >= 0
        span = min(second, int(SPAN_S))
        if span:
            assert found == (history[-1] - history[-1 - span]) / span
    assert rates.of("count", 0, len(steps) + 1.0) == 0, "its process began anew"
