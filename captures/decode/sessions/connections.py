"""The state of each connection: its two ends, their identities, and the progress of its session."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mqproto.captures.decode.facts import NodeKey, SessionFacts
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.half import NOTHING, Half
from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.captures.net.tcp import Endpoint
from mqproto.wire import NULL_GUID, Guid, guid_text

CONNECTION_LIMIT: Final = 4_096
"""The largest number of connections that are remembered; the oldest is forgotten first."""
ADDRESS_LIMIT: Final = 16_384
"""The largest number of addresses whose queue managers are remembered.

Beyond this limit, all are forgotten and learned again.
"""


class Stage(IntEnum):
    """How far the handshake has progressed.  [MS-MQQB] 3.1.5.3, 3.1.5.4"""

    NOTHING = 0
    ASKED = 1
    GRANTED = 2
    PROPOSED = 3
    OPEN = 4
    REFUSED = 5
    UNKNOWN = 6
    """The capture begins in the middle, lacks something, or has a packet out of turn."""
    ENCRYPTED = 7
    """The content of the connection is encrypted."""


@dataclass(slots=True, eq=False)
class Connection:
    """One connection, and how far its session has progressed.

    asked: whether the capture has a request for a session.
    client_guid, server_guid: the GUIDs from the handshake so far; NULL_GUID if unknown.
    timeouts_ms: the RecoverableAckTimeout and AckTimeout that were proposed.
    request, proposal: the packet that asked for the session, and the packet that proposed its parameters; 0 until they
        are seen.
    told: whether the capture shows which end opened the connection.
    by_port: whether that is only inferred from a port.
    """

    client: Half
    server: Half
    stage: Stage = Stage.NOTHING
    asked: bool = False
    client_guid: Guid = NULL_GUID
    server_guid: Guid = NULL_GUID
    timeouts_ms: tuple[int, int] | None = None
    request: int = 0
    proposal: int = 0
    told: bool = True
    by_port: bool = False

    def halves(self, source: Endpoint) -> tuple[Half, Half]:
        """Return the end that sends from this endpoint, and the other end."""
        if source == self.client.endpoint:
            return self.client, self.server
        return self.server, self.client

    def release(self) -> None:
        """Free the memory of both halves; messages that crossed the connection keep only references to them."""
        for half in (self.client, self.server):
            half.unacknowledged = half.unsaved = half.unnumbered = NOTHING
            half.heard.clear()

    def lose_track(self) -> None:
        """Record that something is missing or out of turn: the state of the handshake is unknown from now on."""
        if self.stage is not Stage.ENCRYPTED:
            self.stage = Stage.UNKNOWN


class Addresses:
    """Knows which queue manager is at which address, according to handshakes.

    If an address has shown only one GUID, its other connections are attributed to the same queue manager. So packets
    before the first captured handshake get the same identity as those after it.

    An address may pass to another queue manager, and a queue manager may move to another address. But if such a change
    is reversed later, two queue managers seem to claim one address, or one identity, at the same time.

    Attributes:
        conflict: such a conflict in words, if the last handshake revealed one that was not reported yet; otherwise
            empty.
    """

    def __init__(self) -> None:
        self.listening: dict[Endpoint, Guid] = {}
        self.hosts: dict[str, Guid | None] = {}
        self.conflict = ""
        self._before: dict[Endpoint, Guid] = {}
        self._ends: dict[Guid, Endpoint] = {}
        self._ends_before: dict[Guid, Endpoint] = {}
        self._told: set[Endpoint | Guid] = set()

    def learn(self, client: Endpoint, client_guid: Guid, server: Endpoint, server_guid: Guid) -> bool:
        """Learn the identities of both ends from a handshake (NULL_GUID if unknown); return whether that was new."""
        news = False
        for host, guid in ((client.host, client_guid), (server.host, server_guid)):
            known = self.hosts.get(host, guid)
            if guid != NULL_GUID and (host not in self.hosts or known not in (guid, None)):
                self.hosts[host] = guid if known == guid else None
                news = True
        self.conflict = ""
        if server_guid != NULL_GUID:
            news |= self._learn_end(server, server_guid)
        return news

    def _learn_end(self, end: Endpoint, guid: Guid) -> bool:
        other, elsewhere = self.listening.get(end), self._ends.get(guid)
        if other is not None and other != guid:
            if self._before.get(end) == guid and end not in self._told:
                self._told.add(end)
                self.conflict = (
                    f"{guid_text(guid)} listens at {end}, as it did before, and in between {guid_text(other)} did: two "
                    "queue managers claim one address"
                )
            self._before[end] = other
        if elsewhere is not None and elsewhere != end and guid not in self._told:
            if self._ends_before.get(guid) == end:
                self._told.add(guid)
                self.conflict = self.conflict or (
                    f"{guid_text(guid)} listens at {end}, as it did before, and in between at {elsewhere}: it has two "
                    "addresses, or two queue managers claim to be it"
                )
            self._ends_before[guid] = elsewhere
        elif other == guid:
            return False
        self.listening[end], self._ends[guid] = guid, end
        return True

    def bound(self) -> None:
        """If there are too many addresses, forget all of them and start again."""
        for known in (
            self.listening,
            self.hosts,
            self._before,
            self._ends,
            self._ends_before,
            self._told,
        ):
            if len(known) > ADDRESS_LIMIT:
                known.clear()


class Origins:
    """The queue managers at addresses without a known handshake, inferred from messages on their first hop. [MS-MQMQ]
    2.2.19.2

    On its first hop, a message comes from its source. If several sources send from one address, the address is not
    attributed to any of them, but an endpoint at that address may be. A source with several addresses may be an
    impostor: it is attributed to an address only if a handshake has identified it there.
    """

    def __init__(self) -> None:
        self._known: dict[str, Guid | None] = {}
        self._hosts: dict[Guid, str | None] = {}
        self._told: set[tuple[str, Guid]] = set()

    def learn(self, source: Endpoint, manager: Guid, *, told: bool = False) -> bool:
        """Learn that a message began its journey at an end of a connection; return whether that was new.

        Args:
            told: whether a handshake identifies the queue manager.
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
        """Return the GUID of the queue manager at an address; if it is unknown, return the address itself.

        A GUID is returned as it is.
        """
        if not isinstance(key, str):
            return key
        host = key.rpartition(":")[0].strip("[]") if _is_end(key) else key
        guid = self._known.get(key) or self._known.get(host)
        if guid is None or (self._hosts[guid] is None and (host, guid) not in self._told):
            return key
        return guid

    def resolve_hop(self, hop: tuple[NodeKey, NodeKey]) -> tuple[NodeKey, NodeKey]:
        """Resolve both ends of a hop.

        If both resolve to the same queue manager, return the hop unchanged: the ends may be two queue managers that
        share an address.
        """
        one, other = map(self.resolve, hop)
        return hop if one == other else (one, other)

    def everyone(self) -> Iterator[tuple[str, Guid]]:
        """Yield the addresses and endpoints whose queue managers are known."""
        for key, guid in self._known.items():
            if guid is not None:
                yield key, guid


