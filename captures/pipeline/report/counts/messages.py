"""What became of messages: counts of all, the worst of them, and those that can be looked up."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.judging.messages.history_schema import HISTORIES
from mqproto.captures.pipeline.report.counts.scanning import Top, batches, integers
from mqproto.captures.pipeline.report.facts.facts import Messages
from mqproto.captures.pipeline.report.facts.outcomes import BAD, GOOD, STUCK, is_one_of
from mqproto.captures.pipeline.tables.tables import Tables

EMBEDDED_LIMIT: Final = 5_000
"""How many messages at most can be looked up in the page; some 500 bytes each."""
HOPS_EACH: Final = 8
ARRIVALS_EACH: Final = 20
"""Nor does the page have them all if they have more hops than this each, or more arrivals: what it says of each has
no other bound that is small."""
KEPT: Final = 400
"""How many at most of each list of messages: of more, the page has those alone."""
HISTORY: Final = tuple(
    name for name in HISTORIES.names if name not in ("hop_ns", "row_id", "number", "file_offset")
)


def messages(tables: Tables, embedded_limit: int = EMBEDDED_LIMIT) -> Messages:
    """Everything about messages."""
    found = Messages(count=tables.rows("histories"))
    found.every = has_room(tables, embedded_limit)
    outcomes: Counter[str] = Counter()
    deliveries: Counter[str] = Counter()
    stuck, unknown, failed = Top(KEPT), Top(KEPT), Top(KEPT)
    slowest, latest, resent = Top(KEPT), Top(KEPT), Top(KEPT)
    for batch in batches(tables, "histories", HISTORY):
        first_ns, _ = integers(batch.column("first_ns"))
        latency_ns, arrived = integers(batch.column("latency_ns"))
        acked_ns, acked = integers(batch.column("order_acked_ns"))
        hops, _ = integers(batch.column("hops"))
        outcome = batch.column("outcome")
        outcomes.update(_counted(outcome))
        deliveries.update(_counted(batch.column("delivery")))
        resends, _ = integers(batch.column("resends"))
        found.resends += int(resends.sum())
        confirmed_ns = acked_ns - first_ns
        found.arrived.add(latency_ns[arrived & (hops > 1)])
        found.confirmed.add(confirmed_ns[acked])
        is_good, is_stuck, is_failed = (is_one_of(outcome, each) for each in (GOOD, STUCK, BAD))
        stuck.take(batch, -first_ns, is_stuck)
        unknown.take(batch, -first_ns, ~(is_good | is_stuck | is_failed))
        failed.take(batch, -first_ns, is_failed)
        slowest.take(batch, latency_ns, arrived & (latency_ns > 0) & ~is_failed)
        latest.take(batch, confirmed_ns, acked & (confirmed_ns > 0) & ~is_failed)
        resent.take(batch, resends, resends > 0)
        if found.every:
            found.embedded += batch.to_pylist()
    found.outcomes = _by_count(outcomes)
    found.deliveries = _by_count(deliveries)
    found.stuck, found.unknown, found.failed = stuck.rows(), unknown.rows(), failed.rows()
    found.slowest, found.latest, found.resent = slowest.rows(), latest.rows(), resent.rows()
    if not found.every:
        lists = (found.stuck, found.unknown, found.failed, found.slowest, found.latest, found.resent)
        found.embedded = list({row["message"]: row for each in lists for row in each}.values())
    found.embedded.sort(key=lambda row: (row["first_ns"], len(row["message"]), row["message"]))
    return found


def has_room(tables: Tables, embedded_limit: int) -> bool:
    """Whether the page has all messages."""
    limits = {"histories": 1, "hops": HOPS_EACH, "duplicates": ARRIVALS_EACH}
    return all(tables.rows(name) <= each * embedded_limit for name, each in limits.items())


def _counted(column: pa.Array) -> dict[str, int]:
    counts = column.value_counts()
    return {str(row["values"]): row["counts"] for row in counts.to_pylist()}


def _by_count(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))
