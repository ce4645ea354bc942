from __future__ import annotations

import pytest

from mqproto.messages.drafts import BODY_LIMIT_BYTES
from mqproto.simulator.rig.load.workload import HEAVY, orders
from tests.bench import backlog
from tests.bench.figures import Options
from tests.bench.load.row import THREE


def test_a_node_over_the_limit_is_named() -> None:
    peaks_mb = {"destination": 1, "sender": 201, "intermediate": 200}
    assert backlog.over_limit(peaks_mb) == ["sender had 201 MB resident, and may have 200"]


def test_those_of_mixed_sizes_have_nothing_much_and_all_that_one_can_have() -> None:
    lengths = [len(item.body) for item in orders(backlog.MIXED_LEAST, backlog.MIXED_SEED, HEAVY).items()]
    assert min(lengths) == 0
    assert max(lengths) > 0.8 * BODY_LIMIT_BYTES


@pytest.mark.usefixtures("short_lives")
async def test_what_waits_is_measured_and_comes_once_and_in_order_though_nodes_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "LIMIT_MB", 1)
    monkeypatch.setattr(backlog, "WARM_UP_MESSAGES", 10)
    result = await backlog.measure(Options(rounds=1, messages=60), lambda text: None)
    figures = {figure.name: figure for figure in result.figures}
    assert len(figures) == len(result.figures)
    rates = [figures[f"throughput, {name}"].values[0] for name in ("queued", "empty")]
    assert figures["throughput, queued / empty"].values == (rates[0] / rates[1],)
    for sort in ("", "mixed sizes: "):
        for name in (
            "accepted",
            "taken by destination once it was up",
            "destination killed: from its start to a message",
            "intermediate killed: from its start until it listens",
        ):
            assert min(figures[f"{sort}{name}"].values) > 0
        peak, resident = (
            figures[f"{sort}{name}"]
            for name in ("most that was resident, destination", "resident, destination, all in its queue")
        )
        assert peak.is_reached is False
        assert peak.values[0] >= max(resident.values)
    assert len(figures["mixed sizes: accepted"].values) == 2, "once without a restart and once with some"
    assert [line.partition(" had ")[0] for line in result.broken] == [
        f"{sort}{node}" for sort in ("", "mixed sizes: ") for node in THREE
    ]
