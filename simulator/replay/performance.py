"""A part while it is played: what is still to be sent, what came back, and what is still missing. No sockets.

The connections of one performance share it; `talk.py` has one of them, `stage.py` opens and accepts them.
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
from mqproto.wire import Guid, UserMessage, encode_packet
from mqproto.wire.glance import is_recoverable

GATE_S: Final = 2.0
"""How long a message waits for what the peer had said before it in the capture, while nothing else happens."""
OWN: Final = -1
"""The number of what is no message of the script: our acknowledgments."""


@dataclass(slots=True)
class Pace:
    """When each packet is to be sent.

    speed: how many times as fast as the capture; infinite for as fast as the peer takes it.
    """

    speed: float = math.inf
    _began_s: float | None = None
    _first_ns: int = 0

    def due_s(self, time_ns: int, now_s: float) -> float:
        """When a packet that the capture has at `time_ns` is due; the first one that is asked for is due now."""
        if self.speed == math.inf:
            return 0.0
        if self._began_s is None:
            self._began_s, self._first_ns = now_s, time_ns
        return self._began_s + (time_ns - self._first_ns) / 1e9 / self.speed


class Performance:
    """One part, played once.

    Args:
        waits: whether a message waits until the peer has sent as many as it had before it in the capture.

    live: what the peer says of each message. unmet: those of which the capture has an answer that has not come yet.
    progress_s: when something last came of it. `heard_s`: when the peer last said anything.
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
        """Whether the peer has sent as many messages as in the capture, if it is to."""
        return not self._waits or self.receiver.received_count >= self.script.heard_message_count

    # What is to be sent

    def due_s(self, now_s: float) -> float:
        """When the next thing is to be sent: the past if it waits for room alone, infinite if there is nothing."""
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
        """Until when nothing is to be expected, as the next message is not due; the past if something is."""
        due_s = self.due_s(now_s)
        return 0.0 if due_s == math.inf else due_s

    def take(self, peer: Guid, now: Moment, now_s: float) -> InFlight | None:
        """What is to be sent to the peer now, or None."""
        if self.due_s(now_s) > now_s:
            return None
        self._position += 1
        if self._acknowledgments:
            packet = self._acknowledgments.popleft()
            return InFlight(OWN, self._position, packet, recoverable=is_recoverable(packet))
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
        return InFlight(number, self._position, encode_packet(message), message.user.recoverable)

    def give_back(self, entries: Iterable[InFlight]) -> None:
        """A connection broke before the peer had answered for these: they are next again, as they were."""
        for entry in reversed(list(entries)):
            if entry.origin == OWN:
                self._acknowledgments.appendleft(entry.packet)
            else:
                assert isinstance(entry.origin, int)
                self.pending.appendleft(entry.origin)

    # What comes

    def acknowledged(self, entries: Iterable[InFlight], now_s: float) -> None:
        """The session says that the peer has these for good."""
        for entry in entries:
            if entry.origin != OWN:
                assert isinstance(entry.origin, int)
                self.live.acknowledged(entry.origin)
                self._see(entry.origin, now_s)

    def heard(
        self, message: UserMessage, packet: bytes, own: Guid, host: str, now: Moment, now_s: float
    ) -> None:
        """The peer sent a UserMessage; arguments as of `Receiver.arrived`."""
        for number in self.live.heard(message):
            self._see(number, now_s)
        received_count = self.receiver.received_count
        self.receiver.arrived(message, packet, own, host, now)
        if self._waits and self.receiver.received_count > received_count:
            self.progress_s = now_s

    def _see(self, number: int, now_s: float) -> None:
        """A message's fate has changed."""
        self.progress_s = now_s
        if not self.live.fates[number].lacks(self.script.answers.fates[number]):
            self.unmet.discard(number)

    def tick(self, now: Moment) -> None:
        """Do what is due."""
        for _, owner in self.timers.expired(now.uptime_ms):
            assert isinstance(owner, IncomingSequence)
            self.receiver.order_ack_due(owner, now)
