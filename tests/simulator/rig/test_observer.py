from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import trio

from mqproto.manager.status import NodeStatus
from mqproto.simulator.client import Client, NodeUnreachable
from mqproto.simulator.rig.observer import LOOK_S, NodeCount, Observer


def status(resent: int, waiting: int = 0) -> NodeStatus:
    """Return the status of a node that has resent `resent` messages and has `waiting` messages in each of two
    queues.
    """
    local: Any = SimpleNamespace(waiting=waiting)
    outgoing: Any = SimpleNamespace(waiting=waiting)
    return NodeStatus(
        local=[local], outgoing=[outgoing], forwarded=10 * resent, held_ever=100 * resent, resent=resent
    )


class Node:
    """A node that reports one status after another; None stands for the end of its process."""

    def __init__(self, *statuses: NodeStatus | None) -> None:
        self.statuses = list(statuses)

    @asynccontextmanager
    async def connect(self, name: str) -> AsyncIterator[Client]:
        assert name == "a"
        yield self  # type: ignore[misc]

    async def queues(self) -> NodeStatus:
        await trio.lowlevel.checkpoint()
        found = self.statuses.pop(0) if self.statuses else None
        if found is None:
            raise NodeUnreachable("not running")
        return found


async def test_counts_go_on_over_the_processes_of_a_node(autojump_clock: trio.testing.MockClock) -> None:
    node = Node(status(1), status(3, waiting=7), None, None, status(2, waiting=4))
    seen: list[tuple[str, int, int]] = []

    def look(name: str) -> None:
        counts = observer.nodes[name]
        assert (name in observer.statuses) == (counts.state == "up")
        seen.append((counts.state, counts.resent, counts.waiting))

    observer = Observer(["a"], node.connect, look)
    with trio.move_on_after(10 * LOOK_S):
        await observer.run()
    assert seen[:5] == [("up", 1, 0), ("up", 3, 14), ("down", 3, 14), ("down", 3, 14), ("up", 5, 8)]
    assert observer.nodes["a"] == NodeCount(forwarded=50, held=500, resent=5, waiting=8, state="down")
