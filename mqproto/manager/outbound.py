"""Outgoing queues and sequences by destination: made when first needed, restored after a restart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter

from mqproto.base.moment import Moment
from mqproto.messages.destinations import Destination
from mqproto.neighbours.met import How
from mqproto.neighbours.neighbours import Neighbours
from mqproto.queues.joining import Joining, joining
from mqproto.routing import NextHop, Routes
from mqproto.routing.peers import address_of
from mqproto.session import Remote
from mqproto.transfer.acknowledgments import reply_to_sender
from mqproto.transfer.copies import MessageName
from mqproto.transfer.numbering import USED_UP, block_after
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import FIRST_TIME_STAMP, Succession, one_spelling, time_stamp_of
from mqproto.turn.desk import Desk
from mqproto.turn.effects import (
    LIFE,
    MESSAGE_ID_CEILING,
    SEQUENCE_ORDINAL_CEILING,
    SEQUENCE_ORDINAL_FIRST,
    NewLife,
    Note,
    QueueKind,
    QueueRow,
    StoredQueue,
    StoredState,
    message_key,
)
from mqproto.turn.endings import ReplyTo
from mqproto.wire import NULL_GUID, TxSequenceId, UserMessage, encode_packet
from mqproto.wire.guid import Guid, guid_from_text, guid_text

MESSAGE_ID_BLOCK = 65_536
"""How many MessageIDs the store sets aside at a time. After a crash, the rest of a block is never used."""

ORDINAL_BLOCK = 4_096
"""How many Ordinals of TxSequenceIDs are set aside at a time. Whenever all is acknowledged, one goes."""
LAST_NUMBER_OF = attrgetter("last_number")
STRANGERS_HOSTS = 64
STRANGERS_QUEUES = 1_000
ANSWERS = 1_000
"""The most hosts that are called because strangers ask for answers there, the most queues to those who were
met, and the most messages that wait for each such host, and for each that was met."""


class Outbound:
    """The way out of a queue manager.  [MS-MQQB] 3.1.7.12"""

    def __init__(
        self, desk: Desk, routes: Routes, neighbours: Neighbours, state: StoredState, now: Moment
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._neighbours = neighbours
        self._queues: dict[int, OutgoingQueue] = {}
        self._by_name: dict[tuple[str, int], OutgoingQueue] = {}
        self._named: dict[str, list[OutgoingQueue]] = {}
        """The same queues, and the sequences, by name alone, in lower case."""
        self._by_manager: dict[tuple[Guid, int, bool], OutgoingQueue] = {}
        self._wayless: dict[Guid, list[OutgoingQueue]] = {}
        """The queues and sequences to queue managers that are neither declared nor met."""
        self._strangers_queues: OrderedDict[tuple[Guid, int, bool], OutgoingQueue] = OrderedDict()
        """Those of `_by_manager` that lead to undeclared queue managers, the one asked for longest ago first."""
        self._strangers_hosts: set[str] = set()
        self._dice = state.dice
        self._first_ordinal = state.counters.get(SEQUENCE_ORDINAL_FIRST, 0)
        self._ordinal_ceiling = state.counters.get(SEQUENCE_ORDINAL_CEILING, 0)
        self._successions: dict[str, Succession] = {}
        """The successions by their destination's name, in the one spelling."""
        self._by_time_stamp: dict[int, Succession] = {}
        self._numbered: dict[Succession, None] = {}
        """The successions that may have numbers that are given only once, the one with the highest last."""
        self._finals: dict[str, int] = {}
        """The queue of messages that await a FinalAck, by the name of their sequence as the store spells it."""
        self._next_queue = 1 + max((stored.queue for stored in state.queues), default=0)
        self._next_message_id = self._message_id_ceiling = state.counters.get(MESSAGE_ID_CEILING, 1)
        self.acknowledge = self._acknowledge
        self.sequence_to = self._sequence_to
        """Two seams: see manager/parts.py."""
        if state.life is not None:
            self._begin(state.life)
        self._restore(state, now)

    def _begin(self, life: NewLife) -> None:
        """Give no MessageID and no TxSequenceID that an earlier life may have given.  3.1.1.3, 3.1.1.3.1"""
        self._next_message_id = self._message_id_ceiling = life.first_message_id
        self._first_ordinal = self._ordinal_ceiling = max(self._ordinal_ceiling, life.first_sequence_ordinal)
        self._desk.writes.urgent().counters |= {
            LIFE: life.number,
            MESSAGE_ID_CEILING: self._message_id_ceiling,
            SEQUENCE_ORDINAL_CEILING: self._ordinal_ceiling,
            SEQUENCE_ORDINAL_FIRST: self._first_ordinal,
        }

    # Numbers that are never given twice

    def next_queue(self) -> int:
        """A number for a queue that is new to the store."""
        self._next_queue += 1
        return self._next_queue - 1

    def next_message_id(self) -> int:
        """The next MessageIdOrdinal.  3.1.1.3"""
        [message_id] = self.next_message_ids(1)
        return message_id

    def next_message_ids(self, count: int) -> list[int]:
        """The next MessageIdOrdinals, for several messages."""
        first, self._next_message_id = self._next_message_id, self._next_message_id + count
        while self._next_message_id > self._message_id_ceiling:
            self._message_id_ceiling += MESSAGE_ID_BLOCK
            self._desk.writes.urgent().counters[MESSAGE_ID_CEILING] = self._message_id_ceiling
        return [number & 0xFFFFFFFF for number in range(first, self._next_message_id)]

    # Queues

    def queue(self, number: int) -> OutgoingQueue | None:
        """The outgoing queue or sequence with this number in the store."""
        return self._queues.get(number)

    def __iter__(self) -> Iterator[OutgoingQueue]:
        return iter(self._queues.values())

    def towards_manager(self, manager: Guid, priority: int, *, order: bool = False) -> OutgoingQueue:
        """The queue to another queue manager, for messages that are not kept for an OrderAck.

        order: whether it is for the order queue there, and so does not wait behind messages of a higher priority.
        """
        queue = self._by_manager.get((manager, priority, order))
        if queue is None:
            name = guid_text(manager) + ORDER_SUFFIX * order
            queue = self._queue(name, priority, lambda: self._way_to(manager), manager)
            self._by_manager[manager, priority, order] = queue
        return queue

    def _way_to(self, manager: Guid) -> tuple[NextHop, ...]:
        """The way to a queue manager that is declared, or that was met."""
        return self._routes.to_manager(manager) or self._neighbours.met.hop_to(manager)

    def knows(self, manager: Guid) -> bool:
        """Whether a queue manager is declared, or was met."""
        return self._routes.declares(manager) or self._neighbours.met.get(manager) is not None

    def is_declared(self, destination: Destination) -> bool:
        """Whether an operator has declared the queue manager of a destination."""
        return destination.manager is not None and self._routes.declares(destination.manager)

    def expect_answers(
        self, destination: Destination, until_s: int, queues: Collection[int], now: Moment
    ) -> None:
        """Expect answers from a destination that nobody has declared, until then, to these queues of ours."""
        host, manager = destination.host, destination.manager
        met = self._neighbours.met
        if host is not None:
            met.expect_answers(None, host, until_s, queues, now)
            self._neighbours.await_answers((self._routes.to_host(host),), until_s)
        elif manager is not None and (hops := met.hop_to(manager)):
            met.expect_answers(manager, hops[0].host, until_s, queues, now)
            self._neighbours.await_answers(hops, until_s)

    def has_invited(self, remote: Remote, queue: int) -> bool:
        """Whether a stranger may send to a queue of ours, because we asked it for answers there."""
        return remote.is_met and self._neighbours.met.has_invited(remote.manager, queue)

    def leads_to(self, manager: Guid) -> bool:
        """Whether there is a way to a queue manager now."""
        return bool(self._way_to(manager))

    def is_met_at(self, manager: Guid, host: str) -> bool:
        """Whether a queue manager that nobody has declared was met at a host."""
        found = self._neighbours.met.get(manager)
        return found is not None and found.is_at(host)

    def learn(self) -> None:
        """Act on news about queue managers: they were met, have moved, or are forgotten."""
        met = self._neighbours.met
        for manager in met.take_news():
            hops = met.hop_to(manager)
            for queue in self._wayless.pop(manager, ()) if hops else ():
                self._neighbours.attach(queue, hops)
            self._neighbours.moved(manager)

    def towards_host(
        self, host: str, priority: int, manager: Guid | None = None, *, order: bool = False
    ) -> OutgoingQueue:
        """The queue for direct format names, by the host that they name."""
        return self._queue(host + ORDER_SUFFIX * order, priority, lambda: self._hops_to_host(host, manager))

    def towards(self, destination: Destination, priority: int) -> OutgoingQueue:
        """The queue for messages to a destination without a transaction."""
        if destination.host is not None:
            return self.towards_host(destination.host, priority, destination.manager)
        assert destination.manager is not None
        return self.towards_manager(destination.manager, priority)

    def known_towards(self, destination: Destination, priority: int) -> OutgoingQueue | None:
        """The same queue, if it exists already."""
        if destination.host is not None:
            return self._by_name.get((destination.host, priority))
        assert destination.manager is not None
        return self._by_manager.get((destination.manager, priority, False))

    def _hops_to_host(self, host: str, manager: Guid | None) -> tuple[NextHop, ...]:
        hop = self._routes.to_host(host)
        if hop.manager is None and manager is not None:
            return self._routes.to_manager(manager) or (NextHop(manager, host, hop.port),)
        return (hop,)

    def _queue(
        self, name: str, priority: int, hops: Callable[[], tuple[NextHop, ...]], manager: Guid | None = None
    ) -> OutgoingQueue:
        queue = self._by_name.get((name, priority))
        if queue is None:
            queue = OutgoingQueue(self.next_queue(), name, self._desk.settings, priority=priority)
            self._add(queue, hops(), manager)
            self._take_over_hold(queue)
        return queue

    def _take_over_hold(self, queue: OutgoingQueue) -> None:
        """Pause a new queue if an operator has paused its name: all priorities pause together."""
        if any(other.on_hold for other in self.named(queue.name)):
            self.hold(queue, on_hold=True)

    def _add(self, queue: OutgoingQueue, hops: tuple[NextHop, ...], manager: Guid | None = None) -> None:
        self._queues[queue.queue] = queue
        self._named.setdefault(queue.name.lower(), []).append(queue)
        if not isinstance(queue, OutgoingSequence):
            self._by_name[queue.name, queue.priority] = queue
        if hops:
            self._neighbours.attach(queue, hops)
        elif manager is not None and not self._routes.declares(manager):
            self._wayless.setdefault(manager, []).append(queue)

    def named(self, name: str) -> list[OutgoingQueue]:
        """The queues and the sequence with this name, one for each priority."""
        return self._named.get(name.lower(), [])

    def hold(self, queue: OutgoingQueue, *, on_hold: bool) -> None:
        """Pause a queue, or resume it; it stays so over restarts.  3.1.7.13, 3.1.7.14"""
        queue.on_hold = on_hold
        queue.registered = True
        self._desk.writes.urgent().queues.append(
            QueueRow(queue.queue, queue.kind, queue.name, queue.priority, on_hold)
        )
        self._neighbours.wake(queue)

    def put(self, queue: OutgoingQueue, messages: Joining) -> None:
        """Add messages to a queue."""
        queue.join(messages, self._desk.writes)
        self._neighbours.wake(queue)

    def pass_on(self, queue: OutgoingQueue, messages: Joining, names: Sequence[MessageName]) -> None:
        """Add others' transactional messages to a queue where no copy of them waits."""
        queue.pass_on(messages, names, self._desk.writes)
        self._neighbours.wake(queue)

    def resend(self, number: int, now: Moment) -> Note:
        """No OrderAck came in time for the sequence with this number. Return the line of the log.  3.1.6.5"""
        sequence = self._queues[number]
        assert isinstance(sequence, OutgoingSequence)
        sequence.ack_wait_expired(now)
        self._neighbours.wake(sequence)
        return sequence.resend_note

    def has_way(self, queue: OutgoingQueue) -> bool:
        """Whether a queue has a next hop that may be called, or has called."""
        neighbour = self._neighbours.of_queue(queue)
        return neighbour is not None and self._neighbours.may_have_session(neighbour)

    def reply_to(self, message: UserMessage, remote: Remote) -> ReplyTo:
        """Where to send the acknowledgments of a message: by a direct name only if that can lead to its sender.

        A queue manager that receives a direct name without its owner's GUID takes it as its own (3.1.5.8.5).
        So if several queue managers share the address that the message came from, only the GUID tells them
        apart. Acknowledgments for a stranger leave over a session with it, whatever name they have.
        """
        reply_to = reply_to_sender(message, remote.address)
        if not remote.is_proven:
            is_address = address_of(remote.address) is not None
            return reply_to if is_address else ReplyTo(reply_to.manager, None)
        if reply_to.direct_host is None or self._routes.to_host(remote.address).manager == reply_to.manager:
            return reply_to
        return ReplyTo(reply_to.manager, None) if self._routes.to_manager(reply_to.manager) else reply_to

    def speaks_for(self, sequence: OutgoingSequence, source: Guid, remote: Remote) -> bool:
        """Whether an acknowledgment from `source`, brought by this neighbour or stranger, counts for a sequence.

        If only a direct name tells the destination, anyone who calls from that name's host speaks for it, and
        so does the queue manager that is declared there.
        """
        is_itself = remote.is_met and remote.manager == source
        if sequence.destination_manager is not None:
            return sequence.destination_manager == source and (remote.is_proven or is_itself)
        host = (host_of(sequence.name) or "").lower()
        return (
            host == remote.address.lower()
            or (remote.is_proven and self._routes.proves(source, host, None))
            or (is_itself and self._neighbours.reached(host) == source)
        )

    def may_answer(self, host: str | None) -> bool:
        """Whether a message may be sent to a host because a stranger asks for it.

        At most STRANGERS_HOSTS such hosts have queues, and at most ANSWERS messages wait for each.
        """
        if host is None or not self._routes.may_call(host):
            return False
        waiting = [queue.count for queue in self.named(host) + self.named(host + ORDER_SUFFIX)]
        if not waiting and host.lower() not in self._strangers_hosts:
            if len(self._strangers_hosts) >= STRANGERS_HOSTS:
                return False
            self._strangers_hosts.add(host.lower())
        return sum(waiting) < ANSWERS

    def answers_to(self, manager: Guid, priority: int, *, order: bool = False) -> OutgoingQueue | None:
        """The queue of the messages that an undeclared queue manager asks for; None if too many wait already.

        They leave over a session from where it was met.

        At most ANSWERS messages wait for each, in at most STRANGERS_QUEUES queues for all together: one more
        takes over an empty one.
        """
        if self._neighbours.met.get(manager) is None:
            return None
        name, key = guid_text(manager), (manager, priority, order)
        if sum(queue.count for queue in self.named(name) + self.named(name + ORDER_SUFFIX)) >= ANSWERS:
            return None
        queue = self._strangers_queues.get(key) or self._by_manager.get(key)
        if queue is None and len(self._strangers_queues) >= STRANGERS_QUEUES:
            queue = self._taken_over(key, name + ORDER_SUFFIX * order)
            if queue is None:
                return None
        self._strangers_queues[key] = queue or self.towards_manager(manager, priority, order=order)
        self._strangers_queues.move_to_end(key)
        return self._strangers_queues[key]

    def _taken_over(self, key: tuple[Guid, int, bool], name: str) -> OutgoingQueue | None:
        """Take over another stranger's empty queue for this one; None if no queue is empty."""
        empty = (one for one in self._strangers_queues.items() if not (one[1].count or one[1].on_hold))
        before, queue = next(empty, (None, None))
        if before is None or queue is None:
            return None
        del (
            self._strangers_queues[before],
            self._by_manager[before],
            self._by_name[queue.name, queue.priority],
        )
        self._named[queue.name.lower()].remove(queue)
        if queue in (wayless := self._wayless.get(before[0], [])):
            wayless.remove(queue)
        self._neighbours.detach(queue)
        manager, priority, _ = key
        queue.lead_to(name, priority)
        self._add(queue, self._way_to(manager), manager)
        self._by_manager[key] = queue
        return queue

    def _acknowledge(self, message: UserMessage, reply_to: ReplyTo) -> None:
        """Send an OrderAck or a FinalAck on its way.  3.1.7.17

        An OrderAck that has no way to go is dropped; the sender's resend asks for another.
        """
        priority, manager = message.base.priority, reply_to.manager
        queue: OutgoingQueue | None
        if not self._routes.declares(manager):
            queue = self.answers_to(manager, priority, order=True)
        elif reply_to.direct_host is not None:
            queue = self.towards_host(reply_to.direct_host, priority, manager, order=True)
        else:
            queue = self.towards_manager(manager, priority, order=True)
        if queue is None:
            return
        recoverable = message.user.recoverable
        if recoverable or self.has_way(queue):
            self.put(queue, joining(encode_packet(message), message.user.message_id, recoverable))

    def wake(self, queue: OutgoingQueue) -> None:
        """Something may be sent, or read: an acknowledgment came, or messages left."""
        self._neighbours.wake(queue)

    # Sequences

    def _sequence_to(
        self, name: str, manager: Guid | None, host: str | None, count: int, now: Moment
    ) -> OutgoingSequence:
        """The sequence that our next transactional messages to one destination queue join, by its format name.

        It has the name under which the first message was sent, and all others are sent under it too, because
        the destination may tell names apart by case.
        """
        spelling = one_spelling(name)
        succession = self._successions.get(spelling)
        number = self._unused_number(succession, count)
        if succession is None or succession.newest.is_closed:
            sequence = succession.spare if succession is not None else None
            if sequence is None:
                name = succession.newest.name if succession is not None else name
                sequence = OutgoingSequence(
                    self.next_queue(), name, manager, self._desk.settings, self._desk.timers, now
                )
                sequence.register(self._desk.writes)
                self._add_sequence(sequence, host)
                self._take_over_hold(sequence)
            succession = self._successions[spelling]
            succession.begin(sequence, now)
        self.set_aside(succession.newest.identifier)
        if number + count > USED_UP:
            succession.by_name = True
        elif number:
            succession.newest.pass_over(number)
            self._numbered.pop(succession, None)
            self._numbered[succession] = None
        return succession.newest

    def _unused_number(self, succession: Succession | None, count: int) -> int:
        """The first of the numbers that were never given (see readings.py); 0 if messages take those that follow.

        No other sequence of ours, to any queue, has them, because a queue manager may have several names.
        """
        if succession is not None and (succession.by_name or succession.newest.has_room(count)):
            return 0
        while self._numbered and next(reversed(self._numbered)).by_name:
            self._numbered.popitem()
        given = next(reversed(self._numbered)).last_number if self._numbered else 0
        return block_after(given)

    def set_aside(self, identifier: TxSequenceId) -> None:
        """See that the store's ceiling is above an identifier's Ordinal before a message has it."""
        if identifier.ordinal >= self._ordinal_ceiling:
            self._ordinal_ceiling = identifier.ordinal + ORDINAL_BLOCK
            self._desk.writes.urgent().counters[SEQUENCE_ORDINAL_CEILING] = self._ordinal_ceiling

    def _add_sequence(self, sequence: OutgoingSequence, host: str | None) -> None:
        manager = sequence.destination_manager
        hops = self._way_to(manager) if manager is not None else ()
        if host is not None:
            hops = self._hops_to_host(host, manager)
        sequence.final_queue = self._finals.get(sequence.name, 0)
        succession = self._successions.get(one_spelling(sequence.name)) or self._new_succession(sequence)
        succession.add(sequence)
        if sequence.is_closed:
            self._by_time_stamp[sequence.identifier.time_stamp] = succession
        self._add(sequence, hops, manager)

    def _new_succession(self, sequence: OutgoingSequence) -> Succession:
        time_stamp = sequence.identifier.time_stamp
        if time_stamp < FIRST_TIME_STAMP:
            time_stamp = time_stamp_of(sequence.name)
            while time_stamp in self._by_time_stamp:
                time_stamp += 1
        succession = Succession(time_stamp, self._first_ordinal, self._dice, self._neighbours.wake)
        self._successions[one_spelling(sequence.name)] = self._by_time_stamp[time_stamp] = succession
        return succession

    def is_full(self, name: str) -> bool:
        """Whether a sequence has no number left; it begins anew when all its messages are acknowledged."""
        succession = self._successions.get(one_spelling(name))
        if succession is None or succession.newest.is_closed:
            return False
        return succession.newest.next_number > USED_UP

    def succession(self, time_stamp: int) -> Succession | None:
        """The sequences whose TxSequenceIDs have this TimeStamp: all to one destination queue."""
        return self._by_time_stamp.get(time_stamp)

    def towards_source(self, source: Guid, remote: Remote) -> list[Succession]:
        """The sequences for which an acknowledgment from `source`, brought by this neighbour or stranger, counts."""
        return [one for one in self._successions.values() if self.speaks_for(one.head, source, remote)]

    def final_queue_of(self, sequence: OutgoingSequence) -> int:
        """The queue for messages of a sequence that had their OrderAck and wait for their FinalAck."""
        if not sequence.final_queue:
            number = self._finals[sequence.name] = self.next_queue()
            self._desk.writes.urgent().queues.append(QueueRow(number, QueueKind.FINAL, sequence.name))
            for member in self._successions[one_spelling(sequence.name)]:
                if member.name == sequence.name:
                    member.final_queue = number
        return sequence.final_queue

    # After a restart

    def _restore(self, state: StoredState, now: Moment) -> None:
        for one in self._neighbours.met:
            if one.awaited_s > now.utc_s and one.how is not How.CALLED_US:
                self._neighbours.await_answers((self._routes.to_host(one.host),), one.awaited_s)
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
                    stored.queue, stored.name, manager, self._desk.settings, self._desk.timers, now, stored
                )
                low, high = message_key(stored.queue, 0), message_key(stored.queue + 1, 0)
                gaps = [(first - low, last - low) for first, last in state.gaps if low <= first < high]
                sequence.restore(row, gaps, stored.first)
                self._add_sequence(sequence, host_of(stored.name))
                if sequence.final_asked:
                    self.final_queue_of(sequence)  # A damaged store may have lost it.
        self._numbered = dict.fromkeys(sorted(self._successions.values(), key=LAST_NUMBER_OF))

    def _restore_queue(self, stored: StoredQueue) -> None:
        queue = OutgoingQueue(
            stored.queue, stored.name, self._desk.settings, stored, priority=stored.priority
        )
        name = stored.name.removesuffix(ORDER_SUFFIX)
        try:
            manager = guid_from_text(name)
        except ValueError:
            self._add(queue, self._hops_to_host(name, None))
        else:
            self._add(queue, self._way_to(manager), manager)
            if not self._routes.declares(manager):
                key = manager, queue.priority, queue.name != name
                self._by_manager[key] = self._strangers_queues[key] = queue


def host_of(format_name: str) -> str | None:
    r"""The host that a direct format name calls: `10.0.0.7` of `DIRECT=TCP:10.0.0.7\private$\q`; None for others."""
    keyword, _, rest = format_name.partition("=")
    if keyword != "DIRECT":
        return None
    return rest.partition(":")[2].partition("\\")[0]
