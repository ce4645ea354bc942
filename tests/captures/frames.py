"""Helpers that read frames one by one."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable

from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import read_frames
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import SYN, Segment
from mqproto.captures.spoil import placed

MSMQ_PORT = struct.pack("!H", 1801)
SIGNATURE = b"LIOR"


def decode_frame(frame: bytes) -> Segment | None:
    """Return the TCP segment in one Ethernet frame."""
    return segment_in(Frame(0, frame), IpReader())


def bare(frame: Frame) -> Frame:
    """Return a frame without the values that only a file gives it: its number and its place."""
    return frame._replace(number=0, offset=0, interface=Frame(0, b"").interface)


def fragments_of(frame: bytes) -> list[bytes]:
    """Return the IPv4 packet in an Ethernet frame as two fragments; more than 24 bytes must follow its header."""
    head, content = bytearray(frame[:34]), frame[34:]
    pieces = []
    for at, piece in ((0, content[:24]), (24, content[24:])):
        head[16:18] = struct.pack("!H", 20 + len(piece))
        head[20:22] = struct.pack("!H", at // 8 | (0x2000 if at == 0 else 0))
        pieces.append(bytes(head) + piece)
    return pieces


def moved(frames: Iterable[Frame], port: int) -> list[Frame]:
    """Return frames whose servers use a port other than MSMQ's. TCP's checksum is adjusted."""
    return [_moved(frame, port) for frame in frames]


def _moved(frame: Frame, port: int) -> Frame:
    place = placed(frame)
    if place is None:
        return frame
    data = bytearray(frame.data)
    for at in (place.tcp, place.tcp + 2):
        if data[at : at + 2] == MSMQ_PORT:
            (total,) = struct.unpack_from("!H", data, place.tcp + 16)
            struct.pack_into("!H", data, at, port)
            struct.pack_into("!H", data, place.tcp + 16, (total + 1801 - port) % 0xFFFF)
    return frame._replace(data=bytes(data))


def shakes_hands(frame: Frame) -> bool:
    """Return whether a frame has a SYN, or begins with EstablishConnection or ConnectionParameters.  [MS-MQMQ]
    2.2.20.1
    """
    place = placed(frame)
    if place is None:
        return False
    data = frame.data[place.payload : place.end]
    return bool(place.flags & SYN) or (
        data[4:8] == SIGNATURE and len(data) > 18 and data[18] & 0x0F in (2, 3)
    )


def read(data: bytes) -> tuple[list[Frame], CaptureError | None]:
    """Return the frames before the damage, and the error about the damage; None if there is no damage."""
    result = []
    try:
        for frame in read_frames(io.BytesIO(data)):
            result.append(bare(frame))
    except CaptureError as error:
        return result, error
    return result, None
