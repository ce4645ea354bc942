"""The file of a store's life, `a.life` next to `a.sqlite`. It has the last known state of the store.

The file keeps that state even if another store replaces this one. It is not part of the store: a copy or a backup of
`a.sqlite*` does not include it. So the file stays when the store is restored or moved away, and can be compared with
the store (identity.py). It is written after each commit, without a flush. So after a kill it is exact; after a power
loss it may be behind the log, but never ahead of it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self

from mqproto.simulator.base.storeerrors import ADVICE, DiskFullError, StoreError
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.segments import damaged, explained_file, store_of
from mqproto.simulator.storage.witnesses.witness import Sectors, said_in
from mqproto.turn.effects import LIFE, MESSAGE_ID_CEILING, SEQUENCE_ORDINAL_CEILING
from mqproto.wire.guid import Guid, guid_text

MAGIC: Final = b"mqprolif"
PATH_BYTES: Final = 320
"""The maximum length, in bytes, of a path that is kept whole.

A longer path is kept as its digest and its end.
"""
HEAD: Final = Struct("<8s16sQQQQ")
"""The form of the first part: magic, the node's GUID, the life, its newest record, and two ceilings.

The ceilings are those of MessageIDs and of the Ordinals of TxSequenceIDs.
"""
TAIL: Final = Struct(f"<BQQ32s{PATH_BYTES}s")
"""The form of the second part.

It has the cause of a life that is about to begin, and the time at which the previous life was last seen; then the
home's inode, machine and path.
"""
SIZE_BYTES: Final = HEAD.size + TAIL.size


class Home(NamedTuple):
    """The place of a store.

    machine: see `Files.machine`.
    path: the path of its tables.
    inode: the inode of their file.
    """

    machine: str
    path: str
    inode: int


NOWHERE: Final = Home("", "", 0)
"""The home that a store has if it does not record one."""


class Cause(IntEnum):
    """The reason why a life begins."""

    NONE = 0
    """The last life continues."""
    FIRST = 1
    """No life has begun before."""
    GONE = 2
    """The store of the previous life was moved away, or lost."""
    RESTORED = 3
    """The store is from an earlier moment than the file of its life, or is not the same file."""
    WITHOUT_FILE = 4
    """The store has no file of its life, so the cause is unknown."""
    DAMAGED_FILE = 5
    """The file of its life cannot be read, so the cause is unknown."""
    ADOPTED = 6
    """An operator has said that the store was moved here."""


class LifeNote(NamedTuple):
    """The facts about a life, as recorded in a store or in the file of its life.

    life: the number of the life; 0 before the first has begun.
    record: the number of the newest record in the store's log.
    message_id: a ceiling: neither this MessageID nor a higher one was ever used.
    sequence_ordinal: a ceiling: no TxSequenceID with this Ordinal or a higher one was ever used.
    cause: the reason why a new life is about to begin.
    seen_s: the time (UTC) at which the previous life was last seen; 0 if that is unknown.
    """

    life: int
    record: int
    message_id: int
    sequence_ordinal: int
    home: Home
    cause: Cause = Cause.NONE
    seen_s: int = 0


class LifeFile:
    """The file of a store's life, open for writing."""

    def __init__(self, node: Guid, sectors: Sectors, known: LifeNote, turn: int) -> None:
        self.known = known
        self._node = node
        self._sectors = sectors
        self._turn = turn
        self._tail = _tail(known)

    @classmethod
    def create(cls, files: Files, store: Path, node: Guid, known: LifeNote) -> Self:
        """Create a file on disk. It replaces an existing one.

        Raises:
            StoreError: it cannot be made.
        """
        path = life_path(store)
        with explained_file(path):
            sectors = Sectors.create(files, path, _head(node, known) + _tail(known))
            return cls(node, sectors, known, 0)

    @classmethod
    def open(cls, files: Files, store: Path, node: Guid) -> Self:
        """Open the existing file.

        Raises:
            StoreError: it cannot be read, is damaged, or belongs to another node.
        """
        path = life_path(store)
        with explained_file(path):
            data = files.read(path)
            found = {turn: _known(path, said, node) for turn, said in said_in(path, data, SIZE_BYTES).items()}
            newest = max(found, key=lambda turn: (found[turn].life, found[turn].record))
            return cls(node, Sectors.open(files, path), found[newest], newest)

    def committed(self, record: int, counters: dict[str, int]) -> None:
        """Record that the transaction with this record number and these counters is on disk.

        On a full disk, the file may lag behind the log until the next transaction, as after a power loss.

        Raises:
            StoreError: the disk fails.
        """
        self.known = _followed(self.known, record, counters)
        self._turn += 1
        self._sectors.write(self._turn, _head(self._node, self.known) + self._tail)

    def goes_on(self, known: LifeNote) -> None:
        """Record that a life continues. The file is changed in place, which needs no room.

        After a power loss, the file has either the new contents or the previous ones.

        Raises:
            DiskFullError: the file system has no room even for that.
            StoreError: the disk fails.
        """
        tail = _tail(known)
        if not self._sectors.flush(_head(self._node, known) + tail):
            raise DiskFullError(f"{self._sectors.path}: {ADVICE[sqlite3.SQLITE_FULL]}")
        self.known, self._tail = known, tail

    def begins(self, known: LifeNote, record: int, counters: dict[str, int]) -> None:
        """Record the transaction with which a life begins, and flush the file.

        Raises:
            StoreError: the disk fails.
        """
        self.known = _followed(known, record, counters)
        self._tail = _tail(known)
        self.flush()

    def flush(self) -> None:
        """Flush the written data to disk, in both sectors, unless the disk is full.

        Raises:
            StoreError: the data may not be on disk.
        """
        self._sectors.flush(_head(self._node, self.known) + self._tail)

    def close(self) -> None:
        """Close the file and leave it where it is. It may be closed already."""
        self._sectors.close()


