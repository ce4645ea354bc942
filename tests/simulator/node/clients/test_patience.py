"""How long receives wait: each waits until its own deadline, and one that has ended wakes nobody."""

from __future__ import annotations

import pytest
import trio

from mqproto.simulator.node.clients import patience as patience_module
from mqproto.simulator.node.clients.patience import Patience


class Receives:
    """The receives that wait, and the times at which others were given up."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.ended: list[tuple[int, float]] = []
        self.patience = Patience(self.waiting, self.end)

    def begin(self, number: int, for_s: float) -> None:
        self.waiting.add(number)
        self.patience.expect(number, trio.current_time() + for_s)

    def end(self, number: int) -> None:
        self.waiting.remove(number)
        self.ended.append((number, trio.current_time()))


class Steps(trio.abc.Instrument):
    """Counts how often the clock wakes."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("Patience.run")


async def test_each_receive_ends_at_its_own_deadline(autojump_clock: trio.testing.MockClock) -> None:
    receives = Receives()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receives.patience.run)
        receives.begin(1, 10.0)
        receives.begin(2, 5.0)
        await trio.sleep(1)
        receives.begin(3, 2.0)
        receives.waiting.remove(1)
        await trio.sleep(60)
        assert receives.ended == [(3, 3.0), (2, 5.0)]
        receives.begin(4, 1.0)
        await trio.sleep(60)
        assert receives.ended[2:] == [(4, 62.0)]
        nursery.cancel_scope.cancel()


async def test_receives_that_have_their_message_at_once_wake_nobody_when_their_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    receives, steps = Receives(), Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receives.patience.run)
        await trio.sleep(1)
        trio.lowlevel.add_instrument(steps)
        for number in range(400):
            receives.begin(number, 1.0)
            receives.waiting.remove(number)
            await trio.sleep(0.005)
        trio.lowlevel.remove_instrument(steps)
        assert steps.count <= 5, "two seconds at 200 a second"
        assert receives.ended == []
        nursery.cancel_scope.cancel()


async def test_deadlines_of_what_has_ended_do_not_pile_up(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience_module, "SPARE_DEADLINES", 10)
    receives = Receives()
    counts: list[int] = []
    monkeypatch.setattr(patience_module, "heapify", lambda heap: counts.append(len(heap)))
    receives.begin(0, 1_000.0)
    for number in range(1, 100):
        receives.begin(number, 1_000.0)
        receives.waiting.remove(number)
    assert len(counts) > 5
    assert set(counts) <= {1, 2}
