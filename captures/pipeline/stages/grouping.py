"""All that the captures have of one message, brought together: its packets, and what was said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from captures.pipeline.stages import journeys
from captures.pipeline.stages.rows import values

EVENT_LIMIT: Final = 10_000
"""Of so many packets of one message each is looked at; hostile captures have messages with more."""


class Event(NamedTuple):
    """A row of `journeys.keyed`: a packet that carries a message, or one that is about it.

    What is about it has its own kind, place, time and hop; the rest is for the message. arrivals, first_ns and
    completed_ns are of ARRIVALS, of an earlier run.
    """

    subject: str
    about: bool
    series: str
    row_id: int
    number: int
    file: str
    frame: int
    file_offset: int
    interface: int
    connection: int
    time_ns: int
    kind: str
    from_key: str
    to_key: str
    hop_count: int
    acknowledged_ns: int | None
    digest: int
    delivery: str
    message_class: int
    class_name: str | None
    source_manager: str
    destination_manager: str
    queue: str | None
    sequence: str | None
    sequence_number: int | None
    label: str | None
    body_bytes: int
    sent_time_s: int
    arrivals: int | None
    first_ns: int | None
    completed_ns: int | None

    @property
    def place(self) -> tuple[str, int]:
        """The capture point that saw it."""
        return self.series, self.interface


OF_RUNS: Final = ("arrivals", "first_ns", "completed_ns")
COLUMNS: Final = tuple(
    dict.fromkeys(
        [*journeys.COLUMNS, *(name for name in Event._fields if name not in ("subject", "about", *OF_RUNS))]
    )
)
"""What `journeys.keyed` takes for this: of packets, joined with their relations."""
KEY: Final = journeys.KEY
ORDER: Final = journeys.ORDER


class Grouping:
    """Rows in, by KEY and ORDER; a call for each message when all its events are there.

    Args:
        close: takes the message, its events, and whether these are all.
    """

    def __init__(self, close: Callable[[str, list[Event], bool], None]) -> None:
        self._close = close
        self._events: list[Event] = []
        self._is_complete = True

    def take(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        for event in events(batch):
            if self._events and self._events[0].subject != event.subject:
                self.finish()
            if len(self._events) < EVENT_LIMIT:
                self._events.append(event)
            else:
                self._is_complete = False

    def finish(self) -> None:
        """No more is to come of the last message."""
        if self._events:
            self._close(self._events[0].subject, self._events, self._is_complete)
        self._events = []
        self._is_complete = True


def events(batch: pa.RecordBatch) -> Iterator[Event]:
    """Rows as events; a column that is not there has nothing."""
    there = set(batch.schema.names)
    columns = (values(batch, name) if name in there else [None] * batch.num_rows for name in Event._fields)
    return map(Event._make, zip(*columns, strict=True))
