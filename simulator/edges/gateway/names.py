"""Resolves the names that producers use for queues; nodes report their current queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import trio

from mqproto.simulator.client.live import as_it_is
from mqproto.simulator.edges.gateway.message import GatewayQueue, queue_named
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.places import Place

FRESH_S: Final = 1.0
"""The number of seconds for which the other nodes' answers are used before these nodes are asked again."""
PATIENCE_S: Final = 2.0
"""The number of seconds that the other nodes may take to answer.

After that, their earlier answers stay in use.
"""


class QueueNames:
    """The names that producers and one node use for queues.

    Args:
        place: the topology, and the directory of its nodes.
        node: the node to which messages are handed.
        own: returns the topology with the current queues of that node.
    """

    def __init__(self, place: Place, node: str, own: Callable[[], Topology]) -> None:
        self._place, self._node, self._own = place, node, own
        self._others = [name for name in place.topology.nodes if name != node]
        self._asked_s = -FRESH_S
        self._asking = trio.Lock()
        self._seen: Topology | None = None
        """The topology of the node for which the names below hold."""
        self._queues: dict[str, GatewayQueue] = {}
        self._names: dict[str, str] = {}

    async def queue(self, name: str) -> GatewayQueue:
        """Return the queue with a given name.

        Raises:
            TopologyError, FormatNameError: there is no such queue, or applications cannot send to it.
        """
        await self.refresh()
        if (queue := self._queues.get(name)) is None:
            queue = self._queues[name] = queue_named(self._place.topology, self._node, name)
        return queue

    @property
    def known(self) -> Topology:
        """The topology with the queues that the nodes last reported."""
        return self._place.topology

    async def refresh(self) -> None:
        """Look at the node's own queues, and ask the other nodes if their last answers are too old."""
        if self._others and trio.current_time() - self._asked_s >= FRESH_S:
            async with self._asking:
                if trio.current_time() - self._asked_s >= FRESH_S:
                    with trio.move_on_after(PATIENCE_S):
                        self._place = await as_it_is(replace(self._place, silent=frozenset({self._node})))
                        self._seen = None
                    self._asked_s = trio.current_time()
        own = self._own()
        if own is not self._seen:
            queues = own.nodes[self._node].queues.values()
            self._place = replace(self._place, topology=self._place.topology.with_queues(self._node, queues))
            self._seen = own
            self._queues.clear()
            self._names.clear()

    def at_node(self, queue: str) -> str:
        """Return the name that a queue has on the node."""
        if (name := self._names.get(queue)) is None:
            name = self._names[queue] = self._place.name_at(self._node, queue)
        return name
