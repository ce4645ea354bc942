"""The witness of a log: which record was the newest of which it was said that it is on disk.

It lies beside the log, `a.sqlite-witness`. A log says by itself only what it has; that something is missing at its end
only a witness can tell. It is written after each flush of the log and not flushed itself: after a kill it is exact,
after a power loss it may be behind the log, and never ahead of it. Before the tables move their mark it is flushed, so
it is never behind the tables.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import Struct
from typing import Final, Self

from mqproto.wire.guid import Guid
from simulator.base.storeerrors import ADVICE, DiskFullError
from simulator.storage.files import Files
from simulator.storage.segments import another_nodes, damaged, explained_file
from simulator.storage.witnesses.sectors import Sectors, said_in

MAGIC: Final = b"mqprowit"
SAID: Final = Struct("<8s16sQ")
"""Magic, the node's GUID, the record."""


class WitnessFullError(DiskFullError):
    """The disk has no room for a witness as it is now."""


class Witness:
    """The witness of one store, open for writing.

    Attributes:
        record: the newest record that is known to have been on disk; 0 if there was none.
    """

    def __init__(self, node: Guid, sectors: Sectors, record: int) -> None:
        self.path = sectors.path
        self.record = record
        self._node = node
        self._sectors = sectors

    @classmethod
    def create(cls, files: Files, store: Path, node: Guid, record: int) -> Self:
        """A new one, which is on disk.

        Raises:
            StoreError: it cannot be made.
        """
        path = witness_path(store)
        with explained_file(path):
            return cls(node, Sectors.create(files, path, SAID.pack(MAGIC, node, record)), record)

    @classmethod
    def open(cls, files: Files, store: Path, node: Guid) -> Self:
        """The one that is there.

        Raises:
            StoreError: it cannot be read, is damaged, or another node's.
        """
        path = witness_path(store)
        with explained_file(path):
            record = found_record(path, files.read(path), node)
            return cls(node, Sectors.open(files, path), record)

    def write(self, record: int) -> None:
        """All records up to this one are on disk.

        On a full disk the witness may stay behind the log until the next record, as after a power loss.

        Raises:
            StoreError: the disk fails.
        """
        self.record = record
        self._sectors.write(record, SAID.pack(MAGIC, self._node, record))

    def flush(self) -> None:
        """What was written is on disk, in both sectors.

        Raises:
            WitnessFullError: it is not: the disk is full. It may be tried again.
            StoreError: it may not be.
        """
        if not self._sectors.flush(SAID.pack(MAGIC, self._node, self.record)):
            raise WitnessFullError(f"{self.path}: {ADVICE[sqlite3.SQLITE_FULL]}")

    def close(self) -> None:
        """Leave the file where it is. It may be closed already."""
        self._sectors.close()


def witness_path(store: Path) -> Path:
    """The file of a store's witness."""
    return store.with_name(f"{store.name}-witness")


def found_record(path: Path, data: bytes, node: Guid) -> int:
    """What a witness says.

    Raises:
        StoreError: it is damaged, or another node's.
    """
    records: list[int] = []
    for said in said_in(path, data, SAID.size).values():
        magic, owner, record = SAID.unpack(said)
        if magic != MAGIC:
            raise damaged(path, "it is no witness")
        if owner != node:
            raise another_nodes(path, Guid(owner), node)
        records.append(record)
    return max(records)
