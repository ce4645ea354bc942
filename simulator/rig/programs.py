"""Gateways and triggers as processes: started, killed and started again, as a supervisor does with nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from mqproto.simulator.rig import supervisor
from mqproto.simulator.rig.supervisor import READY, Processes


class Programs(Processes):
    """Those that run. What a program says on its standard error output goes to `NAME.err`."""

    async def start(self, name: str, arguments: Sequence[str]) -> str:
        """Start a command of `mqproto`, and wait until it is ready; return the line that says so.

        Raises:
            NodeError: it ended instead, or was not ready within 30 s.
        """
        arguments = [*arguments, "--directory", str(self.directory), "--supervised"]
        return await self.run(name, [supervisor.PROGRAM, *arguments])

    async def run(self, name: str, arguments: Sequence[str]) -> str:
        """Do the same with another module that says when it is ready, and ends with its standard input."""
        program = await self.open(name, arguments, self.directory / f"{name}.err")
        await self.until(program, READY)
        return program.line(READY)


@asynccontextmanager
async def programs_in(directory: Path) -> AsyncIterator[Programs]:
    """Yield the programs that are started in the block; kill them at its end, whatever ends it."""
    programs = Programs(directory)
    try:
        yield programs
    finally:
        with trio.CancelScope(shield=True):
            for name in list(programs.running):
                await programs.kill(name)
