"""How far the clocks of capture points are apart, from the packets that two of them saw.

A packet passes first one point, then the other. What the second clock is ahead by is therefore at most what the least
delayed packet of that direction shows, and at least what packets of the other direction show: both together bound it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import pyarrow as pa

from captures.pipeline.stages.grouping import COLUMNS, KEY, ORDER, Event, Messages
from captures.pipeline.stages.rows import Batches, batch_of, values
from captures.pipeline.stages.schema import INTEGER, SHORT, TEXT

__all__ = ["CLOCKS", "CLOCK_PAIRS", "COLUMNS", "KEY", "ORDER", "ClockStage", "clocks", "offsets_ns"]

PLACE_LIMIT: Final = 8
"""How many capture points are compared of a packet that more of them saw."""

CLOCK_PAIRS: Final = pa.schema(
    [
        ("series_a", TEXT),
        ("interface_a", SHORT),
        ("series_b", TEXT),
        ("interface_b", SHORT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("packets", INTEGER),
        ("least_ns", INTEGER),
        ("most_ns", INTEGER),
    ]
)
"""Packets on one hop that two capture points saw: the least and the most that the time at b is ahead of that at a."""

CLOCKS: Final = pa.schema(
    [
        ("series", TEXT),
        ("interface", SHORT),
        ("reference_series", TEXT),
        ("reference_interface", SHORT),
        ("offset_ns", INTEGER),
        ("uncertainty_ns", INTEGER),
        ("packets", INTEGER),
    ]
)
"""How far the clock of a capture point is ahead of the reference, as the packets show that both saw.

    uncertainty_ns: how far from that it may be; null where packets of one direction only were seen, as their way took
        time that nobody knows.
    packets: how many both saw.
"""

Place = tuple[str, int]
"""A capture point: series and interface."""
Hop = tuple[str, str]


class ClockStage:
    """A stage of `grouping.MessageStages`, for rows of `subjects.keyed`: nothing comes out but `pairs`, at the end."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Place, Place, Hop], tuple[int, int, int]] = {}

    def pairs(self) -> pa.RecordBatch:
        """What pairs of capture points saw, as CLOCK_PAIRS, as far as this part of the rows goes."""
        rows = ((*a, *b, *hop, *seen) for (a, b, hop), seen in self._pairs.items())
        return batch_of(CLOCK_PAIRS, rows)

    def take(self, messages: Messages) -> Batches:
        """The next messages. One that went straight was seen on each hop by one point."""
        for events, is_complete in messages.odd:
            if is_complete:
                self._compare(events)
        return {}

    def _compare(self, events: Sequence[Event]) -> None:
        """Where two points saw a packet equally often, each copy at the one is that at the other."""
        if len({event.place for event in events if not event.about}) < 2:
            return
        seen: dict[tuple[Hop, int], dict[Place, list[int]]] = defaultdict(lambda: defaultdict(list))
        for event in events:
            if not event.about:
                hop = (event.from_key, event.to_key)
                seen[hop, event.digest][event.place].append(event.time_ns)
        for (hop, _), places in seen.items():
            for a, b in combinations(sorted(places)[:PLACE_LIMIT], 2):
                if len(places[a]) == len(places[b]):
                    for at_a, at_b in zip(sorted(places[a]), sorted(places[b]), strict=True):
                        self._add((a, b, hop), at_b - at_a)

    def _add(self, key: tuple[Place, Place, Hop], ahead_ns: int) -> None:
        count, least, most = self._pairs.get(key, (0, ahead_ns, ahead_ns))
        self._pairs[key] = (count + 1, min(least, ahead_ns), max(most, ahead_ns))


class Offset(NamedTuple):
    """How far one clock is ahead of another, and within how much that is certain."""

    offset_ns: int
    uncertainty_ns: int | None
    packets: int

    def reversed(self) -> Offset:
        """The same seen from the other clock."""
        return self._replace(offset_ns=-self.offset_ns)


def clocks(pairs: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """CLOCKS from all CLOCK_PAIRS: every capture point that has packets in common with others, by the one with most."""
    offsets = _offsets(pairs)
    near: dict[Place, dict[Place, Offset]] = defaultdict(dict)
    for (a, b), offset in offsets.items():
        near[a][b], near[b][a] = offset, offset.reversed()
    rows: list[tuple[Any, ...]] = []
    left = sorted(near, key=lambda place: (-sum(each.packets for each in near[place].values()), place))
    while left:
        reference = left[0]
        known = {reference: Offset(0, 0, 0)}
        reached = [reference]
        for place in reached:
            # The best connected first, so that an offset rests on as many packets as can be.
            for other, step in sorted(near[place].items(), key=lambda each: -each[1].packets):
                if other not in known:
                    known[other] = _sum(known[place], step)
                    reached.append(other)
        rows += ((*place, *reference, *known[place]) for place in reached)
        left = [place for place in left if place not in known]
    return batch_of(CLOCKS, rows)


def merged(pairs: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """The rows of all CLOCK_PAIRS, one for each pair and hop."""
    found: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for *key, count, least, most in _rows(pairs):
        before = found.get(tuple(key), (0, least, most))
        found[tuple(key)] = (before[0] + count, min(before[1], least), max(before[2], most))
    return [(*key, *seen) for key, seen in found.items()]


def offsets_ns(found: pa.RecordBatch) -> dict[Place, int]:
    """CLOCKS as `histories` takes them."""
    columns = (values(found, name) for name in ("series", "interface", "offset_ns"))
    return {(series, interface): offset for series, interface, offset in zip(*columns, strict=True)}


def _offsets(pairs: Iterable[pa.RecordBatch]) -> dict[tuple[Place, Place], Offset]:
    ways: dict[tuple[Place, Place], dict[Hop, tuple[int, int, int]]] = defaultdict(dict)
    for series_a, interface_a, series_b, interface_b, one, other, *seen in merged(pairs):
        ways[(series_a, interface_a), (series_b, interface_b)][one, other] = tuple(seen)
    return {places: _offset(found) for places, found in ways.items()}


def _offset(ways: dict[Hop, tuple[int, int, int]]) -> Offset:
    """The offset between two capture points from what each direction of each hop shows."""
    packets = sum(count for count, _, _ in ways.values())
    bounds = []
    for (one, other), (_, least, most) in ways.items():
        back = ways.get((other, one))
        if back is None or one > other:
            continue
        # Whichever point comes first on the way there, the bounds of one order hold and those of the other do not.
        for low, high in ((back[2], least), (most, back[1])):
            if low <= high:
                bounds.append((low, high))
                break
    if not bounds:
        least = min((least for _, least, _ in ways.values()), key=abs)
        return Offset(least, None, packets)
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    return Offset((low + high) // 2, (abs(high - low) + 1) // 2, packets)


def _sum(one: Offset, other: Offset) -> Offset:
    known = one.uncertainty_ns is not None and other.uncertainty_ns is not None
    uncertainty_ns = (one.uncertainty_ns or 0) + (other.uncertainty_ns or 0) if known else None
    return Offset(one.offset_ns + other.offset_ns, uncertainty_ns, other.packets)


def _rows(pairs: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in pairs:
        yield from zip(*(values(batch, name) for name in CLOCK_PAIRS.names), strict=True)
