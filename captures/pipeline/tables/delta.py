"""Tables in the format of Delta Lake.

A log next to each table's files tells which files count, and since when. Anything that reads Delta Lake can read them:
deltalake, DuckDB, pandas, polars, Spark. Every version of a table is a snapshot. Ours are committed by deltalake,
without Java. A commit fails if another one came first; nothing is merged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from mqproto.captures.pipeline.source.storage import S3, endpoint
from mqproto.captures.pipeline.tables.parts import Part, Store

LOG: Final = "_delta_log"
SETTINGS: Final = {
    # This many commits are read from one file; those more than a day old are then deleted.
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
}
STRICT: Final = CommitProperties(max_commit_retries=0)
"""Options for commits that fail unless they build on the version they have seen."""


def location(store: Store, table: str) -> tuple[str, dict[str, str]]:
    """Return the path and options with which deltalake opens a stored table."""
    scheme, found, rest = store.path(table).partition("://")
    if not found:
        return scheme, {}
    options: dict[str, str] = {}
    if scheme.lower() in S3:
        scheme = "s3"
        if (server := endpoint()) is not None:
            options["AWS_ENDPOINT_URL"] = server
            options["AWS_ALLOW_HTTP"] = str(server.startswith("http:")).lower()
    return f"{scheme}://{rest}", options


def opened(store: Store, table: str, version: int | None = None) -> DeltaTable:
    """Open a given version of a table, by default the last.

    Raises:
        TableNotFoundError: the table does not exist.
        DeltaError: its log cannot be read, or no longer has that version.
    """
    uri, options = location(store, table)
    return DeltaTable(uri, version=version, storage_options=options)


def newest(store: Store, table: str) -> DeltaTable | None:
    """Return the last version of a table; None if it does not exist."""
    try:
        return opened(store, table)
    except TableNotFoundError:
        return None


def create(store: Store, table: str, schema: pa.Schema, added: Iterable[Part]) -> None:
    """Create a table with these files, as its version 0. The schema's metadata says what the columns mean.

    Raises:
        DeltaError: the table exists already, or it cannot be written.
    """
    uri, options = location(store, table)
    create_table_with_add_actions(
        uri,
        Schema.from_arrow(schema),
        _additions(added, ()),
        name=table,
        configuration=SETTINGS,
        storage_options=options,
        commit_properties=STRICT,
    )


def parts(found: DeltaTable, table: str) -> list[Part]:
    """Return the files of a table, sorted by name and therefore by the runs that wrote them."""
    known = files(found)
    columns = [known[name].to_pylist() for name in ("path", "num_records", "size_bytes")]
    rows = zip(*columns, strict=True)
    return sorted(Part(f"{table}/{path}", count, size_bytes) for path, count, size_bytes in rows)


def files(found: DeltaTable) -> pa.Table:
    """Return what the log says about the files of a table.

    This is the path, the number of rows, the size, and the minima and maxima of columns.
    """
    # pyarrow.table would first import pandas, to see whether this comes from pandas.
    return pa.RecordBatchReader.from_stream(found.get_add_actions(flatten=True)).read_all()


def dataset(table: DeltaTable) -> Any:
    """Return the rows of a table for pyarrow and DuckDB, in the order of `parts`.

    Some columns, such as those of strings or Booleans, have no minimum and maximum in the log. deltalake assumes that
    no comparison matches such a column: with `kind = 'Ping'`, it skips files that have Pings. So the footer of each
    file is used here.
    """
    known = table.to_pyarrow_dataset()
    found = sorted(known.get_fragments(), key=lambda each: each.path)
    fragments = [known.format.make_fragment(each.path, each.filesystem) for each in found]
    return type(known)(fragments, known.schema, known.format, known.filesystem)


def commit(
    found: DeltaTable, added: Iterable[Part], gone: Iterable[Part], tidied: Collection[str] = ()
) -> int:
    """Add and remove files in one commit; return the new version.

    Args:
        tidied: the names of files that only replace one another, so that no rows are added or removed.

    Raises:
        DeltaError: another commit came first, or the commit cannot be written.
    """
    actions: list[AddAction | RemoveAction] = [*_additions(added, tidied)]
    for part in gone:
        actions.append(RemoveAction(_path(part), part.name not in tidied, _now_ms(), part.size_bytes, {}))
    found.create_write_transaction(actions, "append", found.schema(), commit_properties=STRICT)
    return found.version() + 1


def _additions(added: Iterable[Part], tidied: Collection[str]) -> list[AddAction]:
    return [
        AddAction(_path(part), part.size_bytes, {}, _now_ms(), part.name not in tidied, part.statistics)
        for part in added
    ]


def _path(part: Part) -> str:
    return part.name.partition("/")[2]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def restore(found: DeltaTable, version: int) -> DeltaTable:
    """Restore a table to an earlier version, which becomes its newest version; return the table."""
    found.restore(version, ignore_missing_files=True, commit_properties=STRICT)
    found.update_incremental()
    return found


def sync(store: Store, table: str, version: int) -> None:
    """If the table is on a local disk, flush a commit to it, before anything that depends on the commit."""
    if store.folder is None:
        return
    for path in (store.folder / table / LOG / f"{version:020d}.json", store.folder / table / LOG):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why(error: Any) -> str:
    """Return the first line of deltalake's error message."""
    return str(error).partition("\n")[0]
