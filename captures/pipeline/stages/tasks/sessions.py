"""Sends packets to their connections, makes sessions, and sends related packets on to sequences and messages.

The rows of one connection are in one bucket.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.ways import Ways
from mqproto.captures.net.direction import Ending
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.stages.facts import losses_of, talks_of
from mqproto.captures.pipeline.stages.sessions import directory, sessions
from mqproto.captures.pipeline.stages.tasks import histories, relations
from mqproto.captures.pipeline.stages.tasks.buckets import Gathering, by_connection, pieces, read
from mqproto.captures.pipeline.stages.tasks.checkpoint import FOLDER
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
from mqproto.captures.pipeline.stages.tasks.relations import Related
from mqproto.captures.pipeline.stages.tasks.sequences import SEQUENCE_ROWS
from mqproto.captures.pipeline.tables.lists import Batches, coded
from mqproto.captures.pipeline.tables.parts import parquet_table

SESSIONS: Final = "sessions"
COLUMNS: Final = tuple(dict.fromkeys((*sessions.COLUMNS, *relations.COLUMNS)))
"""The columns of packets that come to their connections."""
FACTS, ENDED = "facts", "endings"
"""The names of the exchanges of packets for connections, and of the endings of streams."""
READ: Final = (FACTS, ENDED, opened(FACTS), opened(ENDED))
"""The exchanges that `judge` reads."""


def share(context: Context, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Send the packets of a part to their connections.

    The last task sends the endings of the connections' streams.
    """
    if task.number == len(context.parts):
        _share_endings(context, outbox)
        return Done()
    part = context.parts[task.number]
    done = Done()
    is_end = task.number in context.ends
    found = done.open if is_end else done.settled
    facts = Gathering(opened(FACTS) if is_end else FACTS, outbox)
    for batch in read(part, COLUMNS):
        found.first_hops |= directory.first_hops(batch)
        facts.add(batch, by_connection(part.series, batch.column("connection"), context.buckets.connections))
        shaken = pc.is_in(batch.column("kind"), pa.array(directory.HANDSHAKE))
        found.handshakes.append(batch.select(directory.HANDSHAKE_COLUMNS).filter(shaken))
        found.places |= {(part.series, number) for number in batch.column("interface").unique().to_pylist()}
        count(batch.num_rows, 0)
    facts.send()
    return done


def _share_endings(context: Context, outbox: Outbox) -> None:
    settled, left = Gathering(ENDED, outbox), Gathering(opened(ENDED), outbox)
    for part in context.streams:
        if part.is_open or part.is_new or context.before is None:
            rows = parquet_table(part.path, sessions.ENDED)
            is_over = pc.or_(pc.not_equal(rows["ending"], Ending.OPEN.value), pc.is_valid(rows["came_bytes"]))
            for batch in rows.filter(is_over).to_batches():
                bucket = by_connection(part.series, batch.column("connection"), context.buckets.connections)
                (left if part.is_open else settled).add(batch, bucket)
    settled.send()
    left.send()


def judge(context: Context, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Judge the connections of a bucket."""
    done = Done()
    settled, left = outs(context, task, done, SESSIONS, outbox)
    earlier = Related(context, outbox, histories.AGAIN)
    new = Related(context, outbox, histories.ROWS, SEQUENCE_ROWS)
    last = Related(context, outbox, opened(histories.ROWS), opened(SEQUENCE_ROWS))

    def add(out: Out, found: Batches) -> None:
        if (rows := found.get("sessions")) is not None:
            out.found.losses |= losses_of(rows)
            for series, talk in talks_of(rows):
                ways = out.found.ways.get(series) or out.found.ways.setdefault(series, Ways())
                if series in context.origins:
                    talk.hop = context.origins[series].resolve_hop(talk.hop)
                ways.add(talk, lossless=context.lossless(series))
        if (rows := found.get("relations")) is not None:
            for related in (earlier, new, last):
                related.relate(rows, waits=out is left)
        out.add(found)

    def take(out: Out, related: Related, facts: str, ended: str) -> None:
        for rows in pieces(inbox.take(facts)):
            related.add(rows.select(relations.COLUMNS))
            add(out, stage.take(rows.select(sessions.COLUMNS)))
            count(rows.num_rows, 0)
        for rows in inbox.take(ended):
            stage.end(rows)

    stage = resumed(context, task, SESSIONS, sessions.SessionStage) or sessions.SessionStage(context.names)
    stage.know(context.directory)
    if context.before is not None:
        saved = parquet_table(context.store.path(context.before.waiting[task.number]))
        for rows in coded(saved).to_batches():
            earlier.add(rows)
    take(settled, new, FACTS, ENDED)
    add(settled, stage.part(context.parted_ns))
    stage.know(directory.Directory({}))
    done.saved = saved_stage(context, task, SESSIONS, stage)
    done.waiting = context.part(FOLDER, "waiting", task.number, relations.rest(earlier, new))
    stage.know(context.directory)
    take(left, last, opened(FACTS), opened(ENDED))
    add(left, stage.finish())
    for out in (settled, left, earlier, new, last):
        out.finish()
    return done
