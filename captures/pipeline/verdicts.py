"""From the table of packets to what they mean: sessions, sequences, messages, findings; and in which order.

All packets of all runs are judged anew in each run, since a message may have crossed one hop in an earlier one. What is
read for that are some columns of the table, not the captures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from captures.decode.names import Names
from captures.pipeline import judging
from captures.pipeline.buckets import PacketPart
from captures.pipeline.judging import Bench, Done, Task
from captures.pipeline.runner import Runner
from captures.pipeline.stages import clocks, directory, duplicates
from captures.pipeline.stages.facts import Losses
from captures.pipeline.stages.history_schema import HISTORIES, HOPS
from captures.pipeline.stages.schema import ENDINGS, RELATIONS
from captures.pipeline.stages.sequence_schema import GAPS, ORDER_ACKS, SEQUENCE_HOPS, SEQUENCES
from captures.pipeline.stages.session_schema import SESSIONS
from captures.pipeline.tables import Part, Run

SCHEMAS: Final = {
    "relations": RELATIONS,
    "sessions": SESSIONS,
    "sequences": SEQUENCES,
    "sequence_hops": SEQUENCE_HOPS,
    "gaps": GAPS,
    "order_acks": ORDER_ACKS,
    "endings": ENDINGS,
    "histories": HISTORIES,
    "hops": HOPS,
    "duplicates": duplicates.DUPLICATES,
    "arrivals": duplicates.ARRIVALS,
    "clocks": clocks.CLOCKS,
    "findings": judging.PLACED_FINDINGS,
}
"""All tables that are made anew by each run. Every one is there, though it may have no rows."""
CONNECTION_ROWS: Final = 200_000
"""For about so many packets there is one bucket of connections, and of sequences; up to BUCKETS."""
BUCKETS: Final = 64
MESSAGE_ROWS: Final = 100_000
"""A bucket of messages is sorted in memory, so there are as many as it takes; a worker needs some 450 MB for one."""


@dataclass(slots=True)
class Verdicts:
    """What came of it.

    codes: how often each severity and code was found.
    """

    parts: list[Part]
    codes: Counter[tuple[str, str]]


def judge(
    run: Run, runner: Runner, parts: Sequence[PacketPart], *, lossy: Iterable[str], names: Names
) -> Verdicts:
    """Judge all packets.

    Args:
        parts: the table of packets; those of a series follow one another.
        lossy: the series that the captures lack some of.
    """
    rows = sum(part.rows for part in parts)
    buckets = min(BUCKETS, 1 + rows // CONNECTION_ROWS)
    bench = Bench(
        run.folder,
        run.name,
        tuple(parts),
        frozenset(lossy),
        names,
        connection_buckets=buckets,
        sequence_buckets=buckets,
        message_buckets=1 + rows // MESSAGE_ROWS,
    )
    return _Judge(bench, runner).judge() if parts else Verdicts([], Counter())


class _Judge:
    """The stages, one after the other."""

    def __init__(self, bench: Bench, runner: Runner) -> None:
        self._bench = bench
        self._runner = runner
        self._parts: list[Part] = []
        self._files: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))

    def judge(self) -> Verdicts:
        """Everything, in an order in which each has what it needs."""
        bench = self._bench
        parts, connections = range(len(bench.parts)), range(bench.connection_buckets)
        sequences, messages = range(bench.sequence_buckets), range(bench.message_buckets)

        shared = self._carry_out("sharing out packets", judging.share, parts)
        handshakes = [done.handshakes for done in shared if done.handshakes is not None]
        self._bench = replace(self._bench, directory=directory.learn(handshakes))

        losses: Losses = {}
        for done in self._carry_out("judging sessions", judging.judge_sessions, connections):
            losses |= done.losses
        self._drop("facts")
        self._bench = replace(self._bench, losses=losses)

        self._carry_out("relating packets", judging.relate, parts, ("relations",))
        self._drop("relations")
        self._carry_out("judging sequences", judging.judge_sequences, sequences)
        self._drop("sequence-rows")
        if len(set().union(*(done.places for done in shared))) > 1:
            self._compare_clocks(messages)
            self._carry_out("telling histories", judging.tell_histories, messages, ("confirmations",))
        else:
            follow = judging.judge_journeys_and_tell
            self._carry_out("following messages", follow, messages, ("confirmations",))
        self._drop("message-rows", "confirmations")
        codes: Counter[tuple[str, str]] = Counter()
        # Behind the parts comes what is about no packet.
        about = range(len(bench.parts) + 1)
        for done in self._carry_out("placing findings", judging.place_findings, about, judging.FINDERS):
            codes.update(done.codes)
        return Verdicts(self._parts, codes)

    def _drop(self, *names: str) -> None:
        """Delete exchanges that no later stage takes from."""
        for name in names:
            self._bench.exchange(name).drop()

    def _compare_clocks(self, messages: range) -> None:
        """Follow messages first, as they tell how far the clocks of capture points are apart."""
        bench = self._bench
        journeys = self._carry_out("following messages", judging.judge_journeys, messages, ("confirmations",))
        found = clocks.clocks(done.clock_pairs for done in journeys if done.clock_pairs is not None)
        self._parts.append(bench.part("clocks", "journeys", 0, pa.Table.from_batches([found])))
        self._bench = replace(bench, offsets_ns=clocks.offsets_ns(found))

    def _carry_out(
        self, stage: str, function: judging.Stage, numbers: range, reads: Sequence[str] = ()
    ) -> list[Done]:
        """One task for each number; it is told which files of the exchanges that it reads are for it."""
        tasks = [
            Task(number, {name: tuple(self._files[name][number]) for name in reads}) for number in numbers
        ]
        results = self._runner(stage, partial(function, self._bench), tasks)
        for done in results:
            self._parts += done.parts
            for name, files in done.files.items():
                for bucket, some in files.items():
                    self._files[name][bucket] += some
        return results
