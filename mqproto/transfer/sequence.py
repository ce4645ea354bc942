"""Our own transactional messages to one destination queue, which are kept until their OrderAck.  3.1.1.6.2"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.ranges import Ranges
from mqproto.base.timers import Timer, Timers
from mqproto.queues.lanes import QueueWindow
from mqproto.session import InFlight
from mqproto.transfer.cursors import Cursors
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.turn.effects import Note, OutgoingRow, QueueKind, ReadBy, ReadPage, StoredQueue, Waiting
from mqproto.turn.endings import Ending
from mqproto.turn.pending import PendingWrites
from mqproto.wire import TxSequenceId, with_place, with_previous_number
from mqproto.wire.glance import reach_deadline_s
from mqproto.wire.guid import NULL_GUID, Guid

TRANSACTION_LIMIT: Final = 10_000
"""The most messages in one transaction, because they are written in one commit."""
LAST_NUMBER: Final = 0xFFFFFFFE
"""The highest TxSequenceNumber that a later message can name as its previous one.  [MS-MQMQ] 2.2.20.5"""
USED_UP: Final = LAST_NUMBER - TRANSACTION_LIMIT
"""A sequence that has come this far takes no more; it begins anew when all its messages are acknowledged."""
NONE_ANEW: Final[frozenset[int]] = frozenset()
NUMBER_BLOCK: Final = 4_096
"""If no number may be given twice, a sequence takes its numbers in blocks of this size: 1 to 4,096 and so on."""


def block_of(number: int) -> int:
    """The first number of the block that a number is in."""
    return (number - 1) // NUMBER_BLOCK * NUMBER_BLOCK + 1


class OutgoingSequence(OutgoingQueue):
    """Our transactional messages to one destination queue.  3.1.1.5, 3.1.1.3.1.1

    Positions and numbers run side by side: message `number` of the current sequence stands at position
    `base + number`. A new sequence begins only when the last message of the old one is acknowledged, so all that is
    kept belongs to the current one.

    It takes messages only in the process that began it. Messages that come after a restart belong to the next
    one in the Succession, and leave when this one keeps none any more.

    A resend sends the kept messages anew, in order, `resend_batch` at a time. The next ones leave when an
    OrderAck tells that these arrived, and the resend ends when one tells of more. By the letter of 3.1.6.5
    all go at once; with a destination that is down and a backlog, each time-out would then fill the disks on
    the way with copies.
    """

    def __init__(
        self,
        queue: int,
        name: str,
        destination_manager: Guid | None,
        settings: Settings,
        timers: Timers,
        now: Moment,
        stored: StoredQueue | None = None,
    ) -> None:
        super().__init__(queue, name, settings, stored, kind=QueueKind.SEQUENCE)
        self.destination_manager = destination_manager
        self.identifier = TxSequenceId()
        self.is_closed = stored is not None
        """Whether an earlier process began it, so no message joins it."""
        self.is_head = True
        """Whether it may send; those after it in their Succession wait."""
        self.emptied: Callable[[], None] | None = None
        """Called when no message of it is kept any more."""
        self.behind: int | None = None
        """The number that the destination is at, if it has fallen behind its own OrderAck, with an older
        store. What it has lost is gone here as well, so the first kept message bridges that."""
        self.renumbered_through = 0
        """The packets up to this position contain other numbers than those they are sent with."""
        self.cursors = Cursors(self._last)
        self.final_queue = 0
        """The queue of messages that wait for a FinalAck after their OrderAck; 0 until one asks for it."""
        self.final_asked = bool(stored and stored.final_ack_count)
        """Whether a message that is kept asked for a FinalAck."""
        self.time_of_last_ack_s = now.utc_s
        self.last_ack_count = 0
        self.resend_interval_index = 0
        self._overdue_ms: int | None = None
        """The deadline of the OrderAck that was awaited when the last session ended."""
        self._would_be_due_ms: int | None = None
        """In a session, while no message is known to be out: the deadline of the OrderAck for messages that
        turn out to be out once those before them, which came back, are withdrawn."""
        self.resend_count = 0
        self._holes = Ranges()
        """Numbers that no message has any more; the next message bridges them.  3.1.7.1.3"""
        self._of_others = Ranges()
        """Those of `_holes` that this sequence passed over, because others may have given them."""
        self._bridged_through = 0
        """The highest number that a sent message has passed over."""
        self._settings = settings
        self._timers = timers
        self._never_left: set[int] = set()
        """Positions of messages that were passed over when their turn came for the first time."""
        self._sent_before = 0
        """Messages up to this position had left before the last were taken; those of `_taken_anew` had not."""
        self._taken_anew: frozenset[int] = frozenset()
        """Positions of the messages taken last that had been passed over before."""
        self._resends: deque[Waiting] = deque()
        self._resend_reading = False

    @property
    def base(self) -> int:
        """The position before the first message of the current sequence."""
        return self.cursors.base

    @property
    def last_ack(self) -> int:
        """The number in the last OrderAck; 0 if none came for the current sequence."""
        return self.cursors.acknowledged - self.cursors.base

    # What the operator sees: OutgoingTransferInfo, [MS-MQDMPR] 3.1.1.4

    @property
    def resend_interval_ms(self) -> int:
        """EodResendInterval."""
        return self._settings.resend_timer_table_ms[self.resend_interval_index]

    @property
    def resend_at_ms(self) -> int | None:
        """EodResendTime on the uptime clock, or None while nothing is to be resent."""
        return self._timers.deadline_ms(Timer.TRANSACTIONAL_ACK_WAIT, self)

    @property
    def resends_in_vain(self) -> bool:
        """Whether messages were sent again, on this session, and no OrderAck has told of them."""
        return self.resend_interval_index > 0

    @property
    def first_number(self) -> int:
        """The number of EodFirstNonAck: the first message without an OrderAck, or where the next one would be."""
        return self._holes.after(self.last_ack)

    @property
    def last_sent_number(self) -> int:
        """The number of EodLastNonAck: the last message that was sent."""
        return self._holes.before(self._last_begun + 1)

    @property
    def unacked_count(self) -> int:
        """EodNoAckCount: messages that were sent and have no OrderAck."""
        sent = self._last_begun
        return sent - self.last_ack - self._holes.count_through(sent)

    @property
    def _last_begun(self) -> int:
        """The last number that was sent or withdrawn; messages purged only on disk lie before the sequence."""
        return max(0, self.sent_through - self.base)

    # Sending

    @property
    def sent_through(self) -> int:
        """The position before the next one to be sent; none up to it waits to be sent for the first time."""
        return self.window.next_position - 1

    @property
    def may_send(self) -> bool:
        return self.is_head and super().may_send

    @property
    def has_next(self) -> bool:
        return self.is_head and (bool(self._resends) or bool(self.window)) and not self.on_hold

    @property
    def is_waiting(self) -> bool:
        return self.is_head and super().is_waiting

    def begin(self, identifier: TxSequenceId) -> None:
        """Take messages from now on, with numbers from 1. It must keep none."""
        assert not self.count, f"sequence {self.identifier} still has {self.count} messages"
        self.is_closed = False
        self.identifier = identifier
        self._begin_anew()

    def has_room(self, count: int) -> bool:
        """Whether messages can join with the numbers that are left in a block of its own."""
        return not self.is_closed and 0 < (self.next_number - 1) % NUMBER_BLOCK <= NUMBER_BLOCK - count

    def pass_over(self, number: int) -> None:
        """Give no message a number below this one any more: others may have them."""
        first = self.next_number
        if number <= first:
            return
        if first == 1:
            # No message is at its positions, so they need not jump as its numbers do.
            self.cursors.begin(max(0, self._last - number + 1))
        self._holes.add(first, number - 1)
        self._of_others.add(first, number - 1)
        self._last = self.base + number - 1

    def number_next(self) -> tuple[TxSequenceId, int, int]:
        """Return identifier, number and previous number for the message that joins next.  3.1.7.1.3

        Numbers are given when a message is accepted from its application, not when it is first sent: the
        bytes on disk are those on the wire, also after a crash. Nothing changes until the message joins.

        If no message is kept, none need come before it. So it is welcome even at a destination that has lost
        what it had, with an older store.
        """
        previous = self._holes.before(self.next_number) if self.count else 0
        return self.identifier, self.next_number, previous

    @property
    def next_number(self) -> int:
        """OutgoingTxSequenceNumber."""
        return self._last - self.base + 1

    def _give_up_blocks(self, first: int, last: int) -> None:
        """None of these numbers is kept, so whole blocks, but not the last, may be another sequence's."""
        first, last = block_of(first - 1 + NUMBER_BLOCK), block_of(min(last + 1, self.next_number - 1)) - 1
        if first <= last:
            self._of_others.add(first, last)

    def _count_kept(self, after: int, last: int) -> int:
        """How many messages with numbers above `after` and up to `last` still wait for their OrderAck."""
        after = max(after, self.last_ack)
        if after >= last:
            return 0
        return last - after - (self._holes.count_through(last) - self._holes.count_through(after))

    def is_kept(self, position: int) -> bool:
        """Whether the message at a position still waits for its OrderAck."""
        number = position - self.base
        return number > self.last_ack and number not in self._holes

    def again(self, entry: InFlight) -> InFlight:
        if entry.position in self.withheld:
            self._leave([entry])
        return replace(super().again(entry), packet=self._as_numbered(entry.position, entry.packet))

    def awaits(self, position: int) -> bool:
        return self.is_kept(position)

    def take(
        self, limit: int, limit_bytes: int, now: Moment, writes: PendingWrites
    ) -> tuple[list[InFlight], list[Ending]]:
        again = bool(self._resends)
        entries, over = (self._take_resends if again else super().take)(limit, limit_bytes, now, writes)
        self._leave(entries)
        if entries and not again:
            self._see_to_timer(now)
            if self.cursors.send(entries[-1].position):
                writes.changed(self, urgent=True)
        return entries, over

    def _leave(self, entries: list[InFlight]) -> None:
        """Note that these are taken to be sent; `passed_over` needs to know which of them had left before."""
        self._sent_before = self.cursors.sent_ceiling
        self._taken_anew = NONE_ANEW
        if self._never_left:
            self._taken_anew = frozenset(self._never_left.intersection(one.position for one in entries))
            self._never_left -= self._taken_anew

    def _take_resends(
        self, limit: int, limit_bytes: int, now: Moment, writes: PendingWrites
    ) -> tuple[list[InFlight], list[Ending]]:
        over = [one for one in self._resends if self.is_over(one, now)] if self.expires_sent else []
        endings = [self._let_go(message, writes) for message in over]
        if not self._resends:
            return [], endings
        self._see_to_timer(now)
        entries: list[InFlight] = []
        while self._resends and len(entries) < limit and (limit_bytes > 0 or not entries):
            entry = self._in_flight(self._resends.popleft())
            entry.resent = True
            entries.append(entry)
            limit_bytes -= len(entry.packet)
        self.cursors.resent_through = entries[-1].position
        self.resend_count += len(entries)
        return entries, endings

    def _in_flight(self, message: Waiting) -> InFlight:
        position, packet, final_ack, _, expires_s = message
        if self._holes or position <= self.renumbered_through or self.behind is not None:
            packet = self._as_numbered(position, packet)
        return InFlight(self, position, packet, True, final_ack, True, expires_s)

    def _as_numbered(self, position: int, packet: bytes) -> bytes:
        """A packet as it is sent: its PreviousTxSequenceNumber bridges the gap of withdrawn messages, and of
        those that a destination has lost; and it has its new place if it was renumbered."""
        number = position - self.base
        previous = self._holes.before(number)
        if self.behind is not None and previous <= self.last_ack:
            previous = self.behind
        if previous < number - 1:
            self._bridged_through = max(self._bridged_through, number - 1)
        if position <= self.renumbered_through:
            return with_place(packet, self.identifier, number, previous)
        return with_previous_number(packet, previous)

    def with_its_place(self, position: int, packet: bytes) -> bytes:
        """A stored packet, with the place in the sequence that it is sent with."""
        if position > self.renumbered_through:
            return packet
        number = position - self.base
        return with_place(packet, self.identifier, number, self._holes.before(number))

    def deadline_s(self, position: int, packet: bytes) -> int | None:
        """As above, if it was never sent. Otherwise its destination may have it and decides, unless the
        setting says that it expires in doubt.  3.1.1.1.1.7"""
        return reach_deadline_s(packet) if self.expires_sent or not self.may_have_arrived(position) else None

    def is_copy(self, packet: bytes) -> bool:
        return False

    def may_have_arrived(self, position: int) -> bool:
        return position <= self.cursors.sent_ceiling and position not in self._never_left

    def passed_over(self, entry: InFlight) -> None:
        if entry.position > self._sent_before or entry.position in self._taken_anew:
            self._never_left.add(entry.position)

    def _let_go(self, message: Waiting, writes: PendingWrites) -> Ending:
        packet = self.with_its_place(message.position, message.packet)
        return super()._let_go(message._replace(packet=packet), writes)

    def _may_expire_on_disk(self, position: int) -> bool:
        # Sent messages are in no window, and the session that sent them no longer needs them.
        if self.expires_sent:
            return position <= self._last and self.is_kept(position)
        return super()._may_expire_on_disk(position)

    def remove(self, message: Waiting, writes: PendingWrites) -> None:
        self.withdraw(message.position - self.base, writes, decided=True)

    def delete(self, position: int, writes: PendingWrites) -> bool:
        if position > self._last or not self.is_kept(position):
            return False
        self.withdraw(position - self.base, writes, decided=True)
        return True

    def acknowledged(self, entries: Sequence[InFlight], writes: PendingWrites) -> None:
        """The neighbour has saved these messages. They stay ours until the destination's OrderAck.  3.1.1.6.2"""
        position = max(entry.position for entry in entries)
        if self.cursors.save(position):
            writes.changed(self, urgent=False)

    def returned(self, entries: Iterable[InFlight]) -> None:
        self.window.give_back(
            Waiting(entry.position, entry.packet, entry.final_ack, stored=True, expires_s=entry.expires_s)
            for entry in entries
            if not entry.resent and self.is_kept(entry.position)
        )

    # Acknowledgments

    def was_sent(self, number: int) -> bool:
        """Whether a message with this number may have reached the destination; after a restart, any may have."""
        return 0 < number <= self.cursors.sent_ceiling - self.base

    def may_mean(self, number: int) -> bool:
        """Whether an OrderAck with only this number may be about this sequence."""
        return self.was_sent(number) and number not in self._of_others

    def _see_to_timer(self, now: Moment) -> None:
        if not self._timers.runs(Timer.TRANSACTIONAL_ACK_WAIT, self):
            self._await_order_ack(now)

    def _await_order_ack(self, now: Moment) -> None:
        """Messages are out: await their OrderAck from now on.  3.1.2.6"""
        self._would_be_due_ms = None
        self._timers.start(Timer.TRANSACTIONAL_ACK_WAIT, self, now.uptime_ms + self.resend_interval_ms)

    def first_proven(self, number: int) -> int:
        """The first number whose message, if it is no longer kept, an OrderAck with `number` proves to have arrived.

        The message with `number` arrived. Those before it did as well, unless one sent after them has passed over them.
        """
        return min(number, max(self.last_ack, self._bridged_through) + 1)

    def order_ack(self, number: int, now: Moment, writes: PendingWrites, *, named: bool = True) -> bool:
        """The destination has all messages up to a number. Return False if that says nothing new.  3.1.5.6

        The caller has checked that it is for the current sequence and that the number was sent.

        named: whether the OrderAck names the sequence by its TxSequenceID. If all is acknowledged then, the next
            message begins a new one. Otherwise its numbers go on, because an OrderAck with only a number may come late.
        """
        self.time_of_last_ack_s = now.utc_s
        self.last_ack_count += 1
        if number <= self.last_ack:
            self.see_it_behind(number)
            if named and not self.count and self.next_number > 1:
                self._end(writes)
            return False
        self.behind = None
        first, last = self.base + self.last_ack + 1, self.base + number
        if self.final_asked:
            # A withdrawn message may be there until this is written, and has its outcome.
            for low, high in self._holes.gaps(self.last_ack + 1, number):
                writes.later.await_final_acks(self.queue, self.base + low, self.base + high, self.final_queue)
        writes.later.remove(self.queue, first, last)
        on_disk = self._count_kept(self.window.read_through - self.base, number)
        withdrawn = self._holes.drop_through(number)
        self.count -= number - self.last_ack - withdrawn
        resend_is_over = self.cursors.acknowledge(last)
        self.window.forget_through(last, on_disk)
        if resend_is_over:
            self._end_resend()
        self.resend_interval_index = 0
        self._stop_waiting()
        if self.unacked_count:
            self._await_order_ack(now)
        else:
            self._would_be_due_ms = now.uptime_ms + self.resend_interval_ms
        if named and not self.count:
            self._end(writes)
        else:
            self._rest_if_empty(writes)
        writes.changed(self, urgent=False)
        return True

    def see_it_behind(self, number: int) -> None:
        """The destination says that it is at a number, after it had acknowledged more.

        A late OrderAck says nothing. But one that answers a resend means that the destination has lost messages, with
        an older store. Those that it had acknowledged are gone here, so the next message has to follow on this number.
        Bridging more than is missing does no harm: nothing up to `last_ack` is ever sent again.  3.1.5.8.6
        """
        if number < self.last_ack and self.resends_in_vain and number != self.behind:
            self.behind = number
            self._resend()

    def renumber(self, identifier: TxSequenceId, now: Moment, writes: PendingWrites) -> None:
        """Give the kept messages another identifier, and numbers from 1, and send them again.

        Under the old identifier the destination takes them for others that it had. The new one is on disk
        before they are sent.
        """
        gone, holes = self.last_ack, Ranges()
        for first, last in self._holes:
            holes.add(first - gone, last - gone)
        self._holes = holes
        self._of_others.clear()
        self.cursors.base = self.cursors.acknowledged
        self._bridged_through = 0
        self.identifier = identifier
        self.renumbered_through = self._last
        self.behind = None
        self._resend()
        if self.unacked_count:
            self._await_order_ack(now)
        writes.changed(self, urgent=True)

    def withdraw(self, number: int, writes: PendingWrites, *, decided: bool = False) -> None:
        """One message leaves before its OrderAck, and the next one bridges the gap.  3.1.5.7, 3.1.7.1.3

        decided: whether its outcome is known here. If not, and it asked for a FinalAck, it moves to
            `final_queue`, where its outcome finds it.
        """
        if number <= self.last_ack or number in self._holes:
            return
        position = self.base + number
        self._holes.add(number, number)
        self.count -= 1
        if self.window.forget(position) is None:
            self.window.forget_on_disk(position)
        self._resends = deque(message for message in self._resends if message.position != position)
        self._never_left.discard(position)
        if self.final_asked and not decided:
            writes.urgent().await_final_acks(self.queue, position, position, self.final_queue)
        # It is off the disk before the next message bridges the gap. Otherwise it would come back after a
        # crash, and its destination, which is past it, would drop it without a word.
        writes.urgent().remove(self.queue, position, position)
        self._rest_if_empty(writes)
        if self._would_be_due_ms is not None and self.unacked_count:
            self._timers.start(Timer.TRANSACTIONAL_ACK_WAIT, self, self._would_be_due_ms)
            self._would_be_due_ms = None
        writes.changed(self, urgent=True)

    def _end(self, writes: PendingWrites) -> None:
        """End the sequence: no OrderAck with only a number can come for it. The next message begins anew.  3.1.5.6"""
        self.identifier = replace(self.identifier, ordinal=self.identifier.ordinal + 1)
        self._begin_anew()
        writes.changed(self, urgent=False)
        if self.emptied is not None:
            self.emptied()

    def _begin_anew(self) -> None:
        """Nothing is kept, and the next message has the number 1."""
        self.cursors.begin(self._last)
        self._holes.clear()
        self._of_others.clear()
        self._bridged_through = 0
        self._forget_what_was_sent()

    def _rest_if_empty(self, writes: PendingWrites) -> None:
        """Go on with the numbers if none is kept, but no OrderAck that names the sequence has said so."""
        if self.count:
            return
        if self.next_number > USED_UP:
            self._end(writes)
            return
        self._forget_what_was_sent()
        if self.emptied is not None:
            self.emptied()

    def _forget_what_was_sent(self) -> None:
        self.final_asked = False
        self.behind = None
        self._end_resend()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._overdue_ms = self._would_be_due_ms = None
        self._timers.stop(Timer.TRANSACTIONAL_ACK_WAIT, self)

    # Resending

    def ack_wait_expired(self, now: Moment) -> None:
        """No OrderAck came in time: send again what is kept, and wait longer the next time.  3.1.6.5

        3.1.5.6 lets the interval grow with each OrderAck; note <24> says that it grows with each time-out in a row.
        """
        table = self._settings.resend_timer_table_ms
        self.resend_interval_index = min(self.resend_interval_index + 1, len(table) - 1)
        self._await_order_ack(now)
        self._resend()

    def _resend(self) -> None:
        self._resends.clear()
        self.cursors.begin_resend(self.sent_through)

    def _end_resend(self) -> None:
        self._resends.clear()
        self.cursors.end_resend()

    @property
    def _resend_end(self) -> int:
        """The position up to which a resend goes before the next OrderAck: `resend_batch` messages that are kept."""
        end = self.base + self.last_ack + self._settings.resend_batch + len(self.withheld)
        for first, last in self._holes:
            if self.base + first > end:
                break
            end += last - first + 1
        return min(end, self.cursors.resend_through, self.sent_through)

    @property
    def resend_note(self) -> Note:
        """The line of the log about a resend."""
        return Note("resend", {"queue": self.name, "waiting": self.count})

    def connected(self, now: Moment) -> bool:
        """A session to the next hop is open: watch again what was sent and never acknowledged. Return whether any of it
        is overdue, and goes again now.  3.1.3.2

        Messages that the neighbour has acknowledged are on its disk, so they are not sent again at once, as 3.1.3.2
        would have it. If they were lost further on, the resend brings them, when it would have without the
        interruption. Otherwise sessions that are shorter than the interval would put it off for ever.
        """
        self.resend_interval_index = 0
        overdue_ms, self._overdue_ms = self._overdue_ms, None
        due_ms = now.uptime_ms + self.resend_interval_ms
        if not self.unacked_count:
            self._would_be_due_ms = due_ms
            return False
        is_overdue = overdue_ms is not None and overdue_ms <= now.uptime_ms
        if overdue_ms is not None and not is_overdue:
            due_ms = min(due_ms, overdue_ms)
        self._timers.start(Timer.TRANSACTIONAL_ACK_WAIT, self, due_ms)
        if is_overdue:
            self._resend()
        return is_overdue

    def disconnected(self) -> None:
        """There is no session: nothing can be resent."""
        overdue_ms = self.resend_at_ms
        self._stop_waiting()
        self._overdue_ms = overdue_ms
        self._end_resend()

    def pages(self) -> Iterable[ReadPage]:
        if not self.is_head:
            return
        yield from super().pages()
        cursors = self.cursors
        if self._resend_reading or self._resends or not cursors.is_resending:
            return
        through = self._resend_end
        if cursors.resend_after < through:
            self._resend_reading = True
            count = min(through - cursors.resend_after, max(1, self._settings.resident_messages // 2))
            yield ReadPage(
                self.queue, cursors.resend_after, count, self._settings.resident_bytes // 2, ReadBy.RESEND
            )

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> int | None:
        if page.reader is not ReadBy.RESEND:
            return super().loaded(page, rows)
        self._resend_reading = False
        if page.after != self.cursors.resend_after:
            return None  # What was to be resent has changed since: the page begins at the wrong place.
        through = self._resend_end
        rows = [row for row in rows if row[0] <= through]
        for position, packet, final_ack in rows:
            if self.is_kept(position) and position not in self.withheld:
                self._resends.append(Waiting(position, packet, final_ack, stored=True))
        # The page may have been cut by its size, so the next begins behind its last row, whether that is kept or not.
        self.cursors.resend_after = rows[-1][0] if rows else max(self.cursors.resend_after, through)
        return None  # They were sent before: only their destination says what became of them.

    # The store

    def row(self) -> OutgoingRow:
        """The data that must survive process and node failures."""
        return OutgoingRow(
            self.queue,
            self.destination_manager or NULL_GUID,
            self.identifier.time_stamp,
            self.identifier.ordinal,
            self.base,
            self.next_number,
            self.last_ack,
            self.cursors.saved_through,
            self.cursors.stored_ceiling,
            self.renumbered_through,
        )

    def restore(self, row: OutgoingRow, gaps: Iterable[tuple[int, int]], first: int) -> None:
        """Continue where a row left off; gaps are the positions missing between the first message and the last.

        Messages that are missing, there or at either end, were withdrawn.
        """
        self.identifier = TxSequenceId(ordinal=row.ordinal, time_stamp=row.time_stamp)
        self.renumbered_through = row.renumbered_through
        self._last = row.base + row.next_number - 1
        self._bridged_through = row.next_number - 1  # What was passed over before is not known.
        self.cursors.restore(
            row.base, row.base + row.last_ack, row.saved_through, row.sent_ceiling, self._last
        )
        acknowledged = row.base + row.last_ack
        self._give_up_blocks(1, row.last_ack)
        missing = [(acknowledged + 1, first - 1), *gaps, (self.loaded_through + 1, self._last)]
        # A damaged store may have lost all of it; an OrderAck for it may still come.
        for low, high in missing if self.count else [(acknowledged + 1, self._last)]:
            if low <= high:
                self._holes.add(low - row.base, high - row.base)
                self._give_up_blocks(low - row.base, high - row.base)
        on_disk = (
            self._count_kept(self.cursors.saved_through - self.base, self._last - self.base)
            if self.count
            else 0
        )
        self.window = QueueWindow(
            self.queue,
            self._settings,
            read_through=self.cursors.saved_through,
            last=self._last,
            on_disk=on_disk,
        )
