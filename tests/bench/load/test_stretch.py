from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tests.bench.figures import BenchError
from tests.bench.load import stretch
from tests.bench.load.stretch import Begin


class Stretch(stretch.Stretch):
    """Each message is confirmed after a while and by itself, and comes but for those that are lost."""

    def __init__(self, body_bytes: int, window: int, first: int, lost: int, delay_s: float) -> None:
        super().__init__(body_bytes, window, first)
        self._lost = lost
        self._delay_s = delay_s
        self._to_producer, self._confirmed = trio.open_memory_channel[int](1_000)
        self._to_consumer, self._delivered = trio.open_memory_channel[bytes](1_000)
        self.most = 0

    async def publish(self, numbers: range) -> None:
        """Send them on their way."""
        self.most = max(self.most, numbers.stop - self.confirmed)
        await self._to_producer.send(len(numbers))
        for number in numbers:
            if number != self._lost:
                await self._to_consumer.send(self.body(number))

    async def hear(self, count: int) -> None:
        """What was sent is confirmed."""
        while self.confirmed < self.first + count:
            confirmed = await self._confirmed.receive()
            await trio.sleep(self._delay_s)
            for _ in range(confirmed):
                self.have_confirmed(1)
                await trio.lowlevel.checkpoint()

    async def receive(self, count: int) -> None:
        """What was sent comes."""
        while len(self.received) < count:
            body = await self._delivered.receive()
            self.came(body, trio.current_time())


class Server:
    """One that takes a second whenever it is looked at."""

    spent_s: float | None = 0.0

    def cpu_s(self) -> float | None:
        """Ever more."""
        if self.spent_s is not None:
            self.spent_s += 1.0
        return self.spent_s


class Chain(stretch.Chain):
    """A stretch of this one's begins behind what others had."""

    def __init__(self, lost: int = -1, delay_s: float = 0.5) -> None:
        super().__init__({"first": Server(), "last": Server()}, "never")
        self._lost = lost
        self._delay_s = delay_s
        self.begun: list[Stretch] = []

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Begin]:
        """Both ends."""

        def begin(body_bytes: int, window: int, first: int) -> Stretch:
            self.begun.append(Stretch(body_bytes, window, first, self._lost, self._delay_s))
            return self.begun[-1]

        yield begin


async def test_a_first_message_goes_ahead_and_is_not_measured(autojump_clock: trio.testing.MockClock) -> None:
    chain = Chain()
    flow = await chain.flood(100, 20, window=10)
    early, measured = chain.begun
    assert (early.first, len(early.sent)) == (0, 1)
    assert [sent.message_id for sent in measured.sent] == list(range(1, 101))
    assert measured.most == 10
    assert flow.duration_s > 5, "ten windows at least, of half a second"
    assert flow.cpu_us("first", "last") == pytest.approx(1e6 * 2 / 100)
    assert flow.messages == len(flow.delays_ms) == 100


async def test_paced_messages_are_sent_when_they_are_due(autojump_clock: trio.testing.MockClock) -> None:
    chain = Chain(delay_s=0.5)
    flow = await chain.pace(50, 10, 8)
    due_s = [sent.at_s for sent in chain.begun[-1].sent]
    assert due_s[-1] - due_s[0] == pytest.approx(4.9)
    assert flow.duration_s > 4.9


@pytest.mark.parametrize(
    ("lost", "words"), [(0, "a first message took more than 60 s"), (7, "of 20 messages: 1 messages lost")]
)
async def test_what_does_not_come_is_told(
    lost: int, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(BenchError, match=words):
        await Chain(lost).flood(20, 8, window=5)


async def test_what_is_confirmed_too_late_is_no_figure(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(BenchError, match="20 messages took more than 60 s"):
        await Chain(delay_s=30).flood(20, 8, window=5)
