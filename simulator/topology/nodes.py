"""Queue managers and their queues, as a topology declares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from mqproto.base.configuration import Settings
from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import ConnectorName, PrivateName, PublicName, Scope
from mqproto.formatname.path import LocalName
from mqproto.queues.protection import OPEN, Protection
from mqproto.routing import PING_PORT
from mqproto.routing.peers import check_origin
from mqproto.simulator.topology.errors import Nearest, TopologyError, nearest, nearest_queue, refuse_twins
from mqproto.wire.guid import NULL_GUID, Guid, guid_text

DEFAULT_PORT: Final = 1801
METRICS_PORT: Final = 9180
NODE_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
FIRST_IDENTIFIER: Final = 16
"""The smallest identifier that a declared queue can have.

Smaller identifiers are those of the queue manager's own queues; 4 is its order queue ([MS-MQQB] 2.2.4).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """A queue that a node has from the start.

    identifier: its number within the node, from 16 upward, which is the second half of its private format name.
    public: its GUID in the directory, if it is addressed as PUBLIC=.
    quota_kb: Quota: the limit for all its messages, in units of 1,024 bytes; None if it does not have its own limit.
    journal: Journaling: whether received messages are copied to its journal.
    journal_quota_kb: JournalQuota: the limit of the journal; None if it does not have its own limit. [MS-MQDMPR]
        3.1.1.2
    strangers: whether queue managers outside the topology may send to it.
    protection: Authentication, PrivacyLevel and Security: its requirements for messages.
    connector: the GUID of the foreign system, if this is a connector queue, addressed as CONNECTOR=.
    """

    name: str
    identifier: int
    transactional: bool = False
    public: Guid | None = None
    quota_kb: int | None = None
    journal: bool = False
    journal_quota_kb: int | None = None
    strangers: bool = False
    protection: Protection = OPEN
    connector: Guid | None = None

    def __post_init__(self) -> None:
        try:
            LocalName(self.name, Scope.PRIVATE).checked()
        except FormatNameError as error:
            raise TopologyError(f"queue {self.name!r}: {error}") from None
        if not FIRST_IDENTIFIER <= self.identifier < 2**32:
            raise TopologyError(f"queue {self.name!r}: id {self.identifier} is not within 16 to 4294967295")
        if self.journal_quota_kb is not None and not self.journal:
            raise TopologyError(
                f"queue {self.name!r}: journal_quota_kb bounds no journal; add journal = true"
            )
        if self.connector is not None and self.public is not None:
            raise TopologyError(
                f"queue {self.name!r}: a connector queue goes by the GUID of its foreign system; leave public out"
            )
        if self.connector == NULL_GUID:
            raise TopologyError(f"queue {self.name!r}: connector: the null GUID names no foreign system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A node's settings for links with TLS.

    certificate: a PEM file; the node shows its first certificate, and neighbours accept no other.
    key: the PEM file of the private key, which only the node itself needs.
    host, port: the address at which it listens only for TLS.
    """

    certificate: Path
    key: Path
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        """The address at which it listens."""
        return self.host, self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One queue manager. Its name is that of its computer.

    origins: the sources of its sessions: addresses, networks such as `10.0.0.0/8`, or `any`; by default `host`.
    ping: the address at which it must answer Pings. By default, it answers at UDP port 3527 of `host`, if that port is
        free.
    tls: its certificate and TLS address, if it has links with TLS.
    keys: the folder of its public keys, if that is not `NAME.public` next to its store.
    private_keys: the PEM files of its private keys that are not in `NAME.keys`, keyed by use.
    readers: the operating-system group that may read from it, but change nothing; empty for none.
    readers_folder: the folder of the readers' socket; None for the usual one.
    metrics: the address at which it answers /metrics, /live and /ready over HTTP; None if it does not.
    gateway: the options of its HTTP front, by their names; None if it has none.
    traces: the URL of the collector for its spans; empty for the URL in the environment.
    sites, routing_server, out_routing_servers, in_routing_servers: as in `mqproto.routing.Machine`, but other nodes and
        sites are given by name.
    """

    name: str
    guid: Guid
    host: str
    port: int = DEFAULT_PORT
    origins: tuple[str, ...] = ()
    ping: tuple[str, int] | None = None
    queues: Mapping[str, DeclaredQueue] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    tls: Tls | None = None
    keys: Path | None = None
    private_keys: Mapping[str, Path] = field(default_factory=dict)
    readers: str = ""
    readers_folder: Path | None = None
    metrics: tuple[str, int] | None = None
    gateway: Mapping[str, Any] | None = None
    traces: str = ""
    sites: tuple[str, ...] = ()
    routing_server: bool = False
    out_routing_servers: tuple[str, ...] = ()
    in_routing_servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Names become names of files and of processes.
        if not re.fullmatch(NODE_NAME, self.name):
            raise TopologyError(f"node {self.name!r}: a node's name has up to 63 letters, digits, - and _")
        if self.guid == NULL_GUID:
            raise TopologyError(f"{self.name}: the null GUID names no queue manager; leave guid out")
        for origin in self.origins:
            try:
                check_origin(origin)
            except UsageError as error:
                raise TopologyError(f"node {self.name}: from: {error}") from None
        if self.readers_folder is not None and not self.readers:
            raise TopologyError(f"node.{self.name}: readers_folder is for a group; add readers = 'GROUP'")
        if self.tls is not None and self.tls.port in (DEFAULT_PORT, self.port):
            raise TopologyError(
                f"node.{self.name}.tls.address: at port {self.tls.port} MSMQ is spoken without TLS; choose another port"
            )
        queues = self.queues.values()
        refuse_twins(
            f"of {self.name} have one name", ((queue.name.casefold(), queue.name) for queue in queues)
        )
        refuse_twins(f"of {self.name} have one id", ((queue.identifier, queue.name) for queue in queues))

    @property
    def address(self) -> tuple[str, int]:
        """The address at which it listens without TLS."""
        return self.host, self.port

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses at which it listens, without TLS and with it."""
        return (self.address,) if self.tls is None else (self.address, self.tls.address)

    @property
    def ping_address(self) -> tuple[str, int]:
        """The address and UDP port at which it answers Pings."""
        return self.ping or (self.host, PING_PORT)

    def queue(self, name: str) -> DeclaredQueue:
        """Return the queue of that name, ignoring case; raise a TopologyError if there is none."""
        return self.queues[find(name, self.queues, f"{self.name} has no queue", nearest_queue)]

    def with_queues(self, queues: Iterable[DeclaredQueue]) -> Node:
        """Return the node with these queues instead of its own."""
        return replace(self, queues={queue.name: queue for queue in queues})

    def format_name(self, queue: DeclaredQueue) -> PublicName | PrivateName | ConnectorName:
        """Return the queue's routable format name, which has this node's GUID or the queue's own GUID."""
        if queue.connector is not None:
            return ConnectorName(queue.connector, queue.transactional)
        if queue.public is not None:
            return PublicName(queue.public)
        return PrivateName(self.guid, queue.identifier)


