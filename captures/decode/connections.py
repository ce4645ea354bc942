"""What is remembered of each connection: who its ends are, and what each has sent and acknowledged.

Counts are 16 bits wide and wrap; `ahead` alone may compare two of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from captures.decode.facts import NodeKey, SessionFacts
from captures.decode.findings import Finding
from captures.decode.names import Names
from captures.net.tcp import Endpoint
from mqproto.wire import NULL_GUID, Guid

MSMQ_PORT: Final = 1801
CONNECTION_LIMIT: Final = 4_096
"""How many connections are remembered; the oldest is forgotten first."""
ADDRESS_LIMIT: Final = 16_384
"""Of how many addresses it is remembered whose they are; with more, all are forgotten and learnt anew."""
SUSPICION_LIMIT: Final = 1_000
OUTSTANDING_LIMIT: Final = 0x7FFF
"""Of how many unacknowledged messages the packets are remembered; half of the 16-bit circle."""


class Stage(IntEnum):
    """How far the handshake has come.  [MS-MQQB] 3.1.5.3, 3.1.5.4"""

    NOTHING = 0
    ASKED = 1
    GRANTED = 2
    PROPOSED = 3
    OPEN = 4
    REFUSED = 5
    UNKNOWN = 6
    """The capture begins in the middle, lacks something, or somebody was out of turn: nothing is judged."""


def ahead(number: int, reference: int) -> int:
    """How far one 16-bit count is ahead of another, 0 to 65,535."""
    return (number - reference) & 0xFFFF


def at_or_before(number: int, reference: int) -> bool:
    """Whether a 16-bit count is not beyond another."""
    return (reference - number) & 0xFFFF < 0x8000


@dataclass(slots=True, eq=False)
class Sent:
    """A message that one end of a connection has sent, and what the other end has said of it.

    packet: the number of the packet that carried it.
    count, recoverable_count: its numbers on the session, 16 bits; None where the capture does not tell, the second also
        of an express message.
    acknowledged_by, saved_by: the first packets that say it was received, and saved; None while there is none.
    acknowledged_ns: when the first of them was seen.
    unheard: whether nothing will be said any more of whether it was saved.
    """

    half: Half
    packet: int
    count: int | None = None
    recoverable_count: int | None = None
    acknowledged_by: int | None = None
    acknowledged_ns: int | None = None
    saved_by: int | None = None
    unheard: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether all is known that acknowledgments will say of it."""
        heard = self.recoverable_count is None or self.saved_by is not None or self.unheard
        return self.acknowledged_by is not None and heard


NOTHING: Final[deque[Sent]] = deque(maxlen=0)


def outstanding() -> deque[Sent]:
    """Messages that wait for an answer; of more than half the 16-bit circle the oldest are forgotten."""
    return deque(maxlen=OUTSTANDING_LIMIT)


@dataclass(slots=True, eq=False)
class Half:
    """What one end of a connection has sent.

    sent, recoverable_sent: its messages so far, 16 bits; None while the capture does not tell.
    acknowledged: the highest AckSequenceNumber that the other end has sent; None before the first one of a
        connection that the capture has not seen from its start.
    unacknowledged, unsaved: messages that the other end has not answered for.
    uncounted: those from before its counts were lost. An acknowledgment is of them too, though nobody can say any more
        whether they are all that it is of.
    window: the largest that this end has announced; 0 before it has.
    seen: whether the capture has any packet of it.
    lossy_since: the first packet before which bytes of it are missing in the capture; None if there is none.
    suspicions: findings that hold unless the capture turns out to lack something of this half.
    """

    endpoint: Endpoint
    key: NodeKey = ""
    hop: tuple[NodeKey, NodeKey] = ("", "")
    label: str = ""
    sent: int | None = None
    recoverable_sent: int | None = None
    acknowledged: int | None = None
    unacknowledged: deque[Sent] = field(default_factory=outstanding)
    unsaved: deque[Sent] = field(default_factory=outstanding)
    uncounted: deque[Sent] = field(default_factory=outstanding)
    window: int = 0
    seen: bool = False
    lossy_since: int | None = None
    suspicions: list[Finding] = field(default_factory=list)

    def suspect(self, finding: Finding) -> None:
        """Keep a finding that this half may still explain, but not more than is bearable."""
        if len(self.suspicions) < SUSPICION_LIMIT:
            self.suspicions.append(finding)

    def forget_counts(self) -> list[Sent]:
        """From here on nobody knows how many messages there were; those of which nothing will be said any more."""
        self.sent = self.recoverable_sent = None
        for sent in self.unsaved:
            sent.unheard = True
        over = [sent for sent in self.unsaved if sent.is_settled]
        self.uncounted.extend(self.unacknowledged)
        self.unacknowledged.clear()
        self.unsaved.clear()
        return over


