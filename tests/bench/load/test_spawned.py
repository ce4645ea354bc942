from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.load import spawned as module
from tests.bench.load.spawned import ended, last_line, spawned

OBEDIENT = "print('up', flush=True); import time; time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT


def test_the_last_line_of_a_log_passes_over_empty_ones(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert last_line(log) == ""
    log.write_text("first\nnats-server: server.conf:3:1: unknown field\n\n")
    assert last_line(log) == "nats-server: server.conf:3:1: unknown field"


async def test_a_program_has_its_folder_and_variables_and_ends_whether_it_wants_to_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.3)
    log = tmp_path / "log"
    says = "import os; print(os.getcwd(), sorted(os.environ)[:1], flush=True); "
    processes = [
        spawned([sys.executable, "-c", f"{says}{script}"], log, {"A": "1"}, tmp_path)
        for script in (OBEDIENT, STUBBORN)
    ]
    while log.read_text().count("up") < 2:
        assert all(process.poll() is None for process in processes), log.read_text()
    assert log.read_text().count(f"{tmp_path} ['A']") == 2
    await ended(processes)
    assert [process.returncode for process in processes] == [-15, -9]
