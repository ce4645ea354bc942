"""Captures of any size for `mqproto bench analyse`: many senders, one destination, everything by the book.

python -m simulator.bulk FILE PACKETS [CONNECTIONS]
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from captures.conversation import Segments, Side
from captures.frame import Frame
from captures.pcapng import PcapngWriter
from captures.tcp import ACK, SYN, Endpoint
from mqproto.wire import (
    Guid,
    OrderAckBody,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    connection_parameters,
    encode_packet,
    establish_connection,
    order_ack,
    session_ack,
    user_message,
)
from mqproto.wire.base import base_header
from mqproto.wire.transaction import transaction_header
from mqproto.wire.user import user_header

BEGAN_NS: Final = 1_700_000_000_000_000_000
SPACING_NS: Final = 10_000
BATCH: Final = 32
"""So many messages cross before they are acknowledged; a SessionAck can say of 32 that they are saved."""
BODY_BYTES: Final = range(100, 900)
"""With the headers, packets of some 300 to 1,100 bytes."""
ORDER_ACK_EVERY: Final = 4
"""An OrderAck after so many batches."""

_MESSAGE_ID: Final = base_header.sizeof() + user_header.offset_of("message_id")


@dataclass(slots=True)
class _Count:
    """What one side has sent and received of messages, and where its stream is."""

    sent: int = 0
    received: int = 0


class _Sender:
    """One queue manager that sends orders over one connection, and what comes back on it."""

    def __init__(self, number: int, dice: random.Random) -> None:
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
        self._message = b""
        self._numbers_at = 0
        self._batches = 0

    def open(self) -> Iterator[bytes]:
        """TCP's handshake, and the session's."""
        for side, flags in ((Side.CLIENT, SYN), (Side.SERVER, SYN | ACK), (Side.CLIENT, ACK)):
            yield self._segments.leave(side, flags)
            self._segments.arrive(side.other)
        ask = establish_connection(client=self.guid, server=self.destination, time_stamp_ms=0)
        offer = connection_parameters(
            recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=2 * BATCH
        )
        for packet in (encode_packet(ask), encode_packet(offer)):
            yield from self._send(Side.CLIENT, packet)
            yield from self._send(Side.SERVER, packet)

    def batch(self) -> Iterator[bytes]:
        """Some orders, their session acknowledgment, and now and then an OrderAck."""
        for _ in range(BATCH):
            self._count[Side.CLIENT].sent += 1
            yield from self._send(Side.CLIENT, self._order(self._count[Side.CLIENT].sent))
        self._count[Side.SERVER].received += BATCH
        yield from self._send(Side.SERVER, self._session_ack(Side.SERVER, BATCH))
        self._batches += 1
        if self._batches % ORDER_ACK_EVERY == 0:
            self._count[Side.SERVER].sent += 1
            yield from self._send(Side.SERVER, self._order_ack())
            self._count[Side.CLIENT].received += 1
            yield from self._send(Side.CLIENT, self._session_ack(Side.CLIENT, 0))

    def _order(self, number: int) -> bytes:
        """The next order. One in each batch is encoded; the others differ in their numbers only."""
        if number % BATCH == 1:
            self._message, self._numbers_at = self._encoded(number)
        message = bytearray(self._message)
        struct.pack_into("<I", message, _MESSAGE_ID, number)
        struct.pack_into("<II", message, self._numbers_at, number, number - 1)
        return bytes(message)

    def _encoded(self, number: int) -> tuple[bytes, int]:
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
            order_ack(
                source=self.destination,
                destination_manager=self.guid,
                destination=4,
                message_id=self._batches << 16 | self._sequence.ordinal,
                sent_time_s=BEGAN_NS // 10**9,
                body=body,
            )
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
        return encode_packet(session_ack(header))

    def _send(self, side: Side, data: bytes) -> Iterator[bytes]:
        yield from self._segments.leave_data(side, data)
        self._segments.arrive(side.other)


def write_capture(path: Path, packets: int, connections: int = 64, seed: int = 1) -> int:
    """Write a pcapng file of at least so many packets, one a segment; how many they are.

    Args:
        connections: that many senders take turns, a batch each; at most 65,536.
    """
    dice = random.Random(seed)
    senders = [_Sender(number, dice) for number in range(connections)]
    frames = 0
    with path.open("wb") as file, PcapngWriter(file) as capture:

        def put(data: Iterator[bytes]) -> None:
            nonlocal frames
            for each in data:
                capture.write(Frame(BEGAN_NS + frames * SPACING_NS, each))
                frames += 1

        for sender in senders:
            put(sender.open())
        while frames - 3 * connections < packets:
            for sender in senders:
                put(sender.batch())
    return frames - 3 * connections


if __name__ == "__main__":
    print(f"{write_capture(Path(sys.argv[1]), *map(int, sys.argv[2:])):,} packets")
