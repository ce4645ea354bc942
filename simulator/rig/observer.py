"""Polls nodes for their counts, adds up the counts across restarts, and measures the nodes' use of resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from rich.table import Table

from mqproto.manager.status import NodeStatus
from mqproto.simulator.base.logfile import LIMIT_BYTES
from mqproto.simulator.base.processes import PROC, RESET_PEAK, memory_of
from mqproto.simulator.base.screen import plain_table
from mqproto.simulator.client import Client, NodeUnreachable
from mqproto.simulator.rig.supervisor import NodeProcess
from mqproto.simulator.rig.verdict import Found, RunOracle

LOOK_S: Final = 0.1
"""The polling interval, in seconds. What a killed process did after its last poll is not counted."""
COUNTS: Final = ("sent", "forwarded", "delivered", "held", "resent", "waiting")
MB: Final = 10**6
MEMORY_LIMIT_BYTES: Final = 200 * MB
"""The limit for a node's resident memory at any time, in bytes."""
LOG_LIMIT_BYTES: Final = 256 * 1_024
"""The limit, in bytes, for the growth of a node's log: in one life, or from the start of an attack until the node has
recovered.
"""


@dataclass(slots=True)
class NodeCount:
    """The counts of one node, over all its processes.

    `waiting` and `state` are not sums; they are the latest that are known.
    """

    sent: int = 0
    forwarded: int = 0
    delivered: int = 0
    held: int = 0
    resent: int = 0
    waiting: int = 0
    state: str = "starting"


class Observer:
    """The counts of several nodes.

    Args:
        names: the nodes.
        connect: opens a connection to one of them.
        seen: called with a node's name whenever its counts have been updated.
    """

    def __init__(
        self,
        names: Iterable[str],
        connect: Callable[[str], AbstractAsyncContextManager[Client]],
        seen: Callable[[str], None],
    ) -> None:
        self.nodes = {name: NodeCount() for name in names}
        self.statuses: dict[str, NodeStatus] = {}
        """The latest status of each running node."""
        self._connect = connect
        self._seen = seen
        self._ended = {name: NodeCount() for name in self.nodes}

    async def run(self) -> None:
        """Poll the nodes until this task is cancelled."""
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
        """Keep the counts of a process that is gone, because the next process starts its counts at 0."""
        self.nodes[name].state = "down"
        status = self.statuses.pop(name, None)
        if status is not None:
            before = self._ended[name]
            before.forwarded += status.forwarded
            before.held += status.held_ever
            before.resent += status.resent


def node_table(nodes: Mapping[str, NodeCount], caption: str = "") -> Table:
    """Return a table with one line for each node."""
    table = plain_table("node", "state", *COUNTS)
    table.caption = caption
    for name, counts in nodes.items():
        table.add_row(name, counts.state, *(f"{getattr(counts, count):,}" for count in COUNTS))
    return table


@dataclass(slots=True)
class NodeUsage:
    """The resources that one node used.

    peak_bytes: the peak of resident memory, from the kernel; None if the kernel does not report it.
    first_bytes: the resident memory at the beginning.
    cpu: the share of one core that the node used.
    log_bytes: the number of bytes by which its log grew.
    """

    peak_bytes: int | None = None
    first_bytes: int | None = None
    cpu: float = 0.0
    log_bytes: int = 0

    def raise_to(self, others: NodeUsage) -> None:
        """Raise each figure to the corresponding figure of the other usage, if that is larger.

        `first_bytes` is taken from the other usage only if it is not known here.
        """
        self.peak_bytes = max(self.peak_bytes or 0, others.peak_bytes or 0) or None
        self.first_bytes = self.first_bytes or others.first_bytes
        self.cpu, self.log_bytes = max(self.cpu, others.cpu), max(self.log_bytes, others.log_bytes)


class Look:
    """Measures what a node uses from now on, including the peak of its resident memory.

    Args:
        log_bytes: the size of its log from which growth is counted; by default the current size.
    """

    def __init__(self, node: NodeProcess, log_bytes: int | None = None) -> None:
        self._node = node
        self._cpu_s = node.cpu_s() or 0.0
        self._at_s = trio.current_time()
        self._log_bytes = _size_of(node.log) if log_bytes is None else log_bytes
        self._first_bytes = memory_of(node.pid).resident_bytes
        with suppress(OSError):
            (PROC / str(node.pid) / "clear_refs").write_text(RESET_PEAK)

    def figures(self) -> NodeUsage:
        """Return the node's usage since this object was made."""
        cpu_s = (self._node.cpu_s() or 0.0) - self._cpu_s
        log_bytes = _size_of(self._node.log) - self._log_bytes
        return NodeUsage(
            peak_bytes=memory_of(self._node.pid).peak_bytes,
            first_bytes=self._first_bytes,
            cpu=cpu_s / (trio.current_time() - self._at_s or 1.0),
            # A log that is shorter now was rotated meanwhile.
            log_bytes=log_bytes if log_bytes >= 0 else log_bytes + LIMIT_BYTES,
        )


def _size_of(log: Path) -> int:
    return log.stat().st_size


def excess(nodes: Mapping[str, NodeUsage]) -> Found:
    """Return the nodes that took more memory or log space than they may."""
    return {
        RunOracle.MEMORY: [
            f"{name} had {figures.peak_bytes / MB:,.0f} MB resident, at most {MEMORY_LIMIT_BYTES / MB:.0f}; "
            f"{(figures.first_bytes or 0) / MB:,.0f} when it began"
            for name, figures in nodes.items()
            if figures.peak_bytes is not None and figures.peak_bytes > MEMORY_LIMIT_BYTES
        ],
        RunOracle.LOG: [
            f"{name} wrote {figures.log_bytes:,} bytes of log, at most {LOG_LIMIT_BYTES:,}"
            for name, figures in nodes.items()
            if figures.log_bytes > LOG_LIMIT_BYTES
        ],
    }
