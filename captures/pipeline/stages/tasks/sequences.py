"""Judges the sequences of a bucket."""

from __future__ import annotations

from typing import Final

from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.tasks import histories
from mqproto.captures.pipeline.stages.tasks.buckets import Gathering, by_text, in_order
from mqproto.captures.pipeline.stages.tasks.context import (
    Context,
    Done,
    Out,
    Task,
    opened,
    outs,
)
from mqproto.captures.pipeline.tables.lists import Batches

SEQUENCES: Final = "sequences"
SEQUENCE_ROWS: Final = "sequence-rows"
"""The name of the exchange of rows for sequences."""
READ: Final = (SEQUENCE_ROWS, opened(SEQUENCE_ROWS))
"""The exchanges that `judge` reads."""


def judge(context: Context, task: Task, inbox: Inbox, outbox: Outbox) -> Done:
    """Judge the sequences of a bucket."""
    done = Done()
    settled, left = outs(context, task, done, SEQUENCES, outbox)
    confirmed = {
        out: Gathering(name, outbox)
        for out, name in ((settled, histories.ROWS), (left, opened(histories.ROWS)))
    }

    def add(out: Out, found: Batches) -> None:
        if (rows := found.pop("confirmations", None)) is not None:
            confirmed[out].add(rows, by_text(rows.column("subject"), context.buckets.messages))
        out.add(found)

    def take(out: Out, exchange: str) -> None:
        for rows in in_order(inbox.take(exchange)):
            add(out, stage.take(rows))

    stage = context.resumed(SEQUENCES, sequences.SequenceStage, task.number) or sequences.SequenceStage()
    stage.know(context.losses)
    take(settled, SEQUENCE_ROWS)
    stage.know({})
    done.settled.parts.append(context.keep(SEQUENCES, stage, task.number))
    stage.know(context.losses)
    take(left, opened(SEQUENCE_ROWS))
    add(left, stage.finish(context.ways))
    for out, gathering in confirmed.items():
        gathering.send()
        out.finish()
    return done
