"""Messages come whole, whatever batches their rows came in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures.pipeline.stages import grouping
from captures.pipeline.stages.grouping import Event, MessageStages
from captures.pipeline.stages.rows import Batches

Seen = tuple[str, list[int], bool]
"""Of a message its subject, the row_id of its events, and whether these are all."""
LIMIT = 4


class Watcher:
    """Remembers what it was given, with row_id as `at` finds it."""

    def __init__(self, least: int) -> None:
        self.least = least
        self.seen: list[Seen] = []
        self._places: list[tuple[int, int]] = []

    def close(self, events: Sequence[Event], *, is_complete: bool) -> None:
        self.seen.append((events[0].subject, [event.row_id for event in events], is_complete))
        self._places += ((event.at, event.row_id) for event in events)

    def taken(self, rows: pa.RecordBatch) -> Batches:
        assert [rows.column("row_id")[at].as_py() for at, _ in self._places] == [
            row_id for _, row_id in self._places
        ]
        self._places.clear()
        return {}


@given(
    st.lists(st.integers(1, 3 * LIMIT), max_size=8),
    st.integers(1, 3 * LIMIT),
    st.integers(1, 3),
)
def test_each_message_comes_once_and_whole_or_cut_off_at_the_limit(
    sizes: list[int], batch_rows: int, least: int
) -> None:
    subjects = [f"message {place}" for place, size in enumerate(sizes) for _ in range(size)]
    rows = pa.table({"subject": pa.array(subjects, pa.string()), "row_id": range(len(subjects))})
    expected = [
        (subject, [row_id for _, row_id in some][:LIMIT], len(some) <= LIMIT)
        for subject, group in groupby(zip(subjects, range(len(subjects)), strict=True), lambda row: row[0])
        if len(some := list(group)) >= least
    ]
    watcher = Watcher(least)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "EVENT_LIMIT", LIMIT)
        stages = MessageStages(watcher)
        for batch in rows.to_batches(batch_rows):
            stages.take(batch)
        stages.finish()
    assert watcher.seen == expected
