from __future__ import annotations

import pytest

from tests.bench import chain
from tests.bench.figures import Options
from tests.bench.load.row import CLIENT, THREE


@pytest.mark.usefixtures("nodes_here")
async def test_the_chain_is_measured_with_every_message_checked() -> None:
    told: list[str] = []
    options = Options(rounds=2, messages=50, windows=(32,), protected=True)
    result = await chain.measure_chain(options, told.append)
    figures = {figure.name: figure for figure in result.figures}
    assert all(len(figure.values) == 2 for figure in result.figures)
    for title in ("window 32", "window 32, encrypted and signed"):
        assert min(figures[f"{title}: throughput"].values) > 0
        each = [figures[f"{title}: CPU of {name}"].values for name in THREE]
        together = figures[f"{title}: CPU of all three"].values
        assert together == pytest.approx([sum(costs) for costs in zip(*each, strict=True)])
        assert min(figures[f"{title}: CPU of {CLIENT}"].values) > 0
        for name in THREE:
            # Each node has each message on disk, and hears of it afterwards what has to be on disk as well.
            assert min(figures[f"{title}: flushes of {name}"].values) > 0
    assert min(figures[chain.FLUSH].values) > 0
    assert told[-1] == "chain, window 32, encrypted and signed: round 2 of 2"


@pytest.mark.usefixtures("nodes_here")
async def test_latency_is_measured_at_each_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "WARM_UP_MESSAGES", 10)
    monkeypatch.setattr(chain, "RATES", (50, 200))
    monkeypatch.setattr(chain, "QUICK_SECONDS", 0.2)
    result = await chain.measure_latency(Options(rounds=1, quick=True), lambda text: None)
    figures = {figure.name: figure.values for figure in result.figures}
    for rate in (50, 200):
        [p50], [p99], [p999] = (figures[f"{rate}/s: p{percent}"] for percent in ("50", "99", "99.9"))
        assert 0 < p50 <= p99 <= p999
