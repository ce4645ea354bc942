"""Frames read one by one."""

from __future__ import annotations

import struct

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.links import ip_start
from mqproto.captures.net.tcp import PROTOCOL_TCP, Segment, decode_segment


def segment_in(frame: Frame, reader: IpReader) -> Segment | None:
    """The TCP segment that a frame holds or completes; None if there is none."""
    start = ip_start(frame.link_type, frame.data)
    datagram = reader.read(frame.data, start, frame.missing_bytes) if start is not None else None
    return decode_segment(datagram) if datagram is not None and datagram.protocol == PROTOCOL_TCP else None


def decode_frame(frame: bytes) -> Segment | None:
    """The TCP segment in one Ethernet frame."""
    return segment_in(Frame(0, frame), IpReader())


def bare(frame: Frame) -> Frame:
    """A frame without what only a file gives it: its number and its place."""
    return frame._replace(number=0, offset=0, interface=Frame(0, b"").interface)


def fragments_of(frame: bytes) -> list[bytes]:
    """The IPv4 packet in an Ethernet frame as two; it has more than 24 bytes behind its header."""
    head, content = bytearray(frame[:34]), frame[34:]
    pieces = []
    for at, piece in ((0, content[:24]), (24, content[24:])):
        head[16:18] = struct.pack("!H", 20 + len(piece))
        head[20:22] = struct.pack("!H", at // 8 | (0x2000 if at == 0 else 0))
        pieces.append(bytes(head) + piece)
    return pieces
