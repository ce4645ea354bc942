"""The content of every kind of capture file: frames with their time and place, and damage if there is any."""

from __future__ import annotations

from typing import Final, NamedTuple

from mqproto.base.errors import MqprotoError

ETHERNET: Final = 1

MAX_FRAME_BYTES: Final = 0x40000  # the snapshot length that tcpdump and Wireshark use
NANOSECONDS: Final = 1_000_000_000

Options = tuple[tuple[int, bytes], ...]
"""Options of pcapng as stored in the file: pairs of a code and a value."""


class CaptureError(MqprotoError, ValueError):
    """A capture that is damaged or holds something unreadable.

    Args:
        where: the file, or the stream inside it.
        offset: the place of the first wrong byte in `where`, counted from 0; for a compressed file, the place in the
            unpacked data.
        reason: what is wrong there, in words.
    """

    def __init__(self, where: str, offset: int, reason: str) -> None:
        super().__init__(where, offset, reason)
        self.where = where
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: byte {self.offset}: {self.reason}"


class Interface(NamedTuple):
    """Where frames were captured.

    number: counted from 0 over the whole file.
    link_type: the kind of header that frames begin with, one of the LINKTYPE values that tcpdump.org lists.
    options: as stored in the file, including the name.
    """

    number: int = 0
    link_type: int = ETHERNET
    name: str = ""
    options: Options = ()


ONLY_INTERFACE: Final = Interface()


class Frame(NamedTuple):
    """One frame as it crossed the wire.

    time_ns: the time of capture, in nanoseconds since 1970, UTC; 0 if the file does not contain it.
    data: the frame's bytes, beginning with the link's header.
    missing_bytes: how many bytes the capture left out at the end of the frame.
    number: the frame's number, counted from 1 in the order of the file, like Wireshark's frame.number; 0 if the frame
        is not from a file.
    offset: the place of the frame's record or block in the file.
    options: the options as stored in the file, without the comment.
    """

    time_ns: int
    data: bytes
    comment: str = ""
    missing_bytes: int = 0
    interface: Interface = ONLY_INTERFACE
    number: int = 0
    offset: int = 0
    options: Options = ()

    @property
    def link_type(self) -> int:
        """The kind of header that `data` begins with."""
        return self.interface.link_type
