"""Reads the headers of link layers, which say what a frame holds, and where that content begins.

The numbers are the LINKTYPE values that tcpdump.org lists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

NULL: Final = 0
ETHERNET: Final = 1
RAW: Final = frozenset({12, 14, 101, 228, 229})
LOOP: Final = 108
LINUX_COOKED: Final = 113
LINUX_COOKED_2: Final = 276

IPV4: Final = 0x0800
IPV6: Final = 0x86DD
IP_TYPES: Final = frozenset({IPV4, IPV6})
VLAN_TAGS: Final = frozenset({0x8100, 0x88A8, 0x9100})
MAX_TAGS: Final = 4

FAMILIES: Final = frozenset({2, 10, 24, 28, 30})
"""The numbers that stand for IPv4 and IPv6 in a loopback's header, on any operating system."""

Held = tuple[int, int]
"""An EtherType, and the offset of the content that it announces."""

_half = struct.Struct("!H")


def ip_start(link_type: int, frame: bytes) -> int | None:
    """Return where the IP packet begins in a frame; None if there is none, or if the link layer is unknown."""
    find = _STARTS.get(link_type)
    found = find(frame) if find is not None else None
    if found is None or found[0] not in IP_TYPES or found[1] >= len(frame):
        return None
    return found[1]


def held(link_type: int, frame: bytes) -> Held | None:
    """Return the content of a frame; None if the frame ends too early, or if the link layer is unknown."""
    find = _STARTS.get(link_type)
    return find(frame) if find is not None else None


def behind_type(frame: bytes, at: int) -> Held | None:
    """Return the type that the EtherType at `at` announces, after any VLAN tags.  [IEEE 802.1Q] 9.4"""
    for _ in range(MAX_TAGS + 1):
        if at + 2 > len(frame):
            return None
        (ether_type,) = _half.unpack_from(frame, at)
        if ether_type not in VLAN_TAGS:
            return ether_type, at + 2
        at += 4
    return ether_type, at - 2


def _ethernet(frame: bytes) -> Held | None:
    return behind_type(frame, 12)


def _linux_cooked(frame: bytes) -> Held | None:
    return behind_type(frame, 14)


def _linux_cooked_2(frame: bytes) -> Held | None:
    """Read a header that begins with the EtherType; a tag would follow the header."""
    if len(frame) < 20:
        return None
    (ether_type,) = _half.unpack_from(frame)
    return behind_type(frame, 22) if ether_type in VLAN_TAGS else (ether_type, 20)


def _loopback(frame: bytes) -> Held | None:
    """Read four bytes with an address family, in the byte order of the machine that wrote them."""
    families = {int.from_bytes(frame[:4], "little"), int.from_bytes(frame[:4], "big")}
    return (IPV4, 4) if families & FAMILIES else None


def _raw(frame: bytes) -> Held:
    return IPV4, 0


_STARTS: Final[dict[int, Callable[[bytes], Held | None]]] = {
    NULL: _loopback,
    ETHERNET: _ethernet,
    LOOP: _loopback,
    LINUX_COOKED: _linux_cooked,
    LINUX_COOKED_2: _linux_cooked_2,
    **dict.fromkeys(RAW, _raw),
}
KNOWN: Final = frozenset(_STARTS)
"""The link layers that are read; net/tunnels.py reads more."""
