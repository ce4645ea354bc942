"""An honest session next to the hostile ones. As long as it is served, the peer is alive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Final

import trio

from mqproto.simulator.fuzz.peer.conduct import Fault, PeerFailure
from mqproto.simulator.fuzz.peer.lines import JudgedLine, Place, connected, elsewhere, never
from mqproto.simulator.fuzz.tactics.cases import Act
from mqproto.simulator.fuzz.tactics.packets import connection_request
from mqproto.simulator.fuzz.tactics.talk import NUMBERS_EACH, PeerTarget, Talk, identity_of

MESSAGES_EACH: Final = NUMBERS_EACH - 8
"""The number of messages that are sent in one session. After that, the canary begins a new session, which the peer must
accept, too.
"""


class Canary:
    """Keeps a session with a peer, and sends a message in it at each `check`.

    Args:
        place: the peer's place, with the canary's own source address.
        attackers: the peer's place, with the source address of all others.
        seed: the campaign's seed, from which the canary's own queue manager is derived.
    """

    def __init__(
        self, place: Place, attackers: Place, target: PeerTarget, seed: int, nursery: trio.Nursery
    ) -> None:
        self.slowest_s = 0.0
        """The longest time, in seconds, that an acknowledgment has taken."""
        self._place = place
        self._attackers = attackers
        self._target = target
        self._seed = seed
        self._identity = identity_of(target, seed, "canary")
        self._asking = target.presented or identity_of(target, seed, "whose turn it is")
        self._nursery = nursery
        self._numbers = count()
        self._line: JudgedLine | None = None
        self._messages: list[bytes] = []
        self._one_at_a_time = trio.Lock()

    async def check(self) -> Fault | None:
        """Send a message and wait for its acknowledgment; open the session first if there is none.

        It is a fault if the peer closes the session, now or between two checks, because nothing was wrong with it.
        """
        async with self._one_at_a_time:
            served = False
            try:
                fault = await self._check()
                served = fault is None
            finally:
                # A cancelled check may have sent part of its bytes; the next one begins anew.
                if not served:
                    self.leave()
            return fault

    async def _check(self) -> Fault | None:
        if self._line is None or not self._messages:
            self.leave()
            return await self._open()
        began_s = trio.current_time()
        fault = None if self._line.closed else await self._line.say(self._messages.pop())
        fault = fault or await self._line.settle()
        if fault is None:
            self.slowest_s = max(self.slowest_s, trio.current_time() - began_s)
        if fault is None and self._line.closed:
            return Fault(PeerFailure.CRASHES, "it closes a healthy session", "")
        if fault is not None and fault.oracle is PeerFailure.HANGS:
            return Fault(PeerFailure.STARVES, f"a healthy session waits: {fault.rule}", fault.detail)
        return fault

    async def _open(self) -> Fault | None:
        talk = Talk(self._target, self._seed, next(self._numbers), self._identity)
        talk.greet(glued=False)
        for _ in range(MESSAGES_EACH):
            talk.message("recoverable", plain=True)
        case = talk.case("healthy", "the canary")
        packets = [step.data for step in case.steps if step.act is Act.SEND]
        stream = await connected(self._place)
        if isinstance(stream, Fault):
            return stream
        line = JudgedLine(self._place, stream)
        self._nursery.start_soon(line.listen)
        self._line = line
        for packet in packets[:3]:
            fault = await line.say(packet) or await line.settle()
            if fault is not None and fault.oracle is PeerFailure.HANGS:
                return Fault(PeerFailure.STARVES, f"nobody else is served: {fault.rule}", fault.detail)
            if fault is not None:
                return fault
        if line.closed:
            return Fault(PeerFailure.STARVES, "nobody else gets a session", "it closes the connection")
        self._messages = packets[:2:-1]
        return None

    async def is_held_up(self) -> bool:
        """Return whether the peer serves the canary but makes the attackers' host wait.

        A peer may do so to limit the share of its resources that one host gets. Return False if we have no address that
        counts as another host.
        """
        if not self._place.source or await self.check() is not None:
            return False
        place = replace(self._attackers, holds_up=never)
        stream = await connected(place)
        if isinstance(stream, Fault):
            return False
        async with trio.open_nursery() as nursery:
            line = JudgedLine(place, stream)
            nursery.start_soon(line.listen)
            if await line.say(connection_request(self._asking)) is None:
                await line.settle()
            line.close()
            nursery.cancel_scope.cancel()
        return line.conduct.is_unheard

    def leave(self) -> None:
        """Close the session."""
        if self._line is not None:
            self._line.close()
            self._line = None


@asynccontextmanager
async def a_canary(place: Place, target: PeerTarget, seed: int) -> AsyncIterator[Canary]:
    """Yield a canary, if possible one whose host is not ours. Its session is opened at the first check."""
    async with trio.open_nursery() as nursery:
        canary = Canary(replace(place, source=elsewhere(place), holds_up=never), place, target, seed, nursery)
        try:
            yield canary
        finally:
            canary.leave()
            nursery.cancel_scope.cancel()
