"""The queues that messages go to: how long that takes, how many are under way, and how that went over time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.report.counts.choosing import Leaders, each_of, keyed, largest
from mqproto.captures.pipeline.report.counts.scanning import batches, integers, near
from mqproto.captures.pipeline.report.facts.facts import Queue, Queues
from mqproto.captures.pipeline.report.facts.outcomes import BAD, GOOD, is_one_of
from mqproto.captures.pipeline.report.facts.overtime import Courses, Steps
from mqproto.captures.pipeline.tables.tables import Tables

QUEUES_LIMIT: Final = 500
"""As many queues have a row that most messages went to, and as many whose slowest message took longest."""
HOSTS_EACH: Final = 32
_KEY: Final = ("queue",)
_COLUMNS: Final = (
    "queue",
    "series",
    "row_id",
    "delivery",
    "first_ns",
    "last_ns",
    "latency_ns",
    "arrived_ns",
    "hops",
    "order_acked_ns",
    "final_ns",
    "outcome",
    "resends",
)


def queues(tables: Tables, steps: Steps, ended_ns: int) -> Queues:
    """All queues that have a row.

    Args:
        ended_ns: when the captures ended.
    """
    found = Queues([Queue(*key) for key in _chosen(tables, ended_ns)])
    numbers = {(queue.name,): number for number, queue in enumerate(found.queues)}
    arrived, confirmed = (Courses(steps, len(found.queues)) for _ in range(2))
    seen: dict[int, tuple[str, int]] = {}
    for batch in batches(tables, "histories", (*_COLUMNS, "route")):
        places, each = each_of(batch, _KEY, lambda key: numbers.get(key, -1))
        found.left_out += int((places < 0).sum())
        went = _Went(batch, ended_ns)
        for number, at in each:
            _count(found.queues[number], batch, went, at)
            if number not in seen and batch.column("row_id")[int(at[0])].is_valid:
                seen[number] = (
                    batch.column("series")[int(at[0])].as_py(),
                    batch.column("row_id")[int(at[0])].as_py(),
                )
        known = places >= 0
        rows = known & went.has_arrived
        arrived.took(places[rows], went.first_ns[rows], went.latency_ns[rows])
        arrived.waited(places[known], went.first_ns[known], went.until_ns[known], went.is_over[known])
        rows = known & went.is_confirmed
        confirmed.took(places[rows], went.first_ns[rows], went.confirmed_ns[rows])
        rows = known & went.is_transactional
        confirmed.waited(places[rows], went.first_ns[rows], went.kept_until_ns[rows], went.is_let_go[rows])
    for number, queue in enumerate(found.queues):
        queue.course = (arrived if queue.arrived.count else confirmed).of(number)
    _name(tables, found.queues, seen)
    found.queues.sort(key=lambda queue: (-queue.messages, queue.first_ns, queue.name))
    return found


class _Went:
    """When the messages of some rows were seen, came, and were confirmed.

    until_ns, is_over: until when a message was under way, and whether that is over.
    kept_until_ns, is_let_go: until when its source had to keep a copy, and whether that is over.
    """

    def __init__(self, batch: pa.RecordBatch, ended_ns: int) -> None:
        self.first_ns, _ = integers(batch.column("first_ns"))
        self.last_ns, _ = integers(batch.column("last_ns"))
        self.latency_ns, has_latency = integers(batch.column("latency_ns"))
        arrived_ns, came = integers(batch.column("arrived_ns"))
        acked_ns, self.is_confirmed = integers(batch.column("order_acked_ns"))
        final_ns, is_final = integers(batch.column("final_ns"))
        hops, _ = integers(batch.column("hops"))
        self.has_arrived = has_latency & (hops > 1)
        self.confirmed_ns = acked_ns - self.first_ns
        self.is_transactional = is_one_of(batch.column("delivery"), ("transactional",))
        self.is_good, self.is_bad = (is_one_of(batch.column("outcome"), each) for each in (GOOD, BAD))
        said_ns = np.where(self.is_confirmed, acked_ns, np.where(is_final, final_ns, self.last_ns))
        self.until_ns = np.where(came, arrived_ns, said_ns)
        self.is_over = came | self.is_good | self.is_bad
        self.kept_until_ns = said_ns
        self.is_let_go = self.is_confirmed | is_final | self.is_bad
        self.age_ns = np.where(self.is_good | self.is_bad, 0, np.maximum(ended_ns - self.first_ns, 0))


def _chosen(tables: Tables, ended_ns: int) -> list[tuple[Any, ...]]:
    leaders = Leaders(QUEUES_LIMIT, 3)
    for batch in batches(tables, "histories", _COLUMNS):
        keys, codes = keyed(batch, _KEY)
        went = _Went(batch, ended_ns)
        count = len(keys)
        leaders.take(
            keys,
            np.bincount(codes, minlength=count),
            largest(codes, went.latency_ns, went.has_arrived, count),
            largest(codes, went.confirmed_ns, went.is_confirmed, count),
            largest(codes, went.age_ns, went.age_ns > 0, count),
        )
    return leaders.chosen()


def _count(queue: Queue, batch: pa.RecordBatch, went: _Went, at: Any) -> None:
    """Some rows of a queue."""
    first_ns = int(went.first_ns[at].min())
    queue.first_ns = min(queue.first_ns, first_ns) if queue.messages else first_ns
    queue.last_ns = max(queue.last_ns, int(went.last_ns[at].max()))
    queue.messages += len(at)
    queue.resends += int(integers(batch.column("resends"))[0][at].sum())
    queue.arrived.add(went.latency_ns[at][went.has_arrived[at]])
    queue.confirmed.add(went.confirmed_ns[at][went.is_confirmed[at]])
    queue.ended += int(went.is_good[at].sum())
    queue.failed += int(went.is_bad[at].sum())
    queue.oldest_ns = max(queue.oldest_ns, int(went.age_ns[at].max()))
    if len(queue.hosts) < HOSTS_EACH:
        routes = batch.column("route").take(pa.array(at[:HOSTS_EACH])).to_pylist()
        labels = [label for route in routes if route for label in (route[0], route[-1])]
        for label in labels:
            if len(queue.hosts) < HOSTS_EACH:
                queue.hosts[label] = None


def _name(tables: Tables, found: list[Queue], seen: dict[int, tuple[str, int]]) -> None:
    """What people call queues."""
    called = names_of(tables, {found[number].name: place for number, place in seen.items()})
    for queue in found:
        queue.called = called.get(queue.name, "")


def names_of(tables: Tables, first: dict[str, tuple[str, int]]) -> dict[str, str]:
    """What people call queues, as it stands with packets.

    Args:
        first: by its format name, the packet of a message to each: its series and row.
    """
    wanted = {place: queue for queue, place in first.items()}
    row_ids = np.unique(np.array([row_id for _, row_id in wanted], dtype=np.int64))
    found = {}
    for batch in near(tables, "relations", ("series", "row_id", "queue_name"), {"row_id": row_ids}):
        for row in batch.filter(pc.is_in(batch.column("row_id"), value_set=pa.array(row_ids))).to_pylist():
            queue = wanted.get((row["series"], row["row_id"]))
            if queue is not None and row["queue_name"]:
                found[queue] = row["queue_name"]
    return found
