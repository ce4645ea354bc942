from __future__ import annotations

import json
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.bench.figures import BenchError
from tests.bench.load.stretch import NUMBER_BYTES
from tests.bench.load.traffic import check_delivery
from tests.bench.nats.chain import SUBJECT, Stretch, chain_of
from tests.bench.nats.protocol import Delivered
from tests.bench.nats.servers import program
from tests.programs import needs_nats

INBOX = b"_INBOX.test."


class Servers:
    """Both ends of a chain without one: what is published is confirmed, and comes, but for what is spoiled.

    unconfirmed: the most messages that had no confirmation at once.
    """

    inbox = INBOX

    def __init__(self, spoiled: str = "") -> None:
        self._spoiled = spoiled
        self._confirmations, self._confirmed = trio.open_memory_channel[list[Delivered]](1_000)
        self._deliveries, self._delivered = trio.open_memory_channel[list[Delivered]](1_000)
        self._number = 0
        self.unconfirmed = 0
        self.acknowledged: list[bytes] = []

    async def send(self, data: bytes) -> None:
        """From the producer."""
        await trio.lowlevel.checkpoint()
        confirmations, deliveries = [], []
        while data:
            line, _, rest = data.partition(b"\r\n")
            command, subject, reply, size = line.split()
            assert (command, subject) == (b"PUB", SUBJECT)
            body, data = rest[: int(size)], rest[int(size) + 2 :]
            self._number += 1
            answer: dict[str, Any] = {"stream": "sender", "seq": self._number}
            is_third = self._number == 3
            if is_third and self._spoiled == "refused":
                answer = {"error": {"description": "no room"}}
            if is_third and self._spoiled == "misplaced":
                answer["seq"] = 7
            confirmations.append(Delivered(reply, b"", json.dumps(answer).encode()))
            if is_third and self._spoiled == "altered":
                body = body[:-1] + b"x"
            deliveries += [Delivered(SUBJECT, b"ack.%d" % self._number, body)] * (
                1 + (is_third and self._spoiled == "twice") - (is_third and self._spoiled == "lost")
            )
        if self._spoiled == "out of order":
            deliveries.reverse()
        self.unconfirmed = max(self.unconfirmed, len(confirmations))
        await self._confirmations.send(confirmations)
        await self._deliveries.send(deliveries)

    async def receive(self) -> list[Delivered]:
        """For the producer."""
        return await self._confirmed.receive()

    class Consumer:
        """The other end."""

        inbox = INBOX

        def __init__(self, servers: Servers) -> None:
            self._servers = servers

        async def send(self, data: bytes) -> None:
            """An acknowledgment, which is confirmed."""
            assert data.endswith(b" 4\r\n+ACK\r\n")
            self._servers.acknowledged.append(data.split()[1])
            await self._servers._deliveries.send([Delivered(data.split()[2], b"", b"")])

        async def receive(self) -> list[Delivered]:
            """What has come."""
            return await self._servers._delivered.receive()


async def flow(servers: Servers, count: int, window: int, per_s: float = 0.0, first: int = 0) -> Stretch:
    """A stretch of traffic through them, checked."""
    consumer = Servers.Consumer(servers)
    stretch = Stretch(cast(Any, servers), cast(Any, consumer), body_bytes=20, window=window, first=first)
    sending = stretch.send_paced(count, per_s) if per_s else stretch.send_fast(count)
    await stretch.passed(count, sending, within_s=60)
    check_delivery(stretch.sent, stretch.received)
    return stretch


@pytest.mark.parametrize("window", [1, 8, 1_000])
async def test_no_more_than_a_window_is_unconfirmed_and_all_comes(
    window: int, autojump_clock: trio.testing.MockClock
) -> None:
    servers = Servers()
    stretch = await flow(servers, 100, window)
    assert servers.unconfirmed == min(window, 100)
    assert len(stretch.received) == 100
    assert servers.acknowledged[-1] == b"ack.100"


async def test_a_stretch_goes_on_where_the_one_before_it_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    servers = Servers()
    await flow(servers, 1, 8)
    stretch = await flow(servers, 20, 8, first=1)
    assert [received.message_id for received in stretch.received] == list(range(1, 21))
    with pytest.RaisesGroup(pytest.RaisesExc(BenchError, match="confirms message 1 as number 22")):
        await flow(servers, 1, 8)


async def test_a_paced_producer_sends_when_it_is_time(autojump_clock: trio.testing.MockClock) -> None:
    began_s = trio.current_time()
    stretch = await flow(Servers(), 50, 50, per_s=10)
    assert [round(sent.at_s - began_s, 3) for sent in stretch.sent] == [number / 10 for number in range(50)]


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
        await flow(Servers(spoiled), 10, 10)


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [("refused", "NATS refuses: no room"), ("misplaced", "NATS confirms message 3 as number 7")],
)
async def test_a_confirmation_that_is_none_is_found(
    spoiled: str, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(BenchError, match=words)):
        await flow(Servers(spoiled), 10, 10)


@needs_nats
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unflushed"])
async def test_three_servers_pass_messages_on(flushed: bool) -> None:
    async with chain_of(program(), flushed=flushed) as chain:
        assert f"sync_always {str(flushed).lower()}" in chain.flushes
        for _ in range(2):  # Each begins without messages of the one before it.
            flood = await chain.flood(20, 1_024, window=8)
            assert flood.messages == len(flood.delays_ms) == 20
            assert flood.messages_per_s > 0
        paced = await chain.pace(3, 100, NUMBER_BYTES)
        assert len(paced.delays_ms) == 3
        assert set(paced.cpu_s) == {"sender", "intermediate", "destination", "client"}
