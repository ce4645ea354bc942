"""Finds the content of a frame inside all its tunnels, with one table of encapsulations.

Port mirrors of switches and clouds, providers' lines and networks of containers wrap what they carry. Each line of
LAYERS says what follows one kind of header. Plain frames with TCP never need this table.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from mqproto.captures.net.ip import Datagram, IpReader
from mqproto.captures.net.links import (
    IP_TYPES,
    IPV4,
    IPV6,
    KNOWN,
    VLAN_TAGS,
    Held,
    behind_type,
    held,
    ip_start,
)
from mqproto.captures.net.tcp import PROTOCOL_TCP
from mqproto.captures.net.udp import PROTOCOL_UDP, UDP_HEADER

MAX_LAYERS: Final = 16
"""The largest number of headers that are followed in a frame.

A mirrored frame from a tenant's tunnel has 8, or 11 if it came over MPLS and PPPoE.
"""
MAX_PARTS: Final = 32
"""The largest number of labels, extensions or tags in one header."""

NOT_READ: Final = ", which is not read"
"""The end of the name of each kind of frame that may contain MSMQ, but is not read."""
NO_FRAME: Final = "a frame or a tunnel, damaged or cut off" + NOT_READ
TOO_DEEP: Final = "tunnels in tunnels" + NOT_READ
LENGTH_LIMIT: Final = 0x600
"""Numbers below this are lengths rather than EtherTypes.  [IEEE 802.3] 3.2.6"""


class Kind(enum.Enum):
    """The kind of number that identifies a layer; each value is the text for a number without a name."""

    LINK = "of link type {}"
    TYPE = "EtherType 0x{:04x}"
    LLC = "LLC 0x{:02x}"
    SNAP = "SNAP 0x{:010x}"
    PPP = "PPP 0x{:04x}"
    PROTOCOL = "IP protocol {}"
    PORT = "UDP to port {}"


class Layer(NamedTuple):
    """The next layer, and where it begins.

    zone: the tunnel's number, if addresses inside the tunnel may also be used elsewhere. A number that differs between
        the two directions of a connection, as in GTP and MPLS, is not a zone.
    """

    kind: Kind
    number: int
    at: int
    zone: str = ""


def datagram_in(link_type: int, data: bytes, missing_bytes: int, ip: IpReader) -> Datagram | str:
    """Return the innermost IP packet with TCP or UDP that a frame holds or completes.

    If there is none, return the frame's name.

    Args:
        missing_bytes: how many bytes the capture left out at the end of the frame.
        ip: puts fragments together, outside and inside tunnels.
    """
    start = ip_start(link_type, data)
    if start is None:
        return _unwrapped(Layer(Kind.LINK, link_type, 0), data, missing_bytes, ip)
    found = ip.read(data, start, missing_bytes)
    if isinstance(found, str) or found.protocol == PROTOCOL_TCP:
        return found
    layer = Layer(Kind.PROTOCOL, found.protocol, 0)
    return _unwrapped(layer, found.payload, found.missing_bytes, ip, found)


def _unwrapped(
    layer: Layer, data: bytes, missing_bytes: int, ip: IpReader, found: Datagram | None = None
) -> Datagram | str:
    """Return the innermost IP packet in the data after a header; if there is none, return a name for the frame.

    If a UDP packet holds no tunnel that can be read, that packet itself is returned.

    Args:
        found: the IP packet around the data, if any.
    """
    zone = ""
    for _ in range(MAX_LAYERS):
        if layer.kind is Kind.TYPE and layer.number in IP_TYPES:
            inner = ip.read(data, layer.at, missing_bytes, zone)
            if isinstance(inner, str) or inner.protocol == PROTOCOL_TCP:
                return inner
            found, data, missing_bytes = inner, inner.payload, inner.missing_bytes
            layer = Layer(Kind.PROTOCOL, found.protocol, 0)
        read = LAYERS.get(layer[:2])
        try:
            behind = None if read is None else read(data, layer.at)
        except (struct.error, IndexError):
            return NO_FRAME
        if behind is None and layer.kind is Kind.PORT and found is not None:
            return found
        if behind is None:
            return name_of(layer.kind, layer.number)
        layer = behind
        zone = f"{zone}.{layer.zone}" if zone and layer.zone else zone or layer.zone
    return TOO_DEEP


def name_of(kind: Kind, number: int) -> str:
    """Name a frame that holds something other than IP."""
    if kind is Kind.PPP and number >= 0x8000:
        return "control of PPP"
    return NAMES.get((kind, number)) or kind.value.format(number) + NOT_READ


def _ip(data: bytes, at: int, zone: str = "") -> Layer:
    """Return a layer of IP of either version; its first bits tell which."""
    return Layer(Kind.TYPE, IPV4, at, zone)


def _typed(data: bytes, found: Held | None, zone: str = "") -> Layer:
    """Return the layer that an EtherType announces, or LLC if there is a length in place of the EtherType."""
    number, at = found or (0, len(data))
    if number >= LENGTH_LIMIT:
        return Layer(Kind.TYPE, number, at, zone)
    return Layer(Kind.LLC, data[at], at, zone)


def _ethernet(data: bytes, at: int, zone: str = "") -> Layer:
    return _typed(data, behind_type(data, at + 12), zone)


def _snap(data: bytes, at: int) -> Layer:
    """Read SNAP, [IEEE 802] 9.2.3: an EtherType follows an OUI of 0, or of 0xF8, which bridges use."""
    number = int.from_bytes(data[at + 3 : at + 8].ljust(5, b"\xff"), "big")
    if number >> 16 in (0, 0xF8):
        return Layer(Kind.TYPE, number & 0xFFFF, at + 8)
    return Layer(Kind.SNAP, number, at + 8)


def _ppp(data: bytes, at: int) -> Layer:
    """Read PPP, in which address and control are optional.  [RFC 1661] 2, [RFC 1662] 3.1

    A protocol number has one byte if its first byte is an odd number, otherwise two.
    """
    if data[at : at + 2] == b"\xff\x03":
        at += 2
    size = 1 if data[at] & 1 else 2
    return Layer(Kind.PPP, int.from_bytes(data[at : at + size], "big"), at + size)


def _pppoe(data: bytes, at: int) -> Layer:
    """Read PPPoE, [RFC 2516] 4."""
    return _ppp(data, at + 6)


def _mpls(data: bytes, at: int) -> Layer:
    """Skip the labels of MPLS; the bits after them tell IP from Ethernet, perhaps with a control word. [RFC 3032], [RFC
    4385]
    """
    for _ in range(MAX_PARTS):
        is_last = data[at + 2] & 1
        at += 4
        if is_last:
            break
    first = data[at] >> 4
    if first in (4, 6):
        return _ip(data, at)
    controlled = _ethernet(data, at + 4)
    return controlled if not first and _is_known(controlled) else _ethernet(data, at)


def _is_known(layer: Layer) -> bool:
    return layer.number in IP_TYPES or layer[:2] in LAYERS or layer[:2] in NAMES


def _gre(data: bytes, at: int) -> Layer | None:
    """Read GRE, [RFC 2784], [RFC 2890]; version 1 is PPTP's, [RFC 2637] 4.1.

    In NVGRE, [RFC 7637] 3.2, the upper 24 bits of the key are the tenant's number, which is at least 0x1000; the lower
    bits differ by flow.
    """
    flags, number = struct.unpack_from("!HH", data, at)
    at += 4
    if flags & 0x4007 > 1:
        return None
    at += 4 if flags & 0x8000 else 0
    zone = ""
    if flags & 0x2000:
        (key,) = struct.unpack_from("!I", data, at)
        at += 4
        if number == BRIDGED and key >> 8 >= 0x1000:
            zone = f"nvgre{key >> 8}"
        elif not flags & 1:
            zone = f"gre{key}"
    at += 4 if flags & 0x1000 else 0
    at += 4 if flags & 0x81 == 0x81 else 0
    # ERSPAN of the first type has no header of its own; the missing sequence number tells.
    if number == ERSPAN and not flags & 0x1000:
        number = BRIDGED
    return Layer(Kind.TYPE, number, at, zone)


def _erspan(data: bytes, at: int) -> Layer:
    """Read ERSPAN, [draft-foschiano-erspan] 4; the third type may have a subheader, and may mirror IP."""
    first, second = struct.unpack_from("!HH", data, at)
    zone = f"erspan{second & 0x3FF}"
    if first >> 12 != 2:
        return _ethernet(data, at + 8, zone)
    (last,) = struct.unpack_from("!H", data, at + 10)
    at += 20 if last & 1 else 12
    return _ip(data, at, zone) if last >> 10 & 0x1F == 2 else _ethernet(data, at, zone)


def _udp(data: bytes, at: int) -> Layer:
    return Layer(Kind.PORT, int.from_bytes(data[at + 2 : at + 4], "big"), at + UDP_HEADER.size)


def _vxlan(data: bytes, at: int) -> Layer | None:
    """Read VXLAN, [RFC 7348] 5, with the number of the next protocol from [draft-ietf-nvo3-vxlan-gpe]."""
    flags, following, network = struct.unpack_from("!BxxBI", data, at)
    if not flags & 0x08:
        return None
    zone = f"vxlan{network >> 8}"
    number = {1: IPV4, 2: IPV6, 3: BRIDGED, 5: MPLS}.get(following, 0) if flags & 0x04 else BRIDGED
    return Layer(Kind.TYPE, number, at + 8, zone) if number else None


def _geneve(data: bytes, at: int) -> Layer | None:
    """Read Geneve, [RFC 8926] 3.4."""
    head, _, number, network = struct.unpack_from("!BBHI", data, at)
    if head & 0xC0:
        return None
    return Layer(Kind.TYPE, number, at + 8 + (head & 0x3F) * 4, f"geneve{network >> 8}")


def _gtp(data: bytes, at: int) -> Layer | None:
    """Read GTP, [3GPP TS 29.281] 5.1, 5.2."""
    head, number = struct.unpack_from("!BB", data, at)
    if head & 0xF0 != 0x30 or number != 0xFF:
        return None
    at += 8
    at += 4 if head & 0x07 else 0
    for _ in range(MAX_PARTS if head & 0x04 else 0):
        if not data[at - 1]:
            break
        at += data[at] * 4
    return _ip(data, at)


def _tzsp(data: bytes, at: int) -> Layer | None:
    """Read TZSP, which routers of MikroTik and others use for mirrored traffic.

    It has tags, of which 0 is padding and 1 is the last one, and then Ethernet.
    """
    head, link = struct.unpack_from("!HH", data, at)
    at += 4
    if head != 0x0100 or link != 1:
        return None
    for _ in range(MAX_PARTS):
        tag = data[at]
        at += 1 if tag < 2 else 2 + data[at + 1]
        if tag == 1:
            break
    return _ethernet(data, at)


def _l2tp(data: bytes, at: int) -> Layer | None:
    """Read L2TP, [RFC 2661] 3.1."""
    (flags,) = struct.unpack_from("!H", data, at)
    if flags & 0x800F != 2:
        return None
    at += 6 + 2 * bool(flags & 0x4000) + 4 * bool(flags & 0x0800)
    if flags & 0x0200:
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return _ppp(data, at)


def _backbone(data: bytes, at: int) -> Layer:
    """Read a backbone bridge's service tag, [IEEE 802.1Q] 9.7."""
    return _ethernet(data, at + 4, f"isid{int.from_bytes(data[at + 1 : at + 4], 'big')}")


