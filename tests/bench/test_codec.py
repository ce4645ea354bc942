from __future__ import annotations

import pytest

from tests.bench import byhand, codec
from tests.bench.figures import Options


async def test_all_have_their_turns_and_are_compared_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "SLICE_S", 1e-5)
    result = await codec.measure(Options(rounds=1), lambda text: None)
    figures = {figure.name: figure.values for figure in result.figures}
    assert all(len(values) == codec.SLICES and min(values) > 0 for values in figures.values())
    for task in (f"{task}, {kind} name" for task in ("parse", "build") for kind in codec.DESTINATIONS):
        times = figures[f"{task}: generated"], figures[f"{task}: by hand"]
        ratios = tuple(one / other for one, other in zip(*times, strict=True))
        assert figures[f"{task}: generated / by hand"] == pytest.approx(ratios)
    assert max(figures["parse, private name: construct / generated"]) > 1


@pytest.mark.parametrize("name", ["parse", "build"])
async def test_no_figure_is_given_of_code_that_reads_or_writes_another_message(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byhand, name, lambda value: value)
    with pytest.raises(AssertionError):
        await codec.measure(Options(), lambda text: None)
