"""Reads the headers of many frames at once: those of link layers and IP.

The results are exactly those of mqproto.captures.net.links and mqproto.captures.net.ip for each frame. Fragments,
extension headers and damaged frames are left to those modules. Positions are those in the mapped file.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mqproto.captures.net.ip import EXTENSIONS, FRAGMENT_OFFSET, IPV4_HEADER, IPV6_HEADER, MORE_FRAGMENTS
from mqproto.captures.net.links import (
    ETHERNET,
    FAMILIES,
    IPV4,
    IPV6,
    KNOWN,
    LINUX_COOKED,
    LINUX_COOKED_2,
    LOOP,
    MAX_TAGS,
    NULL,
    RAW,
    VLAN_TAGS,
)
from mqproto.captures.pipeline.source.records import Data, Integers, gather

NO_PLACE: Final = -1


def layout(header: struct.Struct, names: str) -> np.dtype[np.void]:
    """Return the numpy data type that describes a header.

    Args:
        header: the header, in network byte order.
        names: the names of its fields.
    """
    codes = {"B": "u1", "H": ">u2", "I": ">u4", "4s": "V4", "16s": "V16"}
    fields = re.findall(r"\d*[A-Za-z]", header.format)
    return np.dtype([(name, codes[code]) for name, code in zip(names.split(), fields, strict=True)])


IPV4_LAYOUT: Final = layout(
    IPV4_HEADER, "head service size identification fragment hops protocol checksum source destination"
)
IPV6_LAYOUT: Final = layout(IPV6_HEADER, "head size protocol hops source destination")
HALF: Final = np.dtype([("value", ">u2")])
BYTE: Final = np.dtype([("value", "u1")])


class Datagrams(NamedTuple):
    """The contents of IP packets of one version.

    row: the index of each packet's frame.
    source, destination: the addresses as stored in the file.
    start, end: where the payload begins and ends, as far as it was captured.
    cut: the number of payload bytes that the capture cut off.
    """

    row: Integers
    source: npt.NDArray[np.void]
    destination: npt.NDArray[np.void]
    protocol: Integers
    start: Integers
    end: Integers
    cut: Integers

    def of(self, protocol: int) -> Datagrams:
        """Return the datagrams that carry one protocol."""
        rows = np.flatnonzero(self.protocol == protocol)
        if len(rows) == len(self.row):
            return self
        return Datagrams(
            self.row[rows],
            self.source[rows],
            self.destination[rows],
            self.protocol[rows],
            self.start[rows],
            self.end[rows],
            self.cut[rows],
        )


def ip_starts(data: Data, link_type: int, start: Integers, size: Integers) -> Integers:
    """Return where the IP packets begin in frames of one link layer.

    This does the same as `mqproto.captures.net.links.ip_start`. The result is NO_PLACE for frames without an IP packet.
    """
    end = start + size
    if link_type not in KNOWN:
        return np.full(len(start), NO_PLACE, np.int64)
    if link_type in RAW:
        found = start.copy()
    elif link_type in (NULL, LOOP):
        found = _behind_family(data, start, end)
    elif link_type == LINUX_COOKED_2:
        found = _behind_cooked_2(data, start, end)
    else:
        found = _behind_types(data, start + TYPE_PLACES[link_type], end)
    found[found >= end] = NO_PLACE
    return found


TYPE_PLACES: Final = {ETHERNET: 12, LINUX_COOKED: 14}
"""The offset of the EtherType in a link-layer header, keyed by link type."""
COOKED_2_BYTES: Final = 20


def _behind_types(data: Data, at: Integers, end: Integers) -> Integers:
    """Return the places that follow the EtherTypes at `at` and any VLAN tags there.  [IEEE 802.1Q] 9.4"""
    found = np.full(len(at), NO_PLACE, np.int64)
    rows = np.arange(len(at))
    for _ in range(MAX_TAGS + 1):
        rows = rows[at[rows] + 2 <= end[rows]]
        types = _halves(data, at[rows])
        is_ip = (types == IPV4) | (types == IPV6)
        found[rows[is_ip]] = at[rows[is_ip]] + 2
        if is_ip.all():
            break
        rows = rows[np.isin(types, [*VLAN_TAGS])]
        at = at.copy()
        at[rows] += 4
    return found


def _behind_cooked_2(data: Data, start: Integers, end: Integers) -> Integers:
    found = np.full(len(start), NO_PLACE, np.int64)
    rows = np.flatnonzero(start + COOKED_2_BYTES <= end)
    types = _halves(data, start[rows])
    plain = rows[(types == IPV4) | (types == IPV6)]
    found[plain] = start[plain] + COOKED_2_BYTES
    tagged = rows[np.isin(types, [*VLAN_TAGS])]
    found[tagged] = _behind_types(data, start[tagged] + COOKED_2_BYTES + 2, end[tagged])
    return found


def _behind_family(data: Data, start: Integers, end: Integers) -> Integers:
    """Return the places that follow the address family.

    It has four bytes, in the byte order of the machine that wrote them.
    """
    found = np.full(len(start), NO_PLACE, np.int64)
    rows = np.flatnonzero(start + 4 <= end)
    families = gather(data, start[rows], np.dtype([("little", "<u4")]))["little"]
    known = np.isin(families, [*FAMILIES]) | np.isin(families.byteswap(), [*FAMILIES])
    found[rows[known]] = start[rows[known]] + 4
    return found


def datagrams_4(data: Data, row: Integers, at: Integers, end: Integers, missing: Integers) -> Datagrams:
    """Return the contents of whole IPv4 packets, as mqproto.captures.net.ip.IpReader.read does.

    Args:
        at: where the packets begin.
        end: where the frames end.
        missing: for each frame, how many of its bytes the capture left out.
    """
    fits = np.flatnonzero(at + IPV4_LAYOUT.itemsize <= end)
    row, at, end, missing = row[fits], at[fits], end[fits], missing[fits]
    head = gather(data, at, IPV4_LAYOUT)
    size = head["size"].astype(np.int64)
    header_bytes = (head["head"] & 0x0F).astype(np.int64) * 4
    start = at + header_bytes
    # Frames that were captured before the network card cut them up have a zero there.
    whole_end = np.where(size == 0, end + missing, at + size)
    captured_end = np.minimum(whole_end, end)
    whole = (head["fragment"] & (MORE_FRAGMENTS | FRAGMENT_OFFSET)) == 0
    good = (head["head"] >> 4 == 4) & (header_bytes >= IPV4_LAYOUT.itemsize) & (start <= captured_end) & whole
    return _datagrams(head, good, row, start, captured_end, whole_end)


def datagrams_6(data: Data, row: Integers, at: Integers, end: Integers, missing: Integers) -> Datagrams:
    """Return the contents of IPv6 packets without extension headers, as `datagrams_4` does for IPv4."""
    fits = np.flatnonzero(at + IPV6_LAYOUT.itemsize <= end)
    row, at, end, missing = row[fits], at[fits], end[fits], missing[fits]
    head = gather(data, at, IPV6_LAYOUT)
    size = head["size"].astype(np.int64)
    start = at + IPV6_LAYOUT.itemsize
    whole_end = np.where(size == 0, end + missing, start + size)
    captured_end = np.minimum(whole_end, end)
    good = (head["head"] >> 28 == 6) & ~np.isin(head["protocol"], [*EXTENSIONS])
    return _datagrams(head, good, row, start, captured_end, whole_end)


def _datagrams(
    head: npt.NDArray[np.void],
    good: npt.NDArray[np.bool_],
    row: Integers,
    start: Integers,
    end: Integers,
    whole_end: Integers,
) -> Datagrams:
    chosen = slice(None) if good.all() else np.flatnonzero(good)
    head = head[chosen]
    return Datagrams(
        row[chosen],
        head["source"],
        head["destination"],
        head["protocol"].astype(np.int64),
        start[chosen],
        end[chosen],
        (whole_end - end)[chosen],
    )


def versions(data: Data, at: Integers) -> Integers:
    """Return the IP version of the packet at each of these places."""
    return gather(data, at, BYTE)["value"].astype(np.int64) >> 4


def _halves(data: Data, at: Integers) -> Integers:
    return gather(data, at, HALF)["value"].astype(np.int64)
