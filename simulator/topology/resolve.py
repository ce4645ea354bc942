"""Resolves the names that people give queues. A topology replaces MSMQ's directory.  [MS-MQMQ] 2.1"""

from __future__ import annotations

import ipaddress
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mqproto.base.errors import FormatNameError
from mqproto.formatname import (
    ConnectorName,
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
    parse_path_name,
    parse_queue_name,
)
from mqproto.formatname.path import LocalName
from mqproto.simulator.topology.errors import TopologyError
from mqproto.simulator.topology.nodes import DeclaredQueue, Node
from mqproto.wire.guid import Guid, guid_text


class KnownNodes(typing.Protocol):
    """The nodes in the form that name resolution needs."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""

    def node_named(self, name: str) -> Node:
        """Return the node of that name, ignoring case; raise a TopologyError if there is none."""

    def node_by_guid(self, guid: Guid) -> Node | None:
        """Return the node with that GUID; None if there is none."""


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """The meaning of a name.

    node: the node that hosts the queue.
    queue: its declaration. It is None for the node's own journal and dead-letter queues, and for a queue made at run
        time, which only its node knows. It is also None if the name fits both queues of a foreign system.
    format_name: the format name to use for it.
    local_name: its queue manager's own name for it, such as `orders`, `orders;journal` or `system$;deadxact`.
    """

    node: Node
    queue: DeclaredQueue | None
    format_name: SingleName
    local_name: str


_OTHERWISE: Final = re.compile(
    r".*[\\,]|\s*(msmq\.)?formatname\s*:|\s*(direct|public|private|dl|machine|connector|multicast)\s*=|[a-z.]+://",
    re.IGNORECASE | re.DOTALL,
)
"""A pattern for texts that are more than a bare queue name: a path, several names, a format name or a URL."""


def is_bare(text: str) -> bool:
    """Return whether a text is just a queue's name, without its node, such as `orders`, `orders;journal`, `deadxact` or
    `a/b`."""
    return bool(text) and not _OTHERWISE.match(text)


def is_system_queue(name: str) -> bool:
    """Return whether a bare name is that of a queue that each node has, such as `deadxact`, `system$;deadxact` or
    `DeadLetter$`."""
    try:
        return _as_system(parse_path_name(f".\\{name}").local) is not None
    except FormatNameError:
        return False


def elsewhere(directory: KnownNodes, name: FormatName | PathName) -> DirectName | PrivateName | None:
    """Return the name if it names a queue outside the directory; otherwise, None.

    A direct name says how to reach the queue. A private name is only useful to a queue manager that has met the queue's
    owner.
    """
    match name:
        case DirectName(protocol=Protocol.OS | Protocol.TCP, address=address) if not means_here(
            directory, address
        ):
            known = {node.host for node in directory.nodes.values()}
            is_known = any(_same_host(host, address) for host in known) or (
                name.protocol is Protocol.OS
                and address.casefold() in {node.casefold() for node in directory.nodes}
            )
            return None if is_known else name
        case PrivateName(manager=manager) if directory.node_by_guid(manager) is None:
            return name
    return None


def is_elsewhere(directory: KnownNodes, text: str) -> bool:
    r"""Return whether a text names a queue outside the directory.

    Only a node that has a peer of this name knows what `peer\orders` means.

    Raises:
        FormatNameError: the text is not a name.
    """
    name = parse_queue_name(text)
    if isinstance(name, PathName):
        known = {node.casefold() for node in directory.nodes}
        return not means_here(directory, name.computer) and name.computer.casefold() not in known
    return elsewhere(directory, name) is not None


def means_here(directory: KnownNodes, computer: str) -> bool:
    """Return whether a name means the node that is spoken to: a dot, or localhost unless a node has that name."""
    if computer.casefold() != "localhost":
        return computer == "."
    return all(
        "localhost" not in (one.name.casefold(), one.host.casefold()) for one in directory.nodes.values()
    )


def resolve(directory: KnownNodes, name: FormatName | PathName, at: str | None) -> ResolvedName:
    """Resolve a name that is already parsed, as `Topology.resolve` does."""
    match name:
        case PathName(computer):
            return _local(_computer(directory, computer, at, name), name.local)
        case DirectName(address=address):
            node = _addressee(directory, name, at)
            if _may_be_made(node, name.local, at):
                return ResolvedName(node, None, name, name.local.queue)
            found = _local(node, name.local)
            # On any other computer, a dot or localhost would mean that computer.
            is_here = means_here(directory, address)
            direct = direct_name(PathName(found.node.name, *name.local)) if is_here else name
            return replace(found, format_name=direct)
        case PrivateName(manager, identifier, journal):
            node = _owner(directory, manager)
            for queue in node.queues.values():
                if queue.identifier == identifier:
                    return _declared(node, queue, journal)
            if at not in (None, node.name) and not journal:
                return ResolvedName(node, None, name, f"{identifier:X}")
            known = ", ".join(f"{queue.identifier:X} {queue.name}" for queue in node.queues.values())
            raise TopologyError(
                f"{node.name} has no queue with number {identifier:X}; there is {known or 'none'}"
            )
        case PublicName(guid, journal):
            for node in directory.nodes.values():
                for queue in node.queues.values():
                    if queue.public == guid:
                        return _declared(node, queue, journal)
            if (server := connector_server(directory, guid)) is not None and not journal:
                return ResolvedName(server, None, name, str(ConnectorName(guid)))
            raise TopologyError(f"no queue has the GUID {guid_text(guid)}; set it as public of a queue")
        case ConnectorName():
            return _connector(directory, name)
        case MachineName(manager, SystemQueue() as queue):
            return _system(_owner(directory, manager), queue)
    raise TopologyError(
        f"{name}: mqproto sends to no such queues; name each queue, by DIRECT=TCP: or DIRECT=OS:"
    )


def connector_server(directory: KnownNodes, guid: Guid) -> Node | None:
    """Return the node with the connector queues of a foreign system.

    The result is None if no foreign system has this GUID.
    """
    for node in directory.nodes.values():
        if any(queue.connector == guid for queue in node.queues.values()):
            return node
    return None


def _connector(directory: KnownNodes, name: ConnectorName) -> ResolvedName:
    server = connector_server(directory, name.guid)
    if server is None:
        connectors = {queue.connector for node in directory.nodes.values() for queue in node.queues.values()}
        known = ", ".join(sorted(guid_text(guid) for guid in connectors if guid is not None))
        raise TopologyError(
            f"no foreign system has the GUID {guid_text(name.guid)}; "
            f"{f'there is {known}' if known else 'set it as connector of two queues'}"
        )
    for queue in server.queues.values():
        if queue.connector == name.guid and queue.transactional is name.transactional:
            return _declared(server, queue, journal=False)
    kind, value = ("transactional messages", "true") if name.transactional else ("other messages", "false")
    raise TopologyError(
        f"{name}: {server.name} has no connector queue for {kind}; give it one, with transactional = {value}"
    )


def _may_be_made(node: Node, local: LocalName, at: str | None) -> bool:
    """Return whether a name may belong to a queue that another node has made at run time."""
    is_plain = local.scope is not Scope.SYSTEM and not local.subqueue and not local.journal
    known = {name.casefold() for name in node.queues}
    return (
        at not in (None, node.name)
        and is_plain
        and local.queue.casefold() not in known
        and not _as_system(local)
    )


def node_of(directory: KnownNodes, name: FormatName | PathName, at: str | None) -> Node:
    """Return the node that hosts the queue with this name, even if the directory lacks the queue.

    Raises:
        TopologyError: the name does not show the node, or there is no such node.
    """
    match name:
        case PathName(computer):
            return _computer(directory, computer, at, name)
        case DirectName():
            return _addressee(directory, name, at)
        case PrivateName(manager) | MachineName(manager):
            return _owner(directory, manager)
    return resolve(directory, name, at).node


def _computer(directory: KnownNodes, computer: str, at: str | None, path: PathName | None = None) -> Node:
    if means_here(directory, computer):
        if at is None and len(directory.nodes) > 1:
            names = ", ".join(directory.nodes)
            raise TopologyError(
                f"{computer} is the node that is spoken to, and any of {names} may be; write the node's name"
            )
        return directory.node_named(at or next(iter(directory.nodes)))
    try:
        return directory.node_named(computer)
    except TopologyError as error:
        if path is None or str(error).endswith("?"):
            raise
        raise TopologyError(f"{error}; of another system write {direct_name(path)}", error.lacks) from None


def _addressee(directory: KnownNodes, name: DirectName, at: str | None) -> Node:
    """Return the node that a direct name addresses, by its name or its IP address."""
    if name.protocol not in (Protocol.OS, Protocol.TCP):
        raise TopologyError(
            f"{name}: mqproto speaks TCP, and neither HTTP nor SPX; write DIRECT=TCP: and an address, or DIRECT=OS: "
            "and a name"
        )
    here = [node for node in directory.nodes.values() if _same_host(node.host, name.address)]
    if len(here) == 1:
        return here[0]
    if here:
        names = ", ".join(node.name for node in here)
        raise TopologyError(f"{name}: {names} share this address; write DIRECT=OS: and a node's name")
    if name.protocol is Protocol.TCP:
        raise TopologyError(f"{name}: no node has this address; write DIRECT=OS: and a node's name")
    return _computer(directory, name.address, at)


def _same_host(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return one.casefold() == other.casefold()


def _owner(directory: KnownNodes, manager: Guid) -> Node:
    node = directory.node_by_guid(manager)
    if node is None:
        known = ", ".join(f"{guid_text(node.guid)} {node.name}" for node in directory.nodes.values())
        raise TopologyError(f"no node has the GUID {guid_text(manager)}; there is {known}")
    return node


def _local(node: Node, local: LocalName) -> ResolvedName:
    declared = local.queue.casefold() in {name.casefold() for name in node.queues}
    system = None if declared and local.scope is not Scope.SYSTEM else _as_system(local)
    if system is not None:
        return _system(node, system)
    if local.scope is Scope.SYSTEM:
        raise TopologyError(f"no system$;{local.queue} exists; there is {', '.join(SystemQueue)}")
    if local.subqueue:
        raise TopologyError(f"{local.queue};{local.subqueue}: the simulator has no subqueues; name the queue")
    return _declared(node, node.queue(local.queue), local.journal)


def _as_system(local: LocalName) -> SystemQueue | None:
    """Return the system queue that a name refers to; None if the name is not that of a system queue.

    A short name such as `deadxact` is enough. The declared queues are not examined. If one of them has that name, the
    caller must decide which queue is meant.
    """
    name = local.queue.upper()
    if local.scope is Scope.PRIVATE or local.subqueue or local.journal or name not in SystemQueue.__members__:
        return None
    return SystemQueue(name)


def _system(node: Node, queue: SystemQueue) -> ResolvedName:
    return ResolvedName(node, None, MachineName(node.guid, queue), f"system$;{queue.lower()}")


def _declared(node: Node, queue: DeclaredQueue, journal: bool) -> ResolvedName:
    name = node.format_name(queue)
    if not journal:
        return ResolvedName(node, queue, name, queue.name)
    if not queue.journal:
        raise TopologyError(
            f"{node.name}\\{queue.name} has no journal; give it journal = true in the topology"
        )
    if isinstance(name, ConnectorName):  # Its journal has no such name.  [MS-MQMQ] 2.2.7
        name = PrivateName(node.guid, queue.identifier)
    return ResolvedName(node, queue, replace(name, journal=True), f"{queue.name};journal")
