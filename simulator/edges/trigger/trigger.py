"""Calls a consumer for each message of a queue, in order despite failures, and only once if possible.

A message is received in a transaction, and its outcome is decided within it, so the decision is part of the same
transaction as the read. A rollback leaves the message in its place, so nothing is inserted again. Until the next
attempt, no task holds the message.

| the message | the transaction | the log says |
|---|---|---|
| new: processed | commits | `attempted`, `committed` |
| new: a business error | commits, a copy to the error queue | `attempted`, `dead-lettered` |
| new: a system error | rolls back, for the next attempt | `attempted`, `rolled-back` |
| delivered too often, or failed for good before | as for a business error | `retrieval-failure`, `dead-lettered` |
| a duplicate | commits | `duplicate-dropped` |
| in doubt | commits, a copy to the in-doubt queue | `in-doubt` |
| any of these, and the node went away in the meantime | rolls back, or nobody knows | `rolled-back`, or `unsettled` |

If there is no queue for copies, the message is refused. It then goes to its sender's dead-letter queue, if the sender
asked for that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import Final, NamedTuple

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.simulator.base.traces.edges import NO_TRACES, EdgeTraces
from mqproto.simulator.client import (
    Client,
    InDoubt,
    Lease,
    MessageId,
    NodeUnreachable,
    ReceivedMessage,
)
from mqproto.simulator.edges.history.history import FencedError, HistoryError
from mqproto.simulator.edges.options import LEASE_LIMIT, Policy
from mqproto.simulator.edges.trigger.breaker import Breaker, Held
from mqproto.simulator.edges.trigger.callee import Callee
from mqproto.simulator.edges.trigger.conclusions import Brake, Conclusions
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import Ending, TriggerEvent, TriggerJudge, call_for
from mqproto.simulator.edges.trigger.leadership import Leadership
from mqproto.simulator.edges.trigger.schedule import Schedule
from mqproto.simulator.edges.trigger.telling import HistoryTeller, end_of
from mqproto.simulator.node.control import RolledBack

PATIENCE_S: Final = 60.0
"""The number of seconds for which one receive waits for a message."""
PAUSE_S: Final = 0.5
"""The number of seconds until an unavailable node or history is tried again."""
RESIGN_S: Final = 2.0
"""The number of seconds that a trigger may take to resign when it ends."""
AHEAD: Final = 3
"""The number of messages leased in addition to the one that is being attempted, if all messages are kept in order and a
history is used.

