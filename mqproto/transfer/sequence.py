"""Our own transactional messages to one destination queue, kept until an OrderAck.  3.1.1.6.2"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import InFlight
from mqproto.transfer.cursors import USED_UP, Cursors, Numbering, block_after, block_of
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.resending import EverSent, OrderAckWait, Resends
from mqproto.turn.effects import MessageRow, Note, OutgoingRow, QueueKind, ReadBy, ReadPage, StoredQueue
from mqproto.turn.endings import Ending
from mqproto.turn.pending import PendingWrites
from mqproto.wire import TxSequenceId
from mqproto.wire.glance import reach_deadline_s
from mqproto.wire.guid import NULL_GUID, Guid


class OutgoingSequence(OutgoingQueue):
    """Our transactional messages to one destination queue.  3.1.1.5, 3.1.1.3.1.1

    Positions and numbers run in parallel: in the current sequence, message `number` is at position `base + number`. A
    new sequence begins only when the last message of the old one is acknowledged, so all kept messages belong to the
    current one.

    A sequence takes messages only in the process that began it. Messages that come after a restart belong to the next
    sequence in the Succession, and leave once this sequence no longer keeps any message.
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
        self.is_closed = stored is not None
        """Whether an earlier process began the sequence, so that no message joins it."""
        self.is_head = True
        """Whether the sequence may send. Later sequences in its Succession wait."""
        self.emptied: Callable[[], None] | None = None
        """Called when the sequence no longer keeps any message."""
        self.cursors = Cursors(self._last)
        self.numbering = Numbering(self.cursors, self.window)
        self._ever_sent = EverSent(self.cursors)
        self.wait = OrderAckWait(queue, timers, settings.resend_timer_table_ms, now)
        self.resends = Resends(queue, settings, self.numbering, self.withheld, self.wait)
        self.final_queue = 0
        """The queue of messages that wait for a FinalAck after their OrderAck; 0 until a message asks for one."""
        self.final_asked = bool(stored and stored.final_ack_count)
        """Whether any kept message asks for a FinalAck."""

    @property
    def identifier(self) -> TxSequenceId:
        """TxSequenceID of the current sequence."""
        return self.numbering.identifier

    # Sending

    @property
    def may_send(self) -> bool:
        return self.is_head and super().may_send

    @property
    def has_next(self) -> bool:
        return self.is_head and (bool(self.resends.ready) or bool(self.window)) and not self.on_hold

    @property
    def is_waiting(self) -> bool:
        return self.is_head and super().is_waiting

    def begin(self, identifier: TxSequenceId) -> None:
        """Take messages from now on, with numbers from 1. The sequence must be empty."""
        assert not self.count, f"sequence {self.identifier} still has {self.count} messages"
        self.is_closed = False
        self._begin_anew(identifier)

    def has_room(self, count: int) -> bool:
        """Return whether this many messages can join with the numbers left in the sequence's block."""
        number = self.next_number
        return not self.is_closed and block_of(number) < number <= block_after(number) - count

    def pass_over(self, number: int) -> None:
        """From now on, give no message a number lower than this, because other sequences may have given such
        numbers.
        """
        first = self.next_number
        if number <= first:
            return
        if first == 1:
            # No message is at its positions, so they need not jump as its numbers do.
            self.cursors.begin(max(0, self._last - number + 1))
        self.numbering.pass_over(first, number - 1)
        self._last = self.cursors.base + number - 1

    def number_next(self) -> tuple[TxSequenceId, int, int]:
        """Return the identifier, number and previous number for the message that joins next.  3.1.7.1.3

        A message gets its number when it is accepted from its application, not when it is first sent. So the bytes on
        disk are the bytes on the wire, even after a crash. Nothing changes until the message joins.

        If no message is kept, this one has no predecessor. So it is accepted even by a destination that has lost
        messages because its store is an older copy.
        """
        number = self.next_number
        return self.numbering.identifier, number, self.numbering.holes.before(number) if self.count else 0

    @property
    def next_number(self) -> int:
        """OutgoingTxSequenceNumber: the number that the next message gets."""
        return self._last - self.cursors.base + 1

    def again(self, entry: InFlight) -> InFlight:
        if entry.position in self.withheld:
            self._ever_sent.leave([entry])
        packet = self.numbering.numbered(entry.position, entry.packet)
        return replace(super().again(entry), message=entry.message._replace(packet=packet))

    def awaits(self, position: int) -> bool:
        return self.numbering.is_kept(position)

    def take(
        self, limit: int, limit_bytes: int, now: Moment, writes: PendingWrites
    ) -> tuple[list[InFlight], list[Ending]]:
        again = bool(self.resends.ready)
        entries, over = (self._take_resends if again else super().take)(limit, limit_bytes, now, writes)
        self._ever_sent.leave(entries)
        if entries and not again:
            self.wait.see_to(now)
            if self.cursors.send(entries[-1].position):
                writes.changed(self, urgent=True)
        return entries, over

    def _take_resends(
        self, limit: int, limit_bytes: int, now: Moment, writes: PendingWrites
    ) -> tuple[list[InFlight], list[Ending]]:
        resends = self.resends
        over = [one for one in resends.ready if self.is_over(one, now)] if self.expires_sent else []
        endings = [self._let_go(message, writes) for message in over]
        if not resends.ready:
            return [], endings
        self.wait.see_to(now)
        entries = list(map(self._in_flight, resends.take(limit, limit_bytes)))
        for entry in entries:
            entry.resent = True
        return entries, endings

    def _in_flight(self, message: MessageRow) -> InFlight:
        numbering, position = self.numbering, message.position
        if numbering.holes or position <= numbering.renumbered_through or numbering.behind is not None:
            message = message._replace(packet=numbering.numbered(position, message.packet))
        return InFlight(self, message, recoverable=True)

    def deadline_s(self, position: int, packet: bytes) -> int | None:
        """Return a message's deadline as in OutgoingQueue; None if its destination decides.  3.1.1.1.1.7

        If the message may have been sent, its destination decides whether it has expired, unless the setting says that
        such a message expires in doubt.
        """
        return reach_deadline_s(packet) if self.expires_sent or not self.may_have_arrived(position) else None

    def is_copy(self, packet: bytes) -> bool:
        return False

    def may_have_arrived(self, position: int) -> bool:
        return self._ever_sent.may_have_arrived(position)

    def passed_over(self, entry: InFlight) -> None:
        self._ever_sent.passed_over(entry.position)

    def _let_go(self, message: MessageRow, writes: PendingWrites) -> Ending:
        packet = self.numbering.with_its_place(message.position, message.packet)
        return super()._let_go(message._replace(packet=packet), writes)

    def _may_expire_on_disk(self, position: int) -> bool:
        # Sent messages are in no window, and the session that sent them no longer needs them.
        if self.expires_sent:
            return position <= self._last and self.numbering.is_kept(position)
        return super()._may_expire_on_disk(position)

    def remove(self, message: MessageRow, writes: PendingWrites) -> None:
        self.withdraw(message.position - self.cursors.base, writes, decided=True)

    def delete(self, position: int, writes: PendingWrites) -> bool:
        if position > self._last or not self.numbering.is_kept(position):
            return False
        self.withdraw(position - self.cursors.base, writes, decided=True)
        return True

    def acknowledged(self, entries: Sequence[InFlight], writes: PendingWrites) -> None:
        """Record that the neighbour has saved these messages. They stay ours until the destination's OrderAck.
        3.1.1.6.2
        """
        if self.cursors.save(max([entry.message.key for entry in entries]) - self.first_key):
            writes.changed(self, urgent=False)

    def returned(self, entries: Iterable[InFlight]) -> None:
        self.window.give_back(
            entry.message for entry in entries if not entry.resent and self.numbering.is_kept(entry.position)
        )

    # Acknowledgments

    def order_ack(self, number: int, now: Moment, writes: PendingWrites, *, named: bool = True) -> bool:
        """Record that the destination has all messages up to a number. Return False if already known.  3.1.5.6

        The caller has checked that the number is from the current sequence, and was sent.

        named: whether the OrderAck names the sequence by its TxSequenceID. If so, and if all messages are acknowledged,
            the next message begins a new sequence. If not, the numbering continues: an OrderAck with only a number may
            come late.
        """
        cursors, numbering = self.cursors, self.numbering
        self.wait.last_ack_s = now.utc_s
        self.wait.ack_count += 1
        if number <= (last_ack := cursors.last_ack):
            self.resends.see_it_behind(number)
            if named and not self.count and self.next_number > 1:
                self._end(writes)
            return False
        numbering.behind = None
        base, last = cursors.base, cursors.base + number
        if self.final_asked:
            # A withdrawn message may be there until this is written, and has its outcome.
            for low, high in numbering.holes.gaps(last_ack + 1, number):
                writes.later.await_final_acks(self.queue, base + low, base + high, self.final_queue)
        writes.later.remove(self.queue, base + last_ack + 1, last)
        in_memory = min(number, self.window.read_through - base)
        on_disk = numbering.kept_through(number) - numbering.kept_through(in_memory)
        self.count -= number - last_ack - numbering.holes.drop_through(number)
        resend_is_over = cursors.acknowledge(last)
        self.window.forget_through(last, on_disk)
        if resend_is_over:
            self.resends.end()
        self.wait.answered(now, is_out=numbering.unacked_count > 0)
        if named and not self.count:
            self._end(writes)
        else:
            self._rest_if_empty(writes)
        writes.changed(self, urgent=False)
        return True

    def renumber(self, identifier: TxSequenceId, now: Moment, writes: PendingWrites) -> None:
        """Give the kept messages another identifier and numbers from 1, and send them again.

        Under the old identifier, the destination takes them for earlier messages. The new identifier is on disk before
        they are sent.
        """
        self.numbering.renumber(identifier, self._last)
        self.resends.begin()
        if self.numbering.unacked_count:
            self.wait.begin(now)
        writes.changed(self, urgent=True)

    def withdraw(self, number: int, writes: PendingWrites, *, decided: bool = False) -> None:
        """Remove a message before its OrderAck comes; the next message bridges the gap.  3.1.5.7, 3.1.7.1.3

        decided: whether the message's outcome is known. If not, and if the message asked for a FinalAck, it moves to
            `final_queue`, where the FinalAck finds it.
        """
        position = self.cursors.base + number
        if not self.numbering.is_kept(position):
            return
        self.numbering.holes.add(number, number)
        self.count -= 1
        if self.window.forget(position) is None:
            self.window.forget_on_disk(position)
        self.resends.forget(position)
        self._ever_sent.forget(position)
        if self.final_asked and not decided:
            writes.urgent().await_final_acks(self.queue, position, position, self.final_queue)
        # It is off the disk before the next message bridges the gap. Otherwise it would come back after a
        # crash, and its destination, which is past it, would drop it without a word.
        writes.urgent().remove(self.queue, position, position)
        self._rest_if_empty(writes)
        if self.numbering.unacked_count:
            self.wait.resume()
        writes.changed(self, urgent=True)

    def _end(self, writes: PendingWrites) -> None:
        """End the sequence, because no OrderAck with only a number can still come for it.  3.1.5.6

        The next message begins a new sequence.
        """
        self._begin_anew(replace(self.identifier, ordinal=self.identifier.ordinal + 1))
        writes.changed(self, urgent=False)
        if self.emptied is not None:
            self.emptied()

    def _begin_anew(self, identifier: TxSequenceId) -> None:
        """Begin without any kept messages. The next message gets the number 1."""
        self.cursors.begin(self._last)
        self.numbering.begin(identifier)
        self._forget_what_was_sent()

    def _rest_if_empty(self, writes: PendingWrites) -> None:
        """If no message is kept, forget what was sent but continue to count.

        The last OrderAck did not name the sequence, so the sequence continues until its numbers are used up.
        """
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
        self.numbering.behind = None
        self.resends.end()
        self.wait.stop()

    # Resending

    @property
    def resend_note(self) -> Note:
        """A note for the log about a resend."""
        return Note("resend", {"queue": self.name, "waiting": self.count})

    def pages(self) -> Iterable[ReadPage]:
        if not self.is_head:
            return
        yield from super().pages()
        if self.resends.wants_page:
            yield from self.resends.page()

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> int | None:
        if page.reader is not ReadBy.RESEND:
            return super().loaded(page, rows)
        self.resends.loaded(page, rows)
        return None  # They were sent before: only their destination says what became of them.

    # The store

    def row(self) -> OutgoingRow:
        """The data that must survive failures of the process and of the node."""
        cursors, identifier = self.cursors, self.identifier
        return OutgoingRow(
            self.queue,
            self.destination_manager or NULL_GUID,
            identifier.time_stamp,
            identifier.ordinal,
            cursors.base,
            self.next_number,
            cursors.last_ack,
            cursors.saved_through,
            cursors.stored_ceiling,
            self.numbering.renumbered_through,
        )

    def restore(self, row: OutgoingRow, gaps: Iterable[tuple[int, int]], first: int) -> None:
        """Continue from a stored row.

        gaps: ranges of missing positions between the first message and the last. Messages that are missing there, or at
            either end, were withdrawn.
        first: the position of the first message.
        """
        cursors, numbering = self.cursors, self.numbering
        self._last = row.base + row.next_number - 1
        acknowledged = row.base + row.last_ack
        cursors.restore(row.base, acknowledged, row.saved_through, row.sent_ceiling, self._last)
        missing = [(acknowledged + 1, first - 1), *gaps, (self.loaded_through + 1, self._last)]
        # A damaged store may have lost all of it; an OrderAck for it may still come.
        numbering.restore(row, missing if self.count else [(acknowledged + 1, self._last)])
        saved, kept = cursors.saved_through, numbering.kept_through
        on_disk = kept(row.next_number - 1) - kept(saved - row.base) if self.count else 0
        window = self.window
        window.read_through, window.last, window.on_disk = saved, self._last, on_disk
