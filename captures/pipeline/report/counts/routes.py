"""Who sends to whom: the hops, counted from the table of every message's hops."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.pipeline.report.counts.choosing import Leaders, each_of, keyed, largest
from mqproto.captures.pipeline.report.counts.scanning import batches, integers
from mqproto.captures.pipeline.report.facts.facts import Hop, Routes
from mqproto.captures.pipeline.report.facts.overtime import Courses, Steps
from mqproto.captures.pipeline.tables.tables import Tables

HOPS_LIMIT: Final = 500
"""As many hops have a row that most messages crossed, as many whose slowest message waited longest, and as many whose
slowest answer took longest: more than most estates have, but not than somebody can make up."""
_KEYS: Final = ("from_key", "to_key")
_TIMES: Final = ("first_ns", "last_ns", "waited_ns", "acknowledged_ns")
_COLUMNS: Final = (*_KEYS, "from_label", "to_label", *_TIMES, "copies")


def routes(tables: Tables, steps: Steps) -> Routes:
    """Who sends to whom, how fast, and how that went over time."""
    hops = [Hop(*key) for key in _chosen(tables)]
    numbers = {(hop.from_key, hop.to_key): number for number, hop in enumerate(hops)}
    waited, answered = Courses(steps, len(hops)), Courses(steps, len(hops))
    found = Routes(hops)
    for batch in batches(tables, "hops", _COLUMNS):
        places, each = each_of(batch, _KEYS, lambda key: numbers.get(key, -1))
        found.left_out += int((places < 0).sum())
        times = _Times(batch)
        for number, at in each:
            _count(hops[number], batch, times, at)
        known = places >= 0
        came_ns = times.first_ns - times.waited_ns
        rows = known & times.has_waited
        waited.took(places[rows], came_ns[rows], times.waited_ns[rows])
        waited.waited(
            places[rows], came_ns[rows], times.first_ns[rows], np.ones(int(rows.sum()), dtype=np.bool_)
        )
        rows = known & times.is_answered
        answered.took(places[rows], times.first_ns[rows], times.answered_ns[rows] - times.first_ns[rows])
        answered.waited(
            places[known], times.first_ns[known], times.answered_ns[known], times.is_answered[known]
        )
    for number, hop in enumerate(hops):
        course = waited if hop.waited.count else answered
        hop.course = course.of(number)
    hops.sort(key=lambda hop: (-hop.messages, hop.first_ns, hop.from_key, hop.to_key))
    for hop in hops:
        found.labels |= {hop.from_key: hop.from_label, hop.to_key: hop.to_label}
    return found


class _Times:
    """When the messages of some rows crossed and were answered."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.first_ns, _ = integers(batch.column("first_ns"))
        self.waited_ns, self.has_waited = integers(batch.column("waited_ns"))
        self.answered_ns, self.is_answered = integers(batch.column("acknowledged_ns"))


def _chosen(tables: Tables) -> list[tuple[str, str]]:
    """The hops that have a row."""
    leaders = Leaders(HOPS_LIMIT, 2)
    for batch in batches(tables, "hops", (*_KEYS, *_TIMES)):
        keys, codes = keyed(batch, _KEYS)
        times = _Times(batch)
        took_ns = times.answered_ns - times.first_ns
        leaders.take(
            keys,
            np.bincount(codes, minlength=len(keys)),
            largest(codes, times.waited_ns, times.has_waited, len(keys)),
            largest(codes, took_ns, times.is_answered, len(keys)),
        )
    return [(from_key, to_key) for from_key, to_key in leaders.chosen()]


def _count(hop: Hop, batch: pa.RecordBatch, times: _Times, at: Any) -> None:
    """Some rows of a hop."""
    first_ns = int(times.first_ns[at].min())
    if not hop.messages:
        place = int(at[0])
        hop.from_label, hop.to_label = (
            batch.column(f"{end}_label")[place].as_py() or "" for end in ("from", "to")
        )
        hop.first_ns = first_ns
    hop.messages += len(at)
    hop.copies += int(integers(batch.column("copies"))[0][at].sum())
    hop.first_ns = min(hop.first_ns, first_ns)
    hop.last_ns = max(hop.last_ns, int(integers(batch.column("last_ns"))[0][at].max()))
    hop.waited.add(times.waited_ns[at][times.has_waited[at]])
    answered = at[times.is_answered[at]]
    hop.answered.add(times.answered_ns[answered] - times.first_ns[answered])
