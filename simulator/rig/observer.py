"""Polls nodes for their counts, and adds them up over the processes of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final

import trio

from mqproto.manager.status import NodeStatus
from mqproto.simulator.client import Client, NodeUnreachable
from mqproto.simulator.rig.report import NodeCount

LOOK_S: Final = 0.1
"""The polling interval. The work of a killed process since it was last asked is not counted."""


class Observer:
    """The counts of several nodes.

    Args:
        names: the nodes.
        connect: opens a connection to one of them.
        seen: called with a node's name when its counts are new.
    """

    def __init__(
        self,
        names: Iterable[str],
        connect: Callable[[str], AbstractAsyncContextManager[Client]],
        seen: Callable[[str], None],
    ) -> None:
        self.nodes = {name: NodeCount() for name in names}
        self.statuses: dict[str, NodeStatus] = {}
        """The last status of each running node."""
        self._connect = connect
        self._seen = seen
        self._ended = {name: NodeCount() for name in self.nodes}

    async def run(self) -> None:
        """Ask until cancelled."""
        async with trio.open_nursery() as nursery:
            for name in self.nodes:
                nursery.start_soon(self._observe, name)

    async def _observe(self, name: str) -> None:
        while True:
            try:
                async with self._connect(name) as client:
                    while True:
                        self.statuses[name] = await client.queues()
                        self._count(name)
                        self._seen(name)
                        await trio.sleep(LOOK_S)
            except NodeUnreachable:
                self._end(name)
                self._seen(name)
                await trio.sleep(LOOK_S)

    def _count(self, name: str) -> None:
        status, before, counts = self.statuses[name], self._ended[name], self.nodes[name]
        counts.state = "up"
        counts.forwarded = before.forwarded + status.forwarded
        counts.held = before.held + status.held_ever
        counts.resent = before.resent + status.resent
        waiting = sum(queue.waiting for queue in status.outgoing)
        counts.waiting = waiting + sum(queue.waiting for queue in status.local)

    def _end(self, name: str) -> None:
        """Keep the counts of a process that is gone; those of the next begin at 0."""
        self.nodes[name].state = "down"
        status = self.statuses.pop(name, None)
        if status is not None:
            before = self._ended[name]
            before.forwarded += status.forwarded
            before.held += status.held_ever
            before.resent += status.resent
