"""The queues of a topology as its nodes have them now, which is not always what its file says."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import trio

from mqproto.base.errors import FormatNameError
from mqproto.formatname import PublicName, parse_queue_name
from mqproto.simulator.client.client import connect
from mqproto.simulator.client.exchange import NodeUnreachable
from mqproto.simulator.topology import QueueDeclaration, TopologyError, places
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.resolve import is_bare, node_of


async def as_it_is(place: Place, *names: str, at: str | None = None) -> Place:
    """The same place, with the queues that its nodes say they have. Of one that does not run here, the file tells.

    Args:
        names: those of queues that somebody wants to know of, so that no more nodes are asked than must be; by default
            all are.
        at: a node that is asked in any case.
    """
    declared = place.declared or place.topology
    asked = _those_meant(place, names) if names else set(declared.nodes)
    if at is not None:
        asked.add(at)
    topology = declared
    for name, queues in (await _told_by(asked, place)).items():
        if queues is not None:
            topology = topology.with_queues(name, queues)
    return replace(place, topology=topology, declared=declared)


async def those_away(place: Place, *names: str) -> list[str]:
    """The nodes whose queues these may be and that do not run here: they may have more than the file tells of."""
    told = await _told_by(_those_meant(place, names), place)
    return sorted(name for name, queues in told.items() if queues is None)


async def _told_by(nodes: set[str], place: Place) -> dict[str, list[QueueDeclaration] | None]:
    """What each of some nodes says of its queues; None for one that does not run here."""
    told: dict[str, list[QueueDeclaration] | None] = dict.fromkeys(nodes)

    async def ask(name: str) -> None:
        with suppress(NodeUnreachable):
            async with connect(place.declared or place.topology, name, place.directory) as client:
                told[name] = await client.declared()

    async with trio.open_nursery() as nursery:
        for name in nodes:
            nursery.start_soon(ask, name)
    return told


async def host_of(place: Place, node: str | None, queue: str) -> str:
    """The node that was asked for, else the one that hosts the queue.

    Raises:
        FormatNameError, TopologyError: there is no such node or queue, or several have a queue of this name.
    """
    if node is None and _says_no_node(queue):
        place = await as_it_is(place, queue)
    return places.host_of(place, node, queue)


def _says_no_node(queue: str) -> bool:
    return is_bare(queue) or isinstance(parse_queue_name(queue), PublicName)


def _those_meant(place: Place, names: tuple[str, ...]) -> set[str]:
    """The nodes whose queues these may be; all, for one that does not say whose it is."""
    nodes = place.topology.nodes
    meant: set[str] = set()
    for name in names:
        try:
            if _says_no_node(name):
                return set(nodes)
            meant.add(node_of(place.topology, parse_queue_name(name), None).name)
        except (FormatNameError, TopologyError):
            continue  # Whoever uses it will say what is wrong with it.
    return meant