def _is_end(key: str) -> bool:
    """Whether the text is an address with a port; an IPv6 address alone has colons, too."""
    host, _, port = key.rpartition(":")
    return bool(host) and port.isdecimal() and (":" not in host or host.endswith("]"))


def calls(facts: SessionFacts) -> bool | None:
    """Whether the sender of a packet is the end that opened the connection; None if nothing shows it. [MS-MQQB] 3.1.5.3

    The SYN shows it, or else the packet's bytes. Only the end that accepted the connection may refuse, and only the end
    that opened it may leave the other GUID empty.
    """
    if facts.opened is not None or facts.kind is not Kind.ESTABLISH_CONNECTION:
        return facts.opened
    return False if facts.refused else True if facts.server == NULL_GUID else None


def has_port(facts: SessionFacts) -> bool:
    """Whether exactly one of the two ends is at MSMQ's port."""
    return (facts.source.port == MSMQ_PORT) is not (facts.destination.port == MSMQ_PORT)


class Connections:
    """The connections of a capture, and which queue managers they join.

    Args:
        names: the names of queue managers.
        addresses: which queue manager is at which address, as far as that is known; handshakes add to it.
    """

    def __init__(self, names: Names, addresses: Addresses | None = None) -> None:
        self._names = names
        self._connections: OrderedDict[tuple[int, int], Connection] = OrderedDict()
        self._addresses = addresses or Addresses()
        self._called: dict[str, str] = {}

    def find(self, facts: SessionFacts) -> Connection:
        """Return the connection of a packet as its interface saw it; add a new one if necessary."""
        number = (facts.connection, facts.interface)
        connection = self._connections.get(number)
        if connection is None:
            told = calls(facts)
            is_caller, by_port = self._presumed(facts) if told is None else (told, False)
            client, server = (facts.source, facts.destination)[:: 1 if is_caller else -1]
            connection = Connection(Half(client), Half(server), told=told is not None, by_port=by_port)
            if not is_caller or facts.kind is not Kind.ESTABLISH_CONNECTION:
                connection.lose_track()
            self.name(connection)
            self._connections[number] = connection
            if len(self._connections) > CONNECTION_LIMIT:
                _, forgotten = self._connections.popitem(last=False)
                forgotten.release()
        return connection

    def _presumed(self, facts: SessionFacts) -> tuple[bool, bool]:
        """Guess whether the sender of an ambiguous first packet opened the connection.

        Also return whether the guess rests on a port. An end that is known to listen did not open the connection; if
        that decides nothing, the end at MSMQ's port did not. Failing both, the sender of an EstablishConnection opened
        the connection, because a request for a session comes first. However, an EstablishConnection that is `ahead` is
        taken for an answer; the other end then opened the connection. For any other packet, the end with the higher
        port is taken to have opened it.
        """
        ends = (facts.source, facts.destination)
        known = [end in self._addresses.listening for end in ends]
        if known[0] != known[1]:
            return known[1], True
        if has_port(facts):
            return facts.destination.port == MSMQ_PORT, True
        if facts.kind is Kind.ESTABLISH_CONNECTION:
            return not facts.ahead, False
        return facts.source.port > facts.destination.port, True

    def hear(self, connection: Connection, facts: SessionFacts) -> bool:
        """Learn from a packet which end opened the connection, if that is unknown.

        Return whether a presumed request was really the answer. The second of two EstablishConnections is the answer.
        The first ConnectionParameters come from the end that opened the connection, after the answer. If frames come
        out of order, neither rule is certain, so MSMQ's port takes precedence if one end has it.
        """
        half, other = connection.halves(facts.source)
        is_caller = half is connection.client
        told = calls(facts)
        if told is None and other.end:
            if facts.kind is Kind.ESTABLISH_CONNECTION:
                told = False
            elif facts.kind is Kind.CONNECTION_PARAMETERS and (other.offered or not facts.ahead):
                told = not other.offered
            if told is not is_caller and has_port(facts):
                told = None
        if told is None:
            return False
        connection.told, connection.by_port = True, False
        if told is is_caller:
            return False
        connection.client, connection.server = connection.server, connection.client
        connection.lose_track()
        if connection.asked:  # What was taken for the request was the answer to it.
            connection.asked, connection.request = False, 0
            self.confirm(connection, connection.client_guid, connection.server_guid)
            return True
        self.name(connection)
        return False

    def known(self, number: tuple[int, int]) -> Connection | None:
        """Return a connection by its number and its interface; None if it is not remembered."""
        return self._connections.get(number)

    def everyone(self) -> list[Connection]:
        """Return all remembered connections."""
        return list(self._connections.values())

    def introduce(self, connection: Connection, client: Guid, server: Guid) -> None:
        """Learn the expected identities of the ends from a request.

        NULL_GUID stands for the GUID of an end that the request does not name.
        """
        connection.asked = True
        connection.client_guid, connection.server_guid = client, server
        self.name(connection)

    def confirm(self, connection: Connection, client: Guid, server: Guid) -> str | None:
        """Learn the identities of the ends from an answer.

        They are also used for other connections at these addresses. An answer that does not fit its request is ignored.
        If the request is missing, the answer is enough, because it repeats the GUIDs of the request.

        Returns:
            The conflict, as in `Addresses.conflict`; None if the answer is ignored.
        """
        wanted = connection.server_guid
        if connection.asked and (client != connection.client_guid or wanted not in (NULL_GUID, server)):
            return None
        connection.client_guid, connection.server_guid = client, server
        ends = connection.client.endpoint, connection.server.endpoint
        self._addresses.learn(ends[0], client, ends[1], server)
        self.name(connection)
        return self._addresses.conflict

    def name(self, connection: Connection) -> None:
        """Set the keys and labels of both ends, as far as they are known."""
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
        """Return the label of a queue manager on all its connections: its name, or the address where it listens."""
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
