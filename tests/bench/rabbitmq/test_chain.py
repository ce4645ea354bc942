from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from pamqp import body, commands, frame

from simulator.base.processes import process_of, started_by
from tests.bench.figures import BenchError
from tests.bench.load.stretch import NUMBER_BYTES
from tests.bench.load.traffic import check_delivery
from tests.bench.rabbitmq.brokers import QUEUES, program
from tests.bench.rabbitmq.chain import Stretch, chains_of
from tests.bench.rabbitmq.protocol import Confirmed, Delivered
from tests.programs import needs_rabbitmq


class Brokers:
    """Both ends of a chain without one: what is published is confirmed, and comes, but for what is spoiled."""

    frame_bytes = 4_096

    def __init__(self, spoiled: str = "") -> None:
        self._spoiled = spoiled
        self._confirmations, self._confirmed = trio.open_memory_channel[list[Confirmed]](1_000)
        self._deliveries, self._delivered = trio.open_memory_channel[list[Delivered]](1_000)
        self._number = 0
        self.unconfirmed = 0
        """The most messages that had no confirmation at once."""
        self.acknowledged: list[tuple[int, bool]] = []

    async def send(self, data: bytes) -> None:
        """From the producer."""
        await trio.lowlevel.checkpoint()
        bodies = []
        while data:
            used, _, value = frame.unmarshal(data)
            data = data[used:]
            if isinstance(value, body.ContentBody):
                bodies.append(value.value)
        first, self._number = self._number + 1, self._number + len(bodies)
        self.unconfirmed = max(self.unconfirmed, len(bodies))
        tags = range(first, self._number + 1)
        # The last by itself and then all before it, or each by itself in no order.
        confirmations = [Confirmed(tag, False) for tag in reversed(tags)]
        if len(tags) % 2:
            confirmations = [Confirmed(tags[-1], False), *(Confirmed(tag, True) for tag in tags[-2:-1])]
        if self._spoiled == "misplaced":
            confirmations[0] = Confirmed(self._number + 1, True)
        deliveries = [Delivered(tag, body) for tag, body in zip(tags, bodies, strict=True)]
        if self._spoiled == "altered":
            deliveries[2] = Delivered(3, deliveries[2].body[:-1] + b"x")
        if self._spoiled == "out of order":
            deliveries.reverse()
        if self._spoiled == "lost":
            del deliveries[2]
        if self._spoiled == "twice":
            deliveries.insert(2, deliveries[2])
        await self._confirmations.send(confirmations)
        await self._deliveries.send(deliveries)

    async def receive(self) -> list[Confirmed]:
        """For the producer."""
        return await self._confirmed.receive()

    class Consumer:
        """The other end."""

        def __init__(self, brokers: Brokers) -> None:
            self._brokers = brokers

        async def send(self, data: bytes) -> None:
            """An acknowledgment."""
            await trio.lowlevel.checkpoint()
            _, _, ack = frame.unmarshal(data)
            assert isinstance(ack, commands.Basic.Ack)
            self._brokers.acknowledged.append((ack.delivery_tag, ack.multiple))

        async def receive(self) -> list[Delivered]:
            """What has come."""
            return await self._brokers._delivered.receive()

        async def ask(self, question: object, answer: object) -> None:
            """Whether all acknowledgments have come."""
            await trio.lowlevel.checkpoint()
            assert (type(question), answer) == (commands.Basic.Qos, commands.Basic.QosOk)


async def flow(brokers: Brokers, count: int, window: int) -> Stretch:
    """A stretch of traffic through them, checked."""
    consumer = Brokers.Consumer(brokers)
    stretch = Stretch(cast(Any, brokers), cast(Any, consumer), "classic", body_bytes=20, window=window)
    assert await stretch.passed(count, stretch.send_fast(count), within_s=60) or brokers._spoiled
    check_delivery(stretch.sent, stretch.received)
    return stretch


@pytest.mark.parametrize("window", [1, 7, 8, 1_000])
async def test_no_more_than_a_window_is_unconfirmed_and_all_comes(
    window: int, autojump_clock: trio.testing.MockClock
) -> None:
    brokers = Brokers()
    stretch = await flow(brokers, 100, window)
    assert brokers.unconfirmed == min(window, 100)
    assert len(stretch.received) == 100
    assert brokers.acknowledged[-1] == (100, True)


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        ("lost", "1 messages lost"),
        ("altered", "1 messages altered"),
        ("twice", "1 messages delivered more than once"),
        ("out of order", "9 messages out of order"),
    ],
)
async def test_a_message_that_is_spoiled_on_its_way_is_found(
    spoiled: str, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(BenchError, match=words):
        await flow(Brokers(spoiled), 10, 10)


async def test_a_confirmation_of_what_was_not_sent_is_found(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(BenchError, match="no such message waits")):
        await flow(Brokers("misplaced"), 10, 10)


@needs_rabbitmq
async def test_brokers_pass_messages_on_and_nothing_of_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with chains_of(program(), names=["sender", "destination"]) as chains:
        assert list(chains) == list(QUEUES)
        assert chains["quorum"].flushes.startswith("wal_sync_method datasync")
        for chain in chains.values():
            for _ in range(2):
                flood = await chain.flood(20, 200_000, window=8)
                assert flood.messages == len(flood.delays_ms) == 20
            paced = await chain.pace(3, 100, NUMBER_BYTES)
            assert set(paced.cpu_s) == {"sender", "destination", "client"}
            assert all(paced.cpu_s.values())
        programs = started_by(os.getpid())
        assert [process.name for process in programs].count("beam.smp") == 2
        [daemon] = [process for process in programs if process.name == "epmd"]
        # Whom it knows does not begin another.
        port = (await trio.Path(f"/proc/{daemon.pid}/cmdline").read_text()).split("\0")[4]
        async with await trio.open_tcp_stream("127.0.0.1", int(port)) as asking:
            await asking.send_all(b"\0\1n")
            known = b"".join([bytes(part) async for part in asking])
        assert known.count(b"name ") == 2
    names = {"beam.smp", "epmd"}
    assert all(process_of(process.pid) is None for process in programs if process.name in names)
    assert os.listdir(tmp_path) == []
