"""Tables in the format of Delta Lake: a log beside the files of each table says which of them count since when.

Whatever reads Delta reads them: deltalake, DuckDB, pandas, polars, Spark. Every version of a table is a snapshot. Ours
are committed by deltalake, without Java. A commit that another one came before fails: nothing is merged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from mqproto.captures.pipeline.source.storage import S3, endpoint
from mqproto.captures.pipeline.tables.parts import Part, Store

LOG: Final = "_delta_log"
SETTINGS: Final = {
    # So many commits are read from one file, and those of days before are deleted then.
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
}
STRICT: Final = CommitProperties(max_commit_retries=0)
"""Of commits that go on from what they have seen, or fail."""


def location(store: Store, table: str) -> tuple[str, dict[str, str]]:
    """What deltalake needs to open a table that lies there."""
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
    """A table as of a version, by default the last.

    Raises:
        TableNotFoundError: it is not there.
        DeltaError: its log cannot be read, or has not that version any more.
    """
    uri, options = location(store, table)
    return DeltaTable(uri, version=version, storage_options=options)


def newest(store: Store, table: str) -> DeltaTable | None:
    """The last version of a table, if it is there."""
    try:
        return opened(store, table)
    except TableNotFoundError:
        return None


def create(store: Store, table: str, schema: pa.Schema, added: Iterable[Part]) -> None:
    """A table with such files, as its version 0. What columns mean is in the metadata of the schema.

    Raises:
        DeltaError: there is one already, or it cannot be written.
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
    """The files of a table, by their names, which is by the runs that wrote them."""
    known = files(found)
    columns = [known[name].to_pylist() for name in ("path", "num_records", "size_bytes")]
    rows = zip(*columns, strict=True)
    return sorted(Part(f"{table}/{path}", count, size_bytes) for path, count, size_bytes in rows)


def files(found: DeltaTable) -> pa.Table:
    """What the log has of the files of a table: path, rows, size, and the least and the most of columns."""
    # pyarrow.table would import pandas first, to see whether this is of pandas.
    return pa.RecordBatchReader.from_stream(found.get_add_actions(flatten=True)).read_all()


def dataset(table: DeltaTable) -> Any:
    """The rows of a table for pyarrow and DuckDB, in the order of `parts`.

    deltalake takes it that nothing compares with a column of which the log has neither the least nor the most, as of
    texts and flags: a file was passed over by `kind = 'Ping'` that had some. What a file has, its own footer says.
    """
    known = table.to_pyarrow_dataset()
    found = sorted(known.get_fragments(), key=lambda each: each.path)
    fragments = [known.format.make_fragment(each.path, each.filesystem) for each in found]
    return type(known)(fragments, known.schema, known.format, known.filesystem)


def commit(
    found: DeltaTable, added: Iterable[Part], gone: Iterable[Part], tidied: Collection[str] = ()
) -> int:
    """Add and remove files in one commit; the version that it makes.

    Args:
        tidied: names of those that stand for one another: no row has come or gone with them.

    Raises:
        DeltaError: somebody else was quicker, or the commit cannot be written.
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
    """A table as it was in an earlier version, in a new one."""
    found.restore(version, ignore_missing_files=True, commit_properties=STRICT)
    found.update_incremental()
    return found


def sync(store: Store, table: str, version: int) -> None:
    """Have a commit on the disk before anything that rests on it, if this is a disk of ours."""
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
    """What deltalake has to say, on one line."""
    return str(error).partition("\n")[0]


__all__ = [
    "DeltaError",
    "DeltaTable",
    "commit",
    "create",
    "dataset",
    "files",
    "location",
    "newest",
    "opened",
    "parts",
    "restore",
    "sync",
    "why",
]
