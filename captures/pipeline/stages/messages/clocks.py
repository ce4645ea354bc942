"""Estimates the offsets between the clocks of capture points.

The evidence comes from packets that were seen at two points, and from causal order. A packet that was seen at two
points passed one of them first. Nobody knows which one, but packets in the other direction pass the points in the
opposite order. A message crosses one hop before the next, and crosses them all before it is acknowledged, even if
different points see this. So both kinds of packets limit how far one clock is ahead: there is an upper bound at one
time, and a lower bound at another (offsets.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.pipeline.stages.messages.grouping import Event, Messages, events
from mqproto.captures.pipeline.stages.messages.offsets import Ahead, Bounds, Lines, lines_between
from mqproto.captures.pipeline.stages.schema import INTEGER, INTEGERS, PASSED, SHORT, TEXT
from mqproto.captures.pipeline.tables.lists import Batches, batch_of, values
from mqproto.captures.pipeline.tables.schemas import sessions

__all__ = ["CLOCKS", "CLOCK_PAIRS", "Ahead", "ClockStage", "ahead", "clocks"]

PLACE_LIMIT: Final = 8
"""The maximum number of capture points that are compared for one packet."""
HELD_COUNT: Final = 1_024
"""The number of bounds to collect before only the strictest are kept."""
STRAIGHT_LIMIT: Final = 4_096
"""The maximum number of straight messages, seen by several points, whose order is examined in each batch."""

CLOCK_PAIRS: Final = pa.schema(
    [
        ("series_a", TEXT),
        ("interface_a", SHORT),
        ("series_b", TEXT),
        ("interface_b", SHORT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("packets", INTEGER),
        ("below_at", INTEGERS),
        ("below_ns", INTEGERS),
        ("above_at", INTEGERS),
        ("above_ns", INTEGERS),
    ]
)
"""Evidence from two capture points, a and b, about their clocks.

It consists of bounds on how far b's clock is ahead of a's, at times on a's clock.

from_key, to_key: the hop of the packets that both points saw. Each packet gives an upper or a lower bound, which
    depends on the point that it passed first. Empty for bounds from events in a known order.
