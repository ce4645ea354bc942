"""Watches every disk and every wire of a world, writes events into the ledger, and reports broken invariants.

Each invariant is checked at the moments at which it could be broken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec

from mqproto.captures.net.conversation import Side
from mqproto.queues.localqueue import SystemQueue
from mqproto.simulator.world.network.glimpse import (
    Glimpse,
    identity,
    identity_of,
    place_in_sequence,
    previous_number_of,
)
from mqproto.simulator.world.network.links import STRANGER, End
from mqproto.simulator.world.oracle import doubts, intime, invariants
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.watched import Suspicion, WatchedNode
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.simulator.world.scenarios.traffic import CHOSEN, REPLIES, Message
from mqproto.turn.effects import POSITION_BITS, Delivery, MessageRow, Note, QueueKind, QueueRow, Writes
from mqproto.turn.waypoints import Waypoint
from mqproto.wire import (
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    UserHeader,
    acknowledgment_in,
    decode_message,
)
from mqproto.wire.glance import TRANSACTIONAL, acknowledges, head_of
from mqproto.wire.guid import guid_from_text

P = ParamSpec("P")

HOP_COUNT: Final = UserHeader.hop_count.mask
IN_SEQUENCE: Final = frozenset({SystemQueue.DEADXACT.value, CHOSEN[True].name})
"""The queues of the dead letters of transactional messages."""
LETTERS: Final = IN_SEQUENCE | {SystemQueue.DEADLETTER.value, CHOSEN[False].name}
WAYPOINTS: Final = frozenset(Waypoint)
TOLD: Final = frozenset({"message-refused-by-destination", "message-ended-on-its-way"})
"""The notes with which a source says that it has learned how a message ended without being received."""


class Oracle:
    """Checks that everything in a world is as it must be.

    Args:
        ledger: the record of events.
        breach: a function that is called with the name of an invariant and what broke it.
    """

    def __init__(self, ledger: Ledger, breach: Callable[[str, str], None]) -> None:
        self.ledger = ledger
        self._breach = breach
        self._turned_away: list[Message] = []
        """The messages that a batch refuses because their queue is full."""
        self._bridged: set[bytes] = set()
        """The identities of messages sent over a gap."""

    def check(self, name: str, reason: str | None) -> None:
        """Report `reason` as a breach, which stops the world. If it is None, do nothing."""
        if reason is not None:
            self._breach(name, reason)

    def holds(self, invariant: Callable[P, str | None], /, *facts: P.args, **named: P.kwargs) -> None:
        """Check an invariant. If it is broken, report a breach under its name."""
        self.check(invariant.__name__, invariant(*facts, **named))

    # A batch is on disk, or would be if it had writes

    def flushing(
        self, node: WatchedNode, writes: Writes | None, accepted: list[Message], received: list[Message]
    ) -> None:
        """Process a batch that will survive crashes from now on. The disk has not applied its writes yet.

        Args:
            accepted: the messages that applications sent in the batch.
            received: the messages that applications received for good in the batch.
        """
        for message in accepted:
            self.ledger.accepts(node, message)
        self.ledger.received(received)
        if writes is not None:
            self._written(node, writes, received)
        if received:
            for message in received:
                message.stream.waiting.pop(message, None)
            self.holds(invariants.received_once, self.ledger, node, received)

    def _written(self, node: WatchedNode, writes: Writes, received: list[Message]) -> None:
        queues = node.disk.queues
        if writes.queues:
            queues = queues | {queue.queue: queue for queue in writes.queues}
        self._turned_away.clear()
        self._recalled(node, queues, writes)
        fresh: dict[int, MessageRow] = {}
        """The messages that are put into local queues or are held for them, by message key."""
        strangers = self.ledger.strangers
        for row in writes.messages:
            kind = queues[row.key >> POSITION_BITS].kind
            name = identity_of(row.packet)
            if not (strangers and self.ledger.is_strangers(row.packet)):
                node.stored.add(name)
            if kind is QueueKind.SEQUENCE:
                self.ledger.retains(name, row.packet)
            elif kind is QueueKind.OUTGOING:
                if name.startswith(node.guid):
                    self._posted(node, row.packet)
                self._passed_on(node, name, row.packet)
            elif kind is QueueKind.LOCAL or kind is QueueKind.HELD:
                fresh[row.key] = row
        for old, new, _ in writes.moves:
            moved = fresh.pop(old, None) or node.disk.row(old)
            assert moved is not None, f"message {old:#x} moves and is not there"
            fresh[new] = moved
        for message in self._turned_away:
            self.holds(invariants.turned_away_only_when_full, node, message, _sizes(queues, fresh))
        if fresh:
            self._put(node, queues, fresh)
        for first, last in writes.removals:
            queue = queues[first >> POSITION_BITS]
            if queue.kind is QueueKind.LOCAL:
                self._removed(node, queue, first, last, fresh, received)
                continue
            if queue.kind is QueueKind.SEQUENCE:
                node.shortened_ms[queue.queue] = node.now_ms
                if node.settings.follows_figures:
                    self._let_go(node, first, last, writes)
            if node.has_purged:
                self.ledger.purged(_leaving(node, first, last, writes))
        self.holds(invariants.intermediates_keep_no_sequences, node, writes)

    def _put(
        self, node: WatchedNode, queues: Mapping[int, QueueRow], fresh: Mapping[int, MessageRow]
    ) -> None:
        """Process messages that were put into local queues or are held for them.

        fresh: the messages, by message key.
        """
        arrived, replies = [], []
        for key in sorted(fresh):
            queue, packet = queues[key >> POSITION_BITS], fresh[key].packet
            if queue.name == REPLIES.name:
                replies.append(packet)
            elif queue.kind is QueueKind.LOCAL:
                message = self.ledger.message_in(packet)
                if message is None:
                    if queue.name in LETTERS:
                        self.ledger.reply_is_set_aside(packet)
                    continue
                if queue.name in LETTERS:
                    self.holds(invariants.letters_lie_where_they_were_chosen, node, message, queue.name)
                    self.ledger.tally["dead letter in a chosen queue"] += message.burst.chooses
                    self._is_dead_letter(node, message, packet)
                elif queue.name == SystemQueue.JOURNAL:
                    message.journaled += 1
                    self.ledger.tally["journaled"] += 1
                else:
                    self.ledger.arrived(node, message)
                    arrived.append(message)
        if arrived:
            self.holds(invariants.delivered_once_and_in_order, node, arrived)
        for packet in replies:
            self._reply(node, packet)

    def _recalled(self, node: WatchedNode, queues: Mapping[int, QueueRow], writes: Writes) -> None:
        """Process the dead letters that leave their queue.

        No application receives from that queue, so these letters were recalled.
        """
        for first, last in writes.removals:
            if queues[first >> POSITION_BITS].name not in IN_SEQUENCE:
                continue
            for row in node.disk.between(first, last):
                message = self.ledger.message_in(row.packet)
                letter = node.name, decode_message(row.packet).properties.message_class
                if message is not None and letter in message.letters and not message.sent_again:
                    message.letters.remove(letter)
                    self.ledger.tally["dead letter recalled"] += 1
                    self.holds(doubts.recalled_for_a_reason, node, message)

    def _is_dead_letter(self, node: WatchedNode, message: Message, packet: bytes) -> None:
        decoded = decode_message(packet)
        message_class = decoded.properties.message_class
        message.letters.append((node.name, message_class))
        self.ledger.tally["dead letter"] += 1
        if doubts.is_in_doubt(node, message, message_class):
            message.in_doubt = True
            self.ledger.tally["dead letter in doubt"] += 1
        self.holds(invariants.endings_have_reasons, self.ledger, node, message, message_class)

    def _reply(self, node: WatchedNode, packet: bytes) -> None:
        """Process an administration acknowledgment that has reached a message's source."""
        reply = decode_message(packet)
        message = self.ledger.messages.get(reply.properties.correlation_id)
        message_class = reply.properties.message_class
        self.ledger.tally["administration acknowledgment"] += 1
        if (
            message is not None
            and message_class in message.replies
            and (message.was_forgotten or node.may_have_forgotten(identity_of(packet)))
        ):
            return
        self.holds(invariants.replies_tell_the_truth, node, message, message_class)
        if message is not None:
            message.replies.append(message_class)

    def _posted(self, node: WatchedNode, packet: bytes) -> None:
        """Process a packet that a node has to send. If it is a FinalAck, it counts as sent."""
        if not acknowledges(packet):
            return
        glimpse = Glimpse(packet)
        if glimpse.hop_count or self.ledger.is_forged(glimpse):
            return  # What comes back to its source and goes on was counted before.
        ack = decode_message(packet)
        body = acknowledgment_in(ack)
        if not isinstance(body, FinalAckBody):
            return
        message = self.ledger.messages.get(identity(body.source_guid, body.message_id))
        if message is None:
            return
        message_class = ack.properties.message_class
        self.ledger.tally["final ack"] += 1
        if message_class == MessageClass.NACK_Q_EXCEED_QUOTA:
            self.ledger.tally["turned away from a full queue"] += 1
            self._turned_away.append(message)
        self.holds(invariants.final_acks_tell_the_truth, self.ledger, node, message, message_class)

    def _passed_on(self, node: WatchedNode, name: bytes, packet: bytes) -> None:
        """Process a message that was put into an outgoing queue.

        A message that is not transactional must not be passed on a second time.
        """
        head = head_of(packet)
        hop_count = head.flags & HOP_COUNT
        if hop_count and not head.flags & TRANSACTIONAL:
            self.holds(invariants.passed_on_once, node, name, hop_count)
            if name in node.passed and (message := self.ledger.messages.get(name)) is not None:
                message.passed_again = True
            node.passed[name] = node.committed_in, hop_count

    def _removed(
        self,
        node: WatchedNode,
        queue: QueueRow,
        first: int,
        last: int,
        fresh: Mapping[int, MessageRow],
        received: list[Message],
    ) -> None:
        """Process messages that leave a local queue because they were received in this batch, or have ended."""
        if queue.name in invariants.SYSTEM_QUEUES:
            return
        rows = node.disk.between(first, last)
        rows += [row for key, row in fresh.items() if first <= key <= last]
        for row in rows:
            message = self.ledger.message_in(row.packet)
            if message is not None and message not in received:
                message.gone += 1
                message.stream.waiting.pop(message, None)
                self.ledger.tally["ended in its queue"] += 1
                self.holds(invariants.endings_have_reasons, self.ledger, node, message, None)

    def _let_go(self, node: WatchedNode, first: int, last: int, writes: Writes) -> None:
        """Process the messages that leave a sequence. The node may have let go of them without dead letters."""
        for packet in _leaving(node, first, last, writes):
            message = self.ledger.message_in(packet)
            if message is not None and doubts.is_let_go(self.ledger, node, message):
                message.let_go = True
                self.ledger.tally["let go without a letter"] += 1

    # Applications receive

    def handed_out(self, node: WatchedNode, delivery: Delivery) -> list[Message]:
        """Process the messages that a consumer will be given. Return those that applications sent."""
        deliveries = [each for each in delivery.messages if not self.ledger.is_strangers(each.packet)]
        handed = [(self.ledger.message_in(received.packet), received.packet) for received in deliveries]
        self.holds(invariants.handed_out_as_it_was_sent, node, handed)
        for (message, packet), received in zip(handed, deliveries, strict=True):
            if message is not None:
                message.delivery_count = received.delivery_count
                self.holds(invariants.delivery_counts_are_true, node, message)
                if self.ledger.keys_known:
                    self.holds(invariants.proofs_are_true, node, message, packet)
        messages = [message for message, _ in handed if message is not None]
        for message in messages:
            waiting = message.stream.waiting
            waiting.pop(message, None)
            if not message.kind.transactional:
                self.holds(invariants.higher_priorities_go_first, message, waiting)
            message.is_out = True
        return messages

    # Packets

    def leaves(self, node: WatchedNode, end: End, glimpses: list[Glimpse]) -> None:
        """Process packets that leave one end of a connection."""
        guid, sent, now_ms = node.guid, end.sent, node.now_ms
        if node.paused:
            self.holds(invariants.paused_queues_send_nothing, self.ledger, node, glimpses)
        if self.ledger.keys_known:
            self.holds(invariants.secrets_stay_secret, node, glimpses)
        foreign = []
        for glimpse in glimpses:
            if glimpse.session is not None and end.peer.host.is_node:
                self.holds(invariants.acknowledged_is_on_disk, self.ledger, node, end, glimpse.session)
                self.holds(invariants.windows_are_told_as_they_are, node, end, glimpse.session)
            if not glimpse.is_user:
                continue
            end.sent += 1
            end.used_ms = now_ms
            node.left[glimpse.identity] = now_ms
            if node.suspected:
                self.holds(intime.suspects_wait_for_others, self.ledger, node, glimpse)
            if not glimpse.identity.startswith(guid) or glimpse.hop_count:
                foreign.append(glimpse)
                if glimpse.identity.startswith(guid):
                    self.ledger.tally["came back to its source"] += 1
            elif acknowledges(glimpse.packet):
                if not self.ledger.is_forged(glimpse):
                    self._acknowledged(node, glimpse.packet)
            else:
                self._goes_out(node, glimpse)
        if foreign:
            self.holds(invariants.forwarded_as_it_came, node, foreign)
        if end.sent > sent:  # Nothing arrives in between, so the most are out behind the last of them.
            self.holds(invariants.windows_are_respected, node, end)
            if end.side is Side.CLIENT:
                node.called.add(end.peer.host.name)

    def _acknowledged(self, node: WatchedNode, packet: bytes) -> None:
        """Process an OrderAck that leaves the node that made it."""
        message = decode_message(packet)
        body = acknowledgment_in(message)
        if isinstance(body, OrderAckBody):
            self.ledger.tally["order ack"] += 1
            source = message.user.queue_manager_address
            # The ledger knows nothing about strangers.
            if source != guid_of(STRANGER) and not node.misreads_order_acks:
                self.holds(invariants.order_acks_leave_no_gap, self.ledger, node, source, body)

    def _goes_out(self, node: WatchedNode, glimpse: Glimpse) -> None:
        """Process an application's message that leaves its source, for the first time or again."""
        place = place_in_sequence(glimpse.packet)
        message = self.ledger.messages.get(glimpse.identity)
        if message is not None and message.burst.chooses:
            self.holds(invariants.what_is_sent_names_no_queue, node, message, glimpse.packet)
        if message is not None and message.burst.encrypted:
            self.holds(invariants.encrypted_with_the_latest_key, self.ledger, node, message, glimpse.packet)
        if place is None:
            if message is not None:
                message.stream.unsent.pop(message, None)
                self.holds(invariants.higher_priorities_leave_first, node, message)
            return
        if message is not None and message.place != place and self.ledger.has_gone_back:
            self.ledger.tally["numbered anew"] += 1
            self.ledger.retains(glimpse.identity, glimpse.packet)
        if (sequence := self.ledger.sequences.get((node.guid, *place[0]))) is None:
            return
        first = bisect_right(sequence.numbers, previous_number_of(glimpse.packet))
        passed = sequence.messages[first : bisect_left(sequence.numbers, place[1])]
        named = sequence.messages[first - 1] if first else None
        self.holds(invariants.gaps_are_bridged, self.ledger, node, glimpse, passed, named)
        if passed:
            again = glimpse.identity in self._bridged
            self.ledger.tally["bridged again" if again else "bridged"] += 1
            self._bridged.add(glimpse.identity)

    # Notes

    def noted(self, node: WatchedNode, notes: list[Note]) -> None:
        """Process notes that a node has written to its log."""
        for note in notes:
            if note.name in WAYPOINTS:
                self.ledger.waypoints.append((node.name, note))
                continue
            self.ledger.tally[f"note {note.name}"] += 1
            facts = note.facts
            if note.name in TOLD:
                self.ledger.told(node, note)
            elif note.name == "message-not-encrypted":
                message = self.ledger.messages.get(identity(node.guid, int(facts["message_id"])))
                self.holds(invariants.given_up_for_a_reason, self.ledger, node, message)
                if message is not None:
                    message.was_not_encrypted = True
                    message.stream.unsent.pop(message, None)
            elif note.name == "message-refused":
                source = guid_from_text(str(facts["source"]))
                message = self.ledger.messages.get(identity(source, int(facts["message_id"])))
                if message is not None and not message.kind.transactional:
                    self.holds(
                        invariants.refused_for_a_reason, self.ledger, node, message, str(facts["reason"])
                    )
            elif note.name == "message-suspected":
                source = guid_from_text(str(facts["source"]))
                name = identity(source, int(facts["message_id"]))
                node.tries_anew |= name in node.suspected
                node.suspected[name] = Suspicion()
            elif note.name == "session-closed":
                self.holds(intime.sessions_in_use_stay, node, note)
            self.holds(invariants.refusals_are_explained, node, note)


def _leaving(node: WatchedNode, first: int, last: int, writes: Writes) -> list[bytes]:
    """Return the packets that a removal deletes: those on disk, and those that the same batch adds."""
    packets = [row.packet for row in node.disk.between(first, last)]
    return packets + [row.packet for row in writes.messages if first <= row.key <= last]


def _sizes(queues: Mapping[int, QueueRow], rows: Mapping[int, MessageRow]) -> Counter[str]:
    """Return the number of bytes that the rows add to each local queue, keyed by the queue's name."""
    sizes_bytes: Counter[str] = Counter()
    for key, row in rows.items():
        queue = queues[key >> POSITION_BITS]
        if queue.kind is QueueKind.LOCAL:
            sizes_bytes[queue.name] += len(row.packet)
    return sizes_bytes
