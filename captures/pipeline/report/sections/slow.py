"""When it was slow: all such times of all queues and hops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mqproto.captures.pipeline.report.drawing.markup import Line, table
from mqproto.captures.pipeline.report.facts.facts import Course, Facts, Spell
from mqproto.captures.pipeline.report.facts.overtime import SLOW, SLOW_NS, happened
from mqproto.captures.pipeline.report.facts.words import counted, duration, escaped, when
from mqproto.captures.pipeline.report.sections import queues, routes

LISTED: Final = 500


def slow(facts: Facts) -> Iterator[str]:
    """The longest first."""
    yield '<section id="slow"><h2>When it was slow</h2>'
    found = sorted(_spells(facts), key=lambda each: each[0])
    if not found:
        yield "<p>Never: no queue or hop had a time in which it was slow.</p></section>"
        return
    yield (
        f"<p>Slow is a time in which half of the messages took more than {SLOW} times as long as a quarter of all did, "
        f"and more than {duration(SLOW_NS)}.</p>"
    )
    heads = (
        "queue or hop, and what took long",
        "~from, UTC",
        "~to, UTC",
        ">length",
        ">messages",
        "connections then",
    )
    yield from table(heads, (line for _, line in found[:LISTED]), "The longest first.", named="slow-table")
    if len(found) > LISTED:
        yield f"<p>And {counted(len(found) - LISTED, 'time')} more, each shorter.</p>"
    yield "</section>"


def _spells(facts: Facts) -> Iterator[tuple[int, Line]]:
    """Each with minus its length."""
    ended_ns = facts.captured.last_ns or 0
    for queue in facts.queues.queues:
        name = queue.called or queue.name or "no queue"
        sought: dict[str, Iterable[str]] = {"queue": [queue.name, queue.called], "host": [*queue.hosts]}
        yield from _of(f"{name}: {queues.took(queue)}", queue.course, sought, ended_ns)
    for hop in facts.routes.hops:
        yield from _of(routes.took(hop), hop.course, {"host": [hop.from_label, hop.to_label]}, ended_ns)


def _of(
    what: str, course: Course | None, sought: dict[str, Iterable[str]], ended_ns: int
) -> Iterator[tuple[int, Line]]:
    for spell in course.spells if course is not None else ():
        length_ns = (spell.until_ns or ended_ns) - spell.from_ns
        yield -length_ns, Line(_cells(what, spell, length_ns), sought, {})


def _cells(what: str, spell: Spell, length_ns: int) -> Iterator[str]:
    yield escaped(what, limit=None)
    yield when(spell.from_ns)
    yield "the end" if spell.until_ns is None else when(spell.until_ns)
    yield duration(length_ns)
    yield f"{spell.messages:,}"
    yield "<br>".join(map(escaped, happened(spell))) or "–"
