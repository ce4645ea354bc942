"""What is wrong: findings by their codes, arrivals by their verdict, sessions by how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from mqproto.captures.decode.findings import CODES
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.counts.scanning import batches, grouped
from mqproto.captures.pipeline.report.facts.facts import Example, Found, Judgments, Place
from mqproto.captures.pipeline.tables.tables import Tables

EXAMPLES: Final = 10
"""How many of each code are shown."""
LINKED: Final = 5_000
"""How many at most are told of with the messages that they are about, where all messages can be looked up."""
OTHERS: Final = 4
"""How many of the packets that a finding rests on are shown beside it."""
_FINDING: Final = (
    "severity",
    "code",
    "section",
    "text",
    "series",
    "row_id",
    "number",
    "others",
    "file",
    "frame",
)


def judgments(tables: Tables, kept: int = EXAMPLES) -> Judgments:
    """All of it.

    Args:
        kept: how many findings of each code at most.
    """
    return Judgments(
        _found(tables, kept),
        _counts(tables, "duplicates", "verdict"),
        _counts(tables, "sessions", "state"),
    )


def _found(tables: Tables, kept: int) -> list[Found]:
    found: dict[tuple[Any, ...], Found] = {}
    for batch in batches(tables, "findings", _FINDING):
        for key, places in grouped(batch, ("severity", "code")):
            severity, code = key
            if key not in found:
                section = batch.column("section")[int(places[0])].as_py() or ""
                found[key] = Found(severity, code, CODES.get(code, ""), section)
            each = found[key]
            each.count += len(places)
            for place in places[: kept - len(each.examples)].tolist():
                row = batch.slice(place, 1).to_pylist()[0]
                is_shown = len(each.examples) < EXAMPLES
                each.examples.append(_example(row, OTHERS if is_shown else 0))
    return sorted(found.values(), key=lambda each: (each.severity != "fault", -each.count, each.code))


def _example(row: dict[str, Any], others: int) -> Example:
    place = None if row["file"] is None else Place(row["file"], row["frame"] or 0)
    found = Example(row["text"], row["series"], row["row_id"], row["number"] or None, place)
    found.others = dict.fromkeys(row["others"][:others] if row["others"] else ())
    return found


def look_up(judged: Judgments, places: Places) -> None:
    """Ask for the packets of examples."""
    for example in _examples(judged):
        if example.row_id is not None:
            places.want_row(example.series, example.row_id)
        for number in example.others:
            places.want_packet(example.series, number)


def complete(judged: Judgments, places: Places) -> None:
    """Have what was found for them."""
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


def _counts(tables: Tables, table: str, column: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for batch in batches(tables, table, (column,)):
        for (value,), places in grouped(batch, (column,)):
            counts[value] += len(places)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
