"""What happened to connections while something was slow: a reset, a node without connections, nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.facts.facts import Course, Queues, Routes, Spell
from mqproto.captures.pipeline.report.facts.overtime import slow_level_ns

SLOTS: Final = 256
"""Into so many parts a spell is divided, to see when a node has no connection."""
_USED: Final = """
with asked as (select unnest($asked::struct(
    number bigint, key varchar, other varchar, from_ns bigint, until_ns bigint, slot_ns bigint)[], recursive := true)
), of_one as (
    select asked.*, sessions.* from asked join sessions on client_key = key
    where other is null or server_key = other
    union all
    select asked.*, sessions.* from asked join sessions on server_key = key
    where (other is null or client_key = other) and client_key is distinct from key
), told as (
    select number, from_ns, slot_ns, (begun is not true or first_ns < until_ns) and last_ns >= from_ns as is_here,
        least(greatest(if(begun, first_ns, from_ns), from_ns), until_ns - 1) as begins_ns,
        least(greatest(last_ns, from_ns), until_ns - 1) as ends_ns,
        last_ns < until_ns and 'reset' in (coalesce(client_ending, ''), coalesce(server_ending, '')) as is_reset
    from of_one
)
select number, if(is_here, (begins_ns - from_ns) // slot_ns, 0) as low,
    if(is_here, (ends_ns - from_ns) // slot_ns + 1, 0) as high, bool_or(is_here and is_reset) as reset
from told group by all order by number, low
"""
"""By the spell, which slots connections used: from `low` to those before `high`; none if they were not used then."""


def look_at_spells(connection: DuckDBPyConnection, routes: Routes, queues: Queues, ended_ns: int) -> None:
    """Add to the spells of hops and queues what happened to the connections that they need.

    Args:
        ended_ns: when the captures ended.
    """
    spells = list(_asked(routes, queues, ended_ns))
    asked = [each.asked | {"number": number} for number, each in enumerate(spells)]
    for number, used in groupby(rows(connection, _USED, asked=asked), lambda row: row["number"]):
        spells[number].tell([*used])


def _asked(routes: Routes, queues: Queues, ended_ns: int) -> Iterator[_Spell]:
    keys: dict[str, list[str]] = {}
    for key, label in routes.labels.items():
        keys.setdefault(label, []).append(key)
    for hop in routes.hops:
        for course, spell in _spells(hop.course):
            yield _Spell(course, spell, ended_ns, "this hop", hop.from_key, hop.to_key)
    for queue in queues.queues:
        for course, spell in _spells(queue.course):
            for label in queue.hosts:
                for key in keys.get(label, ()):
                    yield _Spell(course, spell, ended_ns, label, key)


def _spells(course: Course | None) -> Iterator[tuple[Course, Spell]]:
    if course is not None:
        yield from ((course, spell) for spell in course.spells)


class _Spell:
    """One of which the connections of one node are asked for, or those between two.

    Attributes:
        asked: of whom, and when.
    """

    def __init__(
        self, course: Course, spell: Spell, ended_ns: int, name: str, key: str, other: str | None = None
    ) -> None:
        self._spell, self._name = spell, name
        self._level_ns = slow_level_ns(course)
        # What is slow in a step may have waited since the one before it, and what began in it went on beyond its end.
        from_ns = spell.from_ns - course.step_ns
        steps = slice(_step_of(course, spell.from_ns), _step_of(course, spell.until_ns))
        until_ns = (spell.until_ns or ended_ns) + max(course.half_ns[steps])
        until_ns = max(min(until_ns, ended_ns), spell.from_ns) + 1
        self._slot_ns = -(-(until_ns - from_ns) // SLOTS)
        self.asked = {
            "key": key,
            "other": other,
            "from_ns": from_ns,
            "until_ns": until_ns,
            "slot_ns": self._slot_ns,
        }

    def tell(self, used: list[dict[str, Any]]) -> None:
        """What came out, by the slots that each connection used, the first of them first."""
        self._spell.reset = bool(self._spell.reset) or any(row["reset"] for row in used)
        ends = [0, *accumulate((row["high"] for row in used), max)]
        begins = [*(row["low"] for row in used), SLOTS]
        lacked_ns = max(begin - end for begin, end in zip(begins, ends, strict=True)) * self._slot_ns
        if lacked_ns > self._level_ns:
            self._spell.without[self._name] = lacked_ns


def _step_of(course: Course, time_ns: int | None) -> int | None:
    return None if time_ns is None else (time_ns - course.first_ns) // course.step_ns
