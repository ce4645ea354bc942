"""Transactional sequences, hop by hop, with their gaps."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.facts.facts import SequenceHop, Sequences
from mqproto.captures.pipeline.stages.schema import GAPS, SEQUENCE_HOPS

SHOWN: Final = 12
SHOWN_WHOLE: Final = 6
"""The number of sequences shown if none of them has a gap."""
GAPS_SHOWN: Final = 200
"""The maximum number of gaps shown for each sequence."""
_KEY: Final = ("series", "source_manager", "sequence")
_HOP: Final = (*_KEY, "from_key", "to_key")
_COUNTS: Final = """
select (select count(*) from sequences) as count, coalesce(sum(gaps), 0) as gaps,
    coalesce(sum(gaps_open), 0) as gaps_open
from sequence_hops
"""
_WORST: Final = f"""
select {", ".join(SEQUENCE_HOPS.names)} from (
    select * from sequence_hops order by gaps_open desc, gaps desc, messages desc, place limit $limit
) order by first_ns, series, sequence, from_key, interface, gaps_open desc, gaps desc, messages desc, place
"""
_GAPS: Final = f"""
select {", ".join(GAPS.names)} from gaps where sequence in (select unnest($sequences::varchar[])) order by place
"""
_QUEUES: Final = f"""
select {", ".join(_KEY)}, queue from sequences where sequence in (select unnest($sequences::varchar[])) order by place
"""


def sequences(connection: DuckDBPyConnection, labels: dict[str, str]) -> Sequences:
    """Return the number of sequences, and those most worth a look.

    Args:
        labels: the labels of queue managers, keyed by the queue managers' keys.
    """
    [counts] = rows(connection, _COUNTS)
    found = Sequences(**counts)
    hops = list(rows(connection, _WORST, limit=SHOWN if found.gaps else SHOWN_WHOLE))
    names = [row["sequence"] for row in hops]
    gaps: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows(connection, _GAPS, sequences=names):
        if len(of_one := gaps[_values(row, _HOP)]) < GAPS_SHOWN:
            of_one.append(row)
    queues = {_values(row, _KEY): row["queue"] or "" for row in rows(connection, _QUEUES, sequences=names)}
    for row in hops:
        row["from_label"] = labels.get(row["from_key"], row["from_key"])
        row["to_label"] = labels.get(row["to_key"], row["to_key"])
        found.shown.append(SequenceHop(row, queues.get(_values(row, _KEY), ""), gaps[_values(row, _HOP)]))
    return found


def _values(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
