"""A circuit breaker: while a consumer fails repeatedly with one cause, its queue is held and probed.

    closed ──── `limit` failures in a row, one cause ────► open ──── the pause is over ────► half-open: one message
      ▲                                                     ▲                                is tried, the first
      │                                                     └──── it fails: a longer pause ─────────┤
      └─────────────── the consumer answers, even if it refuses the message ─────────────────────┘

If we cannot connect to a consumer, or if the consumer itself says that it is not available, it has not seen the
message. While the breaker is open, such a failure does not count as an attempt, so no message is given up because of an
outage. After any other failure, a probe counts as an attempt, because the message itself may be the cause. Eventually
this message goes to the error queue, and the next message is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

import msgspec

from mqproto.simulator.edges.options import Retries
from mqproto.simulator.edges.trigger.callee import RETRY_AFTER_LIMIT_S, Answer

SPARED_LIMIT: Final = 500
"""The maximum number of messages for which some attempts do not count.

It is small, because only one message at a time is tried while the breaker is open.
"""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queue is held.

    since_s: the time at which the breaker opened, in Unix time.
    failures: the number of successive failures, including probes.
    probe_s: the time at which the next message will be tried, in Unix time.
    """

    cause: str
    since_s: float
    failures: int
    probe_s: float


class State(msgspec.Struct, frozen=True):
    """The state of a breaker that survives its process.

    held: why the queue is held; None if the breaker is closed.
    spared: the number of a message's deliveries that do not count as attempts, keyed by the message's identifier.
    """

    held: Held | None = None
    spared: Mapping[str, int] = {}


def kept(state: State) -> bytes:
    """Return the state in the form in which the document history stores it."""
    return msgspec.json.encode(state) if state != State() else b""


def state_in(note: bytes) -> State:
    """Return the stored state; the initial state if there is none or it cannot be read."""
    try:
        return msgspec.json.decode(note, type=State) if note else State()
    except msgspec.MsgspecError:
        return State()


class BreakerPause(NamedTuple):
    """What follows from a failure while the breaker is open.

    pause_s: the number of seconds for which nothing is tried.
    is_spared: whether the failure does not count as an attempt.
    """

    pause_s: float
    is_spared: bool


class Breaker:
    """The breaker of one queue.

    Args:
        limit: the number of successive failures with one cause that open it; 0 for a breaker that never opens.
        retries: determines the lengths of pauses, which are the same as the delays between attempts of one message.
        messages: the number of different messages that must fail before the breaker opens, if the messages themselves
            may be the cause. So a single message does not hold up other groups.
    """

    def __init__(self, limit: int, retries: Retries, messages: int = 1) -> None:
        self._limit = limit
        self._retries = retries
        self._messages = messages
        self._cause = ""
        self._failures = 0
        self._failed: set[str] = set()
        self._held: Held | None = None
        self._probe_s = -inf
        self._spared: dict[str, int] = {}

    @property
    def held(self) -> Held | None:
        """Return why the queue is held; None if it is not held."""
        return self._held

    @property
    def state(self) -> State:
        """Return the state to store."""
        return State(self._held, dict(self._spared))

    def restore(self, state: State, now_s: float, utc_s: float) -> float | None:
        """Continue from a stored state.

        Return the number of seconds for which nothing is tried; None if the breaker is not open.
        """
        self._spared = dict(state.spared)
        held = state.held if self._limit else None
        if held is None:
            return None
        # Clocks are set, and what was kept may be of another: no pause is longer than one that may be chosen.
        longest_s = max(self._retries.limit_s, RETRY_AFTER_LIMIT_S)
        pause_s = min(max(held.probe_s - utc_s, 0.0), longest_s)
        self._held, self._cause, self._failures = held, held.cause, held.failures
        self._probe_s = now_s + pause_s
        return pause_s

    def spared(self, message: str) -> int:
        """Return the number of a message's deliveries that do not count as attempts."""
        return self._spared.get(message, 0)

    def answered(self) -> None:
        """Record that the consumer has answered, which closes the breaker."""
        self._held, self._cause, self._failures = None, "", 0
        self._failed.clear()

    def failed(self, message: str, answer: Answer, now_s: float, utc_s: float) -> BreakerPause | None:
        """Record that an attempt ended with a system error.

        Return the pause if the breaker is open or opens; otherwise None.

        Args:
            now_s: the time on a monotonic clock.
            utc_s: the same moment in Unix time, for display.
        """
        if self._held is None or now_s >= self._probe_s:
            self._count(message, answer)
            if self._held is None and not self._opens(answer):
                return None
            pause_s = max(self._retries.delay_s(self._failures, answer.cause), answer.retry_after_s)
            self._probe_s = now_s + pause_s
            self._held = Held(
                cause=answer.cause,
                since_s=self._held.since_s if self._held else utc_s,
                failures=self._failures,
                probe_s=utc_s + pause_s,
            )
        # Otherwise it was called before the breaker opened, and is no probe.
        if answer.is_unseen:
            self._spared[message] = self._spared.get(message, 0) + 1
            if len(self._spared) > SPARED_LIMIT:
                del self._spared[next(iter(self._spared))]
        return BreakerPause(round(self._probe_s - now_s, 3), answer.is_unseen)

    def settled(self, message: str) -> None:
        """Record that a message has left the queue."""
        self._spared.pop(message, None)

    def _count(self, message: str, answer: Answer) -> None:
        # While it is open another cause is news, and no reason to close it.
        if self._held is None and answer.cause != self._cause:
            self._failures = 0
            self._failed.clear()
        self._cause = answer.cause
        self._failures += 1
        if len(self._failed) < self._messages:
            self._failed.add(message)

    def _opens(self, answer: Answer) -> bool:
        are_enough = answer.is_unseen or len(self._failed) >= self._messages
        return are_enough and 0 < self._limit <= self._failures
