from __future__ import annotations

import pytest

from tests.bench import byhand
from tests.bench.measures.codec import DESTINATIONS, MOST_BY_HAND, bench_codec


def test_everybody_is_measured_in_every_round() -> None:
    figures = {figure.name: figure for figure in bench_codec(rounds=2).figures}
    assert all(len(figure.values) == 2 and figure.minimum > 0 for figure in figures.values())
    for kind in DESTINATIONS:
        for task in ("parse", "build"):
            ratio = figures[f"{task}, {kind} name: generated / by hand"]
            times = [figures[f"{task}, {kind} name: {name}"].values for name in ("generated", "by hand")]
            assert ratio.values == tuple(one / other for one, other in zip(*times, strict=True))
            assert ratio.is_reached == (ratio.median <= MOST_BY_HAND)
    # How near they are `bench codec` says, on a machine that does nothing else.
    assert figures["parse, private name: construct / generated"].median > 1


@pytest.mark.parametrize("name", ["parse", "build"])
def test_no_figure_is_given_of_who_reads_or_writes_another_message(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byhand, name, lambda value: value)
    with pytest.raises(AssertionError):
        bench_codec(rounds=1)
