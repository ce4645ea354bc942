"""Nodes are asked once on behalf of all viewers, and are not asked while there are no viewers."""

from __future__ import annotations

from pathlib import Path

import trio
from trio.testing import MockClock

from mqproto.simulator.console.feed import Feed
from mqproto.simulator.console.watch import LOOK_S, NodeWatch, Sample
from mqproto.simulator.topology import load, places
from mqproto.simulator.topology.places import Place
from tests.simulator.running import running


async def test_nobody_is_asked_while_nobody_looks(tmp_path: Path, idle_clock: MockClock) -> None:
    topology = load("three-node").with_free_ports()
    rounds: list[dict[str, Sample]] = []

    async def tell(samples: dict[str, Sample]) -> None:
        rounds.append(samples)

    watch = NodeWatch(Place(topology, tmp_path), tell)
    async with running(topology, "destination", tmp_path), trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(60)
        assert rounds == []
        with watch.looking(), watch.looking():
            await trio.sleep(4 * LOOK_S + LOOK_S / 2)
        looked = len(rounds)
        assert 4 <= looked <= 6
        assert (rounds[-1]["destination"].status is not None, rounds[-1]["sender"].status) == (True, None)
        await trio.sleep(60)
        assert len(rounds) <= looked + 1
        nursery.cancel_scope.cancel()


async def test_a_node_that_does_not_answer_holds_nobody_up(tmp_path: Path, idle_clock: MockClock) -> None:
    topology = load("three-node").with_free_ports()
    heard = trio.Event()

    async def tell(samples: dict[str, Sample]) -> None:
        found = samples.get("destination")
        if found is not None and found.status is not None:
            assert "intermediate" not in samples
            heard.set()

    with places.listening(places.socket_path(tmp_path, "intermediate"), 1):
        async with running(topology, "destination", tmp_path), trio.open_nursery() as nursery:
            watch = NodeWatch(Place(topology, tmp_path), tell)
            nursery.start_soon(watch.run)
            with watch.looking():
                await heard.wait()
            nursery.cancel_scope.cancel()


async def test_who_is_slow_is_told_the_newest_and_nothing_of_what_was_between() -> None:
    feed = Feed()
    feed.put(b"one")
    number, event = await feed.newer(0)
    assert event == b"one"
    for text in (b"two", b"three", b"four"):
        feed.put(text)
    number, event = await feed.newer(number)
    assert event == b"four"
    with trio.move_on_after(0):
        await feed.newer(number)
        raise AssertionError("there is nothing newer")
