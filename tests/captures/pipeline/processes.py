"""Processes that tests have started, as Linux reports them: which ones are still running, and where they listen."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

MARK = "MQPROTO_TEST_MARK"
LISTENS = "0A"
GONE_TIMEOUT_S = 60


def marked_environment() -> dict[str, str]:
    """Return our environment with a unique mark.

    Every process that is started with it passes the mark on.
    """
    return {**os.environ, MARK: secrets.token_hex(8)}


def still_there(environ: dict[str, str]) -> list[str]:
    """Return the command lines of all processes with the mark of this environment."""
    return list(_marked(environ).values())


def running(program: str, environ: dict[str, str]) -> list[int]:
    """Return the processes that have this environment's mark and whose command line contains this word."""
    return [process for process, line in _marked(environ).items() if program in line]


def _marked(environ: dict[str, str]) -> dict[int, str]:
    mark = f"{MARK}={environ[MARK]}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            # It has ended meanwhile, or is somebody else's.
            continue
    return {process: line for process, line in found.items() if line}


def wait_until_gone(environ: dict[str, str]) -> None:
    """Wait until no process has the mark anymore; workers need a moment to notice that their Java is gone."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while left := still_there(environ):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process accepts TCP connections, in Linux's hexadecimal form."""
    sockets, found = set(), set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            sockets.add(os.readlink(path))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].rpartition(":")[0])
    return found