packets: the number of packets compared. A point paired with itself has the times of its first and last packets.
"""

CLOCKS: Final = sessions.CLOCKS.schema
_SPAN: Final = ("series", "interface", "time_ns_min", "time_ns_max")
Place = tuple[str, int]
"""A capture point, given by its series and interface."""
Hop = tuple[str, str]
Pair = tuple[Place, Place]
ORDERED: Final = ("", "")
"""The value of `Hop` in bounds that come from events in a known order."""


class ClockStage:
    """A stage of `grouping.MessageStages` for rows of `subjects.keyed`.

    Its only result is `pairs`, at the end.

    Args:
        lossless: tells whether a series is free of gaps. If it is not, the first copy of a message may be missing
            although a later copy is present.
    """

    def __init__(self, lossless: Callable[[str], bool] = lambda _: True) -> None:
        self._lossless = lossless
        self._pairs: dict[tuple[Place, Place, Hop], tuple[int, Bounds]] = {}
        self._spans: dict[Place, tuple[int, int]] = {}

    def pairs(self) -> pa.RecordBatch:
        """Return the evidence that these rows give about pairs of capture points, as CLOCK_PAIRS."""
        return batch_of(CLOCK_PAIRS, _pair_rows(self._found()))

    def _found(self) -> Iterator[tuple[tuple[Place, Place, Hop], tuple[int, Bounds]]]:
        yield from self._pairs.items()
        for place, (first_ns, last_ns) in self._spans.items():
            yield (place, place, ORDERED), (0, Bounds([(first_ns, 0), (last_ns, 0)]))

    def take(self, messages: Messages) -> Batches:
        """Take the next messages."""
        self._note(messages.rows)
        for some, is_complete in chain(messages.odd, _of_several_points(messages)):
            if is_complete:
                self._compare(some)
        return {}

    def _note(self, rows: pa.RecordBatch) -> None:
        times = pa.Table.from_batches([rows.select(["series", "interface", "time_ns"])])
        spans = times.group_by(["series", "interface"]).aggregate([("time_ns", "min"), ("time_ns", "max")])
        for series, interface, *span in zip(*(spans[name].to_pylist() for name in _SPAN), strict=True):
            known = self._spans.get((series, interface), span)
            self._spans[series, interface] = min(known[0], span[0]), max(known[1], span[1])

    def _compare(self, some: Sequence[Event]) -> None:
        """Record the times of copies.

        If two points saw a packet equally often, the first copy at one is the first at the other, and so on.
        """
        if len({event.place for event in some}) < 2:
            return
        seen: dict[tuple[Hop, int], dict[Place, list[int]]] = defaultdict(lambda: defaultdict(list))
        for event in some:
            if not event.about:
                hop = (event.from_key, event.to_key)
                seen[hop, event.digest][event.place].append(event.time_ns)
        for (hop, _), places in seen.items():
            for a, b in combinations(sorted(places)[:PLACE_LIMIT], 2):
                if len(places[a]) == len(places[b]):
                    for at_a, at_b in zip(sorted(places[a]), sorted(places[b]), strict=True):
                        self._add((a, b, hop), Bounds([(at_a, at_b - at_a)], [(at_a, at_b - at_a)]))
        self._order(some)

    def _order(self, some: Sequence[Event]) -> None:
        """Record the known order of a message's events.

        It crossed its hops one after another, and then it was acknowledged.
        """
        carriers: dict[Place, list[Event]] = defaultdict(list)
        for event in some:
            if not event.about:
                carriers[event.place].append(event)
        if not all(self._lossless(series) for series, _ in carriers):
            return
        if any(len({event.hop_count for event in at}) != len(at) for at in carriers.values()):
            return
        of_message = [event for at in carriers.values() for event in at]
        about = [event for event in some if event.about and event.kind != PASSED]
        for event in of_message[:PLACE_LIMIT]:
            later = [other for other in of_message if other.hop_count > event.hop_count]
            for other in (*later, *about)[:PLACE_LIMIT]:
                self._add_order(event, other)

    def _add_order(self, event: Event, later: Event) -> None:
        if event.place < later.place:
            bound = Bounds(below=[(event.time_ns, later.time_ns - event.time_ns)])
            self._add((event.place, later.place, ORDERED), bound)
        elif later.place < event.place:
            bound = Bounds(above=[(later.time_ns, event.time_ns - later.time_ns)])
            self._add((later.place, event.place, ORDERED), bound)

    def _add(self, key: tuple[Place, Place, Hop], bound: Bounds) -> None:
        count, known = self._pairs.get(key, (0, Bounds()))
        known.below += bound.below
        known.above += bound.above
        if len(known.below) + len(known.above) > HELD_COUNT:
            known.add(Bounds())
        self._pairs[key] = (count + 1, known)


def _of_several_points(messages: Messages) -> Iterator[tuple[list[Event], bool]]:
    """Yield the straight messages that were seen at more than one point."""
    straight, rows = messages.straight, messages.rows
    if not len(straight):
        return
    at = np.concatenate([straight.crossings, straight.acks])
    message = np.concatenate([straight.message, straight.acked])
    series = rows.column("series").dictionary_encode().indices.to_numpy().astype(np.int64)
    place = ((series << 32) + rows.column("interface").to_numpy())[at]
    first = place[straight.first]
    apart = np.unique(message[place != first[message]])[:STRAIGHT_LIMIT]
    chosen = np.isin(message, apart)
    at, message = at[chosen], message[chosen]
    order = np.argsort(message, kind="stable")
    at, message = at[order], message[order]
    found: dict[int, list[Event]] = defaultdict(list)
    for number, event in zip(message.tolist(), events(rows.take(pa.array(at)), at.tolist()), strict=True):
        found[number].append(event)
    for some in found.values():
        yield some, True


def _pair_rows(
    pairs: Iterable[tuple[tuple[Place, Place, Hop], tuple[int, Bounds]]],
) -> Iterator[tuple[Any, ...]]:
    for (a, b, hop), (packets, found) in pairs:
        found.add(Bounds())
        sides = (list(map(list, zip(*side, strict=True))) or [[], []] for side in (found.below, found.above))
        yield (*a, *b, *hop, packets, *chain(*sides))


def merged(pairs: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Return the rows of all CLOCK_PAIRS, merged into one row for each pair and hop."""
    return list(_pair_rows(_all(pairs).items()))


def _all(pairs: Iterable[pa.RecordBatch]) -> dict[tuple[Place, Place, Hop], tuple[int, Bounds]]:
    found: dict[tuple[Place, Place, Hop], tuple[int, Bounds]] = {}
    for batch in pairs:
        columns = [values(batch, name) for name in CLOCK_PAIRS.names[:7]]
        lists = [batch.column(name).to_pylist() for name in CLOCK_PAIRS.names[7:]]
        for series_a, interface_a, series_b, interface_b, one, other, packets, *sides in zip(
            *columns, *lists, strict=True
        ):
            below, above = (list(zip(*sides[at : at + 2], strict=True)) for at in (0, 2))
            key = ((series_a, interface_a), (series_b, interface_b), (one, other))
            count, known = found.get(key, (0, Bounds()))
            known.add(Bounds(below, above))
            found[key] = (count + packets, known)
    return found


