"""What becomes of a message that came: ours, somebody else's, or nobody's.  [MS-MQQB] 3.1.5.8"""

from __future__ import annotations

from collections import Counter, OrderedDict
from operator import attrgetter
from typing import Final, NamedTuple

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues, local_name
from mqproto.manager.outbound import Outbound
from mqproto.manager.tracing import Tracing
from mqproto.messages.kept import as_sent
from mqproto.queues.joining import Joining
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.rules.admission import ADMISSIONS, MISSING, Admission
from mqproto.queues.rules.strangers import admission_of_stranger, why_unwelcome
from mqproto.routing import Routes
from mqproto.session import Remote
from mqproto.transfer.acknowledgments import ORDER_QUEUE, make_order_ack
from mqproto.transfer.copies import AS_IT_IS
from mqproto.transfer.incoming import (
    IncomingSequence,
    Verdict,
    asks_final_ack,
    held_name,
    key_of_held,
)
from mqproto.transfer.spellings import IncomingSequences, without_case
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow, Note, QueueKind, QueueRow, StoredState, message_key
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import ProtectionError, is_encrypted
from mqproto.wire import (
    INFINITE,
    NULL_GUID,
    MessageClass,
    QueueName,
    UserHeader,
    UserMessage,
    acknowledgment_in,
    decode_message,
    encode_packet,
    passed_on,
    without_session_header,
)
from mqproto.wire.glance import (
    RECOVERABLE,
    TRANSACTIONAL,
    Head,
    goes_to_private,
    has_debug_header,
    head_of,
    priority_of,
    reach_deadline_s,
    receive_deadline_s,
)
from mqproto.wire.guid import Guid, guid_text

STRANGER_IDLE_S: Final = 3_600
"""After this time without a message a stranger's sequence may be forgotten."""
HOP_COUNT: Final = UserHeader.hop_count.mask
HOP_LIMIT: Final = 0x1D
"""RC, the count of queue managers that have forwarded a message, goes no higher.  [MS-MQMQ] 2.2.19.2"""
JOURNAL_NEGATIVE: Final = UserHeader.journal_negative.mask
SECURED: Final = UserHeader.has_security.mask


LAST_ACCESS: Final = attrgetter("last_access_s")


def is_acknowledgment(message: UserMessage | None, packet: bytes) -> bool:
    """Whether a message, which may not have been read yet, is an OrderAck or a FinalAck."""
    return acknowledgment_in(message or decode_message(packet)) is not None


class NoRoomError(Exception):
    """A message cannot be taken without harm to others: the session is closed, and its sender keeps it.  3.1.5.8.8"""


class NotWelcomeError(Exception):
    """A message that this session must not bring: the session is closed, and whoever sent the message keeps it."""


class Arrival(NamedTuple):
    """A message that came, what was read of it, and who brought it."""

    message: UserMessage
    packet: bytes
    remote: Remote


