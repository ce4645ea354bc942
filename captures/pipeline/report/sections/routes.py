"""Who sends to whom, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.captures.pipeline.report.drawing.figures import course_figures, latency_figures
from mqproto.captures.pipeline.report.drawing.markup import Line, pictures, table
from mqproto.captures.pipeline.report.drawing.routemap import drawn_hops, map_figure
from mqproto.captures.pipeline.report.facts.facts import Course, Facts, Hop, Resender
from mqproto.captures.pipeline.report.facts.ranking import slowest
from mqproto.captures.pipeline.report.facts.words import counted, escaped, rate, share
from mqproto.captures.pipeline.report.sections.queues import LINES, over_time, quantiles


def routes(facts: Facts) -> Iterator[str]:
    routes = facts.routes
    yield '<section id="routes"><h2>Route map</h2>'
    if not routes.hops:
        yield "<p>No message crossed a hop.</p></section>"
        return
    yield (
        "<p>An arrow is a hop; a thicker one carried more messages. Times are medians: waited in the queue manager "
        "where the arrow begins, or, where no message was seen to come there, until the one where it ends answered.</p>"
    )
    if (drawn := map_figure(routes)) is not None:
        yield f'<figure tabindex="0" role="group" aria-label="route map">{drawn.svg}</figure>'
    count, in_all = len(drawn_hops(routes)), len(routes.hops)
    if count < in_all:
        yield f"<p>The map has {count:,} of {in_all:,} hops: the slowest, and those that most messages crossed.</p>"
    heads = ("from", "to", "over time", ">messages", "~waited", "~answered")
    yield from pictures(course_figures(*_charted(routes.hops)))
    yield f"<p>{LINES}</p>"
    caption = (
        "The slowest first. Waited: in the queue manager that they left, from when they came there. Answered: from "
        "when they left it until the one that they came to said that it had them."
    )
    yield from table(heads, map(_row, slowest(routes.hops)), caption, named="hops-table")
    if routes.left_out:
        yield (
            f"<p>And {counted(routes.left_out, 'crossing')} of other hops, none of which has the slowest or the most "
            "messages.</p>"
        )
    yield from _resenders(routes.resenders)
    yield "</section>"


def _resenders(found: list[Resender]) -> Iterator[str]:
    if found:
        yield "<h3>Who sends again</h3>"
        heads = ("host", ">messages that it sent", ">of these sent again", ">share", ">copies sent again")
        yield from table(heads, map(_resender, found), "Who sent most copies again comes first.")


def _resender(each: Resender) -> Line:
    again = (f"{each.again:,}", share(each.again, each.messages), f"{each.copies:,}")
    return Line((escaped(each.label), f"{each.messages:,}", *again), {"host": [each.label]}, {})


def _charted(hops: list[Hop]) -> tuple[list[tuple[str, Course]], str]:
    return [(took(hop), hop.course) for hop in slowest(hops) if hop.course is not None], "waiting"


def took(hop: Hop) -> str:
    """From where to where the durations of its course are."""
    if hop.waited.count:
        return f"{hop.from_label} → {hop.to_label}: waited in {hop.from_label}"
    return f"{hop.from_label} → {hop.to_label}: until {hop.to_label} answered"


def _row(hop: Hop) -> Line:
    ends = (hop.from_label, hop.to_label)
    return Line(_cells(hop), {"host": ends}, {"slow": hop.slow_ns, "count": hop.messages})


def _cells(hop: Hop) -> Iterator[str]:
    yield escaped(hop.from_label)
    yield escaped(hop.to_label)
    yield over_time(hop.course, "waiting" if hop.waited.count else "not seen to be answered")
    copies = f"{hop.copies / hop.messages:.2f} copies each"
    yield f'{hop.messages:,}<br><span class="faint">{rate(hop.messages, hop.last_ns - hop.first_ns)}<br>{copies}</span>'
    yield quantiles(hop.waited)
    yield quantiles(hop.answered)


def latency(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section id="latency"><h2>Latency</h2>'
    yield from pictures(latency_figures(messages))
    if not messages.arrived.count and not messages.confirmed.count:
        yield "<p>No message was seen at two places, and no OrderAck.</p>"
    elif not messages.arrived.count:
        yield (
            "<p>Each message was seen on one hop alone, so how long it took to its destination cannot be told from "
            "these captures.</p>"
        )
    yield "</section>"
