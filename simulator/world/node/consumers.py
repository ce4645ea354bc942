"""Receiving applications: they ask, work, and commit, roll back, reject or go away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.oracle import Oracle
from mqproto.simulator.world.scenarios.scenario import Consumer
from mqproto.simulator.world.scenarios.traffic import Message


class Employer(Protocol):
    """A node, as its applications know it."""

    ledger: Ledger
    oracle: Oracle
    receipts: list[Message]
    """What applications have received for good since its last batch."""

    @property
    def core(self) -> QueueManager | None:
        """Its queue manager; None while it is down."""

    @property
    def life(self) -> int:
        """The number of its current life."""

    @property
    def now_ms(self) -> int:
        """The world's clock."""

    def moment(self) -> Moment:
        """Return this instant on its own clocks."""

    def hear(self, life: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do something if it is still in this life."""

    def later(self, delay_ms: int, act: Callable[..., None], *arguments: Any) -> None:
        """Do something after a while, if it still lives then."""


class Application:
    """A consumer at work."""

    def __init__(self, number: int, consumer: Consumer, machine: Employer) -> None:
        self.number = number
        self.consumer = consumer
        self.is_calm = False
        """Whether it neither rests nor gives anything back, as in the calm."""
        self._machine = machine
        self._turn = 0
        self._asking = False
        self._holding: list[Message] = []
        self._has_left = False
        """Whether it has gone away until its queue exists again."""

    def leave(self) -> None:
        """Give back what it holds, and ask no more, because its queue will be deleted."""
        core, self._has_left = self._machine.core, True
        assert core is not None
        core.abandon(self.number, self.consumer.queue, self._machine.moment())
        holding, self._holding = self._holding, []
        self._machine.ledger.given_back(holding)

    def ask(self) -> None:
        """Ask for messages; they come when there are any."""
        machine, consumer = self._machine, self.consumer
        core, early_ms = machine.core, consumer.begins_ms - machine.now_ms
        if self._has_left:
            return
        if core is not None and not self._asking and early_ms > 0:
            machine.later(early_ms, self.ask)
        elif core is not None and not self._asking:
            self._asking = True
            core.consume(self.number, consumer.queue, consumer.limit, transactional=consumer.transactional)
            self._ask_in_vain()

    def _ask_in_vain(self) -> None:
        """Ask a second time, if this consumer does: that must be refused and change nothing."""
        machine, consumer = self._machine, self.consumer
        core, is_refused = machine.core, False
        if core is None or not consumer.asks_twice:
            return
        try:
            core.consume(self.number, consumer.queue, consumer.limit, transactional=consumer.transactional)
        except UsageError:
            is_refused = True
            machine.ledger.tally["asked twice"] += 1
        reason = invariants.one_request_at_a_time(self.number, consumer, is_refused=is_refused)
        machine.oracle.check("one_request_at_a_time", reason)

    def restarted(self, *, is_there: bool = True) -> None:
        """Start again: the node is up, or has the queue, again, and does not know what it gave us.

        is_there: whether it has the queue.
        """
        self._asking, self._has_left = False, not is_there
        self._holding = []
        self.ask()

    def given(self, messages: list[Message]) -> None:
        """Work on messages that came, and then settle."""
        machine, consumer = self._machine, self.consumer
        self._turn += 1
        if consumer.transactional:
            self._holding = messages
            self._ask_in_vain()
        holds_ms = consumer.holds_ms or (consumer.hold_ms,)
        hold_ms = holds_ms[(self._turn - 1) % len(holds_ms)]
        if not consumer.transactional:
            self._rest()
        elif hold_ms and not self.is_calm:
            machine.later(hold_ms, self._settle, messages)
        else:
            machine.hear(machine.life, self._settle, messages)

    def _is_turn(self, every: int) -> bool:
        return bool(every) and not self.is_calm and self._turn % every == 0

    def _is_poison(self, message: Message) -> bool:
        every = self.consumer.chokes_every
        return bool(every) and not self.is_calm and message.order % every == every - 1

    def _gives_up(self, messages: list[Message]) -> bool:
        """Whether any message is poison that was handed out too often, to any consumer."""
        limit = self.consumer.gives_up_after
        return bool(limit) and any(
            self._is_poison(message) and not 0 < message.delivery_count < limit for message in messages
        )

    def _settle(self, messages: list[Message]) -> None:
        machine, consumer = self._machine, self.consumer
        core, now, tally = machine.core, machine.moment(), machine.ledger.tally
        assert core is not None
        if messages is not self._holding:
            return  # They were given back before the queue was deleted.
        self._holding = []
        if self._is_turn(consumer.leaves_every):
            core.abandon(self.number, consumer.queue, now)
            machine.ledger.given_back(messages)
            tally["consumer left"] += 1
        elif self._gives_up(messages):
            core.reject(self.number, consumer.queue)
            tally["poison rejected"] += 1
        elif self._is_turn(consumer.rolls_back_every) or any(map(self._is_poison, messages)):
            core.settle(self.number, consumer.queue, now, commit=False)
            machine.ledger.given_back(messages)
            tally["rolled back"] += 1
        elif self._is_turn(consumer.rejects_every):
            core.reject(self.number, consumer.queue)
            tally["rejected"] += 1
        else:
            core.settle(self.number, consumer.queue, now, commit=True)
            machine.receipts += messages
        self._rest()

    def _rest(self) -> None:
        self._asking = False
        machine = self._machine
        if self.consumer.pause_ms and not self.is_calm:
            machine.later(self.consumer.pause_ms, self.ask)
        else:
            machine.hear(machine.life, self.ask)
