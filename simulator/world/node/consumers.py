"""Receiving applications. They ask for messages, work on them, and then commit, roll back, reject or go away."""

from __future__ import annotations

from collections.abc import Callable

from mqproto.base.errors import UsageError
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.oracle import invariants
from mqproto.simulator.world.scenarios.scenario import Consumer
from mqproto.simulator.world.scenarios.traffic import Message


class Application:
    """A consumer at work. When it has committed the receipt of messages, it passes them to `receive`."""

    def __init__(
        self, number: int, consumer: Consumer, node: LinkedNode, receive: Callable[[list[Message]], None]
    ) -> None:
        self.number = number
        self.consumer = consumer
        self.is_calm = False
        """Whether it works without pauses and gives nothing back, as it must in the calm."""
        self._node, self._receive = node, receive
        self._turn = 0
        self._asking = False
        self._holding: list[Message] = []
        self._has_left = False
        """Whether it has gone away. It comes back when its queue exists again."""

    def leave(self) -> None:
        """Give back the messages, and stop asking for more, because the queue is about to be deleted."""
        core, self._has_left = self._node.running, True
        core.abandon(self.number, self.consumer.queue, self._node.moment())
        holding, self._holding = self._holding, []
        self._node.ledger.given_back(holding)

    def ask(self) -> None:
        """Ask for messages. They are delivered when there are any."""
        node, consumer = self._node, self.consumer
        core, early_ms = node.core, consumer.begins_ms - node.now_ms
        if self._has_left:
            return
        if core is not None and not self._asking and early_ms > 0:
            node.later(early_ms, self.ask)
        elif core is not None and not self._asking:
            self._asking = True
            core.consume(self.number, consumer.queue, consumer.limit, transactional=consumer.transactional)
            self._ask_in_vain()

    def _ask_in_vain(self) -> None:
        """If `asks_twice` is set, ask again although this is not allowed now.

        The node must refuse, and nothing may change.
        """
        node, consumer = self._node, self.consumer
        core, is_refused = node.core, False
        if core is None or not consumer.asks_twice:
            return
        try:
            core.consume(self.number, consumer.queue, consumer.limit, transactional=consumer.transactional)
        except UsageError:
            is_refused = True
            node.ledger.tally["asked twice"] += 1
        node.oracle.holds(invariants.one_request_at_a_time, self.number, consumer, is_refused=is_refused)

    def restarted(self, *, is_there: bool = True) -> None:
        """Start again, because the node is up again, or has the queue again.

        The node does not know which messages it gave this consumer.

        is_there: whether the node has the queue.
        """
        self._asking, self._has_left = False, not is_there
        self._holding = []
        self.ask()

    def given(self, messages: list[Message]) -> None:
        """Work on messages that were handed out, and then settle."""
        node, consumer = self._node, self.consumer
        self._turn += 1
        if consumer.transactional:
            self._holding = messages
            self._ask_in_vain()
        holds_ms = consumer.holds_ms or (consumer.hold_ms,)
        hold_ms = holds_ms[(self._turn - 1) % len(holds_ms)]
        if not consumer.transactional:
            self._rest()
        elif hold_ms and not self.is_calm:
            node.later(hold_ms, self._settle, messages)
        else:
            node.do(self._settle, messages)

    def _is_turn(self, every: int) -> bool:
        return bool(every) and not self.is_calm and self._turn % every == 0

    def _is_poison(self, message: Message) -> bool:
        every = self.consumer.chokes_every
        return bool(every) and not self.is_calm and message.order % every == every - 1

    def _gives_up(self, messages: list[Message]) -> bool:
        """Return whether any of the messages is poison that has been handed out too often.

        Deliveries to all consumers count.
        """
        limit = self.consumer.gives_up_after
        return bool(limit) and any(
            self._is_poison(message) and not 0 < message.delivery_count < limit for message in messages
        )

    def _settle(self, messages: list[Message]) -> None:
        node, consumer = self._node, self.consumer
        core, now, tally = node.running, node.moment(), node.ledger.tally
        if messages is not self._holding:
            return  # They were given back before the queue was deleted.
        self._holding = []
        if self._is_turn(consumer.leaves_every):
            core.abandon(self.number, consumer.queue, now)
            node.ledger.given_back(messages)
            tally["consumer left"] += 1
        elif self._gives_up(messages):
            core.reject(self.number, consumer.queue)
            tally["poison rejected"] += 1
        elif self._is_turn(consumer.rolls_back_every) or any(map(self._is_poison, messages)):
            core.settle(self.number, consumer.queue, now, commit=False)
            node.ledger.given_back(messages)
            tally["rolled back"] += 1
        elif self._is_turn(consumer.rejects_every):
            core.reject(self.number, consumer.queue)
            tally["rejected"] += 1
        else:
            core.settle(self.number, consumer.queue, now, commit=True)
            self._receive(messages)
        self._rest()

    def _rest(self) -> None:
        self._asking = False
        node = self._node
        if self.consumer.pause_ms and not self.is_calm:
            node.later(self.consumer.pause_ms, self.ask)
        else:
            node.do(self.ask)
