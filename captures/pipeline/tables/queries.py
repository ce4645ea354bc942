"""Queries on the tables, with DuckDB.

A query sees the tables as one run left them, even if a later run writes to them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from mqproto.base.errors import UsageError
from mqproto.captures.pipeline.tables import delta, runs
from mqproto.captures.pipeline.tables.schemas.tables import TABLES
from mqproto.captures.pipeline.tables.tables import Tables

FORMS: Final = {"parquet": "format parquet, compression zstd", "csv": "format csv, header"}
"""The formats in which tables can be exported, with DuckDB's options for them."""
ANSWER: Final = "answer"
"""The name of the file to which the rows of a query are exported."""


class Answer(NamedTuple):
    """The rows of a query.

    is_all: whether these are all rows of the query.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    is_all: bool


def answer(tables: Tables, sql: str, limit: int | None = None) -> Answer:
    """Return the answer to a query.

    Args:
        limit: the maximum number of rows.

    Raises:
        UsageError: DuckDB does not understand the text, or the text is not a query.
    """
    with connected(tables) as connection, _told():
        found = connection.execute(sql)
        if not (found and found.description):  # Of a comment alone, there is no answer at all.
            raise UsageError(f"{sql!r} asks for no rows: begin with SELECT, FROM or DESCRIBE")
        rows = found.fetchall() if limit is None else found.fetchmany(limit)
        columns = [str(column[0]) for column in found.description]
        return Answer(columns, rows, limit is None or found.fetchone() is None)


def export(tables: Tables, folder: Path, form: str, sql: str | None = None) -> list[Path]:
    """Write each table to its own file, or the rows of a query to one file; return the paths of the files.

    Raises:
        UsageError: the folder is not empty; or as for `answer`.
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} has something in it: choose another folder for what is exported")
    asked = {name: f'from "{name}"' for name in tables.names} if sql is None else {ANSWER: sql.rstrip("; \n")}
    written = []
    with connected(tables) as connection, _told():
        for name, query in asked.items():
            path = folder / f"{name}.{form}"
            place = str(path).replace("'", "''")
            rows = _harmless(connection, query) if form == "csv" else query
            connection.execute(f"copy ({rows}\n) to '{place}' ({FORMS[form]})")
            written.append(path)
    return written


def _harmless(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the query with an apostrophe before each text that a spreadsheet would run as a formula."""
    columns = connection.sql(f"describe {query}").fetchall()
    chosen = []
    for place, (name, kind, *_) in enumerate(columns):
        found = f"column_{place}"  # By position, because several may have the same name.
        if kind.startswith(("VARCHAR", "BLOB", "ENUM")) and not kind.endswith("[]"):
            text = f"{found}::varchar"
            found = f"if(({text})[1] in ('=', '+', '-', '@', chr(9), chr(13)), chr(39) || {text}, {text})"
        chosen.append('{} as "{}"'.format(found, name.replace('"', '""')))
    places = ", ".join(f"column_{place}" for place in range(len(columns)))
    return f"select {', '.join(chosen)} from ({query}\n) as found({places})"


@contextmanager
def connected(tables: Tables, *, whole: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection in which each table, and `runs`, can be used by its name.

    Args:
        whole: whether to add missing tables as empty ones, and a column `place` with each row's position in its table.
    """
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name in {**dict.fromkeys(tables.names), **(TABLES if whole else {})}:
            paths = ", ".join("'{}'".format(path.replace("'", "''")) for path in tables.paths(name))
            if paths and tables.store.folder is not None:
                rows = f"read_parquet([{paths}], hive_partitioning = false)"
                place = "file_index * (1::bigint << 40) + file_row_number"
            else:
                there = name in tables.names
                held = tables.dataset(name) if there else TABLES[name].written.empty_table()
                connection.register(rows := f"rows of {name}", held)
                rows, place = f'"{rows}"', "row_number() over ()"
            connection.execute(f'create view "{name}" as select *{f", {place} as place" * whole} from {rows}')
        if tables.history.table is not None:
            connection.register(runs.TABLE, delta.dataset(tables.history.table))
        yield connection


@contextmanager
def _told() -> Iterator[None]:
    """Turn DuckDB's errors into our one-line errors."""
    try:
        yield
    except duckdb.IOException as error:
        raise OSError(str(error).partition("\n")[0]) from None
    except duckdb.Error as error:
        raise UsageError(str(error).partition("\n")[0]) from None
