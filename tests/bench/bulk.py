"""Captures of any size for `bench analyse`: many senders and one destination, all of which follow the protocol.

python -m tests.bench.bulk FILE PACKETS [CONNECTIONS]
"""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Segments, Side
from mqproto.captures.net.ip import IPV4_HEADER
from mqproto.captures.net.tcp import ACK, ETHERNET_HEADER, SYN, TCP_HEADER, Endpoint
from mqproto.wire import (
    ConnectionParameters,
    Guid,
    OrderAck,
    OrderAckBody,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    encode_packet,
    establish_connection,
    user_message,
)
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.transaction import transaction_header
from mqproto.wire.layouts.user import user_header

BEGAN_NS: Final = 1_700_000_000_000_000_000
SPACING_NS: Final = 10_000
BATCH: Final = 32
"""The number of messages that are sent before they are acknowledged.

A SessionAck can report at most 32 messages as saved.
"""
BODY_BYTES: Final = range(100, 900)
"""The sizes of bodies, in bytes. With the headers, packets have about 300 to 1,100 bytes."""
ORDER_ACK_EVERY: Final = 4
"""The number of batches after which an OrderAck is sent."""

_MESSAGE_ID: Final = base_header.sizeof() + user_header.offset_of("message_id")

# Where numbers stand in an enhanced packet block with a frame of ours: its time, and those of IP and TCP.
_TIME: Final = 12
_IP: Final = 28 + ETHERNET_HEADER.size
_IDENTIFICATION: Final = _IP + 4
_IP_CHECKSUM: Final = _IP + 10
_TCP: Final = _IP + IPV4_HEADER.size
_SEQUENCE: Final = _TCP + 4
_TCP_CHECKSUM: Final = _TCP + 16
_PAYLOAD: Final = _TCP + TCP_HEADER.size


class _Capture:
    """A growing pcapng file, to which frames are added, or copies of the last frame with different numbers in them."""

    def __init__(self, file: BinaryIO) -> None:
        self.frame_count = 0
        self._file = file
        self._written = BytesIO()
        self._writer = PcapngWriter(self._written)

    def write(self, frame: bytes) -> None:
        """Write the next frame."""
        self._flush()
        self._writer.write(Frame(self._time_ns(), frame))
        self.frame_count += 1

    def repeat(self, count: int, numbers: tuple[int, ...]) -> None:
        """Write the last frame `count` more times, as if its sender continued with packets of equal size.

        Encoding each of them separately would take ten times as long.

        Args:
            numbers: the positions in the payload of 32-bit little-endian numbers that grow by 1 each time.
        """
        block = bytearray(self._written.getbuffer())
        sequence, identification = _at(">I", block, _SEQUENCE), _at(">H", block, _IDENTIFICATION)
        size = _at(">H", block, _IP + 2) - IPV4_HEADER.size - TCP_HEADER.size
        ip_sum, tcp_sum = _at(">H", block, _IP_CHECKSUM), _at(">H", block, _TCP_CHECKSUM)
        values = [(_PAYLOAD + place, _at("<I", block, _PAYLOAD + place)) for place in numbers]
        # Checksums are sums modulo 65,535, where 2**16 is 1: a number counts as itself, and 256-fold where its bytes
        # stand the other way round; that turns once more at an odd place.  [RFC 1071]
        step = sum(1 if place % 2 else 256 for place in numbers)
        pack = struct.pack_into
        for more in range(1, count + 1):
            time_ns = self._time_ns()
            pack("<II", block, _TIME, time_ns >> 32, time_ns & 0xFFFF_FFFF)
            next_identification = (identification + more) % 2**16
            pack(">H", block, _IDENTIFICATION, next_identification)
            pack(">H", block, _IP_CHECKSUM, (ip_sum - next_identification + identification) % 0xFFFF)
            next_sequence = (sequence + more * size) % 2**32
            pack(">I", block, _SEQUENCE, next_sequence)
            pack(">H", block, _TCP_CHECKSUM, (tcp_sum - next_sequence + sequence - more * step) % 0xFFFF)
            for place, value in values:
                pack("<I", block, place, value + more)
            self._written.write(block)
            self.frame_count += 1

    def finish(self) -> None:
        """Write everything that is left to the file."""
        self._flush()

    def _flush(self) -> None:
        self._file.write(self._written.getvalue())
        self._written.seek(0)
        self._written.truncate()

    def _time_ns(self) -> int:
        return BEGAN_NS + self.frame_count * SPACING_NS


def _at(form: str, data: bytearray, place: int) -> int:
    [value] = struct.unpack_from(form, data, place)
    return int(value)


@dataclass(slots=True)
class _Count:
    """The numbers of messages that one side has sent and received."""

    sent: int = 0
    received: int = 0


