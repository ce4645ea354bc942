"""A forked process is like any other: it has its own pipes, arguments, environment and folder, and ends on its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.simulator.forks import Forks

FORKS = Forks("colorsys")
PATIENCE_S = 100.0
"""A time limit in seconds, longer than any machine needs."""
SAYS = """
import os, sys
print(sys.argv[1:], os.environ.get("OF_THIS_TEST"), os.getcwd(), "colorsys" in sys.modules, os.getpid(), flush=True)
for line in sys.stdin:
    exec(line)
"""
GOES_ON = """
print(flush=True)
while True:
    pass
"""
"""A program that never waits in a read: if a signal arrives just before a read, Python notices it only after that
read.
"""


async def test_each_has_its_own_pipes_arguments_environment_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THIS_TEST", "one")
    monkeypatch.chdir(tmp_path)
    one = await FORKS.start(SAYS, "a", "b c")
    monkeypatch.setenv("OF_THIS_TEST", "two")
    monkeypatch.chdir("/")
    two = await FORKS.start(SAYS)
    assert await one.stdout_until(1) == f"['a', 'b c'] one {tmp_path} True {one.pid}\n".encode()
    assert await two.stdout_until(1) == f"[] two / True {two.pid}\n".encode()
    assert len({one.pid, two.pid, os.getpid()}) == 3
    assert one.returncode is None
    for fork in (one, two):
        await fork.stdin.aclose()
        assert await fork.wait() == fork.returncode == 0
        assert await fork.stdout_until(None) == b""


@pytest.mark.parametrize(
    ("does", "status"),
    [("sys.exit(3)", 3), ("1 / 0", 1), ("os._exit(255)", 255), ("os.kill(os.getpid(), 9)", -9)],
)
async def test_each_has_its_own_end(tmp_path: Path, does: str, status: int) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork = await FORKS.start(SAYS, stderr=log.fileno())
    await fork.stdin.send_all(f"{does}\n".encode())
    assert await fork.wait() == status
    assert ("ZeroDivisionError" in (tmp_path / "log").read_text()) == (does == "1 / 0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_signals_end_each_as_they_end_any_other(number: signal.Signals, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        fork, other = [await FORKS.start(GOES_ON, stderr=log.fileno()) for _ in range(2)]
    await fork.stdout_until(1)
    fork.send_signal(number)
    assert await fork.wait() == -number
    fork.send_signal(number)
    with pytest.raises(ProcessLookupError):
        os.kill(fork.pid, 0)
    assert other.returncode is None
    other.kill()
    assert await other.wait() == -signal.SIGKILL


async def test_who_waits_is_told_also_if_somebody_else_looked_first() -> None:
    """A supervisor looks at all of its nodes from time to time, even at those that a task is waiting for."""
    fork = await FORKS.start(SAYS)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fork.wait)
            await trio.testing.wait_all_tasks_blocked()
            fork.kill()
            while fork.poll() is None:
                pass  # No task runs meanwhile, so that nothing else can see it.


async def test_who_is_cancelled_while_one_starts_leaves_none_behind() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        fork = await FORKS.start(SAYS)
    fork.kill()
    assert await fork.wait() == -signal.SIGKILL
