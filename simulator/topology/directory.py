"""The topology in the form that one node needs.

It is the part of [MS-MQDMPR]'s directory service that a queue manager uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import (
    ConnectorName,
    DirectName,
    PathName,
    PrivateName,
    Protocol,
    PublicName,
    parse_path_name,
    parse_queue_name,
)
from mqproto.messages.destinations import Destination, destination_of
from mqproto.messages.drafts import Draft
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.routing import PING_PORT, NextHop, Peer, Routes
from mqproto.routing.peers import address_of, brought_by
from mqproto.simulator.topology import DeclaredQueue, Node, Topology, TopologyError
from mqproto.simulator.topology.resolve import ResolvedName, elsewhere, is_bare
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.wire.guid import Guid, guid_from_text
from mqproto.wire.messages import POSTED_QUEUE

KNOWN_LIMIT: Final = 1_000
"""The maximum number of names in the cache; each spelling that people use counts as one."""
PROXY_HOST: Final = "127.0.0.1"
"""The source address of connections that come through a proxy on loopback."""
KB: Final = 1_024


class Target(NamedTuple):
    """The queue or node that an operator asks about.

    local_name: the node's own name for the queue; empty if the whole node is meant.
    text: the name that `known_as` gives to an outgoing queue that leads there.
    """

    node: Node
    local_name: str
    text: str


class NodeDirectory:
    """The queues, routes and names of one node.

    Args:
        topology: the topology with all nodes.
        node: the node whose view this is.
    """

    def __init__(self, topology: Topology, node: Node) -> None:
        self.node = node
        self.topology = topology
        self.routes = _routes(topology, node)
        self.queues = [as_the_core_has_it(queue) for queue in node.queues.values()]
        """The queues in the topology. A running node may have others: see `has_queues`."""
        self.peer_hosts: Mapping[str, str] = {}
        """The host of each peer, keyed by the lower-case name that an operator gave the peer.

        A running node keeps this current.
        """
        self.ping_ports = {other.ping_address[1] for other in topology.nodes.values()}
        self._by_name = {queue.name.lower(): queue.name for queue in self.queues}
        # People spell few names, and send to them often.
        self._destination = lru_cache(KNOWN_LIMIT)(self._resolved)
        self._format_name = lru_cache(KNOWN_LIMIT)(self._sendable_name)
        self._check_admin_queue = lru_cache(KNOWN_LIMIT)(self._refuse_transactional)

    def has_queues(self, queues: Iterable[QueueDeclaration]) -> None:
        """Give the node these queues, and use them to resolve names from now on.

        Raises:
            TopologyError: the queues are not valid; nothing has changed.
        """
        self.topology = self.topology.with_queues(self.node.name, map(_as_a_topology_has_it, queues))
        self.node = self.topology.nodes[self.node.name]
        self._by_name = {name.lower(): name for name in self.node.queues}
        self._destination.cache_clear()
        self._format_name.cache_clear()
        self._check_admin_queue.cache_clear()

    # Names of destinations

    def destination(self, text: str) -> Destination:
        """Return the destination of messages that are sent to `text` from this node.

        A bare name is enough if only one node has a queue of that name.

        Raises:
            FormatNameError: the text is not a name.
            TopologyError: no queue has that name.
            UsageError: nothing can be sent there.
        """
        name = self._of_peer(text)
        return self._destination(text if name is None else str(name))

    def destinations(self, text: str) -> list[Destination]:
        """Return the destinations that a comma-separated list of one or more names means.

        They are in the order of the list, without duplicates. A multiple-element format name is such a list; path names
        may also be in the list.
        """
        found: dict[tuple[str, bool | None], Destination] = {}
        for element in text.split(","):
            destination = self.destination(element.strip())
            found.setdefault((destination.name.casefold(), destination.transactional), destination)
        return list(found.values())

    def with_format_names(self, draft: Draft) -> Draft:
        """Return the draft with format names for its admin, response and trace queues.

        The dead-letter queue gets a local name instead.

        Raises:
            FormatNameError, TopologyError, UsageError: as in `destination`; or the acknowledgments would be refused.
        """
        if draft.dead_letter_queue:
            draft = replace(draft, dead_letter_queue=self._queue_for_letters(draft.dead_letter_queue))
        names = (draft.admin_queue, draft.response_queue, draft.trace_queue)
        if not any(names):
            return draft
        if draft.acknowledgments and draft.admin_queue:
            self._check_admin_queue(draft.admin_queue)
        admin, response, trace = (name and self._format_name(name) for name in names)
        return replace(draft, admin_queue=admin, response_queue=response, trace_queue=trace)

    def _refuse_transactional(self, text: str) -> None:
        """Check that the queue that `text` names is not known to refuse acknowledgments.

        A format name is not checked: if a message is sent again, somebody else chose the format name.

        Raises:
            UsageError: the queue is transactional, and acknowledgments are not.
        """
        if self._elsewhere(text) is not None or not (
            is_bare(text) or isinstance(parse_queue_name(text), PathName)
        ):
            return
        queue = self._find(text).queue
        if queue is not None and queue.transactional:
            raise UsageError(f"queue {queue.name} is transactional; acknowledgments need one that is not")

    def _queue_for_letters(self, text: str) -> str:
        """Return the queue manager's own name for the dead-letter queue that `text` names.

        The queue must be at this node.
        """
        if is_bare(text):
            return self.local_queue(text)
        path = rf".\{text}" if text.lower().startswith("private$\\") else text
        if self._elsewhere(path) is None:
            found = self.topology.resolve(path, at=self.node.name)
            if found.node.name == self.node.name:
                return found.local_name
        raise UsageError(f"{text} is not at {self.node.name}: a dead letter stays where its message was sent")

    def _sendable_name(self, text: str) -> str:
        if text == str(PrivateName(self.node.guid, POSTED_QUEUE)):
            return text  # An address without a queue: a message that was posted here is sent again.
        name = self._elsewhere(text)
        return str(self._sendable(text).format_name if name is None else name)

    def _of_peer(self, text: str) -> DirectName | None:
        """Return the direct name of a queue, if it is at a peer that an operator has named; otherwise, None."""
        computer = text.partition("\\")[0]
        host = self.peer_hosts.get(computer.casefold())
        if host is None or any(computer.casefold() == name.casefold() for name in self.topology.nodes):
            return None
        name = parse_path_name(text)
        protocol = Protocol.OS if address_of(host) is None else Protocol.TCP
        return DirectName(protocol, host, *name.local)

    def _elsewhere(self, text: str) -> DirectName | PrivateName | None:
        """Return the name of a queue outside the topology; None for any other name, such as a bare one.

        Raises:
            FormatNameError: the text is not a name.
            UsageError: nobody can send to this queue.
        """
        if is_bare(text):
            return None
        name = self._of_peer(text) or elsewhere(self.topology, parse_queue_name(text))
        if name is not None and name.read_only:
            raise UsageError(f"{text}: nobody sends to a system queue or a journal; name a queue")
        return name

    def _resolved(self, text: str) -> Destination:
        if (other := self._elsewhere(text)) is not None:
            destination = destination_of(other, self.routes, self.node.guid)
            assert destination is not None, "a direct and a private name can be sent to"
            return destination
        found = self._sendable(text)
        name, manager = found.format_name, found.node.guid
        match name:
            case PrivateName():
                return Destination(str(name), manager, name.identifier)
            case PublicName():
                return Destination(str(name), manager, name.guid)
            case ConnectorName(guid, transactional):
                return Destination(str(PublicName(guid)), manager, guid, transactional=transactional)
            case DirectName():
                host = name.address.lower()
                if host not in self.routes.hosts and host not in self.routes.own_hosts:
                    host = found.node.name.lower()
                return Destination(str(name), manager, name.wire_text, host)
        raise AssertionError(f"the topology resolved {text} to {name}")

    def _sendable(self, text: str) -> ResolvedName:
        found = self._find(text)
        if found.format_name.read_only:
            raise UsageError(
                f"{text}: nobody sends to a system queue or a journal; name a queue of the topology"
            )
        return found

    def _find(self, text: str) -> ResolvedName:
        if is_bare(text):
            text = f"{self.topology.host_of(text).name}\\{text}"
        return self.topology.resolve(text, at=self.node.name)

    # Names of queues of this node

    def local_queue(self, text: str) -> str:
        """Return the queue manager's own name for the queue of this node that `text` names.

        A bare name is enough.

        Raises:
            FormatNameError, TopologyError: as in `destination`.
            UsageError: the queue is another node's.
        """
        known = self._by_name.get(text.lower())
        if known is not None:
            return known
        if is_bare(text):
            return self.topology.resolve(f".\\{text}", at=self.node.name).local_name
        found = self.topology.resolve(text, at=self.node.name)
        if found.node.name != self.node.name:
            raise UsageError(f"{text} is a queue of {found.node.name}: receive from it there")
        if isinstance(found.format_name, PublicName) and found.queue is None:
            name = ConnectorName(found.format_name.guid)
            raise UsageError(f"{text}: its foreign system has two queues here: {name} and {name};XACTONLY")
        return found.local_name

    # Names of outgoing queues, and of an operator's targets

    def target(self, text: str) -> Target:
        """Return the queue or node that an operator asks about.

        The name of a node means that node. Any other bare name means a queue of this node, if this node has a queue of
        that name.

        Raises:
            FormatNameError, TopologyError: as in `destination`.
        """
        for node in self.topology.nodes.values():
            if text.casefold() == node.name.casefold():
                return Target(node, "", node.name)
        if is_bare(text):
            with suppress(TopologyError):
                return Target(self.node, self.local_queue(text), "")
        found = self._find(text)
        if found.queue is None and not found.format_name.read_only:
            return Target(found.node, found.local_name, known_as(self.topology, str(found.format_name)))
        name = found.queue.name if found.queue is not None else found.local_name
        return Target(found.node, found.local_name, f"{found.node.name}\\{name}")

    def outgoing_queues(self, text: str, names: Iterable[str]) -> list[str]:
        r"""Return the outgoing queues that a name such as `destination\orders` or `destination` means.

        Args:
            text: the name of an outgoing queue from `known_as`; or any other name of the queue to which it leads; or
                the queue manager's own name for it.
            names: all outgoing queues.
        """
        meant = {text.casefold()}
        with suppress(FormatNameError, UsageError):
            if (other := self._elsewhere(text)) is not None:
                destination = self.destination(str(other))
                meant |= {destination.name.casefold(), (destination.host or "").casefold()}
        with suppress(FormatNameError, UsageError):
            found = self._find(text)
            if not found.format_name.read_only:
                meant.add(known_as(self.topology, str(found.format_name)).casefold())
        return [
            name
            for name in dict.fromkeys(names)
            if meant & {name.casefold(), known_as(self.topology, name).casefold()}
        ]


def known_as(topology: Topology, name: str) -> str:
    r"""Return the name that people use for an outgoing queue.

    The queue's internal name is a format name, a queue manager's GUID, or a host. `destination\orders` is the sequence
    of transactional messages to the queue `orders` of the node `destination`. `destination` has all other messages for
    that node. `destination\order_queue$` has the acknowledgments for that node.
    """
    target = name.removesuffix(ORDER_SUFFIX)
    order = name[len(target) :]
    with suppress(ValueError):
        node = topology.node_by_guid(guid_from_text(target))
        return name if node is None else node.name + order
    called = [
        node for node in topology.nodes.values() if target.casefold() in (node.name.casefold(), node.host)
    ]
    if len(called) == 1:
        return called[0].name + order
    with suppress(FormatNameError, UsageError):
        found = topology.resolve(target)
        if found.queue is None and isinstance(found.format_name, PublicName):
            # Only a sequence has this name, and its messages are transactional.
            found = topology.resolve(str(ConnectorName(found.format_name.guid, transactional=True)))
        if found.queue is not None:
            return f"{found.node.name}\\{found.queue.name}"
    return name


def as_the_core_has_it(queue: DeclaredQueue) -> QueueDeclaration:
    """Return the queue in the form that the core uses, with sizes in bytes."""
    return QueueDeclaration(
        queue.name,
        queue.identifier,
        queue.transactional,
        queue.public,
        quota_bytes=_bytes(queue.quota_kb),
        journal=queue.journal,
        journal_quota_bytes=_bytes(queue.journal_quota_kb),
        strangers=queue.strangers,
        protection=queue.protection,
        connector=queue.connector,
    )


def _as_a_topology_has_it(queue: QueueDeclaration) -> DeclaredQueue:
    return DeclaredQueue(
        name=queue.name,
        identifier=queue.identifier,
        transactional=queue.transactional,
        public=queue.public,
        quota_kb=_kb(queue.quota_bytes),
        journal=queue.journal,
        journal_quota_kb=_kb(queue.journal_quota_bytes),
        strangers=queue.strangers,
        protection=queue.protection,
        connector=queue.connector,
    )


def _kb(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else size_bytes // KB


def _bytes(size_kb: int | None) -> int | None:
    return None if size_kb is None else size_kb * KB


def _routes(topology: Topology, node: Node) -> Routes:
    """Return the next hops for routed names, keyed by GUID, and the direct routes for direct names, keyed by name and
    by address.

    An address stands for a node only if no other node has it. Behind a proxy, the address of a connection does not
    identify the peer, so answers to a direct name go to the sender's GUID.
    """
    others = [other for other in topology.nodes.values() if other.name != node.name]
    uses = Counter(other.host for other in topology.nodes.values())
    own_hosts = {node.name.lower(), *([node.host.lower()] if uses[node.host] == 1 else [])}
    if any(link.second == node.name and link.proxy for link in topology.links):
        uses[PROXY_HOST] += 1
    managers: dict[Guid, tuple[NextHop, ...]] = {}
    hosts = {}
    for other in others:
        # Without a route, messages wait, and the status says "no route".
        with suppress(TopologyError):
            managers[other.guid] = tuple(
                _hop(
                    topology.nodes[hop],
                    *topology.dial_address(node.name, hop),
                    topology.has_tls(node.name, hop),
                )
                for hop in topology.next_hops(node.name, other.name)
            )
        try:
            straight = topology.dial_address(node.name, other.name)
        except TopologyError:
            straight = other.address
        hosts[other.name.lower()] = _hop(other, *straight, topology.has_tls(node.name, other.name))
        if uses[other.host] == 1:
            hosts[other.host.lower()] = hosts[other.name.lower()]
    publics = {
        guid: host.guid
        for host in topology.nodes.values()
        for queue in host.queues.values()
        for guid in (queue.public, queue.connector)
        if guid is not None
    }
    return Routes(
        managers,
        hosts,
        frozenset(own_hosts),
        publics,
        _peers(topology, node),
        called=topology.strangers.call,
        heard=topology.strangers.hear,
    )


def _peers(topology: Topology, node: Node) -> dict[Guid, Peer]:
    """Return what is declared about each of the other nodes.

    These facts are the hosts from which a node opens sessions, and the sources whose messages the node may forward.
    Connections from a node that uses a proxy come from the proxy's address.
    """
    proxied = {link.first for link in topology.links if link.second == node.name and link.proxy}
    links: dict[str, list[str]] = {name: [] for name in topology.nodes}
    for link in topology.links:
        links[link.first].append(link.second)
        links[link.second].append(link.first)
    peers = {}
    for other in topology.nodes.values():
        if other.name == node.name:
            continue
        brings = brought_by(other.name, node.name, links) if node.name in links[other.name] else set()
        if topology.sites and other.routing_server:
            brings = {name for name in topology.nodes if name not in (node.name, other.name)}
        origins = other.origins or (other.host,)
        if other.name in proxied:
            origins += (PROXY_HOST,)
        peers[other.guid] = Peer(
            origins,
            certified=topology.has_tls(node.name, other.name),
            brings=frozenset(topology.nodes[name].guid for name in brings),
        )
    return peers


def _hop(node: Node, host: str, port: int, tls: bool) -> NextHop:
    """Return the neighbour at this address. Datagrams go to the node itself, even if it is behind a proxy."""
    ping = node.ping_address
    return NextHop(node.guid, host, port, None if ping == (host, PING_PORT) else ping, tls)
