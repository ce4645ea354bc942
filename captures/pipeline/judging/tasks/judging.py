"""The stages that judge packets, as tasks: who brings which rows to which stage, and where its tables go.

What a stage does is in its parent folder. Packets come from the table of packets, part by part; rows go from
task to task in buckets, of which each has all that one connection, one sequence or one message needs. Each stage first
takes what is new, and is saved as it stands then; what it says further is open. See `judged`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.ways import Ways
from mqproto.captures.net.direction import Ending
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.judging.facts import losses_of, talks_of
from mqproto.captures.pipeline.judging.messages import (
    clocks,
    duplicates,
    grouping,
    histories,
    journeys,
    settling,
    subjects,
)
from mqproto.captures.pipeline.judging.schema import RELATIONS
from mqproto.captures.pipeline.judging.sequences import sequences
from mqproto.captures.pipeline.judging.sessions import directory, sessions
from mqproto.captures.pipeline.judging.tasks import messages, placing
from mqproto.captures.pipeline.judging.tasks.buckets import (
    BATCH_ROWS,
    by_connection,
    by_text,
    read,
    split,
    whole,
)
from mqproto.captures.pipeline.judging.tasks.judged import FOLDER
from mqproto.captures.pipeline.judging.tasks.messages import MessageRows
from mqproto.captures.pipeline.judging.tasks.workbench import OPEN, Bench, Done, Out, Route, Task, opened
from mqproto.captures.pipeline.kept.saving import save, saved
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.lists import Batches
from mqproto.captures.pipeline.tables.parts import Part, parquet_table

T = TypeVar("T")

OF_SESSIONS: Final = "sessions"
OF_SEQUENCES: Final = "sequences"
OF_JOURNEYS: Final = "journeys"
OF_HISTORIES: Final = "histories"
JOINED: Final = tuple(name for name in RELATIONS.names if name not in ("series", "row_id"))
_READ: Final = tuple(
    dict.fromkeys(name for name in (*grouping.COLUMNS, *sequences.COLUMNS) if name not in JOINED)
)
OF_ORIGINS: Final = tuple(name for name in directory.ORIGIN_COLUMNS if name not in sessions.COLUMNS)
FACTS, ENDED, RELATED = "facts", "endings", "relations"
SEQUENCE_ROWS: Final = "sequence-rows"
"""Rows on their way: what connections need, and how they ended; what packets are to them; what sequences need."""

SESSIONS_READ: Final = (FACTS, ENDED, opened(FACTS), opened(ENDED))
RELATED_READ: Final = (RELATED, opened(RELATED))
SEQUENCES_READ: Final = (SEQUENCE_ROWS, opened(SEQUENCE_ROWS))

Stage = Callable[[Bench, Task, Inbox, Outbox, Count], Done]


def share(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Packets of a part to their connections; behind all parts, how the streams of connections ended."""
    if task.number == len(bench.parts):
        _share_endings(bench, outbox)
        return Done()
    part = bench.parts[task.number]
    done = Done()
    is_end = task.number in bench.ends
    found = done.open if is_end else done.settled
    facts: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    for packets in read(part, (*sessions.COLUMNS, *OF_ORIGINS)):
        found.first_hops |= directory.first_hops(packets)
        batch = packets.select(sessions.COLUMNS)
        bucket = by_connection(part.series, batch.column("connection"), bench.buckets.connections)
        for number, rows in split(batch, bucket).items():
            facts[number].append(rows)
        shaken = pc.is_in(batch.column("kind"), pa.array(directory.HANDSHAKE))
        found.handshakes.append(batch.filter(shaken).select(directory.HANDSHAKE_COLUMNS))
        found.places |= {(part.series, number) for number in batch.column("interface").unique().to_pylist()}
        count(batch.num_rows, 0)
    outbox.put_all(opened(FACTS) if is_end else FACTS, facts)
    return done


def _share_endings(bench: Bench, outbox: Outbox) -> None:
    for is_open, exchange in ((False, ENDED), (True, opened(ENDED))):
        buckets: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        for part in bench.streams:
            if part.is_open == is_open and (is_open or part.is_new or bench.before is None):
                rows = parquet_table(part.path, sessions.ENDED)
                is_over = pc.or_(
                    pc.not_equal(rows["ending"], Ending.OPEN.value), pc.is_valid(rows["came_bytes"])
                )
                for batch in rows.filter(is_over).to_batches():
                    bucket = by_connection(part.series, batch.column("connection"), bench.buckets.connections)
                    for place, some in split(batch, bucket).items():
                        buckets[place].append(some)
        outbox.put_all(exchange, buckets)


