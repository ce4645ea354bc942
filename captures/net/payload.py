"""One frame that somebody has copied whole, headers and all: where the bytes of MSMQ begin in it."""

from __future__ import annotations

from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.links import ETHERNET, LINUX_COOKED, NULL, ip_start
from mqproto.captures.net.tcp import PROTOCOL_TCP, decode_segment
from mqproto.captures.net.udp import PROTOCOL_UDP, UDP_HEADER
from mqproto.wire import begins_stream


def payload_in(frame: bytes) -> tuple[int, bytes]:
    """The payload that a frame's TCP or UDP carries and where it begins, if a packet or a Ping begins there.

    Returns:
        0 and the bytes as they are, for all else.
    """
    if not begins_stream(frame):
        starts = [ip_start(link, frame) for link in (ETHERNET, LINUX_COOKED, NULL)]
        for start in [*starts, 0]:
            payload = None if start is None else _payload(frame, start)
            if payload and begins_stream(payload):
                return frame.rindex(payload), payload
    return 0, frame


def _payload(frame: bytes, start: int) -> bytes | None:
    datagram = IpReader().read(frame, start)
    if datagram is None:
        return None
    if datagram.protocol == PROTOCOL_TCP:
        segment = decode_segment(datagram)
        return None if segment is None else segment.payload
    return datagram.payload[UDP_HEADER.size :] if datagram.protocol == PROTOCOL_UDP else None
