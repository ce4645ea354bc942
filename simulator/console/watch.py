"""Polls the nodes several times a second, once for all browsers, and only while somebody is looking.

The requests are those of `mqproto queues` and `mqproto peers`, over the control sockets. A node that does not answer
does not delay the others. It is shown with its last answer and the age of that answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from mqproto.base.errors import MqprotoError
from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.simulator.client import NodeUnreachable, connect
from mqproto.simulator.topology import DeclaredQueue
from mqproto.simulator.topology.places import Place

LOOK_S: Final = 0.4
"""The number of seconds between two polls of the nodes."""
PATIENCE_S: Final = 0.3
"""The number of seconds for which one poll waits for the slowest node."""
GIVEN_UP_S: Final = 30.0
"""The number of seconds for which one request waits for its answer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The last answer of a node.

    status, peers: the answers to the two requests; None if the node is not running.
    at_s: the time at which the node was asked, on trio's clock.
    """

    at_s: float
    status: NodeStatus | None = None
    peers: PeersStatus | None = None
    queues: tuple[DeclaredQueue, ...] = ()


LEFT_S: Final = 5.0
"""If no page has been open for this many seconds, all actions that pages have started are ended."""


class NodeWatch:
    """Polls nodes while somebody is looking.

    Args:
        tell: called after each poll with the samples, keyed by the nodes' names.
        left: called when nobody has looked for LEFT_S.
    """

    def __init__(
        self,
        place: Place,
        tell: Callable[[dict[str, Sample]], Awaitable[None]],
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._left = left
        self._place = place
        self._tell = tell
        self._lookers = 0
        self._looked = trio.Event()
        self._samples: dict[str, Sample] = {}
        self._asked: set[str] = set()
        self._answered = trio.Event()
        self._hurry = trio.Event()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count one more viewer while the block runs."""
        self._lookers += 1
        self._looked.set()
        try:
            yield
        finally:
            self._lookers -= 1
            if not self._lookers:
                self._looked = trio.Event()

    def hurry(self) -> None:
        """Poll the nodes at once, because an operation was carried out."""
        self._hurry.set()

    async def run(self) -> None:
        """Poll the nodes until this task is cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                # A page that is loaded again is away for a moment.
                with trio.move_on_after(LEFT_S) as away:
                    await self._looked.wait()
                if away.cancelled_caught:
                    self._left()
                    await self._looked.wait()
                began_s = trio.current_time()
                await self._round(nursery)
                self._hurry = trio.Event()
                with trio.move_on_at(began_s + LOOK_S):
                    await self._hurry.wait()

    async def _round(self, nursery: trio.Nursery) -> None:
        """Poll each node that has answered its previous request."""
        self._answered = trio.Event()
        for name in self._place.topology.nodes:
            if name not in self._asked:
                self._asked.add(name)
                nursery.start_soon(self._ask, name)
        with trio.move_on_after(PATIENCE_S):
            while self._asked:
                await self._answered.wait()
                self._answered = trio.Event()
        await self._tell(dict(self._samples))

    async def _ask(self, name: str) -> None:
        began_s = trio.current_time()
        try:
            self._samples[name] = await self._sampled(name, began_s)
        except NodeUnreachable:
            self._samples[name] = Sample(began_s)
        except MqprotoError:
            pass  # It is shown with what it said last, and when.
        finally:
            self._asked.discard(name)
            self._answered.set()

    async def _sampled(self, name: str, began_s: float) -> Sample:
        """Return a sample of a node.

        Raises:
            NodeUnreachable: the node is not running.
            MqprotoError: the node does not answer, or its answer is an error.
        """
        with trio.move_on_after(GIVEN_UP_S):
            async with connect(
                self._place.topology, name, self._place.directory, patience_s=PATIENCE_S
            ) as client:
                return Sample(
                    began_s, await client.queues(), await client.peers(), tuple(await client.declared())
                )
        raise MqprotoError(f"{name} does not answer")
