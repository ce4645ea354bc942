"""Judges the sequences of a bucket."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.tasks import findings, histories
from mqproto.captures.pipeline.stages.tasks.buckets import by_text, pieces
from mqproto.captures.pipeline.stages.tasks.context import (
    Context,
    Done,
    Out,
    Task,
    opened,
    outs,
    resumed,
    saved_stage,
)

SEQUENCES: Final = "sequences"
SEQUENCE_ROWS: Final = "sequence-rows"
"""The name of the exchange of rows for sequences."""
READ: Final = (SEQUENCE_ROWS, opened(SEQUENCE_ROWS))
"""The exchanges that `judge` reads."""


def judge(context: Context, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Judge the sequences of a bucket."""
    done = Done()

    def to_messages(rows: pa.RecordBatch) -> Integers:
        return by_text(rows.column("subject"), context.buckets.messages)

    routes = {
        "confirmations": (histories.CONFIRMED, to_messages),
        "findings": (findings.OF_SEQUENCES, context.index.of_numbers),
    }
    settled, left = outs(context, task, done, SEQUENCES, routes, outbox)

    def take(out: Out, exchange: str) -> None:
        for rows in pieces(inbox.take(exchange)):
            out.add(stage.take(rows))
            count(rows.num_rows, 0)

    stage = resumed(context, task, SEQUENCES, sequences.SequenceStage) or sequences.SequenceStage()
    stage.know(context.losses)
    take(settled, SEQUENCE_ROWS)
    stage.know({})
    done.saved = saved_stage(context, task, SEQUENCES, stage)
    stage.know(context.losses)
    take(left, opened(SEQUENCE_ROWS))
    left.add(stage.finish(context.ways))
    settled.finish()
    left.finish()
    return done
