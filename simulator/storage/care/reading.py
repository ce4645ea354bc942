"""The tables of a store, opened for reading alone: with what SQLite's log has, or without if that belongs to others."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from mqproto.wire.guid import NULL_GUID, Guid
from simulator.base.storeerrors import StoreError
from simulator.storage.files import LOG_HEADER_BYTES, Files
from simulator.storage.segments import explained_file
from simulator.storage.witnesses.sqlitelog import Salts, log_path, trouble_with
from simulator.storage.witnesses.witness import said_by_witness, witness_path

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What may come of hurt tables; the second if SQLite quotes a statement of theirs that is no text any more."""


def opened(path: Path, *, with_log: bool = True) -> sqlite3.Connection:
    """The tables, for reading alone.

    Args:
        with_log: whether SQLite's log belongs to them. If not, nobody may write to them meanwhile.
    """
    how = "mode=ro" if with_log else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, isolation_level=None)


def finding_of_log(files: Files, path: Path) -> str:
    """What is to be said of SQLite's log if it does not belong to the tables; nothing if it does, or nobody knows."""
    with explained_file(log_path(path)):
        # The witness first: of a node that runs it never knows of a later log than this one.
        known = _known_salts(files, path)
        trouble = trouble_with(files.head(log_path(path), LOG_HEADER_BYTES), known)
    return f"{log_path(path).name}: {trouble}" if trouble else ""


def _known_salts(files: Files, path: Path) -> Salts | None:
    """Those of SQLite's log as it was seen last, if the witness says so and is that of these tables."""
    witness = witness_path(path)
    if not path.exists() or not witness.exists():
        return None
    data = files.read(witness)
    owner = Guid(data[8:24].ljust(len(NULL_GUID), b"\0"))
    whose = []
    with suppress(*UNREADABLE), closing(opened(path, with_log=False)) as db:
        whose = db.execute("SELECT guid FROM node").fetchall()
    try:
        return said_by_witness(witness, data, owner).salts if whose in ([], [(owner,)]) else None
    except StoreError:
        return None
