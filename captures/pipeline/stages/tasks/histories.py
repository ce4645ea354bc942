"""The messages of a bucket, both new ones and those kept by an earlier run, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.stages.messages import (
    clocks,
    duplicates,
    grouping,
    histories,
    journeys,
    watermark,
)
from mqproto.captures.pipeline.stages.sessions import directory
from mqproto.captures.pipeline.stages.tasks.buckets import BATCH_ROWS, whole
from mqproto.captures.pipeline.stages.tasks.checkpoint import FOLDER
from mqproto.captures.pipeline.stages.tasks.context import Context, Done, Task, opened, outs
from mqproto.captures.pipeline.tables.lists import coded
from mqproto.captures.pipeline.tables.parts import Part, parquet_rows, parquet_table

ROWS: Final = "message-rows"
AGAIN: Final = f"{ROWS} again"
"""The exchanges of rows about messages, made from packets and from OrderAcks (CONFIRMATIONS).

AGAIN has rows made from packets of earlier runs, if this run knows more about these packets.
"""
READ: Final = (opened(ROWS), ROWS, AGAIN)
"""The exchanges that MessageRows reads."""
LAST: Final = 2**63 - 1
"""A number that replaces null, so that null sorts last."""


class MessageRows:
    """All rows of a bucket, grouped by message.

    Attributes:
        settled: the rows of messages that are over; None or an empty table if there are none.
        open: the rows of the other messages; None or an empty table if there are none.
    """

    def __init__(self, context: Context, task: Task, inbox: Inbox) -> None:
        self._context = context
        self._number = task.number
        self._inbox = inbox
        self._kept: pa.Table | None = None
        self.settled: pa.Table | None = None
        last = _table(inbox.take(opened(ROWS)))
        rows = self._every(last)
        if rows is not None:
            others = pa.array([], pa.string()) if last is None else last["subject"].unique()
            [batch] = rows.combine_chunks().to_batches()
            over = watermark.settled(batch, context.watermark, others, context.kept_rows)
            self.settled, self._kept = _chosen(rows, over), _chosen(rows, ~over)
        self.open = self._kept if last is None else _sorted(self._kept, last)

    def save(self) -> Part:
        """Keep the open rows, except those that the next run will receive again."""
        rows = pa.table({}) if self._kept is None else self._kept
        return self._context.part(FOLDER, "messages", self._number, rows)

    def _every(self, last: pa.Table | None) -> pa.Table | None:
        """Return all rows except those that the next run will receive again; `last` has these."""
        kept, new, again = self._earlier(), *map(_table, map(self._inbox.take, (ROWS, AGAIN)))
        if kept is None:
            again = None  # Their messages are over.
        elif again is not None:
            again = again.filter(pc.is_in(again["subject"], whole(kept["subject"])))
            kept = kept.filter(pc.invert(pc.is_in(_names(kept), _names(again))))
        return _sorted(kept, again, new, self._remembered(kept, _together(new, last)))

    def _earlier(self) -> pa.Table | None:
        """Return the rows that the previous run kept; None if there are none."""
        before = self._context.before
        if before is None:
            return None
        rows = coded(parquet_table(self._context.store.path(before.part_name("messages", self._number))))
        return rows if rows.num_rows else None

    def _remembered(self, kept: pa.Table | None, new: pa.Table | None) -> pa.Table | None:
        """Return the settled results of earlier runs for the messages that have new rows."""
        before = self._context.before
        if before is None or new is None or not before.arrivals[self._number]:
            return None
        subjects = new.filter(pc.invert(new["about"]))["subject"].unique()
        if kept is not None:
            subjects = subjects.filter(pc.invert(pc.is_in(subjects, whole(kept["subject"]))))
        paths = [self._context.store.path(name) for name in before.arrivals[self._number]]
        found = parquet_rows(paths, pc.field("message").isin(subjects))
        rows = _table(map(duplicates.remembered, found.to_batches()))
        return None if rows is None else coded(rows)


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    return _together(*(pa.Table.from_batches([batch]) for batch in batches))


def _together(*tables: pa.Table | None) -> pa.Table | None:
    """Return the rows of all tables; columns that a table lacks are null."""
    some = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(some, promote_options="default") if some else None


def _sorted(*tables: pa.Table | None) -> pa.Table | None:
    """Return the rows of all tables, grouped by message, in the order of the messages' first rows."""
    rows = _together(*tables)
    if rows is None:
        return None
    rows = rows.combine_chunks()
    subject, series = (whole(rows[name]).dictionary_encode() for name in ("subject", "series"))
    keys = (
        subject.indices,
        pc.rank(series.dictionary).take(series.indices),
        whole(rows["row_id"]),
        whole(rows["about"]).cast(pa.int8()),
    )
    # As numbers they are compared much faster than as texts, as `sort_by` would.
    order = np.lexsort(
        [pc.fill_null(key.cast(pa.int64()), LAST).to_numpy(zero_copy_only=False) for key in reversed(keys)]
    )
    return rows.take(pa.array(order))


def _chosen(rows: pa.Table, mask: Mask) -> pa.Table:
    """Return some of the rows; if all are chosen, as is often the case, nothing is copied."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def _names(rows: pa.Table) -> pa.Array:
    """Return the identity of each row that comes from `subjects.keyed`; null for other rows."""
    columns = (whole(rows[name]).cast(pa.string()) for name in ("series", "row_id", "about"))
    return pc.binary_join_element_wise(*columns, "/")


def follow(
    context: Context,
    task: Task,
    inbox: Inbox,
    outbox: Outbox,
    *,
    checks: bool = True,
    tells: bool = True,
) -> Done:
    """Judge the messages of a bucket.

    Args:
        checks: whether to follow messages from hop to hop.
        tells: whether to write the outcomes of messages, with all times by the same clock. If not, the evidence that
            messages give about clocks is collected instead.
    """
    done = Done()
    kept = MessageRows(context, task, inbox)
    both = outs(context, task, done, "journeys" if checks else "histories", outbox)
    for out, rows in zip(both, (kept.settled, kept.open), strict=True):
        clock = clocks.ClockStage(context.lossless)
        first = (journeys.JourneyStage(context.ways),) if checks else ()
        stages = grouping.MessageStages(*first, *(_tellers(context) if tells else (clock,)))
        for batch in () if rows is None else rows.to_batches(BATCH_ROWS):
            out.add(stages.take(batch))
        out.add(stages.finish())
        out.finish()
        if not tells:
            out.found.clock_pairs.append(clock.pairs())
    if tells:
        done.settled.parts.append(kept.save())
    return done


def _tellers(context: Context) -> tuple[grouping.OfMessages, ...]:
    label = directory.labels(context.names, context.directory, context.origins)
    return (
        histories.HistoryStage(label, context.ways, context.ahead),
        duplicates.DuplicateStage(context.lossless, context.ahead),
    )
