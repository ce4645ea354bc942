"""All that the captures have of one message, brought together: its packets, and what was said of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from captures.pipeline.stages import journeys
from captures.pipeline.stages.rows import Batches, records, values

EVENT_LIMIT: Final = 10_000
"""Of so many packets of one message each is looked at; hostile captures have messages with more."""


class Event(NamedTuple):
    """A row of `journeys.keyed`: a packet that carries a message, or one that is about it.

    What is about it has its own kind, place, time and hop; the rest is for the message. arrivals, first_ns and
    completed_ns are of ARRIVALS, of an earlier run. Here is what decides something; all else that a table has of the
    packet goes there by `at`.

    at: the row in its batch.
    """

    at: int
    subject: str
    about: bool
    series: str
    interface: int
    row_id: int
    time_ns: int
    kind: str
    from_key: str
    to_key: str
    hop_count: int
    acknowledged_ns: int | None
    digest: int
    message_class: int
    class_name: str | None
    source_manager: str
    destination_manager: str
    sequence: str | None
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
    "sequence_number",
    "label",
    "body_bytes",
    "sent_time_s",
)
"""What tables have of packets beside that."""
COLUMNS: Final = tuple(
    dict.fromkeys(
        [
            *journeys.COLUMNS,
            *(name for name in Event._fields if name not in ("at", *journeys.KEYED, *OF_RUNS)),
            *COPIED,
        ]
    )
)
"""What `journeys.keyed` takes for this: of packets, joined with their relations."""
LOOKED_AT: Final = tuple(dict.fromkeys([*Event._fields[1:], *COPIED]))
"""What is read of the rows that it gives."""
KEY: Final = journeys.KEY
ORDER: Final = journeys.ORDER


class PerMessage(Protocol):
    """A stage that looks at one message after the other.

    Attributes:
        least: messages with fewer events are nothing to it.
    """

    least: int

    def close(self, events: Sequence[Event], *, is_complete: bool) -> None:
        """All that there is of a message.

        Args:
            is_complete: false of one with more events than are looked at.
        """

    def taken(self, rows: pa.RecordBatch) -> Batches:
        """What has come out since it was last asked.

        Args:
            rows: those that the events since then were.
        """


class MessageStages:
    """Rows in, by KEY and ORDER; each stage gets every message when all its events are there.

    Args:
        stages: those that look at the same rows; what comes out are the tables of all of them.
    """

    def __init__(self, *stages: PerMessage) -> None:
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
        found = self._close(batch, bounds[:-1])
        self._is_complete = size <= EVENT_LIMIT and (self._is_complete or last > 0)
        return found

    def finish(self) -> Batches:
        """No more is to come of the last message."""
        rows, self._begun = self._begun, None
        found = {} if rows is None else self._close(rows, [0, rows.num_rows])
        self._is_complete = True
        return found

    def _close(self, rows: pa.RecordBatch, bounds: list[int]) -> Batches:
        """Whole messages, each from one bound to the next."""
        sizes = np.diff(bounds)
        least = min(stage.least for stage in self._stages)
        if least > 1:
            wanted = sizes >= least
            rows = rows.slice(0, bounds[-1]).filter(pa.array(np.repeat(wanted, sizes)))
            sizes = sizes[wanted]
        each = events(rows)
        # Only the first can be one of which some was passed over before.
        is_complete = self._is_complete
        for size in sizes.tolist():
            found = list(islice(each, size))
            if size > EVENT_LIMIT:
                is_complete = False
                del found[EVENT_LIMIT:]
            for stage in self._stages:
                stage.close(found, is_complete=is_complete)
            is_complete = True
        taken: Batches = {}
        for stage in self._stages:
            taken |= stage.taken(rows)
        return taken


def _bounds(subjects: pa.Array) -> list[int]:
    """Where messages begin, and where the last ends."""
    count = len(subjects)
    if not count:
        return []
    subjects = pc.fill_null(subjects, "")
    changed = pc.not_equal(subjects.slice(1), subjects.slice(0, count - 1))
    inner = changed.to_numpy(zero_copy_only=False).nonzero()[0] + 1
    return [0, *inner.tolist(), count]


def events(batch: pa.RecordBatch) -> Iterator[Event]:
    """Rows as events; a column that is not there has nothing."""
    there = set(batch.schema.names)
    columns = (
        values(batch, name) if name in there else [None] * batch.num_rows for name in Event._fields[1:]
    )
    return records(Event, range(batch.num_rows), *columns)


def batch_about(
    schema: pa.Schema, told: Sequence[str], rows: Iterable[tuple[Any, ...]], packets: pa.RecordBatch
) -> pa.RecordBatch:
    """Rows that say something of packets; what packets say themselves is copied as it is.

    Args:
        schema: the message is the packet's subject.
        told: the columns that rows have; all others are the packet's.
        rows: each has first the packet's place in `packets`, then what is told.
    """
    places, *columns = zip(*rows, strict=True)
    found = dict(zip(told, columns, strict=True))
    at = pa.array(places, pa.int64())
    arrays = []
    for field in schema:
        if field.name in found:
            arrays.append(pa.array(found[field.name], field.type))
        else:
            column = packets.column("subject" if field.name == "message" else field.name)
            arrays.append(column.take(at).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
