"""Sequences with their gaps, and traffic over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mqproto.captures.pipeline.report.drawing.figures import traffic_figures
from mqproto.captures.pipeline.report.drawing.markup import Line, pictures, table
from mqproto.captures.pipeline.report.facts.facts import Facts, SequenceHop
from mqproto.captures.pipeline.report.facts.words import clock, counted, duration, escaped, gaps_text, share

GAPS_NAMED: Final = 6


def sequences(facts: Facts) -> Iterator[str]:
    sequences = facts.sequences
    yield '<section id="sequences"><h2>Sequences and their gaps</h2>'
    gaps = "no number was missing on any hop"
    if sequences.gaps:
        gaps = f"on all hops together {gaps_text(sequences)}"
    yield f"<p>{counted(sequences.count, 'transactional sequence')}; {gaps}.</p>"
    if sequences.shown:
        called = {queue.name: queue.called for queue in facts.queues.queues}
        heads = ("from", "to", "sequence", "queue", ">messages", "numbers late or missing")
        caption = "Those with most gaps, by when they began."
        yield from table(
            heads, (_row(each, called, facts.captured.first_ns or 0) for each in sequences.shown), caption
        )
    yield "</section>"


def _row(each: SequenceHop, called: Mapping[str, str], since_ns: int) -> Line:
    row = each.row
    said = [_gap_text(gap, since_ns) for gap in each.gaps[:GAPS_NAMED]]
    said += [f"and {row['gaps'] - GAPS_NAMED:,} more"] * (row["gaps"] > GAPS_NAMED)
    ends = row["from_label"], row["to_label"]
    numbers = f"numbers {row['first_number']:,}–{row['last_number']:,}"
    cells = (
        *map(escaped, ends),
        f'{escaped(row["sequence"])}<br><span class="faint">{numbers}</span>',
        escaped(called.get(each.queue) or each.queue),
        f"{row['messages']:,}",
        "<br>".join(map(escaped, said)) or "none",
    )
    return Line(cells, {"host": ends, "queue": [each.queue, called.get(each.queue, "")]}, {})


def _gap_text(gap: dict[str, Any], since_ns: int) -> str:
    first, last = gap["first_number"], gap["last_number"]
    numbers = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    opened = clock(gap["opened_ns"], since_ns)
    if gap["filled_ns"] is None:
        return f"{numbers} not seen to come, since {opened}"
    return f"{numbers} for {duration(gap['filled_ns'] - gap['opened_ns'])} from {opened} on"


def traffic(facts: Facts) -> Iterator[str]:
    yield '<section id="traffic"><h2>Traffic over time</h2>'
    if facts.traffic is None:
        yield "<p>The captures have no packets of message queuing.</p></section>"
        return
    yield from pictures(traffic_figures(facts.traffic))
    kinds = facts.traffic.kinds
    yield from table(
        ("kind", ">packets", ">share"),
        ((escaped(kind), f"{count:,}", share(count, sum(kinds.values()))) for kind, count in kinds.items()),
    )
    yield "</section>"
