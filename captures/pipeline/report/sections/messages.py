"""Messages that are stuck, that failed, that were slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from mqproto.captures.pipeline.report.drawing.markup import Line, link, marks, table, tag
from mqproto.captures.pipeline.report.facts.facts import Facts, Story
from mqproto.captures.pipeline.report.facts.outcomes import BAD, STUCK, total, unknown
from mqproto.captures.pipeline.report.facts.words import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    duration,
    escaped,
    sentence,
    took,
    when,
)

ENDED_BADLY: Final = 10
"""How many messages that are stuck are listed, and how many of which the end is not known."""
REASONS: Final = 12
BECAME: Final = "what became of it"
WORST: Final = 5
"""How many of each other list."""


def worst(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section id="worst"><h2>Stuck, failed and slow messages</h2>'
    if not messages.count:
        yield "<p>The captures have no message of an application.</p>"
    outcomes = messages.outcomes
    stuck, untold = messages.stuck[:ENDED_BADLY], messages.unknown[:ENDED_BADLY]
    cannot = "The captures cannot tell how these ended. "
    lists = (
        ("Not seen to end", stuck, total(outcomes, STUCK), "", BECAME),
        ("Not known", untold, unknown(outcomes), cannot, BECAME),
        ("Refused or expired", messages.failed, total(outcomes, BAD), _failures(messages.failures), BECAME),
        ("Longest to their destination", messages.slowest[:WORST], 0, "", "route"),
        ("Longest until their OrderAck", messages.latest[:WORST], 0, "", "route"),
        ("Sent again most often", messages.resent[:WORST], 0, "", "route"),
    )
    heads = ("message", "~first seen, UTC", f">{TO_DESTINATION}", f">{TO_ORDER_ACK}", ">resends", "~end")
    for title, rows, count, said, last in lists:
        if not rows:
            continue
        caption = f"{said}The earliest come first." if last == BECAME else ""
        of_all = "" if count <= len(rows) else f", {len(rows)} of {count:,}"
        yield f"<h3>{title}{of_all}</h3>"
        lines = (_line(row, messages.stories[row["message"]], last) for row in rows)
        yield from table(
            (*heads, last), lines, caption, named="failed-table" if rows is messages.failed else ""
        )
    if messages.count and not any(rows for _, rows, *_ in lists):
        yield "<p>None: every message came where it should at once.</p>"
    yield "</section>"


def _line(row: dict[str, Any], told: Story, last: str) -> Line:
    label = [row["label"] or "", row["message"]]
    sought = {"queue": [row["queue"] or ""], "host": row["route"] or (), "label": label}
    return Line(_worst_row(row, told, last), sought, {})


def _worst_row(row: dict[str, Any], told: Story, last: str) -> Iterator[str]:
    acked_ns = row["order_acked_ns"]
    protected = [] if told.secured is None else told.secured.marks()
    yield link(row["message"], row["label"]) + (f"<br>{marks(protected)}" if protected else "")
    yield when(row["first_ns"])
    if row["latency_ns"] is None or row["hops"] < 2:
        yield duration(None)
    else:
        yield sentence(took("", row["latency_ns"], row["latency_uncertainty_ns"])).strip()
    yield duration(None if acked_ns is None else acked_ns - row["first_ns"])
    yield f"{row['resends']:,}"
    yield tag(row["outcome"])
    if last != BECAME:
        yield escaped(_route(row["route"]))
    else:
        yield escaped(sentence(told.verdict), limit=None)


def _failures(found: dict[str, int]) -> str:
    """`23 refused: its queue does not exist`."""
    shown = [f"{count:,} {escaped(text)}" for text, count in list(found.items())[:REASONS]]
    return "; ".join([*shown, "and others"] if len(found) > REASONS else shown) + ". "


def _route(labels: Sequence[str]) -> str:
    """From where to where, and over how many hops."""
    return f"{labels[0]} → {labels[-1]}" + (f", {len(labels) - 1} hops" if len(labels) > 2 else "")
