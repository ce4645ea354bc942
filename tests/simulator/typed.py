"""`mqproto` as a person types it: in a separate process if that matters, otherwise in this one."""

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
"""The command, and the modules that typer imports when it reads an argument."""
FORKS: Final = Forks(*PREPARED, "mqproto.simulator.client", "mqproto.simulator.edges.history.history")
PROGRAMS: Final = Forks(
    *PREPARED,
    "mqproto.simulator.node.node",
    "mqproto.simulator.edges.gateway.run",
    "mqproto.simulator.edges.trigger.run",
)


@dataclass(frozen=True)
class Done:
    """How a command ended, and its output."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The only line that was printed; asking for it also checks that it is one line, and not a traceback."""
        [line] = self.err.splitlines()
        assert line.startswith("mqproto: ")
        return line.removeprefix("mqproto: ")


def mqproto(*arguments: str | Path, stdin: bytes = b"") -> Done:
    """Run the command in a separate process."""
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
    """Run the command without a new process, which would take half a second each time."""
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
    """Run the command in a separate process that has already imported its modules."""
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
    """Fork programs that a supervisor starts as `python -m mqproto.simulator.cli.cli`: nodes, gateways, triggers.

    Otherwise a run that kills ten of them would import their modules ten times, for up to a second of processor time
    each.
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
    """Write a topology with separate ports, so that tests do not disturb one another."""
    path = folder / f"{name}.toml"
    path.write_text(as_toml(load(name).with_free_ports()), "utf-8")
    return path


@contextmanager
def node(
    file: Path, directory: Path, name: str = "sender", limit_bytes: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `mqproto node FILE NAME` during the block; none of its files may grow beyond the limit.

    With a limit, the node writes no bytecode, because the limit would truncate the bytecode files.
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
    """Let Ctrl-C raise KeyboardInterrupt in this block, as if a person had started the process."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def eventually(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait until a condition holds; if this takes longer than any machine needs, fail and say why.

    Between two checks, other tasks can use the processor.
    """
    give_up_s = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > give_up_s:
            pytest.fail(otherwise())
        time.sleep(0.05)
