"""Checks bit by bit whether packets are as the specification says that they MUST be; the peer itself is not as strict.

`audit` takes the packets that one queue manager sent, and lists where they deviate from the specification.  [MS-MQQB]
2.2, [MS-MQMQ] 2.2.18 to 2.2.20
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

from .peer.codec import ANSWERED, BASE, INTERNAL, Codec
from .peer.cryptoapi import KEY_BITS
from .peer.packets import (
    AU,
    DE,
    ENDLESS,
    NULL,
    ORDER_QUEUE,
    ORDER_QUEUE_NAME,
    ORDERING,
    Class,
    ConnectionParameters,
    EstablishConnection,
    Security,
    SessionAck,
    SessionHeader,
    TxSequenceId,
    UserMessage,
)

CODEC = Codec()
FINAL = range(Class.ACK_RECEIVE, 0x10000)


class Auditor:
    """Follows one queue manager over all its sessions."""

    def __init__(self, guid: UUID) -> None:
        self.guid = guid
        self.names: dict[int, bytes] = {}
        """The message that each MessageID stands for.

        The same message may arrive again, but no other message may use its MessageID.
        """
        self.sequences: dict[str, tuple[TxSequenceId, int]] = {}
        """The last sequence to each destination, and the highest number in that sequence."""
        self.told: Counter[str] = Counter()

    def look(self, data: bytes) -> None:
        """Count everything that is wrong with one packet."""
        for fault in self._faults(data):
            self.told[fault] += 1

    def _faults(self, data: bytes) -> Iterator[str]:
        _, _, flags, _, _, life = BASE.unpack(data[: BASE.size])
        packet = CODEC.unpack(data)
        if flags & 0xFEC0:
            yield f"2.2.19.1: reserved bits of BaseHeader are set: {flags:04x}"
        if len(data) % 4:
            yield f"2.2.19.1: {len(data)} bytes"
        if CODEC.pack(packet)[2:] != data[2:]:
            yield f"{type(packet).__name__}: this peer would have built {CODEC.pack(packet).hex()} of {data.hex()}"
        if flags & INTERNAL:
            if life != ENDLESS:
                yield "2.2.19.1: TimeToReachQueue of an internal packet"
            reserved, kind = struct.unpack_from("<HH", data, BASE.size)
            if reserved or kind & 0xFFE0:
                yield f"2.2.1: reserved bits of InternalHeader are set: {reserved:04x} {kind:04x}"
        match packet:
            case EstablishConnection():
                yield from self._establish(data)
                if packet.server == self.guid and data[1] != ANSWERED:
                    yield f"4.1.4: Reserved of an answer is {data[1]:02x}"
            case ConnectionParameters():
                if (
                    not 500 <= packet.recoverable_ack_timeout <= 120_000
                    or not 20_000 <= packet.ack_timeout <= 120_000
                ):
                    yield f"2.2.2.1: {packet}"
            case SessionAck():
                yield from self._acknowledgment(packet.header)
            case UserMessage():
                if packet.session:
                    yield from self._acknowledgment(packet.session)
                yield from self._message(packet, flags, data)

    def _establish(self, data: bytes) -> Iterator[str]:
        (system, reserved) = struct.unpack_from("<HH", data, 56)
        if system & 0xFF != 0x10 or system & 0xF800 or reserved:
            yield f"2.2.3.1: OperatingSystem {system:04x}, Reserved {reserved:04x}"

    def _acknowledgment(self, header: SessionHeader) -> Iterator[str]:
        if not header.window_size:
            yield "2.2.20.4: WindowSize 0"
        if header.recoverable_ack_flags and not header.recoverable_ack_flags & 1:
            yield f"2.2.20.4: bit 0 is not the lowest one acknowledged: {header}"
        if header.recoverable_ack_number and not header.recoverable_ack_flags:
            yield f"2.2.20.4: a number without flags: {header}"

    def _message(self, message: UserMessage, flags: int, data: bytes) -> Iterator[str]:
        """Yield what is wrong with a message.  [MS-MQMQ] 2.2.19.2, 2.2.19.3, 2.2.20.5; [MS-MQQB] 2.2.4, 2.2.5,
        3.1.1.5
        """
        user_flags = struct.unpack_from("<I", data, BASE.size + 44)[0]
        if user_flags & 0xED000080 or user_flags & 1 << 25:
            yield f"2.2.19.2: reserved bits of UserHeader.Flags: {user_flags:08x}"
        direct = message.destination.upper().startswith("DIRECT")
        if direct != (message.address == NULL):
            yield f"2.2.19.2: QueueManagerAddress {message.address} with {message.destination}"
        if bool(message.acknowledge) != bool(message.admin):
            yield f"2.2.19.2: AdminQueue {message.admin!r} with Flags {message.acknowledge}"
        if message.source == self.guid:
            # What is sent again may be encrypted by another key.
            body = b"" if message.security and message.security.encrypted else message.body
            content = message.destination.encode() + body + struct.pack("<I", message.message_class)
            if self.names.setdefault(message.message_id, content) != content:
                yield f"2.2.19.2: MessageID {message.message_id} stands for two messages"
        if message.security:
            yield from self._security(message, message.security)
        if message.orders:
            yield from self._order(message, flags, user_flags)
        if it := message.transaction:
            if message.priority:
                yield "2.2.19.1: a transactional message with a priority"
            if not 0 <= it.previous < it.number:
                yield f"2.2.20.5: {it}"
            if not it.identifier:
                yield "2.2.20.5: a transaction without an identifier"
            last, highest = self.sequences.get(message.destination.casefold(), (TxSequenceId(0, 0), 0))
            if it.sequence < last:
                yield f"3.1.1.5: {it.sequence} after {last}"
            if it.sequence > last:
                highest = 0
                if it.previous:
                    yield f"3.1.1.5: {it} begins a sequence"
            if it.previous > highest:
                yield f"3.1.1.5: {it} follows on what was never sent: {highest}"
            self.sequences[message.destination.casefold()] = max(last, it.sequence), max(highest, it.number)

    def _security(self, message: UserMessage, it: Security) -> Iterator[str]:
        """Yield what is wrong with a SecurityHeader.  [MS-MQMQ] 2.2.19.3, 2.2.20.6"""
        if it.flags & AU or it.signed_as:
            yield f"2.2.20.6: AU or AS is set: {it.flags:04x}"
        if bool(it.flags & 15) != bool(it.sender):
            yield f"2.2.20.6: {len(it.sender)} bytes of a sender of type {it.flags & 15}"
        if it.provider and it.flags & DE:
            yield "2.2.20.6: ProviderInfo beside DE"
        if it.encrypted != bool(it.key) or it.encrypted != bool(message.privacy):
            yield f"2.2.20.6: EB {it.encrypted}, {len(it.key)} bytes of key, PrivacyLevel {message.privacy}"
        if it.encrypted and (message.privacy, message.encryption_algorithm) not in KEY_BITS:
            yield f"2.2.19.3: {message.encryption_algorithm:#x} with PrivacyLevel {message.privacy}"
        if not (it.sender or it.key or it.signature or it.certificate or it.provider):
            yield "2.2.20.6: a SecurityHeader of nothing"

    def _order(self, message: UserMessage, flags: int, user_flags: int) -> Iterator[str]:
        """Yield what is wrong with an OrderAck or a FinalAck.  [MS-MQQB] 2.2.4, 2.2.4.1, 2.2.5, 2.2.5.1"""
        final = message.message_class in FINAL
        if flags:
            yield f"2.2.4, 2.2.5: BaseHeader.Flags {flags:04x}"
        if user_flags & ~(7 << 10) != 1 << 21 | (final << 5):
            yield f"2.2.4, 2.2.5: UserHeader.Flags {user_flags:08x} of class {message.message_class:04x}"
        tail = message.destination.partition("\\")[2]
        if tail.upper() != ORDER_QUEUE_NAME.upper() and (not tail or int(tail, 16) != ORDER_QUEUE):
            yield f"2.2.4: to {message.destination}"
        if (message.label, len(message.body), message.body_type) != (ORDERING, 36, 0):
            yield f"2.2.4: {message.label!r}, {len(message.body)} bytes, BodyType {message.body_type}"
        body = CODEC.read_order(message.body, final)
        if not final and (body.previous != max(body.number - 1, 0) or message.body[16:] != bytes(20)):
            yield f"2.2.4.1: {message.body.hex()}"
        if final and not body.previous < body.number:
            yield f"2.2.5.1: {body}"


def audit(guid: UUID, packets: Iterable[bytes]) -> list[str]:
    """Return how one queue manager deviates from the specification, and how often it does so in each way."""
    auditor = Auditor(guid)
    for data in packets:
        auditor.look(data)
    return [f"{count} times {fault}" for fault, count in auditor.told.items()]
