"""Tables in a folder: Parquet parts, and a manifest that says which of them count.

Tasks write parts under `_work`, whole or not at all, by names that a repeated task chooses again. When all parts of
a run are there they are moved beside the earlier ones, and a new manifest takes the place of the old. So a run is there
as a whole or not at all; what the manifest does not name is left over from a run that failed, and the next run removes
it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from captures.pipeline.whole import whole
from mqproto.base.errors import MqprotoError

VERSION: Final = 6
"""Raised whenever a table, or the name of a class that `saving` pickles, changes."""
MANIFEST: Final = "manifest.json"
SCHEMAS: Final = "schema.json"
LOCK: Final = "_lock"
WORK: Final = "_work"
HIDDEN: Final = "_"
"""What begins with it is no table, as Spark has it: a log, a lock, what runs keep for later ones."""
COMPRESSION: Final = "zstd"
SAMPLE_ROWS: Final = 4_096
GROUP_ROWS: Final = 1 << 16
"""Whoever looks for few rows reads no more than the groups that may have them, as their statistics say."""


class TablesError(MqprotoError):
    """A folder whose tables cannot be used; the text says why and what to do."""


class Part(NamedTuple):
    """One file of a table.

    name: within the folder of all tables: `packets/4f5e-000003.parquet`.
    """

    name: str
    rows: int
    size_bytes: int

    @property
    def table(self) -> str:
        """The table that it belongs to."""
        return self.name.partition("/")[0]


@dataclass(slots=True)
class Manifest:
    """What a folder holds.

    version: of the tables' form; a folder of another version is not read.
    parts: every part that counts, in the order of its table.
    state: what a later run has to know of the earlier ones, as JSON has it.
    """

    version: int = VERSION
    parts: list[Part] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """The names of all tables."""
        return sorted({part.table for part in self.parts if not part.table.startswith(HIDDEN)})

    def of(self, table: str) -> list[Part]:
        """The parts of one table."""
        return [part for part in self.parts if part.table == table]

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return sum(part.rows for part in self.of(table))


class Tables:
    """The tables in one folder.

    Raises:
        TablesError: the folder holds something else, or tables of another version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.manifest = self._read()

    def paths(self, table: str) -> list[str]:
        """The files of a table, for whatever reads Parquet."""
        return [str(self.folder / part.name) for part in self.manifest.of(table)]

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table in memory.

        Raises:
            TablesError: there is no such table.
        """
        paths = self.paths(table)
        if not paths:
            raise TablesError(f"{self.folder} has no table {table}: analyse captures into it first")
        parts = [pq.read_table(path, columns=columns, partitioning=None) for path in paths]
        return pa.concat_tables(parts)

    @contextmanager
    def run(self) -> Iterator[Run]:
        """Change the tables. Nothing has changed unless the run was committed.

        Raises:
            TablesError: another run is at work in this folder.
            OSError: the folder cannot be written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise TablesError(
                    f"{self.folder} is being written by another run: wait for its end, or choose another folder"
                ) from None
            self.manifest = self._read()
            self._remove_leftovers()
            run = Run(self, self.folder / WORK / uuid.uuid4().hex[:12])
            run.folder.mkdir(parents=True)
            try:
                yield run
            finally:
                shutil.rmtree(self.folder / WORK, ignore_errors=True)

    def _read(self) -> Manifest:
        try:
            text = (self.folder / MANIFEST).read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            if self.folder.exists() and not _is_ours(self.folder):
                raise TablesError(
                    f"{self.folder} holds something else than tables: choose another folder"
                ) from None
            return Manifest()
        try:
            found = json.loads(text)
            version = found["version"]
            if version != VERSION:
                raise TablesError(
                    f"{self.folder} has tables of version {version}, this program makes {VERSION}: "
                    "analyse the captures into another folder"
                )
            return Manifest(version, [Part(*each) for each in found["parts"]], found["state"])
        except (ValueError, KeyError, TypeError):
            raise TablesError(
                f"{self.folder / MANIFEST} is no manifest of ours: choose another folder"
            ) from None

    def _remove_leftovers(self) -> None:
        """What a run that failed has left: parts that no manifest names."""
        shutil.rmtree(self.folder / WORK, ignore_errors=True)
        named = {part.name for part in self.manifest.parts}
        for path in self.folder.glob("*/*.parquet"):
            if path.relative_to(self.folder).as_posix() not in named:
                path.unlink()


