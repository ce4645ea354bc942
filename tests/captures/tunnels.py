"""Frames of a capture in tunnels of each kind, as other programs would have caught them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.tcp import ip_frame
from tests.conformance import ROOT

SAMPLE: Final = ROOT / "captures" / "samples" / "gap-held.pcapng"
HERE, THERE = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
MACS: Final = b"\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02"

Wrap = Callable[[bytes], bytes]


def ip(protocol: int, *contents: bytes) -> bytes:
    """Return an Ethernet frame with an IPv4 packet that has these contents."""
    return ip_frame(HERE, THERE, protocol, 7, contents)


def ip6(protocol: int, *contents: bytes) -> bytes:
    head = struct.pack("!IHBB", 6 << 28, sum(map(len, contents)), protocol, 64)
    return MACS + b"\x86\xdd" + b"".join((head, bytes(15), b"\1", bytes(15), b"\2", *contents))


def udp(port: int, *contents: bytes) -> bytes:
    return ip(17, struct.pack("!HHHH", 50_000, port, 8 + sum(map(len, contents)), 0), *contents)


def ethernet(number: int, *contents: bytes) -> bytes:
    return MACS + struct.pack("!H", number) + b"".join(contents)


def gre(number: int, *contents: bytes, key: int | None = None, flags: int = 0) -> bytes:
    """Return a frame with GRE: a key if one is given, and the fields that the flags announce."""
    head = b"".join(
        (
            struct.pack("!HH", flags | (0x2000 if key is not None else 0), number),
            bytes(4) if flags & 0x8000 else b"",
            struct.pack("!I", key) if key is not None else b"",
            struct.pack("!I", 9) if flags & 0x1000 else b"",
        )
    )
    return ip(47, head, *contents)


def vxlan(frame: bytes, network: int = 42, port: int = 4789) -> bytes:
    return udp(port, struct.pack("!II", 0x08 << 24, network << 8), frame)


def erspan3(frame: bytes, *, subheader: bool, is_ip: bool = False) -> bytes:
    last = (2 << 10 if is_ip else 0) | subheader
    head = struct.pack("!HHIHH", 2 << 12, 5, 0, 0, last) + (bytes(8) if subheader else b"")
    return gre(0x22EB, head, frame[14:] if is_ip else frame, flags=0x1000)


def geneve(frame: bytes, options: int = 0) -> bytes:
    return udp(6081, struct.pack("!BBHI", options, 0, 0x6558, 42 << 8), bytes(4 * options), frame)


def mpls(*contents: bytes, labels: int = 1) -> bytes:
    stack = [(100 + n) << 12 | (0x100 if n == labels - 1 else 0) | 64 for n in range(labels)]
    return struct.pack(f"!{labels}I", *stack) + b"".join(contents)


ZONED: Final[dict[str, tuple[str, Wrap]]] = {
    "vxlan": ("vxlan42", vxlan),
    "vxlan of Linux": ("vxlan42", lambda frame: vxlan(frame, port=8472)),
    "vxlan-gpe": (
        "vxlan42",
        lambda frame: udp(4790, struct.pack("!II", 0x0C << 24 | 1, 42 << 8), frame[14:]),
    ),
    "geneve": ("geneve42", geneve),
    "geneve with options": ("geneve42", lambda frame: geneve(frame, 5)),
    "gre with a key": ("gre7", lambda frame: gre(0x0800, frame[14:], key=7)),
    "gre with everything": ("gre7", lambda frame: gre(0x0800, frame[14:], key=7, flags=0x9000)),
    "gretap with a key": ("gre7", lambda frame: gre(0x6558, frame, key=7)),
    "nvgre": ("nvgre5001", lambda frame: gre(0x6558, frame, key=5001 << 8 | frame[-1])),
    "erspan 2": (
        "erspan5",
        lambda frame: gre(0x88BE, struct.pack("!HHI", 1 << 12, 5, 0), frame, flags=0x1000),
    ),
    "erspan 3": ("erspan5", lambda frame: erspan3(frame, subheader=False)),
    "erspan 3 with a subheader": ("erspan5", lambda frame: erspan3(frame, subheader=True)),
    "erspan 3 of IP": ("erspan5", lambda frame: erspan3(frame, subheader=False, is_ip=True)),
    "provider backbone": ("isid9", lambda frame: ethernet(0x88E7, struct.pack("!I", 9), frame)),
    "vxlan in erspan 2": (
        "erspan5.vxlan42",
        lambda frame: gre(0x88BE, struct.pack("!HHI", 1 << 12, 5, 0), vxlan(frame), flags=0x1000),
    ),
}
"""Tunnels with a number, which is shown with the addresses inside."""

PLAIN: Final[dict[str, Wrap]] = {
    "gre": lambda frame: gre(0x0800, frame[14:]),
    "gre with a checksum": lambda frame: gre(0x0800, frame[14:], flags=0x8000),
    "gretap": lambda frame: gre(0x6558, frame),
    "gre over IPv6": lambda frame: ip6(47, struct.pack("!HH", 0, 0x0800), frame[14:]),
    "gre in udp": lambda frame: udp(4754, struct.pack("!HH", 0, 0x0800), frame[14:]),
    "erspan 1": lambda frame: gre(0x88BE, frame),
    "pptp": lambda frame: ip(
        47, struct.pack("!HHHHII", 0x3081, 0x880B, 0, frame[-1], 9, 8), b"\xff\x03\x00\x21", frame[14:]
    ),
    "ip in ip": lambda frame: ip(4, frame[14:]),
    "ip in ipv6": lambda frame: ip6(4, frame[14:]),
    "ipv6 in ip": lambda frame: ip(41, ip6(4, frame[14:])[14:]),
    "ipv6 in ipv6": lambda frame: ip6(41, ip6(4, frame[14:])[14:]),
    "etherip": lambda frame: ip(97, b"\x30\x00", frame),
    "pppoe": lambda frame: ethernet(
        0x8864, struct.pack("!BBHH", 0x11, 0, 3, len(frame) - 12), b"\x00\x21", frame[14:]
    ),
    "mpls": lambda frame: ethernet(0x8847, mpls(frame[14:])),
    "mpls with three labels": lambda frame: ethernet(0x8847, mpls(frame[14:], labels=3)),
    "mpls with a control word": lambda frame: ethernet(0x8847, mpls(bytes(4), frame, labels=2)),
    "mpls in udp": lambda frame: udp(6635, mpls(frame[14:])),
    "mpls in ip": lambda frame: ip(137, mpls(frame[14:])),
    "llc/snap": lambda frame: ethernet(len(frame) - 6, b"\xaa\xaa\x03\0\0\0\x08\0", frame[14:]),
    "vlan and llc/snap": lambda frame: ethernet(
        0x8100, struct.pack("!HH", 5, len(frame) - 6), b"\xaa\xaa\x03\0\0\0\x08\0", frame[14:]
    ),
    "four vlans": lambda frame: MACS + b"\x88\xa8\x00\x01" + 3 * b"\x81\x00\x00\x02" + frame[12:],
    "gtp": lambda frame: udp(2152, struct.pack("!BBHI", 0x30, 0xFF, len(frame) - 14, frame[-1]), frame[14:]),
    "gtp with an extension": lambda frame: udp(
        2152, struct.pack("!BBHIHBBI", 0x34, 0xFF, len(frame) - 6, 9, 0, 0, 0x85, 0x01000000), frame[14:]
    ),
    "tzsp": lambda frame: udp(37_008, struct.pack("!HH", 0x0100, 1), b"\x00\x0a\x01\x07\x01", frame),
    "l2tp": lambda frame: udp(
        1701, struct.pack("!HHHH", 0x4002, len(frame), 1, 2), b"\xff\x03\x00\x21", frame[14:]
    ),
    "vn-tag": lambda frame: ethernet(0x8926, bytes(4), frame[12:]),
}
"""Tunnels without a number, or with one that differs by direction."""

TUNNELS: Final = {name: wrap for name, (_, wrap) in ZONED.items()} | PLAIN


def by_direction(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Put each direction of a connection into a separate tunnel."""
    for frame in frames:
        yield frame._replace(data=vxlan(frame.data, 10 if frame.data[26:30] < frame.data[30:34] else 20))


def moved(frame: bytes, network: int) -> bytes:
    """Return a frame as in another network, with different addresses and sequence numbers.

    If `network` is odd, port 24001 takes the place of MSMQ's port.
    """
    ports = frame[34:38].replace(b"\x07\x09", b"\x5d\xc1") if network % 2 else frame[34:38]
    numbers = [(each + network * 100_000) % 2**32 for each in struct.unpack("!II", frame[38:46])]
    second = bytes([network])
    addresses = second + frame[28:31] + second + frame[32:34]
    return frame[:27] + addresses + ports + struct.pack("!II", *numbers) + frame[46:]


def wrapped(wrap: Wrap, path: Path = SAMPLE) -> Iterator[Frame]:
    """Yield the frames of a capture, each in a tunnel."""
    for frame in read_capture(path):
        yield frame._replace(data=wrap(frame.data))
