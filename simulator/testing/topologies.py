"""Hypothesis strategies for topologies: their nodes, the links between them, and faults.

from hypothesis import given
from mqproto.simulator.testing.topologies import topologies

@given(topologies())
def test_every_node_finds_a_way_to_every_other(topology: Topology) -> None: ...
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from hypothesis import strategies as st

from mqproto.base.configuration import Settings
from mqproto.routing import RoutingLink, Site
from mqproto.simulator.topology import DeclaredQueue, Fault, Link, Node, Tls, Topology
from mqproto.simulator.topology.model import Action
from mqproto.simulator.topology.nodes import FIRST_IDENTIFIER
from mqproto.simulator.topology.views import as_toml
from mqproto.testing.headers import queue_managers
from mqproto.wire import Guid

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
MOST_NODES: Final = 6
FOREIGN: Final = uuid5(NAMESPACE_URL, "mqproto:foreign systems")

names = st.text(LETTERS, min_size=1, max_size=8)
ports = st.integers(1, 65_535)


@st.composite
def queue_declarations(draw: st.DrawFn, name: str, identifier: int) -> DeclaredQueue:
    journal = draw(st.booleans())
    return DeclaredQueue(
        name=name,
        identifier=identifier,
        transactional=draw(st.booleans()),
        quota_kb=draw(st.none() | st.integers(1, 2**20)),
        journal=journal,
        journal_quota_kb=draw(st.none() | st.integers(1, 2**20)) if journal else None,
    )


def connected(guid: Guid, queues: list[DeclaredQueue]) -> list[DeclaredQueue]:
    """Return the queues, some of them turned into connector queues.

    The first queue of each kind becomes a connector queue of a foreign system behind this node.
    """
    foreign = Guid(uuid5(FOREIGN, guid.hex()).bytes_le)
    first = {queue.transactional: queue.name for queue in reversed(queues)}
    return [replace(queue, connector=foreign if queue.name in first.values() else None) for queue in queues]


@st.composite
def nodes(draw: st.DrawFn, name: str, guid: Guid, number: int) -> Node:
    """Draw a node with up to three queues, at an address derived from its number."""
    queues = [
        draw(queue_declarations(queue, FIRST_IDENTIFIER + index))
        for index, queue in enumerate(draw(st.lists(names, max_size=3, unique=True)))
    ]
    if draw(st.booleans()):
        queues = connected(guid, queues)
    window_size = draw(st.just(64) | st.integers(1, 32_767))
    return Node(
        name=name,
        guid=guid,
        host=f"127.0.0.{number}",
        port=draw(st.just(1801) | ports),
        queues={queue.name: queue for queue in queues},
        settings=Settings(window_size=window_size),
    )


def tls_of(node: Node) -> st.SearchStrategy[Tls]:
    """Draw the TLS settings of a node. The files do not exist."""
    return st.builds(
        Tls,
        certificate=names.map(lambda name: Path("/") / f"{name}.pem"),
        key=names.map(lambda name: Path("/") / f"{name}.key"),
        host=st.just(node.host),
        port=ports.filter(lambda port: port not in (1801, node.port)),
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Draw up to six nodes, each with a route to every other node.

    They are connected either by links or by sites with routing servers.
    """
    called = draw(st.lists(names, min_size=1, max_size=MOST_NODES, unique=True))
    known = draw(st.lists(queue_managers(), min_size=len(called), max_size=len(called), unique=True))
    by_sites = draw(st.booleans())
    return draw(_with_sites(called, known) if by_sites else _with_links(called, known))


@st.composite
def _with_links(draw: st.DrawFn, called: list[str], known: list[Guid]) -> Topology:
    pairs = [(called[draw(st.integers(0, index - 1))], called[index]) for index in range(1, len(called))]
    others = [
        (one, other)
        for index, one in enumerate(called)
        for other in called[index + 1 :]
        if (one, other) not in pairs
    ]
    if others:
        pairs += draw(st.lists(st.sampled_from(others), max_size=2, unique=True))
    links = [Link(*pair, tls=draw(st.booleans())) for pair in pairs]
    over_tls = {name for link in links if link.tls for name in (link.first, link.second)}
    found = [draw(nodes(*each)) for each in zip(called, known, range(1, 255), strict=False)]
    found = [replace(node, tls=draw(tls_of(node))) if node.name in over_tls else node for node in found]
    return Topology(
        name=draw(names),
        description=draw(st.text(LETTERS + ' "\\\n', max_size=10)),
        nodes={node.name: node for node in found},
        links=tuple(links),
        faults=tuple(draw(st.lists(faults(called, pairs), max_size=3))),
    )


@st.composite
def _with_sites(draw: st.DrawFn, called: list[str], known: list[Guid]) -> Topology:
    """Draw a topology whose sites form a row. The first node of each site is its gate."""
    sites = draw(st.lists(names, min_size=1, max_size=min(3, len(called)), unique=True))
    found = []
    for index, (name, guid) in enumerate(zip(called, known, strict=True)):
        routes = index < len(sites)
        site = sites[index] if routes else draw(st.sampled_from(sites))
        node = draw(nodes(name, guid, index + 1))
        found.append(replace(node, sites=(site,), routing_server=routes))
    return Topology(
        name=draw(names),
        nodes={node.name: node for node in found},
        sites=tuple(Site(site, (gate,)) for site, gate in zip(sites, called, strict=False)),
        routing_links=tuple(
            RoutingLink(one, other, draw(st.integers(1, 999_999))) for one, other in pairwise(sites)
        ),
    )


@st.composite
def faults(draw: st.DrawFn, called: list[str], pairs: list[tuple[str, str]]) -> Fault:
    """Draw a fault of one of these nodes or links."""
    on_node = not pairs or draw(st.booleans())
    actions = (Action.KILL, Action.STOP) if on_node else (Action.CUT, Action.STALL, Action.REFUSE)
    seconds = st.integers(0, 600).map(float)
    return Fault(
        at_s=draw(seconds),
        action=draw(st.sampled_from(actions)),
        node=draw(st.sampled_from(called)) if on_node else None,
        between=None if on_node else draw(st.sampled_from(pairs)),
        for_s=draw(st.none() | seconds),
    )


@st.composite
def nearly_valid_topologies(draw: st.DrawFn) -> str:
    """Draw the TOML of a topology in which one line was deleted, duplicated, moved or changed.

    Some of these topologies are still valid.
    """
    lines = as_toml(draw(topologies())).splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(["lost", "doubled", "moved", "cut", "another value", "another key"])):
        case "lost":
            del lines[at]
        case "doubled":
            lines.insert(at, lines[at])
        case "moved":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        case "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        case "another value":
            value = draw(
                st.sampled_from(["0", "-1", "1e400", "nan", '""', "[]", "{}", "true", "99999999999999"])
            )
            lines[at] = f"{lines[at].partition(' = ')[0]} = {value}"
        case _:
            lines[at] = f"{draw(names)} = {lines[at].partition(' = ')[2]}"
    return "\n".join(lines)
