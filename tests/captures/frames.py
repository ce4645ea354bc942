"""Frames read one by one."""

from __future__ import annotations

from captures.frame import Frame
from captures.ip import IpReader
from captures.streams import segment_in
from captures.tcp import Segment


def decode_frame(frame: bytes) -> Segment | None:
    """The TCP segment in one Ethernet frame."""
    return segment_in(Frame(0, frame), IpReader())


def bare(frame: Frame) -> Frame:
    """A frame without what only a file gives it: its number and its place."""
    return frame._replace(number=0, offset=0, interface=Frame(0, b"").interface)
