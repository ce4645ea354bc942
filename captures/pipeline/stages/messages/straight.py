"""Judges messages that went straight to their destinations, many at once, with column operations.

Nearly every message crosses each of its hops once, unchanged except for its hop count, reaches its destination, and
gets only OrderAcks as answers. The rules find nothing in such messages, and their outcome is known without further
tests. All others are examined one by one. A test examines every message in both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.messages.offsets import Ahead
from mqproto.captures.pipeline.tables.lists import integers, values
from mqproto.wire import NULL_GUID, guid_text

HOP_LIMIT: Final = 8
"""Messages that cross more hops than this are examined one by one."""
NULL_TEXT: Final = guid_text(NULL_GUID)
NOBODY, NO_KEY = -2, -3
"""Code numbers for keys that name no queue manager.

NOBODY stands for the null GUID, which belongs to nobody; NO_KEY stands for null. The number -1 is not used for any key,
because Arrow returns it for a value that it does not find.
"""
ENDS: Final = ("from_key", "to_key", "source_manager", "destination_manager")


@dataclass(frozen=True, slots=True)
class Straight:
    """Some of the messages of a batch, in the batch's order. Rows of the batch are given by their numbers.

    crossings: the rows in which messages crossed a hop, grouped by message, in the order of each message's hops.
    message: for each crossing, the index of its message, from 0.
    first: for each message, the index in `crossings` of its first crossing.
    arrival: for each message, the index in `crossings` of its arrival at the destination.
    acks, acked: the rows of OrderAcks, and for each, the message that it is about; grouped by message.
    at_source: for each OrderAck, whether it was seen at the message's source.
    """

    crossings: Integers
    message: Integers
    first: Integers
    arrival: Integers
    acks: Integers
    acked: Integers
    at_source: Mask

    def __len__(self) -> int:
        return len(self.first)

    @property
    def hops(self) -> Integers:
        """Return the number of hops that each message crossed."""
        return np.diff(self.first, append=len(self.crossings))

    def only(self, chosen: Mask) -> Straight:
        """Return the chosen messages."""
        if chosen.all():
            return self
        number = np.cumsum(chosen) - 1
        crossed, said = chosen[self.message], chosen[self.acked]
        place = np.cumsum(crossed) - 1
        return Straight(
            crossings=self.crossings[crossed],
            message=number[self.message[crossed]],
            first=place[self.first[chosen]],
            arrival=place[self.arrival[chosen]],
            acks=self.acks[said],
            acked=number[self.acked[said]],
            at_source=self.at_source[said],
        )


def find(rows: pa.RecordBatch, sizes: Integers, whole: Mask) -> tuple[Mask, Straight]:
    """Return, for each message, whether it went straight; and return the messages that did.

    Args:
        rows: the rows of messages, one message after the other, with the columns of `grouping.Event`.
        sizes: the number of rows of each message.
        whole: for each message, whether all its rows are there; if not, it is examined one by one.
    """
    count = len(sizes)
    message = np.repeat(np.arange(count), sizes)
    about = rows.column("about").to_numpy(zero_copy_only=False)
    is_order_ack = pc.equal(rows.column("kind"), str(Kind.ORDER_ACK)).to_numpy(zero_copy_only=False)
    left, came, source, destination = _codes(rows, ENDS)

    crossings = np.flatnonzero(~about)
    of = message[crossings]
    hops = np.bincount(of, minlength=count)
    odd = ~whole | (hops == 0) | (hops > HOP_LIMIT)
    odd[message[about & ~is_order_ack]] = True
    is_cut = pc.equal(rows.column("kind"), str(Kind.CUT)).to_numpy(zero_copy_only=False)
    odd[message[is_cut]] = True

    to = came[crossings]
    hop_count, digest = (integers(rows, name)[crossings] for name in ("hop_count", "digest"))
    passed_on = left[crossings[1:]] == to[:-1]
    passed_on &= (hop_count[1:] == hop_count[:-1] + 1) & (digest[1:] == digest[:-1])
    odd[of[1:][(of[1:] == of[:-1]) & ~passed_on]] = True
    for apart in range(1, min(HOP_LIMIT, int(hops.max(initial=0)))):
        # To come twice to one queue manager is to go astray.
        odd[of[apart:][(of[apart:] == of[:-apart]) & (to[apart:] == to[:-apart])]] = True

    first = np.cumsum(hops) - hops
    begins = np.zeros(count, dtype=np.int64)
    begins[hops > 0] = crossings[first[hops > 0]]
    # A direct name goes straight to its host.
    towards = np.where(destination[begins] == NOBODY, came[begins], destination[begins])
    arrived = to == towards[of]
    odd |= np.bincount(of[arrived], minlength=count) != 1
    arrival = np.zeros(count, dtype=np.int64)
    arrival[of[arrived]] = np.flatnonzero(arrived)

    acks = np.flatnonzero(about)
    at_source = came[acks] == source[begins[message[acks]]]
    every = Straight(crossings, of, first, arrival, acks, message[acks], at_source)
    return ~odd, every.only(~odd)


def _codes(rows: pa.RecordBatch, names: Sequence[str]) -> list[Integers]:
    """Return key columns as code numbers that are equal where the keys are equal.

    NOBODY stands for the null GUID.
    """
    coded = pa.concat_arrays([rows.column(name) for name in names]).dictionary_encode()
    codes = pc.fill_null(coded.indices, NO_KEY).to_numpy(zero_copy_only=False).astype(np.int64)
    codes[codes == pc.index(coded.dictionary, NULL_TEXT).as_py()] = NOBODY
    return np.split(codes, len(names))


def least(count: int, of: Integers, values: Integers) -> tuple[Integers, Mask]:
    """Return the least value of each group, and for each group, whether it has no value.

    Args:
        of: the group of each value, from 0 to `count` - 1, in ascending order.
    """
    found, none = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    if len(of):
        begins = np.flatnonzero(np.diff(of, prepend=-1))
        found[of[begins]] = np.minimum.reduceat(values, begins)
        none[of[begins]] = False
    return found, none


def clock_offsets_ns(
    rows: pa.RecordBatch, ahead: Mapping[tuple[str, int], Ahead], times: str = "time_ns"
) -> Integers:
    """Return how far each row's clock is ahead at the time in the column `times`.

    The result is 0 where the time or the offset of the clock is unknown.
    """
    found = np.zeros(rows.num_rows, dtype=np.int64)
    if ahead:
        places = zip(rows.column("series").to_pylist(), rows.column("interface").to_pylist(), strict=True)
        known = (
            (ahead.get(place), time_ns) for place, time_ns in zip(places, values(rows, times), strict=True)
        )
        found[:] = [0 if each is None or time_ns is None else each.of(time_ns) for each, time_ns in known]
    return found


def uncertainties_ns(
    rows: pa.RecordBatch, ahead: Mapping[tuple[str, int], Ahead], one: Integers, other: Integers
) -> pa.Array:
    """Return, for pairs of rows, the uncertainty of the time between them.

    It is 0 for rows from the same capture point, and for all rows if `ahead` is empty. Otherwise, it is null if
    unknown.
    """
    if not ahead:
        return pa.array(np.zeros(len(one), dtype=np.int64))
    places = list(zip(rows.column("series").to_pylist(), rows.column("interface").to_pylist(), strict=True))
    return pa.array(
        [
            uncertainty_ns(ahead, places[at], places[to])
            for at, to in zip(one.tolist(), other.tolist(), strict=True)
        ],
        pa.int64(),
    )


def uncertainty_ns(
    ahead: Mapping[tuple[str, int], Ahead], one: tuple[str, int], other: tuple[str, int]
) -> int | None:
    """Return the uncertainty of the time between events at two capture points; None if unknown."""
    if one == other or not ahead:
        return 0
    of_one, of_other = (
        None if each is None else each.uncertainty_ns for each in map(ahead.get, (one, other))
    )
    return None if of_one is None or of_other is None else of_one + of_other
