"""Makes sessions, sequences, messages and findings, in that order, from the table of packets.

It judges new packets and the open results of earlier runs; see `checkpoint`. It reads some columns of the table, not
the captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.ways import joined
from mqproto.captures.pipeline.engines.engine import Engine
from mqproto.captures.pipeline.stages.messages import clocks
from mqproto.captures.pipeline.stages.sessions.directory import origins_of
from mqproto.captures.pipeline.stages.tasks import findings, histories, sequences, sessions
from mqproto.captures.pipeline.stages.tasks.buckets import PacketPart, StreamPart
from mqproto.captures.pipeline.stages.tasks.checkpoint import (
    FORM,
    PARTED_NS,
    Buckets,
    Checkpoint,
    Past,
    digest,
    watermark,
)
from mqproto.captures.pipeline.stages.tasks.context import Context, Done, Stage, Task
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.parts import Part
from mqproto.captures.pipeline.tables.schemas.tables import TABLES
from mqproto.captures.pipeline.tables.tables import Run

MADE: Final = frozenset(TABLES) - {"packets", "streams", "captures"}
"""The names of the tables that judging packets makes."""
CONNECTION_ROWS: Final = 100_000
"""The number of packets for each bucket of connections and of sequences. There are at most BUCKETS such buckets."""
BUCKETS: Final = 64
MESSAGE_ROWS: Final = 100_000
"""The number of messages for each bucket. A bucket is sorted in memory, and a worker needs about 450 MB for one of this
size.
"""


@dataclass(slots=True)
class Made:
    """The result of judging packets.

    parts: the parts that were written.
    is_anew: whether they replace all earlier parts; otherwise they replace only `Checkpoint.open`.
    """

    parts: list[Part]
    is_anew: bool
    checkpoint: Checkpoint


def make_tables(
    run: Run,
    engine: Engine,
    parts: Sequence[PacketPart],
    streams: Sequence[StreamPart],
    before: Checkpoint | None,
    *,
    lossy: Iterable[str],
    names: Names,
    newest_ns: int | None,
) -> Made:
    """Judge the new packets, or all packets.

    Args:
        parts: the table of packets; the parts of a series follow one another.
        streams: the table of streams.
        before: the state after the previous run; None if all packets must be judged.
        lossy: the series with losses.
        newest_ns: the time of the last frame; if several series have grown, that of the series furthest behind. None if
            no series has grown.
    """
    incomplete = frozenset(lossy)
    wanted = _wanted(sum(part.rows for part in parts if part.is_new))
    if before is not None and not (
        before.names == digest(names) and incomplete.isdisjoint(before.whole) and before.buckets.hold(wanted)
    ):
        before = None
    if before is None:
        wanted = _wanted(sum(part.rows for part in parts))
    newest_ns = max(newest_ns or 0, before.newest_ns if before is not None else 0)
    numbered = list(enumerate(parts))
    context = Context(
        store=run.store,
        run=run.name,
        parts=tuple(parts),
        streams=tuple(streams),
        new=tuple(number for number, part in numbered if not part.is_end and (part.is_new or before is None)),
        ends=tuple(number for number, part in numbered if part.is_end),
        lossy=incomplete,
        names=names,
        buckets=wanted if before is None else before.buckets,
        before=before,
        watermark=watermark(newest_ns),
        parted_ns=newest_ns - PARTED_NS,
    )
    return _Stages(context, engine, newest_ns).make()


def _wanted(rows: int) -> Buckets:
    return Buckets(min(BUCKETS, 1 + rows // CONNECTION_ROWS), 1 + rows // MESSAGE_ROWS)


class _Stages:
    """Runs the stages, one after the other."""

    def __init__(self, context: Context, engine: Engine, newest_ns: int) -> None:
        self._context = context
        self._engine = engine
        self._newest_ns = newest_ns
        self._parts: list[Part] = []
        self._open: list[Part] = []
        self._past = context.resumed("past", Past) or Past()

    def make(self) -> Made:
        """Run all stages, in such an order that each has its inputs."""
        context, past = self._context, self._past
        by_connection, by_message = range(context.buckets.connections), range(context.buckets.messages)

        shared = self._carry_out(
            "sharing out packets",
            sessions.share,
            [*sorted((*context.new, *context.ends)), len(context.parts)],
        )
        past.learners.learn(batch for done in shared for batch in done.settled.handshakes)
        past.places.update(*(done.settled.places for done in shared))
        learners = deepcopy(past.learners)
        learners.learn(batch for done in shared for batch in done.open.handshakes)
        places = past.places.union(*(done.open.places for done in shared))
        past.first_hops.update(*(done.settled.first_hops for done in shared))
        directory = learners.directory()
        origins = origins_of(past.first_hops.union(*(done.open.first_hops for done in shared)), directory)
        self._context = replace(context, directory=directory, origins=origins)

        of_sessions = self._carry_out("judging sessions", sessions.judge, by_connection, sessions.READ)
        for done in of_sessions:
            past.lose(done.settled.losses)
        losses = dict(past.losses)
        for done in of_sessions:
            losses |= done.open.losses
        past.ways = joined(past.ways, *(done.settled.ways for done in of_sessions))
        ways = joined(past.ways, *(done.open.ways for done in of_sessions))
        for each in ways.values():
            each.suppose()
        self._context = replace(self._context, losses=losses, known_ways=ways)

        self._carry_out("judging sequences", sequences.judge, by_connection, sequences.READ)
        has_one_clock = len(places) < 2
        if not has_one_clock:
            self._compare_clocks(by_message)
        follow = partial(histories.follow, checks=has_one_clock)
        stage = "following messages" if has_one_clock else "telling histories"
        told = self._carry_out(stage, follow, by_message, histories.READ)

        # Parts that are new, or have findings; behind them comes what is about no packet.
        named = map(self._engine.buckets, findings.READ)
        about = {*context.new, *context.ends, len(context.parts)}.union(*named)
        self._carry_out("placing findings", findings.place, sorted(about), findings.READ, puts=False)
        self._parts.append(context.keep("past", past))
        return Made([*self._parts, *self._open], context.before is None, self._checkpoint(told))

    def _checkpoint(self, told: list[Done]) -> Checkpoint:
        """Return the state for the next run."""
        context = self._context
        arrivals = (
            [list(names) for names in context.before.arrivals]
            if context.before is not None
            else [[] for _ in told]
        )
        for names, done in zip(arrivals, told, strict=True):
            names += (part.name for part in done.settled.parts if part.table == "arrivals")
        return Checkpoint(
            form=FORM,
            run=context.run,
            names=digest(context.names),
            whole=sorted({part.series for part in context.parts} - context.lossy),
            newest_ns=self._newest_ns,
            buckets=context.buckets,
            arrivals=arrivals,
            open=[part.name for part in self._open],
        )

    def _compare_clocks(self, by_message: range) -> None:
        """Follow messages before their histories are written.

        This shows the offsets between the clocks of capture points.
        """
        context, past = self._context, self._past
        journeys = self._carry_out(
            "following messages",
            partial(histories.follow, tells=False),
            by_message,
            histories.READ,
            keeps=True,
        )
        settled = [pairs for done in journeys for pairs in done.settled.clock_pairs]
        past.clock_pairs = clocks.merged([batch_of(clocks.CLOCK_PAIRS, past.clock_pairs), *settled])
        opened = [pairs for done in journeys for pairs in done.open.clock_pairs]
        found = clocks.clocks([batch_of(clocks.CLOCK_PAIRS, past.clock_pairs), *opened])
        self._open.append(context.part("clocks", "journeys", 0, pa.Table.from_batches([found])))
        self._context = replace(context, ahead=clocks.ahead(found))

    def _carry_out(
        self,
        stage: str,
        function: Stage,
        numbers: Iterable[int],
        reads: Sequence[str] = (),
        *,
        puts: bool = True,
        keeps: bool = False,
    ) -> list[Done]:
        """Run one task for each of `numbers`, the numbers of parts or buckets.

        Args:
            keeps: whether a later stage reads the same rows.
        """
        tasks = {number: Task(number) for number in numbers}
        results = self._engine.carry_out(stage, partial(function, self._context), tasks, reads, puts=puts)
        for done in results:
            self._parts += done.settled.parts
            self._open += done.open.parts
        if not keeps:
            self._engine.drop(*reads)
        return results
