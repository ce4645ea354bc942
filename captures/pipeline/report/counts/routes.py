"""The hops between queue managers, counted from the table of every message's hops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import courses, rows
from mqproto.captures.pipeline.report.facts.facts import Course, Hop, Queues, Resender, Routes, Spell
from mqproto.captures.pipeline.report.facts.overtime import Steps, slow_level_ns

HOPS_LIMIT: Final = 500
"""How many hops get a row in the table because they have the most messages.

The same number of hops get a row for the longest waits, and for the slowest answers. Hardly any network has that many
hops; the limit is for forged traffic.
"""
RESENDERS_LIMIT: Final = 50
_CHOSEN: Final = """
create or replace temp table chosen as
with crossed as (
    select coalesce(from_key, '') as from_key, coalesce(to_key, '') as to_key,
        arg_min(coalesce(from_label, ''), place) as from_label, arg_min(coalesce(to_label, ''), place) as to_label,
        count(*) as messages, coalesce(sum(copies), 0) as copies, min(first_ns) as first_ns, max(last_ns) as last_ns,
        max(at_least_0(waited_ns)) as waited_ns, max(at_least_0(acknowledged_ns - first_ns)) as answered_ns
    from hops group by all
), first as (
    (select * from crossed order by messages desc, from_key, to_key limit $limit)
    union (from crossed where waited_ns is not null order by waited_ns desc, from_key, to_key limit $limit)
    union (from crossed where answered_ns is not null order by answered_ns desc, from_key, to_key limit $limit)
)
select *, row_number() over (order by messages desc, first_ns, from_key, to_key) - 1 as thing from first
"""
_HOPS: Final = """
select from_key, to_key, from_label, to_label, messages, copies, first_ns, last_ns from chosen order by thing
"""
_CROSSINGS: Final = """
from hops join chosen on coalesce(hops.from_key, '') = chosen.from_key and coalesce(hops.to_key, '') = chosen.to_key
"""
_WAITED: Final = f"""
select thing, hops.first_ns - hops.waited_ns as began_ns, hops.waited_ns as took_ns,
    hops.waited_ns is not null as waits, hops.first_ns as until_ns
{_CROSSINGS}
"""
_ANSWERED: Final = f"""
select thing, hops.first_ns as began_ns, acknowledged_ns - hops.first_ns as took_ns, true as waits,
    acknowledged_ns as until_ns
{_CROSSINGS}
"""

_RESENDERS: Final = """
select arg_min(coalesce(from_label, ''), place) as label, count(*) as messages, count(*) filter (copies > 1) as again,
    sum(copies - 1) as copies
