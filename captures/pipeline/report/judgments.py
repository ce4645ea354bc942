"""What is wrong: findings by their codes, arrivals by their verdict, sessions by how they ended, clocks."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from captures.decode.findings import CODES
from captures.pipeline.report.facts import Example, Found, Judgments
from captures.pipeline.report.scanning import batches, grouped, rows
from captures.pipeline.stages.clocks import CLOCKS
from captures.pipeline.tables import Tables

EXAMPLES: Final = 10
"""Of each code, so many are shown."""
LINKED: Final = 10_000
"""So many at most are told of with the messages that they are about, where all messages can be looked up."""
CLOCKS_SHOWN: Final = 64
_FINDING: Final = ("severity", "code", "section", "text", "series", "number", "file", "frame")


def judgments(tables: Tables, kept: int = EXAMPLES) -> Judgments:
    """All of it.

    Args:
        kept: so many findings of each code at most.
    """
    return Judgments(
        _found(tables, kept),
        _counts(tables, "duplicates", "verdict"),
        _counts(tables, "sessions", "state"),
        [row for _, row in zip(range(CLOCKS_SHOWN), rows(tables, "clocks", CLOCKS.names), strict=False)],
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
                each.examples.append(
                    Example(row["text"], row["series"], row["number"] or None, row["file"], row["frame"])
                )
    return sorted(found.values(), key=lambda each: (each.severity != "fault", -each.count, each.code))


def _counts(tables: Tables, table: str, column: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for batch in batches(tables, table, (column,)):
        for (value,), places in grouped(batch, (column,)):
            counts[value] += len(places)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
