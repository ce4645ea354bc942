"""The current queues of a topology's nodes, which may differ from those in the topology's file."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import trio

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import PublicName, parse_queue_name
from mqproto.simulator.client.client import Client, connect
from mqproto.simulator.client.nodeline import NodeUnreachable
from mqproto.simulator.node.clients.deeds import credentials_of
from mqproto.simulator.topology import DeclaredQueue, TopologyError, places
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.resolve import is_bare, node_of

T = TypeVar("T")

LOOK_S: Final = 2.0
"""The time limit, in seconds, for each node's answer to a question that goes to all nodes."""


@dataclass(frozen=True, slots=True)
class Away:
    """A node that has not answered. It is falsy, whereas answers are truthy.

    process: the process that listens at the node's socket; 0 if it is unknown, None if there is none.
    """

    process: int | None = None

    @property
    def is_running(self) -> bool | None:
        """False if the node is not running; None if it is running but has not answered.

        The value is for programs.
        """
        return False if self.process is None else None

    def after(self, otherwise: str) -> str:
        """Return, in words, what will happen to a request.

        Args:
            otherwise: what will happen when the node is started, if it is not running.
        """
        return f"is {self}, " + (
            f"and {otherwise} when it is started" if self.process is None else "and may do it yet"
        )

    def __bool__(self) -> Literal[False]:
        return False

    def __str__(self) -> str:
        if self.process is None:
            return "not running"
        process = f" (process {self.process})" if self.process else ""
        return f"there{process}, and has not answered for {LOOK_S:g} s"


async def ask_all(
    place: Place,
    ask: Callable[[Client], Awaitable[T]],
    node: str | None = None,
    *,
    nodes: Iterable[str] | None = None,
) -> dict[str, T | Away]:
    """Ask all nodes at once, or only one, and return their answers. Each node has LOOK_S to answer.

    Args:
        node: the only node to ask; None to ask `nodes`.
        nodes: the nodes to ask if `node` is None; by default all.

    Raises:
        UsageError, FormatNameError: no node understands the question.
        NodeUnreachable: only one node was asked, and it has not answered.
    """
    found: dict[str, T | Away] = {}
    refusals: dict[str, UsageError | FormatNameError] = {}

    async def ask_one(name: str) -> None:
        with trio.move_on_after(0 if name in place.silent else LOOK_S) as look:
            try:
                async with connect(place.topology, name, place.directory) as client:
                    found[name] = await ask(client)
            except NodeUnreachable:
                if node is not None:
                    raise
            except (UsageError, FormatNameError) as error:
                refusals[name] = error
        if look.cancelled_caught:
            found[name] = Away(_process_at(places.client_socket(place.directory, name)))

    if node is not None:
        name = place.topology.node_named(node).name
        await ask_one(name)
        if refusals:
            raise refusals[name]
        if isinstance(away := found[name], Away):
            raise NodeUnreachable(f"node {name} is {away}: ask it again, or restart it")
        return found
    found |= dict.fromkeys(place.topology.nodes if nodes is None else nodes, Away())
    async with trio.open_nursery() as nursery:
        for name in found:
            nursery.start_soon(ask_one, name)
    if refusals and not any(found.values()):
        raise next(iter(refusals.values()))
    return {name: answer for name, answer in found.items() if name not in refusals}


def none_answered(topology: str, found: Mapping[str, object], start: str) -> str:
    """Return the error text for the case that no node has answered.

    Args:
        start: the command that starts all nodes.
    """
    there = [
        f"{name} is {one}" for name, one in found.items() if isinstance(one, Away) and one.process is not None
    ]
    if there:
        return f"no node of {topology} has answered: {'; '.join(there)}. Ask again, or restart what hangs"
    return f"no node of {topology} is running; start them: {start}"


def _process_at(path: Path) -> int | None:
    """Return the process that listens at a socket; 0 if it cannot be determined now, None if there is none."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.setblocking(False)
        try:
            asked.connect(str(path))
        except BlockingIOError:
            return 0
        except OSError:
            return None
        found = credentials_of(asked)
        return found.pid if found is not None else 0


async def as_it_is(place: Place, *names: str, at: str | None = None) -> Place:
    """Return the place, with the queues that its nodes report now.

    A node that is not running here has the queues in the file.

    Args:
        names: the queues of interest, so that only the necessary nodes are asked; by default, all are asked.
        at: a node to ask in any case.
    """
    declared = place.declared or place.topology
    asked = _those_meant(place, names) if names else set(declared.nodes)
    if at is not None:
        asked.add(at)
    topology = declared
    told = await _told_by(asked, place)
    for name, queues in told.items():
        if not isinstance(queues, Away):
            topology = topology.with_queues(name, queues)
    silent = frozenset(
        name for name, queues in told.items() if isinstance(queues, Away) and queues.process is not None
    )
    return Place(topology, place.directory, declared, silent)


async def those_away(place: Place, *names: str) -> list[str]:
    """Return the nodes that may have these queues but have not answered.

    The file may not list all queues of such nodes.
    """
    told = await _told_by(_those_meant(place, names), place)
    return sorted(name for name, queues in told.items() if isinstance(queues, Away))


async def _told_by(nodes: set[str], place: Place) -> dict[str, list[DeclaredQueue] | Away]:
    """Return the queues that each of these nodes reports, or `Away` for a node that does not answer."""
    declared = Place(place.declared or place.topology, place.directory)
    return await ask_all(declared, lambda client: client.declared(), nodes=nodes)


async def host_of(place: Place, node: str | None, queue: str) -> str:
    """Return the requested node, or else the node that hosts the queue.

    Raises:
        FormatNameError, TopologyError: there is no such node or queue, or several nodes have a queue of this name.
    """
    if node is None and _says_no_node(queue):
        place = await as_it_is(place, queue)
    return places.host_of(place, node, queue)


def _says_no_node(queue: str) -> bool:
    return is_bare(queue) or isinstance(parse_queue_name(queue), PublicName)


def _those_meant(place: Place, names: tuple[str, ...]) -> set[str]:
    """Return the nodes that may have these queues: all nodes, if one of the names does not name a node."""
    nodes = place.topology.nodes
    meant: set[str] = set()
    for name in names:
        try:
            if _says_no_node(name):
                return set(nodes)
            meant.add(node_of(place.topology, parse_queue_name(name), None).name)
        except (FormatNameError, TopologyError):
            continue  # The later use of the name reports the error.
    return meant
