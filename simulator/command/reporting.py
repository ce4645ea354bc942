"""The commands that show tables.

`mqproto report` makes a page, or prints a message's history; `mqproto tables` lists, queries and exports tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, Printout
from mqproto.simulator.command.options import JsonOption

if TYPE_CHECKING:
    from mqproto.captures.pipeline.report.counts.messages import Sought
    from mqproto.captures.pipeline.tables.tables import Tables

PAGE: Final = "report.html"
NAMED_LIMIT: Final = 10
"""The maximum number of messages with the same name whose histories are printed."""
ROWS_LIMIT: Final = 1_000
"""The maximum number of rows that are printed for a query if the output is not JSON."""
HOUR_S: Final = 3_600


class Form(StrEnum):
    """The formats in which tables can be exported."""

    PARQUET = "parquet"
    CSV = "csv"


TablesArgument = Annotated[
    str, ARGUMENT, "The folder or URI of the tables, as in mqproto analyse --out.", value("DIR")
]


def report(
    tables: TablesArgument,
    html: Annotated[
        Path | None, "The page to write; by default report.html in DIR.", "--html", "--out", "-o"
    ] = None,
    find: Annotated[
        str | None,
        "Instead of a page, print the histories of messages with this text in their label or identifier.",
        "--find",
        "--message",
        "-m",
        value("TEXT"),
    ] = None,
    queue: Annotated[
        str | None, "With --find: only messages to queues with this text in their name.", "-q"
    ] = None,
    host: Annotated[
        str | None, "With --find: only messages through queue managers with this text in their name."
    ] = None,
) -> Printout:
    """Make one self-contained HTML page from the tables of `mqproto analyse`, and print a summary.

    The page shows the captures, the outcomes of messages, routes, latency, sequences and their gaps, and findings with
    their frames. It can search 5,000 messages by label or identifier; --find searches any number. Status 1 if a peer
    broke the protocol, if a signature fails, or if --find finds no message.

    \b
    mqproto report tables
    mqproto report tables --html monday.html
    mqproto report tables --find 'order 17' --host 10.0.0.7
    """
    _see_that_there_is(tables)
    from mqproto.captures.pipeline.report.counts.messages import Sought
    from mqproto.captures.pipeline.source.storage import whole
    from mqproto.captures.pipeline.tables.tables import Tables
    from mqproto.simulator.base.screen import working

    opened = Tables(tables)
    if not (find is queue is host is None):
        if html is not None:
            raise UsageError("--find, --queue and --host write no page: leave out --html")
        return _told(opened, Sought(find or "", queue or "", host or ""))
    if html is None and opened.store.folder is None:
        raise UsageError(f"{tables} is not on this machine: say with --html where the page is to go")
    target = Path(tables) / PAGE if html is None else html
    with working(f"reading {tables}") as say:
        from mqproto.captures.pipeline.report.gather import gather
        from mqproto.captures.pipeline.report.page import page
        from mqproto.captures.pipeline.report.summary import as_json as facts_as_json, lines

        facts = gather(opened)
        say("drawing the page")
        with whole(target) as file:
            file.write_text(page(facts), "utf-8")
    page_is = f"\n{target}: open it in a browser"
    is_bad = facts.judgments.faults or facts.security.failing or facts.security.altered
    value = facts_as_json(facts) | {"page": str(target)}
    return Printout(value, [*lines(facts), page_is], FINDING if is_bad else DONE)


class NoTablesError(MqprotoError):
    """A folder has no tables, because no captures have been analyzed into it."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} has no tables: run mqproto analyse CAPTURES --out {place}")


def _see_that_there_is(place: str) -> None:
    """Check that the folder exists, before the slow import of the module that reads tables.

    That module itself checks folders that are not on this machine.

    Raises:
        NoTablesError: the folder should be on this machine, but does not exist.
    """
    from mqproto.captures.pipeline.source.storage import absolute, may_be_there

    if not may_be_there(absolute(place)):
        raise NoTablesError(place)


def _told(tables: Tables, sought: Sought) -> Printout:
    """Return the histories of the messages that match `sought`."""
    from mqproto.captures.pipeline.report.gather import find
    from mqproto.captures.pipeline.report.summary import story, story_as_json
    from mqproto.simulator.base.screen import working

    with working(f"looking for {sought}"):
        found = find(tables, sought, NAMED_LIMIT + 1)
    rows = found[:NAMED_LIMIT]
    if not rows:
        return Printout([], [f"no message in {tables.folder} has all of this: {sought}"], FINDING)
    lines = ["\n".join(story(*each)) for each in rows]
    if len(found) > NAMED_LIMIT:
        lines.append("and more; name it by more of its label, or by its --queue or --host")
    return Printout([story_as_json(*each) for each in rows], lines)