class Arrivals:
    """The rules for each message that arrives, and the incoming sequences."""

    def __init__(
        self,
        desk: Desk,
        sequences: IncomingSequences,
        outbound: Outbound,
        queues: LocalQueues,
        histories: Histories,
        confirmations: Confirmations,
        expiration: Expiration,
        tracing: Tracing,
        routes: Routes,
    ) -> None:
        self._identity = desk.identity
        self._settings = desk.settings
        self._timers = desk.timers
        self._writes = desk.writes
        self._notes = desk.notes
        self._endings = desk.endings
        self._guard = desk.guard
        self._outbound = outbound
        self._queues = queues
        self._histories = histories
        self._routes = routes
        self._confirmations = confirmations
        self._expiration = expiration
        self._tracing = tracing
        self._sequences = sequences
        self.forward = self._forward
        """A seam: see parts.py."""
        self._strangers: OrderedDict[IncomingSequence, None] = OrderedDict()
        """The sequences of strangers, that accessed longest ago first."""
        self._of_deleted: dict[tuple[Guid, QueueName], int] = {}
        """By source and what it called them at their host, the numbers of queues that were deleted since."""
        self._waypoints = desk.waypoints
        self._ends_late = desk.settings.follows_figures
        """Whether transactional messages of others end here when their time is over.  3.1.1.1.1.8"""
        self.forwarded_count = 0
        self.refused_count = 0
        self.refusals = Counter[str]()
        """The same by the name of the class with which a message was refused."""
        self.last_refusal = ""
        """The name of the class with which the last of them was refused."""
        self.stored_bytes = 0
        """What the store held when the last batch was committed, and what was put into it since."""
        self.limit_bytes: int | None = None
        """What the store may hold after the next commit, as the disk has no room for more; None if it has."""

    def brought_by(self, remote: Remote, window_size: int) -> None:
        """What comes next is brought by this neighbour, or stranger, which announces this window."""
        self._histories.of(remote).brought_by(remote.manager, window_size)

    def arrived(self, message: UserMessage | None, packet: bytes, remote: Remote, now: Moment) -> None:
        """A UserMessage came.  3.1.5.8

        Args:
            message: None if it was checked and not decoded; an intermediate need not know more of it.

        Raises:
            NoRoomError: it would take the store beyond QueueManagerQuota or what the disk has room for, or begin one
                sequence too many.
            NotWelcomeError: whoever brings it must not.
            KeyAwayError: the key that opens it is not at hand now, and nothing has changed.
        """
        head = head_of(packet)
        source, flags = head.source_queue_manager, head.flags
        if flags & JOURNAL_NEGATIVE and source == self._identity:
            # No session carries the name of a queue for dead letters: one behind a message of ours is no word of ours.
            packet = as_sent(without_session_header(packet))
            message = None
        is_ours = head.queue_manager_address in (self._identity, NULL_GUID)
        if not remote.is_proven:
            message = message or decode_message(packet)
            if self._is_strangers(Arrival(message, packet, remote), head, now, is_ours=is_ours):
                return
        elif source != remote.manager and not self._routes.brings(
            remote.manager, source, target=head.queue_manager_address, own=self._identity
        ):
            raise NotWelcomeError(
                f"it brings a message of queue manager {guid_text(source)} and is no declared router on its ways"
            )
        quota_bytes, limit_bytes = self._settings.quota_bytes, self.limit_bytes
        least_bytes = quota_bytes if limit_bytes is None else min(quota_bytes, limit_bytes)
        if self.stored_bytes + len(packet) > least_bytes:
            self._see_that_it_has_room(message, packet, head, remote, is_ours=is_ours)
        if flags & SECURED and is_ours:
            message = message or decode_message(packet)
            self._guard.reach(message)
        if not flags & TRANSACTIONAL and self._histories.of(remote).is_duplicate(
            source,
            head.message_id,
            now,
            self._writes,
            recoverable=bool(flags & RECOVERABLE),
            hop_count=None if is_ours else flags & HOP_COUNT,
        ):
            self._waypoints.duplicate_dropped(packet)
            return
        if has_debug_header(packet) and remote.is_proven:
            self._tracing.received(message or decode_message(packet), now)
        if not is_ours:
            self.forward(head, packet, remote, now)
            return
        message = message or decode_message(packet)
        arrival = Arrival(message, packet, remote)
        if message.properties.message_class and self._confirmations.take(message, packet, remote, now):
            return
        transactional = message.transaction is not None
        queue = self._queues.addressed(message.user.destination_queue, transactional=transactional)
        kind = MISSING if queue is None else queue.declaration.transactional
        admission = ADMISSIONS[kind, transactional]
        if isinstance(admission, MessageClass):
            if not self._came_before(arrival, now):
                self._refuse(arrival, admission)
            return
        assert queue is not None
        if admission is Admission.IN_SEQUENCE:
            self._arrived_in_sequence(queue, arrival, now)
        else:
            self._let_in(queue, arrival, now)

    def _see_that_it_has_room(
        self, message: UserMessage | None, packet: bytes, head: Head, remote: Remote, *, is_ours: bool
    ) -> None:
        """With this message the store would have more than it may.

        A duplicate, which came before and was never acknowledged, takes no room; acknowledgments make some.

        Raises:
            NoRoomError: there is no place for it.
        """
        recoverable = bool(head.flags & RECOVERABLE)
        would_be_bytes = self.stored_bytes + len(packet)
        disk_is_full = (
            self.limit_bytes is not None
            and would_be_bytes > self.limit_bytes
            and (recoverable or not self._stays_in_memory(head, packet, message, is_ours=is_ours))
        )
        if not disk_is_full and would_be_bytes <= self._settings.quota_bytes:
            return
        if is_acknowledgment(message, packet):
            return
        hop_count = None if is_ours else head.flags & HOP_COUNT
        if not head.flags & TRANSACTIONAL and self._histories.of(remote).came_before(
            head.source_queue_manager, head.message_id, hop_count, recoverable=recoverable
        ):
            return
        if disk_is_full:
            raise NoRoomError("the disk is full: make room, or receive or purge")
        raise NoRoomError(
            f"the store holds as much as quota_bytes = {self._settings.quota_bytes:,} allows: receive or purge"
        )

    def _stays_in_memory(
        self, head: Head, packet: bytes, message: UserMessage | None, *, is_ours: bool
    ) -> bool:
        """Whether an express message needs no disk: its queue has a place for it in memory, or there is no queue."""
        priority = priority_of(packet, head.flags)
        if is_ours:
            message = message or decode_message(packet)
            local = self._addressed(message)
            lane = local.known_lane(priority) if local is not None else None
            return lane is None or lane.window.fits
        order = goes_to_private(packet, head.flags, ORDER_QUEUE)
        return self._outbound.towards_manager(head.queue_manager_address, priority, order=order).window.fits

    def _addressed(self, message: UserMessage) -> LocalQueue | None:
        return self._queues.addressed(
            message.user.destination_queue, transactional=message.transaction is not None
        )

    def _is_strangers(self, arrival: Arrival, head: Head, now: Moment, *, is_ours: bool) -> bool:
        """A stranger sends something; whether that was all.

        What acknowledges is judged by its own rule. Nothing is kept of what is refused, and nobody is told.
        """
        message, packet, remote = arrival
        if (
            is_ours
            and message.properties.message_class
            and self._confirmations.take(message, packet, remote, now)
        ):
            return True
        queue = self._addressed(message) if is_ours else None
        declaration = queue.declaration if queue is not None else None
        claims = remote.manager in self._routes.peers
        reason = why_unwelcome(head, remote.manager, is_ours=is_ours, claims=claims, queue=declaration)
        if reason is not None:
            raise NotWelcomeError(reason)
        admission = admission_of_stranger(
            declaration,
            transactional=message.transaction is not None,
            is_invited=declaration is not None and self._outbound.has_invited(remote, declaration.identifier),
        )
        if isinstance(admission, MessageClass):
            self._note_refusal(message, packet, admission, remote)
            return True
        assert queue is not None
        if queue.size_bytes + len(packet) > self._settings.strangers_queue_bytes:
            self._note_refusal(message, packet, MessageClass.NACK_Q_EXCEED_QUOTA, remote)
            return True
        return False

    def _forward(self, head: Head, packet: bytes, remote: Remote, now: Moment) -> None:
        """Somebody else's: count the hop and pass it on, its TransactionHeader untouched.  3.1.5.8.2, 3.1.1.6.2

        What has come again, and waits to be sent as it is, has been saved already: it keeps its place in the queue.
        A transactional message whose time is over goes on, unless the figures are followed: only its destination knows
        whether it had it before.
        """
        flags = head.flags
        transactional, recoverable = bool(flags & TRANSACTIONAL), bool(flags & RECOVERABLE)
        if flags & HOP_COUNT >= HOP_LIMIT:
            message = decode_message(packet)
            if transactional and head.source_queue_manager == self._identity:
                self._waypoints.duplicate_dropped(packet)
                self._confirmations.came_back(message)
            else:
                self._refuse(Arrival(message, packet, remote), MessageClass.NACK_HOP_COUNT_EXCEEDED)
            return
        if transactional and (not self._ends_late or head.source_queue_manager == self._identity):
            expires_s = None
        else:
            expires_s = reach_deadline_s(packet)
        if expires_s is not None and now.utc_s > expires_s:
            arrival = Arrival(decode_message(packet), packet, remote)
            self._refuse(arrival, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
            return
        queue = self._outbound.towards_manager(
            head.queue_manager_address,
            priority_of(packet, flags),
            order=goes_to_private(packet, flags, ORDER_QUEUE),
        )
        packet = passed_on(packet)
        name = head.source_queue_manager, head.message_id
        earlier = queue.earlier_copy(name, packet) if transactional else None
        if earlier == AS_IT_IS:
            self._waypoints.duplicate_dropped(packet)
            return
        self.forwarded_count += 1
        if recoverable or not queue.window.fits:
            self.stored_bytes += len(packet)
        self._waypoints.forwarded(packet, queue.name)
        joining = Joining(packet, head.message_id, recoverable, expires_s=expires_s)
        if transactional:
            self._outbound.pass_on(queue, joining, name, earlier)
        else:
            self._outbound.put(queue, joining)
        if expires_s is not None:
            self._expiration.expect(expires_s, now)

    def _refuse(
        self, arrival: Arrival, message_class: MessageClass, why: str = "", *, in_doubt: bool = False
    ) -> None:
        """The message ends here; its sender is told.  3.1.5.8.2, 3.1.5.8.8

        why: more than its class says, for the operator.
        """
        message, packet, remote = arrival
        self._note_refusal(message, packet, message_class, remote, why)
        reply_to = self._outbound.reply_to(message, remote)
        packet = without_session_header(packet)
        ending = Ending(packet, message_class, Place.AT_DESTINATION, reply_to=reply_to, in_doubt=in_doubt)
        self._endings.append(ending)

    def _note_refusal(
        self, message: UserMessage, packet: bytes, message_class: MessageClass, remote: Remote, why: str = ""
    ) -> None:
        self.refused_count += 1
        self.refusals[message_class.name] += 1
        self.last_refusal = message_class.name
        facts: dict[str, str | int] = {
            "peer": remote.address,
            "reason": message_class.name,
            "source": guid_text(message.user.source_queue_manager),
            "message_id": message.user.message_id,
            "queue": str(message.user.destination_queue),
        }
        if why:
            facts["why"] = why
        self._notes.append(Note("message-refused", facts))
        self._waypoints.ended(packet, message_class)

    def _let_in(self, queue: LocalQueue, arrival: Arrival, now: Moment) -> None:
        """The message is for this queue, and comes next if it is transactional: insert it, or refuse it.  3.1.5.8.8"""
        admitted = self._admitted(queue, arrival, now)
        if admitted is not None:
            self._insert(queue, *admitted, now)

    def _insert(
        self, queue: LocalQueue, message: UserMessage, packet: bytes, now: Moment, *, was_held: bool = False
    ) -> None:
        """A message joins a queue. One that was held takes the place of what was, so the store does not grow."""
        user = message.user
        recoverable, priority = bool(user.flags & RECOVERABLE), priority_of(packet, user.flags)
        if not was_held and (recoverable or not queue.lane(priority).window.fits):
            self.stored_bytes += len(packet)
        expires_s = None if user.time_to_be_received_s == INFINITE else receive_deadline_s(packet)
        joining = Joining(packet, user.message_id, recoverable, asks_final_ack(message), expires_s)
        queue.insert(joining, self._writes, priority=priority)
        self._inserted(queue, message, joining, now)

    def _admitted(self, queue: LocalQueue, arrival: Arrival, now: Moment) -> tuple[UserMessage, bytes] | None:
        """A message and its packet as they join the queue; None if it is refused.  3.1.5.8.3, 3.1.7.1.2, 3.1.5.8.8

        What is encrypted or signed, and came by a direct format name, is judged as all else is: the text says nothing
        of it, and no application could read it.
        """
        message, packet, _ = arrival
        packet = without_session_header(packet)
        protection = queue.declaration.protection
        try:
            if message.security is not None:
                message = self._guard.opened(message, protection.weak_ciphers, now)
                packet = without_session_header(encode_packet(message))
            protection.check(message, encrypted=is_encrypted(arrival.message))
        except ProtectionError as error:
            self._refuse(arrival, error.message_class, error.reason)
            return None
        deadline_s = reach_deadline_s(packet)
        if deadline_s is not None and now.utc_s > deadline_s:
            self._refuse(arrival, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        elif not queue.has_room(len(packet)):
            self._refuse(arrival, MessageClass.NACK_Q_EXCEED_QUOTA)
        else:
            return message, packet
        return None

    def _inserted(self, queue: LocalQueue, message: UserMessage, joining: Joining, now: Moment) -> None:
        self._queues.stir(queue)
        if joining.expires_s is not None:
            self._expiration.expect(joining.expires_s, now)
        if message.properties.acknowledge_arrival:
            self._endings.append(Ending(joining.packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION))

    # Transactional messages at their destination

    def _arrived_in_sequence(self, queue: LocalQueue, arrival: Arrival, now: Moment) -> None:
        """Accept in order and once; hold what is early; drop what came before.  3.1.5.8.6

        One that comes next and is refused, as its time is over or the queue is full, is dealt with for good: the
        sequence goes on behind it, and its sender is told by a FinalAck.
        """
        message, packet, remote = arrival
        header = message.transaction
        assert header is not None
        sequence = self._sequence(message, queue, remote, now)
        if sequence.peer != remote.address:
            sequence.peer, sequence.reply_to = remote.address, self._outbound.reply_to(message, remote)
        verdict = sequence.take(header, len(packet), may_hold=remote.is_proven)
        if verdict is Verdict.ACCEPT:
            self._let_in(queue, arrival, now)
            if sequence.held_count:
                self._release(sequence, queue, remote, now)
        elif verdict is Verdict.HOLD:
            packet = without_session_header(packet)
            self.stored_bytes += len(packet)
            held = sequence.hold(header, packet)
            key = message_key(sequence.held_queue, held.position)
            self._waypoints.held(packet, queue.name)
            row = MessageRow(key, packet, message.user.message_id, asks_final_ack(message))
            self._writes.put(row, queue.name)
        elif verdict is Verdict.DUPLICATE:
            self._waypoints.duplicate_dropped(packet)
        else:
            self._waypoints.dropped(packet, queue.name)
        name = message.user.destination_queue
        if sequence.name != name and without_case(sequence.name) != without_case(name):
            self._drop_copies(message, queue)
        self._writes.changed(sequence, urgent=verdict is Verdict.ACCEPT)
        sequence.schedule_order_ack(now)

    def _drop_copies(self, message: UserMessage, queue: LocalQueue) -> None:
        """A message has joined a sequence under another name; an early copy of it may be held under its own."""
        assert message.transaction is not None
        for own in self._sequences.under_its_name(message, queue.queue):
            position = own.drop_held(message.transaction)
            if position is not None:
                self._writes.later.remove(own.held_queue, position, position)

    def _release(self, sequence: IncomingSequence, queue: LocalQueue, remote: Remote, now: Moment) -> None:
        """A gap is closed: what was held behind it is in order now."""
        accepted, stale = sequence.release()
        for held in accepted:
            arrival = Arrival(decode_message(held.packet), held.packet, remote)
            admitted = self._admitted(queue, arrival, now)
            if admitted is None:
                stale.append(held)
                continue
            message, packet = admitted
            if packet is not held.packet:
                # What joins the queue is not what is on disk.
                self._insert(queue, message, packet, now, was_held=True)
                stale.append(held)
                continue
            joining = Joining(
                held.packet,
                message.user.message_id,
                recoverable=True,
                final_ack=asks_final_ack(message),
                expires_s=receive_deadline_s(held.packet),
            )
            queue.insert_held(message_key(sequence.held_queue, held.position), joining, self._writes)
            self._inserted(queue, message, joining, now)
        for held in stale:
            self._writes.later.remove(sequence.held_queue, held.position, held.position)

    def _sequence(
        self, message: UserMessage, queue: LocalQueue, remote: Remote, now: Moment
    ) -> IncomingSequence:
        sequence = self._sequences.find(message, queue.queue)
        if sequence is None:
            if remote.is_proven and self.known_count >= self._settings.maximum_sequences:
                raise NoRoomError(f"{self.known_count:,} senders are known, which is maximum_sequences")
            held_queue = 0 if remote.is_proven else self._place_of_stranger(now)
            held_queue = held_queue or self._outbound.next_queue()
            key = message.user.source_queue_manager, queue.queue, message.user.destination_queue
            self._writes.urgent().queues.append(QueueRow(held_queue, QueueKind.HELD, held_name(key)))
            sequence = IncomingSequence(key, held_queue, self._settings, self._timers, now)
            self._sequences.add(sequence)
        if not remote.is_proven:
            self._strangers[sequence] = None
            self._strangers.move_to_end(sequence)
        return sequence

    def _place_of_stranger(self, now: Moment) -> int:
        """The number of the HELD queue that a stranger's new sequence takes over; 0 if there is room for one more.

        The sequence that was accessed longest ago and never accepted anything goes first; then one that was not
        accessed for STRANGER_IDLE_S.

        Raises:
            NoRoomError: all are in use.
        """
        if len(self._strangers) < self._settings.strangers_sequences:
            return 0
        chosen = next((one for one in self._strangers if not one.number), next(iter(self._strangers)))
        if chosen.number and now.utc_s - chosen.last_access_s < STRANGER_IDLE_S:
            raise NoRoomError(f"{len(self._strangers):,} strangers are known, which is strangers_sequences")
        self._timers.stop(Timer.ORDER_ACK_SEND, chosen)
        self._sequences.remove(chosen)
        del self._strangers[chosen]
        return chosen.held_queue

    @property
    def known_count(self) -> int:
        """How many sequences there are of senders that are no strangers."""
        return len(self._sequences) - len(self._strangers)

    @property
    def strangers_count(self) -> int:
        """How many there are of strangers."""
        return len(self._strangers)

    def queue_deleted(self, queue: LocalQueue) -> None:
        """What waits behind a gap is not in the queue, and its senders still have it. What had come is still known."""
        for sequence in self._sequences:
            if sequence.queue == queue.queue:
                self._of_deleted[sequence.source, local_name(sequence.name)] = queue.queue
                if sequence.held_count:
                    self._writes.later.remove(sequence.held_queue, 1, sequence.forget_held())

    def _came_before(self, arrival: Arrival, now: Moment) -> bool:
        """Whether it is a copy of what came before its queue was deleted: that has its own end, and needs no other."""
        message = arrival.message
        source, name = message.user.source_queue_manager, message.user.destination_queue
        header, deleted = message.transaction, self._of_deleted.get((source, local_name(name)))
        if deleted is None:
            deleted = self._queues.deleted(name)
        if header is None or deleted is None:
            return False
        sequence = self._sequences.find(message, deleted)
        if sequence is None or not sequence.has_had(header):
            return False
        sequence.duplicate_count += 1
        self._waypoints.duplicate_dropped(arrival.packet)
        sequence.schedule_order_ack(now)
        return True

    def order_ack_due(self, sequence: IncomingSequence, now: Moment) -> None:
        """The Order Ack Send Timer is due.  3.1.6.9"""
        sequence.order_ack_sent(now)
        place = sequence.place
        if place is not None:
            message_id = self._outbound.next_message_id()
            ack = make_order_ack(sequence.reply_to, place, self._identity, message_id, now)
            self._outbound.acknowledge(ack, sequence.reply_to)

    # After a restart

    def restore(self, state: StoredState, now: Moment) -> None:
        """Go on with the sequences that the store knows, and with what they hold."""
        held = {stored.queue: stored for stored in state.queues if stored.kind is QueueKind.HELD}
        keys = {number: key_of_held(stored.name) for number, stored in held.items()}
        by_number: dict[int, IncomingSequence] = {}
        for row in sorted(state.incoming, key=LAST_ACCESS):
            key = keys[row.queue]
            if row.source != key[0]:
                continue  # Of a stranger whose place another has taken.
            sequence = IncomingSequence(key, row.queue, self._settings, self._timers, now)
            sequence.restore(row, held[row.queue].last_used)
            if row.source not in self._routes.peers and row.source != self._identity:
                self._strangers[sequence] = None
            self._sequences.add(sequence)
            by_number[row.queue] = sequence
        for stored_key, packet in state.resident:
            number = stored_key // message_key(1, 0)
            if number not in keys:
                continue
            message = decode_message(packet)
            assert message.transaction is not None
            position = stored_key - message_key(number, 0)
            by_number[number].restore_held(message.transaction, packet, position)
        for queue in self._queues.gone:
            self.queue_deleted(queue)
