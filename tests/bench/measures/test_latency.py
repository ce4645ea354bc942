from __future__ import annotations

import pytest

from tests.bench.measures import latency
from tests.bench.measures.beside import Peer
from tests.bench.measures.latency import bench_latency
from tests.bench.measures.stand_in import Others, others_of


@pytest.mark.usefixtures("forked_programs")
async def test_latency_is_measured_at_each_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "WARM_UP_MESSAGES", 10)
    others = Others()
    monkeypatch.setattr(latency, "started", others_of(others))
    result = await bench_latency(rates=[50, 100], seconds=0.4, runs=2, beside=[Peer.NATS])
    figures = {figure.name: figure for figure in result.figures}
    for rate in (50, 100):
        p50, p99, p999 = (figures[f"{rate} messages/s: p{percent}"] for percent in ("50", "99", "99.9"))
        assert len(p50.values) == len(p99.values) == len(p999.values) == 2
        assert all(low <= high for low, high in zip(p50.values, p99.values, strict=True))
        assert all(low <= high for low, high in zip(p99.values, p999.values, strict=True))
        assert p50.minimum > 0
    assert "20 and 40 messages" in result.title
    rounds = [(20, 50, 1_024), (40, 100, 1_024)]
    assert others.asked == [(10, 1_024, 64), *rounds, *rounds], "once to warm up, and once in each round"
    assert figures["50 messages/s, others: p50"].values == (2.0, 2.0)
    assert figures["50 messages/s, others: p50"].wanted is None
    assert figures["100 messages/s, others: CPU of the three servers"].values == pytest.approx((3_000, 3_000))
    assert "of the others" in result.notes
    assert result.beside is not None
    assert [row[0] for row in result.beside.rows[1:3]] == ["50/s: p50, ms", "50/s: p99, ms"]
    assert [row[-1] for row in result.beside.rows[:3]] == ["perhaps", "2", "3"]