def find(name: str, known: Mapping[str, object], otherwise: str, near: Nearest = nearest) -> str:
    """Return a name in the spelling that it has in `known`, or raise a TopologyError that begins with `otherwise`."""
    for other in known:
        if other.casefold() == name.casefold():
            return other
    raise TopologyError(f"{otherwise} {name!r}; {near(name, known)}", name)


def refuse_shared_guids(nodes: Iterable[Node]) -> None:
    """Refuse two queues with the same GUID, except the two queues of a foreign system at its only connector server.

    Raises:
        TopologyError: there are two such queues.
    """
    nodes = list(nodes)
    owned = [(node, queue) for node in nodes for queue in node.queues.values()]
    refuse_twins("have one public GUID", ((queue.public, queue.name) for _, queue in owned if queue.public))
    connectors = [(node, queue, queue.connector) for node, queue in owned if queue.connector]
    for transactional, kind in ((True, "transactional"), (False, "other")):
        twins = ((guid, queue.name) for _, queue, guid in connectors if queue.transactional is transactional)
        refuse_twins(f"are both for the {kind} messages of one foreign system", twins)
    taken = {node.guid: f"the GUID of {node.name}" for node in nodes}
    taken |= {queue.public: f"the public GUID of {queue.name}" for _, queue in owned if queue.public}
    servers: dict[Guid, Node] = {}
    for node, queue, guid in connectors:
        where = f"node.{node.name}.queue.{queue.name}.connector"
        if guid in taken:
            raise TopologyError(f"{where}: {guid_text(guid)} is {taken[guid]}; a foreign system has its own")
        server = servers.setdefault(guid, node)
        if server is not node:
            raise TopologyError(
                f"{where}: {server.name} is the connector server of this foreign system; declare the queue there"
            )
