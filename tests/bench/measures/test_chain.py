from __future__ import annotations

import pstats
from pathlib import Path

import pytest

from simulator.base.program.profiling import profile_of
from tests.bench.load.row import CLIENT, THREE
from tests.bench.measures import chain
from tests.bench.measures.beside import Peer
from tests.bench.measures.chain import bench_chain
from tests.bench.measures.stand_in import Others, others_of


@pytest.mark.usefixtures("forked_programs")
async def test_the_chain_is_measured_with_every_message_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others()
    monkeypatch.setattr(chain, "started", others_of(others))
    told: list[str] = []
    result = await bench_chain(
        100,
        [32],
        body_bytes=10,
        runs=2,
        profiles=tmp_path,
        told=told.append,
        protection=("encrypted", "signed"),
        beside=[Peer.NATS],
    )
    figures = {figure.name: figure for figure in result.figures}
    assert figures["a flush of 64 KiB, before each run"].minimum > 0
    assert all(len(figure.values) == 2 for figure in result.figures)
    assert figures["window 32: throughput"].minimum > 0
    for name in (*THREE, CLIENT):
        assert f"window 32: CPU of {name}" in figures
    protected = "window 32, encrypted and signed: "
    assert figures[f"{protected}throughput"].minimum > 0
    spent = {name: figures[f"{protected}CPU of {name}"].median for name in THREE}
    assert min(spent["sender"], spent["destination"]) > spent["intermediate"], "it opens nothing"
    for name in THREE:
        # Each node has each message on disk, and hears of it afterwards what has to be on disk as well.
        assert figures[f"window 32: flushes of {name}"].minimum > 0
        profile = pstats.Stats(str(profile_of(tmp_path / "window-32", name)))
        assert "pump" in {function for _, _, function in profile.stats}  # type: ignore[attr-defined]
    assert profile_of(tmp_path, CLIENT).stat().st_size > 0
    assert any("slower" in note for note in result.notes)
    assert told == [
        f"chain, window 32{whose}: run {run} of 2" for run in (1, 2) for whose in ("", ", others")
    ]
    assert others.asked == [(100, 10, 32)] * 3, "once to warm up, and once in each round"
    ratio = figures["window 32: nodes / others"]
    throughputs = [
        figures[name].values for name in ("window 32: throughput", "window 32, others: throughput")
    ]
    assert ratio.values == tuple(one / other for one, other in zip(*throughputs, strict=True))
    assert "of the others" in result.notes
    assert result.beside is not None
    assert result.beside.headings == ("", "three nodes", "others")
    assert result.beside.rows[0][1:] == ("yes, many at once", "perhaps")
    assert result.beside.rows[-1] == (
        "window 32: CPU of all three, µs/message",
        *result.beside.rows[-1][1:-1],
        "3,000",
    )