from hops group by coalesce(from_key, '') having sum(copies - 1) > 0 order by sum(copies - 1) desc, label limit $limit
"""


def routes(connection: DuckDBPyConnection, steps: Steps) -> Routes:
    """Return the hops between queue managers, their speed, and how this speed changed over time."""
    connection.execute(_CHOSEN, {"limit": HOPS_LIMIT})
    hops = [Hop(**row) for row in rows(connection, _HOPS)]
    every = [courses(connection, steps, len(hops), each) for each in (_WAITED, _ANSWERED)]
    labels: dict[str, str] = {}
    for hop, (waited, waiting), (answered, answering) in zip(hops, *every, strict=True):
        hop.waited, hop.answered = waited, answered
        hop.course = waiting if waited.count else answering
        labels |= {hop.from_key: hop.from_label, hop.to_key: hop.to_label}
    [[count]] = connection.execute("select count(*) from hops").fetchall()
    resenders = [Resender(**row) for row in rows(connection, _RESENDERS, limit=RESENDERS_LIMIT)]
    return Routes(hops, count - sum(hop.messages for hop in hops), labels, resenders)


SLOTS: Final = 256
"""The number of slots into which a spell is divided, to see when a node has no connection."""
_USED: Final = """
with asked as (select unnest($asked::struct(
    number bigint, key varchar, other varchar, from_ns bigint, until_ns bigint, slot_ns bigint)[], recursive := true)
), timed as (
    select sessions.* replace (
        by_reference(sessions.first_ns, clocks) as first_ns, by_reference(sessions.last_ns, clocks) as last_ns)
    from sessions left join clocks on clocks.series = sessions.series and clocks.interface = sessions.interface
), of_one as (
    select asked.*, timed.* from asked join timed on client_key = key
    where other is null or server_key = other
    union all
    select asked.*, timed.* from asked join timed on server_key = key
    where (other is null or client_key = other) and client_key is distinct from key
), told as (
    select number, from_ns, slot_ns, (begun is not true or first_ns < until_ns) and last_ns >= from_ns as is_here,
        least(greatest(if(begun, first_ns, from_ns), from_ns), until_ns - 1) as begins_ns,
        least(greatest(last_ns, from_ns), until_ns - 1) as ends_ns,
        last_ns < until_ns and 'reset' in (coalesce(client_ending, ''), coalesce(server_ending, '')) as is_reset
    from of_one
), used as (
    select number, slot_ns, if(is_here, (begins_ns - from_ns) // slot_ns, 0) as low,
        if(is_here, (ends_ns - from_ns) // slot_ns + 1, 0) as high, is_here and is_reset as reset
    from told
), lacking as (
    select *, low - coalesce(max(high) over (
        partition by number order by low rows between unbounded preceding and 1 preceding), 0) as lacked
    from used
)
select number, bool_or(reset) as reset, greatest(max(lacked), $slots - max(high)) * max(slot_ns) as lacked_ns
from lacking group by number order by number
"""
"""Selects, for each spell, whether a connection was reset, and the longest time without a connection in use.

A connection is in use from `low` until right before `high`.
"""


def look_at_spells(
    connection: DuckDBPyConnection, routes: Routes, queues: Queues, began_ns: int, ended_ns: int
) -> None:
    """Add to the spells of hops and queues what happened to the connections that they need.

    Args:
        began_ns, ended_ns: when the captures began and ended, by the reference clock.
    """
    spells = list(_asked(routes, queues))
    asked = [
        _span(course, spell, began_ns, ended_ns) | {"number": number, "key": key, "other": other}
        for number, (course, spell, _, key, other) in enumerate(spells)
    ]
    for row in rows(connection, _USED, asked=asked, slots=SLOTS):
        course, spell, name, *_ = spells[row["number"]]
        spell.reset = bool(spell.reset) or row["reset"]
        if row["lacked_ns"] > slow_level_ns(course):
            spell.without[name] = row["lacked_ns"]


def _asked(routes: Routes, queues: Queues) -> Iterator[tuple[Course, Spell, str, str, str | None]]:
    """Yield each spell with the node whose connections it needs, or with both ends of its hop.

    Each comes with a name for the node or the hop.
    """
    keys: dict[str, list[str]] = {}
    for key, label in routes.labels.items():
        keys.setdefault(label, []).append(key)
    for hop in routes.hops:
        for course, spell in _spells(hop.course):
            yield course, spell, "this hop", hop.from_key, hop.to_key
    for queue in queues.queues:
        for course, spell in _spells(queue.course):
            for label in queue.hosts:
                for key in keys.get(label, ()):
                    yield course, spell, label, key, None


def _spells(course: Course | None) -> Iterator[tuple[Course, Spell]]:
    if course is not None:
        yield from ((course, spell) for spell in course.spells)


def _span(course: Course, spell: Spell, began_ns: int, ended_ns: int) -> dict[str, Any]:
    """Return the time in which connections are examined, and the length of its slots."""
    # What is slow in a step may have waited since the one before it, and what began in it went on beyond its end.
    from_ns = max(spell.from_ns - course.step_ns, began_ns)
    steps = slice(_step_of(course, spell.from_ns), _step_of(course, spell.until_ns))
    until_ns = (spell.until_ns or ended_ns) + max(course.half_ns[steps])
    until_ns = max(min(until_ns, ended_ns), from_ns) + 1
    return {"from_ns": from_ns, "until_ns": until_ns, "slot_ns": -(-(until_ns - from_ns) // SLOTS)}


def _step_of(course: Course, time_ns: int | None) -> int | None:
    return None if time_ns is None else (time_ns - course.first_ns) // course.step_ns
