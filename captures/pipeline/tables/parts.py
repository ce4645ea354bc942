"""The files of tables, in a folder or wherever pyarrow can reach.

Each file exists either completely or not at all. Tasks write parts, which are Parquet files with some rows of one
table. They write them directly to their final place, under names that a repeated task chooses again. A part counts when
the tables name it; see `tables`. Files that are not named are either still being written or left over.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mqproto.base.errors import MqprotoError
from mqproto.captures.pipeline.source.storage import absolute, is_remote, place_of, whole

HIDDEN: Final = "_"
"""As in Spark, the prefix of the names of files and folders that are not tables.

These are a log, a lock, and data that runs keep for later runs.
"""
COMPRESSION: Final = "zstd"
SAMPLE_ROWS: Final = 4_096
GROUP_ROWS: Final = 1 << 16
"""The number of rows in a row group. A search for few rows uses the statistics of the groups to read only those that
may have them.
"""


class TablesError(MqprotoError):
    """A folder whose tables cannot be used; the text says why and what to do."""


class Part(NamedTuple):
    """One file of a table.

    name: its name within the folder of all tables: `packets/4f5e-000003.parquet`.
    statistics: the statistics of its columns, as in Delta Lake; a search for few rows uses them to skip files.
    """

    name: str
    rows: int
    size_bytes: int
    statistics: str = ""

    @property
    def table(self) -> str:
        """The table that the part belongs to."""
        return self.name.partition("/")[0]


class Stored(NamedTuple):
    """A stored file.

    changed_ns: the time of its last change, since 1970.
    """

    name: str
    size_bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of tables: a local one, given by its path, or a remote one, given by its URI.

    Each process may have a Store of its own for the same folder. File names are relative to the folder, with slashes.
    """

    root: str

    @staticmethod
    def at(place: str | Path) -> Store:
        """Return the folder that a path or URI refers to.

        Raises:
            UsageError: as for `storage.absolute`.
        """
        return Store(absolute(str(place)).rstrip("/") or "/")

    @property
    def folder(self) -> Path | None:
        """The folder's path on this machine; None if it is remote."""
        return None if is_remote(self.root) else Path(self.root)

    def path(self, name: str) -> str:
        """Return the full path or URI of a file, for `parquet` and other programs."""
        return f"{self.root}/{name}"

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        with _system(self.root).open_input_file(_path(self.path(name))) as file:
            return bytes(file.readall())

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write a file, replacing any file with that name."""
        target = self.path(name)
        if is_remote(target):
            with _system(target).open_output_stream(_path(target)) as file:
                file.write(content)
            return
        with whole(Path(target)) as new, new.open("wb") as local:
            local.write(content)
            local.flush()
            os.fsync(local.fileno())

    def write_part(self, name: str, table: pa.Table) -> Part:
        """Write one part; a repeated task replaces what its first run wrote.

        Args:
            name: a name such as `packets/4f5e-000003.parquet`; a repeated task has to choose the same one.
        """
        stream = pa.BufferOutputStream()
        statistics = write_parquet(stream, table)
        content = stream.getvalue()
        self.write(name, content)
        return Part(name, table.num_rows, content.size, json.dumps(statistics))

    def files(self, folder: str = "") -> Iterator[Stored]:
        """Yield all files in a folder, including those in subfolders."""
        root = _path(self.root)
        selector = fs.FileSelector(_path(self.path(folder)).rstrip("/"), allow_not_found=True, recursive=True)
        for info in _system(self.root).get_file_info(selector):
            if info.type == fs.FileType.File:
                yield Stored(info.path.removeprefix(root).lstrip("/"), info.size, info.mtime_ns or 0)

    def names(self) -> list[str]:
        """Return the names of the files and folders directly in this folder."""
        selector = fs.FileSelector(_path(self.root), allow_not_found=True)
        return [info.base_name for info in _system(self.root).get_file_info(selector)]

    def remove(self, names: Iterable[str]) -> None:
        """Delete these files; files that do not exist are ignored."""
        system = _system(self.root)
        for name in names:
            with suppress(FileNotFoundError):
                system.delete_file(_path(self.path(name)))


def parquet(path: str, coded: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a part, given its path or URI, for reading; use the result in a `with` statement.

    Args:
        coded: the columns to read as schemas.columns.CODED.
    """
    if is_remote(path):
        source = _system(path).open_input_file(_path(path))
        return pq.ParquetFile(source, pre_buffer=True, read_dictionary=list(coded))
    return pq.ParquetFile(path, read_dictionary=list(coded))


