"""Conversations as a capture would show them, packet by packet, with any faults that a test needs.

Queue managers have names of one letter; each listens at its own address. A `Wire` is one connection between two of
them. It counts packets as the two would, so its acknowledgments are right unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mqproto.captures.decode import Analyst, Finding, Names, Severity, Sight
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket, StreamEnd, Sum
from mqproto.wire import (
    ConnectionParameters,
    FinalAck,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAck,
    OrderAckBody,
    Packet,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    user_message,
    with_hop_counted,
    with_session_header,
    without_session_header,
)

MILLISECOND: Final = 1_000_000
BEGAN_NS: Final = 1_700_000_000_000_000_000
SEQUENCE: Final = TxSequenceId(time_stamp=1_700_000_000, ordinal=1)
LETTERS: Final = "abcdefgh"


def guid(name: str) -> Guid:
    return Guid(name.encode().ljust(16, b"."))


def address(name: str) -> Endpoint:
    return Endpoint(f"10.0.0.{LETTERS.index(name) + 1}", 1801)


def names(*letters: str) -> Names:
    return Names(
        managers={guid(letter): letter for letter in letters},
        hosts={address(letter).host: letter for letter in letters},
        queues={(guid(letter), 16): f"{letter}\\orders" for letter in letters},
    )


def transactional(number: int, previous: int | None = None, **changes: Any) -> bytes:
    """Return message `number` of the sequence from a to c, as its source first sends it."""
    header = TransactionHeader(
        tx_sequence_id=SEQUENCE,
        tx_sequence_number=number,
        previous_tx_sequence_number=number - 1 if previous is None else previous,
    )
    return express(**{"message_id": number, "transaction": header, "label": f"order {number}"} | changes)


def express(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "source": guid("a"),
        "destination_manager": guid("c"),
        "destination": 16,
        "message_id": 1,
        "sent_time_s": BEGAN_NS // 10**9,
        "body": b"body",
    }
    return encode_packet(user_message(**arguments | changes))


def ordered(
    number: int, own_id: int = 100, source: str = "c", towards: Guid | None = None, **changes: Any
) -> bytes:
    """Return c's OrderAck for all numbers up to `number`."""
    body = replace(OrderAckBody(SEQUENCE, number, max(0, number - 1)), **changes)
    arguments: dict[str, Any] = {
        "destination_manager": towards or guid("a"),
        "destination": 4,
        "sent_time_s": 0,
    }
    return encode_packet(OrderAck(source=guid(source), message_id=own_id, body=body, **arguments).message())


def final(
    number: int,
    own_id: int = 200,
    source: str = "c",
    message_class: MessageClass = MessageClass.ACK_RECEIVE,
    **changes: Any,
) -> bytes:
    """Return c's FinalAck for message `number`."""
    body = replace(FinalAckBody(SEQUENCE, number, number - 1, guid("a"), number), **changes)
    arguments: dict[str, Any] = {"destination_manager": guid("a"), "destination": 4, "sent_time_s": 0}
    return encode_packet(
        FinalAck(
            source=guid(source),
            message_id=own_id,
            message_class=message_class,
            body=body,
            **arguments,
        ).message()
    )


@dataclass
class End:
    """The counts at one end of a wire."""

    endpoint: Endpoint
    sent: int = 0
    recoverable_sent: int = 0
    received: int = 0
    recoverable_received: int = 0
    saved: int = 0
    position: int = 0


@dataclass
class Scene:
    """Packets in the order in which they were seen, a millisecond apart."""

    packets: list[SeenPacket] = field(default_factory=list)
    connections: int = 0
    now_ns: int = BEGAN_NS

    def wire(self, client: str, server: str, *, opened: bool = True, window: int = 64) -> Wire:
        """Add a connection. It begins with its handshake, unless that is left out."""
        self.connections += 1
        wire = Wire(self, self.connections - 1, client, server)
        if opened:
            wire.open(window)
        return wire

    def sights(
        self,
        known: Names | None = None,
        *,
        lossless: bool = True,
        ends: Mapping[StreamEnd, Sum] | None = None,
    ) -> tuple[list[Sight], list[Finding]]:
        """Return all packets as the analyst understands them, and the findings at the end."""
        analyst = Analyst(known)
        sights = [analyst.take(packet) for packet in self.packets]
        return sights, list(analyst.finish(lossless=lossless, ends=ends))

    def findings(
        self, *, lossless: bool = True, ends: Mapping[StreamEnd, Sum] | None = None
    ) -> list[Finding]:
        """Return all findings."""
        sights, last = self.sights(lossless=lossless, ends=ends)
        return [finding for sight in sights for finding in sight.findings] + last

    def faults(
        self, *, lossless: bool = True, ends: Mapping[StreamEnd, Sum] | None = None
    ) -> list[tuple[str, int]]:
        """Return the faults: each one's code, and the packet that it is about."""
        found = self.findings(lossless=lossless, ends=ends)
        return [(each.code, each.packet) for each in found if each.severity is Severity.FAULT]

    def notes(self) -> list[str]:
        return [each.code for each in self.findings() if each.severity is Severity.NOTE]


