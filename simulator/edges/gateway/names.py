"""Resolves the names that producers use for queues; nodes report their current queues."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

import trio

from mqproto.edge.exactlyonce import Entry
from mqproto.formatname import PrivateName
from mqproto.simulator.client.live import as_it_is
from mqproto.simulator.edges.gateway.confirmations import CONFIRMATIONS
from mqproto.simulator.edges.gateway.gateway import GatewayQueue, queue_named
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError
from mqproto.simulator.edges.trail import OWN_QUEUES
from mqproto.simulator.topology import DeclaredQueue, Node, Topology
from mqproto.simulator.topology.places import Place

FRESH_S: Final = 1.0
"""The number of seconds for which the nodes' answers are used before the nodes are asked again."""
PATIENCE_S: Final = 2.0
"""The number of seconds that the nodes may take to answer.

After that, their earlier answers stay in use.
"""


class QueueNames:
    """The names that producers and one node use for queues.

    To producers there are no queues in which gateways with the same history get confirmations.

    Args:
        place: the topology, and the directory of its nodes.
        node: the node to which messages are handed.
    """

    def __init__(self, place: Place, node: str) -> None:
        self._place = place
        self._node = node
        self._history: DocumentHistory | None = None
        self._own = set[str]()
        self._asked_s = -FRESH_S
        self._asking = trio.Lock()
        self._queues: dict[str, GatewayQueue] = {}
        self._names: dict[str, str] = {}
        """The node's names for queues, as far as they have been looked up since the nodes were last asked."""

    def hide_own(self, history: DocumentHistory) -> None:
        """Hide, from now on, the queues that this history knows as gateways' own."""
        self._history, self._asked_s = history, -FRESH_S

    async def queue(self, name: str) -> GatewayQueue:
        """Return the queue with a given name.

        Raises:
            TopologyError, FormatNameError: there is no such queue, or applications cannot send to it.
        """
        topology = await self.topology()
        if (queue := self._queues.get(name)) is None:
            queue = self._queues[name] = queue_named(topology, self._node, name)
        return queue

    @property
    def known(self) -> Topology:
        """The topology with the queues that the nodes last reported."""
        return self._place.topology

    async def topology(self) -> Topology:
        """Return the topology with the current queues; ask the nodes if their last answers are too old."""
        if trio.current_time() - self._asked_s < FRESH_S:
            return self._place.topology
        async with self._asking:
            if trio.current_time() - self._asked_s >= FRESH_S:
                with trio.move_on_after(PATIENCE_S), suppress(HistoryError):
                    self._place = await self._without_own(await as_it_is(self._place))
                    self._queues.clear()
                    self._names.clear()
                self._asked_s = trio.current_time()
        return self._place.topology

    async def _without_own(self, place: Place) -> Place:
        topology = place.topology
        for node in topology.nodes.values():
            left = [queue for queue in node.queues.values() if not await self._is_own(node, queue)]
            if len(left) < len(node.queues):
                topology = topology.with_queues(node.name, left)
        return replace(place, topology=topology)

    async def _is_own(self, node: Node, queue: DeclaredQueue) -> bool:
        if self._history is None or not queue.name.endswith(CONFIRMATIONS):
            return False
        name = str(PrivateName(node.guid, queue.identifier))
        if name not in self._own and (await self._history.look(OWN_QUEUES, name)).entry is Entry.STARTED:
            self._own.add(name)
        return name in self._own

    def at_node(self, queue: str) -> str:
        """Return the name that a queue has on the node."""
        if (name := self._names.get(queue)) is None:
            name = self._names[queue] = self._place.name_at(self._node, queue)
        return name
