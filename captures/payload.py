"""Splits pasted bytes: packets alone, or frames that were copied with their headers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqproto.base.words import counted
from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.links import ETHERNET, LINUX_COOKED, LINUX_COOKED_2, NULL
from mqproto.captures.net.tcp import Endpoint, Segment
from mqproto.captures.packets import SeenPacket, content_of
from mqproto.wire import begins_stream

BARE_IP: Final = 101
LINKS: Final = (ETHERNET, LINUX_COOKED, LINUX_COOKED_2, NULL, BARE_IP)
"""The link layers that are tried for pasted frames; `tcpdump -X` leaves out the link's header."""
_HEAD: Final = re.compile(rb"\x10.{3}LIOR", re.DOTALL)


@dataclass(slots=True)
class Part:
    """Bytes of one side that belong together, from the beginning of a packet on.

    places: for each run of bytes, its offset in `data` and its offset in the pasted bytes.
    """

    data: bytearray = field(default_factory=bytearray)
    places: list[tuple[int, int]] = field(default_factory=list)

    def place(self, offset: int) -> int:
        """Return where the byte at `offset` is in the pasted bytes."""
        begins, at = next(each for each in reversed(self.places) if each[0] <= offset)
        return at + offset - begins


@dataclass(slots=True)
class Pasted:
    """The parts of the pasted bytes.

    left_out_bytes: the number of bytes that neither begin nor continue a packet.
    idle: the number of dumps of frames without MSMQ.
    """

    parts: list[Part] = field(default_factory=list)
    left_out_bytes: int = 0
    idle: int = 0
    _open: dict[Hashable, Part] = field(default_factory=dict)

    def take(self, side: Hashable, at: int, data: bytes, *, anew: bool = False) -> bool:
        """Add a side's bytes, which were found at `at`; return whether they belong to a packet.

        If `anew` is set, they do not continue earlier bytes.
        """
        part = None if anew else self._open.pop(side, None)
        begins = 0
        if part is None:
            head = _HEAD.search(data)
            begins = 0 if is_head(data) else head.start() if head else len(data)
            self.left_out_bytes += begins
            if begins == len(data):
                return False
            part = Part()
            self.parts.append(part)
        part.places.append((len(part.data), at + begins))
        part.data += data[begins:]
        self._open[side] = part
        return True

    @property
    def said(self) -> str:
        """Return in words which bytes were left out; empty if none were."""
        idle = f"{counted(self.idle, 'dump')} of frames that carry no packet" if self.idle else ""
        rest = f"{counted(self.left_out_bytes, 'byte')} that begin no packet" if self.left_out_bytes else ""
        return " and ".join(filter(None, (idle, rest)))


def is_head(data: bytes) -> bool:
    """Whether these bytes begin a packet, a Ping or a key blob, perhaps a broken one."""
    return begins_stream(data) or data[4:8] == b"LIOR"


def take_apart(dumps: Sequence[bytes]) -> Pasted:
    """Return the MSMQ bytes in pasted dumps: the payloads of frames, and other dumps unchanged."""
    pasted = Pasted()
    has_headers = bool(dumps) and not is_head(dumps[0])
    if has_headers:
        _take_frames(pasted, dumps)
    if not pasted.parts:
        pasted = Pasted()
        at = 0
        for data in dumps:
            pasted.take("pasted", at, data, anew=has_headers or is_head(data))
            at += len(data)
    return pasted


def _take_frames(pasted: Pasted, dumps: Sequence[bytes]) -> None:
    """Take the payloads of frames, each direction of each connection separately.

    A frame that was copied twice, or sent again, is shown twice: people paste both copies on purpose.
    """
    ip = IpReader()
    expected: dict[tuple[Endpoint, Endpoint], int] = {}
    at = 0
    for number, dump in enumerate(dumps):
        content = _content(dump, ip)
        found = False
        if isinstance(content, SeenPacket):
            found = pasted.take(number, at + dump.rfind(content.data), content.data, anew=True)
        elif isinstance(content, Segment) and content.payload:
            way, begins = (content.source, content.destination), dump.rfind(content.payload)
            follows = expected.get(way) == content.sequence_number
            anew = not follows or _HEAD.match(content.payload) is not None
            found = pasted.take(way, at + max(0, begins), content.payload, anew=anew)
            expected[way] = (content.sequence_number + len(content.payload)) % 2**32
        pasted.idle += not found
        at += len(dump)


def _content(dump: bytes, ip: IpReader) -> Segment | SeenPacket | str:
    """Return the content of a frame, read with the first link layer that yields any."""
    frames = (Frame(0, dump, interface=Interface(0, link)) for link in LINKS)
    return next((held for frame in frames if not isinstance(held := content_of(frame, ip), str)), "")