def parquet_table(path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of a part, with all columns or only those in `columns`."""
    with parquet(path) as file:
        return file.read(columns=None if columns is None else list(columns))


def parquet_rows(paths: Sequence[str], where: pc.Expression) -> pa.Table:
    """Return the rows of some parts for which a condition holds."""
    from pyarrow import dataset  # Its import takes a while, and few need it.

    found = dataset.dataset([*map(_path, paths)], format="parquet", filesystem=_system(paths[0]))
    return found.to_table(filter=where)


def write_parquet(target: Any, table: pa.Table) -> dict[str, Any]:
    """Write rows to a path or stream `target`; return their statistics as in Delta Lake."""
    # A row group needs one dictionary; otherwise they are written as texts.
    table = table.unify_dictionaries()
    written: list[pq.FileMetaData] = []
    pq.write_table(
        table,
        target,
        metadata_collector=written,
        compression=COMPRESSION,
        row_group_size=GROUP_ROWS,
        use_dictionary=_repeating(table),
        # They mostly differ little from the previous ones.
        column_encoding={field.name: "DELTA_BINARY_PACKED" for field in table.schema if _is_whole(field)},
        # Otherwise readers would get texts as dictionaries, too.
        store_schema=False,
        # Nobody searches texts by order, and comparing them costs as much as writing them.
        write_statistics=[field.name for field in table.schema if pa.types.is_primitive(field.type)],
    )
    return _statistics(table, written)


def _statistics(table: pa.Table, written: Iterable[pq.FileMetaData]) -> dict[str, Any]:
    """Return the number of rows; and the minima, maxima and numbers of nulls of the columns of integers."""
    whole_numbers = {field.name for field in table.schema if pa.types.is_integer(field.type)}
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    nulls: Counter[str] = Counter()
    for file in written:
        for number in range(file.num_row_groups):
            group = file.row_group(number)
            for place in range(group.num_columns):
                column = group.column(place)
                name, known = column.path_in_schema, column.statistics
                if name in whole_numbers and known is not None:
                    nulls[name] += known.null_count
                    if known.has_min_max:
                        least[name] = min(known.min, least.get(name, known.min))
                        most[name] = max(known.max, most.get(name, known.max))
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _repeating(table: pa.Table) -> list[str]:
    """Return the columns that are worth a dictionary.

    These are the columns of lists, and the columns whose values repeat in the first rows. Columns of integers, and
    nested columns other than lists, are left out.
    """
    some = table.slice(0, SAMPLE_ROWS)
    nested = [f"{field.name}.list.element" for field in table.schema if pa.types.is_list(field.type)]
    plain = [field for field in table.schema if not (pa.types.is_nested(field.type) or _is_whole(field))]
    return nested + [each.name for each in plain if len(some[each.name].unique()) * 2 <= some.num_rows]


def _is_whole(field: pa.Field) -> bool:
    """Whether Parquet stores a column as whole numbers, as it does for times."""
    return bool(pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type))


def _system(path: str) -> Any:
    """Return the file system that a path or URI belongs to."""
    return place_of(path).system if is_remote(path) else fs.LocalFileSystem()


def _path(path: str) -> str:
    """Return a path or URI in the form that its file system uses."""
    return place_of(path).path if is_remote(path) else path
