"""Decides whether a message that arrives at a queue manager is new, a duplicate, or in doubt.

The verdict follows the three steps of a consumer (mqproto/edge/exactlyonce.py), and the rules for a queue manager in
[MS-MQQB] 3.1.5.8.1 and 3.1.5.8.6. These use a history of identifiers, which the queue manager may shorten, or the
numbers of a sequence. Our history is a table, ARRIVALS, that grows from run to run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.ways import SECOND_NS
from mqproto.captures.pipeline.stages.messages.grouping import (
    Event,
    Messages,
    about_packets,
    rows_about,
)
from mqproto.captures.pipeline.stages.messages.offsets import Ahead
from mqproto.captures.pipeline.stages.messages.straight import Straight, clock_offsets_ns, uncertainty_ns
from mqproto.captures.pipeline.stages.schema import INTEGER, TEXT
from mqproto.captures.pipeline.tables.lists import Batches, integers, joined, mapped_flags
from mqproto.captures.pipeline.tables.schemas import messages
from mqproto.edge.exactlyonce import Entry, Verdict, judge

REMEMBERED: Final = "Arrivals"
"""The kind of the rows that earlier runs have kept about arrivals."""
WINDOW_S: Final = 1_800
"""How long, in seconds, a queue manager is assumed to remember the identifiers of messages that are not
transactional.
"""

DUPLICATES: Final = messages.DUPLICATES.schema
ARRIVALS: Final = messages.ARRIVALS.schema
SCHEMAS: Final = {"duplicates": DUPLICATES, "arrivals": ARRIVALS}
TOLD: Final = {
    "duplicates": ("delivery_count", "verdict", "reason"),
    "arrivals": ("arrivals", "first_ns", "last_ns", "completed_ns"),
}
"""The columns that this stage makes, keyed by table; all others are copied from the packet, or, for ARRIVALS, from the
last packet.
"""


@dataclass(slots=True)
class _Known:
    """The remembered arrivals of a message at one queue manager.

    at: the row of the last packet.
    completed_by: the packet, in this run, with which the receiver answered.
    completed_on: the series and connection of that packet.
    is_put_back: whether the clock went back since the first arrival, so that times do not prove an order.
    elsewhere_ns: for each point, the times of the receiver's answers that other points saw, in rising order. Each is as
        late as the uncertainty of the clocks allows.
    """

    at: int = 0
    arrivals: int = 0
    digest: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    completed_ns: int | None = None
    completed_by: int | None = None
    completed_on: tuple[str, int | None] | None = None
    is_put_back: bool = False
    elsewhere_ns: dict[tuple[str, int], list[int]] = field(default_factory=dict)


def remembered(arrivals: pa.RecordBatch) -> pa.RecordBatch:
    """Return ARRIVALS of earlier runs as rows with the columns of `subjects.keyed`."""
    count = arrivals.num_rows
    last_ns = arrivals.column("last_ns")
    columns = {
        "subject": arrivals.column("message"),
        "about": pa.array([True] * count, pa.bool_()),
        "kind": pa.array([REMEMBERED] * count, TEXT),
        "time_ns": last_ns,
        **{
            name: arrivals.column(name)
            for name in ("to_key", "arrivals", "digest", "first_ns", "completed_ns")
        },
    }
    return pa.RecordBatch.from_pydict(columns)


class DuplicateStage:
    """A stage of `grouping.MessageStages`, for rows of `subjects.keyed` and `remembered`.

    It returns the tables in SCHEMAS. Its rows of ARRIVALS combine new arrivals with the remembered ones.

    Args:
        lossless: tells whether a series has no gap at all.
        ahead: how far the clocks of capture points are ahead, from `clocks.ahead`.
    """

    def __init__(
        self, lossless: Callable[[str], bool], ahead: Mapping[tuple[str, int], Ahead] | None = None
    ) -> None:
        self._lossless = lossless
        self._ahead = ahead or {}
        self._out: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def take(self, messages: Messages) -> Batches:
        """Take the next messages."""
        for events, _ in messages.odd:
            self._close(events)
        batches: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for name, found in self._out.items():
            batches[name].append(rows_about(SCHEMAS[name], TOLD[name], found, messages.rows))
        self._out.clear()
        if len(messages.straight):
            for name, batch in self._straight(messages.straight, messages.rows).items():
                batches[name].append(batch)
        return joined(batches)

    def _straight(self, messages: Straight, rows: pa.RecordBatch) -> Batches:
        """Return rows for messages that arrived once at each queue manager; they were new there."""
        at = messages.crossings
        offset_ns = clock_offsets_ns(rows, self._ahead)[at]
        time_ns = pa.array(integers(rows, "time_ns")[at] - offset_ns)
        count = len(at)
        lossless = mapped_flags(rows.column("series").take(pa.array(at)), self._lossless)
        once = pa.repeat(pa.scalar(1, INTEGER), count)
        told = {
            "duplicates": {
                "delivery_count": pc.if_else(lossless, once, pa.scalar(None, INTEGER)),
                "verdict": pa.repeat(str(Verdict.NEW), count),
                "reason": pa.repeat("", count),
            },
            "arrivals": {
                "arrivals": once,
                "first_ns": time_ns,
                "last_ns": time_ns,
                "completed_ns": pc.subtract(
                    rows.column("acknowledged_ns").take(pa.array(at)), pa.array(offset_ns)
                ),
            },
        }
        return {name: about_packets(SCHEMAS[name], columns, at, rows) for name, columns in told.items()}

    def _close(self, events: Sequence[Event]) -> None:
        """Judge the arrivals of a message, given all its events."""
        arrivals = [event for event in events if not event.about]
        earlier = [event for event in events if event.kind == REMEMBERED]
        # There is a row of each run that has seen it come.
        earlier.sort(key=lambda event: event.arrivals or 0)
        by_manager = {
            event.to_key: _Known(
                event.at,
                event.arrivals or 0,
                event.digest,
                event.first_ns or 0,
                event.time_ns,
                event.completed_ns,
            )
            for event in earlier
        }
        arrived: dict[str, list[Event]] = {}
        for event in arrivals:
            arrived.setdefault(event.to_key, []).append(event)
        for to_key, some in arrived.items():
            known = by_manager.setdefault(to_key, _Known())
            chosen = self._at_one_place(some)
            for place in {event.place for _, event in chosen}:
                known.elsewhere_ns[place] = sorted(self._elsewhere_ns(some, place))
            for time_ns, event in chosen:
                self._arrive(known, time_ns, event)
            self._remember(known)

    def _offset_ns(self, event: Event) -> int:
        known = self._ahead.get(event.place) if self._ahead else None
        return 0 if known is None else known.of(event.time_ns)

    def _elsewhere_ns(self, arrivals: list[Event], place: tuple[str, int]) -> Iterator[int]:
        for event in arrivals:
            if event.place != place and event.acknowledged_ns is not None:
                later_ns = uncertainty_ns(self._ahead, event.place, place)
                if later_ns is not None:
                    yield event.acknowledged_ns - self._offset_ns(event) + later_ns

    def _remember(self, known: _Known) -> None:
        self._out["arrivals"].append(
            (known.at, known.arrivals, known.first_ns, known.last_ns, known.completed_ns)
        )

    def _at_one_place(self, arrivals: list[Event]) -> list[tuple[int, Event]]:
        """Return the arrivals at one queue manager in order.

        Frames that one point captured in one file are in the order of the file; others are ordered by time. A hop's
        arrivals are taken from the point that saw the most of them. If several points saw equally many, the one that
        saw the most answers is used.
        """
        if len(arrivals) == 1:  # Nearly always.
            return [(arrivals[0].time_ns - self._offset_ns(arrivals[0]), arrivals[0])]
        hops: dict[str, list[Event]] = defaultdict(list)
        for event in arrivals:
            hops[event.from_key].append(event)
        found = []
        for crossed in hops.values():
            counts = Counter(event.place for event in crossed)
            told = Counter(event.place for event in crossed if event.acknowledged_ns is not None)
            best = min(counts, key=lambda place: (-counts[place], -told[place], place))
            at_best = (event for event in crossed if event.place == best)
            found += [(event.time_ns - self._offset_ns(event), event) for event in at_best]
        return sorted(found, key=cmp_to_key(_compared))

    def _arrive(self, known: _Known, time_ns: int, event: Event) -> None:
        entry, reason = self._entry(known, time_ns, event)
        verdict = judge(known.arrivals + 1, entry, has_resolver=False)
        if not known.arrivals or verdict is Verdict.NEW:
            known.first_ns, known.completed_ns, known.is_put_back = time_ns, None, False
        known.at = event.at
        known.arrivals += 1
        known.last_ns = time_ns
        known.digest = event.digest
        if event.acknowledged_ns is not None and known.completed_ns is None:
            known.completed_ns = time_ns + event.acknowledged_ns - event.time_ns
            known.completed_by, known.completed_on = event.acknowledged_by, (event.series, event.connection)
        count = known.arrivals if self._lossless(event.series) else None
        self._out["duplicates"].append((event.at, count, verdict, reason))

    def _entry(self, known: _Known, time_ns: int, event: Event) -> tuple[Entry, str]:
        """Return the history's entry for a message (absent, processed, or only begun), and the reason."""
        if not known.arrivals:
            return Entry.ABSENT, ""
        transactional = event.sequence is not None
        if not transactional and time_ns - known.last_ns > WINDOW_S * SECOND_NS:
            is_other = None not in (known.digest, event.digest) and known.digest != event.digest
            if is_other and event.encrypted is None:  # Encrypted anew it has another key, and another body.
                return Entry.ABSENT, "another message has its identifier, which was given again"
            return Entry.STARTED, "it came so long ago that its receiver may have forgotten it"
        known.is_put_back |= time_ns < known.last_ns
        is_answered = known.completed_ns is not None and known.completed_ns <= time_ns
        elsewhere_ns = known.elsewhere_ns[event.place]
        later_ns = elsewhere_ns[bisect_left(elsewhere_ns, known.first_ns) :][:1]
        is_answered |= not known.is_put_back and bool(later_ns) and later_ns[0] <= time_ns
        # On one connection, packets are in the order in which they were sent, unless bytes were waited for in vain.
        is_told = known.completed_on == (event.series, event.connection) and self._lossless(event.series)
        if known.completed_by is not None and (known.is_put_back or is_told):
            is_answered = known.completed_by < event.number
        if not is_answered:
            why = "it came before, and the captures do not tell that its receiver had answered for it"
            return Entry.STARTED, why
        return Entry.COMPLETED, "it came before, and its receiver has answered for it"


def _compared(one: tuple[int, Event], other: tuple[int, Event]) -> int:
    """Return a number below 0 if the arrival `one` came first, and a positive one if `other` did.

    A clock may be set back, but the frames of a file are in order.
    """
    first, second = one[1], other[1]
    if (first.place, first.file) == (second.place, second.file) and first.frame != second.frame:
        return first.frame - second.frame
    return (one[0] - other[0]) or (first.row_id - second.row_id)
