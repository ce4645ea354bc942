from __future__ import annotations

import pytest

from simulator.bench.measures import backlog
from simulator.bench.measures.backlog import LIMIT_BYTES, bench_backlog, over_limit


@pytest.mark.parametrize(
    ("peak_bytes", "over"),
    [(LIMIT_BYTES, []), (LIMIT_BYTES + 1, ["sender had 200 MB resident, and may have 200"])],
)
def test_a_node_over_the_limit_is_named(peak_bytes: int, over: list[str]) -> None:
    assert over_limit({"destination": 1, "sender": peak_bytes}) == over


async def test_what_waits_is_measured_and_comes_once_and_in_order_though_nodes_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "LIMIT_BYTES", 10**6)
    result = await bench_backlog(messages=300, flow_messages=100, runs=1)
    figures = {figure.name: figure for figure in result.figures}
    assert figures["throughput, queued / empty"].minimum > 0
    assert figures["destination killed: from its start to a message"].minimum > 0
    assert figures["intermediate killed: from its start until it listens"].minimum > 0
    peak = figures["most that was resident, destination"]
    if peak.values:  # The kernel tells.
        assert peak.minimum >= figures["resident, destination, all in its queue"].minimum
        assert [line.split()[0] for line in result.broken] == ["sender", "intermediate", "destination"]
        assert peak.is_reached is False
