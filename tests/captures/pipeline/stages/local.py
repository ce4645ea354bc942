"""All stages without Spark: rows are grouped by key into several parts, sorted, and passed on in small batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode import Kind, Names
from mqproto.captures.decode.ways import Ways
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.facts import losses_of, talks_of
from mqproto.captures.pipeline.stages.messages import (
    clocks,
    duplicates,
    grouping,
    histories,
    journeys,
    subjects,
)
from mqproto.captures.pipeline.stages.messages.straight import Straight
from mqproto.captures.pipeline.stages.schema import CONFIRMATIONS, RELATIONS
from mqproto.captures.pipeline.stages.sequences import sequences
from mqproto.captures.pipeline.stages.sessions import directory, sessions
from mqproto.captures.pipeline.stages.sessions.sessions import SESSIONS
from mqproto.captures.pipeline.stages.tasks.findings import packet_findings
from mqproto.captures.pipeline.tables.lists import Batches, coded, key_of, key_text
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from tests.captures.pipeline.stages.table import batches, uncoded

JOINED: Final = tuple(
    name for name in RELATIONS.names if name not in ("series", "row_id", "received_packets", "saved_packets")
)
"""The columns of `relations` that other stages read; lists are left out, because Arrow cannot join them."""


@dataclass(frozen=True)
class Cluster:
    """The number of parts into which rows are grouped, and the number of rows in a batch."""

    parts: int = 2
    batch_rows: int = 50

    def parted(
        self, table: pa.Table, key: Sequence[str], order: Sequence[str] = ("series", "row_id")
    ) -> Iterator[list[pa.RecordBatch]]:
        """Yield the rows of each part, sorted, in batches."""
        keys = zip(*(table.column(name).to_pylist() for name in key), strict=True)
        places = [hash(each) % self.parts for each in keys]
        for part in range(self.parts):
            mine = table.filter(pa.array([place == part for place in places], pa.bool_()))
            # Arrow sorts texts, but not by their dictionaries.
            by = uncoded(mine.select(order))
            rows = pc.sort_indices(by, sort_keys=[(name, "ascending") for name in order])
            yield batches(mine.take(rows), self.batch_rows)


@dataclass(frozen=True)
class Analysed:
    """All tables of a run, and the state that a later run needs."""

    tables: dict[str, pa.Table]
    learners: directory.Learners

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        found: list[dict[str, Any]] = self.tables[name].to_pylist() if name in self.tables else []
        return found


def analyse(
    packets: pa.Table,
    *,
    names: Names | None = None,
    lossless: Callable[[str], bool] = lambda series: True,
    cluster: Cluster | None = None,
    before: Analysed | None = None,
) -> Analysed:
    """Return all results of the stages for some packets.

    Args:
        before: the results of the previous run.
    """
    cluster = cluster or Cluster()
    found: dict[str, list[pa.RecordBatch]] = {}

    def add(output: Batches) -> None:
        for name, batch in output.items():
            found.setdefault(name, []).append(batch)

    handshakes = packets.filter(pc.equal(packets.column("kind"), str(Kind.ESTABLISH_CONNECTION)))
    learners = deepcopy(before.learners) if before is not None else directory.Learners()
    learners.learn(batches(handshakes.select(directory.HANDSHAKE_COLUMNS), cluster.batch_rows))
    learnt = learners.directory()
    for part in cluster.parted(packets.select(sessions.COLUMNS), sessions.KEY):
        session_stage = sessions.SessionStage(names or Names())
        session_stage.know(learnt)
        for batch in part:
            add(session_stage.take(batch))
        add(session_stage.finish())
    session_rows = whole(_table(found, "sessions", SESSIONS))
    losses = losses_of(session_rows)
    known_ways: dict[str, Ways] = defaultdict(Ways)
    origins = directory.origins_of(directory.first_hops(whole(packets)), learnt)
    for series, talk in talks_of(session_rows):
        if series in origins:
            talk.hop = origins[series].resolve_hop(talk.hop)
        known_ways[series].add(talk, lossless=lossless(series))

    def ways(series: str) -> Ways:
        return known_ways[series]

    joined = joined_with(packets, _table(found, "relations", RELATIONS))
    for name in ("from_key", "to_key"):
        keys = zip(joined["series"].to_pylist(), joined[name].to_pylist(), strict=True)
        known = [
            key_text(origins[series].resolve(key_of(key))) if series in origins else key
            for series, key in keys
        ]
        joined = joined.set_column(joined.schema.get_field_index(name), name, pa.array(known, CODED))

    rows = _mapped(joined.select(sequences.COLUMNS), sequences.keyed)
    for part in cluster.parted(rows, sequences.KEY, sequences.ORDER):
        sequence_stage = sequences.SequenceStage()
        sequence_stage.know(losses)
        for batch in part:
            add(sequence_stage.take(batch))
        add(sequence_stage.finish(ways))

    rows = _mapped(joined.select(grouping.COLUMNS), subjects.keyed)
    pairs = []
    for part in cluster.parted(rows, subjects.KEY, subjects.ORDER):
        clock_stage = clocks.ClockStage()
        messages = grouping.MessageStages(journeys.JourneyStage(ways), clock_stage)
        for batch in part:
            add(messages.take(batch))
        add(messages.finish())
        pairs.append(clock_stage.pairs())
    add({"clocks": clocks.clocks(pairs)})
    ahead = clocks.ahead(found["clocks"][0])

    confirmations = _table(found, "confirmations", CONFIRMATIONS)
    tables = [rows, confirmations]
    if before is not None and "arrivals" in before.tables:
        tables.append(coded(_mapped(before.tables["arrivals"], duplicates.remembered)))
    rows = pa.concat_tables(tables, promote_options="default")
    for part in cluster.parted(rows, subjects.KEY, subjects.ORDER):
        label = directory.labels(names or Names(), learnt, origins)
        messages = grouping.MessageStages(
            histories.HistoryStage(label, ways, ahead),
            duplicates.DuplicateStage(lossless, ahead),
        )
        for batch in part:
            add(messages.take(batch))
        add(messages.finish())

    add({"findings": packet_findings(whole(packets))})
    return Analysed({name: pa.Table.from_batches(parts) for name, parts in found.items()}, learners)


def none_straight(rows: pa.RecordBatch, sizes: Integers, whole: Mask) -> tuple[Mask, Straight]:
    """Replace `straight.find`: every message is examined by itself."""
    chosen = np.zeros(len(sizes), dtype=bool)
    nobody = np.zeros(0, dtype=np.int64)
    return chosen, Straight(nobody, nobody, nobody, nobody, nobody, nobody, nobody.astype(bool))


def _table(found: dict[str, list[pa.RecordBatch]], name: str, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(found.get(name, []), schema)


def joined_with(packets: pa.Table, relations: pa.Table) -> pa.Table:
    """Return packets with their relations to their sessions."""
    place = ["series", "row_id"]
    packets, relations = uncoded(packets.drop_columns(["own_findings"])), uncoded(relations)
    return coded(packets.join(relations.select([*place, *JOINED]), place))


def _mapped(table: pa.Table, function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    found: pa.Table = pa.Table.from_batches([function(whole(table))])
    return found


def whole(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch, even if it has no rows."""
    rows: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return rows[0] if rows else pa.RecordBatch.from_pylist([], table.schema)