class Run:
    """One change of the tables, under way.

    Attributes:
        folder: where tasks write, a folder for each table in it; gone after the run.
        name: unique among all runs, for names of parts.
    """

    def __init__(self, tables: Tables, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name
        self._tables = tables

    def commit(
        self,
        *,
        added: Sequence[Part],
        replaced: Collection[str] = (),
        dropped: Sequence[Part] = (),
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the parts of this run count.

        Args:
            added: parts that lie in `folder`.
            replaced: tables whose earlier parts count no more.
            dropped: single parts that count no more.
            state: what takes the place of `Manifest.state`.

        Raises:
            OSError: the disk is full or fails; the tables are as they were.
        """
        tables = self._tables
        before = tables.manifest
        gone = {part.name for part in dropped} | {
            part.name for part in before.parts if part.table in replaced
        }
        kept = [part for part in before.parts if part.name not in gone]
        assert len({part.name for part in added}) == len(added), "each part has a name of its own"
        after = Manifest(VERSION, [*kept, *added], dict(before.state if state is None else state))
        for part in added:
            target = tables.folder / part.name
            target.parent.mkdir(exist_ok=True)
            os.replace(self.folder / part.name, target)
        for name in sorted({part.table for part in added}):
            _sync_folder(tables.folder / name)
        _replace(tables.folder / SCHEMAS, _schemas(tables.folder, after))
        _replace(tables.folder / MANIFEST, json.dumps(asdict(after), indent=1))
        tables.manifest = after
        for name in gone:
            (tables.folder / name).unlink(missing_ok=True)


def write_part(folder: Path, name: str, table: pa.Table) -> Part:
    """Write one part, whole or not at all; a part of that name is replaced.

    Args:
        folder: `Run.folder`.
        name: `packets/4f5e-000003.parquet`; what a repeated task would choose again.
    """
    repeating = _repeating(table)
    # Numbers that do not repeat mostly differ little from those before them.
    numbers = [field.name for field in table.schema if _is_whole_number(field.type)]
    encodings = {name: "DELTA_BINARY_PACKED" for name in numbers if name not in repeating}
    with whole(folder / name) as path, path.open("wb") as file:
        pq.write_table(
            table,
            file,
            compression=COMPRESSION,
            row_group_size=GROUP_ROWS,
            use_dictionary=repeating,
            column_encoding=encodings,
            # Nobody looks for texts by their order, and to compare them costs as much as to write them.
            write_statistics=[field.name for field in table.schema if pa.types.is_primitive(field.type)],
        )
        file.flush()
        os.fsync(file.fileno())
        size_bytes = file.tell()
    return Part(name, table.num_rows, size_bytes)


def _repeating(table: pa.Table) -> list[str]:
    """The columns whose values repeat, as far as the first rows show: others make no dictionary worth its time."""
    some = table.slice(0, SAMPLE_ROWS)
    nested = [f"{field.name}.list.element" for field in table.schema if pa.types.is_list(field.type)]
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return nested + [name for name in plain if len(some[name].unique()) * 2 <= some.num_rows]


def _is_whole_number(kind: pa.DataType) -> bool:
    """Whether Parquet has whole numbers for a column: for times, too."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _is_ours(folder: Path) -> bool:
    """Whether a folder without a manifest is empty, or was left by a first run that failed."""
    return folder.is_dir() and (
        (folder / LOCK).exists() or all(path.name.startswith(HIDDEN) for path in folder.iterdir())
    )


def _schemas(folder: Path, manifest: Manifest) -> str:
    """The columns of every table, for people and programs that want to know them before they read."""
    described = {}
    for table in manifest.tables:
        schema = pq.read_schema(folder / manifest.of(table)[-1].name)
        described[table] = [
            {"name": column.name, "type": str(column.type), "nullable": column.nullable} for column in schema
        ]
    return json.dumps({"version": VERSION, "tables": described}, indent=1)


def _replace(path: Path, text: str) -> None:
    with whole(path) as new, new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