def life_path(store: Path) -> Path:
    """Return the path of the file of a store's life."""
    return store.with_name(f"{store.name.removesuffix('.sqlite')}.life")


def home_of(files: Files, store: Path) -> Home:
    """Return the place where a store is, or is about to be.

    Raises:
        StoreError: its folder cannot be read.
    """
    with explained_file(store):
        path = str(store).encode("utf-8", "backslashreplace")
        if len(path) > PATH_BYTES:
            digest = hashlib.blake2b(path, digest_size=16).hexdigest().encode()
            path = digest + b"..." + path[len(digest) + 3 - PATH_BYTES :]
        return Home(files.machine(), path.decode("utf-8", "ignore"), files.identity(store).inode)


def _followed(known: LifeNote, record: int, counters: dict[str, int]) -> LifeNote:
    # This runs once for each commit, and `_replace` takes three times as long.
    life, _, message_id, sequence_ordinal, home, cause, seen_s = known
    if counters:
        life = counters.get(LIFE, life)
        message_id = counters.get(MESSAGE_ID_CEILING, message_id)
        sequence_ordinal = counters.get(SEQUENCE_ORDINAL_CEILING, sequence_ordinal)
    return LifeNote(life, record, message_id, sequence_ordinal, home, cause, seen_s)


def _head(node: Guid, known: LifeNote) -> bytes:
    return HEAD.pack(MAGIC, node, known.life, known.record, known.message_id, known.sequence_ordinal)


def _tail(known: LifeNote) -> bytes:
    machine, path, inode = known.home
    return TAIL.pack(known.cause, known.seen_s, inode, machine.encode(), path.encode())


def _known(path: Path, said: bytes, node: Guid) -> LifeNote:
    magic, owner, life, record, message_id, sequence_ordinal = HEAD.unpack(said[: HEAD.size])
    cause, seen_s, inode, machine, lives_in = TAIL.unpack(said[HEAD.size :])
    if magic != MAGIC or cause not in set(Cause):
        raise damaged(path, "it says nothing of a life")
    if owner != node:
        raise StoreError(
            f"{path}: it belongs to {guid_text(Guid(owner))}, not to {guid_text(node)}: name another store, or remove"
            f" this file if {store_of(path).name} is the right one"
        )
    home = Home(_decoded(machine), _decoded(lives_in), inode)
    return LifeNote(life, record, message_id, sequence_ordinal, home, Cause(cause), seen_s)


def _decoded(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "replace")
