from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulator.bench import backlog
from simulator.bench.backlog import LIMIT_BYTES, BacklogFigures, bench_backlog
from simulator.cli import DONE, FINDING, run_command

FIGURES = BacklogFigures(
    messages=100_000,
    body_bytes=1_024,
    window=64,
    accept_s=9.5,
    drain_s=12.5,
    messages_per_s=8_000,
    first_message_s=0.25,
    resent=6_144,
    resident_bytes={"intermediate": 69_000_000, "sender": 72_000_000},
    peak_bytes={"destination": 54_000_000, "intermediate": 70_000_000, "sender": 73_000_000},
    limit_bytes=LIMIT_BYTES,
)


async def test_what_waited_for_the_destination_comes_once_and_in_order_when_it_is_back() -> None:
    figures = await bench_backlog(messages=400)
    assert figures.messages == 400
    assert figures.accept_s > 0
    assert 0 < figures.first_message_s <= figures.drain_s
    assert figures.messages_per_s == pytest.approx(400 / figures.drain_s)
    assert list(figures.resident_bytes) == ["intermediate", "sender"]
    assert list(figures.peak_bytes) == ["destination", "intermediate", "sender"]
    assert figures.over_limit == []


@pytest.mark.parametrize(
    ("peak_bytes", "over"),
    [(None, []), (LIMIT_BYTES, []), (LIMIT_BYTES + 1, ["sender"])],
    ids=["unknown", "at the limit", "over it"],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_node_over_the_limit_is_named_and_is_a_finding(
    peak_bytes: int | None,
    over: list[str],
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = replace(FIGURES, peak_bytes=FIGURES.peak_bytes | {"sender": peak_bytes})
    asked: list[int] = []

    async def measured(messages: int) -> BacklogFigures:
        asked.append(messages)
        return figures

    monkeypatch.setattr(backlog, "bench_backlog", measured)
    status = run_command(["bench", "backlog", "-m", "7", *(["--json"] if as_json else [])])
    assert status == (FINDING if over else DONE)
    assert asked == [7]
    assert figures.over_limit == over
    out = capsys.readouterr().out
    if as_json:
        shown = json.loads(out)["backlog"]
        assert (shown["resent"], shown["peak_bytes"]["sender"]) == (6_144, peak_bytes)
    else:
        words = "over the limit of 150 MB: sender" if over else "nodes over the limit of 150 MB: "
        assert words in out
        assert ("unknown of sender" in out) == (peak_bytes is None)
        assert "8,000 messages a second" in out
        assert "first message 0.25 s, last 12.5 s" in out
