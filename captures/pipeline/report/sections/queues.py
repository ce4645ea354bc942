"""The queues that messages go to: which are slow, since when, and how many messages wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mqproto.captures.pipeline.report.drawing.figures import course_figures, sparkline
from mqproto.captures.pipeline.report.drawing.markup import Line, pictures, table
from mqproto.captures.pipeline.report.facts.facts import Course, Facts, Queue
from mqproto.captures.pipeline.report.facts.overtime import slow_texts, waiting_text
from mqproto.captures.pipeline.report.facts.ranking import slowest
from mqproto.captures.pipeline.report.facts.spread import Spread
from mqproto.captures.pipeline.report.facts.words import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    about,
    counted,
    duration,
    escaped,
)

UNENDED: Final = "not seen to end"


def queues(facts: Facts) -> Iterator[str]:
    """All of them, the slowest first, and how it went over time."""
    found = facts.queues
    yield '<section id="queues"><h2>Queues</h2>'
    if not found.queues:
        yield "<p>No message of an application went to a queue.</p></section>"
        return
    yield from pictures(course_figures(*_charted(found.queues)))
    heads = ("queue", "over time", ">messages", ">not ended", ">failed", "~took")
    yield f"<p>{LINES}</p>"
    yield from table(heads, map(_row, slowest(found.queues)), "The slowest first.", named="queues-table")
    if found.left_out:
        yield (
            f"<p>And {counted(found.left_out, 'message')} to other queues, none of which has the slowest or the most "
            "messages.</p>"
        )
    yield "</section>"


LINES: Final = (
    "Lines: what half of the messages took, and 95 %, on a logarithmic scale. Below them, how many waited. All times "
    'in which it was slow are <a href="#slow">above</a>.'
)


def _charted(rows: list[Queue]) -> tuple[list[tuple[str, Course]], str]:
    return [
        (f"{queue.called or queue.name or 'no queue'}: {took(queue)}", queue.course)
        for queue in slowest(rows)
        if queue.course is not None
    ], UNENDED


def took(queue: Queue) -> str:
    """From where to where its durations are."""
    return TO_DESTINATION if queue.arrived.count else TO_ORDER_ACK


def _row(queue: Queue) -> Line:
    return Line(
        _cells(queue),
        {"queue": (queue.name, queue.called), "host": queue.hosts},
        {"slow": queue.slow_ns, "count": queue.messages},
    )


def _cells(queue: Queue) -> Iterator[str]:
    name = queue.called or queue.name
    title = f' title="{escaped(queue.name)}"' if name != queue.name else ""
    yield f"<span{title}>{escaped(name) or 'no queue'}</span>"
    yield over_time(queue.course, UNENDED)
    yield f"{queue.messages:,}"
    oldest = f'<br><span class="faint">for {duration(queue.oldest_ns)}</span>' if queue.unended else ""
    yield f"{queue.unended:,}{oldest}"
    yield f"{queue.failed:,}"
    yield f"{took(queue)}<br>{quantiles(queue.took)}" if queue.took.count else "–"


def quantiles(spread: Spread) -> str:
    """What half of all took at most, 95 %, and the slowest."""
    if not spread.count:
        return "–"
    shares = [f"{share:.0%}: {about(spread.quantile(share))}" for share in (0.5, 0.95)]
    return "<br>".join([*shares, f"most: {duration(spread.most)}"])


def over_time(course: Course | None, waiting: str) -> str:
    """How it went, drawn; and its longest slow time and since when something waits, in words."""
    if course is None or not (any(course.counts) or any(course.waiting)):
        return "–"
    said = [text for text in (*slow_texts(course, limit=1), waiting_text(course, waiting)) if text]
    return sparkline(course, waiting) + "<br>".join(map(escaped, said))
