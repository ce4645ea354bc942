"""Joins packets with their relations to sessions, and sends them on to sequences and messages."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.stages.messages import grouping, subjects
from mqproto.captures.pipeline.stages.messages.watermark import WAITS
from mqproto.captures.pipeline.stages.schema import RELATIONS
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.sessions import directory
from mqproto.captures.pipeline.stages.tasks import histories
from mqproto.captures.pipeline.stages.tasks.buckets import Gathering, by_text, read, whole
from mqproto.captures.pipeline.stages.tasks.context import OPEN, Context, Done, Task, opened
from mqproto.captures.pipeline.stages.tasks.sequences import SEQUENCE_ROWS

JOINED: Final = tuple(name for name in RELATIONS.names if name not in ("series", "row_id"))
_COLUMNS: Final = tuple(
    dict.fromkeys(name for name in (*grouping.COLUMNS, *sequences.COLUMNS) if name not in JOINED)
)
RELATED: Final = "relations"
"""The exchange of packets' relations to their sessions."""
READ: Final = (RELATED, opened(RELATED))
"""The exchanges that `relate` reads."""


def relate(context: Context, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Send the packets of a part, with their relations to sessions, to their sequences and messages.

    If an earlier run has judged the part, only those packets are sent whose relations have changed since then.
    """
    part = context.parts[task.number]
    done = Done()
    every = []
    for name, stage, found in (
        (RELATED, "packets", done.settled),
        (opened(RELATED), f"{OPEN}-packets", done.open),
    ):
        relations = pa.Table.from_batches(inbox.take(name), RELATIONS).sort_by("row_id")
        if relations.num_rows:
            found.parts.append(context.part("relations", stage, task.number, relations))
        every.append(relations)
    relations, waiting = every[0], whole(every[1]["row_id"])
    if len(waiting):
        relations = pa.concat_tables(every).sort_by("row_id")
    is_new, is_end = task.number in context.new, task.number in context.ends
    of_sequences = Gathering(opened(SEQUENCE_ROWS) if is_end else SEQUENCE_ROWS, outbox)
    to_messages = histories.ROWS if is_new else histories.AGAIN
    of_messages = Gathering(opened(histories.ROWS) if is_end else to_messages, outbox)
    at = 0
    for batch in read(part, _COLUMNS):
        if not (is_new or is_end):
            batch = batch.filter(pc.is_in(batch.column("row_id"), whole(relations["row_id"])))
        own = relations.slice(at, batch.num_rows)
        at += batch.num_rows
        assert own["row_id"].combine_chunks().equals(batch.column("row_id")), "a relation for each packet"
        for name in JOINED:
            column = whole(own[name])
            if name in ("from_key", "to_key"):
                column = directory.resolved(column, context.origins.get(part.series))
            batch = batch.append_column(name, column)
        if is_new or is_end:
            rows = sequences.keyed(batch.select(sequences.COLUMNS))
            of_sequences.add(rows, by_text(rows.column("identifier"), context.buckets.connections))
        waits = pc.is_in(batch.column("row_id"), waiting)
        rows = subjects.keyed(batch.select(grouping.COLUMNS).append_column(WAITS, waits))
        of_messages.add(rows, by_text(rows.column("subject"), context.buckets.messages))
        count(batch.num_rows, 0)
    of_sequences.send()
    of_messages.send()
    return done
