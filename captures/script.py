"""Turns a captured conversation into a script for one side: its packets, their times, and the answers.

`survey` counts the messages of each side on each connection, `choose` picks a side of one conversation, and
`read_script` reads that side's part. Nothing here is adapted to another peer; `simulator/replay` does that.

A script is held in memory, and is refused if its packets exceed 256 MiB. If a capture is larger than that, replay one
connection at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.answers import Answers, Identity, Place, Witness, identity_of, is_answer, place_of
from mqproto.captures.decode.analyst import session_facts
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.checker import SessionChecker
from mqproto.captures.decode.sessions.connections import Connections
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Guid,
    Packet,
    Ping,
    UserMessage,
    decode_message,
    without_session_header,
)

LIMIT_BYTES: Final = 256 * 2**20
NOBODY: Final = Endpoint("", 0)
LOST: Final = "which the capture lacks or which form no packet"


@dataclass(slots=True)
class Connection:
    """One connection of a capture, with the number of messages that each side sent on it.

    Acknowledgments are not counted.
    """

    number: int
    client: Endpoint
    server: Endpoint
    message_counts: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(Side, 0))

    def end(self, side: Side) -> Endpoint:
        """Return the endpoint of one of its sides."""
        return self.client if side is Side.CLIENT else self.server

    def side_of(self, packet: SeenPacket) -> Side:
        """Return the side that sent a packet."""
        return Side.CLIENT if packet.source == self.client else Side.SERVER


@dataclass(frozen=True, slots=True)
class Part:
    """One side's part of a conversation.

    sides: for each of its connections, given by number, whether the part's side is the client or the server.
    """

    sides: dict[int, Side]
    connections: tuple[Connection, ...]

    @property
    def message_count(self) -> int:
        """The number of messages in the part, without acknowledgments; a message sent twice counts twice."""
        return sum(each.message_counts[self.sides[each.number]] for each in self.connections)

    @property
    def heard_count(self) -> int:
        """The number of messages that the other side sent, without acknowledgments."""
        return sum(each.message_counts[self.sides[each.number].other] for each in self.connections)

    def __str__(self) -> str:
        first = self.connections[0]
        side = self.sides[first.number]
        where = f"{first.end(side)} to {first.end(side.other)}"
        more = f" and {len(self.connections) - 1} more" if len(self.connections) > 1 else ""
        return f"the {side.value}'s side of connection {first.number}{more}, {where}"


@dataclass(frozen=True, slots=True)
class Step:
    """One packet that our side sent.

    data: the bytes on the wire, including any SessionHeader.
    heard: the number of packets that the other side had already sent on the connection.
    heard_messages: the number of messages, without acknowledgments, that the other side had already sent on all
        connections.
    message: the number of the packet's message; None for packets of the session and for acknowledgments.
    """

    frame: int
    time_ns: int
    data: bytes
    heard: int
    heard_messages: int
    message: int | None = None


@dataclass(frozen=True, slots=True)
class ScriptMessage:
    """One message of a part: its identity, its place, and the step in which it was first sent."""

    identity: Identity
    place: Place | None
    step: Step

    @property
    def frame(self) -> int:
        """The number of the frame in which the message was first sent."""
        return self.step.frame


@dataclass(slots=True)
class Scene:
    """Everything that our side sent on one connection."""

    connection: Connection
    side: Side
    steps: list[Step] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    """The numbers of the messages that were first sent in this scene."""


@dataclass(slots=True)
class Script:
    """One side's part, as a script.

    messages: the messages in the order in which they were first sent; `answers` refers to them by their numbers.
    own_manager, peer_manager: the queue managers of both sides; None if neither a handshake nor a message shows them.
    heard_message_count: the number of messages that the other side sent, each counted once.
    left_out: descriptions of the things that could not be used.
    """

    part: Part
    scenes: list[Scene] = field(default_factory=list)
    messages: list[ScriptMessage] = field(default_factory=list)
    answers: Answers = field(default_factory=Answers)
    own_manager: Guid | None = None
    peer_manager: Guid | None = None
    resend_count: int = 0
    acknowledgment_count: int = 0
    heard_message_count: int = 0
    left_out: list[str] = field(default_factory=list)

    def message(self, number: int) -> UserMessage:
        """Return one of the messages, without its SessionHeader."""
        return decode_message(without_session_header(self.messages[number].step.data))


def survey(packets: Iterable[SeenPacket]) -> list[Connection]:
    """Return all connections that carried MSMQ, in the order of their first packets.

    The client is the side that opened the connection, as far as `decode` can tell.
    """
    found: dict[int, Connection] = {}
    sessions = SessionChecker(Connections(Names()))
    for seen in packets:
        if seen.packet is None or isinstance(seen.packet, Ping):
            continue
        connection = found.get(seen.connection)
        if connection is None:
            connection = found[seen.connection] = Connection(seen.connection, NOBODY, NOBODY)
        if connection.client is NOBODY or isinstance(
            seen.packet, (EstablishConnection, ConnectionParameters)
        ):
            session = sessions.take(session_facts(sight_of(seen))).connection
            connection.client, connection.server = session.client.endpoint, session.server.endpoint
        if is_message(seen.packet) and not seen.cut_bytes:
            connection.message_counts[connection.side_of(seen)] += 1
    return list(found.values())


def choose(connections: list[Connection], side: str = "", only: int | None = None) -> Part:
    """Return one side's part of a conversation, which consists of all connections between two hosts.

    Args:
        side: `client`, `server`, or the HOST or HOST:PORT of a side; if empty, the side that sent the most messages.
        only: the number of one connection; all others are ignored.

    Raises:
        UsageError: there is no such side or connection; the error text lists those that exist.
    """
    if only is not None:
        chosen = [each for each in connections if each.number == only]
        if not chosen:
            there = ", ".join(str(each.number) for each in connections[:20])
            raise UsageError(f"connection {only} has no MSMQ; these have: {there}")
        connections = chosen
    parts = [part for part in _parts(connections, side) if part.connections]
    if not parts:
        there = ", ".join(
            dict.fromkeys(end.host for each in connections for end in (each.client, each.server))
        )
        raise UsageError(f"no side of a conversation is {side}; name client, server or one of {there}")
    return max(parts, key=lambda part: (part.message_count, part.heard_count))


def _parts(connections: list[Connection], side: str) -> Iterator[Part]:
    """Yield each side of each conversation, with those of its connections that `side` allows."""
    groups: dict[object, list[Connection]] = {}
    for each in connections:
        hosts = frozenset((each.client.host, each.server.host))
        # If both are at one address, as in a loopback capture, only the server's port tells them apart.
        groups.setdefault(hosts if len(hosts) == 2 else each.server, []).append(each)
    for group in groups.values():
        for first in Side:
            host = group[0].end(first).host
            sides = {each.number: _side_at(each, first, host) for each in group}
            kept = tuple(each for each in group if side in spellings(each, sides[each.number]))
            yield Part({each.number: sides[each.number] for each in kept}, kept)


def _side_at(connection: Connection, side: Side, host: str) -> Side:
    """Return the side at this host; if both sides are there, return `side`."""
    if connection.client.host == connection.server.host:
        return side
    return Side.CLIENT if connection.client.host == host else Side.SERVER


def spellings(connection: Connection, side: Side) -> tuple[str, ...]:
    """Return all names by which the `side` of `choose` may refer to this side of a connection.

    An empty name matches any side.
    """
    end = connection.end(side)
    return "", side.value, end.host, str(end)


def read_script(packets: Iterable[SeenPacket], part: Part) -> Script:
    """Return the packets of one side, and the answers to them.

    Raises:
        UsageError: the packets exceed 256 MiB.
    """
    return _Reader(part).read(packets)


class _Reader:
    """Reads a script, packet by packet."""

    def __init__(self, part: Part) -> None:
        self._script = Script(part)
        self._places = {
            each.number: _Place(Scene(each, part.sides[each.number])) for each in part.connections
        }
        self._acknowledgments: list[UserMessage] = []
        self._heard: set[Identity] = set()
        self._size_bytes = 0
        # The queue manager of our side (True) and of the other, as presented, or as messages tell.
        self._presented: dict[bool, Guid] = {}
        self._guessed: dict[bool, Guid] = {}

    def read(self, packets: Iterable[SeenPacket]) -> Script:
        script = self._script
        for seen in packets:
            place = self._places.get(seen.connection)
            if place is None or isinstance(seen.packet, Ping):
                continue
            ours = place.scene.connection.side_of(seen) is place.scene.side
            if lost_bytes := seen.missing_bytes + seen.skipped_bytes:
                script.left_out.append(
                    f"{_whose(ours)} {lost_bytes:,} bytes before frame {seen.first_frame}, {LOST}"
                )
            if seen.cut_bytes:
                there = f"{_whose(ours)} packet in frame {seen.first_frame}"
                script.left_out.append(
                    f"{there}: the capture lacks the rest of its {seen.size_bytes:,} bytes, {LOST}"
                )
                continue
            if seen.packet is None:
                script.left_out.append(f"{_whose(ours)} packet in frame {seen.frame}: {seen.fault}")
                if ours and seen.framed:
                    self._add_step(seen, place)
                continue
            self._see_manager(seen.packet, place.scene.connection.side_of(seen), ours=ours)
            if ours:
                self._say(seen, seen.packet, place)
            else:
                self._hear(seen, seen.packet, place)
        # An OrderAck covers numbers, and a message that filled a gap may come after it in the file.
        for acknowledgment in self._acknowledgments:
            script.answers.heard(acknowledgment)
        script.scenes = [place.scene for place in self._places.values() if place.scene.steps]
        managers = self._guessed | self._presented
        script.own_manager, script.peer_manager = managers.get(True), managers.get(False)
        return script

    def _see_manager(self, packet: Packet, side: Side, *, ours: bool) -> None:
        """Learn a side's queue manager from a handshake, or otherwise from a message that was not forwarded."""
        if isinstance(packet, EstablishConnection):
            # A request may have a null ServerGuid, so each side's own word counts: the request's for the
            # client, the answer's for the server.
            is_client = side is Side.CLIENT
            manager = packet.client_guid if is_client else packet.server_guid
            self._presented[ours] = manager
        elif isinstance(packet, UserMessage) and not packet.user.hop_count:
            self._guessed.setdefault(ours, packet.user.source_queue_manager)

    def _say(self, seen: SeenPacket, packet: Packet, place: _Place) -> None:
        """Process a packet from our side."""
        script = self._script
        self._keep(seen.data)
        number = None
        if is_message(packet):
            assert isinstance(packet, UserMessage)
            number = script.answers.expect(identity_of(packet), place_of(packet))
            script.answers.sent(number)
        elif isinstance(packet, UserMessage):
            script.acknowledgment_count += 1
        place.witness.said(packet, seen.data, number)
        step = self._add_step(seen, place, number)
        if number is None:
            return
        if number < len(script.messages):
            script.resend_count += 1
        else:
            assert isinstance(packet, UserMessage)
            script.messages.append(ScriptMessage(identity_of(packet), place_of(packet), step))
            place.scene.messages.append(number)

    def _add_step(self, seen: SeenPacket, place: _Place, number: int | None = None) -> Step:
        step = Step(
            seen.frame, seen.time_ns, seen.data, place.heard, self._script.heard_message_count, number
        )
        place.scene.steps.append(step)
        return step

    def _hear(self, seen: SeenPacket, packet: Packet, place: _Place) -> None:
        """Process a packet from the other side."""
        place.heard += 1
        for number in place.witness.heard(packet, seen.data):
            self._script.answers.acknowledged(number)
        if isinstance(packet, UserMessage):
            if is_message(packet):
                self._heard.add(identity_of(packet))
                self._script.heard_message_count = len(self._heard)
            else:
                self._keep(seen.data)
                self._acknowledgments.append(packet)

    def _keep(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > LIMIT_BYTES:
            raise UsageError(
                f"{self._script.part} has more than {LIMIT_BYTES >> 20} MiB: choose one connection with --connection"
            )


@dataclass(slots=True)
class _Place:
    """The progress in reading one connection."""

    scene: Scene
    witness: Witness = field(default_factory=Witness)
    heard: int = 0


def _whose(ours: bool) -> str:
    return "our" if ours else "the peer's"


def is_message(packet: object) -> bool:
    """Return whether a packet is a UserMessage that does not answer another message.

    Only such messages are replayed.
    """
    return isinstance(packet, UserMessage) and not is_answer(packet)
