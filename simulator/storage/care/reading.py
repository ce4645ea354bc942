"""The tables of a store, opened only for reading: with SQLite's log, or without if that belongs to others."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.storage.files import LOG_HEADER_BYTES, Files
from mqproto.simulator.storage.segments import SegmentName, explained_file, segments_of
from mqproto.simulator.storage.witnesses.sqlitelog import Salts, log_path, trouble_with
from mqproto.simulator.storage.witnesses.witness import said_by_witness, witness_path
from mqproto.wire.guid import NULL_GUID, Guid

ATTEMPTS: Final = 20
"""How often the moment is chosen anew because the node has meanwhile written what was read."""
UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""The errors of damaged tables; the second if SQLite quotes a statement of theirs that is not text any more."""


def opened(path: Path, *, with_log: bool = True) -> sqlite3.Connection:
    """Open the tables, only for reading.

    Args:
        with_log: whether SQLite's log belongs to them. If not, nobody may write to them meanwhile.
    """
    how = "mode=ro" if with_log else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None)


def log_at(files: Files, path: Path) -> tuple[bytes, list[SegmentName]]:
    """Return what tells the log of a node that has ended from a later one: its witness, and its segments.

    Each commit changes the witness, and a start removes the segments that it finds.
    """
    witness = b""
    with suppress(OSError):
        witness = _witness_of(files, path)
    return witness, segments_of(files, path)


def finding_of_log(files: Files, path: Path, *, is_locked: bool = False) -> str:
    """What to report about SQLite's log if it does not belong to the tables; empty if it does, or nobody knows.

    A running node saw at its start that it does, and the witness soon learns of each later one.

    Args:
        is_locked: whether the caller has the store's lock.
    """
    log = log_path(path)
    for _ in range(ATTEMPTS):
        with explained_file(path.parent):
            # The witness comes first, because it never knows of a later log than there is.
            witness = _witness_of(files, path)
            header = files.head(log, LOG_HEADER_BYTES)
            trouble = trouble_with(header, _salts_in(path, witness))
            if not trouble or (not is_locked and files.is_locked(path)) or not _is_of(path, witness):
                return ""
            if is_locked or witness == _witness_of(files, path):
                return f"{log.name}: {trouble}"
    return ""


def _witness_of(files: Files, path: Path) -> bytes:
    witness = witness_path(path)
    return files.read(witness) if witness.exists() else b""


def _salts_in(path: Path, witness: bytes) -> Salts | None:
    """The salts of SQLite's log as it was last seen, if this witness can be read."""
    try:
        return said_by_witness(witness_path(path), witness, _owner_in(witness)).salts
    except StoreError:
        return None


def _is_of(path: Path, witness: bytes) -> bool:
    """Whether tables and witness belong to one node, as far as the tables tell without SQLite's log."""
    whose = []
    with suppress(*UNREADABLE), closing(opened(path, with_log=False)) as db:
        whose = db.execute("SELECT guid FROM node").fetchall()
    return not witness or whose in ([], [(_owner_in(witness),)])


def _owner_in(witness: bytes) -> Guid:
    return Guid(witness[8:24].ljust(len(NULL_GUID), b"\0"))
