"""Gateways and triggers as processes: started, killed and started again, as a supervisor does with nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from mqproto.simulator.base.logfile import appended
from mqproto.simulator.rig.supervisor import READY, READY_TIMEOUT_S, STOP_TIMEOUT_S, NodeError, NodeProcess


class Programs:
    """Those that run. Each is a command of `mqproto` that ends with its standard input, as nodes do.

    Args:
        directory: where the stores are; what a program says on its standard error output goes to `NAME.err` there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.running: dict[str, NodeProcess] = {}

    async def start(self, name: str, arguments: Sequence[str]) -> str:
        """Start one, and wait until it is ready; the line that says so.

        Raises:
            NodeError: it ended instead, or was not ready within 30 s.
        """
        arguments = [*arguments, "--directory", str(self._directory), "--supervised"]
        return await self.run(name, ["mqproto.simulator.cli.cli", *arguments])

    async def run(self, name: str, arguments: Sequence[str]) -> str:
        """The same of another module that says when it is ready, and ends with its standard input.

        Args:
            arguments: the module, and what is typed behind it.
        """
        log = self._directory / f"{name}.err"
        command = [sys.executable, "-m", *arguments]
        with appended(log) as file:
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, start_new_session=True
            )
        program = self.running[name] = NodeProcess(name, process, log)
        with trio.move_on_after(READY_TIMEOUT_S) as patience:
            if await program.says(READY):
                return program.line(READY)
        await self.kill(name)
        if patience.cancelled_caught:
            raise NodeError(f"{name} was not ready after {READY_TIMEOUT_S} s; see {log}")
        raise program.failure()

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when it is reaped. One that does not run is no error."""
        program = self.running.pop(name, None)
        if program is not None:
            program.process.kill()
            await program.reaped()

    async def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL if it has not ended after 10 s."""
        if name in self.running:
            self.running[name].process.terminate()
            with trio.move_on_after(STOP_TIMEOUT_S):
                await self.running[name].process.wait()
        await self.kill(name)


@asynccontextmanager
async def programs_in(directory: Path) -> AsyncIterator[Programs]:
    """Those that are started in the block; killed at its end, whatever ends it."""
    programs = Programs(directory)
    try:
        yield programs
    finally:
        with trio.CancelScope(shield=True):
            for name in list(programs.running):
                await programs.kill(name)
