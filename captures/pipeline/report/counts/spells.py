"""What happened to connections while something was slow: a reset, a node without connections, nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.report.counts.scanning import batches, integers
from mqproto.captures.pipeline.report.facts.facts import Course, Queues, Routes, Spell
from mqproto.captures.pipeline.report.facts.overtime import SPELLS_SHOWN, slow_level_ns
from mqproto.captures.pipeline.tables.tables import Tables

SLOTS: Final = 256
"""Into so many parts a spell is divided, to see when a node has no connection."""
_COLUMNS: Final = (
    "client_key",
    "server_key",
    "first_ns",
    "last_ns",
    "begun",
    "client_ending",
    "server_ending",
)


def look_at_spells(tables: Tables, routes: Routes, queues: Queues, ended_ns: int) -> None:
    """Add to the spells of hops and queues what happened to the connections that they need.

    Args:
        ended_ns: when the captures ended.
    """
    asked = list(_asked(routes, queues, ended_ns))
    for batch in batches(tables, "sessions", _COLUMNS) if asked else ():
        sessions = _Sessions(batch)
        for each in asked:
            each.take(sessions)
    for each in asked:
        each.tell()


def _asked(routes: Routes, queues: Queues, ended_ns: int) -> Iterator[_Watched]:
    keys: dict[str, list[str]] = {}
    for key, label in routes.labels.items():
        keys.setdefault(label, []).append(key)
    for hop in routes.hops:
        for course, spell in _longest(hop.course):
            yield _Watched(course, spell, ended_ns, "this hop", hop.from_key, hop.to_key)
    for queue in queues.queues:
        for course, spell in _longest(queue.course):
            for label in queue.hosts:
                for key in keys.get(label, ()):
                    yield _Watched(course, spell, ended_ns, label, key)


def _longest(course: Course | None) -> Iterator[tuple[Course, Spell]]:
    if course is not None:
        yield from ((course, spell) for spell in course.spells[:SPELLS_SHOWN])


class _Sessions:
    """Connections: between whom, from their first packet to their last, and whether they were reset."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.client, self.server = batch.column("client_key"), batch.column("server_key")
        first_ns, self.last_ns = (integers(batch.column(name))[0] for name in ("first_ns", "last_ns"))
        self.first_ns = np.where(_flags(batch.column("begun")), first_ns, np.iinfo(np.int64).min)
        endings = (batch.column(f"{end}_ending") for end in ("client", "server"))
        self.is_reset = np.logical_or(*(_flags(pc.equal(ending, "reset")) for ending in endings))

    def of(self, key: str, other: str | None) -> Any:
        """Those that one has, with another one or with anybody."""
        is_client, is_server = (_flags(pc.equal(end, key)) for end in (self.client, self.server))
        if other is None:
            return is_client | is_server
        by, to = (_flags(pc.equal(end, other)) for end in (self.client, self.server))
        return (is_client & to) | (is_server & by)


def _flags(column: pa.Array) -> Any:
    return column.fill_null(False).to_numpy(zero_copy_only=False)


def _step_of(course: Course, time_ns: int | None) -> int | None:
    return None if time_ns is None else (time_ns - course.first_ns) // course.step_ns


class _Watched:
    """The connections of one node, or between two, in one spell."""

    def __init__(
        self, course: Course, spell: Spell, ended_ns: int, name: str, key: str, other: str | None = None
    ) -> None:
        self._spell, self._name, self._ends = spell, name, (key, other)
        self._level_ns = slow_level_ns(course)
        self._from_ns = (
            spell.from_ns - course.step_ns
        )  # What is slow in a step may have waited since the one before it.
        # What began in it went on beyond its end.
        steps = slice(_step_of(course, spell.from_ns), _step_of(course, spell.until_ns))
        until_ns = (spell.until_ns or ended_ns) + max(course.half_ns[steps])
        self._until_ns = max(min(until_ns, ended_ns), spell.from_ns) + 1
        self._slot_ns = -(-(self._until_ns - self._from_ns) // SLOTS)
        self._change = np.zeros(SLOTS + 1, dtype=np.int64)
        self._is_known = self._reset = False

    def take(self, sessions: _Sessions) -> None:
        """Count the next sessions."""
        own = sessions.of(*self._ends)
        if not own.any():
            return
        self._is_known = True
        first_ns, last_ns = sessions.first_ns[own], sessions.last_ns[own]
        here = (first_ns < self._until_ns) & (last_ns >= self._from_ns)
        self._reset |= bool((sessions.is_reset[own] & here & (last_ns < self._until_ns)).any())
        low, high = (
            (np.clip(times_ns[here], self._from_ns, self._until_ns - 1) - self._from_ns) // self._slot_ns
            for times_ns in (first_ns, last_ns)
        )
        np.add.at(self._change, low, 1)
        np.add.at(self._change, high + 1, -1)

    def tell(self) -> None:
        """What came out."""
        if not self._is_known:
            return
        self._spell.reset = bool(self._spell.reset) or self._reset
        used = np.flatnonzero(np.cumsum(self._change[:SLOTS]))
        gaps = np.diff(np.concatenate([[-1], used, [SLOTS]])) - 1
        lacked_ns = int(gaps.max()) * self._slot_ns
        if lacked_ns > self._level_ns:
            self._spell.without[self._name] = lacked_ns
