"""From the table of packets to what they mean: sessions, sequences, messages, findings; and in which order.

What is new is judged, and what earlier runs have left open; see `judged`. What is read for that are some columns of the
table, not the captures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.ways import joined
from mqproto.captures.pipeline.engines.engine import Engine
from mqproto.captures.pipeline.judging.messages import clocks
from mqproto.captures.pipeline.judging.sessions.directory import origins_of
from mqproto.captures.pipeline.judging.tasks import judging, messages, placing
from mqproto.captures.pipeline.judging.tasks.buckets import PacketPart, StreamPart
from mqproto.captures.pipeline.judging.tasks.judged import (
    FOLDER,
    FORM,
    PARTED_NS,
    Buckets,
    Judged,
    Past,
    digest,
    horizon,
)
from mqproto.captures.pipeline.judging.tasks.workbench import Bench, Done, Task
from mqproto.captures.pipeline.kept.saving import save, saved
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.parts import Part
from mqproto.captures.pipeline.tables.schemas.tables import TABLES
from mqproto.captures.pipeline.tables.tables import Run

MADE: Final = frozenset(TABLES) - {"packets", "streams", "captures"}
"""The tables of what packets mean."""
CONNECTION_ROWS: Final = 100_000
"""For about how many packets there is one bucket of connections, and of sequences; up to BUCKETS."""
BUCKETS: Final = 64
MESSAGE_ROWS: Final = 100_000
"""A bucket of messages is sorted in memory, so there are as many as it takes; a worker needs about 450 MB for one."""


@dataclass(slots=True)
class Verdicts:
    """What came of it.

    parts: that were written. is_anew: whether they take the place of all earlier ones; else of `Judged.replaced`.
    codes: how often each severity and code was found, over all runs.
    """

    parts: list[Part]
    is_anew: bool
    codes: Counter[tuple[str, str]]
    judged: Judged


def judge(
    run: Run,
    engine: Engine,
    parts: Sequence[PacketPart],
    streams: Sequence[StreamPart],
    before: Judged | None,
    *,
    lossy: Iterable[str],
    names: Names,
    newest_ns: int | None,
) -> Verdicts:
    """Judge what is new, or all packets.

    Args:
        parts: the table of packets; those of a series follow one another.
        streams: the table of streams.
        before: how far judging had come; None if all packets are to be judged.
        lossy: the series that the captures lack some of.
        newest_ns: when the last frame was caught; of the series that have grown, in the one that is furthest behind.
            None if none has.
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
    bench = Bench(
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
        horizon=horizon(newest_ns),
        parted_ns=newest_ns - PARTED_NS,
    )
    return _Judge(bench, engine, newest_ns).judge()


