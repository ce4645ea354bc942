"""Sequences with their gaps, and traffic over time."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.captures.pipeline.report.drawing.figures import sequences_figure, traffic_figure
from mqproto.captures.pipeline.report.drawing.markup import picture, table
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.facts.words import counted, escaped, gaps_text, share


def sequences(facts: Facts) -> Iterator[str]:
    sequences = facts.sequences
    yield '<section id="sequences"><h2>Sequences and their gaps</h2>'
    gaps = "no number was missing on any hop"
    if sequences.gaps:
        gaps = f"on all hops together {gaps_text(sequences)}"
    yield f"<p>{counted(sequences.count, 'transactional sequence')}; {gaps}.</p>"
    if any(each.gaps for each in sequences.shown):
        yield "<p>A pale box is a gap, until its numbers came; a dark one was still open at the end.</p>"
    yield from picture(sequences_figure(sequences, facts.captured.last_ns or 0))
    yield "</section>"


def traffic(facts: Facts) -> Iterator[str]:
    yield '<section id="traffic"><h2>Traffic over time</h2>'
    if facts.traffic is None:
        yield "<p>The captures have no packets of message queuing.</p></section>"
        return
    yield from picture(traffic_figure(facts.traffic))
    kinds = facts.traffic.kinds
    yield from table(
        ("kind", ">packets", ">share"),
        ((escaped(kind), f"{count:,}", share(count, sum(kinds.values()))) for kind, count in kinds.items()),
    )
    yield "</section>"