def tables(
    place: TablesArgument,
    columns: Annotated[str | None, "Describe each column of a table.", value("TABLE")] = None,
    sql: Annotated[
        str | None,
        "Run this query, in DuckDB's SQL, on the tables that this command lists.",
        value("QUERY"),
    ] = None,
    export: Annotated[
        Path | None, "Write each table, or the rows of --sql, to a file in this folder.", value("FOLDER")
    ] = None,
    form: Annotated[Form, "The format of --export.", "--format"] = Form.PARQUET,
    run: Annotated[
        int | None,
        "Show the tables as this earlier run left them; all runs are in the table named runs.",
        value(min=1),
    ] = None,
    vacuum: Annotated[
        float | None, "Delete files that no run of the last HOURS hours needs.", value("HOURS", min=0)
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """List, query or export the tables of `mqproto analyse`.

    Everything is read as of one moment, even if tables are written in the meantime.

    \b
    mqproto tables tables
    mqproto tables tables --columns histories
    mqproto tables tables --sql 'SELECT queue, outcome FROM histories'
    mqproto tables tables --export folder --format csv
    """
    _see_that_there_is(place)
    from mqproto.captures.pipeline.tables.tables import Tables
    from mqproto.simulator.base.screen import working

    if [columns is not None, sql is not None or export is not None, vacuum is not None].count(True) > 1:
        raise UsageError("--columns, --sql with --export, and --vacuum are different things: one at a time")
    opened = Tables(place, run)
    if opened.row is None:
        raise NoTablesError(place)
    if vacuum is not None:
        with working("deleting files that nobody needs"):
            count = opened.vacuum(vacuum * HOUR_S)
        told = Printout({"deleted": count}, [f"{count:,} files that nobody needs deleted"])
    elif export is not None:
        from mqproto.captures.pipeline.tables import queries

        with working(f"writing to {export}"):
            written = [str(path) for path in queries.export(opened, export, form, sql)]
        told = Printout(written, written)
    elif sql is not None:
        told = _answer(opened, sql, None if as_json else ROWS_LIMIT)
    else:
        told = _described(columns) if columns is not None else _listed(opened)
    return told.show(as_json=as_json)


def _answer(tables: Tables, sql: str, limit: int | None) -> Printout:
    from mqproto.captures.pipeline.tables.queries import answer
    from mqproto.simulator.base.screen import working

    with working("asking the tables"):
        found = answer(tables, sql, limit)
    value = (dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows)
    lines = _aligned([found.columns, *(list(map(_shown, row)) for row in found.rows)])
    more = [f"and more than these {ROWS_LIMIT:,} rows: ask for fewer, or use --export"] * (not found.is_all)
    return Printout(list(value) if limit is None else None, chain(lines, more))


def _described(name: str) -> Printout:
    from mqproto.captures.pipeline.tables.schemas.tables import RUNS, TABLES

    known = {**TABLES, "runs": RUNS}
    if name not in known:
        raise UsageError(f"there is no table {name!r}, but {', '.join(sorted(known))}")
    found = known[name]
    value = [column._replace(type=str(column.type))._asdict() for column in found.columns]
    lines = _aligned([[each.name, str(each.type), each.unit, each.meaning] for each in found.columns])
    return Printout(value, chain([f"{name}: {found.about}\n"], lines))


def _listed(tables: Tables) -> Printout:
    from mqproto.captures.pipeline.tables.schemas.tables import TABLES

    row = tables.row
    assert row is not None
    told = {name: {"rows": row.rows[name], "version": row.versions[name]} for name in tables.names}
    lines = [f"run {row.run}, {row.time:%Y-%m-%d %H:%M:%S} UTC, by {row.program}\n"]
    wide = max(map(len, tables.names), default=0)
    for name in tables.names:
        about = TABLES[name].about if name in TABLES else ""
        lines.append(f"{name:<{wide}} {row.rows[name]:>12,} rows  {about}".rstrip())
    value = {"run": row.run, "time": row.time.isoformat(), "program": row.program, "tables": told}
    return Printout(value, lines)


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    """Yield lines with aligned columns."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{text:<{width}}" for text, width in zip(row, wide, strict=True)).rstrip()


def _shown(value: Any) -> str:
    """Return a value as text on one line."""
    return "" if value is None else str(value).replace("\n", " ")


def _plain(value: Any) -> Any:
    """Return a value in a form for programs."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number.
    return value if isinstance(value, str | int | float | bool | None) else str(value)
