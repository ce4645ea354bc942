"""The Java process: what is reported if it does not start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.gateway import GatewayError, JavaProcess


@pytest.mark.parametrize("status", [0, 1])
def test_one_that_ends_at_once_is_said_to(tmp_path: Path, status: int) -> None:
    command = ["sh", "-c", f"echo no luck >&2; exit {status}"]
    with (
        (tmp_path / "log").open("wb") as log,
        pytest.raises(GatewayError, match=f"^its Java ended with status {status}$"),
    ):
        JavaProcess(command, os.environ, log)
    assert (tmp_path / "log").read_text() == "no luck\n"