def _link(link_type: int) -> Reader:
    def read(data: bytes, at: int) -> Layer | None:
        found = held(link_type, data)
        return None if found is None else _typed(data, found)

    return read


def _tag(size_bytes: int) -> Reader:
    """Return a reader of a tag that is followed by an EtherType."""
    return lambda data, at: _typed(data, behind_type(data, at + size_bytes - 2))


Reader = Callable[[bytes, int], Layer | None]
"""Returns the layer after the header at an offset; None if the header is of another kind or has nothing after it.

Raises struct.error or IndexError if the header is cut short.
"""
BRIDGED: Final = 0x6558
ERSPAN: Final = 0x88BE
MPLS: Final = 0x8847


LAYERS: Final[dict[tuple[Kind, int], Reader]] = {
    **{(Kind.LINK, number): _link(number) for number in KNOWN},
    (Kind.LINK, 9): _ppp,
    (Kind.LINK, 50): _ppp,
    (Kind.LINK, 51): _pppoe,
    (Kind.LINK, 104): _tag(4),  # HDLC of Cisco
    (Kind.LINK, 219): _mpls,
    (Kind.LLC, 0x06): lambda data, at: _ip(data, at + 3),
    (Kind.LLC, 0xAA): _snap,
    (Kind.TYPE, BRIDGED): _ethernet,
    (Kind.TYPE, ERSPAN): _erspan,
    (Kind.TYPE, 0x22EB): _erspan,
    (Kind.TYPE, MPLS): _mpls,
    (Kind.TYPE, 0x8848): _mpls,
    (Kind.TYPE, 0x8864): _pppoe,
    (Kind.TYPE, 0x880B): _ppp,
    (Kind.TYPE, 0x88E7): _backbone,
    **dict.fromkeys(((Kind.TYPE, number) for number in VLAN_TAGS), _tag(4)),
    (Kind.TYPE, 0x892F): _tag(6),  # HSR
    (Kind.TYPE, 0x8926): _tag(6),  # VN-Tag of Cisco
    (Kind.TYPE, 0x893F): _tag(8),  # E-Tag, [IEEE 802.1BR]
    (Kind.TYPE, 0x8909): _tag(8),  # security groups of Cisco
    (Kind.PPP, 0x0021): _ip,
    (Kind.PPP, 0x0057): _ip,
    (Kind.PPP, 0x0281): _mpls,
    (Kind.PPP, 0x0283): _mpls,
    (Kind.PROTOCOL, 4): _ip,
    (Kind.PROTOCOL, 41): _ip,
    (Kind.PROTOCOL, 47): _gre,
    (Kind.PROTOCOL, 97): lambda data, at: _ethernet(data, at + 2),  # [RFC 3378]
    (Kind.PROTOCOL, 137): _mpls,
    (Kind.PROTOCOL, PROTOCOL_UDP): _udp,
    (Kind.PORT, 1701): _l2tp,
    (Kind.PORT, 2152): _gtp,
    (Kind.PORT, 4754): _gre,
    (Kind.PORT, 4789): _vxlan,
    (Kind.PORT, 4790): _vxlan,
    (Kind.PORT, 6081): _geneve,
    (Kind.PORT, 6635): _mpls,
    (Kind.PORT, 8472): _vxlan,
    (Kind.PORT, 37008): _tzsp,
}