def clocks(pairs: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return CLOCKS from all CLOCK_PAIRS.

    Each point that shares packets with others is compared with the point of its group that shares the most.
    """
    near = _near(pairs)
    rows: list[tuple[Any, ...]] = []
    left = sorted(near, key=lambda place: (-sum(each.packets for each in near[place].values()), place))
    while left:
        reference = left[0]
        known = {reference: Ahead(0, 0, 0)}
        reached = [reference]
        for place in reached:
            # The most certain first, and of these the best connected.
            for other, step in sorted(near[place].items(), key=lambda each: _rank(each[1])):
                if other not in known:
                    known[other] = step.behind(known[place])
                    reached.append(other)
        for place in reached:
            each = known[place]
            drift_ppb = each.drift_ppb or None
            told = (each.offset_ns, each.at_ns, drift_ppb, each.uncertainty_ns, each.packets)
            rows.append((*place, *reference, *told))
        left = [place for place in left if place not in known]
    return batch_of(CLOCKS, rows)


def _rank(step: Ahead) -> tuple[bool, int]:
    return step.uncertainty_ns is None, -step.packets


def ahead(found: pa.RecordBatch) -> dict[Place, Ahead]:
    """Return CLOCKS as a mapping, which is the form that `histories` takes."""
    names = ("series", "interface", "offset_ns", "uncertainty_ns", "packets", "at_ns", "drift_ppb")
    rows = zip(*(values(found, name) for name in names), strict=True)
    return {
        (series, interface): Ahead(offset_ns, uncertainty_ns, packets, at_ns, drift_ppb or 0)
        for series, interface, offset_ns, uncertainty_ns, packets, at_ns, drift_ppb in rows
    }


def _near(pairs: Iterable[pa.RecordBatch]) -> dict[Place, dict[Place, Ahead]]:
    """Return, for each point, the points that can be compared with it, and how far it is behind them.

    How far a point is behind another one is given at times on that other point's clock.
    """
    ways: dict[Pair, dict[Hop, tuple[int, Bounds]]] = defaultdict(dict)
    spans: dict[Place, tuple[int, int]] = {}
    for (a, b, hop), (packets, found) in _all(pairs).items():
        if a == b:
            spans[a] = found.below[0][0], found.below[-1][0]
        else:
            ways[a, b][hop] = packets, found
    near: dict[Place, dict[Place, Ahead]] = defaultdict(dict)
    for (a, b), of_pair in ways.items():
        near[a][b], near[b][a] = _compared(of_pair, spans.get(a), spans.get(b))
    return near


def _compared(
    ways: Mapping[Hop, tuple[int, Bounds]], span_a: tuple[int, int] | None, span_b: tuple[int, int] | None
) -> tuple[Ahead, Ahead]:
    """Return how far the second of two clocks is ahead of the first, and vice versa."""
    packets = sum(count for hop, (count, _) in ways.items() if hop != ORDERED) or ways[ORDERED][0]
    bounds = {hop: found for hop, (_, found) in ways.items()}
    every = [point for found in bounds.values() for point in (*found.below, *found.above)]
    times = [time_ns for time_ns, _ in every]
    if span_a is not None and span_b is not None:
        times += (*span_a, *(time_ns - every[0][1] for time_ns in span_b))
    first_ns, last_ns = min(times), max(times)
    known = bounds.pop(ORDERED, Bounds())
    doubtful: list[Lines] = []
    for (one, other), there in bounds.items():
        back = bounds.get((other, one))
        if back is None or one > other:
            continue
        # Whichever point comes first on the way there, the bounds of one order hold and those of the other do not.
        orders = (Bounds(there.below, back.above), Bounds(back.below, there.above))
        for order in orders:
            order.add(known)
        possible = [(order, lines) for order in orders if (lines := lines_between(order, first_ns, last_ns))]
        if len(possible) == 1:
            known = possible[0][0]
        elif not doubtful:
            doubtful = [lines for _, lines in possible]
    lines = lines_between(known, first_ns, last_ns)
    if lines is None and doubtful:
        # Both orders are possible, so all that either says is.
        bases = [each.base_ns for each in doubtful]
        corners = [
            (p + each.base_ns - bases[0], q + each.base_ns - bases[0])
            for each in doubtful
            for p, q in each.corners
        ]
        lines = Lines(first_ns, last_ns, bases[0], corners)
    return _unsure(bounds, known, packets) if lines is None else lines.ahead(packets)


def _unsure(bounds: Mapping[Hop, Bounds], known: Bounds, packets: int) -> tuple[Ahead, Ahead]:
    """Return estimates for two clocks if no straight line can be found between the bounds.

    None can be found if a clock was set, or if one side has no bounds.
    """
    seen = [value for found in bounds.values() for value in found.values()]
    if any((other, one) in bounds for one, other in bounds) or (known.below and known.above):
        every = [*seen, *known.values()]
        low, high = min(every), max(every)
        middle, rest = (low + high) // 2, (high - low + 1) // 2 + 1
        return Ahead(middle, rest, packets), Ahead(-middle, rest, packets)
    least = min(
        (min((value for _, value in found.below), key=abs) for found in bounds.values() if found.below),
        key=abs,
        default=None,
    )
    if least is None:
        # Nothing was seen by both: the nearest that fits.
        least = min((value for _, value in known.below), default=0)
        least = max(min(0, least), max((value for _, value in known.above), default=least))
    return Ahead(least, None, packets), Ahead(-least, None, packets)
