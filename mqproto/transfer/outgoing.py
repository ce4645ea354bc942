"""Messages that are sent to a neighbour: express and recoverable ones, our own and forwarded ones.

A message leaves its `OutgoingQueue` when the neighbour has acknowledged it. Our own transactional messages stay longer
(see sequence.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.queues.lanes import Lane, QueueWindow
from mqproto.session import InFlight
from mqproto.turn.effects import MessageRow, QueueKind, ReadPage, StoredQueue
from mqproto.turn.endings import Ending, Place
from mqproto.turn.pending import PendingWrites
from mqproto.wire import MessageClass
from mqproto.wire.glance import identifier_of, is_recoverable, is_transactional, reach_deadline_s
from mqproto.wire.guid import Guid

ORDER_SUFFIX: Final = "\\order_queue$"
"""The suffix in the name of a queue that has acknowledgments for a destination's order queue.

It follows the destination.
"""
COPIES_KNOWN: Final = 16_384
"""The maximum number of a queue's waiting messages that are remembered, at about 250 bytes each.

Those that leave first are remembered. A resend sends the oldest messages again, so these are the likely duplicates.
"""

AS_IT_IS: Final = 0
"""Returned in place of a position if the message waits with the same bytes. Positions are at least 1."""

MessageName = tuple[Guid, int]
"""The source and the MessageID of a message."""


class OutgoingQueue(Lane):
    """Messages of one priority on their way to one destination, in order of arrival.  [MS-MQDMPR] 3.1.1.3"""

    def __init__(
        self,
        queue: int,
        name: str,
        settings: Settings,
        stored: StoredQueue | None = None,
        *,
        priority: int = 0,
        kind: QueueKind = QueueKind.OUTGOING,
    ) -> None:
        super().__init__(queue, kind, name, settings, stored, priority=priority)
        self.count = stored.message_count if stored else 0
        self.on_hold = stored is not None and stored.on_hold
        """State OnHold: no message is sent until the queue is resumed.  3.1.7.13"""
        self.expires_sent = settings.follows_figures
        """Whether messages may also end after they were sent, when they expire."""
        self.restored_through = self.window.last
        """The position of the last message from an earlier process, which may have sent any message up to it."""
        self.withheld: set[int] = set()
        """The positions of messages that the neighbour may be refusing, and that wait to be sent alone."""
        self.copies = Copies(self.window)

    @property
    def may_send(self) -> bool:
        """Whether the queue may send, regardless of which messages it has."""
        return not self.on_hold

    @property
    def has_next(self) -> bool:
        """Whether a message may be sent now."""
        return bool(self.window) and not self.on_hold

    @property
    def is_waiting(self) -> bool:
        """Whether a message may be sent now, or once it has been read from the store."""
        return self.has_next or (self.window.on_disk > 0 and not self.on_hold)

    def lead_to(self, name: str, priority: int) -> None:
        """Use an empty queue for another destination. The store records this with the next message it keeps."""
        assert not self.count, f"{self.count} messages are in {self.name}"
        self.name, self.priority = name, priority
        self.registered = False

    def join(self, rows: list[MessageRow], writes: PendingWrites) -> None:
        self.count += len(rows)
        super().join(rows, writes)

    def take(
        self, limit: int, limit_bytes: int, now: Moment, writes: PendingWrites
    ) -> tuple[list[InFlight], list[Ending]]:
        """Take the next messages: as many as fit both limits, but at least one.  3.1.7.1.2

        Returns:
            The messages to send, and the endings of expired messages, which have left the queue.
        """
        entries, over = list[InFlight](), list[Ending]()
        while self.window and len(entries) + len(over) < limit and (limit_bytes > 0 or not entries):
            message = self.window.pop()
            if message.expires_s is not None and self.is_over(message, now):
                over.append(self._let_go(message, writes))
            else:
                entries.append(self._in_flight(message))
                limit_bytes -= len(message.packet)
        return entries, over

    def _in_flight(self, message: MessageRow) -> InFlight:
        return InFlight(self, message, is_recoverable(message.packet))

    def deadline_s(self, position: int, packet: bytes) -> int | None:
        """Return the last second, UTC, at which a message may be sent from here; None if there is no limit.

        Others' transactional messages have no limit: only their destination knows whether it already has them, and
        their sender waits for its answer. According to figure 10 they end here, too.  3.1.1.1.1.8
        """
        deadline_s = reach_deadline_s(packet)
        passes = deadline_s is None or (is_transactional(packet) and not self.expires_sent)
        return None if passes else deadline_s

    def is_over(self, message: MessageRow, now: Moment) -> bool:
        """Return whether a message has expired."""
        deadline_s = self.deadline_s(message.position, message.packet)
        return deadline_s is not None and now.utc_s > deadline_s

    def is_copy(self, packet: bytes) -> bool:
        """Return whether a message here is only a copy.

        If so, its sender keeps the original until the destination answers.
        """
        return is_transactional(packet)

    def give_up(self, entries: Iterable[InFlight], now: Moment, writes: PendingWrites) -> list[InFlight]:
        """End messages that were sent, have expired, and need not await the neighbour's answer. Return them.

        According to figures 5 and 7, transactional messages do not end: they continue until they are acknowledged or
        return.
        """
        if not self.expires_sent:
            return []
        over = [one for one in entries if not is_transactional(one.packet) and self.is_over(one.message, now)]
        for one in over:
            self.remove(one.message, writes)
        return over

    def may_have_arrived(self, position: int) -> bool:
        """Return whether a kept message of our own was sent, so that its destination may have it."""
        return False

    def _let_go(self, message: MessageRow, writes: PendingWrites) -> Ending:
        """End a message that has expired."""
        in_doubt = self.may_have_arrived(message.position)
        self.remove(message, writes)
        return Ending(
            message.packet,
            MessageClass.NACK_REACH_QUEUE_TIMEOUT,
            Place.ON_THE_WAY,
            in_doubt=in_doubt,
            is_copy=self.is_copy(message.packet),
        )

    def remove(self, message: MessageRow, writes: PendingWrites) -> None:
        """Remove a message that was never sent."""
        self.count -= 1
        self.copies.forget(message.position)
        self.window.forget_on_disk(message.position)
        if message.stored:
            writes.urgent().remove(self.queue, message.position, message.position)

    def expired(self, now: Moment, writes: PendingWrites) -> list[Ending]:
        """Drop the expired messages in memory. Return their endings."""
        over = [message for message in self.window if self.is_over(message, now)]
        for message in over:
            self.window.forget(message.position)
        return [self._let_go(message, writes) for message in over]

    def expired_on_disk(
        self, position: int, packet: bytes, now: Moment, writes: PendingWrites
    ) -> Ending | None:
        """End a message in the store if it has expired and is not in memory. Return its ending, or None."""
        if not self._may_expire_on_disk(position):
            return None
        message = self.stored_row(position, packet)
        return self._let_go(message, writes) if self.is_over(message, now) else None

    def _may_expire_on_disk(self, position: int) -> bool:
        return self.window.read_through < position <= self.window.last

    def delete(self, position: int, writes: PendingWrites) -> bool:
        """Delete a message if it waits in this queue. Return whether it was deleted.

        It may have been sent before, and have returned.
        """
        message = self.window.forget(position)
        if position in self.withheld:
            self.withheld.discard(position)
            message = self.stored_row(position, b"")
        elif message is None:
            if not self.window.read_through < position <= self.window.last:
                return False
            message = self.stored_row(position, b"")
        self.remove(message, writes)
        return True

    def withhold(self, entry: InFlight, writes: PendingWrites) -> None:
        """Withhold a message that was sent and has returned, so that it waits to be sent alone.

        A copy that has arrived in the meantime is removed. It would also be refused, and then it would seem that the
        neighbour refuses all messages.
        """
        self.withheld.add(entry.position)
        if self.kind is QueueKind.OUTGOING:
            copy = self.copies.later_copy(entry.position, entry.packet)
            if copy is not None:
                self.delete(copy, writes)
            self.copies.is_withheld(entry.position, entry.packet)

    def passed_over(self, entry: InFlight) -> None:
        """Record that a message will not leave now, although it was just taken or is to be sent again."""

    def release(self, position: int) -> None:
        """Stop withholding a message, because it is sent again, or waits with the others."""
        self.withheld.discard(position)
        self.copies.forget(position)

    def again(self, entry: InFlight) -> InFlight:
        """Return a message that was taken or is still withheld, in the form in which it must be sent now."""
        return replace(entry, order=0, done=False, sealed=b"")

    def awaits(self, position: int) -> bool:
        """Whether a withheld message is still to be sent."""
        return position in self.withheld

    def acknowledged(self, entries: Sequence[InFlight], writes: PendingWrites) -> None:
        """Remove messages that the neighbour has acknowledged and, if they are recoverable, saved.  3.1.5.5

        The neighbour is now responsible for them.
        """
        self.count -= len(entries)
        writes.later.remove_each([entry.message.key for entry in entries if entry.message.stored])

    def returned(self, entries: Iterable[InFlight]) -> None:
        """Take messages back, so that they are sent next: the session broke before the neighbour answered."""
        back = [entry.message for entry in entries]
        self.window.give_back(back)
        for message in back:
            self.copies.is_back(message)

    def pages(self) -> Iterable[ReadPage]:
        """Return the pages to read now."""
        page = self.window.wanted()
        return (page,) if page else ()

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> int | None:
        """Take a page that was requested. Return the earliest deadline in it, or None."""
        through = self.window.read_through
        deadline_s = self.window.loaded(rows, self.deadline_s)
        if self.kind is QueueKind.OUTGOING:
            for message in self.window:
                if message.position > through:
                    self.copies.is_back(message)
        return deadline_s

    def earlier_copy(self, name: MessageName, packet: bytes) -> int | None:
        """Return the position at which an earlier copy of another sender's message waits; None if none does.

        The message is transactional. AS_IT_IS is returned if the copy has the same bytes. The bytes differ if the
        sender has withdrawn the previous message, which changes PreviousTxSequenceNumber.
        """
        waiting = self.copies.waiting(name)
        if waiting is None or not self.copies.is_same(waiting, packet):
            return waiting
        return AS_IT_IS

    def pass_on(self, rows: list[MessageRow], names: Sequence[MessageName], writes: PendingWrites) -> None:
        """Add others' transactional messages that have no copy here. The caller may have deleted a copy.

        The position of an earlier copy is not reused, because the store never uses a position twice. The destination
        holds messages that overtake these.
        """
        self.join(rows, writes)
        self.copies.joined(names, rows)


class Copies:
    """The places of others' transactional messages that wait in one queue, so that a resend is not stored in addition
    to an earlier copy.

    A sender that gets no OrderAck sends again, and an intermediate queue manager whose next hop is down would keep all
    copies. It identifies messages by source and MessageID, without the TransactionHeader.  [MS-MQQB] 3.1.1.6.2

    A message that has left the queue is not removed here at once, because nearly all messages leave soon after they
    came. When a message comes again, it is checked whether the earlier copy still waits.

    window: the queue's window.
    """

    def __init__(self, window: QueueWindow) -> None:
        self._window = window
        self._places: dict[MessageName, int] = {}
        """The position of the most recent copy of each message that joined."""
        self._hashes: dict[int, int] = {}
        """The hashes of packets that are outside the window, by position."""
        self._looked_at = 0
        """The window's next position at the time of the last cleanup, which removed messages that had left."""

    def __len__(self) -> int:
        return len(self._places)

    def joined(self, names: Sequence[MessageName], rows: Sequence[MessageRow]) -> None:
        """Remember messages that have joined the queue."""
        first = rows[0].position
        if len(self._places) + len(names) > COPIES_KNOWN:
            self._make_room()
            names = names[: max(COPIES_KNOWN - len(self._places), 0)]
        self._places.update(zip(names, count(first), strict=False))
        read_through, end = self._window.read_through, first + len(names)
        if read_through + 1 < end:
            for position in range(max(read_through + 1, first), end):
                self._hashes[position] = hash(rows[position - first].packet)

    def knows_one_of(self, names: Sequence[MessageName]) -> bool:
        """Return whether any of these messages may be waiting here."""
        return not self._places.keys().isdisjoint(names)

    def is_back(self, message: MessageRow) -> None:
        """Record that a message that had been sent, or was only in the store, is in memory again."""
        if is_transactional(message.packet):
            self._hashes.pop(message.position, None)
            name = identifier_of(message.packet)
            if message.position > self._places.get(name, 0):
                self.joined([name], [message])

    def later_copy(self, position: int, packet: bytes) -> int | None:
        """Return the position of a later copy with the same bytes; None if no such copy is known to wait.

        From now on, the later copy counts as gone.
        """
        if not is_transactional(packet):
            return None
        name = identifier_of(packet)
        copy = self.waiting(name)
        if copy is None or copy <= position or not self.is_same(copy, packet):
            return None
        del self._places[name]
        return copy

    def is_withheld(self, position: int, packet: bytes) -> None:
        """Record that a message that had been sent is waiting outside the window now."""
        if is_transactional(packet) and position >= self._places.get(name := identifier_of(packet), 0):
            self._places[name] = position
            self._hashes[position] = hash(packet)

    def forget(self, position: int) -> None:
        """Forget a message outside the window, because it has left the queue or is back in the window."""
        self._hashes.pop(position, None)

    def waiting(self, name: MessageName) -> int | None:
        """Return the position of a waiting message; None if it is not known to be waiting."""
        position = self._places.get(name)
        if position is None or position in self._hashes or self._in_memory(position) is not None:
            return position
        return None

    def is_same(self, position: int, packet: bytes) -> bool:
        """Return whether the message that waits at a position has these bytes."""
        if position in self._hashes:
            return self._hashes[position] == hash(packet)
        message = self._in_memory(position)
        return message is not None and message.packet == packet

    def _in_memory(self, position: int) -> MessageRow | None:
        if position < self._window.next_position:
            return None  # It has left, as most have.
        return next((message for message in self._window if message.position == position), None)

    def _make_room(self) -> None:
        """Forget messages that have left, if many have left since the last time."""
        following = self._window.next_position
        if following - self._looked_at >= COPIES_KNOWN // 8:
            self._looked_at = following
            self._places = {name: place for name, place in self._places.items() if place >= following}


def queue_of(entry: InFlight) -> OutgoingQueue:
    """Return the queue from which a message came."""
    assert isinstance(entry.origin, OutgoingQueue)
    return entry.origin