def _wanted(rows: int) -> Buckets:
    return Buckets(min(BUCKETS, 1 + rows // CONNECTION_ROWS), 1 + rows // MESSAGE_ROWS)


FINDINGS_READ: Final = (*placing.FINDERS, *placing.OPEN_FINDERS)


class _Judge:
    """The stages, one after the other."""

    def __init__(self, bench: Bench, engine: Engine, newest_ns: int) -> None:
        self._bench = bench
        self._engine = engine
        self._newest_ns = newest_ns
        self._parts: list[Part] = []
        self._open: list[Part] = []
        self._saved: list[Part] = []
        before = bench.before
        self._past = Past() if before is None else saved(bench.store.path(before.past), Past)

    def judge(self) -> Verdicts:
        """Everything, in an order in which each has what it needs."""
        bench, past = self._bench, self._past
        by_connection, by_message = range(bench.buckets.connections), range(bench.buckets.messages)

        shared = self._carry_out(
            "sharing out packets", judging.share, [*sorted((*bench.new, *bench.ends)), len(bench.parts)]
        )
        past.learners.learn(batch for done in shared for batch in done.settled.handshakes)
        past.places.update(*(done.settled.places for done in shared))
        learners = deepcopy(past.learners)
        learners.learn(batch for done in shared for batch in done.open.handshakes)
        places = past.places.union(*(done.open.places for done in shared))
        past.first_hops.update(*(done.settled.first_hops for done in shared))
        directory = learners.directory()
        origins = origins_of(past.first_hops.union(*(done.open.first_hops for done in shared)), directory)
        self._bench = replace(bench, directory=directory, origins=origins)

        of_sessions = self._carry_out(
            "judging sessions", judging.judge_sessions, by_connection, judging.SESSIONS_READ
        )
        self._engine.drop(*judging.SESSIONS_READ)
        for done in of_sessions:
            past.lose(done.settled.losses)
        losses = dict(past.losses)
        for done in of_sessions:
            losses |= done.open.losses
        past.ways = joined(past.ways, *(done.settled.ways for done in of_sessions))
        ways = joined(past.ways, *(done.open.ways for done in of_sessions))
        self._bench = replace(self._bench, losses=losses, known_ways=ways)

        touched = self._of_parts(judging.RELATED_READ)
        self._carry_out("relating packets", judging.relate, touched, judging.RELATED_READ)
        self._engine.drop(*judging.RELATED_READ)
        of_sequences = self._carry_out(
            "judging sequences", judging.judge_sequences, by_connection, judging.SEQUENCES_READ
        )
        self._engine.drop(*judging.SEQUENCES_READ)
        if len(places) > 1:
            self._compare_clocks(by_message)
            told = self._carry_out("telling histories", judging.tell_histories, by_message, messages.READ)
        else:
            follow = judging.judge_journeys_and_tell
            told = self._carry_out("following messages", follow, by_message, messages.READ)
        self._engine.drop(*messages.READ)

        # Behind the parts comes what is about no packet.
        about = [*self._of_parts(FINDINGS_READ), len(bench.parts)]
        found = self._carry_out("placing findings", placing.place_findings, about, FINDINGS_READ, puts=False)
        for done in found:
            past.codes.update(done.settled.codes)
        codes = past.codes.copy()
        for done in found:
            codes.update(done.open.codes)
        judged = self._judged(of_sessions, of_sequences, told)
        return Verdicts([*self._parts, *self._open, *self._saved], bench.before is None, codes, judged)

    def _judged(self, of_sessions: list[Done], of_sequences: list[Done], told: list[Done]) -> Judged:
        """What the next run has to know."""
        bench = self._bench
        past = save(bench.store, f"{FOLDER}/{bench.run}-past.parquet", [(0, self._past)])
        self._saved.append(past)
        arrivals = (
            [list(names) for names in bench.before.arrivals]
            if bench.before is not None
            else [[] for _ in told]
        )
        for names, done in zip(arrivals, told, strict=True):
            names += (part.name for part in done.settled.parts if part.table == "arrivals")
        sessions, sequences, kept = (
            [done.saved.name for done in each if done.saved is not None]
            for each in (of_sessions, of_sequences, told)
        )
        return Judged(
            form=FORM,
            names=digest(bench.names),
            whole=sorted({part.series for part in bench.parts} - bench.lossy),
            newest_ns=self._newest_ns,
            buckets=bench.buckets,
            past=past.name,
            sessions=sessions,
            sequences=sequences,
            messages=kept,
            arrivals=arrivals,
            open=[part.name for part in self._open],
        )

    def _of_parts(self, names: Iterable[str]) -> list[int]:
        """The parts that are new, and those of which there is something in these exchanges."""
        bench = self._bench
        about = set().union(*map(self._engine.buckets, names)) - {len(bench.parts)}
        return sorted(about.union(bench.new, bench.ends))

    def _compare_clocks(self, by_message: range) -> None:
        """Follow messages first, as they tell how far the clocks of capture points are apart."""
        bench, past = self._bench, self._past
        journeys = self._carry_out("following messages", judging.judge_journeys, by_message, messages.READ)
        settled = [pairs for done in journeys for pairs in done.settled.clock_pairs]
        past.clock_pairs = clocks.merged([batch_of(clocks.CLOCK_PAIRS, past.clock_pairs), *settled])
        opened = [pairs for done in journeys for pairs in done.open.clock_pairs]
        found = clocks.clocks([batch_of(clocks.CLOCK_PAIRS, past.clock_pairs), *opened])
        self._open.append(bench.part("clocks", "journeys", 0, pa.Table.from_batches([found])))
        self._bench = replace(bench, ahead=clocks.ahead(found))

    def _carry_out(
        self,
        stage: str,
        function: judging.Stage,
        numbers: Iterable[int],
        reads: Sequence[str] = (),
        *,
        puts: bool = True,
    ) -> list[Done]:
        """One task for each number, which is that of its bucket, too."""
        tasks = {number: Task(number) for number in numbers}
        results = self._engine.carry_out(stage, partial(function, self._bench), tasks, reads, puts=puts)
        for done in results:
            self._parts += done.settled.parts
            self._open += done.open.parts
            if done.saved is not None:
                self._saved.append(done.saved)
        return results
