"""All that leaves: queues and sequences by destination, made when first needed, restored after a restart."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.configuration import Settings
from mqproto.effects import MessageRow, QueueKind, QueueRow, StoredQueue, StoredState, Waiting, message_key
from mqproto.moment import Moment
from mqproto.neighbours import Neighbours
from mqproto.pending import PendingWrites
from mqproto.routing import NextHop, Routes
from mqproto.timers import Timers
from mqproto.transfer.acknowledgments import reply_to_sender
from mqproto.transfer.incoming import ReplyTo
from mqproto.transfer.outgoing import OutgoingQueue, OutgoingSequence
from mqproto.wire import NULL_GUID, UserMessage, encode_packet
from mqproto.wire.guid import Guid, guid_from_text, guid_text

MESSAGE_ID_BLOCK = 65_536
"""MessageIDs are set aside in the store in blocks: after a crash, what is left of one is never used."""


class Outbound:
    """The way out of a queue manager.  [MS-MQQB] 3.1.7.12"""

    def __init__(
        self,
        identity: Guid,
        routes: Routes,
        settings: Settings,
        timers: Timers,
        writes: PendingWrites,
        neighbours: Neighbours,
        state: StoredState,
        now: Moment,
    ) -> None:
        self._identity = identity
        self._routes = routes
        self._settings = settings
        self._timers = timers
        self._writes = writes
        self._neighbours = neighbours
        self._queues: dict[int, OutgoingQueue] = {}
        self._by_manager: dict[Guid, OutgoingQueue] = {}
        self._by_host: dict[str, OutgoingQueue] = {}
        self._sequences: dict[str, OutgoingSequence] = {}
        self._by_time_stamp: dict[int, OutgoingSequence] = {}
        self._finals: dict[str, int] = {}
        self._next_queue = 1 + max((stored.queue for stored in state.queues), default=0)
        self._next_message_id = self._message_id_ceiling = state.counters.get("message_id_ceiling", 1)
        self._last_time_stamp = state.counters.get("sequence_time_stamp", 0)
        self._restore(state, now)

    # Numbers that are never given twice

    def next_queue(self) -> int:
        """A number for a queue that is new to the store."""
        self._next_queue += 1
        return self._next_queue - 1

    def next_message_id(self) -> int:
        """MessageIdOrdinal.  3.1.1.3"""
        if self._next_message_id == self._message_id_ceiling:
            self._message_id_ceiling += MESSAGE_ID_BLOCK
            self._writes.now.counters["message_id_ceiling"] = self._message_id_ceiling
        self._next_message_id += 1
        return (self._next_message_id - 1) & 0xFFFFFFFF

    def _next_time_stamp(self, now: Moment) -> int:
        """A TimeStamp above all before it, so that it tells one sequence from another, on this node and in time.

        3.1.1.3.1 asks that a TxSequenceID be greater than any before; an OrderAck names a sequence by nothing else.
        """
        self._last_time_stamp = max(self._last_time_stamp + 1, now.utc_s)
        self._writes.now.counters["sequence_time_stamp"] = self._last_time_stamp
        return self._last_time_stamp

    # Queues

    def queue(self, number: int) -> OutgoingQueue | None:
        """The outgoing queue or sequence with this number in the store."""
        return self._queues.get(number)

    def __iter__(self) -> Iterator[OutgoingQueue]:
        return iter(self._queues.values())

    def towards_manager(self, manager: Guid) -> OutgoingQueue:
        """The queue of what is neither kept for an OrderAck nor for us, by destination queue manager."""
        queue = self._by_manager.get(manager)
        if queue is None:
            queue = self._new_queue(guid_text(manager), self._routes.to_manager(manager))
            self._by_manager[manager] = queue
        return queue

    def towards_host(self, host: str, manager: Guid | None = None) -> OutgoingQueue:
        """The same for direct format names, by the host that they name."""
        queue = self._by_host.get(host)
        if queue is None:
            queue = self._by_host[host] = self._new_queue(host, self._hop_to_host(host, manager))
        return queue

    def _hop_to_host(self, host: str, manager: Guid | None) -> NextHop:
        hop = self._routes.to_host(host)
        if hop.manager is None and manager is not None:
            hop = self._routes.to_manager(manager) or NextHop(manager, host, hop.port)
        return hop

    def _new_queue(self, name: str, hop: NextHop | None) -> OutgoingQueue:
        return self._add(OutgoingQueue(self.next_queue(), name, self._settings), hop)

    def _add(self, queue: OutgoingQueue, hop: NextHop | None) -> OutgoingQueue:
        self._queues[queue.queue] = queue
        if hop is not None:
            self._neighbours.attach(queue, hop)
        return queue

    def put(
        self, queue: OutgoingQueue, packet: bytes, message_id: int, *, recoverable: bool, final_ack: bool
    ) -> None:
        """A message joins a queue; it is stored if it must survive a crash, or if memory is short."""
        position = queue.next_position()
        stored = recoverable or not queue.window.fits
        if stored:
            if not queue.registered:
                self._register(queue)
            self._writes.put(MessageRow(message_key(queue.queue, position), packet, message_id, final_ack))
        queue.append(Waiting(position, packet, final_ack, stored))
        self._neighbours.wake(queue)

    def _register(self, queue: OutgoingQueue) -> None:
        self._writes.now.queues.append(QueueRow(queue.queue, queue.kind, queue.name))
        queue.registered = True

    def reply_to(self, message: UserMessage, peer: str) -> ReplyTo:
        """Where the acknowledgments of a message go: by a direct name only if that can lead to its sender.

        Whoever receives a direct name without its owner's GUID is meant by it (3.1.5.8.5). So where several queue
        managers share the address that the message came from, only the GUID tells them apart.
        """
        reply_to = reply_to_sender(message, peer)
        if reply_to.direct_host is None or self._routes.to_host(peer).manager == reply_to.manager:
            return reply_to
        return (
            reply_to if self._routes.to_manager(reply_to.manager) is None else ReplyTo(reply_to.manager, None)
        )

    def acknowledge(self, message: UserMessage, reply_to: ReplyTo) -> None:
        """Send an OrderAck or a FinalAck on its way.  3.1.7.17

        An OrderAck that has no way to go is dropped; the sender's resend asks for another.
        """
        if reply_to.direct_host is not None:
            queue = self.towards_host(reply_to.direct_host, reply_to.manager)
        else:
            queue = self.towards_manager(reply_to.manager)
        recoverable = message.user.recoverable
        if not recoverable and self._neighbours.of_queue(queue) is None:
            return
        self.put(
            queue, encode_packet(message), message.user.message_id, recoverable=recoverable, final_ack=False
        )

    def resume(self, queue: OutgoingQueue) -> None:
        """An acknowledgment came: the rest of a resend may go."""
        self._neighbours.wake(queue)

    # Sequences

    def sequence_to(self, name: str, manager: Guid | None, host: str | None, now: Moment) -> OutgoingSequence:
        """The sequence of our transactional messages to one destination queue, by its format name."""
        known = self._sequences.get(name)
        if known is not None:
            return known
        sequence = OutgoingSequence(
            self.next_queue(), name, manager, self._next_time_stamp(now), self._settings, self._timers, now
        )
        self._register(sequence)
        return self._add_sequence(sequence, host)

    def _add_sequence(self, sequence: OutgoingSequence, host: str | None) -> OutgoingSequence:
        manager = sequence.destination_manager
        hop = self._routes.to_manager(manager) if manager is not None else None
        if host is not None:
            hop = self._hop_to_host(host, manager)
        self._sequences[sequence.name] = sequence
        self._by_time_stamp[sequence.identifier.time_stamp] = sequence
        self._queues[sequence.queue] = sequence
        if hop is not None:
            self._neighbours.attach(sequence, hop)
        return sequence

    def sequence_by_time_stamp(self, time_stamp: int) -> OutgoingSequence | None:
        """The sequence whose TxSequenceIDs have this TimeStamp."""
        return self._by_time_stamp.get(time_stamp)

    def sequences_towards(self, manager: Guid) -> list[OutgoingSequence]:
        """The sequences to queues of one queue manager that wait for an OrderAck."""
        return [s for s in self._sequences.values() if s.destination_manager == manager and s.count]

    def final_queue_of(self, sequence: OutgoingSequence) -> int:
        """The queue for messages of a sequence that had their OrderAck and wait for their FinalAck."""
        if not sequence.final_queue:
            sequence.final_queue = self._finals[sequence.name] = self.next_queue()
            self._writes.now.queues.append(QueueRow(sequence.final_queue, QueueKind.FINAL, sequence.name))
        return sequence.final_queue

    # After a restart

    def _restore(self, state: StoredState, now: Moment) -> None:
        rows = {row.queue: row for row in state.outgoing}
        self._finals = {
            stored.name: stored.queue for stored in state.queues if stored.kind is QueueKind.FINAL
        }
        for stored in state.queues:
            if stored.kind is QueueKind.OUTGOING:
                self._restore_queue(stored)
            elif stored.kind is QueueKind.SEQUENCE:
                row = rows[stored.queue]
                manager = None if row.manager == NULL_GUID else row.manager
                sequence = OutgoingSequence(
                    stored.queue,
                    stored.name,
                    manager,
                    row.time_stamp,
                    self._settings,
                    self._timers,
                    now,
                    stored,
                )
                sequence.final_queue = self._finals.get(stored.name, 0)
                low, high = message_key(stored.queue, 0), message_key(stored.queue + 1, 0)
                gaps = [(first - low, last - low) for first, last in state.gaps if low <= first < high]
                sequence.restore(row, gaps, stored.first)
                self._add_sequence(sequence, host_of(stored.name))

    def _restore_queue(self, stored: StoredQueue) -> None:
        queue = OutgoingQueue(stored.queue, stored.name, self._settings, stored)
        try:
            manager = guid_from_text(stored.name)
        except ValueError:
            self._by_host[stored.name] = self._add(queue, self._hop_to_host(stored.name, None))
        else:
            self._by_manager[manager] = self._add(queue, self._routes.to_manager(manager))


def host_of(format_name: str) -> str | None:
    r"""The host that a direct format name calls: `10.0.0.7` of `DIRECT=TCP:10.0.0.7\private$\q`; None for others."""
    keyword, _, rest = format_name.partition("=")
    if keyword != "DIRECT":
        return None
    return rest.partition(":")[2].partition("\\")[0]
