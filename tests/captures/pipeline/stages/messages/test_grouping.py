"""Messages are passed on whole, however their rows are spread over batches."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mqproto.captures.pipeline.stages.messages import grouping, straight
from mqproto.captures.pipeline.stages.messages.grouping import Messages, MessageStages
from mqproto.captures.pipeline.tables.lists import Batches
from tests.captures.pipeline.stages.local import none_straight

Seen = tuple[str, list[int], bool]
"""For a message: its subject, the row_ids of its events, and whether these are all of its events."""
LIMIT = 4


class Watcher:
    """Remembers the messages that it was given; it checks that `at` finds the rows of their events."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def take(self, messages: Messages) -> Batches:
        for events, is_complete in messages.odd:
            row_ids = [event.row_id for event in events]
            assert [messages.rows.column("row_id")[event.at].as_py() for event in events] == row_ids
            self.seen.append((events[0].subject, row_ids, is_complete))
        return {}


@given(
    st.lists(st.integers(1, 3 * LIMIT), max_size=8),
    st.integers(1, 3 * LIMIT),
)
def test_each_message_comes_once_and_whole_or_cut_off_at_the_limit(sizes: list[int], batch_rows: int) -> None:
    subjects = [f"message {place}" for place, size in enumerate(sizes) for _ in range(size)]
    rows = pa.table({"subject": pa.array(subjects, pa.string()), "row_id": range(len(subjects))})
    expected = [
        (subject, (row_ids := [row_id for _, row_id in group])[:LIMIT], len(row_ids) <= LIMIT)
        for subject, group in groupby(zip(subjects, range(len(subjects)), strict=True), lambda row: row[0])
    ]
    watcher = Watcher()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "EVENT_LIMIT", LIMIT)
        patch.setattr(straight, "find", none_straight)
        stages = MessageStages(watcher)
        for batch in rows.to_batches(batch_rows):
            stages.take(batch)
        stages.finish()
    assert watcher.seen == expected
