"""Copies a store as it was at one moment, whether its node is running or not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.simulator.base.storeerrors import ADVICE, StoreError, explained, repair_advice
from mqproto.simulator.storage.base import Mark, StoreTables
from mqproto.simulator.storage.care.repair import brought
from mqproto.simulator.storage.care.salvage import Salvage, salvaged
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.tables import see_that_all_is_there
from mqproto.simulator.storage.witnesses.witness import Said, StoreWitness, witness_path

ADVICE_FOR_BACKUPS: Final = {
    **ADVICE,
    sqlite3.SQLITE_FULL: "the disk is full: make room, or name another folder for the backup",
    sqlite3.SQLITE_IOERR: "the disk fails: look to it, or name another folder for the backup",
}


class BackUp(NamedTuple):
    """A finished copy.

    path: the path of the copy's tables; the witness is next to them.
    record: the number of the copy's newest record, which identifies the moment.
    counts: the number of messages in each queue, keyed by the name that people use for the queue.
    """

    path: Path
    record: int
    counts: dict[str, int]


def back_up(files: Files, path: Path, target: Path, then: Callable[[], None] = lambda: None) -> BackUp:
    """Copy a store. The copy has no log, because everything is in its tables.

    The whole store is read first, so a damaged store is never backed up. The backup is either complete or absent.

    Args:
        target: the .sqlite file of the copy, or a folder for a file of the same name. The folder is made if necessary.
        then: called at the moment whose state the copy shows. It copies those files next to the store that may change
            afterward.

    Raises:
        StoreError: there is no store, or it is damaged; the copy exists already, or cannot be written.
    """
    if target.suffix != ".sqlite":
        target /= path.name
    for there in (target, witness_path(target)):
        if there.exists():
            raise StoreError(f"{there}: it is there already: name another file or folder for the backup")
    with closing(salvaged(files, path)) as found:
        if found.findings or found.node is None:
            others = f" and {len(found.findings) - 1} more" if len(found.findings) > 1 else ""
            raise StoreError(
                f"{path}: it is hurt, so there is no backup of it ({found.findings[0]}{others}): `mqproto store export`"
                f" takes what is whole; {repair_advice(path)}"
            )
        draft: Path | None = None
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            then()
            draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            with explained(target, ADVICE_FOR_BACKUPS):
                _copy(files, found, draft / target.name)
            # The tables come last: if they are there, the rest is.
            for name in (witness_path(target).name, target.name):
                (draft / name).rename(target.parent / name)
            files.flush_folder(target.parent)
        except StoreError as error:
            raise StoreError(str(error).replace(str(draft), str(target.parent))) from error
        except OSError as error:
            raise StoreError(
                f"{target}: it cannot be written ({error.strerror}): make room, or name another folder"
            ) from error
        finally:
            if draft is not None:
                shutil.rmtree(draft, ignore_errors=True)
        return BackUp(target, found.record, found.named_counts())


def _copy(files: Files, found: Salvage, path: Path) -> None:
    """Merge the tables and the log, both as of one moment, into the tables of a new store."""
    assert found.node is not None
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path)) as copy:
        found.db.backup(copy)
    with closing(StoreTables(files, path, found.node)) as tables:
        transactions = (found.records[number] for number in sorted(found.records))
        segment = max(found.last_segment, tables.mark().segment) + 1
        tables.take_over(brought(tables, transactions), Mark(segment, found.record + 1, is_begun=False))
        see_that_all_is_there(tables.db)
        salts = tables.log_salts
    StoreWitness.create(files, path, found.node, Said(found.record, salts)).close()
