"""Shows segments as other network cards and kernels would have shown them.

They are joined, split, or shown before their SYN. Both sides sent and received the same bytes. But a sniffer on one of
the machines sees how its own kernel hands segments to its card (TSO) and takes them from it (GRO). Frames without a
whole TCP segment stay unchanged, as do fragments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqproto.captures.files.frame import MAX_FRAME_BYTES, Frame
from mqproto.captures.net.ip import FRAGMENT_OFFSET, IPV4_HEADER, IPV6_HEADER, MORE_FRAGMENTS
from mqproto.captures.net.links import ip_start
from mqproto.captures.net.tcp import (
    CHECKSUM_AT,
    FIN,
    PROTOCOL_TCP,
    PSH,
    RST,
    SYN,
    TCP_HEADER,
    checksum,
    word_sum,
)
from mqproto.captures.spoil.frames import dice, noted

LONGEST: Final = 0xFFFF
"""The greatest length that an IP packet can state.

A longer packet, as a kernel makes it, states 0.
"""
LATEST: Final = 3
"""The maximum number of segments of a connection that may overtake its SYN."""


class Placed(NamedTuple):
    """The place of the TCP segment in a frame.

    ends: its source and destination, each an address and a port.
    ip, tcp, payload: the offsets at which the IP header, the TCP header and the payload begin.
    end: the offset at which the payload ends.
    """

    ends: tuple[bytes, bytes]
    ip: int
    tcp: int
    payload: int
    end: int
    sequence: int
    flags: int


def placed(frame: Frame) -> Placed | None:
    """Return the place of the whole segment in a frame; None if the frame has no whole segment."""
    data, ip = frame.data, ip_start(frame.link_type, frame.data)
    if ip is None or frame.missing_bytes:
        return None
    if data[ip] >> 4 == 4 and len(data) >= ip + IPV4_HEADER.size:
        _, _, size_bytes, _, fragment, _, protocol, _, source, destination = IPV4_HEADER.unpack_from(data, ip)
        tcp = ip + (data[ip] & 0x0F) * 4
        end = ip + size_bytes if size_bytes else len(data)
        whole = not fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)
    elif data[ip] >> 4 == 6 and len(data) >= ip + IPV6_HEADER.size:
        _, size_bytes, protocol, _, source, destination = IPV6_HEADER.unpack_from(data, ip)
        tcp = ip + IPV6_HEADER.size
        end = tcp + size_bytes if size_bytes else len(data)
        whole = True
    else:
        return None
    if protocol != PROTOCOL_TCP or not whole or end > len(data) or tcp + TCP_HEADER.size > end:
        return None
    _, _, sequence, _, length, flags, *_ = TCP_HEADER.unpack_from(data, tcp)
    ends = source + data[tcp : tcp + 2], destination + data[tcp + 2 : tcp + 4]
    payload = tcp + (length >> 4) * 4
    return Placed(ends, ip, tcp, payload, end, sequence, flags) if payload <= end else None


def coalesced(
    frames: Iterable[Frame], percent: float, seed: int = 0, limit_bytes: int = MAX_FRAME_BYTES
) -> Iterator[Frame]:
    """Join some segments to the previous segment, which they continue, as GRO and TSO do.

    The frames must follow each other directly, at the same interface. A packet of more than 64 KiB states no length, as
    when kernels write packets that never cross a wire (BIG TCP).

    Args:
        limit_bytes: the greatest size of a frame.
    """
    chance = dice(seed, "coalesce")
    held: Frame | None = None
    for frame in frames:
        if held is None:
            held = frame
            continue
        joined = _joined(held, frame, limit_bytes) if chance.random() * 100 < percent else None
        if joined is None:
            yield held
        held = joined or frame
    if held is not None:
        yield held


def segmented(frames: Iterable[Frame], size_bytes: int) -> Iterator[Frame]:
    """Split each segment with more than `size_bytes` of payload into several with the same time.

    A network card does the same.
    """
    for frame in frames:
        place = placed(frame)
        if place is None or place.end - place.payload <= size_bytes:
            yield frame
            continue
        payload = frame.data[place.payload : place.end]
        for start in range(0, len(payload), size_bytes):
            piece = payload[start : start + size_bytes]
            last = start + len(piece) == len(payload)
            flags = place.flags if last else place.flags & ~(PSH | FIN)
            yield noted(summed(written(frame, place, place.sequence + start, flags, piece)), "cut up")


def late_syns(frames: Iterable[Frame], percent: float, seed: int = 0) -> Iterator[Frame]:
    """Show the SYNs of some connections up to three segments late.

    Each gets the time of the last segment that overtook it.
    """
    chance = dice(seed, "syn")
    waiting: dict[frozenset[bytes], tuple[Frame, int]] = {}
    time_ns = 0
    for frame in frames:
        time_ns = frame.time_ns
        place = placed(frame)
        if place is None:
            yield frame
            continue
        connection = frozenset(place.ends)
        late, count = waiting.get(connection, (None, 0))
        if late is None and place.flags & SYN and chance.random() * 100 < percent:
            waiting[connection] = (noted(frame, "late"), chance.randint(1, LATEST))
            continue
        yield frame
        if late is not None:
            if count > 1 and not place.flags & (FIN | RST):
                waiting[connection] = (late, count - 1)
                continue
            yield late._replace(time_ns=time_ns)
            del waiting[connection]
    yield from (late._replace(time_ns=time_ns) for late, _ in waiting.values())


def summed(frame: Frame, *, by_card: bool = False) -> Frame:
    """Return a frame with the correct checksum of its segment; a frame without TCP is returned unchanged.

    by_card: whether to write only the sum of the pseudo header, as a kernel does if the network card adds the rest.
    """
    place = placed(frame)
    if place is None:
        return frame
    data = bytearray(frame.data)
    sum_at = place.tcp + CHECKSUM_AT
    data[sum_at : sum_at + 2] = bytes(2)
    addresses = (8, 40) if data[place.ip] >> 4 == 6 else (12, 20)
    total = word_sum(bytes(data[place.ip + addresses[0] : place.ip + addresses[1]]))
    total += PROTOCOL_TCP + place.end - place.tcp
    found = total % 0xFFFF if by_card else checksum(total + word_sum(bytes(data[place.tcp : place.end])))
    data[sum_at : sum_at + 2] = found.to_bytes(2, "big")
    return frame._replace(data=bytes(data))


def _joined(frame: Frame, following: Frame, limit_bytes: int) -> Frame | None:
    """Return two frames joined into one; None if no kernel would join them."""
    one, other = placed(frame), placed(following)
    if one is None or other is None or one.ends != other.ends or frame.interface != following.interface:
        return None
    payload = frame.data[one.payload : one.end]
    more = following.data[other.payload : other.end]
    follows = other.sequence == (one.sequence + len(payload)) % 2**32
    if not payload or not more or not follows or (one.flags | other.flags) & (SYN | RST) or one.flags & FIN:
        return None
    if one.payload + len(payload) + len(more) > limit_bytes:
        return None
    # The later segment has the latest acknowledgment.
    whole = written(frame, one, one.sequence, one.flags | other.flags, payload + more)
    at, acknowledged = one.tcp + 8, following.data[other.tcp + 8 : other.tcp + 12]
    data = whole.data[:at] + acknowledged + whole.data[at + 4 :]
    return noted(whole, "joined")._replace(data=data)


def written(frame: Frame, place: Placed, sequence: int, flags: int, payload: bytes) -> Frame:
    """Return a frame with another payload, whose TCP checksum is left to the network card."""
    head = bytearray(frame.data[: place.payload])
    struct.pack_into("!I", head, place.tcp + 4, sequence % 2**32)
    head[place.tcp + 13] = flags
    size_bytes = place.payload - place.ip + len(payload)
    if head[place.ip] >> 4 == 4:
        struct.pack_into("!H", head, place.ip + 2, size_bytes if size_bytes <= LONGEST else 0)
        struct.pack_into("!H", head, place.ip + 10, 0)
        struct.pack_into("!H", head, place.ip + 10, -word_sum(bytes(head[place.ip : place.tcp])) % 0xFFFF)
    else:
        size_bytes -= IPV6_HEADER.size
        struct.pack_into("!H", head, place.ip + 4, size_bytes if size_bytes <= LONGEST else 0)
    return summed(frame._replace(data=bytes(head) + payload), by_card=True)
