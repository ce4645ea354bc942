"""The tables of a store, opened only for reading: with SQLite's log, or without it if it belongs to other tables."""

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
"""The maximum number of attempts to read. An attempt fails if the node writes to the data meanwhile."""
UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""The errors that damaged tables cause. The second occurs if SQLite quotes a stored statement that is no longer valid
text."""


def opened(path: Path, *, with_log: bool = True) -> sqlite3.Connection:
    """Open the tables for reading only.

    Args:
        with_log: whether SQLite's log belongs to the tables. If it does not, nobody may write to the tables meanwhile.
    """
    how = "mode=ro" if with_log else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None)


def log_at(files: Files, path: Path) -> tuple[bytes, list[SegmentName]]:
    """Return what identifies the log: its witness and its segments. They distinguish the log of a node that has ended
    from a later log.

    Each commit changes the witness, and a start removes the segments that it finds.
    """
    witness = b""
    with suppress(OSError):
        witness = _witness_of(files, path)
    return witness, segments_of(files, path)


def finding_of_log(files: Files, path: Path, *, is_locked: bool = False) -> str:
    """Return a finding if SQLite's log does not belong to the tables. If it does, or if that is unknown, return an
    empty string.

    A running node checked its log when it started, and the witness soon has the salts of each later log.

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
    """Return the last known salts of SQLite's log, or None if this witness cannot be read."""
    try:
        return said_by_witness(witness_path(path), witness, _owner_in(witness)).salts
    except StoreError:
        return None


def _is_of(path: Path, witness: bytes) -> bool:
    """Return whether the tables and the witness belong to the same node, according to the tables without SQLite's
    log.
    """
    whose = []
    with suppress(*UNREADABLE), closing(opened(path, with_log=False)) as db:
        whose = db.execute("SELECT guid FROM node").fetchall()
    return not witness or whose in ([], [(_owner_in(witness),)])


def _owner_in(witness: bytes) -> Guid:
    return Guid(witness[8:24].ljust(len(NULL_GUID), b"\0"))
