from __future__ import annotations

import pytest

from simulator.demo.workload import BODY_LIMIT_BYTES, HEAVY, orders
from tests.bench.load.row import THREE
from tests.bench.measures import backlog
from tests.bench.measures.backlog import (
    LIMIT_BYTES,
    MIXED_LEAST,
    MIXED_SEED,
    bench_backlog,
    mixed_beside,
    over_limit,
)

ALIKE = [
    "throughput, queued / empty",
    "throughput, queued",
    "throughput, empty",
    "CPU of the three nodes, queued / empty",
    "throughput, just after all moved on",
    "resident, sender, destination down",
    "resident, intermediate, destination down",
    "resident, destination, all in its queue",
    "most that was resident, sender",
    "most that was resident, intermediate",
    "most that was resident, destination",
    "destination killed: from its start to a message",
    "intermediate killed: from its start until it listens",
    "accepted",
    "taken by destination once it was up",
    "received by one consumer at the end",
    "CPU of the three nodes, accepted",
    "CPU of the three nodes, taken",
    "CPU of the three nodes, received",
]
"""Their names are the same in every version, so that versions can be compared."""
COMPARED = [name for name in ALIKE if "empty" in name or "just after" in name]


@pytest.mark.parametrize(
    ("peak_bytes", "over"),
    [(LIMIT_BYTES, []), (LIMIT_BYTES + 1, ["sender had 200 MB resident, and may have 200"])],
)
def test_a_node_over_the_limit_is_named(peak_bytes: int, over: list[str]) -> None:
    assert over_limit({"destination": 1, "sender": peak_bytes}) == over


@pytest.mark.usefixtures("forked_programs")
async def test_what_waits_is_measured_and_comes_once_and_in_order_though_nodes_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "LIMIT_BYTES", 10**6)
    result = await bench_backlog(messages=200, flow_messages=100, runs=1)
    names = [figure.name for figure in result.figures]
    assert names[: len(ALIKE)] == ALIKE
    mixed = [f"mixed sizes: {name}" for name in ALIKE if name not in COMPARED]
    assert names[len(ALIKE) :] == mixed
    figures = {figure.name: figure for figure in result.figures}
    assert figures["throughput, queued / empty"].minimum > 0
    assert figures["destination killed: from its start to a message"].minimum > 0
    assert figures["intermediate killed: from its start until it listens"].minimum > 0
    peak = figures["most that was resident, destination"]
    if peak.values:  # The kernel tells.
        assert peak.minimum >= figures["resident, destination, all in its queue"].minimum
        assert [line.partition(" had ")[0] for line in result.broken] == [
            f"{sort}{node}" for sort in ("", "mixed sizes: ") for node in THREE
        ]
        assert peak.is_reached is False
    for name in mixed[-6:]:
        assert len(figures[name].values) == 2, "they wait once without a restart and once with some"
        assert figures[name].minimum > 0


@pytest.mark.parametrize(
    ("messages", "mixed"), [(1, 1), (1_000, 1_000), (5_000, 1_000), (100_000, 2_000), (1_000_000, 20_000)]
)
def test_fewer_of_mixed_sizes_wait_as_each_has_more_bytes(messages: int, mixed: int) -> None:
    assert mixed_beside(messages) == mixed


def test_those_of_mixed_sizes_have_nothing_much_and_all_that_one_can_have() -> None:
    lengths = [len(item.body) for item in orders(MIXED_LEAST, MIXED_SEED, HEAVY).items()]
    assert min(lengths) == 0
    assert max(lengths) > 0.8 * BODY_LIMIT_BYTES
