"""The users of a node, who survive its restarts: applications and operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mqproto.base.errors import QuotaExceeded, UsageError
from mqproto.messages.drafts import Draft, copies
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.node.room import found_for
from mqproto.simulator.world.network.glimpse import identity_of
from mqproto.simulator.world.node.consumers import Application
from mqproto.simulator.world.node.files import DiedError
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.oracle import answers, invariants
from mqproto.simulator.world.scenarios.scenario import Burst, Consumer
from mqproto.simulator.world.scenarios.traffic import KINDS, Message, body_of, destination, wishes_of
from mqproto.transfer.outgoing import ORDER_SUFFIX
from mqproto.turn.effects import Batch, Delivery, QueueKind

LETTERS: Final = 1_000
"""The maximum number of dead letters that an operator sends again at a time."""
MADE_AGAIN_MS: Final = 100
"""The interval, in milliseconds, between an operator's attempts to make a deleted queue again.

An attempt fails while the queue is not empty.
"""


@dataclass(slots=True)
class Doings:
    """The actions of applications and operators since the last batch.

    submissions: the messages that applications sent.
    receipts: the messages that applications receive for good once these actions are on disk.
    orders: the queues that operators made (True) or deleted (False).
    """

    submissions: list[Message] = field(default_factory=list)
    receipts: list[Message] = field(default_factory=list)
    orders: dict[str, bool] = field(default_factory=dict)

    def on_disk(self, node: LinkedNode, batch: Batch) -> None:
        """Record that these actions are on disk, with their batch."""
        node.oracle.flushing(node, batch.writes, self.submissions, self.receipts)
        node.queues_left |= self.orders


class People:
    """The applications and operators of one node.

    Args:
        are_unmet: whether nodes know only those nodes that they have met.
        failed: a function that ends the node's life because the process died while it used its disk, or because its
            store failed.
    """

    def __init__(
        self, node: LinkedNode, failed: Callable[[DiedError | StoreError], None], *, are_unmet: bool
    ) -> None:
        self.applications: dict[int, Application] = {}
        self.doings = Doings()
        self.deleted: set[str] = set()
        """The queues that an operator has deleted and that, as far as the operator knows, have not been made again."""
        self.is_asked = False
        """Whether an operator waits for answers."""
        self._node, self._failed, self._are_unmet = node, failed, are_unmet
        self._is_calm = False
        """Whether the operators restore order, as they do in the calm."""
        self._waiting: list[tuple[Burst, int]] = []
        self._answered: list[Message] = []
        """The messages that applications have sent. The applications learn that these were accepted when the batch is
        carried out.
        """
        self._handed: list[list[Message]] = []
        """The messages of each delivery in the batch that `see` recorded last."""

    # Their node

    def go_on(self) -> None:
        """Continue with a node that has just started."""
        node = self._node
        there = {queue.name for queue in node.running.declared}
        node.oracle.holds(invariants.queues_stay_as_they_were_left, node, there)
        self.deleted = {queue.name for queue in node.queues if queue.name not in there}
        node.paused = {
            queue.name for queue in node.disk.queues.values() if queue.kind in answers.OUT and queue.on_hold
        }
        for application in self.applications.values():
            application.restarted(is_there=application.consumer.queue not in self.deleted)
        if self._is_calm:
            self.hold(False)
            self.make_again()
        waiting, self._waiting = self._waiting, []
        for burst, number in waiting:
            self.submit(burst, number)

    def forget(self) -> None:
        """Forget the actions that a node had not committed when it crashed."""
        self.is_asked = False
        self._node.ledger.forgotten(self.take().submissions)

    def calm_down(self) -> None:
        """Make the consumers stop lingering, and restore order."""
        for application in self.applications.values():
            application.is_calm = True
        self._node.do(self.hold, False)
        self._is_calm = True
        self._node.do(self.make_again)

    # What a batch has for them

    def take(self) -> Doings:
        """Return the actions since the last batch, and begin a new collection of them."""
        taken, self.doings = self.doings, Doings()
        return taken

    def see(self, deliveries: Sequence[Delivery]) -> None:
        """Record the messages that a batch will hand out, before the batch is carried out."""
        self._answered, self._handed = list(self.doings.submissions), []
        for delivery in deliveries:
            self._handed.append(self._node.oracle.handed_out(self._node, delivery))
            if not self.applications[delivery.consumer].consumer.transactional:
                self.receive(self._handed[-1])

    def receive(self, messages: list[Message]) -> None:
        """Record that these messages are received for good with the next batch."""
        self.doings.receipts += messages

    def settle_without_disk(self) -> None:
        """Complete the actions of a batch that does not need the disk."""
        if self.doings.submissions or self.doings.receipts:
            taken = self.take()
            self.doings.orders = taken.orders
            self._node.oracle.flushing(self._node, None, taken.submissions, taken.receipts)

    def due(self) -> tuple[list[list[Message]], list[Message]]:
        """Return the messages that `see` recorded for the last batch, and forget them.

        These are the messages of each delivery, and the messages that applications sent.
        """
        due = self._handed, self._answered
        self._handed, self._answered = [], []
        return due

    def given(
        self, deliveries: Sequence[Delivery], handed: list[list[Message]], answered: list[Message]
    ) -> None:
        """Answer the applications, and give them their messages."""
        node = self._node
        node.oracle.holds(invariants.accepted_is_on_disk, node, answered)
        for messages in handed:
            node.oracle.holds(invariants.handed_out_in_order, node, messages)
        for delivery, messages in zip(deliveries, handed, strict=True):
            node.trace.add(node.now_ms, node.name, "deliver", delivery.queue, len(delivery.messages))
            application = self.applications[delivery.consumer]
            node.oracle.holds(invariants.handed_out_is_on_disk, node, application.consumer, messages)
            application.given(messages)

    # Applications

    def employ(self, number: int, consumer: Consumer) -> None:
        """Add a consumer for one of the node's queues."""
        self.applications[number] = Application(number, consumer, self._node, self.receive)
        self._node.consumer_limit += consumer.limit

    def submit(self, burst: Burst, number: int) -> None:
        """Send messages as an application does. If the node is down, send them once it is up."""
        if self._node.core is None:
            self._waiting.append((burst, number))
        else:
            self._node.do(self._submit, burst, number)

    def _submit(self, burst: Burst, number: int) -> None:
        node, ledger = self._node, self._node.ledger
        core, store = node.running, node.store
        assert store is not None
        kind, targets = KINDS[burst.kind], burst.targets
        goals = [destination(target, kind) for target in targets]
        options = {**kind.draft_at(node.guid), **wishes_of(burst)}
        bodies = [body_of(burst, number, index) for index in range(burst.count)]
        drafts = [Draft(body=body, label=burst.label, priority=burst.priority, **options) for body in bodies]
        messages = copies(goals, drafts)
        try:
            try:
                message_ids = core.enqueue(messages, node.moment(), together=burst.together)
            except QuotaExceeded:
                if not found_for(sum(draft.size_bytes for _, draft in messages), core, store):
                    raise
                message_ids = core.enqueue(messages, node.moment(), together=burst.together)
        except (DiedError, StoreError) as error:
            self._failed(error)  # Nobody was told that anything was accepted.
            return
        except UsageError as error:
            # There is no room, or the queue is one of its own that does not exist, or belongs to a queue manager that
            # it has not met or whose key it does not know.
            is_nowhere = node.name in targets and (kind.undeliverable or bool(self.deleted))
            is_nowhere |= self._are_unmet and not kind.direct and not node.has_met
            is_nowhere |= burst.encrypted and not ledger.keys_known[node.name]
            if not (isinstance(error, QuotaExceeded) or is_nowhere):
                raise
            ledger.tally["refused at once"] += burst.count * len(goals)
            return
        needs_disk = any(draft.recoverable or draft.transactional for _, draft in messages)
        node.oracle.holds(
            invariants.full_disks_take_nothing_new, node, store.room_bytes, needs_disk=needs_disk
        )
        # Each copy is a message of its own, as if its target were the only one.
        alone = [replace(burst, target=target) for target in targets] if burst.also else [burst]
        for place, message_id in enumerate(message_ids):
            index, copy = divmod(place, len(goals))
            self.doings.submissions.append(ledger.submitted(node, alone[copy], bodies[index], message_id))

    # Operators

    def give_back(self, queue: str) -> None:
        """Send a queue's dead letters again as new messages."""
        node, core = self._node, self._node.running
        letters = [node.ledger.messages[identity_of(kept.packet)] for kept in core.peek(queue, LETTERS)]
        # Each takes the next MessageID. Nothing tells which that is, so spend one to know.
        spent = core.inspect().outbound.numbers.next_message_id()
        sent = core.send_back(queue, None, node.moment())
        assert sent == len(letters), "what applications have sent has a destination"
        for message_id, letter in enumerate(letters, spent + 1):
            self.doings.submissions.append(node.ledger.sent_again(node, letter, message_id))

    def hold(self, on_hold: bool) -> None:
        """Pause all outgoing queues, or resume them."""
        node = self._node
        if not on_hold and not node.was_held:
            return
        node.was_held = True  # For good: a paused queue stays paused over a restart.
        node.paused.clear()
        node.may_say_one |= on_hold
        for name in dict.fromkeys(outgoing.name for outgoing in node.running.status().outgoing):
            node.running.hold(name, on_hold=on_hold)
            if on_hold:
                node.paused.add(name)

    def ask(self) -> None:
        """Ask for the state of the queues and the locations of messages. The answer comes after the turn."""
        self.is_asked = True

    def answer(self) -> None:
        """Check the answer to an operator's question."""
        self.is_asked = False
        node, ledger = self._node, self._node.ledger
        ledger.tally["an operator was answered"] += 1
        node.oracle.holds(answers.status_tells_the_truth, ledger, node)
        node.oracle.holds(answers.whereabouts_tell_the_truth, ledger, node)

    def delete(self, queue: str) -> None:
        """Delete a queue. Nobody receives from it until it is made again."""
        if queue not in self.deleted:
            self.deleted.add(queue)
            self._node.ledger.deleted(self._node, queue)
            for application in self._consumers_of(queue):
                application.leave()
            self._node.running.delete(queue)
            self.doings.orders[queue] = False

    def make_again(self) -> None:
        """Make the deleted queues again, each as soon as it is empty."""
        node = self._node
        for declaration in node.queues:
            if declaration.name not in self.deleted:
                continue
            try:
                node.running.make(declaration)
            except UsageError:
                node.later(MADE_AGAIN_MS, self.make_again)
                continue
            node.ledger.tally["a queue was made again"] += 1
            self.doings.orders[declaration.name] = True
            self.deleted.remove(declaration.name)
            for application in self._consumers_of(declaration.name):
                application.restarted()

    def _consumers_of(self, queue: str) -> list[Application]:
        return [each for each in self.applications.values() if each.consumer.queue == queue]

    def purge_outgoing(self, also_others: bool) -> None:
        """Begin to delete the messages in outgoing queues.

        The acknowledgments that destinations send are not deleted.

        Args:
            also_others: whether to delete messages outside sequences, too.
        """
        core = self._node.running
        self._node.has_purged = True
        for name, kind in {outgoing.name: outgoing.kind for outgoing in core.inspect().outbound}.items():
            if kind is QueueKind.SEQUENCE or (also_others and not name.endswith(ORDER_SUFFIX)):
                core.purge(name)
