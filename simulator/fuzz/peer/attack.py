"""Carries out a case: says what it says, waits where it waits, and judges what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import trio

from mqproto.simulator.fuzz.peer.conduct import Fault
from mqproto.simulator.fuzz.peer.lines import Line, Place, connected, datagrams, judge_datagrams
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step

Watch = Callable[[], Awaitable[Fault | None]]
"""Sees whether others are served, and says what is wrong if they are not."""


class Attack:
    """One case while it is carried out.

    Args:
        watch: is called where the case has a step WATCH, with all its connections open.
    """

    def __init__(self, place: Place, watch: Watch) -> None:
        self._place = place
        self._watch = watch
        self._lines: dict[int, Line] = {}
        self._asking: trio.socket.SocketType | None = None

    @property
    def was_turned_away(self) -> bool:
        """Whether the peer has closed all its connections without a word, though each began in good order."""
        return bool(self._lines) and all(line.turned_away for line in self._lines.values())

    async def carry_out(self, case: Case) -> Fault | None:
        """Do each step, then hear what is owed on every connection; what the peer did wrong, if anything."""
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
            with suppress(OSError):  # Nobody listens there, as Windows has it by default.
                await self._asking.send(step.data)
            return None
        line = self._lines.get(step.connection)
        if line is None:
            stream = await connected(self._place)
            if isinstance(stream, Fault):
                return stream
            line = self._lines[step.connection] = Line(self._place, stream)
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
