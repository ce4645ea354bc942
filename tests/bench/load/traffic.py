"""Messages from a producer to a consumer through any system between them. Each message is checked.

A paced producer sends each message when it is due, whether earlier ones have been answered or not. The time of a
message begins when it is due. So a stall shows in the delay of every message that it held up, including those that
could not even be sent meanwhile. Figures without those delays would look better than what a user sees.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from typing import Final, Protocol

import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client
from mqproto.simulator.rig.load.workload import Workload, as_batches
from mqproto.simulator.rig.proof import Committed, Sent, compare, delays_ms, digest_of
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.turn.guard import STRONG
from tests.bench.figures import BenchError

OUTSTANDING: Final = 4
"""The maximum number of unanswered requests of a producer that sends as fast as it can."""
PACED_OUTSTANDING: Final = 32
"""The maximum number of unanswered requests of a producer that sends each message when it is due."""
CONSUMERS: Final = 16
"""The number of tasks that share the queues, if there are many queues."""
RECEIVE_MESSAGES: Final = 500
RECEIVE_BYTES: Final = 4 * 2**20
"""The maximum amount, in bytes, that the consumer takes in one transaction."""
RECEIVE_MIXED_MESSAGES: Final = 64
"""The maximum number of messages in one transaction, if it is not known how large the next ones are."""
UNALTERED: Final = b""
ALTERED: Final = b"altered"
"""The digest of an altered message, if all bodies are the same; the digest of any other message is UNALTERED."""


class Message(Protocol):
    """A message that was sent, or one that has arrived."""

    @property
    def label(self) -> str: ...

    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Bodies:
    """The messages that a producer sends.

    drafts: the drafts, one after another. Each is made when it is needed, because all of them at once would fill the
        memory.
    digest: a function that identifies a message: the result is the same for the sent and the received message, unless
        the message was altered.
    receive_messages: the maximum number of messages that a consumer takes in one transaction.
    """

    drafts: Iterator[Draft]
    digest: Callable[[Message], bytes]
    receive_messages: int


def alike(body: bytes, *, protected: bool = False) -> Bodies:
    """Return messages that all have the same body. Received bodies are compared, not their digests.

    That is faster.

    Args:
        protected: whether the messages are encrypted and signed.
    """
    draft = Draft(
        body=body,
        label="bench",
        transactional=True,
        privacy_level=STRONG if protected else 0,
        signer=SIGNING if protected else "",
    )
    receive_messages = max(1, min(RECEIVE_MESSAGES, RECEIVE_BYTES // max(1, len(body))))
    return Bodies(repeat(draft), lambda each: UNALTERED if each.body == body else ALTERED, receive_messages)


def mixed(workload: Workload) -> Bodies:
    """Return the messages of a workload; their labels differ, because several bodies are empty."""
    drafts = (Draft(body=item.body, label=item.label, transactional=True) for item in workload.items())
    return Bodies(drafts, lambda each: digest_of(each.label, each.body), RECEIVE_MIXED_MESSAGES)


class Traffic:
    """Transactional messages to the queues of one node, sent to each queue in turn.

    Args:
        sender, receiver: the clients of the nodes at which the messages begin and end. The receiver's node is called
            `node`.
        together: whether the messages of a request are one transaction, whatever their queues. With several queues,
            they always are.
    """

    def __init__(
        self,
        sender: Client,
        receiver: Client,
        node: str,
        queues: Sequence[str],
        bodies: Bodies,
        *,
        together: bool = False,
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._queues = queues
        self._paths = {queue: f"{node}\\{queue}" for queue in queues}
        self._together = together or len(queues) > 1
        self._bodies = bodies
        self._asked = 0
        self._accepted: list[tuple[int, str, Sent]] = []
        self._received: dict[str, list[Committed]] = {queue: [] for queue in queues}
        self.sent_bytes = 0
        """The total size of the bodies of all accepted messages."""

    @property
    def delays_ms(self) -> list[float]:
        """Return the delay of each received message, from when it was due until the consumer had it.

        The delays are sorted by size.
        """
        sent = [sent for _, _, sent in self._accepted]
        return delays_ms(sent, [each for received in self._received.values() for each in received])

    @property
    def arrivals_s(self) -> list[float]:
        """Return the times at which messages arrived, in order."""
        return sorted(each.at_s for received in self._received.values() for each in received)

    @property
    def unreceived(self) -> int:
        """Return how many accepted messages have yet to arrive, if each one arrives once."""
        return len(self._accepted) - sum(map(len, self._received.values()))

    async def send_fast(self, count: int) -> None:
        """Send as fast as the node accepts, with several requests under way at once."""
        self._asked += count
        queues = cycle(self._queues)
        places = trio.Semaphore(OUTSTANDING)

        async def send(chosen: list[str], drafts: list[Draft]) -> None:
            await self._send(chosen, drafts, [trio.current_time()] * len(chosen))
            places.release()

        async with trio.open_nursery() as nursery:
            for drafts in as_batches(islice(self._bodies.drafts, count)):
                await places.acquire()
                nursery.start_soon(send, list(islice(queues, len(drafts))), drafts)

    async def send_paced(self, count: int, per_s: float) -> None:
        """Send `per_s` messages a second, each when it is due."""
        self._asked += count
        queues = cycle(self._queues)

        async def send(due_s: list[float]) -> None:
            drafts = list(islice(self._bodies.drafts, len(due_s)))
            await self._send(list(islice(queues, len(due_s))), drafts, due_s)

        start_s = trio.current_time()
        await send_when_due([start_s + number / per_s for number in range(count)], send)

    async def _send(self, queues: list[str], drafts: list[Draft], due_s: list[float]) -> None:
        if self._together:
            messages = [(self._paths[queue], draft) for queue, draft in zip(queues, drafts, strict=True)]
            identifiers = await self._sender.send_together(messages)
        else:
            identifiers = await self._sender.send_many(self._paths[self._queues[0]], drafts)
        self._accepted += [
            (identifier.ordinal, queue, Sent(identifier, self._bodies.digest(draft), at_s))
            for identifier, queue, draft, at_s in zip(identifiers, queues, drafts, due_s, strict=True)
        ]
        self.sent_bytes += sum(len(draft.body) for draft in drafts)

    async def receive(self, count: int) -> None:
        """Receive and commit `count` more messages, an equal share from each queue."""
        shares = {
            queue: len(self._received[queue]) + share_of(count, len(self._queues), place)
            for place, queue in enumerate(self._queues)
        }

        async def consume(queues: Sequence[str]) -> None:
            for queue in queues:
                while len(self._received[queue]) < shares[queue]:
                    await self.take(queue, timeout_s=1)

        async with trio.open_nursery() as nursery:
            for first in range(min(CONSUMERS, len(self._queues))):
                nursery.start_soon(consume, self._queues[first::CONSUMERS])

    async def take(self, queue: str, timeout_s: float) -> None:
        """Receive from a queue in one transaction, and keep the messages."""
        self._received[queue] += await taken(self._receiver, queue, self._bodies, timeout_s)

    def check(self) -> None:
        """Check that all messages were sent, and that each arrived once, unaltered and in the order of its queue.

        Raises:
            BenchError: a message was not sent, was lost or altered, or arrived twice or out of order.
        """
        if len(self._accepted) != self._asked:
            raise BenchError(f"of {self._asked:,} messages {len(self._accepted):,} were sent")
        sent: dict[str, list[Sent]] = {queue: [] for queue in self._queues}
        # Requests are under way at once, so the node's own numbers say what came first.
        for _, queue, message in sorted(self._accepted, key=lambda each: each[0]):
            sent[queue].append(message)
        for queue in self._queues:
            check_delivery(sent[queue], self._received[queue])


def share_of(count: int, places: int, place: int) -> int:
    """Return how many of `count` items one of several places gets if they are dealt out in turn."""
    return count // places + (place < count % places)


async def taken(client: Client, queue: str, bodies: Bodies, timeout_s: float) -> list[Committed]:
    """Return the messages that one transaction receives; none if nothing arrives in time."""
    async with client.transaction(queue, bodies.receive_messages, timeout_s) as messages:
        now_s = trio.current_time()
        return [Committed(message.id, bodies.digest(message), now_s) for message in messages]


async def send_when_due(due_s: Sequence[float], send: Callable[[list[float]], Awaitable[None]]) -> None:
    """Send each message when it is due, or as soon afterward as earlier requests allow.

    Messages that are due together make one request. `send` is given the times at which its messages were due, not the
    time of the call.
    """
    places = trio.Semaphore(PACED_OUTSTANDING)

    async def one(due: list[float]) -> None:
        await send(due)
        places.release()

    first = 0
    async with trio.open_nursery() as nursery:
        while first < len(due_s):
            await trio.sleep_until(due_s[first])
            await places.acquire()
            now_s = trio.current_time()
            after = next((at for at in range(first, len(due_s)) if due_s[at] > now_s), len(due_s))
            nursery.start_soon(one, list(due_s[first:after]))
            first = after


def check_delivery(sent: Sequence[Sent], received: Sequence[Committed]) -> None:
    """Check that each message was received once, in order, unaltered.

    Raises:
        BenchError: some were not; the text says how many, and what became of them.
    """
    if broken := compare(sent, received).broken():
        raise BenchError(f"of {len(sent):,} messages: {', '.join(broken)}")