class _Sender:
    """A queue manager that sends orders over one connection, and the answers that it gets."""

    def __init__(self, number: int, of: int, dice: random.Random, capture: _Capture) -> None:
        self._number, self._of, self._capture = number, of, capture
        self.guid = Guid(struct.pack("<QQ", 0x5E4DE4, number + 1))
        self.destination = Guid(struct.pack("<QQ", 0xDE57, 1))
        self._sequence = TxSequenceId(time_stamp=BEGAN_NS // 10**9, ordinal=number + 1)
        here = Endpoint(f"10.0.{number >> 8 & 0xFF}.{number & 0xFF}", 50_000)
        self._segments = Segments(
            here,
            Endpoint("10.255.0.1", 1801),
            client_sequence=dice.getrandbits(32),
            server_sequence=dice.getrandbits(32),
        )
        self._dice = dice
        self._count = {Side.CLIENT: _Count(), Side.SERVER: _Count()}
        self._batches = 0

    def open(self) -> None:
        """Write the handshakes of TCP and of the session."""
        for side, flags in ((Side.CLIENT, SYN), (Side.SERVER, SYN | ACK), (Side.CLIENT, ACK)):
            self._capture.write(self._segments.leave(side, flags))
            self._segments.arrive(side.other)
        ask = establish_connection(client=self.guid, server=self.destination, time_stamp_ms=0)
        offer = ConnectionParameters(
            recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=2 * BATCH
        )
        for packet in (encode_packet(ask), encode_packet(offer)):
            self._send(Side.CLIENT, packet)
            self._send(Side.SERVER, packet)

    def batch(self) -> None:
        """Write some orders and the session acknowledgment for them, and from time to time an OrderAck."""
        client, server = self._count[Side.CLIENT], self._count[Side.SERVER]
        order, numbers_at = self._order(client.sent + 1)
        self._send(Side.CLIENT, order)
        # The message's identifier, its own number and that of the one before it.
        self._capture.repeat(BATCH - 1, (_MESSAGE_ID, numbers_at, numbers_at + 4))
        self._segments.pass_over(Side.CLIENT, BATCH - 1, len(order))
        self._segments.arrive(Side.SERVER)
        client.sent += BATCH
        server.received += BATCH
        self._send(Side.SERVER, self._session_ack(Side.SERVER, BATCH))
        self._batches += 1
        if self._batches % ORDER_ACK_EVERY == 0:
            server.sent += 1
            self._send(Side.SERVER, self._order_ack())
            client.received += 1
            self._send(Side.CLIENT, self._session_ack(Side.CLIENT, 0))

    def _order(self, number: int) -> tuple[bytes, int]:
        """Return an order, and the offset of its sequence number in it. The previous number follows it."""
        transaction = TransactionHeader(
            flags=TransactionHeader.first.mask | TransactionHeader.last.mask,
            tx_sequence_id=self._sequence,
            tx_sequence_number=number,
            previous_tx_sequence_number=number - 1,
        )
        message = user_message(
            source=self.guid,
            destination_manager=self.destination,
            destination=16,
            message_id=number,
            sent_time_s=BEGAN_NS // 10**9,
            body=self._dice.randbytes(self._dice.choice(BODY_BYTES)),
            label=f"order {number}",
            transaction=transaction,
        )
        header = transaction_header.encode(transaction)
        data = encode_packet(message)
        return data, data.index(header) + transaction_header.offset_of("tx_sequence_number")

    def _order_ack(self) -> bytes:
        acknowledged = self._count[Side.CLIENT].sent
        body = OrderAckBody(self._sequence, acknowledged, acknowledged - 1)
        return encode_packet(
            OrderAck(
                source=self.destination,
                destination_manager=self.guid,
                destination=4,
                message_id=self._batches // ORDER_ACK_EVERY * self._of + self._number,
                sent_time_s=BEGAN_NS // 10**9,
                body=body,
            ).message()
        )

    def _session_ack(self, side: Side, saved: int) -> bytes:
        count = self._count[side]
        recoverable = side is Side.CLIENT  # OrderAcks are express.
        header = SessionHeader(
            ack_sequence_number=count.received & 0xFFFF,
            recoverable_msg_ack_seq_number=(count.received - saved + 1) & 0xFFFF if saved else 0,
            recoverable_msg_ack_flags=(1 << saved) - 1,
            user_msg_sequence_number=count.sent & 0xFFFF,
            recoverable_msg_seq_number=count.sent & 0xFFFF if recoverable else 0,
        )
        return encode_packet(SessionAck(session=header))

    def _send(self, side: Side, data: bytes) -> None:
        for frame in self._segments.leave_data(side, data):
            self._capture.write(frame)
        self._segments.arrive(side.other)


def write_capture(path: Path, packets: int, connections: int = 64, seed: int = 1) -> int:
    """Write a pcapng file of at least `packets` packets, one per segment. Return their actual number.

    Args:
        connections: the number of senders, which take turns with one batch each; at most 65,536.
    """
    dice = random.Random(seed)
    with path.open("wb") as file:
        capture = _Capture(file)
        senders = [_Sender(number, connections, dice, capture) for number in range(connections)]
        for sender in senders:
            sender.open()
        while capture.frame_count - 3 * connections < packets:
            for sender in senders:
                sender.batch()
        capture.finish()
    return capture.frame_count - 3 * connections


if __name__ == "__main__":
    print(f"{write_capture(Path(sys.argv[1]), *map(int, sys.argv[2:])):,} packets")
