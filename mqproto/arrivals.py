"""What becomes of a message that came: ours, somebody else's, or nobody's.  [MS-MQQB] 3.1.5.6 to 3.1.5.8"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from mqproto.configuration import Settings
from mqproto.effects import MessageRow, Note, QueueKind, QueueRow, ReadPage, StoredState, Waiting, message_key
from mqproto.errors import UsageError
from mqproto.identifiers import MessageIdHistory
from mqproto.localqueues import LocalQueue, QueueDeclaration
from mqproto.moment import Moment
from mqproto.outbound import Outbound
from mqproto.pending import PendingWrites
from mqproto.timers import Timers
from mqproto.transfer.acknowledgments import make_final_ack, make_order_ack
from mqproto.transfer.incoming import (
    IncomingSequence,
    ReplyTo,
    SequenceKey,
    Verdict,
    held_name,
    key_of_held,
    sequence_key,
)
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    QueueName,
    TransactionHeader,
    UserHeader,
    UserMessage,
    acknowledgment_in,
    decode_packet,
    with_hop_counted,
    without_session_header,
)
from mqproto.wire.guid import Guid, guid_text

FINAL_ACK: Final = TransactionHeader.final_ack.mask
JOURNALS: Final = UserHeader.journal_negative.mask | UserHeader.journal_positive.mask
HOP_LIMIT: Final = 0x1D
"""RC, the count of queue managers that have forwarded a message, goes no higher.  [MS-MQMQ] 2.2.19.2"""


class Arrivals:
    """The local queues, the incoming sequences, and the rules for each message that arrives."""

    def __init__(
        self,
        identity: Guid,
        declarations: Iterable[QueueDeclaration],
        settings: Settings,
        timers: Timers,
        writes: PendingWrites,
        notes: list[Note],
        outbound: Outbound,
        history: MessageIdHistory,
        state: StoredState,
        now: Moment,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._timers = timers
        self._writes = writes
        self._notes = notes
        self._outbound = outbound
        self._history = history
        self.forwarded_count = 0
        self.refused_count = 0
        self.queues: dict[str, LocalQueue] = {}
        self._by_wire_name: dict[QueueName, LocalQueue] = {}
        self._by_number: dict[int, LocalQueue] = {}
        self.sequences: dict[SequenceKey, IncomingSequence] = {}
        self._asked: dict[LocalQueue, None] = {}
        self._asked_pages: dict[LocalQueue, None] = {}
        for declaration in declarations:
            self._declare(declaration, state)
        self._restore_sequences(state, now)

    # Local queues

    def _declare(self, declaration: QueueDeclaration, state: StoredState) -> None:
        kinds = {(stored.kind, stored.name): stored for stored in state.queues}
        stored = kinds.get((QueueKind.LOCAL, declaration.name))
        number = stored.queue if stored else self._outbound.next_queue()
        if stored is None:
            self._writes.now.queues.append(QueueRow(number, QueueKind.LOCAL, declaration.name))
        queue = LocalQueue(declaration, number, self._settings, stored)
        self.queues[declaration.name.lower()] = queue
        self._by_wire_name[declaration.identifier] = queue
        self._by_wire_name[declaration.name.lower()] = queue
        if declaration.public is not None:
            self._by_wire_name[declaration.public] = queue
        self._by_number[number] = queue
        self._asked[queue] = None  # A first page is read, so that a peek sees what the store has.

    def local(self, name: str) -> LocalQueue:
        """A local queue by its name.

        Raises:
            UsageError: there is none; the text lists those that there are.
        """
        queue = self.queues.get(name.lower())
        if queue is None:
            known = ", ".join(queue.name for queue in self.queues.values()) or "none"
            raise UsageError(f"no queue {name} here; there are: {known}")
        return queue

    def _addressed(self, destination: QueueName) -> LocalQueue | None:
        """The queue that a UserHeader names.  3.1.5.8.5"""
        if isinstance(destination, str):
            destination = destination.partition("\\")[2].lower().removeprefix("private$\\")
        return self._by_wire_name.get(destination)

    def check_local(self, destination: QueueName, *, transactional: bool) -> None:
        """See that one of our own applications may put such a message into one of our queues.

        Raises:
            UsageError: there is no such queue, or it is of the other kind.
        """
        queue = self._addressed(destination)
        if queue is None:
            raise UsageError(f"no queue {destination!r} here")
        if queue.declaration.transactional != transactional:
            kind = "transactional" if queue.declaration.transactional else "not transactional"
            raise UsageError(f"queue {queue.name} is {kind}; send it such messages only")

    def insert(self, destination: QueueName, packet: bytes, message_id: int, *, recoverable: bool) -> None:
        """A message of our own for a queue of our own."""
        queue = self._addressed(destination)
        assert queue is not None, "check_local has seen it"
        self._insert(queue, packet, message_id, recoverable=recoverable, final_ack=False)

    def _insert(
        self, queue: LocalQueue, packet: bytes, message_id: int, *, recoverable: bool, final_ack: bool
    ) -> None:
        """Put a message into a local queue.  3.1.5.8.8"""
        position = queue.next_position()
        stored = recoverable or not queue.window.fits
        if stored:
            self._writes.put(MessageRow(message_key(queue.queue, position), packet, message_id, final_ack))
        queue.append(Waiting(position, packet, final_ack, stored))
        self._asked[queue] = None

    def asked(self, name: str) -> None:
        """Somebody waits at a queue, or messages came back to it."""
        self._asked[self.local(name)] = None

    def hand_out(self, now: Moment) -> Iterator[tuple[LocalQueue, int, list[Waiting]]]:
        """Give the messages that are there to the applications that wait."""
        asked, self._asked = self._asked, {}
        for queue in asked:
            for consumer, messages in queue.hand_out():
                if not consumer.transactional:
                    self._received(queue, messages, now)
                yield queue, consumer.consumer, messages
            self._asked_pages[queue] = None

    def settle(self, consumer: int, name: str, now: Moment, *, commit: bool) -> None:
        """An application commits or rolls back.

        Raises:
            UsageError: it was given nothing.
        """
        queue = self.local(name)
        self._asked[queue] = None
        if not commit:
            queue.roll_back(consumer)
            return
        self._received(queue, queue.commit(consumer), now)

    def _received(self, queue: LocalQueue, messages: list[Waiting], now: Moment) -> None:
        """Messages have left the queue for good; a sender that asked to know is told.  3.1.7.2.2"""
        for message in messages:
            if message.stored:
                self._writes.now.remove(queue.queue, message.position, message.position)
            if message.final_ack:
                received = decode_packet(message.packet)
                assert isinstance(received, UserMessage)
                sequence = self.sequences[sequence_key(received, queue.queue)]
                self._send_final_ack(received, MessageClass.ACK_RECEIVE, sequence.reply_to, now)

    def pages(self) -> list[ReadPage]:
        """The pages of local queues to read now."""
        asked, self._asked_pages = self._asked_pages, {}
        return [page for queue in asked for page in queue.pages()]

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """A page of a local queue."""
        queue = self._by_number[page.queue]
        queue.window.loaded(rows)
        self._asked[queue] = None

    # A UserMessage

    def arrived(self, message: UserMessage, packet: bytes, peer: str, now: Moment) -> None:
        """A UserMessage came from a neighbour at address `peer`.  3.1.5.8"""
        user = message.user
        if message.transaction is None and self._history.is_duplicate(
            user.source_queue_manager, user.message_id, now, self._writes, recoverable=user.recoverable
        ):
            return
        if user.queue_manager_address not in (self._identity, NULL_GUID):
            self._forward(message, packet, peer, now)
            return
        if message.properties.message_class:
            acknowledgment = acknowledgment_in(message)
            if isinstance(acknowledgment, OrderAckBody):
                self._order_ack(acknowledgment, user.source_queue_manager, now)
                return
            if isinstance(acknowledgment, FinalAckBody):
                self._final_ack(
                    acknowledgment, message.properties.message_class, user.source_queue_manager, now
                )
                return
        queue = self._addressed(user.destination_queue)
        if queue is None:
            self._refuse(message, MessageClass.NACK_BAD_DST_Q, peer, now)
        elif message.transaction is not None:
            if queue.declaration.transactional:
                self._arrived_in_sequence(queue, message, packet, peer, now)
            else:
                self._refuse(message, MessageClass.NACK_NOT_TRANSACTIONAL_Q, peer, now)
        elif queue.declaration.transactional:
            self._refuse(message, MessageClass.NACK_NOT_TRANSACTIONAL_MSG, peer, now)
        else:
            packet = without_session_header(packet)
            self._insert(queue, packet, user.message_id, recoverable=user.recoverable, final_ack=False)

    def _forward(self, message: UserMessage, packet: bytes, peer: str, now: Moment) -> None:
        """Somebody else's: count the hop and pass it on, its TransactionHeader untouched.  3.1.5.8.2, 3.1.1.6.2"""
        user = message.user
        if user.hop_count >= HOP_LIMIT:
            self._refuse(message, MessageClass.NACK_HOP_COUNT_EXCEEDED, peer, now)
            return
        self.forwarded_count += 1
        queue = self._outbound.towards_manager(user.queue_manager_address)
        packet = with_hop_counted(without_session_header(packet))
        self._outbound.put(queue, packet, user.message_id, recoverable=user.recoverable, final_ack=False)

    def _refuse(self, message: UserMessage, message_class: MessageClass, peer: str, now: Moment) -> None:
        """The message cannot be delivered; a transactional one's sender is told.  3.1.5.8.2"""
        self.refused_count += 1
        facts: dict[str, str | int] = {
            "reason": message_class.name,
            "source": guid_text(message.user.source_queue_manager),
            "message_id": message.user.message_id,
            "queue": str(message.user.destination_queue),
        }
        self._notes.append(Note("message-refused", facts))
        if message.transaction is not None:
            self._send_final_ack(message, message_class, self._outbound.reply_to(message, peer), now)

    def _send_final_ack(
        self, message: UserMessage, message_class: MessageClass, reply_to: ReplyTo, now: Moment
    ) -> None:
        ack = make_final_ack(
            message, message_class, reply_to, self._identity, self._outbound.next_message_id(), now
        )
        self._outbound.acknowledge(ack, reply_to)

    # Transactional messages at their destination

    def _arrived_in_sequence(
        self, queue: LocalQueue, message: UserMessage, packet: bytes, peer: str, now: Moment
    ) -> None:
        """Accept in order and once; hold what is early; drop what came before.  3.1.5.8.6"""
        header = message.transaction
        assert header is not None
        user = message.user
        sequence = self._sequence(message, queue, now)
        sequence.reply_to = self._outbound.reply_to(message, peer)
        verdict = sequence.judge(header, len(packet))
        if verdict is Verdict.ACCEPT:
            packet = without_session_header(packet)
            self._insert(queue, packet, user.message_id, recoverable=True, final_ack=asks_final_ack(message))
            if sequence.held_count:
                self._release(sequence, queue)
        elif verdict is Verdict.HOLD:
            packet = without_session_header(packet)
            held = sequence.hold(header, packet)
            key = message_key(sequence.held_queue, held.position)
            self._writes.put(MessageRow(key, packet, user.message_id, asks_final_ack(message)))
        self._writes.changed(sequence, urgent=verdict is Verdict.ACCEPT)
        sequence.schedule_order_ack(now)

    def _release(self, sequence: IncomingSequence, queue: LocalQueue) -> None:
        """A gap is closed: what was held behind it is in order now."""
        accepted, stale = sequence.release()
        for held in accepted:
            position = queue.next_position()
            old, new = message_key(sequence.held_queue, held.position), message_key(queue.queue, position)
            self._writes.now.moves.append((old, new))
            message = decode_packet(held.packet)
            assert isinstance(message, UserMessage)
            queue.append(Waiting(position, held.packet, asks_final_ack(message), stored=True))
        for held in stale:
            self._writes.later.remove(sequence.held_queue, held.position, held.position)

    def _sequence(self, message: UserMessage, queue: LocalQueue, now: Moment) -> IncomingSequence:
        key = sequence_key(message, queue.queue)
        sequence = self.sequences.get(key)
        if sequence is None:
            held_queue = self._outbound.next_queue()
            self._writes.now.queues.append(QueueRow(held_queue, QueueKind.HELD, held_name(key)))
            sequence = self.sequences[key] = IncomingSequence(
                message.user.source_queue_manager, queue.queue, held_queue, self._settings, self._timers, now
            )
        return sequence

    def order_ack_due(self, sequence: IncomingSequence, now: Moment) -> None:
        """The Order Ack Send Timer is due.  3.1.6.9"""
        sequence.order_ack_sent(now)
        if sequence.number:
            ack = make_order_ack(sequence, self._identity, self._outbound.next_message_id(), now)
            self._outbound.acknowledge(ack, sequence.reply_to)

    # Acknowledgments of what we sent

    def _order_ack(self, body: OrderAckBody, source: Guid, now: Moment) -> None:
        """A destination has our messages on its disk.  3.1.5.6

        One that fits no sequence, or a message that was never sent, is noted and touches nothing.
        """
        sequence = self._outbound.sequence_by_time_stamp(body.tx_sequence_id.time_stamp)
        identifier, number = body.tx_sequence_id, body.tx_sequence_number
        if number == 0 and identifier.time_stamp == 0:
            # The number stands in TxSequenceID, as the example of 3.1.1.6.2 has it, if only one sequence can be meant.
            candidates = self._outbound.sequences_towards(source)
            if len(candidates) == 1:
                sequence = candidates[0]
                identifier, number = sequence.identifier, body.tx_sequence_id.ordinal
        if sequence is None or sequence.destination_manager not in (None, source):
            self._note_stray("OrderAck", body, source)
        elif identifier != sequence.identifier:
            if identifier > sequence.identifier:
                self._note_stray("OrderAck", body, source)
        elif not sequence.was_sent(number):
            self._note_stray("OrderAck", body, source)
        elif sequence.order_ack(number, now, self._writes):
            self._outbound.resume(sequence)

    def _final_ack(self, body: FinalAckBody, message_class: int, source: Guid, now: Moment) -> None:
        """One of our messages was received by an application, or refused for good.  3.1.5.7

        Only the destination may say so; for a message that went too far, whoever stopped it.
        """
        identifier, number = body.tx_sequence_id, body.tx_sequence_number
        sequence = self._outbound.sequence_by_time_stamp(identifier.time_stamp)
        if sequence is None or body.source_guid != self._identity or identifier > sequence.identifier:
            self._note_stray("FinalAck", body, source)
            return
        current = identifier == sequence.identifier
        foreign = sequence.destination_manager not in (None, source)
        if (current and not sequence.was_sent(number)) or (
            foreign and message_class != MessageClass.NACK_HOP_COUNT_EXCEEDED
        ):
            self._note_stray("FinalAck", body, source)
            return
        self._writes.force()
        if message_class == MessageClass.ACK_RECEIVE:
            if current:
                sequence.order_ack(number, now, self._writes)
        else:
            facts: dict[str, str | int] = {"queue": sequence.name, "message_id": body.message_id}
            self._notes.append(Note("message-refused-by-destination", {**facts, "class": message_class}))
            if current:
                sequence.withdraw(number, self._writes)
        if sequence.final_queue:
            self._writes.later.remove(sequence.final_queue, body.message_id, body.message_id)
        self._outbound.resume(sequence)

    def _note_stray(self, kind: str, body: OrderAckBody | FinalAckBody, source: Guid) -> None:
        facts: dict[str, str | int] = {
            "kind": kind,
            "source": guid_text(source),
            "number": body.tx_sequence_number,
        }
        self._notes.append(Note("stray-acknowledgment", facts))

    # After a restart

    def _restore_sequences(self, state: StoredState, now: Moment) -> None:
        keys = {
            stored.queue: key_of_held(stored.name) for stored in state.queues if stored.kind is QueueKind.HELD
        }
        by_number: dict[int, IncomingSequence] = {}
        for row in state.incoming:
            key = keys[row.queue]
            sequence = IncomingSequence(row.source, key[1], row.queue, self._settings, self._timers, now)
            sequence.restore(row)
            self.sequences[key] = by_number[row.queue] = sequence
        for stored_key, packet in state.held:
            number = stored_key // message_key(1, 0)
            message = decode_packet(packet)
            assert isinstance(message, UserMessage)
            assert message.transaction is not None
            position = stored_key - message_key(number, 0)
            by_number[number].restore_held(message.transaction, packet, position)


def asks_final_ack(message: UserMessage) -> bool:
    """Whether the sender waits for a FinalAck.  2.2.5, 3.1.7.2.2"""
    transaction = message.transaction
    return transaction is not None and bool(transaction.flags & FINAL_ACK or message.user.flags & JOURNALS)
