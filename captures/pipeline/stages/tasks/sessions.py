"""Sends packets to their connections, makes sessions, and sends related packets on to sequences and messages.

The rows of one connection are in one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.ways import Ways
from mqproto.captures.net.direction import Ending
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.stages.facts import losses_of, talks_of
from mqproto.captures.pipeline.stages.messages import grouping, subjects
from mqproto.captures.pipeline.stages.messages.watermark import WAITS
from mqproto.captures.pipeline.stages.schema import RELATIONS
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.sessions import directory, sessions
from mqproto.captures.pipeline.stages.tasks import histories
from mqproto.captures.pipeline.stages.tasks.buckets import (
    Gathering,
    by_connection,
    by_text,
    pieces,
    read,
    split,
)
from mqproto.captures.pipeline.stages.tasks.checkpoint import FOLDER
from mqproto.captures.pipeline.stages.tasks.context import (
    Context,
    Done,
    Out,
    Task,
    opened,
    outs,
)
from mqproto.captures.pipeline.stages.tasks.sequences import SEQUENCE_ROWS
from mqproto.captures.pipeline.tables.lists import Batches, coded, integers
from mqproto.captures.pipeline.tables.parts import parquet_table
from mqproto.captures.pipeline.tables.schemas.packets import PACKETS

SESSIONS: Final = "sessions"
JOINED: Final = tuple(name for name in RELATIONS.names if name not in ("series", "row_id"))
RELATED: Final = tuple(
    dict.fromkeys(name for name in (*grouping.COLUMNS, *sequences.COLUMNS) if name not in JOINED)
)
"""The columns of packets that sequences and messages need."""
SCHEMA: Final = pa.schema([PACKETS.schema.field(name) for name in RELATED])
COLUMNS: Final = tuple(dict.fromkeys((*sessions.COLUMNS, *RELATED)))
"""The columns of packets that are sent to the buckets of connections."""
FACTS, ENDED = "facts", "endings"
"""The names of two exchanges: one for packets of connections, the other for the endings of streams."""
READ: Final = (FACTS, ENDED, opened(FACTS), opened(ENDED))
"""The exchanges that `judge` reads."""


def share(context: Context, task: Task, inbox: Inbox, outbox: Outbox) -> Done:
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


def judge(context: Context, task: Task, inbox: Inbox, outbox: Outbox) -> Done:
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
            related.add(rows.select(RELATED))
            add(out, stage.take(rows.select(sessions.COLUMNS)))
        for rows in inbox.take(ended):
            stage.end(rows)

    stage = context.resumed(SESSIONS, sessions.SessionStage, task.number) or sessions.SessionStage(
        context.names
    )
    stage.know(context.directory)
    if context.before is not None:
        saved = parquet_table(context.store.path(context.before.part_name("waiting", task.number)))
        for rows in coded(saved).to_batches():
            earlier.add(rows)
    take(settled, new, FACTS, ENDED)
    add(settled, stage.part(context.parted_ns))
    stage.know(directory.Directory({}))
    done.settled.parts.append(context.keep(SESSIONS, stage, task.number))
    done.settled.parts.append(context.part(FOLDER, "waiting", task.number, rest(earlier, new)))
    stage.know(context.directory)
    take(left, last, opened(FACTS), opened(ENDED))
    add(left, stage.finish())
    for out in (settled, left, earlier, new, last):
        out.finish()
    return done


class Related:
    """Takes the packets of one bucket of connections, and forwards each packet when its relation is known.

    Attributes:
        waiting: packets whose relations are not known yet, keyed by series.

    Args:
        to_messages, to_sequences: the exchanges to which it sends them.
    """

    def __init__(
        self, context: Context, outbox: Outbox, to_messages: str, to_sequences: str | None = None
    ) -> None:
        self._context = context
        self._messages = Gathering(to_messages, outbox)
        self._sequences = None if to_sequences is None else Gathering(to_sequences, outbox, by_row=True)
        self.waiting: dict[str, pa.RecordBatch] = {}

    def add(self, packets: pa.RecordBatch) -> None:
        """Take packets with RELATED; those of a series are in the order of row_id."""
        for series, rows in _by_series(packets):
            before = self.waiting.get(series)
            self.waiting[series] = rows if before is None else pa.concat_batches([before, rows])

    def relate(self, relations: pa.RecordBatch, *, waits: bool) -> None:
        """Send the packets to which these relations belong.

        Args:
            relations: they may include relations of packets that were never added.
            waits: whether the relations may still change.
        """
        for series, some in _by_series(relations) if self.waiting else ():
            packets = self.waiting.get(series)
            if packets is None or not packets.num_rows:
                continue
            here, wanted = integers(packets, "row_id"), integers(some, "row_id")
            at = np.minimum(np.searchsorted(here, wanted), len(here) - 1)
            is_known = here[at] == wanted
            others = np.ones(len(here), dtype=bool)
            others[at[is_known]] = False
            self.waiting[series] = packets.filter(pa.array(others))
            related = packets.take(pa.array(at[is_known]))
            self._send(series, related, some.filter(pa.array(is_known)), waits=waits)

    def _send(self, series: str, batch: pa.RecordBatch, relations: pa.RecordBatch, *, waits: bool) -> None:
        context = self._context
        columns = {name: relations.column(name) for name in JOINED}
        hops = columns["from_key"], columns["to_key"]
        columns["from_key"], columns["to_key"] = directory.resolved(hops, context.origins.get(series))
        for name, column in columns.items():
            batch = batch.append_column(name, column)
        if self._sequences is not None:
            rows = sequences.keyed(batch.select(sequences.COLUMNS))
            bucket = by_text(rows.column("identifier"), context.buckets.connections)
            self._sequences.add(rows, bucket)
        flags = pa.repeat(pa.scalar(waits), batch.num_rows)
        rows = subjects.keyed(batch.select(grouping.COLUMNS).append_column(WAITS, flags))
        self._messages.add(rows, by_text(rows.column("subject"), context.buckets.messages))

    def finish(self) -> None:
        """Send what was gathered."""
        assert not any(rows.num_rows for rows in self.waiting.values()), "a relation for each packet"
        self._messages.send()
        if self._sequences is not None:
            self._sequences.send()


def rest(*every: Related) -> pa.Table:
    """Return all packets that still wait."""
    return pa.Table.from_batches([rows for each in every for rows in each.waiting.values()], SCHEMA)


def _by_series(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    coded = batch.column("series").dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) == 1:  # As is nearly always so.
        yield names[0], batch
    else:
        for code, rows in split(batch, coded.indices.to_numpy()).items():
            yield names[code], rows
