"""Accepts transactional messages at their destination, in order and only once.  3.1.5.8.6, 3.1.6.9"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.arriving.inserting import Inserting, NoRoomError, Room
from mqproto.manager.localqueues import LocalQueues, local_name
from mqproto.manager.outbound import Outbound
from mqproto.queues.localqueue import LocalQueue
from mqproto.routing import Routes
from mqproto.routing.peers import host_group
from mqproto.session import Remote
from mqproto.transfer.incoming import (
    ArrivalVerdict,
    IncomingSequence,
    SequenceKey,
    held_name,
    key_of_held,
    make_order_ack,
)
from mqproto.transfer.places import StrangersPlaces, returning
from mqproto.transfer.spellings import IncomingSequences, without_case
from mqproto.turn.desk import Desk
from mqproto.turn.effects import IncomingRow, MessageRow, QueueKind, QueueRow, StoredState, message_key
from mqproto.wire import QueueName, TransactionHeader, decode_message, without_session_header
from mqproto.wire.glance import head_of
from mqproto.wire.guid import Guid
from mqproto.wire.shapes import Run

LAST_ACCESS: Final = attrgetter("last_access_s")


class InSequence:
    """The incoming sequences of neighbours and of strangers."""

    def __init__(
        self,
        desk: Desk,
        sequences: IncomingSequences,
        outbound: Outbound,
        queues: LocalQueues,
        inserting: Inserting,
        room: Room,
        routes: Routes,
    ) -> None:
        self._desk = desk
        self._sequences = sequences
        self._outbound = outbound
        self._queues = queues
        self._inserting = inserting
        self._room = room
        self._routes = routes
        self.places = StrangersPlaces()
        self.from_before: dict[Guid, Sequence[IncomingRow]] = {}
        """The stored sequences of queue managers that used to be strangers and are now declared."""
        self._of_deleted: dict[tuple[Guid, QueueName], int] = {}
        """The numbers of deleted queues, by the source of messages and that source's name for the queue."""

    def arrived(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> None:
        """Accept messages in order and only once.  3.1.5.8.6

        Messages that are early are held, and those that have come before are dropped. If the next message of a sequence
        is refused because it has expired or the queue is full, the refusal is final: the sequence continues after it,
        and a FinalAck tells its sender.
        """
        shape, name = run.shape, run.facts.destination_queue
        following: list[bytes] = []
        """Accepted messages that are not yet in the queue."""
        sequence: IncomingSequence | None = None
        for packet in run.packets:
            header = shape.header_of(packet)
            if sequence is None or header.tx_sequence_id != sequence.identifier:
                sequence = self._sequence(run, header, queue, remote, now)
                if sequence.peer != (peer := remote.called or remote.address):
                    sequence.peer = peer
                    sequence.reply_to = self._outbound.reply_to(run.message, remote)
                sequence.schedule_order_ack(now)
            verdict = sequence.take(header, len(packet), may_hold=remote.is_proven)
            if verdict is ArrivalVerdict.HOLD and not self._room.may_hold(len(packet)):
                verdict = sequence.turn_away(header)
            self._desk.writes.changed(sequence, urgent=verdict is ArrivalVerdict.ACCEPT)
            if verdict is ArrivalVerdict.ACCEPT:
                following.append(packet)
                if sequence.held_count:
                    self._inserting.let_in(queue, Run(shape, following), remote, now)
                    following = []
                    self._release(sequence, queue, remote, now)
            else:
                if following:
                    self._inserting.let_in(queue, Run(shape, following), remote, now)
                    following = []
                self._not_accepted(verdict, sequence, queue, run, header, packet)
            if sequence.name != name and without_case(sequence.name) != without_case(name):
                self._drop_copies(run, header, queue)
        if following:
            self._inserting.let_in(
                queue, run if len(following) == len(run.packets) else Run(shape, following), remote, now
            )

    def _not_accepted(
        self,
        verdict: ArrivalVerdict,
        sequence: IncomingSequence,
        queue: LocalQueue,
        run: Run,
        header: TransactionHeader,
        packet: bytes,
    ) -> None:
        """Drop a duplicate or a message for which there is no room.

        Hold an early message until the gap before it is closed.
        """
        if verdict is ArrivalVerdict.DUPLICATE:
            self._desk.waypoints.duplicate_dropped(packet)
        elif verdict is ArrivalVerdict.OVERFLOW:
            self._desk.waypoints.dropped(packet, queue.name)
        else:
            packet = without_session_header(packet)
            self._room.stored_bytes += len(packet)
            held = sequence.hold(header, packet)
            key = message_key(sequence.held_queue, held.position)
            self._desk.waypoints.held(packet, queue.name)
            row = MessageRow(key, packet, head_of(packet).message_id, run.facts.final_ack)
            self._desk.writes.put([row], queue.name)

    def _drop_copies(self, run: Run, header: TransactionHeader, queue: LocalQueue) -> None:
        """Drop held copies of a message that is now part of a sequence.

        The copies arrived early, addressed to another name of the queue.
        """
        source = head_of(run.packets[0]).source_queue_manager
        for own in self._sequences.under_name(source, queue.queue, run.facts.destination_queue):
            position = own.drop_held(header)
            if position is not None:
                self._desk.writes.later.remove(own.held_queue, position, position)

    def _release(self, sequence: IncomingSequence, queue: LocalQueue, remote: Remote, now: Moment) -> None:
        """Insert the messages that were held after a gap that is now closed."""
        accepted, stale = sequence.release()
        for held in accepted:
            key = message_key(sequence.held_queue, held.position)
            if self._inserting.insert_held(queue, held, key, remote, now):
                stale.append(held)
        for held in stale:
            self._desk.writes.later.remove(sequence.held_queue, held.position, held.position)

    def _sequence(
        self, run: Run, header: TransactionHeader, queue: LocalQueue, remote: Remote, now: Moment
    ) -> IncomingSequence:
        source, name = head_of(run.packets[0]).source_queue_manager, run.facts.destination_queue
        sequence = self._sequences.find(source, queue.queue, name, header)
        if sequence is None:
            if remote.is_proven and self.known_count >= self._desk.settings.maximum_sequences:
                raise NoRoomError(f"{self.known_count:,} senders are known, which is maximum_sequences")
            held_queue = 0 if remote.is_proven else self._place_given_up(source, remote)
            rows = self.from_before.get(source, ())
            sequence = self._begin((source, queue.queue, name), held_queue, header, rows, now)
        if not remote.is_proven:
            self.places.take(sequence, host_group(remote.address))
        return sequence

    def _begin(
        self,
        key: SequenceKey,
        held_queue: int,
        header: TransactionHeader,
        rows: Sequence[IncomingRow],
        now: Moment,
    ) -> IncomingSequence:
        """Begin a sequence that is new in memory, although it may already be in the store.

        held_queue: the number of the HELD queue that the sequence takes over; 0 for a new HELD queue.
        """
        held_queue = held_queue or self._outbound.numbers.next_queue()
        self._desk.writes.urgent().queues.append(QueueRow(held_queue, QueueKind.HELD, held_name(key)))
        sequence = IncomingSequence(key, held_queue, self._desk.settings, self._desk.timers, now)
        _, queue, name = key
        if (row := returning(rows, queue, name, header)) is not None:
            sequence.restore(row._replace(reply_host=""), 0)
            self._desk.writes.later.incoming[row.source, row.queue] = None
        self._sequences.add(sequence)
        return sequence

    def _place_given_up(self, source: Guid, remote: Remote) -> int:
        """Return the number of the HELD queue that a stranger's sequence takes over.

        Return 0 if there is room for a new one. A sequence that gives up its place is removed from memory.
        """
        if len(self.places) < self._desk.settings.strangers_sequences:
            return 0
        sequence, stays = self.places.give_up(host_group(remote.address), source)
        self._desk.timers.stop(Timer.ORDER_ACK_SEND, sequence)
        self._sequences.remove(sequence)
        self._desk.writes.give_up(sequence, stays)
        return sequence.held_queue

    @property
    def known_count(self) -> int:
        """The number of sequences whose senders are not strangers."""
        return len(self._sequences) - len(self.places)

    def queue_deleted(self, queue: LocalQueue) -> None:
        """Drop messages held after gaps, because their senders still have them.

        Accepted numbers are remembered.
        """
        for sequence in self._sequences:
            if sequence.queue == queue.queue:
                self._of_deleted[sequence.source, local_name(sequence.name)] = queue.queue
                if sequence.held_count:
                    self._desk.writes.later.remove(sequence.held_queue, 1, sequence.forget_held())

    def came_before(self, run: Run, now: Moment) -> bool:
        """Return whether a message is a copy of one that arrived, and ended, before its queue was deleted."""
        message = run.message
        source, name = message.user.source_queue_manager, message.user.destination_queue
        header, deleted = message.transaction, self._of_deleted.get((source, local_name(name)))
        if deleted is None:
            deleted = self._queues.deleted(name)
        if header is None or deleted is None:
            return False
        sequence = self._sequences.find(source, deleted, name, header)
        if sequence is None or not sequence.has_had(header):
            return False
        sequence.duplicate_count += 1
        self._desk.waypoints.duplicate_dropped(run.packets[0])
        sequence.schedule_order_ack(now)
        return True

    def order_ack_due(self, sequence: IncomingSequence, now: Moment) -> None:
        """Send an OrderAck, because the Order Ack Send Timer is due.  3.1.6.9"""
        sequence.order_ack_sent(now)
        place = sequence.place
        if place is not None:
            message_id = self._outbound.numbers.next_message_id()
            ack = make_order_ack(sequence.reply_to, place, self._desk.identity, message_id, now)
            self._outbound.acknowledge(ack, sequence.reply_to)

    def restore(self, state: StoredState, now: Moment) -> None:
        """Restore the sequences in the store, and the messages that they hold."""
        held = {stored.queue: stored for stored in state.queues if stored.kind is QueueKind.HELD}
        keys = {number: key_of_held(stored.name) for number, stored in held.items()}
        by_number: dict[int, IncomingSequence] = {}
        for row in sorted(state.incoming, key=LAST_ACCESS):
            key = keys[row.queue]
            if row.source != key[0]:
                continue  # It belongs to a stranger whose place another has taken.
            sequence = IncomingSequence(key, row.queue, self._desk.settings, self._desk.timers, now)
            sequence.restore(row, held[row.queue].last_used)
            if row.source not in self._routes.peers and row.source != self._desk.identity:
                self.places.take(sequence, host_group(row.reply_host))
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

    def find(self, run: Run, queue: int) -> IncomingSequence | None:
        """Return the sequence of a run of messages to the queue with this number.

        Return None if it is not in memory.
        """
        source, name = head_of(run.packets[0]).source_queue_manager, run.facts.destination_queue
        return self._sequences.find(source, queue, name, run.shape.header_of(run.packets[0]))

    def bring_back(
        self, run: Run, queue: LocalQueue, rows: Sequence[IncomingRow], remote: Remote, now: Moment
    ) -> None:
        """Restore a stranger's sequence from the store's rows.

        Then continue with the message that waited for it.
        """
        if self.find(run, queue.queue) is None:
            source, name = head_of(run.packets[0]).source_queue_manager, run.facts.destination_queue
            held_queue, header = self._place_given_up(source, remote), run.shape.header_of(run.packets[0])
            self._begin((source, queue.queue, name), held_queue, header, rows, now)
        self.arrived(queue, run, remote, now)
