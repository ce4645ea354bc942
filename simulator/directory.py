"""What the topology means to one node: the directory service of [MS-MQDMPR], as far as a queue manager asks it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

from mqproto.destinations import Destination
from mqproto.errors import UsageError
from mqproto.formatname import DirectName, PrivateName, PublicName
from mqproto.localqueues import QueueDeclaration
from mqproto.routing import PING_PORT, NextHop, Routes
from mqproto.wire.guid import Guid
from simulator.topology import Node, Topology, TopologyError

KNOWN_LIMIT: Final = 1_000
"""How many destinations are remembered as people spell them."""
PROXY_HOST: Final = "127.0.0.1"
"""The address from which the kernel lets a proxy on loopback connect."""


class Directory:
    """The queues, routes and names of one node.

    Args:
        topology: everybody.
        node: whose view this is.
    """

    def __init__(self, topology: Topology, node: Node) -> None:
        self.node = node
        self.topology = topology
        self.routes = _routes(topology, node)
        self.queues = [
            QueueDeclaration(queue.name, queue.identifier, queue.transactional, queue.public)
            for queue in node.queues.values()
        ]
        self.ping_ports = {other.ping_address[1] for other in topology.nodes.values()}
        self._by_name = {queue.name.lower(): queue.name for queue in self.queues}
        self._known: dict[str, Destination] = {}

    def destination(self, text: str) -> Destination:
        """Where a message goes that somebody at this node sends to `text`.

        Raises:
            FormatNameError: the text is no name.
            TopologyError: there is nothing of that name.
            UsageError: nothing can be sent there.
        """
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= KNOWN_LIMIT:
                self._known.clear()
            known = self._known[text] = self._resolve(text)
        return known

    def destinations(self, text: str) -> list[Destination]:
        """The same for one name or several, separated by commas; each destination once, in the order of the text.

        A multiple-element format name is such a text, and path names may stand in it as well.
        """
        found: dict[str, Destination] = {}
        for element in text.split(","):
            destination = self.destination(element.strip())
            found.setdefault(destination.name.casefold(), destination)
        return list(found.values())

    def local_queue(self, text: str) -> str:
        """The queue of this node that `text` means: its bare name will do.

        Raises:
            FormatNameError, TopologyError, UsageError: as above; or it is another node's.
        """
        if text.lower() in self._by_name:
            return self._by_name[text.lower()]
        if not {"\\", "=", ":"} & set(text):
            return self.node.queue(text).name
        found = self.topology.resolve(text, at=self.node.name)
        if found.node.name != self.node.name:
            raise UsageError(f"{text} is a queue of {found.node.name}: receive from it there")
        if found.queue is None:
            raise UsageError(
                f"{text}: there is no receiving from system queues; name a queue of the topology"
            )
        return found.queue.name

    def _resolve(self, text: str) -> Destination:
        found = self.topology.resolve(text, at=self.node.name)
        name = found.format_name
        manager = found.node.guid
        if found.queue is None or name.read_only:
            raise UsageError(
                f"{text}: nobody sends to a system queue or a journal; name a queue of the topology"
            )
        match name:
            case PrivateName():
                return Destination(str(name), manager, name.identifier)
            case PublicName():
                return Destination(str(name), manager, name.guid)
            case DirectName():
                host = name.address.lower()
                if host not in self.routes.hosts:
                    host = found.node.name.lower()
                return Destination(str(name), manager, str(name).partition("=")[2], host)
        raise AssertionError(f"the topology resolved {text} to {name}")


def _routes(topology: Topology, node: Node) -> Routes:
    """Next hops by GUID for routed names; straight ways by name and by address for direct ones.

    An address stands for a node only if it is that node's alone. Where a proxy leads here, its own address says nothing
    about who connects: answers to a direct name then go by the sender's GUID.
    """
    others = [other for other in topology.nodes.values() if other.name != node.name]
    uses = Counter(other.host for other in topology.nodes.values())
    if any(link.second == node.name and link.proxy for link in topology.links):
        uses[PROXY_HOST] += 1
    managers: dict[Guid, tuple[NextHop, ...]] = {}
    hosts = {}
    for other in others:
        # Where no way leads, what is sent waits, and the status says "no route".
        with suppress(TopologyError):
            managers[other.guid] = tuple(
                _hop(topology.nodes[hop], *topology.dial_address(node.name, hop))
                for hop in topology.next_hops(node.name, other.name)
            )
        try:
            straight = topology.dial_address(node.name, other.name)
        except TopologyError:
            straight = other.address
        hosts[other.name.lower()] = _hop(other, *straight)
        if uses[other.host] == 1:
            hosts[other.host.lower()] = hosts[other.name.lower()]
    return Routes(managers, hosts)


def _hop(node: Node, host: str, port: int) -> NextHop:
    """A neighbour that is called at this address; datagrams go to the node itself, whatever proxy stands there."""
    ping = node.ping_address
    return NextHop(node.guid, host, port, None if ping == (host, PING_PORT) else ping)
