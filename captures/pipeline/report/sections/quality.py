"""What the captures lack, and what cannot be said because of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.captures.decode.views.quality import NOTHING, lacks, unread
from mqproto.captures.pipeline.report.drawing.markup import table
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.facts.words import counted, duration, escaped
from mqproto.captures.points import Point

POINTS_LISTED: Final = 50


def quality(facts: Facts) -> Iterator[str]:
    """What the captures lack comes first: all else is said under that condition."""
    yield '<section id="quality"><h2>What the captures lack</h2>'
    found = {point.name: list(lacks(point)) for point in facts.points[:POINTS_LISTED]}
    if not facts.points:
        yield "<p>There are no frames.</p></section>"
        return
    if left := unread(facts.captured.reasons):
        yield f"<p>{escaped(left)}.</p>"
    elif not any(found.values()):
        yield f"<p>At {counted(len(facts.points), 'capture point')}, {NOTHING}.</p>"
    heads = (
        "capture point",
        ">connections",
        ">bytes missing",
        ">gaps",
        ">frames cut",
        ">packets in part",
        ">one side",
        ">late",
        "clock",
    )
    caption = "Connections are those of message queuing."
    if any(point.clock for point in facts.points):
        caption += " All times in this report are by the reference clock."
    yield from table(heads, map(_point_row, facts.points[:POINTS_LISTED]), caption)
    if len(facts.points) > POINTS_LISTED:
        yield f"<p>And {counted(len(facts.points) - POINTS_LISTED, 'capture point')} more.</p>"
    for name, each in found.items():
        if each:
            yield f'<h3>{escaped(name)}</h3><dl class="lacks">'
            for lack in each:
                yield f"<dt>{escaped(lack.what)}</dt><dd>{escaped(lack.fact)}.<br><b>{escaped(lack.so)}.</b></dd>"
            yield "</dl>"
    yield "</section>"


def _point_row(point: Point) -> Iterator[str]:
    yield escaped(point.name)
    yield f"{point.connections:,}"
    yield f"{point.missing_bytes:,}"
    yield f"{point.gaps:,}"
    yield f"{point.cut_frames:,}"
    yield f"{point.cut_packets:,}"
    yield f"{point.one_sided:,}"
    yield f"{point.headless:,}"
    yield escaped(_clock(point))


def _clock(point: Point) -> str:
    clock = point.clock
    if clock is None:
        return "not compared" if point.compared else "the only one"
    if clock.reference == point.name:
        return "the reference"
    within = "?" if clock.uncertainty_ns is None else duration(clock.uncertainty_ns)
    return f"{duration(clock.offset_ns)} ± {within}"
