"""Others' programs that are measured: how one is begun and ended, and what it says."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from simulator.base.logfile import appended
from simulator.faults.supervisor import STOP_TIMEOUT_S
from tests.bench.load.row import comes_true

Process = subprocess.Popen[bytes]


def spawned(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Process:
    """The process of a program, which ends with ours where util-linux can have that.

    Args:
        environment: all variables that it has; ours if not given.
        folder: in which it runs.
    """
    setpriv = shutil.which("setpriv")
    before = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
    with appended(log) as file:
        # Not in a thread, as trio would: what setpriv asks for comes when the thread ends that spawned it.
        return subprocess.Popen(
            [*before, *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env=environment,
            cwd=folder,
        )


def last_line(log: Path) -> str:
    """The last that a program has said."""
    lines = log.read_text("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def ended(processes: Sequence[Process]) -> None:
    """SIGTERM, and SIGKILL for those that have not ended after 10 s."""
    for process in processes:
        process.terminate()
    await comes_true(partial(_have_ended, processes), STOP_TIMEOUT_S)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


async def _have_ended(processes: Sequence[Process]) -> bool:
    return all(process.poll() is not None for process in processes)
