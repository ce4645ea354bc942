"""`mqproto bench backlog`: what a node that waits for its neighbour costs in memory, and how fast it catches up.

The destination is killed, transactional messages pile up on the disk of the intermediate, and the destination comes
back. A queue manager holds a window of each queue and not the queue, so its memory must not grow with what waits.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from mqproto.applications import Draft
from simulator.bench.chain import (
    DESTINATION,
    PATIENCE_S,
    QUEUE,
    RECEIVE_LIMIT,
    SENDER,
    BenchError,
    check_delivery,
    three_nodes,
)
from simulator.bench.codec import BODY_BYTES
from simulator.client import Client, connect
from simulator.processes import Memory, memory_of
from simulator.proof import Received, Sent
from simulator.supervisor import Supervisor, supervised

INTERMEDIATE: Final = "intermediate"
WINDOW: Final = 64
LIMIT_BYTES: Final = 150 * 10**6
"""The resident memory that no node may need, however much waits."""
LOOK_S: Final = 0.1
PATIENCE_PER_MESSAGE_S: Final = 0.001
NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class BacklogFigures:
    """What was measured. Seconds after the restart count from when the destination was ready.

    accept_s: until the sender had all messages on disk.
    first_message_s, drain_s: until the first and the last message were received and committed.
    resent: messages that the sender sent again, as no OrderAck came while the destination was down.
    resident_bytes: of each node that ran, when all messages waited at the intermediate.
    peak_bytes: of each node, at the end; the destination's is that of its second process.
    """

    messages: int
    body_bytes: int
    window: int
    accept_s: float
    drain_s: float
    messages_per_s: float
    first_message_s: float
    resent: int
    resident_bytes: dict[str, int | None]
    peak_bytes: dict[str, int | None]
    limit_bytes: int

    @property
    def over_limit(self) -> list[str]:
        """The nodes that needed more memory than any may."""
        return [
            name for name, peak in self.peak_bytes.items() if peak is not None and peak > self.limit_bytes
        ]


async def bench_backlog(messages: int = 100_000) -> BacklogFigures:
    """Pile up messages of 1 KiB, restart the destination, and receive them all.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered, or the nodes took too long.
        NodeError: a node does not start.
    """
    topology = three_nodes(WINDOW)
    with tempfile.TemporaryDirectory(prefix="mqproto-bench-") as folder:
        directory = Path(folder)
        async with (
            supervised(topology, directory) as supervisor,
            connect(topology, SENDER, directory) as sender,
            connect(topology, INTERMEDIATE, directory) as intermediate,
        ):
            await supervisor.kill(DESTINATION)
            start_s = trio.current_time()
            sent = await _send(sender, messages)
            accept_s = trio.current_time() - start_s
            await _until_all_wait(sender, intermediate, messages)
            waiting = _memory(supervisor)
            started = await supervisor.start(DESTINATION)
            async with connect(topology, DESTINATION, directory) as destination:
                received = await _receive(destination, messages)
                check_delivery(sent, received, messages)
                first_s, last_s = received[0].at_s, received[-1].at_s
                # Copies that were sent again are still on their way; none of them may come out.
                await _until_nothing_waits(sender, intermediate, messages)
                received += await _take(destination, timeout_s=0)
                check_delivery(sent, received, messages)
            resent = (await sender.queues()).resent
            ended = _memory(supervisor)
    return BacklogFigures(
        messages=messages,
        body_bytes=BODY_BYTES,
        window=WINDOW,
        accept_s=accept_s,
        drain_s=last_s - started.ready_s,
        messages_per_s=messages / (last_s - started.ready_s),
        first_message_s=first_s - started.ready_s,
        resent=resent,
        resident_bytes={name: memory.resident_bytes for name, memory in waiting.items()},
        peak_bytes={name: memory.peak_bytes for name, memory in ended.items()},
        limit_bytes=LIMIT_BYTES,
    )


async def _send(sender: Client, messages: int) -> list[Sent]:
    """Send as fast as the sender accepts; each message has a body of its own."""
    digests: list[bytes] = []

    def drafts() -> Iterator[Draft]:
        for number in range(messages):
            body = number.to_bytes(NUMBER_BYTES, "big") * (BODY_BYTES // NUMBER_BYTES)
            digests.append(hashlib.sha256(body).digest())
            yield Draft(body=body, label="bench", transactional=True)

    at_s = trio.current_time()
    identifiers = await sender.send_many(QUEUE, drafts())
    return [Sent(identifier, digest, at_s) for identifier, digest in zip(identifiers, digests, strict=True)]


async def _until_all_wait(sender: Client, intermediate: Client, messages: int) -> None:
    """Wait until the intermediate has every message.

    It also counts copies that the sender sent again, which it must not tell from first ones (3.1.1.6.2). The sender
    is asked after it, so what it has sent again is never fewer than those copies.
    """
    arrived = 0
    with trio.move_on_after(_patience_s(messages)):
        while True:
            waiting = await _waiting(intermediate)
            arrived = waiting - (await sender.queues()).resent
            if arrived >= messages:
                return
            await trio.sleep(LOOK_S)
    raise BenchError(f"of {messages:,} messages {max(0, arrived):,} came to {INTERMEDIATE}")


async def _until_nothing_waits(sender: Client, intermediate: Client, messages: int) -> None:
    """Wait until the intermediate has passed everything on, and the sender has an OrderAck for each message."""
    with trio.move_on_after(_patience_s(messages)):
        while True:
            if not await _waiting(sender) and not await _waiting(intermediate):
                return
            await trio.sleep(LOOK_S)
    raise BenchError("all messages came, but their sender was not told of it")


async def _waiting(client: Client) -> int:
    return sum(queue.waiting for queue in (await client.queues()).outgoing)


async def _receive(destination: Client, messages: int) -> list[Received]:
    """Receive so many messages, or as many as come in good time."""
    received: list[Received] = []
    with trio.move_on_after(_patience_s(messages)):
        while len(received) < messages:
            received += await _take(destination, timeout_s=1)
    return received


async def _take(destination: Client, timeout_s: float) -> list[Received]:
    """What one transaction received, once it is committed."""
    async with destination.transaction("orders", limit=RECEIVE_LIMIT, timeout_s=timeout_s) as messages:
        digests = [(message.id, hashlib.sha256(message.body).digest()) for message in messages]
    now_s = trio.current_time()
    return [Received(identifier, digest, now_s) for identifier, digest in digests]


def _patience_s(messages: int) -> float:
    return PATIENCE_S + messages * PATIENCE_PER_MESSAGE_S


def _memory(supervisor: Supervisor) -> dict[str, Memory]:
    return {name: memory_of(node.pid) for name, node in sorted(supervisor.running.items())}
