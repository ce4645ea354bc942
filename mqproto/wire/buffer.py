"""Finds the packets in a stream of bytes.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

import struct
from typing import Final

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire import reference
from mqproto.wire.layouts.base import (
    MAXIMUM_PACKET_SIZE,
    SIGNATURE,
    SMALLEST_INTERNAL_PACKET,
    SMALLEST_USER_MESSAGE,
    VERSION_NUMBER,
    BaseHeader,
    base_header,
)
from mqproto.wire.layouts.session import session_header

HEAD_SIZE: Final = base_header.sizeof()
SESSION_HEADER_SIZE: Final = session_header.sizeof()

_unpack_head = struct.Struct(
    base_header.struct_format("version_number", "flags", "signature", "packet_size")
).unpack_from
_INTERNAL: Final = BaseHeader.internal.mask
_INTERNAL_OR_SESSION: Final = BaseHeader.internal.mask | BaseHeader.session_header.mask
_SESSION: Final = BaseHeader.session_header.mask


class PacketBuffer:
    """Bytes in as they arrive, whole packets out.

    A packet goes from its BaseHeader to its last padding byte, with the SessionHeader that lies beyond
    PacketSize where a UserMessage has SH set. PacketSize is judged on the first 16 bytes, before anything
    more is kept; what is kept for a peer is what it has sent of one packet. Nothing searches for `LIOR`,
    which may stand in any field.

    Packets that stand before a fault are returned, and the fault waits in `fault`; the next `feed` raises
    it, as does the one that finds a fault first thing. A stream that has once lost its way stays closed.

    Args:
        limit_bytes: the largest PacketSize to accept, at most that of the specification, 4 MiB.
    """

    __slots__ = ("_kept", "_limit", "_needed", "fault")

    def __init__(self, limit_bytes: int = MAXIMUM_PACKET_SIZE) -> None:
        if not SMALLEST_USER_MESSAGE <= limit_bytes <= MAXIMUM_PACKET_SIZE:
            raise UsageError(
                f"limit_bytes is {limit_bytes}, must be {SMALLEST_USER_MESSAGE} to {MAXIMUM_PACKET_SIZE}"
            )
        self._limit = limit_bytes
        self._kept = bytearray()
        self._needed = HEAD_SIZE
        self.fault: WireFormatError | None = None

    @property
    def pending_bytes(self) -> int:
        """How much of a packet that is not whole yet has arrived."""
        return len(self._kept)

    @property
    def pending(self) -> bytes:
        """What of that packet has arrived."""
        return bytes(self._kept)

    @property
    def missing_bytes(self) -> int:
        """How much of that packet is still to come; None of it is known before its first 16 bytes are there."""
        return self._needed - len(self._kept) if len(self._kept) >= HEAD_SIZE else 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The packets that these bytes complete, in order.

        Raises:
            WireFormatError: the bytes after the last packet begin none; see the class for packets before
            them.
        """
        if self.fault is not None:
            raise self.fault
        data = bytes(data)
        packets: list[bytes] = []
        at = 0
        try:
            if self._kept:
                at = self._complete(data, packets)
                if self._kept:
                    return packets
            self._cut(data, at, packets)
        except WireFormatError as fault:
            self.fault = fault
            self._kept = bytearray()
            if not packets:
                raise
        return packets

    def _complete(self, data: bytes, packets: list[bytes]) -> int:
        """Add to the packet that is kept; how many bytes of `data` that took."""
        kept = self._kept
        at = 0
        if len(kept) < HEAD_SIZE:
            at = HEAD_SIZE - len(kept)
            kept += data[:at]
            if len(kept) < HEAD_SIZE:
                return len(data)
            self._needed = self._size_at(kept, 0)
        missing = self._needed - len(kept)
        kept += data[at : at + missing]
        if len(kept) < self._needed:
            return len(data)
        packets.append(bytes(kept))
        self._kept = bytearray()
        return at + missing

    def _cut(self, data: bytes, at: int, packets: list[bytes]) -> None:
        """Cut whole packets from `at` on, and keep the rest.  The loop is `_size_at`, spelt out for speed."""
        limit, end = self._limit, len(data)
        while end - at >= HEAD_SIZE:
            version, flags, signature, size = _unpack_head(data, at)
            whole = at + size
            if flags & _INTERNAL_OR_SESSION == _SESSION:
                whole += SESSION_HEADER_SIZE
            smallest = SMALLEST_INTERNAL_PACKET if flags & _INTERNAL else SMALLEST_USER_MESSAGE
            if version != VERSION_NUMBER or signature != SIGNATURE or not smallest <= size <= limit:
                self._refuse(data[at : at + HEAD_SIZE])
            if whole > end:
                self._needed = whole - at
                break
            packets.append(data[at:whole])
            at = whole
        if at < end:
            self._kept += data[at:]

    def _size_at(self, data: bytearray, at: int) -> int:
        """The size of the packet that begins here, SessionHeader included, judged on its first 16 bytes."""
        version, flags, signature, size = _unpack_head(data, at)
        smallest = SMALLEST_INTERNAL_PACKET if flags & _INTERNAL else SMALLEST_USER_MESSAGE
        if version != VERSION_NUMBER or signature != SIGNATURE or not smallest <= size <= self._limit:
            self._refuse(bytes(data[at : at + HEAD_SIZE]))
        whole: int = size + SESSION_HEADER_SIZE if flags & _INTERNAL_OR_SESSION == _SESSION else size
        return whole

    def _refuse(self, head: bytes) -> None:
        """Raise what the layout has against these 16 bytes, or what our own limit has."""
        reference.judge_head(head)
        raise WireFormatError(
            "base.packet_size",
            base_header.offset_of("packet_size"),
            _unpack_head(head)[3],
            f"at most {self._limit:#x}, as this buffer was told",
            "[MS-MQMQ] 2.2.19.1",
        )
