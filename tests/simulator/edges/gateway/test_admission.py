"""Rates are respected, and producers are given room in turn."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from mqproto.simulator.edges.gateway.admission import Rate, Room

# Rates


@given(
    per_s=st.floats(0.1, 1_000),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_in_no_time_more_come_than_the_rate_and_one_burst(per_s: float, steps: list[float]) -> None:
    now_s = 0.0
    rate = Rate(per_s, lambda: now_s)
    taken_s: list[float] = []
    for step in steps:
        now_s += step
        if not rate.wait_s("orders"):
            taken_s.append(now_s)
    for first, start_s in enumerate(taken_s):
        for last, end_s in enumerate(taken_s[first:], first):
            assert last - first + 1 <= max(1.0, per_s) + per_s * (end_s - start_s) + 1e-6


@given(per_s=st.floats(0.1, 1_000), count=st.integers(1, 100))
def test_after_the_time_that_is_said_one_more_may_come(per_s: float, count: int) -> None:
    now_s = 0.0
    rate = Rate(per_s, lambda: now_s)
    for _ in range(count):
        if wait_s := rate.wait_s("orders"):
            now_s += wait_s
            assert not rate.wait_s("orders")


def test_each_name_has_its_own_rate() -> None:
    rate = Rate(1, lambda: 0.0)
    assert not rate.wait_s("orders")
    assert rate.wait_s("orders") == pytest.approx(1)
    assert not rate.wait_s("notes")


# Room


async def test_who_asks_first_has_room_first(idle_clock: MockClock) -> None:
    room = Room(10)
    order: list[int] = []

    async def one(size_bytes: int) -> None:
        assert await room.take(size_bytes, 100)
        order.append(size_bytes)

    assert await room.take(6, 0)
    async with trio.open_nursery() as nursery:
        for size_bytes in (10, 1):  # The second would fit, and waits for its turn.
            nursery.start_soon(one, size_bytes)
            await wait_all_tasks_blocked()
        assert order == []
        room.give_back(6)
        await wait_all_tasks_blocked()
        assert order == [10]
        room.give_back(10)
    assert order == [10, 1]


async def test_who_has_no_patience_left_makes_room_for_the_next(idle_clock: MockClock) -> None:
    room = Room(10)
    assert await room.take(6, 0)
    async with trio.open_nursery() as nursery:

        async def large() -> None:
            assert not await room.take(10, 5)

        nursery.start_soon(large)
        await wait_all_tasks_blocked()
        assert await room.take(4, 100)
        assert trio.current_time() >= 5


@given(sizes=st.lists(st.integers(1, 10), max_size=30), data=st.data())
def test_what_is_given_comes_back_whoever_is_cancelled(sizes: list[int], data: st.DataObject) -> None:
    room = Room(10)

    async def one(size_bytes: int, wait_s: float, hold_s: float, scope: trio.CancelScope) -> None:
        with scope:
            if await room.take(size_bytes, wait_s):
                assert 0 <= room.free_bytes <= 10 - size_bytes
                try:
                    await trio.sleep(hold_s)
                finally:
                    room.give_back(size_bytes)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for size_bytes in sizes:
                wait_s, hold_s, cancel_s = (data.draw(st.sampled_from([0.0, 1, 2, 3, 5])) for _ in range(3))
                scope = trio.CancelScope(deadline=trio.current_time() + cancel_s)
                nursery.start_soon(one, size_bytes, wait_s, hold_s, scope)
        assert room.free_bytes == 10

    trio.run(run, clock=MockClock(autojump_threshold=0))
