"""Carries out a case: sends its bytes, waits where the case says so, and judges the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import trio

from mqproto.simulator.fuzz.peer.conduct import Fault
from mqproto.simulator.fuzz.peer.lines import JudgedLine, Place, connected, datagrams, judge_datagrams
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step

Watch = Callable[[], Awaitable[Fault | None]]
"""A function that checks whether the peer still serves others, and returns the fault if it does not."""


class Attack:
    """Carries out one case.

    Args:
        watch: called at each WATCH step, while all connections of the case are open.
    """

    def __init__(self, place: Place, watch: Watch) -> None:
        self._place = place
        self._watch = watch
        self._lines: dict[int, JudgedLine] = {}
        self._asking: trio.socket.SocketType | None = None

    @property
    def was_turned_away(self) -> bool:
        """Whether the peer closed all connections without an answer, although each connection began correctly."""
        return bool(self._lines) and all(line.turned_away for line in self._lines.values())

    async def carry_out(self, case: Case) -> Fault | None:
        """Carry out each step, then wait for the answers owed on every connection; return the peer's fault, if any."""
        fault = None
        async with AsyncExitStack() as ends, trio.open_nursery() as nursery:
            try:
                for step in case.steps:
                    fault = await self._do(step, nursery, ends)
                    if fault is not None:
                        break
                else:
                    fault = await self._settle()
            finally:
                nursery.cancel_scope.cancel()
                for line in self._lines.values():
                    line.close()
        return fault

    async def _do(self, step: Step, nursery: trio.Nursery, ends: AsyncExitStack) -> Fault | None:
        if step.act is Act.WATCH:
            return await self._watch()
        if step.act is Act.DATAGRAM:
            if self._asking is None:
                self._asking = await ends.enter_async_context(datagrams(self._place))
            with suppress(OSError):  # Nobody may listen there, as is the default on Windows.
                await self._asking.send(step.data)
            return None
        line = self._lines.get(step.connection)
        if line is None:
            stream = await connected(self._place)
            if isinstance(stream, Fault):
                return stream
            line = self._lines[step.connection] = JudgedLine(self._place, stream)
            nursery.start_soon(line.listen)
        match step.act:
            case Act.SEND:
                return await line.say(step.data, step.piece_bytes)
            case Act.AWAIT:
                return await line.settle()
            case Act.FINISH:
                await line.finish()
            case Act.CLOSE | Act.RESET:
                line.close(reset=step.act is Act.RESET)
            case Act.DEAF:
                line.deafen()
        return None

    async def _settle(self) -> Fault | None:
        for line in self._lines.values():
            if fault := await line.settle():
                return fault
        return judge_datagrams(self._asking) if self._asking is not None else None