class Wire:
    """One connection. The methods of this class take the names of its ends."""

    def __init__(self, scene: Scene, number: int, client: str, server: str) -> None:
        self.scene = scene
        self.number = number
        self.client, self.server = client, server
        self.ends = {
            client: End(Endpoint(address(client).host, 50_000 + number)),
            server: End(address(server)),
        }

    def open(self, window: int = 64) -> None:
        ask = establish_connection(client=guid(self.client), server=guid(self.server), time_stamp_ms=0)
        offer = ConnectionParameters(
            recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=window
        )
        for packet in (ask, offer):
            self.put(self.client, packet)
            self.put(self.server, packet)

    def reset(self, by: str) -> dict[StreamEnd, Sum]:
        """Record that an end has reset the connection. How much had been sent by then is unknown."""
        return {StreamEnd(self.number, 0, self.ends[by].endpoint): Sum(None, None)}

    def other(self, sender: str) -> str:
        return self.server if sender == self.client else self.client

    def put(self, sender: str, packet: Packet | bytes, **changes: Any) -> SeenPacket:
        """Add any packet, without counting it."""
        data = packet if isinstance(packet, bytes) else encode_packet(packet)
        self.scene.now_ns += MILLISECOND
        end, other = self.ends[sender], self.ends[self.other(sender)]
        seen = SeenPacket(
            data,
            source=end.endpoint,
            destination=other.endpoint,
            time_ns=self.scene.now_ns,
            connection=self.number,
            position=end.position,
            **changes,
        )
        end.position += len(data)
        self.scene.packets.append(seen)
        seen.number = len(self.scene.packets)
        return seen

    def send(self, sender: str, message: bytes, *, riding: bool = False) -> SeenPacket:
        """Add a UserMessage, and count it at both ends.

        Args:
            riding: whether a session acknowledgment travels with the message.
        """
        end, other = self.ends[sender], self.ends[self.other(sender)]
        recoverable = bool(message[60] & 0x20)
        end.sent += 1
        other.received += 1
        end.recoverable_sent += recoverable
        other.recoverable_received += recoverable
        return self.put(sender, with_session_header(message, self.header(sender)) if riding else message)

    def header(self, sender: str, **changes: Any) -> SessionHeader:
        """Return the acknowledgments that `sender` owes. They cover at most 32 recoverable messages."""
        end = self.ends[sender]
        count = min(32, end.recoverable_received - end.saved)
        header = SessionHeader(
            ack_sequence_number=end.received & 0xFFFF,
            recoverable_msg_ack_seq_number=(end.saved + 1) & 0xFFFF if count else 0,
            recoverable_msg_ack_flags=(1 << count) - 1,
            user_msg_sequence_number=end.sent & 0xFFFF,
            recoverable_msg_seq_number=end.recoverable_sent & 0xFFFF,
        )
        end.saved += count
        return replace(header, **changes)

    def ack(self, sender: str, **changes: Any) -> SeenPacket:
        """Add a SessionAck, by default for everything that `sender` has received."""
        return self.put(sender, SessionAck(session=self.header(sender, **changes)))


def passed_on(message: bytes, hops: int = 1) -> bytes:
    """Return a message as an intermediate passes it on."""
    message = without_session_header(message)
    for _ in range(hops):
        message = with_hop_counted(message)
    return message


def decoded(seen: SeenPacket) -> UserMessage:
    packet = seen.packet
    assert isinstance(packet, UserMessage)
    return packet