These are the messages that are leaving, and the next ones.
"""


class Doing(NamedTuple):
    """What a trigger is doing.

    leads: whether this is the trigger that delivers; without a history, each trigger does.
    is_connected: whether the trigger's node answers.
    calls: the number of messages for which the consumer is being called.
    held: why nothing is delivered; None if the queue is not held.
    """

    leads: bool
    epoch: int
    is_connected: bool
    history_is_away: bool
    calls: int
    held: Held | None


class _Leased:
    """What other tasks see of a leased message."""

    def __init__(self) -> None:
        self.turn = trio.Event()
        self.over = trio.Event()
        self.is_void = False

    def void(self) -> None:
        """Declare that the lease of the message is no longer valid, or that there is no time left for it."""
        self.is_void = True
        self.turn.set()


class Trigger:
    """Calls a consumer for the messages of one queue.

    Args:
        connect: opens a connection to the node that hosts the queue.
        queue: the queue's name on that node.
        consumer: the consumer to call.
        detection: decides which messages are new.
        log: gets a line for each waypoint of each message.
        on_ready: called each time the node has answered, and when it is known that another trigger leads.
        leadership: decides whether this trigger delivers; None if it always does.
        hook: gets a report about every end of a message; None if there are no reports.
        traces: makes a span for each call if traces are requested.
        say: called at the first failure, with a line for a person at the terminal.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        queue: str,
        consumer: Callee,
        detection: Detection,
        policy: Policy,
        log: FilteringBoundLogger,
        on_ready: Callable[[], None] = lambda: None,
        leadership: Leadership | None = None,
        hook: HistoryTeller | None = None,
        traces: EdgeTraces = NO_TRACES,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._queue = queue
        self._place = detection.queue
        self._policy = policy
        self._log = log.bind(queue=queue)
        self._leadership = leadership or Leadership()
        self.hook = hook
        self._is_kept = detection.is_kept
        self._schedule, self._brake = self._begun()
        self.judge = TriggerJudge(
            consumer,
            detection,
            self._brake.breaker,
            self._leadership.confirm,
            policy.retries.attempts,
            policy.timeout_s,
            self._log,
            traces,
        )
        self.conclusions = Conclusions(policy, self._place, self._log, say)
        self._on_ready = on_ready
        self._held: dict[MessageId, _Leased] = {}
        self._asking = trio.CancelScope()
        self._ask: Callable[[], None] | None = None
        """Leases one more message; None while no connection is served."""
        self._next_s = inf
        """The time, on trio's clock, at which something can be started or leased that cannot be now."""
        self._changed = trio.Event()
        self._stopping = trio.Event()
        self._leads = False
        self._is_connected = False
        self._node_is_gone = False

    def doing(self) -> Doing:
        """Return what the trigger is doing."""
        return Doing(
            self._leads,
            self._leadership.epoch,
            self._is_connected and not self._node_is_gone,
            self.judge.history_is_away,
            self._schedule.running,
            self._brake.breaker.held,
        )

    def stop(self) -> None:
        """Accept no more messages, and end when pending calls have answered or timed out."""
        self._stopping.set()
        self.judge.stop_at(trio.current_time() + self._policy.stop_s)
        self._changed.set()

    async def run(self) -> None:
        """Serve the queue whenever this trigger leads, until `stop` is called.

        Reconnect whenever the node comes back.

        Raises:
            UsageError: there is no such queue.
        """
        try:
            while await self._lead():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_leading)
                    if self.hook is not None:
                        nursery.start_soon(self.hook.run)
                    while not (self._stopping.is_set() or self.judge.is_fenced):
                        await self._serve_node()
                    nursery.cancel_scope.cancel()
                self._leads = False
        finally:
            with trio.move_on_after(RESIGN_S, shield=True):
                await self._leadership.end()

    async def _lead(self) -> bool:
        """Stand by until this trigger leads, and return True; return False if it has to stop."""
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self._stopping.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up)
            await self._leadership.begin(self._log, self._on_ready)
            nursery.cancel_scope.cancel()
        if self._stopping.is_set():
            return False
        if epoch := self._leadership.epoch:
            self._log.info("leading", epoch=epoch)
        self._schedule, self._brake = self._begun()
        self.judge.lead(epoch, self._brake.breaker)
        self._brake.restore(self._leadership.note)
        self._leads = True
        return True

    def _begun(self) -> tuple[Schedule[MessageId], Brake]:
        """Return the schedule and the brake for a new epoch."""
        policy = self._policy
        if policy.group_by:
            schedule = Schedule[MessageId](policy.parallel, LEASE_LIMIT, ahead=policy.parallel)
        else:
            # A message that is handed out ahead and comes back has been delivered once more. Where the delivery count
            # alone tells what is new, that would make it one that may have been processed.
            schedule = Schedule[MessageId](1, 1 + AHEAD if self._is_kept else 1, in_order=True)
        breaker = Breaker(policy.breaker, policy.retries, 2 if policy.group_by else 1)
        return schedule, Brake(breaker, schedule, self._log)

    async def _keep_leading(self) -> None:
        try:
            await self._leadership.keep()
        except FencedError as error:
            self._log.warning("fenced", reason=str(error))
            self.judge.fence()
            self._changed.set()

    async def _serve_node(self) -> None:
        """Serve the queue over one connection."""
        try:
            async with self._connect() as client:
                self._node_is_gone, self._is_connected = False, True
                self._on_ready()
                await self._serve(client)
        except NodeUnreachable as error:
            self._say_gone(str(error))
        finally:
            self._is_connected = False
        if self._node_is_gone:
            await self._pause()

    def _say_gone(self, reason: str) -> None:
        """Log that the node is gone, but not again until it has come back."""
        if not self._node_is_gone:
            self._log.warning("waiting", reason=reason)
        self._node_is_gone = True

    async def _pause(self) -> None:
        with trio.move_on_after(PAUSE_S):
            await self._stopping.wait()

    async def _serve(self, client: Client) -> None:
        """Lease and start messages by the schedule, until the trigger stops or is fenced, or the node is gone."""
        async with trio.open_nursery() as nursery:
            self._ask = partial(nursery.start_soon, self._lease, client)
            try:
                while not self._serves_no_more:
                    if self.judge.history_is_away:
                        await self._pause()
                        await self.judge.history_is_back()
                        continue
                    self._go_on()
                    self._changed = trio.Event()
                    with trio.CancelScope(deadline=self._next_s):
                        await self._changed.wait()
            finally:
                self._ask = None
            self._asking.cancel()
            for held in self._held.values():
                held.void()

    def _go_on(self) -> None:
        """Start and lease all that may be started and leased now.

        The tasks of messages call this themselves, which saves turns of the loop. `_serve` wakes only for the end, for
        a history that is away, or because something is due at another time than was known.
        """
        if self._ask is None or self._serves_no_more or self.judge.history_is_away:
            self._changed.set()
            return
        now_s = trio.current_time()
        for identifier in self._schedule.start(now_s):
            self._held[identifier].turn.set()
        if self._schedule.wants_lease(now_s):
            self._schedule.asked()
            self._ask()
        if (next_s := self._schedule.next_s(now_s)) != self._next_s:
            self._next_s = next_s
            self._changed.set()

    @property
    def _serves_no_more(self) -> bool:
        """Return whether this connection is finished.

        If it is, the messages that wait, and those that still arrive, are given back.
        """
        return self._stopping.is_set() or self._node_is_gone or self.judge.is_fenced

    # One transaction

    async def _lease(self, client: Client) -> None:
        """Receive a message, wait for its turn, and decide its outcome."""
        lease: Lease | None = None
        message: ReceivedMessage | None = None
        held: _Leased | None = None
        ending: Ending | None = None
        broken: tuple[TriggerEvent, str] | None = TriggerEvent.UNSETTLED, "the trigger was cancelled"
        try:
            lease = await self._receive(client)
            if lease is None:
                return
            [message] = lease.messages
            held = await self._hold(message)
            if not held.turn.is_set():
                await held.turn.wait()
            if not held.is_void and lease.is_held:
                ending = await self.judge.decide(
                    message, partial(self._decided, message.id), patient=self._schedule.running > 1
                )
                await self._heed_breaker(ending)
                ending = await self._told(message, ending)
                await self.conclusions.carry_out(ending, message, lease)
            broken = None
        except InDoubt as error:
            broken = TriggerEvent.UNSETTLED, str(error)
            self._say_gone(str(error))
        except NodeUnreachable as error:
            broken = TriggerEvent.ROLLED_BACK, str(error)
            self._say_gone(str(error))
        except RolledBack as error:
            broken = TriggerEvent.ROLLED_BACK, str(error)
            if message is None:
                await self._see_who_leads(str(error))
        except (UsageError, FormatNameError) as error:
            if ending is None:
                raise
            # The queue for the copy does not take it: the message stays until it does.
            ending, broken = ending._replace(waypoint=TriggerEvent.ROLLED_BACK, reason=str(error)), None
        finally:
            if lease is not None:
                await lease.roll_back()
            if message is None or held is None:
                self._schedule.not_answered()
            else:
                del self._held[message.id]
                held.over.set()
                self._is_over(message, ending, broken)
            self._go_on()

    async def _see_who_leads(self, reason: str) -> None:
        """Find out who leads, after the node refused us because a trigger with a later epoch is receiving."""
        try:
            await self._leadership.refused(reason, self._log)
        except FencedError:
            self.judge.fence()
        else:
            await self._pause()

    async def _receive(self, client: Client) -> Lease | None:
        """Lease a message. Return None if there is none, or if the trigger stops."""
        if self._serves_no_more:
            return None
        with trio.CancelScope() as self._asking:
            lease = await client.lease(self._queue, timeout_s=PATIENCE_S, fence=self._leadership.epoch)
            if lease.messages:
                return lease
            self._schedule.nothing_there()
        return None

    async def _hold(self, message: ReceivedMessage) -> _Leased:
        """Hand the message to the schedule, which decides when it may be attempted. Return its lease."""
        while (earlier := self._held.get(message.id)) is not None:
            # The connection broke, and the queue hands it out again.
            earlier.void()
            await earlier.over.wait()
        held = self._held[message.id] = _Leased()
        group: Hashable = message.record.properties.correlation_id if self._policy.group_by else None
        self._schedule.leased(message.id, group, priority=message.priority, size_bytes=len(message.body))
        if self._serves_no_more:
            held.void()  # It came while all others were let go.
        self._go_on()
        return held

    def _decided(self, message: MessageId) -> None:
        self._schedule.decided(message)
        self._go_on()

    async def _heed_breaker(self, ending: Ending) -> None:
        """Hold or release the queue, as its breaker says, and store the breaker's state for later leaders."""
        note = self._brake.heed(ending)
        if note != self._leadership.note and not self.judge.is_fenced:
            try:
                await self._leadership.write(note)
            except FencedError:
                self.judge.fence()
            except HistoryError as error:
                self._log.warning("unrecorded", reason=str(error))

    async def _told(self, message: ReceivedMessage, ending: Ending) -> Ending:
        """Return the ending once the report to the hook is stored. Until then, the message stays in its queue.

        If the report cannot be stored, return a different ending.
        """
        if self.hook is None:
            return ending
        end = end_of(call_for(message), ending, self._place, self.conclusions.copy_to(ending))
        if end is None:
            return ending
        try:
            await self.hook.tell(end, self._leadership.epoch)
        except HistoryError as error:
            self.judge.history_is_away = True
            return ending._replace(waypoint=TriggerEvent.ROLLED_BACK, reason=str(error), failure="")
        except FencedError as error:
            self.judge.fence()
            return ending._replace(waypoint=TriggerEvent.UNSETTLED, reason=str(error), failure="")
        return ending

    def _is_over(
        self, message: ReceivedMessage, ending: Ending | None, broken: tuple[TriggerEvent, str] | None
    ) -> None:
        """Record that the transaction of a message has ended.

        Args:
            ending: the decision; None if the message was not examined.
            broken: the outcome that replaces the decision, and why; None if the node carried out the decision.
        """
        if ending is None:
            self._schedule.given_back(message.id)
            return
        name = str(message.id)
        on_screen = not self._stopping.is_set()  # Else nobody tries it again before a trigger runs.
        if broken:
            self._schedule.given_back(message.id, trio.current_time() + PAUSE_S)
            ending = ending._replace(waypoint=broken[0], reason=broken[1])
            self.conclusions.broken(name, ending, PAUSE_S, on_screen=on_screen)
        elif self.judge.is_fenced:
            self._schedule.given_back(message.id)
            self.conclusions.fenced(name, ending)
        elif ending.waypoint is TriggerEvent.ROLLED_BACK:
            delay_s = self.conclusions.rolled_back(name, ending, on_screen=on_screen)
            self._schedule.given_back(message.id, trio.current_time() + delay_s)
        else:
            self._schedule.settled(message.id)
            self.judge.settled(name)
            self.conclusions.settled(name, ending)
