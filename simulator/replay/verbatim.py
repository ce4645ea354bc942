"""Plays a part as it was captured: the same bytes in the same order, whatever the peer answers.

If, in the capture, the peer sent anything between our previous packet and the next, the next packet waits until the
peer has sent a packet. In addition, a packet waits for as many UserMessages as it acknowledges, because acknowledging
more would break the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from mqproto.base.errors import WireFormatError
from mqproto.captures.answers import Answers, Witness
from mqproto.captures.script import Scene, Script, Step
from mqproto.simulator.replay.performance import Pace
from mqproto.simulator.replay.stage import LINGER_S, Outcome
from mqproto.simulator.replay.talk import READ_BYTES, News, farewell
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    Packet,
    PacketBuffer,
    UserMessage,
    decode_packet,
)

PATIENCE: Final = 2
"""The number of times that we wait for the peer in vain before we give up."""


class Verbatim:
    """Plays the steps of a script on the given connections, and keeps track of the answers.

    live, unmet, remarks: as in a `Performance`.
    """

    def __init__(self, script: Script, pace: Pace, timeout_s: float) -> None:
        self.script = script
        self.live = Answers()
        for message in script.messages:
            self.live.expect(message.identity, message.place)
        fates = enumerate(zip(self.live.fates, script.answers.fates, strict=True))
        self.unmet = {number for number, (live, captured) in fates if live.lacks(captured)}
        self.remarks: list[str] = []
        self._pace = pace
        self._timeout_s = timeout_s
        self._news = News()

    async def play(self, scene: Scene, stream: trio.SocketStream, outcome: Outcome, *, last: bool) -> None:
        """Play all steps of one connection; on the `last` one, also wait for all other answers."""
        line = _VerbatimConnection()
        outcome.session_count += 1
        async with stream:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, stream, line, outcome)
                outcome.ending = await self._say(scene, stream, line)
                outcome.is_broken = bool(outcome.ending)
                await self._wait_for_answers(scene, line, last=last)
                nursery.cancel_scope.cancel()
            await farewell(stream)
        if line.witness.fault:
            self.live.blame(None, line.witness.fault)

    async def _say(self, scene: Scene, stream: trio.SocketStream, line: _VerbatimConnection) -> str:
        """Send all steps of a connection. Return the reason if the connection ended too early; otherwise an empty
        text.
        """
        heard = vain_count = 0
        for step in scene.steps:
            await trio.sleep_until(self._pace.due_s(step.time_ns, trio.current_time()))
            vain_count += not await self._wait_for_peer(step, line, heard)
            if vain_count == PATIENCE:
                line.ending = line.ending or f"the peer said nothing for {self._timeout_s:g} s"
            heard, line.heard = step.heard, 0
            if not await self._send(step, stream, line):
                return f"{line.ending or 'the peer took no more'}, before frame {step.frame} was sent"
        return ""

    async def _wait_for_peer(self, step: Step, line: _VerbatimConnection, heard: int) -> bool:
        """Wait for the peer's packets on which our next packet depends. Return whether they arrived in time."""
        wanted = _acknowledged_by(step.data)

        def has_spoken() -> bool:
            missing = (wanted - line.user_message_count) % 2**16
            is_enough = (line.heard > 0 or step.heard <= heard) and not 0 < missing < 2**15
            return bool(line.ending) or is_enough

        if await self._until(has_spoken):
            return True
        self.remarks.append(
            f"frame {step.frame} was sent though the peer had not said in {self._timeout_s:g} s what it said before it "
            "in the capture"
        )
        return False

    async def _wait_for_answers(self, scene: Scene, line: _VerbatimConnection, *, last: bool) -> None:
        """Wait for the session's acknowledgments and, on the `last` connection, for all answers.

        Give up when no more of them arrive in time.
        """
        captured, live = self.script.answers.fates, self.live.fates

        def missing() -> int:
            if last:
                return len(self.unmet)
            return sum(captured[number].acknowledged > live[number].acknowledged for number in scene.messages)

        while not line.ending and (before := missing()):
            if not await self._until(lambda: bool(line.ending) or missing() < before):
                return
        if last:
            with trio.move_on_after(LINGER_S):
                await self._until(lambda: bool(line.ending))

    async def _until(self, is_so: Callable[[], bool]) -> bool:
        """Wait until a condition holds. Return whether this happened in time."""
        with trio.move_on_after(self._timeout_s):
            while not is_so():
                await self._news.wait()
        return is_so()

    async def _send(self, step: Step, stream: trio.SocketStream, line: _VerbatimConnection) -> bool:
        if line.ending:
            return False
        if (packet := _decoded(step.data)) is not None:
            line.witness.said(packet, step.data, step.message)
        if step.message is not None:
            self.live.sent(step.message)
        try:
            with trio.fail_after(self._timeout_s):
                await stream.send_all(step.data)
        except (trio.BrokenResourceError, trio.TooSlowError):
            return False
        return True

    async def _listen(self, stream: trio.SocketStream, line: _VerbatimConnection, outcome: Outcome) -> None:
        try:
            while data := await stream.receive_some(READ_BYTES):
                for raw in line.buffer.feed(bytes(data)):
                    self._take(raw, line, outcome)
                if line.buffer.fault is not None:
                    raise line.buffer.fault
                self._news.tell()
            line.ending = "the peer closed the connection"
        except trio.BrokenResourceError:
            line.ending = "the peer reset the connection"
        except WireFormatError as error:
            line.ending = f"the peer sent what is not a packet: {error}"
        self._news.tell()

    def _take(self, raw: bytes, line: _VerbatimConnection, outcome: Outcome) -> None:
        line.heard += 1
        packet = decode_packet(raw)
        spoken_of = line.witness.heard(packet, raw)
        for number in spoken_of:
            self.live.acknowledged(number)
        if isinstance(packet, EstablishConnection):
            is_answer = packet.client_guid == outcome.own
            outcome.manager = packet.server_guid if is_answer else packet.client_guid
        elif isinstance(packet, UserMessage):
            line.user_message_count += 1
            spoken_of += self.live.heard(packet)
        for number in spoken_of:
            if not self.live.fates[number].lacks(self.script.answers.fates[number]):
                self.unmet.discard(number)


class _VerbatimConnection:
    """One connection, and the data received on it."""

    def __init__(self) -> None:
        self.witness = Witness()
        self.buffer = PacketBuffer()
        self.user_message_count = 0
        self.heard = 0
        self.ending = ""


def _decoded(data: bytes) -> Packet | None:
    try:
        return decode_packet(data)
    except WireFormatError:  # Hostile packets are played as well.
        return None


def _acknowledged_by(data: bytes) -> int:
    """Return, as a 16-bit count, how many of the peer's UserMessages our packet acknowledges."""
    packet = _decoded(data)
    if packet is None or isinstance(packet, EstablishConnection | ConnectionParameters):
        return 0
    return packet.session.ack_sequence_number if packet.session is not None else 0
