"""Simulates the places and clocks of sniffers.

These are the two halves of a TAP, a sniffer at each host, a sniffer on both sides of address translation, and wrong
clocks.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.ip import IPV4_HEADER, IPV6_HEADER
from mqproto.captures.net.links import ip_start
from mqproto.captures.net.tcp import ACK, SYN, word_sum
from mqproto.captures.spoil.frames import dice
from mqproto.captures.spoil.segments import Placed, placed, summed

WAYS: Final = ("one way", "the other way")
MILLION: Final = 1_000_000
TRANSLATOR: Final = bytes((198, 51, 100, 1))
"""The source address that a host gives to all packets that it forwards.  [RFC 5737] 3"""
FIRST_PORT: Final = 20_000
SIDES: Final = ("inside", "outside")


def halved(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Simulate a full-duplex TAP.

    One direction between two hosts is captured at one interface, and the other at a second one. Packets from the host
    with the lower address are captured at the first interface. If both ends are on one host, the ports decide. Frames
    without IP are captured at the first interface.
    """
    for frame in frames:
        ends = _ends(frame)
        way = int(ends is not None and ends[0] > ends[1])
        yield frame._replace(interface=_interface(frame, 2 * frame.interface.number + way, WAYS[way]))


def at_hosts(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Simulate a sniffer at each host.

    Every frame is captured where it leaves, and again where it arrives. Hosts are numbered in the order in which they
    are first seen. Frames without IP are not captured.
    """
    numbers: dict[bytes, int] = {}
    for frame in frames:
        ends = _ends(frame)
        if ends is None:
            continue
        for address in dict.fromkeys(address for address, _ in ends):
            number = numbers.setdefault(address, len(numbers))
            yield frame._replace(interface=_interface(frame, number, f"host {number}"))


def translated(frames: Iterable[Frame], late_ns: int, *, apart: bool = False) -> Iterator[Frame]:
    """Simulate a host that translates addresses, captured at all its interfaces, as by `tcpdump -i any`.

    Each segment is seen twice: once with its client's address, and once with the host's address. The host has one port
    for each port of a client. A segment from the client is seen first with the client's address, and an answer is seen
    first with the host's. The client is the sender of the first segment, or its receiver if that segment answers a SYN.
    Anything except IPv4 segments is seen once.

    Args:
        late_ns: the delay of the second copy.
        apart: whether each side has its own interface in the capture.
    """
    ports: dict[bytes, int] = {}
    callers: dict[frozenset[bytes], bytes] = {}
    waiting: deque[Frame] = deque()
    for frame in frames:
        while waiting and waiting[0].time_ns <= frame.time_ns:
            yield waiting.popleft()
        place = placed(frame)
        if place is None or frame.data[place.ip] >> 4 != 4:
            yield frame
            continue
        called = place.ends[place.flags & (SYN | ACK) == SYN | ACK]
        client = callers.setdefault(frozenset(place.ends), called)
        is_answer = client != place.ends[0]
        port = ports.setdefault(client, FIRST_PORT + len(ports))
        both = [frame, _translated(frame, place, port, is_answer)]
        if apart:
            number, link_type = 2 * frame.interface.number, frame.link_type
            both = [
                each._replace(interface=Interface(number + side, link_type, SIDES[side]))
                for side, each in enumerate(both)
            ]
        if is_answer:
            both.reverse()
        yield both[0]
        waiting.append(both[1]._replace(time_ns=frame.time_ns + late_ns))
    yield from waiting


def _translated(frame: Frame, place: Placed, port: int, is_answer: bool) -> Frame:
    """Return a frame in which the host's address and port replace those of the client."""
    data = bytearray(frame.data)
    at, port_at = (place.ip + 16, place.tcp + 2) if is_answer else (place.ip + 12, place.tcp)
    data[at : at + 4] = TRANSLATOR
    struct.pack_into("!H", data, port_at, port)
    struct.pack_into("!H", data, place.ip + 10, 0)
    struct.pack_into("!H", data, place.ip + 10, -word_sum(bytes(data[place.ip : place.tcp])) % 0xFFFF)
    return summed(frame._replace(data=bytes(data)))


def bonded(frames: Iterable[Frame], seed: int = 0, *, by_connection: bool = False) -> Iterator[Frame]:
    """Send frames through the two interfaces of a bond, one of which is chosen at random for each frame.

    Args:
        by_connection: whether all frames in one direction of a connection use the same interface.
    """
    chance = dice(seed, "bond")
    chosen: dict[tuple[bytes, bytes], int] = {}
    for frame in frames:
        turn, place = chance.randrange(2), placed(frame)
        if by_connection and place is not None:
            turn = chosen.setdefault(place.ends, turn)
        yield frame._replace(interface=_interface(frame, 2 * frame.interface.number + turn, f"slave {turn}"))


def skewed(
    frames: Iterable[Frame], offset_ns: int, drift_ppm: float = 0, interfaces: Collection[int] | None = None
) -> Iterator[Frame]:
    """Make the clocks of some or all interfaces wrong.

    They are ahead by an offset, which grows over time if there is a drift.
    """
    first_ns: int | None = None
    for frame in frames:
        if interfaces is not None and frame.interface.number not in interfaces:
            yield frame
            continue
        first_ns = frame.time_ns if first_ns is None else first_ns
        gained_ns = round((frame.time_ns - first_ns) * drift_ppm / MILLION)
        yield frame._replace(time_ns=frame.time_ns + offset_ns + gained_ns)


def _interface(frame: Frame, number: int, name: str) -> Interface:
    return Interface(number, frame.interface.link_type, name)


def _ends(frame: Frame) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]] | None:
    """Return the source and the destination of an IP packet.

    Each has its address, and its port if there is one.
    """
    data, ip = frame.data, ip_start(frame.link_type, frame.data)
    if ip is None:
        return None
    version = data[ip] >> 4
    if version == 4 and len(data) >= ip + IPV4_HEADER.size:
        source, destination, at = data[ip + 12 : ip + 16], data[ip + 16 : ip + 20], ip + (data[ip] & 0x0F) * 4
    elif version == 6 and len(data) >= ip + IPV6_HEADER.size:
        source, destination, at = data[ip + 8 : ip + 24], data[ip + 24 : ip + 40], ip + IPV6_HEADER.size
    else:
        return None
    return (source, data[at : at + 2]), (destination, data[at + 2 : at + 4])
