"""A part while it is played: the packets to send, the answers that have arrived, and those still missing. This module
has no sockets.

The connections of one performance share it; `talk.py` is one connection, `stage.py` opens and accepts them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.captures.answers import Answers
from mqproto.captures.script import Script
from mqproto.session import InFlight
from mqproto.simulator.replay.receiver import Receiver
from mqproto.simulator.replay.rewrite import Rewriter
from mqproto.transfer.incoming import IncomingSequence
from mqproto.turn.effects import MessageRow
from mqproto.wire import Guid, UserMessage, encode_packet
from mqproto.wire.glance import is_recoverable

GATE_S: Final = 2.0
"""The number of seconds without progress after which a message no longer waits for the peer.

Until then, it waits for the peer's packets that preceded it in the capture.
"""
OWN: Final = -1
"""The number used for everything that is not a message of the script, such as our acknowledgments."""


@dataclass(slots=True)
class Pace:
    """Decides when to send each packet.

    speed: a factor: 1 for the speed of the capture; infinity to send as fast as the peer takes the packets.
    """

    speed: float = math.inf
    _began_s: float | None = None
    _first_ns: int = 0

    def due_s(self, time_ns: int, now_s: float) -> float:
        """Return the time at which a packet captured at `time_ns` is due. The first packet that is asked about is due
        now.
        """
        if self.speed == math.inf:
            return 0.0
        if self._began_s is None:
            self._began_s, self._first_ns = now_s, time_ns
        return self._began_s + (time_ns - self._first_ns) / 1e9 / self.speed


class Performance:
    """One part, played once.

    Args:
        waits: whether a message waits until the peer has sent as many messages as preceded it in the capture.

    live: the peer's answers to each message.
    unmet: the messages whose captured answers have not all arrived yet.
    progress_s: the time at which progress was last made.
    heard_s: the time at which the peer last sent anything.
    """

    def __init__(
        self, script: Script, rewriter: Rewriter, settings: Settings, pace: Pace, *, waits: bool = False
    ) -> None:
        self.script = script
        self.live = Answers()
        for number in range(len(script.messages)):
            self.live.expect(rewriter.identity(number), rewriter.place(number))
        self.unmet = {
            number
            for number, (live, captured) in enumerate(zip(self.live.fates, script.answers.fates, strict=True))
            if live.lacks(captured)
        }
        self.pending: deque[int] = deque()
        self.timers = Timers()
        self.receiver = Receiver(settings, self.timers, rewriter.next_message_id)
        self.progress_s = self.heard_s = 0.0
        self.remarks: list[str] = []
        self.rewriter = rewriter
        self.pace = pace
        self._waits = waits
        self._acknowledgments: deque[bytes] = self.receiver.outgoing
        self._position = 0

    @property
    def has_heard_all(self) -> bool:
        """Whether the peer has sent as many messages as in the capture, if the performance waits for them."""
        return not self._waits or self.receiver.received_count >= self.script.heard_message_count

    # What is to be sent

    def due_s(self, now_s: float) -> float:
        """Return the time at which to send the next packet.

        It is in the past if the packet waits only for room, and infinity if there is no packet.
        """
        if self._acknowledgments:
            return 0.0
        if not self.pending:
            return math.inf
        step = self.script.messages[self.pending[0]].step
        due_s = self.pace.due_s(step.time_ns, now_s)
        if self._waits and self.receiver.received_count < step.heard_messages:
            due_s = max(due_s, self.progress_s + GATE_S)
        return due_s

    def waits_until_s(self, now_s: float) -> float:
        """Return the time at which the next packet is due. Before then, no progress can be expected.

        It is in the past if the packet is already due, or if there is none to send.
        """
        due_s = self.due_s(now_s)
        return 0.0 if due_s == math.inf else due_s

    def take(self, peer: Guid, now: Moment, now_s: float) -> InFlight | None:
        """Return the packet to send to the peer now, or None."""
        if self.due_s(now_s) > now_s:
            return None
        self._position += 1
        if self._acknowledgments:
            packet = self._acknowledgments.popleft()
            return InFlight(OWN, MessageRow(self._position, packet, 0, False), is_recoverable(packet))
        number = self.pending.popleft()
        step = self.script.messages[number].step
        if self._waits and self.receiver.received_count < step.heard_messages:
            self.remarks.append(
                f"message {number + 1} (frame {step.frame}) did not wait any longer: in the capture the peer had sent "
                f"{step.heard_messages} messages before it, here {self.receiver.received_count}"
            )
        message = self.rewriter.rewritten(number, peer, now.utc_s)
        self.live.sent(number)
        self.progress_s = now_s
        row = MessageRow(self._position, encode_packet(message), 0, final_ack=False)
        return InFlight(number, row, message.user.recoverable)

    def give_back(self, entries: Iterable[InFlight]) -> None:
        """Take back, in order, the packets that were not acknowledged when a connection broke. These are sent next."""
        for entry in reversed(list(entries)):
            if entry.origin == OWN:
                self._acknowledgments.appendleft(entry.packet)
            else:
                assert isinstance(entry.origin, int)
                self.pending.appendleft(entry.origin)

    # What comes

    def acknowledged(self, entries: Iterable[InFlight], now_s: float) -> None:
        """Record that, according to the session, these packets have safely reached the peer."""
        for entry in entries:
            if entry.origin != OWN:
                assert isinstance(entry.origin, int)
                self.live.acknowledged(entry.origin)
                self._see(entry.origin, now_s)

    def heard(
        self, message: UserMessage, packet: bytes, own: Guid, host: str, now: Moment, now_s: float
    ) -> None:
        """Process a UserMessage from the peer; the arguments are those of `Receiver.arrived`."""
        for number in self.live.heard(message):
            self._see(number, now_s)
        received_count = self.receiver.received_count
        self.receiver.arrived(message, packet, own, host, now)
        if self._waits and self.receiver.received_count > received_count:
            self.progress_s = now_s

    def _see(self, number: int, now_s: float) -> None:
        """Record that the outcome of a message has changed."""
        self.progress_s = now_s
        if not self.live.fates[number].lacks(self.script.answers.fates[number]):
            self.unmet.discard(number)

    def tick(self, now: Moment) -> None:
        """Handle everything that is due."""
        for _, owner in self.timers.expired(now.uptime_ms):
            assert isinstance(owner, IncomingSequence)
            self.receiver.order_ack_due(owner, now)
