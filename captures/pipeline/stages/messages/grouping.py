"""Collects everything about each message: its packets and acknowledgments."""

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
from mqproto.captures.pipeline.tables.lists import Batches, records

EVENT_LIMIT: Final = 10_000
"""The maximum number of packets that are examined for one message; hostile captures may have messages with more."""


class Event(NamedTuple):
    """A row of `subjects.keyed`: a packet that carries a message, or a packet about a message.

    A packet about a message has its own kind, place, time and hop; its other fields describe the message. `arrivals`,
    `first_ns` and `completed_ns` come from ARRIVALS of an earlier run; `unseen` and `ended` come from CONFIRMATIONS. An
    event has only the fields that decide something; tables use `at` to copy the packet's other columns.

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
    encrypted: str | None
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
    unseen: list[int] | None
    ended: int | None

    @property
    def place(self) -> tuple[str, int]:
        """The capture point that saw the packet."""
        return self.series, self.interface


OF_OTHERS: Final = ("arrivals", "first_ns", "completed_ns", "unseen", "ended")
COPIED: Final = (
    *("file", "frame", "file_offset", "number", "delivery"),
    *("queue", "label", "body_bytes", "sent_time_s"),
)
"""The columns of packets that tables copy unchanged."""
COLUMNS: Final = tuple(
    dict.fromkeys(
        [
            *subjects.COLUMNS,
            *(name for name in Event._fields if name not in ("at", *subjects.KEYED, *OF_OTHERS)),
            *COPIED,
        ]
    )
)
"""The columns that `subjects.keyed` needs for this module, from packets joined with their relations."""


class Messages:
    """Whole messages: columns for those that went straight, events for the others.

    Attributes:
        rows: the rows of all messages, one message after the other; `Event.at` refers to them.
        straight: the messages that do not have to be examined one by one.

    Args:
        sizes: the number of rows of each message.
        is_complete: False if earlier events of the first message were discarded.
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
        """The messages that did not go straight: the events of each, and whether these are complete."""
        each = events(self.rows.take(pa.array(self.odd_rows)), self.odd_rows.tolist())
        return [
            (list(islice(each, size))[:EVENT_LIMIT], is_whole)
            for size, is_whole in zip(self._odd_sizes, self._whole, strict=True)
        ]

    def one_by_one(self, chosen: Mask) -> Iterator[list[Event]]:
        """Yield the events of each chosen straight message."""
        some = self.straight.only(chosen)
        at, of = np.append(some.crossings, some.acks), np.append(some.message, some.acked)
        at = at[np.lexsort([at, of])]
        each = events(self.rows.take(pa.array(at)), at.tolist())
        for size in np.bincount(of, minlength=len(some)).tolist():
            yield list(islice(each, size))


class OfMessages(Protocol):
    """A stage that takes whole messages."""

    def take(self, messages: Messages) -> Batches:
        """Take the next messages, and return the result."""


class MessageStages:
    """Takes rows grouped by `subjects.KEY` and sorted by `ORDER`.

    Each message is given to every stage once all its rows have been taken. If there are more than EVENT_LIMIT, some are
    discarded.

    Args:
        stages: the stages that take the same messages; the tables of all of them are returned.
    """

    def __init__(self, *stages: OfMessages) -> None:
        self._stages = stages
        self._begun: pa.RecordBatch | None = None
        self._is_complete = True

    def take(self, batch: pa.RecordBatch) -> Batches:
        """Take the next rows."""
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
        """Give whole messages to the stages."""
        if not len(sizes):
            return {}
        messages = Messages(rows, sizes, is_complete=self._is_complete)
        found: Batches = {}
        for stage in self._stages:
            found |= stage.take(messages)
        return found


def _bounds(subjects: pa.Array) -> list[int]:
    """Return the index of each message's first row, and the index after the last row of all."""
    count = len(subjects)
    if not count:
        return []
    subjects = pc.fill_null(subjects, "")
    changed = pc.not_equal(subjects.slice(1), subjects.slice(0, count - 1))
    inner = changed.to_numpy(zero_copy_only=False).nonzero()[0] + 1
    return [0, *inner.tolist(), count]


def events(batch: pa.RecordBatch, at: Iterable[int]) -> Iterator[Event]:
    """Yield rows as events; missing columns count as null.

    Args:
        at: the index of each row in the batch from which these rows were taken.
    """
    none = [None] * batch.num_rows
    missing = {name: none for name in Event._fields[1:] if name not in batch.schema.names}
    return records(Event, batch, **{Event._fields[0]: at, **missing})


def about_packets(
    schema: pa.Schema, told: Mapping[str, pa.Array], at: Integers, packets: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a table about packets, into which their fields are copied unchanged.

    Args:
        schema: the schema of the table; its column for the message holds the packet's subject.
        told: the columns that are not copied from the packet.
        at: for each row, the packet's index in `packets`.
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
    """Return a table about packets from rows.

    Each row consists of the packet's index in `packets` and the values for the columns `told`.
    """
    places, *columns = zip(*rows, strict=True)
    arrays = (pa.array(column, schema.field(name).type) for name, column in zip(told, columns, strict=True))
    return about_packets(schema, dict(zip(told, arrays, strict=True)), np.array(places), packets)
