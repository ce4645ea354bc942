"""A small file of two sectors, which are written alternately.

While one is being written, the other has the previous contents.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import Struct
from typing import Final, Self

from mqproto.simulator.storage.files import Files, WritableFile, made
from mqproto.simulator.storage.segments import FULL, SECTOR_BYTES, damaged, explained_file

CHECKSUM: Final = Struct("<I")
SIZE_BYTES: Final = 2 * SECTOR_BYTES


class Sectors:
    """A file of two sectors, open for writing."""

    def __init__(self, path: Path, file: WritableFile) -> None:
        self.path = path
        self._file = file
        self._is_closed = False

    @classmethod
    def create(cls, files: Files, path: Path, said: bytes) -> Self:
        """Create a file, or replace an existing one. It is on disk, with these contents in both sectors.

        Raises:
            OSError: it cannot be made.
        """
        sector = _with_checksum(said).ljust(SECTOR_BYTES, b"\0")
        return cls(path, made(files, path, SIZE_BYTES, sector * 2))

    @classmethod
    def open(cls, files: Files, path: Path) -> Self:
        """Open a file that exists.

        Raises:
            OSError: it cannot be opened.
        """
        return cls(path, files.open(path))

    def write(self, turn: int, said: bytes) -> bool:
        """Write new contents to the sector whose turn it is, without a flush.

        On a full disk, a file system that never writes in place may not have room for them.

        Returns:
            Whether there was room.

        Raises:
            StoreError: the disk fails.
        """
        try:
            self._file.write(turn % 2 * SECTOR_BYTES, [_with_checksum(said)])
        except OSError as error:
            if error.errno not in FULL:
                with explained_file(self.path):
                    raise
            return False
        return True

    def flush(self, said: bytes) -> bool:
        """Write new contents to both sectors, and flush them. Return whether there was room.

        Raises:
            StoreError: the contents may not be on disk.
        """
        data = _with_checksum(said)
        try:
            self._file.write(0, [data.ljust(SECTOR_BYTES, b"\0"), data])
        except OSError as error:
            if error.errno not in FULL:
                with explained_file(self.path):
                    raise
            return False
        with explained_file(self.path):
            self._file.flush()
        return True

    def close(self) -> None:
        """Close the file and leave it where it is. It may be closed already."""
        if not self._is_closed:
            self._is_closed = True
            self._file.close()


def said_in(path: Path, data: bytes, size_bytes: int) -> dict[int, bytes]:
    """Return the contents of the file's sectors, `size_bytes` bytes from each. A torn sector is left out.

    Raises:
        StoreError: the file is damaged.
    """
    if len(data) != SIZE_BYTES:
        raise damaged(path, f"it has {len(data):,} bytes and was made with {SIZE_BYTES:,}")
    found = [data[start : start + size_bytes + CHECKSUM.size] for start in (0, SECTOR_BYTES)]
    said = {turn: each[:size_bytes] for turn, each in enumerate(found)}
    whole = {turn: each for turn, each in said.items() if found[turn] == _with_checksum(each)}
    if not whole:
        raise damaged(path, "neither of its two sectors fits its checksum")
    return whole


def _with_checksum(said: bytes) -> bytes:
    return said + CHECKSUM.pack(zlib.crc32(said))
