"""Carries out the outcome of a delivery: a copy, a count, lines in logs and on the screen, or a hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.edge.custody import IN_DOUBT
from mqproto.simulator.client import Lease, MessageId, ReceivedMessage
from mqproto.simulator.client.envelope import FailureNote
from mqproto.simulator.edges.firstfailures import FirstFailures
from mqproto.simulator.edges.options import Policy
from mqproto.simulator.edges.trigger.breaker import Breaker, kept, state_in
from mqproto.simulator.edges.trigger.errorcopy import copy_for
from mqproto.simulator.edges.trigger.judgment import Ending, TriggerEvent
from mqproto.simulator.edges.trigger.schedule import Schedule
from mqproto.simulator.node.control import Settlement


class Brake:
    """Holds a queue while the queue's breaker is open, and reports each hold once."""

    def __init__(self, breaker: Breaker, schedule: Schedule[MessageId], log: FilteringBoundLogger) -> None:
        self.breaker = breaker
        self._schedule = schedule
        self._log = log
        self._is_on_hold = False

    def restore(self, note: bytes) -> None:
        """Continue from a stored note."""
        pause_s = self.breaker.restore(state_in(note), trio.current_time(), time.time())
        if pause_s is not None:
            self._hold(pause_s)

    def heed(self, ending: Ending) -> bytes:
        """Hold the queue or release it, as its breaker says. Return the note to keep for later leaders.

        Args:
            ending: the outcome of the last delivery.
        """
        held, was_held = self.breaker.held, self._is_on_hold
        self._is_on_hold = held is not None
        if held is None:
            self._schedule.go_on()
            if was_held:
                self._log.warning("breaker-closed", reason="the consumer answers again")
        elif ending.pause_s is not None:
            # After one that was given up the next is tried at once: perhaps it was that which failed.
            is_over = ending.waypoint is TriggerEvent.RETRIEVAL_FAILURE
            self._hold(0 if is_over else ending.pause_s, is_news=not was_held)
        return kept(self.breaker.state)

    def _hold(self, pause_s: float, *, is_news: bool = True) -> None:
        """Hold the queue for `pause_s` seconds."""
        held = self.breaker.held
        assert held is not None
        self._is_on_hold = True
        self._schedule.hold(trio.current_time() + pause_s)
        if is_news:
            self._log.warning(
                "breaker-open",
                reason=held.cause,
                failures=held.failures,
                since=datetime.fromtimestamp(held.since_s, UTC).isoformat(timespec="seconds"),
                next_try_s=round(pause_s, 3),
            )


class Conclusions:
    """Carries out the decisions about messages, and reports their outcomes.

    endings: the number of deliveries, keyed by outcome.
    """

    def __init__(
        self, policy: Policy, place: str, log: FilteringBoundLogger, say: Callable[[str], None]
    ) -> None:
        self.endings: dict[TriggerEvent, int] = {each: 0 for each in TriggerEvent if each != "attempted"}
        self._policy = policy
        self._place = place
        self._log = log
        self._failures = FirstFailures(place, say)

    def copy_to(self, ending: Ending) -> str:
        """Return the queue that gets a copy of the message; empty if there is no such queue."""
        error_queue = self._policy.error_queue
        return self._policy.in_doubt_queue or error_queue if ending.failure == IN_DOUBT else error_queue

    async def carry_out(self, ending: Ending, message: ReceivedMessage, lease: Lease) -> None:
        """Settle a message as was decided. If it is to be attempted again, leave that to whoever holds the lease."""
        if ending.waypoint in (TriggerEvent.ROLLED_BACK, TriggerEvent.UNSETTLED):
            return
        if not ending.failure:
            await lease.settle(Settlement.COMMIT)
            return
        queue = self.copy_to(ending)
        if not queue:
            await lease.settle(Settlement.REJECT)
            return
        note = FailureNote(
            failure=ending.failure,
            reason=ending.reason,
            attempts=ending.attempt,
            message=str(message.id),
            queue=self._place,
        )
        await lease.settle(Settlement.COMMIT, [(queue, copy_for(message, note))])

    def broken(self, message: str, ending: Ending, next_try_s: float, *, on_screen: bool) -> None:
        """Record that a decision was not carried out, and that the outcome is `ending` instead."""
        self.endings[ending.waypoint] += 1
        self._log_of(message, ending).warning(ending.waypoint, reason=ending.reason, next_try_s=next_try_s)
        if on_screen:
            self._failures.retried(message, ending.reason, next_try_s)

    def fenced(self, message: str, ending: Ending) -> None:
        """Record that another trigger has taken over in the meantime."""
        self.endings[ending.waypoint] += 1
        self._log_of(message, ending).warning(ending.waypoint, reason=ending.reason)

    def rolled_back(self, message: str, ending: Ending, *, on_screen: bool) -> float:
        """Record that a message will be attempted again. Return the number of seconds until then."""
        self.endings[ending.waypoint] += 1
        delay_s = self._policy.retries.delay_s(ending.attempt, message)
        delay_s = round(max(delay_s, ending.retry_after_s), 3) if ending.pause_s is None else ending.pause_s
        self._log_of(message, ending).info(ending.waypoint, reason=ending.reason, next_try_s=delay_s)
        if on_screen:
            self._failures.retried(message, ending.reason, delay_s)
        return delay_s

    def settled(self, message: str, ending: Ending) -> None:
        """Record that a message has left the queue for good."""
        self.endings[ending.waypoint] += 1
        log, facts = self._log_of(message, ending), {"reason": ending.reason} if ending.reason else {}
        if not ending.failure:
            log.info(ending.waypoint, **facts)
            if ending.waypoint is TriggerEvent.COMMITTED:
                self._failures.processed()
            return
        if ending.waypoint is TriggerEvent.RETRIEVAL_FAILURE:
            log.warning(ending.waypoint, **facts)
        waypoint = TriggerEvent.IN_DOUBT if ending.failure == IN_DOUBT else TriggerEvent.DEAD_LETTERED
        log.warning(waypoint, **facts, to=self.copy_to(ending) or "the sender")
        self._failures.given_up(message, ending.reason, self.copy_to(ending))

    def _log_of(self, message: str, ending: Ending) -> FilteringBoundLogger:
        return self._log.bind(message=message, attempt=ending.attempt)
