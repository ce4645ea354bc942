"""Finds the packets in a stream of bytes, and judges each of them by its head.  [MS-MQMQ] 2.2.19.1"""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.wire.layouts.base import (
    MAXIMUM_PACKET_SIZE,
    SIGNATURE,
    SMALLEST_INTERNAL_PACKET,
    SMALLEST_USER_MESSAGE,
    VERSION_NUMBER,
    BaseHeader,
    announced,
    base_header,
)
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, Packet, UserMessage

HEAD_SIZE: Final = base_header.sizeof()
SESSION_HEADER_SIZE: Final = session_header.sizeof()

_unpack_head = struct.Struct(
    base_header.struct_format("version_number", "flags", "signature", "packet_size")
).unpack_from
_INTERNAL: Final = BaseHeader.internal.mask
_INTERNAL_OR_SESSION: Final = BaseHeader.internal.mask | BaseHeader.session_header.mask
_SESSION: Final = BaseHeader.session_header.mask
_SIZE_AT: Final = base_header.offset_of("packet_size")

_KINDS: Final[dict[int, type[Packet]]] = {
    record.sizeof(): record.kind for record in INTERNAL_PACKETS.values()
}
"""The kinds of internal packets, keyed by size; no two have the same size.  [MS-MQQB] 2.2.2, 2.2.3, 2.2.6"""
assert len(_KINDS) == len(INTERNAL_PACKETS)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The packets that may come next, recognized by IN and PacketSize in their first 16 bytes.

    message_limit_bytes: the highest PacketSize of a UserMessage; 0 if no UserMessage may come.
    internal_sizes: the PacketSizes that an internal packet may have.
    """

    message_limit_bytes: int
    internal_sizes: Container[int]

    @classmethod
    def of(cls, *kinds: type[Packet]) -> Welcome:
        """Return a Welcome for these kinds of packets only."""
        sizes = frozenset(size for size, kind in _KINDS.items() if kind in kinds)
        return cls(MAXIMUM_PACKET_SIZE if UserMessage in kinds else 0, sizes)


ANYTHING: Final = Welcome(MAXIMUM_PACKET_SIZE, range(SMALLEST_INTERNAL_PACKET, MAXIMUM_PACKET_SIZE + 1))
"""A Welcome for analysts. With it, even an internal packet of a wrong size can be shown."""


class UnwelcomeError(WireFormatError):
    """The head of a packet is valid, but a packet of this kind may not come now."""

    def __init__(self, kind: type[Packet], size: int) -> None:
        limit = f"that of a packet that may come now, which a {kind.__name__} is not"
        super().__init__("base.packet_size", _SIZE_AT, size, limit, "[MS-MQQB] 3.1.5")
        self.kind = kind


class PacketBuffer:
    """Takes bytes as they arrive, and returns whole packets.

    A packet extends from its BaseHeader to its last padding byte. If a UserMessage has SH set, the SessionHeader beyond
    PacketSize is included. The first 16 bytes of a packet are checked before more bytes are kept: they must announce a
    packet of a kind and size that is allowed now. The buffer keeps the bytes of one incomplete packet. It does not
    search for `LIOR`, which may be in any field.

    If packets precede a fault, they are returned, the fault is kept in `fault`, and the next `feed` raises it.
    Otherwise, `feed` raises it at once. After a fault, the buffer stays closed.
    """

    __slots__ = ("_kept", "_needed", "_rest", "fault")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._needed = HEAD_SIZE
        self._rest = b""
        self.fault: WireFormatError | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that have arrived since the last returned packet."""
        return len(self._kept) + len(self._rest)

    @property
    def pending(self) -> bytes:
        """The bytes that have arrived since the last returned packet."""
        return bytes(self._kept) + self._rest

    @property
    def missing_bytes(self) -> int:
        """How many bytes of the unfinished packet are yet to come; 0 until its first 16 bytes have arrived."""
        return self._needed - len(self._kept) if len(self._kept) >= HEAD_SIZE else 0

    def feed(self, data: bytes | bytearray | memoryview, welcome: Welcome = ANYTHING) -> list[bytes]:
        """Return the packets that these bytes complete, in order.

        Args:
            welcome: the packets that may come next. If it allows no UserMessages, at most one packet is returned,
                because that packet decides what may follow it. The bytes after it are kept unjudged; `feed(b"")`
                continues with them.

        Raises:
            UnwelcomeError: the bytes after the last packet begin a packet that may not come now.
            WireFormatError: they do not begin a packet. The class docstring says what happens to earlier packets.
        """
        if self.fault is not None:
            raise self.fault
        if type(data) is not bytes:
            data = bytes(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        packets: list[bytes] = []
        at = 0
        alone = not welcome.message_limit_bytes
        try:
            if self._kept or alone:
                at = self._complete(data, packets, welcome)
                if self._kept:
                    return packets
            if alone:
                self._rest = data[at:]
            else:
                self._cut(data, at, packets, welcome)
        except WireFormatError as fault:
            self.fault = fault
            self._kept = bytearray()
            if not packets:
                raise
        return packets

    def _complete(self, data: bytes, packets: list[bytes], welcome: Welcome) -> int:
        """Continue the packet that is kept, or begin one. Return how many bytes of `data` it takes."""
        kept = self._kept
        at = 0
        if len(kept) < HEAD_SIZE:
            at = HEAD_SIZE - len(kept)
            kept += data[:at]
            if len(kept) < HEAD_SIZE:
                return len(data)
            self._needed = self._size_of(kept, welcome)
        missing = self._needed - len(kept)
        kept += data[at : at + missing]
        if len(kept) < self._needed:
            return len(data)
        packets.append(bytes(kept))
        self._kept = bytearray()
        return at + missing

    def _cut(self, data: bytes, at: int, packets: list[bytes], welcome: Welcome) -> None:
        """Cut whole packets from `data`, starting at `at`, and keep the rest.

        The loop repeats the code of `_size_of`, for speed.
        """
        limit, sizes, end = welcome.message_limit_bytes, welcome.internal_sizes, len(data)
        while end - at >= HEAD_SIZE:
            version, flags, signature, size = _unpack_head(data, at)
            whole = at + size
            if flags & _INTERNAL:
                fits = size in sizes
            else:
                fits = SMALLEST_USER_MESSAGE <= size <= limit
                if flags & _SESSION:
                    whole += SESSION_HEADER_SIZE
            if not fits or version != VERSION_NUMBER or signature != SIGNATURE:
                self._refuse(data[at : at + HEAD_SIZE])
            if whole > end:
                self._needed = whole - at
                break
            packets.append(data[at:whole])
            at = whole
        if at < end:
            self._kept += data[at:]

    def _size_of(self, head: bytearray, welcome: Welcome) -> int:
        """Judge the first 16 bytes of a packet. Return its size, including its SessionHeader."""
        version, flags, signature, size = _unpack_head(head)
        if flags & _INTERNAL:
            fits = size in welcome.internal_sizes
        else:
            fits = SMALLEST_USER_MESSAGE <= size <= welcome.message_limit_bytes
        if not fits or version != VERSION_NUMBER or signature != SIGNATURE:
            self._refuse(bytes(head[:HEAD_SIZE]))
        whole: int = size + SESSION_HEADER_SIZE if flags & _INTERNAL_OR_SESSION == _SESSION else size
        return whole

    def _refuse(self, head: bytes) -> None:
        """Raise the layout's error about these 16 bytes, or one which says that this packet may not come now."""
        announced(head)
        _, flags, _, size = _unpack_head(head)
        kind = _KINDS.get(size) if flags & _INTERNAL else UserMessage
        if kind is not None:
            raise UnwelcomeError(kind, size)
        known = ", ".join(map(str, sorted(_KINDS)))
        raise WireFormatError(
            "base.packet_size", _SIZE_AT, size, f"one of {known} with IN set", "[MS-MQQB] 2.2"
        )


class DroppingBuffer(PacketBuffer):
    """A PacketBuffer that may drop parts of a packet. It returns zeros in their place."""

    __slots__ = ("_dropped", "_hole_at", "_to_drop")

    def __init__(self) -> None:
        super().__init__()
        self._hole_at = self._dropped = self._to_drop = 0
        """Three numbers: the offset of the dropped bytes, how many were dropped, and how many are yet to drop.

        The offset is 0 if no bytes are being dropped.
        """

    @property
    def kept_bytes(self) -> int:
        """The number of bytes kept since the last returned packet."""
        return len(self._kept) + len(self._rest)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that have arrived since the last returned packet, whether or not they were kept."""
        return len(self._kept) + len(self._rest) + self._dropped

    @property
    def missing_bytes(self) -> int:
        """How many bytes of the unfinished packet are yet to come."""
        return super().missing_bytes + self._to_drop

    @property
    def is_hollow(self) -> bool:
        """Whether bytes of the unfinished packet are being dropped."""
        return self._hole_at > 0

    def drop(self, start: int, end: int) -> None:
        """Drop the bytes between two offsets of the unfinished packet.

        All bytes are kept if the offsets are not within the packet, or if no byte at or after `start` has arrived yet.
        """
        came = min(len(self._kept), end)
        if HEAD_SIZE <= start < came and end <= self._needed and not self._hole_at:
            del self._kept[start:came]
            self._hole_at, self._dropped, self._to_drop = start, came - start, end - came
            self._needed -= end - start

    def _complete(self, data: bytes, packets: list[bytes], welcome: Welcome) -> int:
        """Complete a packet, but do not keep the bytes that are to be dropped."""
        if not self._hole_at:
            return super()._complete(data, packets, welcome)
        at = min(self._to_drop, len(data))
        self._to_drop -= at
        self._dropped += at
        if self._to_drop:
            return at
        at += super()._complete(data[at:], packets, welcome)
        if packets:
            packet, start = packets[0], self._hole_at
            packets[0] = b"".join((packet[:start], bytes(self._dropped), packet[start:]))
            self._hole_at = self._dropped = 0
        return at
