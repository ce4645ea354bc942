from __future__ import annotations

import json

import pytest

from simulator.bench import bench_codec, machine
from simulator.chain import bench_chain
from simulator.cli import DONE, run_command


def test_the_codec_is_measured_against_the_layouts_it_is_generated_from() -> None:
    figures = bench_codec(rounds=3)
    # Far below the promise, for a machine that does other things too; `mqproto bench codec` has the figure.
    assert figures.parse_ratio > 10
    assert figures.build_ratio > 10
    assert figures.parse_us < figures.reference_parse_us
    assert figures.packet_bytes > 1_024


async def test_the_chain_is_measured_with_every_message_checked() -> None:
    figures = await bench_chain(messages=1_000, window=32, body_bytes=10, paced_messages=40)
    assert figures.messages_per_s > 0
    assert 0 < figures.p50_ms <= figures.p99_ms
    assert list(figures.cpu_s_per_1000) == ["destination", "intermediate", "sender", "client"]
    assert (figures.window, figures.body_bytes) == (32, 10)


@pytest.mark.parametrize("as_json", [True, False])
def test_figures_come_with_the_machine_they_were_taken_on(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "codec", "--rounds", "1", *(["--json"] if as_json else [])]) == DONE
    out = capsys.readouterr().out
    assert machine()["python"] in out
    assert machine()["sqlite"] in out
    if as_json:
        assert json.loads(out)["codec"]["rounds"] == 1
