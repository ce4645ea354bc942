"""A pcapng file to which one writer after another appends, and which always stays whole. draft-ietf-opsawg-pcapng

A writer may be killed, or the disk may fill up. Only whole blocks are flushed, and the next writer continues after them
with its own section: pcapng files may be joined end to end, and readers take them as one.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import BinaryIO, Final

from mqproto.base.errors import UsageError
from mqproto.captures.files.pcapng import SECTION_HEADER

BYTE_ORDERS: Final = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}


class GrowingFile(io.BytesIO):
    """Collects writes and hands them to the operating system at `flush`, all of them or none.

    An existing file is continued after its last whole block.

    Raises:
        UsageError: the file is not a pcapng file.
        OSError: the file cannot be opened or written.
    """

    _descriptor = -1
    """The descriptor of the file; -1 until the file is open.

    A BytesIO is closed when it is garbage-collected, even if its constructor failed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with open(self._descriptor, "rb", closefd=False) as file:
                self._size_bytes = whole_bytes(file, path)
            os.ftruncate(self._descriptor, self._size_bytes)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except BaseException:
            self.close()
            raise

    def flush(self) -> None:
        """Hand over what was written since the last flush; if it does not all fit, the file keeps none of it.

        Raises:
            OSError: the disk is full or fails.
        """
        data = memoryview(self.getvalue())
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            os.lseek(self._descriptor, 0, os.SEEK_END)
            raise
        finally:
            self.seek(0)
            self.truncate()
        self._size_bytes += written

    def close(self) -> None:
        """Close the file, discarding what was not flushed."""
        # Close it once only: later the number may belong to another file.
        descriptor, self._descriptor = self._descriptor, -1
        super().close()
        if descriptor != -1:
            os.close(descriptor)


def whole_bytes(file: BinaryIO, path: Path) -> int:
    """Return where the last whole block of a pcapng file ends; 0 if the file is empty.

    Raises:
        UsageError: the file is not a pcapng file.
    """
    size_bytes = file.seek(0, os.SEEK_END)
    order, at = "<", 0
    while True:
        file.seek(at)
        head = file.read(12)
        if at == 0 and head and head[:4] != struct.pack("<I", SECTION_HEADER)[: len(head)]:
            raise UsageError(f"{path} is not a pcapng, and is left alone: name another file")
        if len(head) < 12:
            return at
        if head[:4] == struct.pack("<I", SECTION_HEADER):
            order = BYTE_ORDERS.get(head[8:12], "")
        if not order:
            return at
        (length,) = struct.unpack_from(order + "I", head, 4)
        file.seek(at + length - 4)
        if length < 12 or at + length > size_bytes or file.read(4) != struct.pack(order + "I", length):
            return at
        at += length
