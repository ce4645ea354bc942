r"""The records of a topology, and the questions that other modules ask it.

A topology is the simulator's directory service: it knows each queue manager's GUID and address, each queue, and the
route to each. The case of node and queue names does not matter, as in MSMQ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path

from mqproto.base.errors import UsageError
from mqproto.formatname import parse_queue_name
from mqproto.routing import RoutingLink, Site
from mqproto.routing.peers import ANYWHERE, check_origin
from mqproto.simulator.topology.errors import TopologyError, nearest, nearest_queue, refuse_twins
from mqproto.simulator.topology.nodes import DeclaredQueue, Node, find, refuse_shared_guids
from mqproto.simulator.topology.ports import reserved_address
from mqproto.simulator.topology.resolve import ResolvedName, is_system_queue, resolve
from mqproto.simulator.topology.routes import next_hops
from mqproto.simulator.topology.sites import refuse_without_sites, site_hops
from mqproto.wire import sid_from_text
from mqproto.wire.guid import Guid, guid_text


@dataclass(frozen=True, slots=True)
class Link:
    """Two nodes that may connect to each other.

    proxy: the address at which the first node reaches the second, if a TCP proxy between them breaks or records the
        link. The second node connects to the first directly.
    tls: whether the two use TLS, and show each other their certificates.
    """

    first: str
    second: str
    proxy: tuple[str, int] | None = None
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strangers:
    """What queue managers outside the topology may do, besides sending to queues that are open to them.

    hear: the sources from which they are answered at all: addresses, networks, or `any`.
    call: the hosts to which a node may connect when a stranger asks for an answer there.
    """

    hear: tuple[str, ...] = (ANYWHERE,)
    call: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, origins in (("hear", self.hear), ("call", self.call)):
            for origin in origins:
                try:
                    check_origin(origin)
                except UsageError as error:
                    raise TopologyError(f"strangers: {key}: {error}") from None


@dataclass(frozen=True, slots=True)
class User:
    """A user who signs messages, as known to the directory.

    certificates: the files of the user's certificates, in PEM or DER.
    """

    name: str
    sid: str
    certificates: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        try:
            sid_from_text(self.sid)
        except UsageError as error:
            raise TopologyError(f"user.{self.name}.sid: {error}") from None


class Action(StrEnum):
    """The kinds of faults.

    The first two apply to a node; the others apply to a link, or to all links of a node.
    """

    KILL = "kill"
    STOP = "stop"
    CUT = "cut"
    STALL = "stall"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that begins at `at_s` and lasts for `for_s` seconds; `for_s` is None if the fault is permanent."""

    at_s: float
    action: Action
    node: str | None = None
    between: tuple[str, str] | None = None
    for_s: float | None = None

    def __post_init__(self) -> None:
        if (self.node is None) == (self.between is None):
            raise TopologyError("a fault befalls either a node or, with between, a link; name one of them")
        if self.action in (Action.KILL, Action.STOP) and self.node is None:
            raise TopologyError(f"{self.action} befalls a node, not a link; name the node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes, links, faults, and next hops.

    Without sites, a message takes the route with the fewest links, except where `routes` fixes a node's next hop to a
    destination. With sites, [MS-MQBR] decides the next hop, and no links are needed. `typed` is the value that names
    the topology on the command line: its name, or the path of its file.

    Raises:
        TopologyError: parts of it do not fit together.
    """

    name: str
    nodes: Mapping[str, Node]
    links: tuple[Link, ...] = ()
    routes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    description: str = ""
    producers_stay: bool = False
    strangers: Strangers = Strangers()
    sites: tuple[Site, ...] = ()
    routing_links: tuple[RoutingLink, ...] = ()
    users: tuple[User, ...] = ()
    typed: str = field(default="", compare=False)
    _hops: Mapping[tuple[str, str], tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^./\\\0][^/\\\0]{0,62}", self.name):  # It names the folder of stores.
            raise TopologyError(
                f"name {self.name!r}: a topology's name has up to 63 characters, no slash, no dot first"
            )
        object.__setattr__(self, "typed", self.typed or self.name)
        nodes = self.nodes.values()
        proxies = ((link.proxy, f"the proxy of {link.first}") for link in self.links if link.proxy)
        refuse_twins("have one name", ((node.name.casefold(), node.name) for node in nodes))
        refuse_twins("have one SID", ((user.sid, user.name) for user in self.users))
        refuse_twins("have one GUID", ((node.guid, node.name) for node in nodes))
        addresses = ((address, node.name) for node in nodes for address in node.addresses)
        metrics = ((node.metrics, f"the metrics of {node.name}") for node in nodes if node.metrics)
        refuse_twins("have one address", chain(addresses, proxies, metrics))
        refuse_shared_guids(nodes)
        if any(node.settings.require_pings for node in nodes):
            # A request to one of them would be answered by the other.
            pinged = ((node.ping_address, node.name) for node in nodes if node.settings.answer_pings)
            refuse_twins("answer pings at one address, which ping = 'host:port' sets", pinged)

        neighbours: dict[str, list[str]] = {name: [] for name in self.nodes}
        for link in self.links:
            self._known(link.first, "link")
            self._known(link.second, "link")
            if link.first == link.second:
                raise TopologyError(f"link: {link.first!r} needs no link with itself; leave it out")
            if link.second in neighbours[link.first]:
                raise TopologyError(
                    f"link: {link.first!r} and {link.second!r} are linked already; leave it out"
                )
            neighbours[link.first].append(link.second)
            neighbours[link.second].append(link.first)
        self._refuse_half_of_tls()
        for frm, table in self.routes.items():
            self._known(frm, "route")
            for to in table:
                self._known(to, f"route.{frm}")
                if frm == to:
                    raise TopologyError(f"route.{frm}.{to}: a node needs no route to itself; leave it out")
        for fault in self.faults:
            for name in fault.between or [fault.node or ""]:
                self._known(name, "fault")
            if fault.between and fault.between[1] not in neighbours[fault.between[0]]:
                raise TopologyError(f"fault: no link joins {' and '.join(fault.between)}; add the link")
        if self.sites:
            hops = site_hops(nodes, self.sites, self.routing_links, self.routes)
        else:
            refuse_without_sites(nodes, self.routing_links)
            hops = {pair: (hop,) for pair, hop in next_hops(neighbours, self.routes).items()}
        object.__setattr__(self, "_hops", hops)

    def next_hop(self, frm: str, to: str) -> str:
        """Return the preferred next hop from `frm` to `to`; raise a TopologyError if there is no route."""
        return self.next_hops(frm, to)[0]

    def next_hops(self, frm: str, to: str) -> tuple[str, ...]:
        """Return the possible next hops from `frm` to `to`, the preferred first; raise a TopologyError if there is no
        route."""
        self._known(frm, "next hop")
        self._known(to, "next hop")
        hops = self._hops.get((frm, to))
        if hops is None:
            raise TopologyError(f"no way leads from {frm!r} to {to!r}; add a link")
        return hops

    def dial_address(self, frm: str, to: str) -> tuple[str, int]:
        """Return the address to which `frm` connects to reach `to`.

        This is the address of the link's proxy, if the link has one in that direction; otherwise, it is that of `to`
        itself. With sites, the sites decide which nodes may connect. Without sites, raise a TopologyError if no link
        joins the two.
        """
        link = self._link(frm, to)
        if link is None and not self.sites:
            raise TopologyError(f"no link joins {frm!r} and {to!r}; dial the next hop")
        if link is not None and link.proxy and link.first == frm:
            return link.proxy
        return self.listening_address(frm, to)

    def listening_address(self, frm: str, to: str) -> tuple[str, int]:
        """Return the address at which `to` itself listens for `frm`.

        It is the TLS address if their link uses TLS.
        """
        tls = self.nodes[to].tls if self.has_tls(frm, to) else None
        return self.nodes[to].address if tls is None else tls.address

    def has_tls(self, one: str, other: str) -> bool:
        """Return whether a link with TLS joins two nodes."""
        link = self._link(one, other)
        return link is not None and link.tls

    def tls_neighbours(self, name: str) -> list[Node]:
        """Return the nodes to which a node has links with TLS."""
        return [node for node in self.nodes.values() if self.has_tls(name, node.name)]

    def _link(self, one: str, other: str) -> Link | None:
        return next((link for link in self.links if {link.first, link.second} == {one, other}), None)

    def node_named(self, name: str) -> Node:
        """Return the node of that name, ignoring case; raise a TopologyError if there is none."""
        return self.nodes[find(name, self.nodes, f"{self.name} has no node")]

    def node_by_guid(self, guid: Guid) -> Node | None:
        """Return the node with that GUID; None if there is none."""
        return next((node for node in self.nodes.values() if node.guid == guid), None)

    def manager_name(self, guid: str) -> str:
        """Return the name of the node with that GUID, in the form that nodes use; empty if there is none."""
        return next((node.name for node in self.nodes.values() if guid_text(node.guid) == guid), "")

    def resolve(self, text: str, at: str | None = None) -> ResolvedName:
        r"""Return the destination that a path name or format name means.

        A path name becomes the queue's routed name (PUBLIC=, PRIVATE= or CONNECTOR=); `node\orders` and
        `node\private$\orders` are the same queue. A direct name stays a direct name, and leads straight to its node.
        Journals and system queues have the names of [MS-MQMQ] 2.1; the short form `node\deadxact` also works.

        Args:
            text: the name, such as `destination\private$\orders`.
            at: the node that `.` represents.

        Raises:
            FormatNameError: the text is not a name.
            TopologyError: the topology has nothing of this name.
        """
        return resolve(self, parse_queue_name(text), at)

    def host_of(self, name: str) -> Node:
        """Return the only node that has a queue of this bare name, such as `orders` or `orders;journal`.

        Raises:
            TopologyError: no node, or more than one, has such a queue.
        """
        queue = name.partition(";")[0].casefold()
        hosts = [node for node in self.nodes.values() if queue in {known.casefold() for known in node.queues}]
        if not hosts and is_system_queue(name):
            hosts = list(self.nodes.values())
        if not hosts:
            known = [known for node in self.nodes.values() for known in node.queues]
            raise TopologyError(f"no node has a queue {name!r}; {nearest_queue(name, known)}", name)
        if len(hosts) > 1:
            names = ", ".join(node.name for node in hosts)
            raise TopologyError(f"each of {names} has a queue {name}: write '{hosts[0].name}\\{name}'")
        return hosts[0]

    def with_queues(self, name: str, queues: Iterable[DeclaredQueue]) -> Topology:
        """Return the topology in which a node has these queues. Next hops are not computed again.

        Raises:
            TopologyError: two queues have the same name, number or GUID.
        """
        nodes = {**self.nodes, name: self.nodes[name].with_queues(queues)}
        refuse_shared_guids(nodes.values())
        found = copy(self)
        object.__setattr__(found, "nodes", nodes)
        return found

    def with_node(self, node: Node) -> Topology:
        """Return the topology in which this node replaces the node of the same name.

        The new node must have the same address.
        """
        found = copy(self)
        object.__setattr__(found, "nodes", {**self.nodes, node.name: node})
        return found

    def with_readers(self, name: str, group: str, folder: Path | None) -> Topology:
        """Return the topology in which an operating-system group may read from a node, but change nothing.

        folder: the folder of the group's socket; None for the usual one.

        Raises:
            TopologyError: a folder is given without a group.
        """
        node = self.nodes[name]
        folder = folder.absolute() if folder is not None else node.readers_folder
        return self.with_node(replace(node, readers=group or node.readers, readers_folder=folder))

    def with_metrics(self, host: str, port: int) -> Topology:
        """Return the topology in which all nodes answer /metrics, /live and /ready.

        They do so at consecutive ports, beginning with this one.
        """
        if port + len(self.nodes) > 65_536:
            raise TopologyError(
                f"--metrics {host}:{port}: {len(self.nodes)} nodes take as many ports from there"
            )
        nodes = {
            name: replace(node, metrics=(host, port + number))
            for number, (name, node) in enumerate(self.nodes.items())
        }
        return replace(self, nodes=nodes)

    def with_traces(self, collector: str) -> Topology:
        """Return the topology in which all nodes send the spans of traced messages to this URL."""
        nodes = {name: replace(node, traces=collector) for name, node in self.nodes.items()}
        return replace(self, nodes=nodes)

    def with_free_ports(self) -> Topology:
        """Return the topology with all nodes and proxies moved to free ports of 127.0.0.1.

        A node answers Pings at the UDP port with the same number as its port without TLS. This is for machines that
        lack 127.0.0.2, such as those with macOS, or on which another program uses port 1801. For a minute, the system
        does not give these ports to programs that ask for any free port.
        """
        nodes = {}
        for name, node in self.nodes.items():
            host, port = reserved_address()
            tls = node.tls
            if tls is not None:
                tls_host, tls_port = reserved_address()
                tls = replace(tls, host=tls_host, port=tls_port)
            metrics = reserved_address() if node.metrics is not None else None
            gateway = node.gateway
            if gateway is not None:
                gateway = {**gateway, "listen": "{}:{}".format(*reserved_address())}
            nodes[name] = replace(
                node, host=host, port=port, ping=(host, port), tls=tls, metrics=metrics, gateway=gateway
            )
        links = tuple(replace(link, proxy=reserved_address()) if link.proxy else link for link in self.links)
        return replace(self, nodes=nodes, links=links)

    def with_waypoints(self) -> Topology:
        """Return the topology in which all nodes write the waypoints of messages to their logs."""
        nodes = {
            name: replace(node, settings=replace(node.settings, waypoints=True))
            for name, node in self.nodes.items()
        }
        return replace(self, nodes=nodes)

    def _refuse_half_of_tls(self) -> None:
        ends = [name for link in self.links if link.tls for name in (link.first, link.second)]
        for name, node in self.nodes.items():
            if name in ends and node.tls is None:
                raise TopologyError(
                    f"link: {name!r} has a link with TLS and no certificate; add [node.{name}.tls]"
                )
            if node.tls is not None and name not in ends:
                raise TopologyError(f"node.{name}.tls: no link of {name!r} has TLS; add tls = true to one")

    def _known(self, name: str, where: str) -> None:
        if name not in self.nodes:
            raise TopologyError(f"{where}: no node is called {name!r}; {nearest(name, list(self.nodes))}")
