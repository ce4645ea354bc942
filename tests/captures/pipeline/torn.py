"""A writer that commits run after run, and readers that report what they saw.

Each run adds settled rows, replaces the open ones, and sometimes merges parts. The contents of the tables after each
run are known beforehand, so a reader that sees anything else has seen a torn read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from mqproto.captures.pipeline.tables.tables import Tables

SETTLED, OPEN = 40, 25
"""The number of settled rows that each run adds, and the number of open rows that the next run replaces."""
TIDIED_EVERY: Final = 3
SCHEMA: Final = pa.schema([("number", pa.int64()), ("run", pa.int64()), ("label", pa.string())])
SCHEMAS: Final = {"histories": SCHEMA, "hops": SCHEMA}


class Digest(NamedTuple):
    """A summary of a table: the number of rows, the number of distinct rows, and the sums of the rows' numbers and
    runs.
    """

    rows: int
    different: int
    numbers: int
    runs: int


def state(run: int) -> pa.Table:
    """Return the content of each table after a run."""
    settled = [(number, number // SETTLED + 1) for number in range(run * SETTLED)]
    opened = [(-number - 1, run) for number in range(OPEN if run else 0)]
    return rows([*settled, *opened])


def rows(of: list[tuple[int, int]]) -> pa.Table:
    """Return rows with these numbers and runs."""
    told = [{"number": number, "run": run, "label": f"order {number}"} for number, run in of]
    return pa.Table.from_pylist(told, schema=SCHEMA)


def digest(table: pa.Table) -> Digest:
    """Return the digest of a table."""
    numbers, runs = table["number"].to_pylist(), table["run"].to_pylist()
    return Digest(len(numbers), len(set(zip(numbers, runs, strict=True))), sum(numbers), sum(runs))


def write(folder: Path, last: int) -> None:
    """Commit runs up to the one with the number `last`."""
    tables = Tables(folder)
    first = 1 if tables.row is None else tables.row.run + 1
    opened = [part.name for name in tables.names for part in tables.parts(name) if "-open" in part.name]
    for number in range(first, last + 1):
        with tables.run() as run:
            added, tidied = [], []
            after = state(number)
            dropped = opened
            opened = []
            for name in SCHEMAS:
                new = after.slice((number - 1) * SETTLED, SETTLED)
                added.append(run.store.write_part(f"{name}/{run.name}.parquet", new))
                added.append(
                    run.store.write_part(f"{name}/{run.name}-open.parquet", after.slice(number * SETTLED))
                )
                opened.append(added[-1].name)
                settled = [part.name for part in tables.parts(name) if part.name not in dropped]
                if number % TIDIED_EVERY == 0:
                    one = after.slice(0, (number - 1) * SETTLED)
                    added.append(run.store.write_part(f"{name}/{run.name}-tidy.parquet", one))
                    tidied += [added[-1].name, *settled]
            gone = [
                *dropped,
                *(name for name in tidied if not name.endswith("-tidy.parquet") or run.name not in name),
            ]
            run.commit(added=added, schemas=SCHEMAS, dropped=gone, tidied=tidied, state={"number": number})


Read = Callable[[], list[Digest]]
"""A function that reads tables each time it is called; the tables were opened beforehand."""
Reader = Callable[[Path], Read]
"""A function that opens tables, as they are now."""


def by_duckdb(folder: Path) -> Read:
    """Read both tables in one query, as one run left them; return two digests, the second from a join of the tables."""
    tables = Tables(folder)
    histories, hops = tables.dataset("histories"), tables.dataset("hops")
    query = """
        select count(*), count(distinct (number, run)), sum(number)::bigint, sum(run)::bigint from {}
    """

    def read() -> list[Digest]:
        with duckdb.connect() as connection:
            connection.register("histories", histories)
            connection.register("hops", hops)
            joined = "(select number, run, label from histories join hops using (number, run, label))"
            found = [connection.execute(query.format(each)).fetchone() for each in ("hops", joined)]
        return [Digest(*each or ()) for each in found]

    return read


def by_pandas(folder: Path) -> Read:
    """Read the last version of one table with a program that knows nothing about runs."""
    table = DeltaTable(folder / "histories")
    return lambda: [digest(pa.Table.from_pandas(table.to_pandas(), preserve_index=False))]


def by_polars(folder: Path) -> Read:
    """Read the last version of one table with polars; check that both tables are as one run left them."""
    last, tables = pl.scan_delta(str(folder / "hops")), Tables(folder)
    both = [pl.scan_pyarrow_dataset(tables.dataset(name)) for name in SCHEMAS]

    def read() -> list[Digest]:
        histories, hops = (digest(table.collect().to_arrow()) for table in both)
        assert histories == hops, "tables of two runs"
        return [digest(last.collect().to_arrow()), hops]

    return read


def by_files(folder: Path) -> list[Digest]:
    """Read all existing files, as the README once recommended: nobody should do that."""
    return [digest(ds.dataset(sorted(map(str, (folder / "histories").glob("*.parquet")))).to_table())]


READERS: Final[dict[str, Reader]] = {"DuckDB": by_duckdb, "pandas": by_pandas, "polars": by_polars}
