"""The Java process: what is reported if it does not start, and that it does not outlive this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.gateway import GatewayError, JavaProcess, environment
from tests.captures.pipeline import processes


@pytest.mark.parametrize("status", [0, 1])
def test_one_that_ends_at_once_is_said_to(tmp_path: Path, status: int) -> None:
    command = ["sh", "-c", f"echo no luck >&2; exit {status}"]
    with (
        (tmp_path / "log").open("wb") as log,
        pytest.raises(GatewayError, match=f"^its Java ended with status {status}$"),
    ):
        JavaProcess(command, os.environ, log)
    assert (tmp_path / "log").read_text() == "no luck\n"


def test_one_that_does_not_come_up_is_given_up_and_killed_with_all_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.engines.gateway.START_TIMEOUT_S", 0)
    environ = processes.marked_environment()
    with (tmp_path / "log").open("wb") as log, pytest.raises(GatewayError, match="not ready within 0 s"):
        JavaProcess(["sh", "-c", "sleep 1000 & sleep 1000"], environ, log)
    processes.wait_until_gone(environ)


def test_variables_are_as_they_were_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQPROTO_SET", "before")
    monkeypatch.delenv("MQPROTO_UNSET", raising=False)
    with environment({"MQPROTO_SET": "within", "MQPROTO_UNSET": "within"}):
        assert os.environ["MQPROTO_SET"] == os.environ["MQPROTO_UNSET"] == "within"
    assert os.environ["MQPROTO_SET"] == "before"
    assert "MQPROTO_UNSET" not in os.environ
