"""All that the captures have of one message, brought together: its packets, and what was said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from captures.pipeline.stages import journeys
from captures.pipeline.stages.rows import Batches, values

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


class PerMessage(Protocol):
    """A stage that looks at one message after the other."""

    def close(self, message: str, events: Sequence[Event], *, is_complete: bool) -> None:
        """All that there is of a message.

        Args:
            is_complete: false of one with more events than are looked at.
        """

    def taken(self) -> Batches:
        """What has come out since it was last asked."""


class MessageStages:
    """Rows in, by KEY and ORDER; each stage gets every message when all its events are there.

    Args:
        stages: those that look at the same rows; what comes out are the tables of all of them.
    """

    def __init__(self, *stages: PerMessage) -> None:
        self._stages = stages
        self._events: list[Event] = []
        self._is_complete = True

    def take(self, batch: pa.RecordBatch) -> Batches:
        """The next rows."""
        subject = self._events[0].subject if self._events else None
        for event in events(batch):
            if event.subject != subject:
                self._close()
                subject = event.subject
            if len(self._events) < EVENT_LIMIT:
                self._events.append(event)
            else:
                self._is_complete = False
        return self._taken()

    def finish(self) -> Batches:
        """No more is to come of the last message."""
        self._close()
        return self._taken()

    def _close(self) -> None:
        if self._events:
            for stage in self._stages:
                stage.close(self._events[0].subject, self._events, is_complete=self._is_complete)
        self._events = []
        self._is_complete = True

    def _taken(self) -> Batches:
        found: Batches = {}
        for stage in self._stages:
            found |= stage.taken()
        return found


def events(batch: pa.RecordBatch) -> Iterator[Event]:
    """Rows as events; a column that is not there has nothing."""
    there = set(batch.schema.names)
    columns = (values(batch, name) if name in there else [None] * batch.num_rows for name in Event._fields)
    return map(Event._make, zip(*columns, strict=True))
