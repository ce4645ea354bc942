"""Counts of problems: findings by code, arrivals by verdict, and sessions by their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.decode.findings import CODES
from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.facts.facts import Example, Found, Judgments, Place

EXAMPLES: Final = 10
"""The number of examples shown for each code."""
LINKED: Final = 5_000
"""The maximum number of findings listed with their messages, if the page lets readers look up all messages."""
OTHERS: Final = 4
"""The number of packets that are shown next to a finding as its evidence."""
_FOUND: Final = """
select severity, code, arg_min(coalesce(section, ''), place) as section, count(*) as count
from findings group by severity, code order by severity <> 'fault', count(*) desc, code, min(place)
"""
_EXAMPLES: Final = """
select severity, code, text, series, row_id, number, others, file, frame from findings
qualify row_number() over (partition by severity, code order by place) <= $kept order by place
"""


def judgments(connection: DuckDBPyConnection, kept: int = EXAMPLES) -> Judgments:
    """Return the counts of all problems, with examples.

    Args:
        kept: the maximum number of findings kept for each code.
    """
    found = {
        (row["severity"], row["code"]): Found(meaning=CODES.get(row["code"], ""), **row)
        for row in rows(connection, _FOUND)
    }
    for row in rows(connection, _EXAMPLES, kept=kept):
        examples = found[row["severity"], row["code"]].examples
        examples.append(_example(row, OTHERS if len(examples) < EXAMPLES else 0))
    return Judgments(
        [*found.values()],
        counts(connection, "duplicates", "verdict"),
        counts(connection, "sessions", "state"),
    )


def _example(row: dict[str, Any], others: int) -> Example:
    place = None if row["file"] is None else Place(row["file"], row["frame"] or 0)
    found = Example(row["text"], row["series"], row["row_id"], row["number"] or None, place)
    found.others = dict.fromkeys(row["others"][:others] if row["others"] else ())
    return found


def look_up(judged: Judgments, places: Places) -> None:
    """Request the packets of the examples."""
    for example in _examples(judged):
        if example.row_id is not None:
            places.want_row(example.series, example.row_id)
        for number in example.others:
            places.want_packet(example.series, number)


def complete(judged: Judgments, places: Places) -> None:
    """Fill in the packets that were found for the examples."""
    for example in _examples(judged):
        seen = None if example.row_id is None else places.row(example.series, example.row_id)
        if seen is not None:
            example.place, example.time_ns, example.message = seen.place, seen.captured_ns, seen.message
        for number in example.others:
            other = places.packet(example.series, number)
            example.others[number] = None if other is None else other.place


def _examples(judged: Judgments) -> Iterator[Example]:
    for each in judged.found:
        yield from each.examples


def counts(connection: DuckDBPyConnection, table: str, column: str) -> dict[str, int]:
    """Return the number of rows for each text in a column, the most frequent first."""
    sql = f"select {column}, count(*) from {table} group by all order by count(*) desc, {column}"
    return dict(connection.execute(sql).fetchall())
