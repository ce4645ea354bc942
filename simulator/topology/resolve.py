"""What a person means by a queue's name, in a topology that stands in for MSMQ's directory.  [MS-MQMQ] 2.1"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mqproto.formatname import (
    DirectName,
    FormatName,
    MachineName,
    PathName,
    PrivateName,
    Protocol,
    PublicName,
    Scope,
    SingleName,
    SystemQueue,
    direct_name,
)
from mqproto.formatname.path import LocalName
from mqproto.wire.guid import Guid, guid_text
from simulator.topology.errors import TopologyError

if TYPE_CHECKING:
    from simulator.topology.model import Node, QueueDeclaration, Topology


@dataclass(frozen=True, slots=True)
class Destination:
    """What a name means: a node, its declared queue, and the format name to use.

    queue is None for the node's own journal and dead-letter queues.
    """

    node: Node
    queue: QueueDeclaration | None
    format_name: SingleName


def resolve(topology: Topology, name: FormatName | PathName, at: str | None) -> Destination:
    """`Topology.resolve`, for a name that has been read."""
    match name:
        case PathName(computer):
            return _local(_computer(topology, computer, at), name.local)
        case DirectName(address=address):
            found = _local(_addressee(topology, name, at), name.local)
            # A dot means another computer as soon as the name has left this one.
            direct = direct_name(PathName(found.node.name, *name.local)) if address == "." else name
            return replace(found, format_name=direct)
        case PrivateName(manager, identifier, journal):
            node = _owner(topology, manager)
            for queue in node.queues.values():
                if queue.identifier == identifier:
                    return _declared(node, queue, journal)
            known = ", ".join(f"{queue.identifier:X} {queue.name}" for queue in node.queues.values())
            raise TopologyError(
                f"{node.name} has no queue with number {identifier:X}; there is {known or 'none'}"
            )
        case PublicName(guid, journal):
            for node in topology.nodes.values():
                for queue in node.queues.values():
                    if queue.public == guid:
                        return _declared(node, queue, journal)
            raise TopologyError(f"no queue has the GUID {guid_text(guid)}; set it as public of a queue")
        case MachineName(manager, SystemQueue()):
            return Destination(_owner(topology, manager), None, name)
    raise TopologyError(f"{name}: the simulator has no such queues; name one queue of one node")


def _computer(topology: Topology, computer: str, at: str | None) -> Node:
    if computer != ".":
        return topology.node_named(computer)
    if at is None:
        raise TopologyError(". is the node one is at, and that is not said here; write the node's name")
    return topology.node_named(at)


def _addressee(topology: Topology, name: DirectName, at: str | None) -> Node:
    """The node of a direct name, by its name or by its IP address."""
    if name.protocol not in (Protocol.OS, Protocol.TCP):
        raise TopologyError(f"{name}: the simulator speaks TCP; write DIRECT=OS: and a node's name")
    here = [node for node in topology.nodes.values() if _same_host(node.host, name.address)]
    if len(here) == 1:
        return here[0]
    if here:
        names = ", ".join(node.name for node in here)
        raise TopologyError(f"{name}: {names} share this address; write DIRECT=OS: and a node's name")
    if name.protocol is Protocol.TCP:
        raise TopologyError(f"{name}: no node has this address; write DIRECT=OS: and a node's name")
    return _computer(topology, name.address, at)


def _same_host(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one.casefold() == other.casefold()


def _owner(topology: Topology, manager: Guid) -> Node:
    node = topology.node_by_guid(manager)
    if node is None:
        known = ", ".join(f"{guid_text(node.guid)} {node.name}" for node in topology.nodes.values())
        raise TopologyError(f"no node has the GUID {guid_text(manager)}; there is {known}")
    return node


def _local(node: Node, local: LocalName) -> Destination:
    if local.scope is Scope.SYSTEM:
        if local.queue not in SystemQueue.__members__:
            raise TopologyError(f"no system$;{local.queue} exists; there is {', '.join(SystemQueue)}")
        return Destination(node, None, MachineName(node.guid, SystemQueue(local.queue)))
    if local.subqueue:
        raise TopologyError(f"{local.queue};{local.subqueue}: the simulator has no subqueues; name the queue")
    return _declared(node, node.queue(local.queue), local.journal)


def _declared(node: Node, queue: QueueDeclaration, journal: bool) -> Destination:
    if journal:
        raise TopologyError(f"{queue.name};journal: the simulator keeps no journals; name the queue")
    return Destination(node, queue, node.format_name(queue))
