"""Brings together everything about one message: its packets and acknowledgments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.messages import straight, subjects
from mqproto.captures.pipeline.tables.lists import Batches, records, values

EVENT_LIMIT: Final = 10_000
"""Of how many packets of one message each is looked at; hostile captures have messages with more."""


class Event(NamedTuple):
    """A row of `subjects.keyed`: a packet that carries a message, or one that is about it.

    What is about it has its own kind, place, time and hop; the rest is for the message. arrivals, first_ns and
    completed_ns are of ARRIVALS, of an earlier run. Here is what decides something; all else that a table has of the
    packet goes there by `at`.

    at: the row in its batch.
    """

    at: int
    subject: str
    about: bool
    series: str
    file: str
    frame: int
    number: int
    interface: int
    row_id: int
    time_ns: int
    connection: int | None
    kind: str
    from_key: str
    to_key: str
    hop_count: int
    session_number: int | None
    acknowledged_by: int | None
    acknowledged_ns: int | None
    size_bytes: int
    digest: int
    message_class: int
    class_name: str | None
    sent_time_s: int | None
    source_manager: str
    destination_manager: str
    sequence: str | None
    sequence_number: int | None
    arrivals: int | None
    first_ns: int | None
    completed_ns: int | None

    @property
    def place(self) -> tuple[str, int]:
        """The capture point that saw it."""
        return self.series, self.interface


OF_RUNS: Final = ("arrivals", "first_ns", "completed_ns")
COPIED: Final = (
    "file",
    "frame",
    "file_offset",
    "number",
    "delivery",
    "queue",
    "label",
    "body_bytes",
    "sent_time_s",
)
"""What tables have of packets beside that."""
COLUMNS: Final = tuple(
    dict.fromkeys(
        [
            *subjects.COLUMNS,
            *(name for name in Event._fields if name not in ("at", *subjects.KEYED, *OF_RUNS)),
            *COPIED,
        ]
    )
)
"""What `subjects.keyed` takes for this: of packets, joined with their relations."""


class Messages:
    """Whole messages: those that went straight, and the others one by one.

    Attributes:
        rows: of all of them, one behind the other; events find their rows there by `at`.
        straight: messages that need not be looked at one by one.

    Args:
        sizes: how many rows each has.
        is_complete: whether the first has not had more events already, which were passed over.
    """

    def __init__(self, rows: pa.RecordBatch, sizes: Integers, *, is_complete: bool) -> None:
        self.rows = rows
        whole = sizes <= EVENT_LIMIT
        whole[0] &= is_complete
        is_straight, self.straight = straight.find(rows, sizes, whole)
        self.odd_rows = np.flatnonzero(np.repeat(~is_straight, sizes))
        self._odd_sizes = sizes[~is_straight].tolist()
        self._whole = whole[~is_straight].tolist()

    @cached_property
    def odd(self) -> list[tuple[list[Event], bool]]:
        """The others: the events of each, and whether these are all."""
        each = events(self.rows.take(pa.array(self.odd_rows)), self.odd_rows.tolist())
        return [
            (list(islice(each, size))[:EVENT_LIMIT], is_whole)
            for size, is_whole in zip(self._odd_sizes, self._whole, strict=True)
        ]

    def one_by_one(self, chosen: Mask) -> Iterator[list[Event]]:
        """The events of some of those that went straight."""
        some = self.straight.only(chosen)
        at, of = np.append(some.crossings, some.acks), np.append(some.message, some.acked)
        at = at[np.lexsort([at, of])]
        each = events(self.rows.take(pa.array(at)), at.tolist())
        for size in np.bincount(of, minlength=len(some)).tolist():
            yield list(islice(each, size))


class OfMessages(Protocol):
    """A stage that looks at whole messages."""

    def take(self, messages: Messages) -> Batches:
        """Take the next messages, and return the result."""


class MessageStages:
    """Rows in, by `subjects.KEY` and `ORDER`; each stage gets every message when all its events are there.

    Args:
        stages: those that look at the same rows; what comes out are the tables of all of them.
    """

    def __init__(self, *stages: OfMessages) -> None:
        self._stages = stages
        self._begun: pa.RecordBatch | None = None
        self._is_complete = True

    def take(self, batch: pa.RecordBatch) -> Batches:
        """The next rows."""
        if self._begun is not None:
            batch = pa.concat_batches([self._begun, batch])
        bounds = _bounds(batch.column("subject"))
        if len(bounds) < 2:
            return {}
        # More may come of the last message; of what is too much none is kept.
        last, size = bounds[-2], bounds[-1] - bounds[-2]
        self._begun = batch.slice(last, min(size, EVENT_LIMIT))
        found = self._close(batch.slice(0, last), np.diff(bounds[:-1]))
        self._is_complete = size <= EVENT_LIMIT and (self._is_complete or last > 0)
        return found

    def finish(self) -> Batches:
        """Finish the last message."""
        rows, self._begun = self._begun, None
        found = {} if rows is None else self._close(rows, np.array([rows.num_rows]))
        self._is_complete = True
        return found

    def _close(self, rows: pa.RecordBatch, sizes: Integers) -> Batches:
        """Whole messages."""
        if not len(sizes):
            return {}
        messages = Messages(rows, sizes, is_complete=self._is_complete)
        found: Batches = {}
        for stage in self._stages:
            found |= stage.take(messages)
        return found


def _bounds(subjects: pa.Array) -> list[int]:
    """Where messages begin, and where the last ends."""
    count = len(subjects)
    if not count:
        return []
    subjects = pc.fill_null(subjects, "")
    changed = pc.not_equal(subjects.slice(1), subjects.slice(0, count - 1))
    inner = changed.to_numpy(zero_copy_only=False).nonzero()[0] + 1
    return [0, *inner.tolist(), count]


def events(batch: pa.RecordBatch, at: Iterable[int]) -> Iterator[Event]:
    """Rows as events; a column that is not there has nothing.

    Args:
        at: the number of each row in the batch that they were taken from.
    """
    there = set(batch.schema.names)
    columns = (
        values(batch, name) if name in there else [None] * batch.num_rows for name in Event._fields[1:]
    )
    return records(Event, at, *columns)


def about_packets(
    schema: pa.Schema, told: Mapping[str, pa.Array], at: Integers, packets: pa.RecordBatch
) -> pa.RecordBatch:
    """A table about packets; their own fields are copied unchanged.

    Args:
        schema: the message is the packet's subject.
        told: columns; all others are the packet's.
        at: of each row, the packet's place in `packets`.
    """
    place = pa.array(at, pa.int64())
    arrays = []
    for field in schema:
        if field.name in told:
            arrays.append(told[field.name])
        else:
            column = packets.column("subject" if field.name == "message" else field.name)
            arrays.append(column.take(place).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_about(
    schema: pa.Schema, told: Sequence[str], rows: Iterable[tuple[Any, ...]], packets: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the same from rows: first the packet's place, then the facts."""
    places, *columns = zip(*rows, strict=True)
    arrays = (pa.array(column, schema.field(name).type) for name, column in zip(told, columns, strict=True))
    return about_packets(schema, dict(zip(told, arrays, strict=True)), np.array(places), packets)
