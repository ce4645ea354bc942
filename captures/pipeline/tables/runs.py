"""The table `runs`, which has a row for each run.

A row names the versions of all other tables that belong together. Delta Lake commits one table at a time. A run commits
to the tables that it changes, and to `runs` last: it counts once its row is there. Readers of several tables take the
versions from one row. A run that died has left versions that no row names, and the next run restores the versions
before them.

For each row, a file in `_state` has the facts about earlier runs that later ones need. The files of all rows except the
last are deleted sooner or later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.tables import delta
from mqproto.captures.pipeline.tables.parts import HIDDEN, Part, Store, TablesError, parquet_table
from mqproto.captures.pipeline.tables.schemas.tables import RUNS

TABLE: Final = "runs"
STATES: Final = f"{HIDDEN}state"
VERSION: Final = 9
"""The version of the layout of the tables. Raise it whenever a table changes."""
PARTS: Final = 64
"""The number of files of this table that are merged into one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run; its fields are the columns of the table.

    run: the number of the run, counted from 1.
    name: a unique name, which is part of the names of all files that the run wrote.
    time: the time at which it ended.
    form: the layout of the tables; see VERSION.
    versions, rows: for each table, its version and its number of rows.
    state: the name of the file with the run's State.
    """

    run: int
    name: str
    time: datetime
    program: str
    form: int
    versions: Mapping[str, int]
    rows: Mapping[str, int]
    state: str


@dataclass(slots=True)
class State:
    """The state for the next run.

    told: a JSON object.
    files: the names of the files outside the tables that are still needed.
    dropped: the names of files of earlier runs that only current readers still need. Each comes with the time at which
        it ceased to count, in seconds since 1970.
    """

    told: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    dropped: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(store: Store, row: Row) -> State:
        """Read the state of a run.

        Raises:
            TablesError: the state no longer exists, or is damaged.
        """
        try:
            return State(**json.loads(store.read(row.state)))
        except (OSError, ValueError, TypeError) as error:
            why = f"{store.path(row.state)} cannot be read: {delta.why(error)}"
            raise TablesError(f"{why}; analyse the captures into another folder") from None

    def as_json(self) -> bytes:
        """Return the state in the form in which it is stored."""
        return json.dumps(asdict(self), indent=1).encode()


class Runs:
    """The table `runs`.

    Attributes:
        table: the Delta table; None before the first run.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.table = delta.newest(store, TABLE)

    def last(self) -> Row | None:
        """Return the last run; None if there was none.

        Raises:
            TablesError: the run was written by another version of this program.
        """
        found = [] if self.table is None else delta.files(self.table).to_pylist()
        if not found:
            return None
        newest = max(found, key=lambda each: (each["max.run"], each["path"]))
        return self._rows([f"{TABLE}/{newest['path']}"])[-1]

    def all(self) -> list[Row]:
        """Return all runs, in order."""
        names = [] if self.table is None else [part.name for part in delta.parts(self.table, TABLE)]
        return self._rows(names) if names else []

    def add(self, row: Row) -> list[str]:
        """Add the row of a run as its last action, so that the run counts; return the names of files that no longer
        count.

        Raises:
            DeltaError: another run came first.
        """
        added, gone, version = [self._write(f"{row.name}", [row])], list[Part](), 0
        if self.table is None:
            delta.create(self._store, TABLE, RUNS.commented, added)
            self.table = delta.opened(self._store, TABLE)
        else:
            before = delta.parts(self.table, TABLE)
            if len(before) >= PARTS:
                gone = before
                added.append(self._write(f"{row.name}-before", self.all()))
            tidied = {part.name for part in (*gone, *added[1:])}
            version = delta.commit(self.table, added, gone, tidied)
            self.table.update_incremental()
        delta.sync(self._store, TABLE, version)
        return [part.name for part in gone]

    def _write(self, name: str, rows: Sequence[Row]) -> Part:
        plain = [
            asdict(row) | {"versions": [*row.versions.items()], "rows": [*row.rows.items()]} for row in rows
        ]
        return self._store.write_part(
            f"{TABLE}/{name}.parquet", pa.Table.from_pylist(plain, schema=RUNS.schema)
        )

    def _rows(self, names: Sequence[str]) -> list[Row]:
        found = pa.concat_tables(parquet_table(self._store.path(name), RUNS.schema.names) for name in names)
        form = pc.max(found["form"]).as_py()
        if form != VERSION:
            raise TablesError(
                f"{self._store.root} has tables of layout {form}, this program makes {VERSION}: "
                "analyse the captures into another folder"
            )
        # Converting a time by pyarrow needs pandas, which takes 0.2 s to import.
        times_us = found["time"].cast(pa.int64()).to_pylist()
        told = found.drop_columns(["time"]).to_pylist(maps_as_pydicts="strict")
        rows = [
            Row(time=datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us), **each)
            for each, time_us in zip(told, times_us, strict=True)
        ]
        return sorted(rows, key=lambda row: row.run)
