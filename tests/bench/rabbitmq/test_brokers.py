from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from simulator.faults.supervisor import NodeError
from tests.bench.rabbitmq import brokers
from tests.bench.rabbitmq.brokers import (
    NAMES_PROGRAM,
    PROGRAM,
    TELLS,
    brokers_in_a_row,
    config_of,
    environment_of,
    program,
)


def a_broker(folder: Path, script: str) -> str:
    """A program that passes for one."""
    folder.mkdir(exist_ok=True)
    file = folder / PROGRAM
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_the_program_itself_comes_before_what_debian_has_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "DEBIAN", str(tmp_path / "debian"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(UsageError, match="apt-get install --no-install-recommends rabbitmq-server"):
        program()
    on_path = a_broker(tmp_path / "path", "")
    assert program() == on_path
    there = a_broker(tmp_path / "debian", "")
    assert program() == there


def test_shovels_wait_for_confirmations_and_the_last_broker_has_none() -> None:
    assert config_of(5_001, None) == "[{rabbitmq_shovel, [{shovels, []}]}].\n"
    config = config_of(5_001, 5_002)
    assert config.count("{ack_mode, on_confirm}") == 2
    assert config.count("[{delivery_mode, 2}]") == 2
    for queue in ("classic", "quorum"):
        assert config.count(f'{{<<"x-queue-type">>, longstr, <<"{queue}">>}}') == 2
    assert config.index("127.0.0.1:5001") < config.index("127.0.0.1:5002")
    for opening, closing in ("{}", "[]"):
        assert config.count(opening) == config.count(closing)


def test_all_that_a_broker_has_is_in_its_folder_and_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_NODENAME", "rabbit")
    monkeypatch.setenv("ERL_EPMD_PORT", "4369")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = environment_of("sender", tmp_path, ("127.0.0.1", 5_001), 4_444)
    assert environment["RABBITMQ_NODENAME"] == "sender@localhost"
    assert environment["LANG"] == "C.UTF-8"
    assert environment["ERL_EPMD_PORT"] == "4444"
    places = {key: value for key, value in environment.items() if value.startswith("/") and key[:4] == "RABB"}
    assert len(places) == 8
    assert all(value.startswith(str(tmp_path)) for value in places.values())
    arguments = environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"].split()
    assert arguments[-2:] == TELLS.split(), "the Erlang is one argument"
    assert "{127,0,0,1}" in arguments
    assert arguments[arguments.index("-start_epmd") + 1] == "false"


async def test_without_a_daemon_for_names_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = a_broker(tmp_path / "bin", "exec sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no epmd on PATH"):
        async with brokers_in_a_row(server):
            pass
    a_broker(tmp_path, "echo 'no port' >&2; exit 1")
    (tmp_path / PROGRAM).rename(tmp_path / NAMES_PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(brokers, "START_TIMEOUT_S", 0.3)
    with pytest.raises(NodeError, match="epmd: no port"):
        async with brokers_in_a_row(server):
            pass


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that passes for the daemon for names."""
    listens = (
        "exec {} -c 'import socket, sys, time; s = socket.create_server((sys.argv[2], int(sys.argv[4]))); "
    )
    a_broker(tmp_path / "bin", listens.format(sys.executable) + 'time.sleep(60)\' "$@"')
    (tmp_path / "bin" / PROGRAM).rename(tmp_path / "bin" / NAMES_PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.usefixtures("daemon")
async def test_a_broker_that_does_not_start_is_told_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = a_broker(tmp_path / "bin", "echo 'no room on disk' >&2; exit 1")
    with pytest.raises(NodeError, match=r"rabbitmq-server sender: no room on disk$"):
        async with brokers_in_a_row(server):
            pass
    monkeypatch.setattr(brokers, "START_TIMEOUT_S", 0.3)
    server = a_broker(tmp_path / "bin", "echo 'still thinking'; exec sleep 60")
    with pytest.raises(NodeError, match=r"was not ready after 0\.3 s: still thinking"):
        async with brokers_in_a_row(server):
            pass
    assert os.listdir(tmp_path) == ["bin"]


@pytest.mark.usefixtures("daemon")
async def test_a_broker_is_ready_when_it_has_told_all(tmp_path: Path) -> None:
    tells = r"""printf '3.10.8\n25\n' >$MQPROTO_TOLD; sleep 0.2; printf 'datasync\n' >>$MQPROTO_TOLD; exec sleep 60"""
    async with brokers_in_a_row(a_broker(tmp_path, tells), ["sender"]) as running:
        assert (running["sender"].version, running["sender"].syncs) == ("3.10.8 on Erlang 25", "datasync")
        assert running["sender"].cpu_s() is not None
