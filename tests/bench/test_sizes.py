from __future__ import annotations

from tests.bench import sizes
from tests.bench.figures import Options


async def test_each_kind_is_measured_in_memory_and_on_disk() -> None:
    result = await sizes.measure(Options(quick=True), lambda text: None)
    figures = {figure.name.partition(",")[0]: figure.values[0] for figure in result.figures}
    assert list(figures) == ["node", "queues", "sessions", "connections", "messages"]
    assert min(figure.values[0] for figure in result.figures[:2]) > 1_000
