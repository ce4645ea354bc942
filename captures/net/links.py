"""Link layers: where the IP packet begins in a frame.

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
VLAN_TAGS: Final = frozenset({0x8100, 0x88A8, 0x9100})
MAX_TAGS: Final = 4

FAMILIES: Final = frozenset({2, 10, 24, 28, 30})
"""What operating systems call IPv4 and IPv6 in a loopback's header."""

_half = struct.Struct("!H")


def ip_start(link_type: int, frame: bytes) -> int | None:
    """Where the IP packet begins in a frame; None if it holds none, or if the link layer is not known."""
    find = _STARTS.get(link_type)
    start = find(frame) if find is not None else None
    return start if start is not None and start < len(frame) else None


def is_known(link_type: int) -> bool:
    """Whether frames of this link layer are read."""
    return link_type in _STARTS


def _behind_type(frame: bytes, at: int) -> int | None:
    """Behind the EtherType at `at`, and the VLAN tags that it may announce.  [IEEE 802.1Q] 9.4"""
    for _ in range(MAX_TAGS + 1):
        if at + 2 > len(frame):
            return None
        (ether_type,) = _half.unpack_from(frame, at)
        if ether_type in VLAN_TAGS:
            at += 4
            continue
        return at + 2 if ether_type in (IPV4, IPV6) else None
    return None


def _ethernet(frame: bytes) -> int | None:
    return _behind_type(frame, 12)


def _linux_cooked(frame: bytes) -> int | None:
    return _behind_type(frame, 14)


def _linux_cooked_2(frame: bytes) -> int | None:
    """The EtherType comes first in this one; a tag would stand behind the header."""
    if len(frame) < 20:
        return None
    (ether_type,) = _half.unpack_from(frame)
    if ether_type in VLAN_TAGS:
        return _behind_type(frame, 22)
    return 20 if ether_type in (IPV4, IPV6) else None


def _loopback(frame: bytes) -> int | None:
    """Four bytes with an address family, in the byte order of the machine that wrote it."""
    families = {int.from_bytes(frame[:4], "little"), int.from_bytes(frame[:4], "big")}
    return 4 if families & FAMILIES else None


def _raw(frame: bytes) -> int:
    return 0


_STARTS: Final[dict[int, Callable[[bytes], int | None]]] = {
    NULL: _loopback,
    ETHERNET: _ethernet,
    LOOP: _loopback,
    LINUX_COOKED: _linux_cooked,
    LINUX_COOKED_2: _linux_cooked_2,
    **dict.fromkeys(RAW, _raw),
}
