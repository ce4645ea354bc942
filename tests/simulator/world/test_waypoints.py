"""The waypoints of whole worlds: each message's path is a legal one, and all paths together tell what happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from mqproto.queues.localqueue import SystemQueue
from mqproto.simulator.world import Scenario, draw
from mqproto.simulator.world.run import run
from mqproto.simulator.world.scenarios.traffic import CHOSEN, KINDS, Message, Promise
from mqproto.simulator.world.world import World
from mqproto.turn.effects import Note
from mqproto.turn.waypoints import Waypoint, message_name, missing_before
from mqproto.wire import Guid
from tests.simulator.world.worlds import a_burst, a_chain

KEPT_IN: Final = {*SystemQueue, *(queue.name for queue in CHOSEN.values())}
"""The names of the queues that hold copies: journals and dead-letter queues."""
ENDS = {Waypoint.EXPIRED, Waypoint.PURGED, Waypoint.REJECTED}


def watched(scenario: Scenario) -> World:
    """Return the world of a scenario after its end, with its nodes' waypoints."""
    world = World(replace(scenario, settings={**scenario.settings, "waypoints": True}))
    assert run(world).breach is None
    return world


def name_of(message: Message) -> str:
    return message_name(Guid(message.identity[:16]), int.from_bytes(message.identity[16:], "little"))


def paths(world: World) -> dict[tuple[str, str, str], list[Waypoint]]:
    """Return the paths of messages, keyed by message, node, and journal or dead-letter queue.

    The last part of the key is empty unless the path is that of a copy that is kept there.
    """
    found = defaultdict(list)
    for node, note in world.ledger.waypoints:
        if "message" in note.facts:
            queue = str(note.facts.get("queue", ""))
            kept_in = queue if queue in KEPT_IN else ""
            found[str(note.facts["message"]), node, kept_in].append(Waypoint(note.name))
    return found


def drawn(seed: int) -> Scenario:
    """Draw a world with every fault, except a node that silently loses messages that it should forward."""
    scenario = draw(seed)
    return replace(scenario, faults=tuple(fault for fault in scenario.faults if fault.kind != "lossy"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(16))
def test_each_message_takes_a_legal_path_and_the_waypoints_are_the_truth(seed: int) -> None:
    """From "Keep the Logs Clean": "search the logs by the message ID and restore the whole history of the message"."""
    world = watched(drawn(seed))
    for where, path in paths(world).items():
        assert not missing_before(path), f"{where}: {' '.join(path)}"
    counted = count(world)
    for message in world.ledger.accepted:
        name, target = name_of(message), message.burst.target
        assert counted[name, Waypoint.ACCEPTED, message.burst.source] == 1
        assert counted[name, Waypoint.COMMITTED, target] == message.receipts, message
        if message.kind.promise is not Promise.NOTHING:  # Of what is never on disk, the truth knows less.
            assert counted[name, Waypoint.QUEUED, target] == message.arrivals, message
            assert sum(counted[name, end, f"{target} queue"] for end in ENDS) == message.gone, message
        assert counted[name, Waypoint.JOURNALED, message.burst.source] == message.journaled, message
        letters = sum(
            counted[name, Waypoint.DEAD_LETTERED, node] - counted[name, Waypoint.RECALLED, node]
            for node in world.scenario.nodes
        )
        assert letters == len(message.letters), message


def count(world: World) -> Counter[tuple[str, Waypoint, str]]:
    """Count how often each message had each waypoint at each node, and, as `node queue`, in each queue.

    Copies in journals and dead-letter queues are left out.
    """
    counted: Counter[tuple[str, Waypoint, str]] = Counter()
    for node, note in world.ledger.waypoints:
        waypoint, queue = Waypoint(note.name), note.facts.get("queue")
        kept = (Waypoint.JOURNALED, Waypoint.DEAD_LETTERED, Waypoint.RECALLED)
        if queue not in KEPT_IN or waypoint in kept:
            name = str(note.facts.get("message", ""))
            counted[name, waypoint, node] += 1
            counted[name, waypoint, f"{node} queue"] += queue is not None
    return counted


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_faults_each_message_is_seen_once_at_each_step(kind: str) -> None:
    target = "b" if KINDS[kind].direct else "c"
    world = watched(a_chain(a_burst(kind=kind, target=target, count=3)))
    for message in world.ledger.accepted:
        seen = [(node, note) for node, note in steps(world) if note.facts.get("message") == name_of(message)]
        assert max(Counter((node, note.name) for node, note in seen).values()) == 1
        reached = {(node, note.name) for node, note in seen}
        assert {("a", "accepted"), ("a", "sent"), ("b", "arrived"), (target, "arrived")} <= reached
        assert ((target, "committed") in reached) == (message.receipts == 1)


def steps(world: World) -> Iterator[tuple[str, Note]]:
    """Yield all steps except storing: a message may be stored in several queues, and acknowledged in several ways."""
    for node, note in world.ledger.waypoints:
        if note.name != Waypoint.STORED and note.facts.get("queue") not in KEPT_IN:
            yield node, note


def test_a_node_that_loses_what_it_should_forward_is_seen_by_what_it_does_not_say() -> None:
    scenario = next(draw(seed) for seed in range(40) if any(f.kind == "lossy" for f in draw(seed).faults))
    world = watched(scenario)
    lost = [
        (message, node)
        for (message, node, kept_in), path in paths(world).items()
        if missing_before(path) and not kept_in
    ]
    lossy = {fault.where for fault in scenario.faults if fault.kind == "lossy"}
    assert bool(lost) == bool(world.ledger.tally["lost on purpose"])
    assert {node for _, node in lost} <= lossy


def test_a_world_without_the_setting_has_no_waypoints() -> None:
    world = World(a_chain(a_burst(count=3)))
    assert run(world).breach is None
    assert not world.ledger.waypoints
