"""The witness of a log: which record was the newest of which it was said that it is on disk.

It lies beside the log, `a.sqlite-witness`. A log says by itself only what it has; that something is missing at its end
only a witness can tell. It is written after each flush of the log and not flushed itself: after a kill it is exact,
after a power loss it may be behind the log, and never ahead of it. Before the tables move their mark it is flushed, so
it is never behind the tables.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from struct import Struct
from typing import Final, Self

from mqproto.wire.guid import Guid
from simulator.base.storeerrors import ADVICE, StoreError
from simulator.storage.files import Files, LogFile, made
from simulator.storage.segments import FULL, SECTOR_BYTES, another_nodes, damaged, explained_file

MAGIC: Final = b"mqprowit"
SLOT: Final = Struct("<8s16sQ")
"""Magic, the node's GUID, the record; their checksum follows."""
CHECKSUM: Final = Struct("<I")
SIZE_BYTES: Final = 2 * SECTOR_BYTES


class WitnessFullError(StoreError):
    """The disk has no room for a witness as it is now."""


class Witness:
    """The witness of one store, open for writing.

    Records go to two sectors in turns: of one that was being written when the end came the other has the record before.

    Attributes:
        record: the newest record that is known to have been on disk; 0 if there was none.
    """

    def __init__(self, path: Path, node: Guid, file: LogFile, record: int) -> None:
        self.path = path
        self.record = record
        self._node = node
        self._file = file
        self._is_closed = False

    @classmethod
    def create(cls, files: Files, store: Path, node: Guid, record: int) -> Self:
        """A new one, which is on disk.

        Raises:
            StoreError: it cannot be made.
        """
        path = witness_path(store)
        with explained_file(path):
            slots = [_slot(node, record), _slot(node, record)]
            begins = b"".join(slot.ljust(SECTOR_BYTES, b"\0") for slot in slots)
            return cls(path, node, made(files, path, SIZE_BYTES, begins), record)

    @classmethod
    def open(cls, files: Files, store: Path, node: Guid) -> Self:
        """The one that is there.

        Raises:
            StoreError: it cannot be read, is damaged, or another node's.
        """
        path = witness_path(store)
        with explained_file(path):
            record = found_record(path, files.read(path), node)
            return cls(path, node, files.open(path), record)

    def write(self, record: int) -> None:
        """All records up to this one are on disk.

        Where a file system puts what is written elsewhere, a full disk may have no room for it. Then the witness is
        behind the log until the next record, as after a power loss.

        Raises:
            StoreError: the disk fails.
        """
        self.record = record
        try:
            self._file.write(record % 2 * SECTOR_BYTES, [_slot(self._node, record)])
        except OSError as error:
            if error.errno not in FULL:
                with explained_file(self.path):
                    raise

    def flush(self) -> None:
        """What was written is on disk, in both sectors.

        Raises:
            WitnessFullError: it is not: the disk is full. It may be tried again.
            StoreError: it may not be.
        """
        slot = _slot(self._node, self.record)
        try:
            self._file.write(0, [slot.ljust(SECTOR_BYTES, b"\0"), slot])
        except OSError as error:
            with explained_file(self.path):
                if error.errno in FULL:
                    raise WitnessFullError(f"{self.path}: {ADVICE[sqlite3.SQLITE_FULL]}") from error
                raise
        with explained_file(self.path):
            self._file.flush()

    def close(self) -> None:
        """Leave the file where it is. It may be closed already."""
        if not self._is_closed:
            self._is_closed = True
            self._file.close()


def witness_path(store: Path) -> Path:
    """The file of a store's witness."""
    return store.with_name(f"{store.name}-witness")


def found_record(path: Path, data: bytes, node: Guid) -> int:
    """What a witness says.

    Raises:
        StoreError: it is damaged, or another node's.
    """
    if len(data) != SIZE_BYTES:
        raise damaged(path, f"it has {len(data):,} bytes and was made with {SIZE_BYTES:,}")
    records: list[int] = []
    for start in (0, SECTOR_BYTES):
        slot = data[start : start + SLOT.size + CHECKSUM.size]
        magic, owner, record = SLOT.unpack_from(slot)
        if magic != MAGIC or slot != _slot(owner, record):
            continue
        if owner != node:
            raise another_nodes(path, Guid(owner), node)
        records.append(record)
    if not records:
        raise damaged(path, "neither of its two sectors fits its checksum")
    return max(records)


def _slot(node: bytes, record: int) -> bytes:
    data = SLOT.pack(MAGIC, node, record)
    return data + CHECKSUM.pack(zlib.crc32(data))