@dataclass(slots=True, eq=False)
class Connection:
    """One connection, and how far its session has come.

    client_guid, server_guid: as the handshake has them so far; NULL_GUID where it does not tell.
    timeouts_ms: the RecoverableAckTimeout and AckTimeout that were proposed.
    """

    client: Half
    server: Half
    stage: Stage = Stage.NOTHING
    client_guid: Guid = NULL_GUID
    server_guid: Guid = NULL_GUID
    timeouts_ms: tuple[int, int] | None = None

    def halves(self, source: Endpoint) -> tuple[Half, Half]:
        """The end that sends, and the other one."""
        if source == self.client.endpoint:
            return self.client, self.server
        return self.server, self.client

    def release(self) -> None:
        """It is forgotten; messages that crossed it still know its halves, but not what these had to remember."""
        for half in (self.client, self.server):
            half.unacknowledged = half.unsaved = half.uncounted = NOTHING

    def lose_track(self) -> None:
        """Something is missing or out of turn: nothing more is known of the handshake."""
        self.stage = Stage.UNKNOWN


class Addresses:
    """Which queue manager is at which address, as far as handshakes have told.

    Where an address has shown one GUID only, other connections of that address are taken to be of the same queue
    manager, so a capture that begins in the middle joins up with what comes later.
    """

    def __init__(self) -> None:
        self.listening: dict[Endpoint, Guid] = {}
        self.hosts: dict[str, Guid | None] = {}

    def learn(self, client: Endpoint, client_guid: Guid, server: Endpoint, server_guid: Guid) -> bool:
        """A handshake has told who its ends are, NULL_GUID for one that it has not; whether that was news."""
        news = False
        for host, guid in ((client.host, client_guid), (server.host, server_guid)):
            known = self.hosts.get(host, guid)
            if guid != NULL_GUID and (host not in self.hosts or known not in (guid, None)):
                self.hosts[host] = guid if known == guid else None
                news = True
        if server_guid != NULL_GUID and self.listening.get(server) != server_guid:
            self.listening[server] = server_guid
            news = True
        return news

    def bound(self) -> None:
        """With too many addresses, all are forgotten and learnt anew."""
        for known in (self.listening, self.hosts):
            if len(known) > ADDRESS_LIMIT:
                known.clear()


class Origins:
    """Who is at an address of which no handshake has told: the source of the messages that leave it with no hop behind
    them.  [MS-MQMQ] 2.2.19.2

    An address with several sources is nobody's; an end of it may be somebody's all the same. A source with several
    addresses may be somebody who claims to be another: it is believed only where a handshake has said so.
    """

    def __init__(self) -> None:
        self._known: dict[str, Guid | None] = {}
        self._hosts: dict[Guid, str | None] = {}
        self._told: set[tuple[str, Guid]] = set()

    def learn(self, source: Endpoint, manager: Guid, *, told: bool = False) -> bool:
        """A message without a hop behind it leaves an end of a connection; whether that was news.

        Args:
            told: whether a handshake says who is there.
        """
        news = False
        if self._hosts.setdefault(manager, source.host) != source.host:
            self._hosts[manager] = None
        if told and len(self._told) < ADDRESS_LIMIT:
            self._told.add((source.host, manager))
        for key in (source.host, str(source)):
            known = self._known.get(key, manager)
            if key not in self._known and len(self._known) < ADDRESS_LIMIT:
                self._known[key] = manager
                news = True
            elif known not in (manager, None):
                self._known[key] = None
                news = True
        return news

    def resolve(self, key: NodeKey) -> NodeKey:
        """The queue manager that is at an address, if that is known; a GUID is one."""
        if not isinstance(key, str):
            return key
        host = key.rpartition(":")[0].strip("[]") if _is_end(key) else key
        guid = self._known.get(key) or self._known.get(host)
        if guid is None or (self._hosts[guid] is None and (host, guid) not in self._told):
            return key
        return guid

    def resolve_hop(self, hop: tuple[NodeKey, NodeKey]) -> tuple[NodeKey, NodeKey]:
        """The same of both ends of a hop."""
        one, other = hop
        return self.resolve(one), self.resolve(other)

    def everyone(self) -> Iterator[tuple[str, Guid]]:
        """The addresses, and the ends, that are somebody's."""
        for key, guid in self._known.items():
            if guid is not None:
                yield key, guid


