"""The streams that layouts read: a packet's bytes, or a caller's stream.

Both know their position in the packet.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from construct import StreamError

from mqproto.base.errors import WireFormatError

NUL: Final = b"\0\0"
PIECE_BYTES: Final = 1 << 16
"""How many bytes to read from a stream at a time, so that a wrong length does not cost memory."""


class Fault(Exception):  # noqa: N818  (a fault becomes an error when its field is known)
    """A part of a layout refuses a value. The layout around it adds the field, the offset and the section.

    `reading` is the value with which an analyst's reading continues; None if it cannot continue.
    """

    def __init__(
        self, value: object, limit: str, *, field: str = "", part: str = "", reading: Any = None
    ) -> None:
        super().__init__(value, limit)
        self.value, self.limit, self.field, self.part, self.reading = value, limit, field, part, reading


@dataclass(slots=True)
class Onlooker:
    """Receives all fields that are read from a packet, for analysts and for the codec's error texts.

    seen: takes (name, offset, value, bytes, section) for each field.
    faults: takes the broken rules after which reading can continue; if it is None, the first broken rule is raised.
    skip: skips valid items of lists in the search for a fault; see `Repeated`.
    """

    seen: list[Any] | None = None
    faults: list[WireFormatError] | None = None
    skip: Callable[[Any, int, int], int] | None = None


NOBODY: Final = Onlooker()


class PacketStream(io.BytesIO):
    """A stream of a packet's bytes that knows its position in the packet."""

    def __init__(self, data: bytes = b"", start: int = 0, onlooker: Onlooker = NOBODY) -> None:
        super().__init__(data)
        self.data: bytes | bytearray = data
        self.start = start
        self.end = start + len(data)
        self.onlooker = onlooker

    def tell(self) -> int:
        return self.start + super().tell()

    def up_to(self, size: int) -> bytes:
        """Return the next `size` bytes, or as many as are left; all of them if `size` is negative."""
        return super().read(size)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes or raise a Fault; without a size, return the rest."""
        piece = self.up_to(-1 if size is None else size)
        if size is not None and len(piece) < size:
            raise Fault(f"{len(piece)} bytes", f"{size} bytes")
        return piece

    def until_nul(self) -> bytes:
        """Return UTF-16 text from here up to and including its NUL. Raise a Fault if there is none."""
        at = self.tell() - self.start
        if (end := nul_at(self.data, at, len(self.data))) < 0:
            raise Fault(f"{len(self.data) - at} bytes", "text that ends with a NUL")
        return self.read(end - at + len(NUL))

    def since(self, start: int) -> bytes:
        """Return the bytes that were read since the stream was at this position in the packet."""
        return bytes(self.data[start - self.start : self.tell() - self.start])


class ForeignStream(PacketStream):
    """The rest of a caller's stream, which is read only as far as the layout requires."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.source, self.data = source, bytearray()

    def tell(self) -> int:
        return self.end

    def up_to(self, size: int) -> bytes:
        pieces = []
        left = size if size >= 0 else 1 << 62
        try:
            while left and (piece := self.source.read(min(left, PIECE_BYTES))):
                pieces.append(piece)
                left -= len(piece)
            read = b"".join(pieces)
        except Exception as error:
            raise StreamError(f"stream.read() failed: {error}") from error
        self.data += read
        self.end = len(self.data)
        return read

    def until_nul(self) -> bytes:
        start = self.tell()
        while (pair := self.up_to(len(NUL))) != NUL:
            if len(pair) < len(NUL):
                raise Fault(f"{self.tell() - start} bytes", "text that ends with a NUL")
        return self.since(start)


def nul_at(data: bytes | bytearray, at: int, end: int) -> int:
    """Return the offset of the first NUL in UTF-16 text from `at` on; -1 if there is none before `end`."""
    found = data.find(NUL, at, end)
    while found >= 0 and (found - at) & 1:  # Two zeros that belong to two characters.
        found = data.find(NUL, found + 1, end)
    return found
