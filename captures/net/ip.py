"""Reads IP packets: their addresses and payloads, and fragments, which it puts together.  [RFC 791], [RFC 8200]"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

IPV4_HEADER: Final = struct.Struct("!BBHHHBBH4s4s")
IPV6_HEADER: Final = struct.Struct("!IHBB16s16s")

DONT_FRAGMENT: Final = 0x4000
MORE_FRAGMENTS: Final = 0x2000
FRAGMENT_OFFSET: Final = 0x1FFF

# IPv6 extension headers; all but the fragment's and AH's state their length in units of 8 bytes.  [RFC 8200] 4
FRAGMENT: Final = 44
AUTHENTICATION: Final = 51
EXTENSIONS: Final = frozenset({0, 43, 60, 135, 139, 140, FRAGMENT, AUTHENTICATION})
MAX_EXTENSIONS: Final = 16

DAMAGED_IP: Final = "damaged IP, which is not read"
FRAGMENT_OF_IP: Final = "fragments of IP"
"""The text that is returned instead of a datagram while fragments are missing."""

MAX_PACKET_BYTES: Final = 65_535
MAX_FRAGMENT_COUNT: Final = 256
"""The largest number of fragments of a packet.

Nobody makes more in good faith, and each fragment has to be compared with the others.
"""
MAX_PARTIAL_COUNT: Final = 256
"""The largest number of packets that may wait for fragments; beyond this, the oldest is given up."""


Key = tuple[bytes, bytes, int, int, str]


class Datagram(NamedTuple):
    """The content of one IP packet.

    source, destination: the addresses, 4 or 16 bytes each.
    missing_bytes: how many bytes the capture left out at the end of the payload.
    zone: the tunnel in which the addresses are valid; empty outside all tunnels.
    """

    source: bytes
    destination: bytes
    protocol: int
    payload: bytes
    missing_bytes: int
    zone: str = ""


class Fragment(NamedTuple):
    """One fragment of a packet.

    key: source, destination, protocol, identification and zone, which all fragments of one packet share.
    offset: the place of the fragment's first byte in the packet's payload.
    more: whether another fragment follows this one.
    missing_bytes: as in a Datagram.
    """

    key: Key
    offset: int
    more: bool
    payload: bytes
    missing_bytes: int


@dataclass(slots=True)
class _Partial:
    """A packet of which only some fragments have arrived."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    whole_bytes: int | None = None
    held_bytes: int = 0


class IpReader:
    """Takes IP packets, and returns their contents; fragments wait for one another.

    Attributes:
        given_up_count: how many packets were never whole, or had fragments that contradicted one another.
    """

    def __init__(self) -> None:
        self.given_up_count = 0
        self._partial: OrderedDict[Key, _Partial] = OrderedDict()

    @property
    def waiting_count(self) -> int:
        """The number of packets of which only some fragments have arrived."""
        return len(self._partial)

    def read(self, frame: bytes, start: int, missing_bytes: int = 0, zone: str = "") -> Datagram | str:
        """Return the datagram that begins at `start`; if it is damaged or not whole yet, return the reason.

        Args:
            missing_bytes: how many bytes the capture left out at the end of the frame.
            zone: as in a Datagram.
        """
        version = frame[start] >> 4 if start < len(frame) else 0
        whole_bytes = len(frame) + missing_bytes
        if version == 4:
            return self._read_4(frame, start, whole_bytes, zone)
        return self._read_6(frame, start, whole_bytes, zone) if version == 6 else DAMAGED_IP

    def _read_4(self, frame: bytes, start: int, whole_bytes: int, zone: str) -> Datagram | str:
        if len(frame) < start + IPV4_HEADER.size:
            return DAMAGED_IP
        head, _, size_bytes, identification, fragment, _, protocol, _, source, destination = (
            IPV4_HEADER.unpack_from(frame, start)
        )
        header_bytes = (head & 0x0F) * 4
        # Frames that were captured before the network card cut them up have a zero there.
        end = start + size_bytes if size_bytes else whole_bytes
        payload_start = start + header_bytes
        if header_bytes < IPV4_HEADER.size or payload_start > min(end, len(frame)):
            return DAMAGED_IP
        # What follows the packet is padding of the link.
        payload = frame[payload_start:end]
        missing_bytes = max(0, end - len(frame))
        if fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET):
            more, offset = bool(fragment & MORE_FRAGMENTS), (fragment & FRAGMENT_OFFSET) * 8
            key = (source, destination, protocol, identification, zone)
            return self.add(Fragment(key, offset, more, payload, missing_bytes)) or FRAGMENT_OF_IP
        return Datagram(source, destination, protocol, payload, missing_bytes, zone)

    def _read_6(self, frame: bytes, start: int, whole_bytes: int, zone: str) -> Datagram | str:
        if len(frame) < start + IPV6_HEADER.size:
            return DAMAGED_IP
        _, size_bytes, protocol, _, source, destination = IPV6_HEADER.unpack_from(frame, start)
        at = start + IPV6_HEADER.size
        end = at + size_bytes if size_bytes else whole_bytes
        for _ in range(MAX_EXTENSIONS):
            if protocol not in EXTENSIONS:
                missing_bytes = max(0, end - len(frame))
                return Datagram(source, destination, protocol, frame[at:end], missing_bytes, zone)
            if at + 8 > min(end, len(frame)):
                return DAMAGED_IP
            following = frame[at]
            if protocol == FRAGMENT:
                offset, identification = struct.unpack_from("!HI", frame, at + 2)
                key = (source, destination, following, identification, zone)
                payload = frame[at + 8 : end]
                missing_bytes = max(0, end - len(frame))
                if offset & ~0b110:
                    piece = Fragment(key, offset & ~0b111, bool(offset & 1), payload, missing_bytes)
                    return self.add(piece) or FRAGMENT_OF_IP
                at += 8
            elif protocol == AUTHENTICATION:
                at += (frame[at + 1] + 2) * 4  # [RFC 4302] 2.2
            else:
                at += (frame[at + 1] + 1) * 8
            if at > min(end, len(frame)):
                return DAMAGED_IP
            protocol = following
        return DAMAGED_IP

    def add(self, fragment: Fragment) -> Datagram | None:
        """Return the datagram if this was its last missing fragment, otherwise None.

        An overlap voids the whole packet, as in [RFC 5722]: nobody sends overlapping fragments in good faith.
        """
        key, offset, more, payload, missing_bytes = fragment
        partial = self._partial.get(key)
        if partial is None:
            partial = self._partial[key] = _Partial()
            if len(self._partial) > MAX_PARTIAL_COUNT:
                self._partial.popitem(last=False)
                self.given_up_count += 1
        if partial.pieces.get(offset) == payload:
            return None  # the same again
        end = offset + len(payload)
        if not more:
            partial.whole_bytes = end
        overlaps = any(offset < at + len(piece) and at < end for at, piece in partial.pieces.items())
        beyond = partial.whole_bytes is not None and (
            end > partial.whole_bytes or any(at >= partial.whole_bytes for at in partial.pieces)
        )
        too_many = len(partial.pieces) >= MAX_FRAGMENT_COUNT or end > MAX_PACKET_BYTES
        if missing_bytes or overlaps or beyond or too_many or not payload:
            del self._partial[key]
            self.given_up_count += 1
            return None
        partial.pieces[offset] = payload
        partial.held_bytes += len(payload)
        if partial.held_bytes != partial.whole_bytes:
            return None
        del self._partial[key]
        source, destination, protocol, _, zone = key
        whole = b"".join(partial.pieces[at] for at in sorted(partial.pieces))
        return Datagram(source, destination, protocol, whole, 0, zone)
