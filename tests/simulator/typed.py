"""`mqproto` as a person types it: in a process of its own where that is the point, in this one where it is not."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import pytest
import trio

from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.client import live
from mqproto.simulator.topology import load
from mqproto.simulator.topology.views import as_toml
from tests.simulator.forks import Fork, Forks

COMMAND = [sys.executable, "-m", "mqproto.simulator.cli.cli"]
TIMEOUT_S = 200
MAIN: Final = "from mqproto.simulator.cli.cli import main\nmain()"
PREPARED: Final = ("mqproto.simulator.cli.cli", "pydantic.type_adapter", "pydantic.types")
"""The command, and what typer imports when it reads an argument."""
FORKS: Final = Forks(*PREPARED, "mqproto.simulator.client", "mqproto.simulator.edges.history.history")
PROGRAMS: Final = Forks(
    *PREPARED,
    "mqproto.simulator.node.node",
    "mqproto.simulator.edges.gateway.run",
    "mqproto.simulator.edges.trigger.run",
)


@dataclass(frozen=True)
class Done:
    """How a command has ended, and what it has printed."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that was said; that it is one, and no traceback, is part of every test that asks."""
        [line] = self.err.splitlines()
        assert line.startswith("mqproto: ")
        return line.removeprefix("mqproto: ")


def mqproto(*arguments: str | Path, stdin: bytes = b"") -> Done:
    """The command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_process(*arguments: str | Path, stdin: bytes = b"") -> Done:
    """The same without a new process, which takes half a second each."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        patch.setattr(live, "LOOK_S", TIMEOUT_S)  # Beside a busy machine's other work a node takes its time.
        umask = os.umask(0o022)
        try:
            status = run_command([str(argument) for argument in arguments])
        finally:
            os.umask(umask)  # A node has another.
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(status, *written)


async def forked(*arguments: str | Path) -> Done:
    """In a process of its own that has imported what it needs, where two processes are the point, and not its start."""
    with tempfile.TemporaryFile() as err:
        process = await FORKS.start(MAIN, *map(str, arguments), stderr=err.fileno())
        await process.stdin.aclose()
        out = await process.stdout_until(None)
        status = await process.wait()
        await process.stdout.aclose()
        err.seek(0)
        return Done(status, out.decode(), err.read().decode())


@contextmanager
def forked_programs() -> Iterator[None]:
    """What a supervisor starts as `python -m mqproto.simulator.cli.cli`, nodes, gateways and triggers, is forked in
    this block.

    A run that kills ten of them would import ten times what takes each up to a second of a processor.
    """
    sound = trio.lowlevel.open_process

    async def open_process(
        command: list[str], *, stderr: IO[bytes] | None = None, **how: Any
    ) -> Fork | trio.Process:
        if stderr is None or command[: len(COMMAND)] != COMMAND:
            return await sound(command, stderr=stderr, **how)
        return await PROGRAMS.start(MAIN, *command[len(COMMAND) :], stderr=stderr.fileno())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.lowlevel, "open_process", open_process)
        yield


def topology_file(folder: Path, name: str = "three-node") -> Path:
    """A topology at ports of its own, so that tests disturb nobody."""
    path = folder / f"{name}.toml"
    path.write_text(as_toml(load(name).with_free_ports()), "utf-8")
    return path


@contextmanager
def node(
    file: Path, directory: Path, name: str = "sender", limit_bytes: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`mqproto node FILE NAME` as long as the block lasts; no file of its own may grow beyond the limit.

    With one it leaves no bytecode, of which the limit would cut the end.
    """

    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    command = [*COMMAND, "node", name, "--topology", str(file), "--directory", str(directory)]
    said = directory / "stderr"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"} if limit_bytes is not None else None
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=limit, env=environment
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"ready"), said.read_text()
            yield process
        finally:
            process.terminate()


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in this block, as where a person has started the process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def eventually(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait until something holds. If it has not for a time that no machine needs, the test fails and says why.

    What is waited for has the processor between two looks.
    """
    give_up_s = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > give_up_s:
            pytest.fail(otherwise())
        time.sleep(0.05)
