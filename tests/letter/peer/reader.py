"""Reads bytes with the alignment and the text encoding of the specification.  [MS-MQMQ] 2.2.18"""

from __future__ import annotations

import struct
from typing import Any

from .packets import MalformedError


def padding(size: int) -> bytes:
    """Return the padding that extends `size` to a multiple of four."""
    return bytes(-size % 4)


class Reader:
    """Reads a packet from beginning to end; a packet that is too short is malformed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise MalformedError(f"{size} bytes at {self.at}, and {len(self.data)} in all")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def align(self, start: int = 0, size: int = 4) -> None:
        self.take(-(self.at - start) % size)

    def text(self) -> str:
        """Read a string of WCHARs and the null at its end."""
        end = next(
            (i for i in range(self.at, len(self.data) - 1, 2) if self.data[i : i + 2] == b"\0\0"), None
        )
        if end is None:
            raise MalformedError("a name does not end")
        return words(self.take(end + 2 - self.at))


def words(data: bytes) -> str:
    return data.decode("utf-16-le", "surrogatepass").rstrip("\0")


def wide(text: str) -> bytes:
    return (text + "\0").encode("utf-16-le", "surrogatepass")
