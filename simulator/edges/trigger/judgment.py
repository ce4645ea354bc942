"""Judges each delivered message: whether it is new, and what its consumer's answer means."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.durations import Durations
from mqproto.edge.custody import BUSINESS_ERROR, IN_DOUBT, RETRIEVAL_FAILURE
from mqproto.edge.exactlyonce import Attempt, Verdict, retrieval_fails
from mqproto.queues.protection import fingerprint
from mqproto.simulator.base.traces.edges import NO_TRACES, EdgeTraces
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.edges.history.history import FencedError, HistoryError
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Answer, Call, Callee, system_error
from mqproto.simulator.edges.trigger.detection import Detection, Found
from mqproto.simulator.edges.trigger.resolver import Resolution
from mqproto.wire.messages import POSTED_QUEUE

FAILURES: Final = {Attempt.FAILED_FOR_GOOD: BUSINESS_ERROR, Attempt.FAILED_FOR_NOW: "system error"}
"""The type of error that is shown in the span of an attempt, keyed by how the attempt failed."""

T = TypeVar("T")

POSTED_HEX: Final = f"{POSTED_QUEUE:X}"


class TriggerEvent(StrEnum):
    """The words that the log uses for the events of a message."""

    ATTEMPTED = "attempted"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    DEAD_LETTERED = "dead-lettered"
    DUPLICATE_DROPPED = "duplicate-dropped"
    IN_DOUBT = "in-doubt"
    RETRIEVAL_FAILURE = "retrieval-failure"
    UNSETTLED = "unsettled"


class Ending(NamedTuple):
    """The outcome of a delivered message.

    waypoint: the last event that is logged for the message.
    failure: why a copy goes to the error queue or the in-doubt queue; empty if there is no copy.
    retry_after_s: for a message that is rolled back, the minimum number of seconds until the next attempt.
    pause_s: the minimum number of seconds until anything in the queue is attempted, if its breaker holds the queue;
        otherwise None.
    """

    waypoint: TriggerEvent
    attempt: int
    reason: str = ""
    failure: str = ""
    retry_after_s: float = 0.0
    pause_s: float | None = None


class TriggerJudge:
    """Decides the outcome of each message of a queue, and calls the consumer for new messages.

    Args:
        consumer: the consumer to call.
        breaker: notified of the consumer's successes and failures.
        confirm: checks, just before a call, that no other trigger has taken over.
        limit: the maximum number of times that a message may be delivered.
        timeout_s: the number of seconds within which a consumer or resolver must answer.
        log: gets a line for each attempt.
        traces: makes a span for each attempt if traces are requested.
    """

    def __init__(
        self,
        consumer: Callee,
        detection: Detection,
        breaker: Breaker,
        confirm: Callable[[], Awaitable[None]],
        limit: int,
        timeout_s: float,
        log: FilteringBoundLogger,
        traces: EdgeTraces = NO_TRACES,
    ) -> None:
        self.history_is_away = False
        """Whether no message can be judged until `history_is_back` returns True or `lead` is called."""
        self.is_fenced = False
        """Whether another trigger has taken over. If so, nothing is judged until `lead` is called."""
        self.answers = dict.fromkeys(Attempt, 0)
        self.answered = Durations()
        """A histogram of how long the consumer took to answer; a timeout counts as the full time limit."""
        self._consumer = consumer
        self._detection = detection
        self._breaker = breaker
        self._confirm = confirm
        self._limit = limit
        self._timeout_s = timeout_s
        self._log = log
        self._traces = traces
        self._stop_s = inf
        self._calls: set[trio.CancelScope] = set()

    @property
    def _is_stopping(self) -> bool:
        return self._stop_s < inf

    def stop_at(self, stop_s: float) -> None:
        """Set the time by which the consumer and the resolver must have answered."""
        self._stop_s = stop_s
        for scope in self._calls:
            scope.deadline = min(scope.deadline, stop_s)

    def lead(self, epoch: int, breaker: Breaker) -> None:
        """Judge as the leader of this epoch from now on."""
        self.is_fenced, self.history_is_away, self._breaker = False, False, breaker
        self._detection.lead(epoch)

    def fence(self) -> None:
        """Record that another trigger has taken over, and cancel the calls that are pending."""
        self.is_fenced = True
        for scope in self._calls:
            scope.cancel()

    async def history_is_back(self) -> bool:
        """Try the document history again; return whether it is available."""
        try:
            self.history_is_away = not await self._detection.is_back()
        except FencedError:
            self.fence()
        return not self.history_is_away

    def settled(self, message: str) -> None:
        """Record that the message with this identifier has left its queue."""
        self._detection.settled(message)
        self._breaker.settled(message)

    async def decide(
        self, message: ReceivedMessage, decided: Callable[[], None] = lambda: None, *, patient: bool = False
    ) -> Ending:
        """Decide what happens to a message, and call its consumer if it is new.

        Args:
            decided: if a history is used, called after the consumer has processed the message, and before this outcome
                is written to the history. Messages that are begun from then on are written to the history in the same
                transaction as this outcome, or later.
            patient: whether this may wait so that other messages that are being attempted can share its flush.
        """
        call = call_for(message, self._detection.epoch)
        async with self._detection.alone(call.key):
            try:
                found = await self._detection.judge(call, patient=patient)
            except HistoryError as error:
                self.history_is_away = True
                return Ending(TriggerEvent.ROLLED_BACK, max(call.delivery_count, 1), str(error))
            except FencedError as error:
                self.fence()
                return Ending(TriggerEvent.ROLLED_BACK, max(call.delivery_count, 1), str(error))
            try:
                return await self._judged(call, found, decided)
            except FencedError as error:
                self.fence()
                return Ending(TriggerEvent.UNSETTLED, found.attempt, str(error))

    async def _judged(self, call: Call, found: Found, decided: Callable[[], None]) -> Ending:
        verdict, attempt, reason, doubt = found
        attempt = max(1, attempt - self._breaker.spared(call.message))
        if verdict in (Verdict.NEW, Verdict.REJECTED, None) and retrieval_fails(
            attempt, self._limit, verdict or Verdict.NEW
        ):
            if verdict is not Verdict.REJECTED:
                reason = f"it was delivered {attempt} times, and may be {self._limit} times"
            if verdict is Verdict.NEW:
                await self._detection.record(call.key, Attempt.FAILED_FOR_NOW, f"{doubt}\n{reason}")
            return Ending(TriggerEvent.RETRIEVAL_FAILURE, attempt, reason, RETRIEVAL_FAILURE)
        if verdict is None:
            verdict, reason, retry_after_s = await self._resolve(call)
            if verdict is None:
                return Ending(TriggerEvent.ROLLED_BACK, attempt, reason, retry_after_s=retry_after_s)
        match verdict:
            case Verdict.NEW:
                return await self._attempt(call, attempt, doubt, decided)
            case Verdict.DUPLICATE:
                return Ending(TriggerEvent.DUPLICATE_DROPPED, attempt, reason)
        return Ending(TriggerEvent.IN_DOUBT, attempt, reason, IN_DOUBT)

    async def _attempt(self, call: Call, attempt: int, doubt: str, decided: Callable[[], None]) -> Ending:
        """Call the consumer once. The history has the outcome before the message leaves its queue.

        Args:
            doubt: as in `Found`.
            decided: as in `decide`.
        """
        try:
            await self._confirm()
        except HistoryError as error:
            self.history_is_away = True
            await self._detection.record(call.key, Attempt.FAILED_FOR_NOW, doubt)
            return Ending(TriggerEvent.ROLLED_BACK, attempt, str(error))
        key = {"key": call.key} if call.key != call.message else {}
        self._log.info(TriggerEvent.ATTEMPTED, message=call.message, **key, attempt=attempt)
        began_s = trio.current_time()
        try:
            answer = await self._called(call, attempt)
        except trio.Cancelled:
            with trio.CancelScope(shield=True), suppress(FencedError):
                await self._detection.record(call.key, Attempt.FAILED_FOR_NOW, "the trigger was cancelled")
            raise
        self.answers[answer.attempt] += 1
        self.answered.add(trio.current_time() - began_s)
        is_processed = answer.attempt is Attempt.SUCCEEDED
        if is_processed and self._detection.is_kept:
            # Delivered once more it is a duplicate, whatever becomes of the transaction: nobody need wait for that.
            decided()
        says_no = answer.attempt is Attempt.FAILED_FOR_NOW and not answer.is_in_doubt
        kept = doubt if says_no else answer.reason
        pause, gives_up = None, False
        if answer.attempt is Attempt.FAILED_FOR_NOW and not self._is_stopping:
            pause = self._breaker.failed(call.message, answer, trio.current_time(), time.time())
            is_spared = pause is not None and pause.is_spared
            gives_up = not is_spared and retrieval_fails(attempt + 1, self._limit, Verdict.NEW)
        if gives_up:
            # To the history it has not failed for good: a person may send it once more, under the same key.
            kept = f"{kept}\n{answer.reason}"
        await self._detection.record(call.key, answer.attempt, kept, patient=is_processed)
        match answer.attempt:
            case Attempt.SUCCEEDED:
                self._breaker.answered()
                return Ending(TriggerEvent.COMMITTED, attempt)
            case Attempt.FAILED_FOR_GOOD:
                self._breaker.answered()
                return Ending(TriggerEvent.DEAD_LETTERED, attempt, answer.reason, BUSINESS_ERROR)
        pause_s = pause.pause_s if pause else None
        if gives_up:
            return Ending(
                TriggerEvent.RETRIEVAL_FAILURE, attempt, answer.reason, RETRIEVAL_FAILURE, pause_s=pause_s
            )
        after_s = answer.retry_after_s
        return Ending(
            TriggerEvent.ROLLED_BACK, attempt, answer.reason, retry_after_s=after_s, pause_s=pause_s
        )

    async def _called(self, call: Call, attempt: int) -> Answer:
        queue = self._detection.queue
        with self._traces.processing(queue, call.forwarded, call.message, attempt) as processing:
            carried = processing.carried(call.forwarded)
            if carried is not call.forwarded:
                call = replace(call, forwarded=carried)
            answer = await self._answered(partial(self._consumer.call, call)) or self._no_answer()
            if answer.attempt is not Attempt.SUCCEEDED:
                processing.failed(FAILURES[answer.attempt], answer.reason)
        return answer

    async def _resolve(self, call: Call) -> Resolution:
        resolver = self._detection.resolver
        assert resolver is not None, "otherwise the tables decide"
        found = await self._answered(partial(resolver.resolve, call))
        return found or Resolution(None, f"the resolver: {self._no_answer().reason}")

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer of a consumer or resolver.

        Return None if it does not arrive in time, or if another trigger takes over first.
        """
        deadline_s = min(trio.current_time() + self._timeout_s, self._stop_s)
        with trio.CancelScope(deadline=deadline_s) as scope:
            self._calls.add(scope)
            try:
                return await ask()
            finally:
                self._calls.discard(scope)
        return None

    def _no_answer(self) -> Answer:
        if self._is_stopping:
            return system_error("no answer before the trigger stopped", is_in_doubt=True)
        return system_error(f"no answer within {self._timeout_s:g} s", is_in_doubt=True)