def _is_end(key: str) -> bool:
    """Whether it is an address with a port: an IPv6 address has colons of its own."""
    host, _, port = key.rpartition(":")
    return bool(host) and port.isdecimal() and (":" not in host or host.endswith("]"))


class Connections:
    """The connections of a capture, and which queue managers they join.

    Args:
        names: what queue managers are called.
        addresses: what is known of them, and becomes known.
    """

    def __init__(self, names: Names, addresses: Addresses | None = None) -> None:
        self._names = names
        self._connections: OrderedDict[tuple[int, int], Connection] = OrderedDict()
        self._addresses = addresses or Addresses()
        self._called: dict[str, str] = {}

    def find(self, facts: SessionFacts, *, begins: bool) -> Connection:
        """The connection of a packet as seen at its interface, made if it is new.

        Args:
            begins: whether the packet is one that begins a session, so that its sender is the client.
        """
        number = (facts.connection, facts.interface)
        connection = self._connections.get(number)
        if connection is None:
            source, destination = client, server = facts.source, facts.destination
            if not begins and (source.port == MSMQ_PORT or source.port < destination.port != MSMQ_PORT):
                client, server = destination, source
            connection = Connection(Half(client), Half(server))
            if not begins:
                connection.lose_track()
            self.name(connection)
            self._connections[number] = connection
            if len(self._connections) > CONNECTION_LIMIT:
                _, forgotten = self._connections.popitem(last=False)
                forgotten.release()
        return connection

    def known(self, number: tuple[int, int]) -> Connection | None:
        """A connection by its number and its interface, if it is remembered."""
        return self._connections.get(number)

    def everyone(self) -> list[Connection]:
        """All that are remembered."""
        return list(self._connections.values())

    def introduce(self, connection: Connection, client: Guid, server: Guid) -> None:
        """A request tells who the ends should be; NULL_GUID for an end that it does not tell."""
        connection.client_guid, connection.server_guid = client, server
        self.name(connection)

    def confirm(self, connection: Connection, server: Guid) -> None:
        """An answer tells who the ends are. From now on their addresses are known, on other connections too."""
        connection.server_guid = server
        ends = connection.client.endpoint, connection.server.endpoint
        self._addresses.learn(ends[0], connection.client_guid, ends[1], server)
        self.name(connection)

    def name(self, connection: Connection) -> None:
        """Give both ends their keys and labels, as far as they are known."""
        self._addresses.bound()
        if len(self._called) > ADDRESS_LIMIT:
            self._called.clear()
        hosts = self._addresses.hosts
        client, server = connection.client.endpoint, connection.server.endpoint
        client_guid = (
            connection.client_guid if connection.client_guid != NULL_GUID else hosts.get(client.host)
        )
        server_guid = (
            connection.server_guid
            if connection.server_guid != NULL_GUID
            else self._addresses.listening.get(server) or hosts.get(server.host)
        )
        for half, guid, address in (
            (connection.client, client_guid, client.host),
            (connection.server, server_guid, str(server)),
        ):
            half.key = guid or address
            self._called[address] = self._names.endpoint(half.endpoint)
            named = self._names.managers.get(guid) if guid else None
            half.label = named or self._names.endpoint(half.endpoint)
        connection.client.hop = (connection.client.key, connection.server.key)
        connection.server.hop = (connection.server.key, connection.client.key)

    def label(self, key: NodeKey) -> str:
        """What a queue manager is called where all its connections are one: by name, or by where it listens."""
        if isinstance(key, str):
            called = self._called.get(key, key)
            return key if called.startswith(f"{key}:") else called
        guid = Guid(key)
        if guid in self._names.managers:
            return self._names.managers[guid]
        for endpoint, listener in self._addresses.listening.items():
            if listener == guid:
                return self._names.endpoint(endpoint)
        for host, known in self._addresses.hosts.items():
            if known == guid:
                return self._names.hosts.get(host, host)
        return self._names.manager(guid)
