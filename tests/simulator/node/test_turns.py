"""The turns of a node: a feeder waits until its batch is carried out, and a batch has a maximum size."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints, wait_all_tasks_blocked

from mqproto.simulator.node import turns as turns_module
from mqproto.simulator.node.turns import (
    NO_TURN,
    PAUSE,
    TURN_BYTES,
    TURN_MESSAGES,
    Alarm,
    PostedRoom,
    TurnFeed,
)


async def test_a_feeder_waits_until_what_it_fed_is_carried_out() -> None:
    turns = TurnFeed()
    events: list[str] = []

    async def feed() -> None:
        await turns.room()
        events.append("fed")
        await turns.fed(size_bytes=1)
        events.append("carried out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        await turns.work()
        turns.begin()
        await wait_all_tasks_blocked()
        assert events == ["fed"]
        turns.end()
    assert events == ["fed", "carried out"]


async def test_one_who_does_not_wait_at_once_finds_out_later_whether_its_turn_is_over() -> None:
    turns = TurnFeed()
    turn = turns.count(size_bytes=1)
    events: list[str] = []

    async def wait() -> None:
        await turn.carried_out()
        events.append("carried out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        turns.begin()
        await wait_all_tasks_blocked()
        assert events == []
        turns.end()
    assert events == ["carried out"]
    with assert_no_checkpoints():
        await turn.carried_out()
        await NO_TURN.carried_out()


async def test_a_turn_takes_in_only_so_much_and_the_others_have_the_next() -> None:
    for load in ({"messages": TURN_MESSAGES}, {"size_bytes": TURN_BYTES}):
        turns = TurnFeed()
        fed: list[int] = []

        async def feed(number: int, turns: TurnFeed, fed: list[int], load: dict[str, int]) -> None:
            await turns.room()
            fed.append(number)
            await turns.fed(**load)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(feed, number, turns, fed, load)
            for turn in range(1, 4):
                await wait_all_tasks_blocked()
                assert len(fed) == turn
                turns.begin()
                turns.end()
        assert sorted(fed) == [0, 1, 2]


async def test_what_happens_while_a_batch_is_carried_out_is_the_next_ones() -> None:
    turns = TurnFeed()
    turns.wake()
    turns.begin()
    turns.wake()
    turns.end()
    await turns.work()


async def test_what_is_fed_costs_what_its_own_batch_cost_whatever_the_next_one_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop may continue before a feeder runs again.

    An earlier version then computed a byte's cost from the next batch. An empty batch with a slow flush made each byte
    seem expensive.
    """
    now_s = 0.0
    monkeypatch.setattr(turns_module, "perf_counter", lambda: now_s)
    turns = TurnFeed()
    costs_s: list[float] = []

    async def feed(size_bytes: int) -> None:
        costs_s.append(await turns.fed(size_bytes=size_bytes))

    async with trio.open_nursery() as nursery:
        for size_bytes in (300, 100):
            nursery.start_soon(feed, size_bytes)
        await wait_all_tasks_blocked()
        for batch_s in (4.0, 50.0):
            turns.begin()
            now_s += batch_s
            turns.end()
    assert sorted(costs_s) == [1.0, 3.0]


@pytest.mark.parametrize(
    ("size_bytes", "count"), [(4 * TURN_BYTES, 24), (TURN_BYTES // 4, 64), (10, 3 * TURN_MESSAGES)]
)
async def test_however_many_producers_wait_others_have_each_turn_and_most_of_the_time(
    size_bytes: int, count: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    busy_s = 0.0
    monkeypatch.setattr(turns_module, "perf_counter", lambda: busy_s)
    turns, carried, order, waited = TurnFeed(), Counter[int](), list[int](), list[int]()
    waited_short = list[int]()
    room = PostedRoom(turns)

    async def post(number: int) -> None:
        await room.take(size_bytes)
        carried[turns.begun] += size_bytes
        order.append(number)
        await turns.count_posted(size_bytes).carried_out()

    async def short() -> None:
        before = turns.begun
        await room.take(10)
        await turns.count_posted(10).carried_out()
        waited_short.append(turns.begun - before)

    async def other() -> None:
        while len(order) < count:
            before = turns.begun
            await turns.room()
            await turns.fed(messages=1, size_bytes=100)
            waited.append(turns.begun - before)

    async def pump() -> None:
        nonlocal busy_s
        while True:
            await turns.work()
            turns.begin()
            await trio.sleep(1e-3 * (1 + carried[turns.begun - 1] / TURN_BYTES))
            busy_s = trio.current_time()
            turns.end()
            await trio.lowlevel.checkpoint()

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump)
        async with trio.open_nursery() as feeders:
            feeders.start_soon(other)
            for number in range(count):
                feeders.start_soon(post, number)
                await wait_all_tasks_blocked()
            if size_bytes > TURN_BYTES:
                feeders.start_soon(short)
        nursery.cancel_scope.cancel()
    assert order == list(range(count)), "they go in the order in which they came"
    assert max(waited) <= 2, "others are in the next turn"
    assert max(carried.values()) < TURN_BYTES + size_bytes
    if size_bytes > TURN_BYTES:
        assert waited_short[0] <= 8, "who has a short one does not wait for the large ones"
        posts_s = 1e-3 * sum(carried.values()) / TURN_BYTES
        assert trio.current_time() - began_s > PAUSE * posts_s * (count - 1) / count


async def test_what_is_fed_while_a_batch_waits_for_room_is_carried_out_with_the_next() -> None:
    turns = TurnFeed()
    turns.begin()
    events: list[str] = []

    async def feed() -> None:
        await turns.fed(size_bytes=1)
        events.append("carried out")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        await wait_all_tasks_blocked()
        turns.end()
        await wait_all_tasks_blocked()
        assert events == []
        turns.begin()
        turns.end()
    assert events == ["carried out"]


async def test_an_alarm_rings_once_at_the_time_that_was_set_last(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rung_s: list[float] = []
    alarm = Alarm(lambda: rung_s.append(trio.current_time()))
    alarm.set(50.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        await trio.sleep(10)
        alarm.set(70.0)
        await trio.sleep(50)
        assert rung_s == [], "it was put off"
        await trio.sleep(20)
        assert rung_s == [70.0]
        alarm.set(200.0)
        await trio.sleep(1)
        alarm.set(90.0)
        await trio.sleep(300)
        assert rung_s == [70.0, 90.0]
        nursery.cancel_scope.cancel()
