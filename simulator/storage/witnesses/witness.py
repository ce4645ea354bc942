"""The witness of a log: the number of its newest record, and the last salts of SQLite's log.

The record is the newest that was reported to be on disk. The witness is a file next to the log, `a.sqlite-witness`.
From the log alone, nobody can tell whether records are missing at its end; the witness shows that. It is written after
each flush of the log, and is not flushed itself. So after a kill it is exact; after a power loss it may be behind the
log, but never ahead of it. It is flushed before the tables record that the log now begins at a later record, so it is
never behind the tables. The salts are explained in sqlitelog.py.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self

from mqproto.simulator.base.storeerrors import ADVICE, DiskFullError
from mqproto.simulator.storage.files import Files, WritableFile, made
from mqproto.simulator.storage.segments import FULL, SECTOR_BYTES, another_nodes, damaged, explained_file
from mqproto.simulator.storage.witnesses.sqlitelog import Salts
from mqproto.wire.guid import Guid

CHECKSUM: Final = Struct("<I")
SIZE_BYTES: Final = 2 * SECTOR_BYTES
MAGIC: Final = b"mqprowit"
SAID: Final = Struct("<8s16sQII")
"""The form of the contents: magic, the node's GUID, the record's number, and the salts of SQLite's log."""


class Sectors:
    """A small file of two sectors, open for writing.

    They are written in turn. While one is being written, the other has the previous contents.
    """

    def __init__(self, path: Path, file: WritableFile) -> None:
        self.path = path
        self._file = file
        self._is_closed = False

    @classmethod
    def create(cls, files: Files, path: Path, said: bytes) -> Self:
        """Create a file, or replace an existing one. When this returns, it is on disk, with these contents in both
        sectors.

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


class Said(NamedTuple):
    """The contents of a witness.

    record: the number of the newest record of the log that is known to have been on disk; 0 if there was none.
    salts: the salts of SQLite's log when it was last seen.
    """

    record: int
    salts: Salts


class WitnessFullError(DiskFullError):
    """The disk has no room to write the witness's current contents."""


class StoreWitness:
    """The witness of one store, open for writing.

    Attributes:
        record, salts: see `Said`.
    """

    def __init__(self, node: Guid, sectors: Sectors, said: Said) -> None:
        self.path = sectors.path
        self.record, self.salts = said
        self._node = node
        self._sectors = sectors

    @classmethod
    def create(cls, files: Files, store: Path, node: Guid, said: Said) -> Self:
        """Create a witness. When this returns, it is on disk.

        Raises:
            StoreError: it cannot be made.
        """
        path = witness_path(store)
        with explained_file(path):
            return cls(node, Sectors.create(files, path, _packed(node, said)), said)

    @classmethod
    def open(cls, files: Files, store: Path, node: Guid) -> Self:
        """Open the existing witness.

        Raises:
            StoreError: it cannot be read, is damaged, or belongs to another node.
        """
        path = witness_path(store)
        with explained_file(path):
            said = said_by_witness(path, files.read(path), node)
            return cls(node, Sectors.open(files, path), said)

    def write(self, record: int, salts: Salts) -> None:
        """Record that all records up to this one are on disk, and that SQLite's log now has these salts.

        On a full disk, the witness may lag behind the log until the next record, as after a power loss.

        Raises:
            StoreError: the disk fails.
        """
        self.record, self.salts = record, salts
        self._sectors.write(record, _packed(self._node, Said(record, salts)))

    def flush(self) -> None:
        """Flush both sectors to disk.

        Raises:
            WitnessFullError: the disk is full, and the current contents are not on it. The caller may try again.
            StoreError: the current contents may not be on disk.
        """
        if not self._sectors.flush(_packed(self._node, Said(self.record, self.salts))):
            raise WitnessFullError(f"{self.path}: {ADVICE[sqlite3.SQLITE_FULL]}")

    def close(self) -> None:
        """Close the file and leave it where it is. It may be closed already."""
        self._sectors.close()


def witness_path(store: Path) -> Path:
    """Return the path of a store's witness."""
    return store.with_name(f"{store.name}-witness")


def said_by_witness(path: Path, data: bytes, node: Guid) -> Said:
    """Return the contents of a witness.

    Raises:
        StoreError: it is damaged, or belongs to another node.
    """
    found: list[Said] = []
    for said in said_in(path, data, SAID.size).values():
        magic, owner, record, *salts = SAID.unpack(said)
        if magic != MAGIC:
            raise damaged(path, "it is not a witness")
        if owner != node:
            raise another_nodes(path, Guid(owner), node)
        found.append(Said(record, Salts(*salts)))
    return max(found)


def _packed(node: Guid, said: Said) -> bytes:
    return SAID.pack(MAGIC, node, said.record, *said.salts)
