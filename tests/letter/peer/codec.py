"""Turns packets into bytes and back, only with struct.  [MS-MQQB] 2.2, [MS-MQMQ] 2.2.18 to 2.2.20"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from .packets import (
    AI,
    NULL,
    ConnectionParameters,
    EstablishConnection,
    MalformedError,
    OrderBody,
    Packet,
    Ping,
    Security,
    SessionAck,
    SessionHeader,
    Transaction,
    TxSequenceId,
    UserMessage,
)
from .reader import Reader, padding, wide, words
from .switches import Switches

BASE: Final = struct.Struct("<BBHIII")
VERSION, SIGNATURE, LONGEST = 0x10, 0x524F494C, 0x400000
INTERNAL, SESSION, DEBUG, BASE_RESERVED = 0x8, 0x10, 0x20, 0xFEC0
SESSION_HEADER: Final = struct.Struct("<HHIHHHH")
LONGEST_LIST: Final = 4096
ANSWERED: Final = 0x5A
"""BaseHeader.Reserved of a response, as in frame 4; in a request the field may have any value.  [MS-MQQB] 4.1.4"""

# UserHeader.Flags, [MS-MQMQ] 2.2.19.2
RECOVERABLE, DEAD_LETTER, JOURNAL = 1 << 5, 1 << 8, 1 << 9
SECURITY, TRANSACTION, PROPERTIES, CONNECTOR, LIST, SOAP = (
    1 << 19,
    1 << 20,
    1 << 21,
    1 << 22,
    1 << 23,
    1 << 28,
)
USER_RESERVED: Final = 0xED000080


@dataclass
class Codec:
    """Builds and reads packets. Some of the switches have an effect only here."""

    switches: Switches = field(default_factory=Switches)

    def guid(self, guid: UUID) -> bytes:
        """Return a GUID's bytes in the order of [MS-DTYP] 2.3.4, as in the hex dumps of 4.1.

        With `guids_reversed`, they are in the order of the GUID's text instead.
        """
        return guid.bytes_le[::-1] if self.switches.guids_reversed else guid.bytes_le

    def read_guid(self, data: bytes) -> UUID:
        return UUID(bytes_le=data[::-1] if self.switches.guids_reversed else data)

    # -- packets of a stream --------------------------------------------------------------------------------------

    def size(self, head: bytes) -> int:
        """Return the size of the packet that begins with this BaseHeader.  [MS-MQMQ] 2.2.19.1"""
        version, _, flags, signature, size, _ = BASE.unpack(head)
        if (version, signature) != (VERSION, SIGNATURE):
            raise MalformedError("no BaseHeader")  # [MS-MQQB] 3.1.5.1.2
        counted = (
            not self.switches.session_ack_size_short if flags & INTERNAL else self.switches.message_size_long
        )
        if flags & SESSION and not counted:
            size += SESSION_HEADER.size
        if not BASE.size <= size <= LONGEST + SESSION_HEADER.size:
            raise MalformedError(f"a packet of {size} bytes")
        return int(size)

    def pack(self, packet: Packet) -> bytes:
        if isinstance(packet, UserMessage):
            return self._pack_message(packet)
        if isinstance(packet, EstablishConnection):
            reserved = ANSWERED if packet.response else 0
            return self._pack_internal(2, packet.refused, self._pack_establish(packet), reserved=reserved)
        if isinstance(packet, ConnectionParameters):
            values = (packet.recoverable_ack_timeout, packet.ack_timeout, 0, packet.window_size)
            return self._pack_internal(3, packet.refused, struct.pack("<IIHH", *values))
        return self._pack_internal(1, False, self._pack_session(packet.header), SESSION)

    def unpack(self, data: bytes) -> Packet:
        reader = Reader(data)
        _, _, flags, _, _, time_to_reach_queue = reader.unpack(BASE.format)
        if not flags & INTERNAL:
            return self._read_message(reader, flags, time_to_reach_queue)
        _, kind = reader.unpack("<HH")
        refused = bool(kind & 0x10)
        match kind & 0xF:
            case 1 if flags & SESSION:
                return SessionAck(self._read_session(reader))
            case 2:
                client, server, stamp, system, _ = reader.unpack("<16s16sIHH")
                answer = reader.take(512) == b"\x5a" * 512
                guids = self.read_guid(client), self.read_guid(server)
                return EstablishConnection(*guids, stamp, not system & 0x100, refused, answer)
            case 3:
                timeout, ack_timeout, _, window = reader.unpack("<IIHH")
                return ConnectionParameters(timeout, ack_timeout, window, refused)
        raise MalformedError(f"a packet of type {kind & 0xF}")  # [MS-MQQB] 2.2.1

    def _base(self, flags: int, size: int, time_to_reach_queue: int = 0xFFFFFFFF, reserved: int = 0) -> bytes:
        reserved = 0xA5 if self.switches.junk else reserved
        if self.switches.reserved_bits:
            flags |= BASE_RESERVED
        return BASE.pack(VERSION, reserved, flags, SIGNATURE, size, time_to_reach_queue)

    def _pack_internal(
        self, kind: int, refused: bool, header: bytes, flags: int = 0, reserved: int = 0
    ) -> bytes:
        """Pack an internal packet.  [MS-MQQB] 2.2.1"""
        size = BASE.size + 4 + len(header)
        if flags and self.switches.session_ack_size_short:
            size -= SESSION_HEADER.size
        kind |= refused << 4 | (0xFFE0 if self.switches.reserved_bits else 0)
        return (
            self._base(INTERNAL | flags | 3, size, reserved=reserved) + struct.pack("<HH", 0, kind) + header
        )

    def _pack_establish(self, packet: EstablishConnection) -> bytes:
        """Pack an EstablishConnection.  [MS-MQQB] 2.2.3.1

        RE is 0x10; SE says that no Ping was sent; the operating system is a server's.
        """
        system = (
            0x10 | 0x200 | (0 if packet.pinged else 0x100) | (0xF800 if self.switches.reserved_bits else 0)
        )
        fill = b"\x5a" if packet.response else b"\xa5" if self.switches.junk else b"\0"
        guids = self.guid(packet.client), self.guid(packet.server)
        return struct.pack("<16s16sIHH", *guids, packet.time_stamp & 0xFFFFFFFF, system, 0) + fill * 512

    def _pack_session(self, header: SessionHeader) -> bytes:
        counts = header.ack_sequence_number & 0xFFFF, header.recoverable_ack_number & 0xFFFF
        sent = header.user_message_number & 0xFFFF, header.recoverable_number & 0xFFFF
        reserved = 0xA5A5 if self.switches.junk else 0
        return SESSION_HEADER.pack(*counts, header.recoverable_ack_flags, *sent, header.window_size, reserved)

    def _read_session(self, reader: Reader) -> SessionHeader:
        return SessionHeader(*reader.unpack(SESSION_HEADER.format)[:6])

    # -- messages -------------------------------------------------------------------------------------------------

    def _pack_message(self, message: UserMessage) -> bytes:
        parts = [self._pack_user(message)]
        if message.transaction:
            parts.append(self._pack_transaction(message.transaction))
        if message.security:
            parts.append(self._pack_security(message.security))
        parts.append(self._pack_properties(message))
        if message.destinations:
            parts.append(self._pack_lists(message.destinations, message.list_signature))
        flags = message.priority
        size = BASE.size + sum(map(len, parts))
        if message.session:
            parts.append(self._pack_session(message.session))
            flags |= SESSION
            size += SESSION_HEADER.size if self.switches.message_size_long else 0
        return self._base(flags, size, message.time_to_reach_queue) + b"".join(parts)

    def _read_message(self, reader: Reader, flags: int, time_to_reach_queue: int) -> UserMessage:
        message, user_flags = self._read_user(reader)
        message.priority, message.time_to_reach_queue = flags & 7, time_to_reach_queue
        if user_flags & TRANSACTION:
            message.transaction = self._read_transaction(reader)
        if user_flags & SECURITY:
            message.security = self._read_security(reader)
        self._read_properties(reader, message)
        if flags & DEBUG:
            kind, _ = reader.unpack("<HH")
            reader.take(16 if kind & 3 == 1 else 0)  # [MS-MQMQ] 2.2.20.8
        if user_flags & SOAP:
            raise MalformedError("this peer reads no SoapHeader")
        if user_flags & LIST:
            message.destinations, message.list_signature = self._read_lists(reader)
        if flags & SESSION:
            message.session = self._read_session(reader)
        return message

    def _pack_user(self, message: UserMessage) -> bytes:
        """Pack a UserHeader.  [MS-MQMQ] 2.2.19.2"""
        flags = message.hops | PROPERTIES
        for wanted, bit in (
            (message.recoverable, RECOVERABLE),
            (message.dead_letter, DEAD_LETTER),
            (message.journal, JOURNAL),
            (message.transaction, TRANSACTION),
            (message.security, SECURITY),
            (message.connector, CONNECTOR),
            (message.destinations, LIST),
            (self.switches.reserved_bits, USER_RESERVED),
        ):
            flags |= bit if wanted else 0
        names = b""
        for shift, (kind, data) in zip((10, 13, 16), self.names(message), strict=True):
            flags |= kind << shift
            names += data + padding(len(data))
        guids = self.guid(message.source), self.guid(message.address)
        times = message.time_to_be_received, message.sent_time
        head = struct.pack("<16s16sIIII", *guids, *times, message.message_id, flags)
        return head + names + message.connector

    def names(self, message: UserMessage) -> list[tuple[int, bytes]]:
        """Return the type and the unpadded bytes of a message's destination, administration and response queues."""
        hosts = {message.address: 3}
        at_both = {message.source: 2, **hosts}
        queues = (message.destination, hosts), (message.admin, at_both), (message.response, at_both)
        return [self._pack_name(name, at) for name, at in queues]

    def _read_user(self, reader: Reader) -> tuple[UserMessage, int]:
        source, address, life, sent, number, flags = reader.unpack("<16s16sIIII")
        start, hosts = reader.at, {2: self.read_guid(source), 3: self.read_guid(address)}
        if not flags & PROPERTIES or (flags & TRANSACTION and not flags & RECOVERABLE):
            raise MalformedError("flags that exclude each other")
        destination = self._read_name(reader, start, flags >> 10 & 7, {3: hosts[3]})
        admin = self._read_name(reader, start, flags >> 13 & 7, hosts)
        response = admin if flags >> 16 & 7 == 1 else self._read_name(reader, start, flags >> 16 & 7, hosts)
        connector = reader.take(16 if flags & CONNECTOR else 0)
        message = UserMessage(hosts[2], hosts[3], destination, message_id=number, hops=flags & 31)
        message.connector = connector
        message.time_to_be_received, message.sent_time = life, sent
        message.admin, message.response = admin, response
        message.recoverable = flags >> 5 & 3 == 1
        message.dead_letter, message.journal = bool(flags & DEAD_LETTER), bool(flags & JOURNAL)
        return message, flags

    def _pack_name(self, name: str, hosts: dict[UUID, int]) -> tuple[int, bytes]:
        """Return a name's type for UserHeader.Flags, and the name's bytes.  [MS-MQMQ] 2.2.18.1.5, 2.2.18.1.7"""
        kind, _, rest = name.partition("=")
        match kind.upper():
            case "":
                return 0, b""
            case "DIRECT":
                data = wide(rest)
                return 7, struct.pack("<H", len(data)) + data
            case "PUBLIC":
                return 5, self.guid(UUID(rest))
        host, _, number = rest.partition("\\")
        guid, identifier = UUID(host), struct.pack("<I", int(number, 16))
        return (hosts[guid], identifier) if guid in hosts else (6, self.guid(guid) + identifier)

    def _read_name(self, reader: Reader, start: int, kind: int, hosts: dict[int, UUID]) -> str:
        match kind:
            case 0:
                return ""
            case 5:
                return f"PUBLIC={self.read_guid(reader.take(16))}"
            case 6:
                guid, number = reader.unpack("<16sI")
                return f"PRIVATE={self.read_guid(guid)}\\{number:08x}"
            case 7:
                (size,) = reader.unpack("<H")
                name = words(reader.take(size))
                reader.align(start)
                return f"DIRECT={name}"
            case _ if kind in hosts:
                return f"PRIVATE={hosts[kind]}\\{reader.unpack('<I')[0]:08x}"
        raise MalformedError(f"a queue of type {kind}")

    def _pack_transaction(self, it: Transaction) -> bytes:
        """Pack a TransactionHeader.  [MS-MQMQ] 2.2.20.5"""
        flags = it.final_ack << 1 | it.first << 2 | it.last << 3 | (it.identifier & 0xFFFFF) << 4
        flags |= 0xFF000000 if self.switches.reserved_bits else 0
        return struct.pack(
            "<IIIII", flags, it.sequence.ordinal, it.sequence.time_stamp, it.number, it.previous
        )

    def _read_transaction(self, reader: Reader) -> Transaction:
        flags, ordinal, stamp, number, previous = reader.unpack("<IIIII")
        reader.take(16 if flags & 1 else 0)
        marks = bool(flags & 2), bool(flags & 4), bool(flags & 8)
        return Transaction(TxSequenceId(stamp, ordinal), number, previous, *marks, flags >> 4 & 0xFFFFF)

    def _pack_security(self, it: Security) -> bytes:
        """Pack a SecurityHeader.  [MS-MQMQ] 2.2.20.6"""
        flags = it.flags | (0xF000 if self.switches.reserved_bits else 0)
        items = it.sender, it.key, it.signature, it.certificate, it.provider
        header = struct.pack("<HHHHII", flags, *map(len, items))
        if self.switches.no_data_without_ai and not flags & AI:
            return header
        return header + b"".join(item + padding(len(item)) for item in items)

    def _read_security(self, reader: Reader) -> Security:
        flags, *sizes = reader.unpack("<HHHHII")
        if self.switches.no_data_without_ai and not flags & AI:
            return Security(flags=flags & 0xFFF)
        items = []
        for size in sizes:
            items.append(reader.take(size))
            reader.take(-size % 4)
        return Security(items[0], flags & 0xFFF, *items[1:])

    def _pack_properties(self, message: UserMessage) -> bytes:
        """Pack a MessagePropertiesHeader.  [MS-MQMQ] 2.2.19.3"""
        label = wide(message.label) if message.label else b""
        flags = message.acknowledge | (0xF0 if self.switches.reserved_bits and not message.orders else 0)
        header = struct.pack(
            "<BBH20sIIIIIIII",
            *(
                flags,
                len(label) // 2,
                message.message_class,
                message.correlation,
                message.body_type,
                message.tag,
            ),
            *(len(message.body), message.allocated or len(message.body), message.privacy),
            *(message.hash_algorithm, message.encryption_algorithm, len(message.extension)),
        )
        data = header + label + message.extension + message.body
        return data + padding(len(data))

    def _read_properties(self, reader: Reader, message: UserMessage) -> None:
        start = reader.at
        flags, label, message.message_class, message.correlation = reader.unpack("<BBH20s")
        message.body_type, message.tag, size, message.allocated, message.privacy = reader.unpack("<IIIII")
        message.hash_algorithm, message.encryption_algorithm, extension = reader.unpack("<III")
        message.acknowledge = flags & 15
        message.label = words(reader.take(2 * label))
        message.extension, message.body = reader.take(extension), reader.take(size)
        reader.align(start)

    def elements(self, names: list[str], padded: bool = True) -> bytes:
        """Return a FormatNameList.  [MS-MQMQ] 2.2.18.1.4, 2.2.20.2"""
        elements = b""
        for name in names:
            kind, _, rest = name.partition("=")
            if kind.upper() == "DIRECT":
                elements += struct.pack("<H", 3) + wide(rest)
            else:
                host, _, number = rest.partition("\\")
                elements += struct.pack("<H", 2)
                elements += padding(len(elements)) if padded else b""
                elements += self.guid(UUID(host)) + struct.pack("<I", int(number, 16))
        return elements

    def _pack_lists(self, names: list[str], signature: bytes) -> bytes:
        """Pack destinations, empty lists of administration and response queues, and a signature.  [MS-MQMQ] 2.2.20.1 to
        2.2.20.3
        """
        elements = self.elements(names)
        size = 12 + len(elements) + (0 if self.switches.list_size_unpadded else len(padding(len(elements))))
        lists = struct.pack("<IHHI", size, 0x64, 0, len(names)) + elements + padding(len(elements))
        for empty in (0xC8, 0x12C):
            lists += struct.pack("<IHHI", 12, empty, 0, 0)
        return lists + struct.pack("<HHI", 0x15E, 0, len(signature)) + signature + padding(len(signature))

    def _read_lists(self, reader: Reader) -> tuple[list[str], bytes]:
        """Read the names of all queues to which a copy was sent, and the signature."""
        lists = []
        for _ in range(3):
            start = reader.at
            size, _, _, count = reader.unpack("<IHHI")
            if count > LONGEST_LIST and not self.switches.long_lists:
                raise MalformedError(f"a list of {count} queues")
            lists.append([self._read_element(reader) for _ in range(count)])
            reader.take(max(0, start + size - reader.at))
            reader.align()
        signature = reader.take(reader.unpack("<HHI")[2])
        reader.align()
        return lists[0], signature

    def _read_element(self, reader: Reader) -> str:
        """Read one element of a FormatNameList.  [MS-MQMQ] 2.2.18.1.4"""
        (kind,) = reader.unpack("<H")
        if kind == 3:
            return f"DIRECT={reader.text()}"
        reader.align()
        guid = self.read_guid(reader.take(16))
        return f"PRIVATE={guid}\\{reader.unpack('<I')[0]:08x}" if kind == 2 else f"KIND-{kind}={guid}"

    # -- what a body or a datagram holds --------------------------------------------------------------------------

    def pack_order(self, it: OrderBody, final: bool) -> bytes:
        """Pack the body of an OrderAck or a FinalAck.  [MS-MQQB] 2.2.4.1, 2.2.5.1

        The reserved bytes of an OrderAck may have any value, according to note 17.
        """
        tail = self.guid(it.source) + struct.pack("<I", it.message_id)
        if not final:
            tail = (b"\xa5" if self.switches.junk else b"\0") * 20
        return (
            struct.pack("<IIII", it.sequence.ordinal, it.sequence.time_stamp, it.number, it.previous) + tail
        )

    def read_order(self, body: bytes, final: bool) -> OrderBody:
        ordinal, stamp, number, previous, source, message_id = Reader(body).unpack("<IIII16sI")
        named = (self.read_guid(source), message_id) if final else (NULL, 0)
        return OrderBody(TxSequenceId(stamp, ordinal), number, previous, *named)

    def pack_ping(self, ping: Ping) -> bytes:
        """Pack a Ping; according to note 19, unused flags may have any value.  [MS-MQQB] 2.2.7"""
        flags = (
            ping.rc | ping.refused << 1 | (0xFFFC if self.switches.reserved_bits or self.switches.junk else 0)
        )
        return struct.pack("<HHI", flags, 0x5548, ping.cookie & 0xFFFFFFFF) + self.guid(ping.guid)

    def read_ping(self, data: bytes) -> Ping | None:
        if len(data) < 24 or data[2:4] != b"\x48\x55":
            return None  # Ignored.  [MS-MQQB] 3.1.7.7
        flags, _, cookie, guid = struct.unpack("<HHI16s", data[:24])
        return Ping(cookie, self.read_guid(guid), bool(flags & 2), bool(flags & 1))
