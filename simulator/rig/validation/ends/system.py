"""The system in which messages end: three nodes, a gateway and triggers as processes, and a consumer in this
process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import trio

from mqproto.base.errors import MqprotoError
from mqproto.simulator.client import Client
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.operators import desk
from mqproto.simulator.edges.operators.erasing import erase
from mqproto.simulator.edges.operators.failures import FailedMessage, FailureFilter
from mqproto.simulator.edges.operators.reading import failed_in
from mqproto.simulator.rig.load.validator import Cue, Validator
from mqproto.simulator.rig.rig import DESTINATION, INTERMEDIATE, SENDER
from mqproto.simulator.rig.validation.edgerig import EdgeRig, three_nodes
from mqproto.simulator.rig.validation.ends.lists import Holder, Lists, Sent
from mqproto.simulator.topology import DeclaredQueue, places

PATIENCE_S: Final = 30.0
"""The longest time, in seconds, to wait for any event."""
LOOK_S: Final = 0.02
SMALLEST_BYTES: Final = 64
"""The size of the smallest body, in bytes. It is larger than a message's id, which logs contain, too."""
LIMIT: Final = 100
"""A limit that is higher than the number of messages in any queue."""
LETTERS: Final = "deadxact"


class WayError(MqprotoError):
    """An event that was planned for a message did not happen."""


class System(EdgeRig):
    """The programs and clients that the ways use.

    sender, intermediate, destination: clients of the nodes.
    producer: a client of the gateway at the sender.
    """

    sender: Client
    intermediate: Client
    destination: Client
    producer: httpx.AsyncClient
    history: DocumentHistory

    def __init__(
        self, queues: Mapping[str, DeclaredQueue], cues: Mapping[str, Sequence[Cue]], folder: Path
    ) -> None:
        super().__init__(three_nodes(queues), folder)
        self.consumer = Validator(script(cues))
        self.lists = Lists()

    @asynccontextmanager
    async def clients(self, url: str) -> AsyncIterator[None]:
        """Stay connected to the nodes, the gateway and the history while the block runs."""
        async with (
            self.connect(SENDER) as self.sender,
            self.connect(INTERMEDIATE) as self.intermediate,
            self.connect(DESTINATION) as self.destination,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as self.producer,
            open_history(places.history_url(self.directory)) as self.history,
        ):
            yield

    async def until(self, what: str, happened: Callable[[], Awaitable[object]]) -> None:
        """Wait until an event has happened.

        Raises:
            WayError: the event has still not happened after PATIENCE_S.
        """
        with trio.move_on_after(PATIENCE_S):
            while True:
                if await happened():
                    return
                await trio.sleep(LOOK_S)
        raise WayError(f"{what}: not after {PATIENCE_S:g} s")

    # The producer

    async def post(
        self,
        way: str,
        queue: str,
        key: str = "",
        *,
        text: str = "",
        size_bytes: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Hand a message in, list it once the answer is 200, and return its identifier.

        Args:
            text: the beginning of the message's body; by default `key` or, if that is empty, `way`.
        """
        text = text or key or way
        named = {"Idempotency-Key": key} if key else {}
        answer = await self.producer.post(
            f"/queues/{DESTINATION}%5C{queue}/messages",
            content=text.encode().ljust(max(size_bytes, SMALLEST_BYTES)),
            headers=named | dict(headers or {}),
        )
        if answer.status_code != 200:
            raise WayError(f"{way}: the gateway answers {answer.status_code}: {answer.text}")
        message = str(answer.json()["id"])
        self.lists.answered[message] = Sent(way, f"{DESTINATION}\\{queue}", key, text)
        return message

    async def until_state(self, state: str, queue: str, key: str) -> None:
        """Wait until the gateway reports that a message is in this state."""

        async def is_so() -> bool:
            told = await self.producer.get(f"/queues/{DESTINATION}%5C{queue}/messages/{key}")
            return told.status_code == 200 and told.json()["state"] == state

        await self.until(f"{key} is {state}", is_so)

    async def arrived(self, queue: str) -> None:
        """Wait until a message is in a queue of the destination."""

        async def is_there() -> bool:
            return bool(await self.destination.peek(queue))

        await self.until(f"something is in {queue}", is_there)

    # Those who receive

    async def receive(self, queue: str) -> None:
        """Receive and commit a message from a queue of the destination, in the role of a program."""
        for message in await self.destination.receive(queue, timeout_s=PATIENCE_S):
            self.has(Holder.PROGRAM, message.body)

    async def take(self, client: Client, queue: str, text: str) -> None:
        """Take one failed message out of its queue by hand, in the role of an operator."""
        [chosen] = [one for one in await client.peek(queue, LIMIT) if _text(one.body) == text]
        async with client.transaction(queue, chosen=[chosen.id]) as taken:
            self.has(Holder.OPERATOR, taken[0].body)

    def has(self, holder: Holder, body: bytes) -> None:
        """Record that a party has a message, and list a message that comes to a second party.

        A producer does not count as a second party, because it may be told about a message that a program already has.
        """
        text = _text(body)
        if (before := self.lists.has.get(text)) and holder is not Holder.PRODUCER:
            self.lists.twice.append(f"{text} came to {before}, and then to {holder}")
        self.lists.has[text] = holder

    def end(self) -> None:
        """Record the messages that the consumer has processed."""
        for body in self.consumer.reached.values():
            self.has(Holder.CONSUMER, body)

    # Operators

    async def failure(self, key: str) -> FailedMessage:
        """Return a failed message, as operators see it."""
        found, _ = await trio.to_thread.run_sync(failed_in, self.place, FailureFilter(names=[key]))
        if len(found) != 1:
            raise WayError(f"{key}: {len(found)} failures are called so")
        return found[0]

    async def retry(self, key: str) -> None:
        """Do what `mqproto failed retry` does."""
        await desk.retry(self.place, "", [await self.failure(key)])

    async def send_back(self, key: str) -> None:
        """Do what `mqproto return` does."""
        failure = await self.failure(key)
        await desk.send_back(self.place, failure.node, failure.where, [failure.id])

    async def resolve(self, key: str) -> None:
        """Do what `mqproto failed resolve` does."""
        await desk.resolve(self.place, "", [await self.failure(key)], "the shop was called")
        self.has(Holder.SETTLED, key.encode())

    async def erase(self, key: str) -> None:
        """Do what `mqproto erase` does."""
        erased = await erase(self.place, "", [key], "a person has asked for it")
        if not erased.is_whole:
            raise WayError(f"{key} is not erased: {erased}")
        self.has(Holder.SETTLED, key.encode())


def _text(body: bytes) -> str:
    return body.decode().rstrip()


def script(cues: Mapping[str, Sequence[Cue]]) -> Callable[[str, bytes, int], Cue]:
    """Return a script with cues for a message's first call, its second call, and so on. The cues are keyed by the
    message's text, and the last cue repeats.
    """

    def cue(key: str, body: bytes, call: int) -> Cue:
        found = cues.get(_text(body), [Cue.ACCEPT])
        return found[min(call, len(found) - 1)]

    return cue