NAMES: Final = {
    # Names of frames that carry no user data.
    (Kind.LLC, 0x42): "STP",
    (Kind.SNAP, 0x00000C010B): "STP",
    (Kind.SNAP, 0x00000C2000): "CDP",
    (Kind.SNAP, 0x00000C2003): "VTP",
    (Kind.SNAP, 0x00000C2004): "DTP",
    (Kind.TYPE, 0x0000): "keepalives of GRE",
    (Kind.TYPE, 0x0806): "ARP",
    (Kind.TYPE, 0x8035): "RARP",
    (Kind.TYPE, 0x8808): "flow control",
    (Kind.TYPE, 0x8809): "LACP",
    (Kind.TYPE, 0x8863): "discovery of PPPoE",
    (Kind.TYPE, 0x888E): "EAPOL",
    (Kind.TYPE, 0x88CC): "LLDP",
    (Kind.TYPE, 0x88F7): "PTP",
    (Kind.TYPE, 0x9000): "loopback tests",
    (Kind.PROTOCOL, 1): "ICMP",
    (Kind.PROTOCOL, 2): "IGMP",
    (Kind.PROTOCOL, 58): "ICMPv6",
    (Kind.PROTOCOL, 59): "nothing behind IP",
    (Kind.PROTOCOL, 88): "EIGRP",
    (Kind.PROTOCOL, 89): "OSPF",
    (Kind.PROTOCOL, 103): "PIM",
    (Kind.PROTOCOL, 112): "VRRP",
    # Names of frames whose content we cannot see.
    (Kind.TYPE, 0x88E5): "MACsec" + NOT_READ,
    (Kind.PPP, 0x00FD): "PPP, packed or encrypted" + NOT_READ,
    (Kind.PROTOCOL, 47): "GRE" + NOT_READ,
    (Kind.PROTOCOL, 50): "ESP" + NOT_READ,
    (Kind.PROTOCOL, 108): "IPComp" + NOT_READ,
    (Kind.PROTOCOL, 115): "L2TPv3" + NOT_READ,
    (Kind.PROTOCOL, 132): "SCTP" + NOT_READ,
}
"""The usual names of protocols that are not in LAYERS."""

TUNNEL_PORTS: Final = tuple(number for kind, number in LAYERS if kind is Kind.PORT)
"""The UDP ports that tunnels go to."""
