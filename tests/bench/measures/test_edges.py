from __future__ import annotations

import pytest

from tests.bench.figures import BenchError
from tests.bench.load.edges import DELIVERERS, SERVERS, check
from tests.bench.measures import edges


@pytest.mark.usefixtures("forked_programs")
async def test_edges_are_measured_beside_programs_without_messaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "WANTED_POSTS", {2: 0.6})
    told: list[str] = []
    result = await edges.bench_edges(edges.Sizes(seconds=0.1, deliveries=20), runs=1, told=told.append)
    figures = {figure.name: figure for figure in result.figures}
    for name in SERVERS:
        assert figures[f"2 at once: {name}"].minimum > 0
        assert 0 < figures[f"2 at once: load generator of {name} busy"].maximum < 100
        assert f"edges, 2 POSTs at once, {name}: run 1 of 1" in told
    for name in DELIVERERS:
        assert figures[f"deliveries: {name}"].minimum > 0
        assert f"edges, deliveries, {name}: run 1 of 1" in told
    judged = [figure.name for figure in result.figures if figure.wanted is not None]
    assert judged == [
        "2 at once: gateway / uvicorn",
        "deliveries: trigger / worker",
        "deliveries: trigger --group-by / worker",
    ]
    assert result.broken == []


@pytest.mark.parametrize(
    "came", [["0/0", "1/1"], ["0/2", "1/1", "0/0"], ["0/0", "1/1", "0/2", "0/2"], ["0/0", "1/1", "1/2"]]
)
def test_what_was_lost_or_came_twice_or_in_another_order_is_no_figure(came: list[str]) -> None:
    sent = [b"0/0 ...", b"1/1 ...", b"0/2 ..."]
    check("trigger", sent, ["1/1 ...", "0/0 ...", "0/2 ..."])
    with pytest.raises(BenchError, match="of 3 messages"):
        check("trigger", sent, came)
