"""Gateways and triggers as processes: each reports when it is ready, or why it is not, and none outlives its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mqproto.simulator.rig.supervisor import NodeError, programs_in
from tests.simulator.typed import topology_file


@pytest.mark.long
async def test_a_program_runs_until_it_is_killed_or_stopped_and_can_be_started_again(tmp_path: Path) -> None:
    file = topology_file(tmp_path)
    arguments = ("gateway", "sender", "--topology", str(file), "-d", str(tmp_path), "--listen", "127.0.0.1:0")
    async with programs_in(tmp_path) as programs:
        for end in (programs.kill, programs.stop, programs.kill):
            await programs.start("gateway", arguments)
            await end("gateway")
        await programs.stop("gateway")  # It does not run, and that is no error.
        await programs.start("gateway", arguments)


async def test_why_a_program_does_not_start_is_said_in_its_own_words(tmp_path: Path) -> None:
    file = topology_file(tmp_path)
    async with programs_in(tmp_path) as programs:
        with pytest.raises(
            NodeError, match=r"^trigger: say who is to be called: --url URL or --call MODULE:FUNCTION"
        ):
            await programs.start("trigger", ("trigger", "orders", "--topology", str(file)))


@pytest.mark.parametrize(
    "arguments",
    [("gateway", "sender", "--listen", "127.0.0.1:0"), ("trigger", "orders", "--call", "math:floor")],
)
async def test_a_program_ends_with_its_standard_input(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    place = ("--topology", str(topology_file(tmp_path)), "--directory", str(tmp_path))
    command = [sys.executable, "-m", "mqproto.simulator.cli.cli", *arguments, *place, "--supervised"]
    with (tmp_path / "said").open("wb") as said:
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
    assert process.stdin is not None
    await process.stdin.aclose()
    # It is ended by the signal, or as the signal asks, if it listens already.
    assert await process.wait() in (0, -signal.SIGTERM), (tmp_path / "said").read_text()