def judge_sessions(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """The connections of a bucket."""
    done = Done()
    routes = {
        "relations": (RELATED, bench.index.of_rows),
        "findings": (placing.OF_SESSIONS, bench.index.of_numbers),
    }
    settled, left = _outs(bench, task, done, OF_SESSIONS, routes, outbox)

    def add(out: Out, found: Batches) -> None:
        if (rows := found.get("sessions")) is not None:
            out.found.losses |= losses_of(rows)
            for series, talk in talks_of(rows):
                ways = out.found.ways.get(series) or out.found.ways.setdefault(series, Ways())
                if series in bench.origins:
                    talk.hop = bench.origins[series].resolve_hop(talk.hop)
                ways.add(talk, lossless=bench.lossless(series))
        out.add(found)

    def take(out: Out, facts: str, ended: str) -> None:
        for rows in _pieces(inbox.take(facts)):
            add(out, stage.take(rows))
            count(rows.num_rows, 0)
        for rows in inbox.take(ended):
            stage.end(rows)

    stage = _resumed(bench, task, OF_SESSIONS, sessions.SessionStage) or sessions.SessionStage(bench.names)
    stage.know(bench.directory)
    take(settled, FACTS, ENDED)
    add(settled, stage.part(bench.parted_ns))
    stage.know(directory.Directory({}))
    done.saved = _saved(bench, task, OF_SESSIONS, stage)
    stage.know(bench.directory)
    take(left, opened(FACTS), opened(ENDED))
    add(left, stage.finish())
    settled.finish()
    left.finish()
    return done


def relate(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """Packets of a part, and what they are to their sessions, to their sequences and their messages.

    Of a part that an earlier run has judged come those packets of which a session says more by now.
    """
    part = bench.parts[task.number]
    done = Done()
    every = []
    for name, stage, found in (
        (RELATED, "packets", done.settled),
        (opened(RELATED), f"{OPEN}-packets", done.open),
    ):
        relations = pa.Table.from_batches(inbox.take(name), RELATIONS).sort_by("row_id")
        if relations.num_rows:
            found.parts.append(bench.part("relations", stage, task.number, relations))
        every.append(relations)
    relations, waiting = every[0], whole(every[1]["row_id"])
    if len(waiting):
        relations = pa.concat_tables(every).sort_by("row_id")
    is_new, is_end = task.number in bench.new, task.number in bench.ends
    of_sequences: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    of_messages: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    at = 0
    for batch in read(part, _READ):
        if not (is_new or is_end):
            batch = batch.filter(pc.is_in(batch.column("row_id"), whole(relations["row_id"])))
        own = relations.slice(at, batch.num_rows)
        at += batch.num_rows
        assert own["row_id"].combine_chunks().equals(batch.column("row_id")), "a relation for each packet"
        for name in JOINED:
            column = whole(own[name])
            if name in ("from_key", "to_key"):
                column = directory.resolved(column, bench.origins.get(part.series))
            batch = batch.append_column(name, column)
        if is_new or is_end:
            rows = sequences.keyed(batch.select(sequences.COLUMNS))
            bucket = by_text(rows.column("identifier"), bench.buckets.connections)
            for number, some in split(rows, bucket).items():
                of_sequences[number].append(some)
        waits = pc.is_in(batch.column("row_id"), waiting)
        rows = subjects.keyed(batch.select(grouping.COLUMNS).append_column(settling.WAITS, waits))
        for number, some in split(rows, by_text(rows.column("subject"), bench.buckets.messages)).items():
            of_messages[number].append(some)
        count(batch.num_rows, 0)
    outbox.put_all(opened(SEQUENCE_ROWS) if is_end else SEQUENCE_ROWS, of_sequences)
    if is_end:
        outbox.put_all(opened(messages.ROWS), of_messages)
    else:
        outbox.put_all(messages.ROWS if is_new else messages.AGAIN, of_messages)
    return done


def judge_sequences(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """The sequences of a bucket."""
    done = Done()

    def to_messages(rows: pa.RecordBatch) -> Integers:
        return by_text(rows.column("subject"), bench.buckets.messages)

    routes = {
        "confirmations": (messages.CONFIRMED, to_messages),
        "findings": (placing.OF_SEQUENCES, bench.index.of_numbers),
    }
    settled, left = _outs(bench, task, done, OF_SEQUENCES, routes, outbox)

    def take(out: Out, exchange: str) -> None:
        for rows in _pieces(inbox.take(exchange)):
            out.add(stage.take(rows))
            count(rows.num_rows, 0)

    stage = _resumed(bench, task, OF_SEQUENCES, sequences.SequenceStage) or sequences.SequenceStage()
    stage.know(bench.losses)
    take(settled, SEQUENCE_ROWS)
    stage.know({})
    done.saved = _saved(bench, task, OF_SEQUENCES, stage)
    stage.know(bench.losses)
    take(left, opened(SEQUENCE_ROWS))
    left.add(stage.finish(bench.ways))
    settled.finish()
    left.finish()
    return done


def judge_journeys(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """The messages of a bucket, from hop to hop, where capture points have clocks of their own."""
    done = Done()
    kept = MessageRows(bench, task, inbox)
    for out, rows in _message_outs(bench, task, done, OF_JOURNEYS, kept, outbox):
        clock = clocks.ClockStage(bench.lossless)
        _tell(grouping.MessageStages(journeys.JourneyStage(bench.ways), clock), rows, out, count)
        out.found.clock_pairs.append(clock.pairs())
    return done


def tell_histories(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """The messages of a bucket, each as a whole, by one clock."""
    done = Done()
    kept = MessageRows(bench, task, inbox)
    for out, rows in _message_outs(bench, task, done, OF_HISTORIES, kept, outbox):
        _tell(grouping.MessageStages(*_tellers(bench)), rows, out, count)
    done.saved = kept.save()
    return done


def judge_journeys_and_tell(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """The same both at once, where there is one capture point."""
    done = Done()
    kept = MessageRows(bench, task, inbox)
    for out, rows in _message_outs(bench, task, done, OF_JOURNEYS, kept, outbox):
        journey = journeys.JourneyStage(bench.ways)
        _tell(grouping.MessageStages(journey, *_tellers(bench)), rows, out, count)
    done.saved = kept.save()
    return done


def _tellers(bench: Bench) -> tuple[grouping.OfMessages, ...]:
    label = directory.labels(bench.names, bench.directory, bench.origins)
    return (
        histories.HistoryStage(label, bench.ways, bench.ahead),
        duplicates.DuplicateStage(bench.lossless, bench.ahead),
    )


def _message_outs(
    bench: Bench, task: Task, done: Done, stage: str, rows: MessageRows, outbox: Outbox
) -> tuple[tuple[Out, pa.Table | None], ...]:
    """What is settled, and what is open, and where what comes of it goes."""
    routes = {"findings": (placing.OF_JOURNEYS, bench.index.of_numbers)}
    outs = _outs(bench, task, done, stage, routes, outbox)
    return tuple(zip(outs, (rows.settled, rows.open), strict=True))


def _outs(
    bench: Bench, task: Task, done: Done, stage: str, routes: Mapping[str, tuple[str, Route]], outbox: Outbox
) -> tuple[Out, Out]:
    """For what is settled, and for what is open."""
    return (
        Out(bench, task, done, stage, routes, outbox, is_open=False),
        Out(bench, task, done, stage, routes, outbox, is_open=True),
    )


def _tell(stages: grouping.MessageStages, rows: pa.Table | None, out: Out, count: Count) -> None:
    """Messages to their stages, and what comes out."""
    if rows is not None:
        for batch in rows.to_batches(BATCH_ROWS):
            out.add(stages.take(batch))
            count(batch.num_rows, 0)
        out.add(stages.finish())
    out.finish()


def _resumed(bench: Bench, task: Task, name: str, kind: type[T]) -> T | None:
    """A stage as the run before has saved it."""
    if bench.before is None:
        return None
    names = bench.before.sessions if name == OF_SESSIONS else bench.before.sequences
    return saved(bench.store.path(names[task.number]), kind)


def _saved(bench: Bench, task: Task, name: str, stage: object) -> Part:
    return save(bench.store, bench.part_name(FOLDER, name, task.number), [(0, stage)])


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows some at a time: so few that what is made of them stays small, and no fewer, as each call takes its time."""
    kept: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            some = batch.slice(start, BATCH_ROWS)
            if count + some.num_rows > BATCH_ROWS:
                yield pa.concat_batches(kept)
                kept, count = [], 0
            kept.append(some)
            count += some.num_rows
    if kept:
        yield pa.concat_batches(kept)