def is_for_posted(queue: str) -> bool:
    """Return whether acknowledgments to the queue with this format name end a posted message, at its gateway."""
    kind, _, number = queue.rpartition("\\")
    return kind.startswith("PRIVATE=") and number.lstrip("0") == POSTED_HEX


def call_for(message: ReceivedMessage, epoch: int = 0) -> Call:
    """Return the call for a message, with the epoch of the leader that makes it."""
    envelope = Envelope.of(message.extension)
    # What tells a gateway how its message ended is of no concern to a consumer.
    is_gateways = envelope.confirmed or is_for_posted(message.admin_queue)
    return Call(
        message=str(message.id),
        key=envelope.producer_key or str(message.id),
        delivery_count=message.delivery_count,
        body=message.body,
        label=message.label,
        content_type=envelope.content_type,
        forwarded=envelope.headers,
        correlation_id=message.record.properties.correlation_id,
        body_type=message.body_type,
        application_tag=message.application_tag,
        priority=3 if message.transactional else message.priority,
        extension=b"" if envelope != Envelope() else message.extension,
        response_queue=message.response_queue,
        admin_queue="" if is_gateways else message.admin_queue,
        acknowledgments=0 if is_gateways else message.acknowledgments,
        sender_id=message.sender_id,
        cipher=message.cipher,
        signature=message.signature,
        signed_by=fingerprint(message.certificate) if message.certificate else "",
        epoch=epoch,
        packet=message.packet,
        origin=envelope.origin,
    )
