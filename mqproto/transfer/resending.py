"""Keeps track of sent messages: waits for their OrderAck, and resends them if it does not come.

[MS-MQQB] 3.1.2.6, 3.1.6.5
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.session import InFlight
from mqproto.transfer.cursors import Cursors, Numbering
from mqproto.turn.effects import MessageRow, ReadBy, ReadPage, message_key


class EverSent:
    """The kept messages of one sequence that have left at least once: their destination may have them."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._never_left: set[int] = set()
        """Positions of messages that did not leave when their turn came for the first time."""
        self._sent_before = 0
        """The highest position that had left before the latest call of `leave`.

        The messages in `_taken_anew` had not left before that call, although their positions are not above this one.
        """
        self._taken_anew: set[int] = set()
        """The positions of the messages that were taken last and had been passed over before."""

    def leave(self, entries: Sequence[InFlight]) -> None:
        """Record that messages have been taken from the queue for sending.

        `passed_over` has to know which of them had left before.
        """
        self._sent_before = self._cursors.sent_ceiling
        positions = [one.position for one in entries] if self._never_left else ()
        self._taken_anew = self._never_left.intersection(positions)
        self._never_left -= self._taken_anew

    def may_have_arrived(self, position: int) -> bool:
        """Return whether a message has ever left. If so, it may have arrived."""
        return position <= self._cursors.sent_ceiling and position not in self._never_left

    def passed_over(self, position: int) -> None:
        """Record that a message does not leave now, although the latest call of `leave` included it."""
        if position > self._sent_before or position in self._taken_anew:
            self._never_left.add(position)

    def forget(self, position: int) -> None:
        """Forget a message that is no longer kept."""
        self._never_left.discard(position)


class OrderAckWait:
    """How one sequence waits for its next OrderAck, with a timer.

    queue: the number of the sequence's queue.
    """

    def __init__(self, queue: int, timers: Timers, table_ms: Sequence[int], now: Moment) -> None:
        self.queue = queue
        self._timers = timers
        self._table_ms = table_ms
        self.last_ack_s = now.utc_s
        self.ack_count = 0
        self.interval_index = 0
        self._overdue_ms: int | None = None
        """The deadline of the OrderAck that was awaited when the last session ended."""
        self._would_be_due_ms: int | None = None
        """The deadline that an OrderAck would have; kept while no sent message seems to need one.

        It is used if messages that had returned are withdrawn, and it then turns out that later messages had been sent.
        """

    @property
    def interval_ms(self) -> int:
        """EodResendInterval.  [MS-MQDMPR] 3.1.1.4"""
        return self._table_ms[self.interval_index]

    @property
    def due_ms(self) -> int | None:
        """EodResendTime, on the uptime clock; None while no resend is planned."""
        return self._timers.deadline_ms(Timer.TRANSACTIONAL_ACK_WAIT, self)

    @property
    def in_vain(self) -> bool:
        """Whether messages were resent on this session without getting an OrderAck."""
        return self.interval_index > 0

    def begin(self, now: Moment) -> None:
        """Begin to wait for an OrderAck, because messages have been sent."""
        self._start(now.uptime_ms + self.interval_ms)

    def _start(self, due_ms: int) -> None:
        """Start the Transactional Ack Wait Timer.  3.1.2.6"""
        self._would_be_due_ms = None
        self._timers.start(Timer.TRANSACTIONAL_ACK_WAIT, self, due_ms)

    def see_to(self, now: Moment) -> None:
        """Wait for the OrderAck of messages that leave, unless one is already awaited."""
        if not self._timers.runs(Timer.TRANSACTIONAL_ACK_WAIT, self):
            self.begin(now)

    def stop(self) -> None:
        """Stop waiting, because no message needs an OrderAck."""
        self._overdue_ms = self._would_be_due_ms = None
        self._timers.stop(Timer.TRANSACTIONAL_ACK_WAIT, self)

    def lengthen(self, now: Moment) -> None:
        """Wait longer for the next OrderAck, because the last one did not come in time.

        3.1.5.6 lets the interval grow with each OrderAck. Note <24> says that it grows with each consecutive time-out.
        """
        self.interval_index = min(self.interval_index + 1, len(self._table_ms) - 1)
        self.begin(now)

    def answered(self, now: Moment, *, is_out: bool) -> None:
        """Record that an OrderAck has acknowledged further messages.

        is_out: whether other messages are still unacknowledged.
        """
        self.interval_index = 0
        self.stop()
        if is_out:
            self.begin(now)
        else:
            self._would_be_due_ms = now.uptime_ms + self.interval_ms

    def resume(self) -> None:
        """Wait again: messages were withdrawn, and it turns out that later ones have been sent."""
        if self._would_be_due_ms is not None:
            self._start(self._would_be_due_ms)

    def connected(self, now: Moment, *, is_out: bool) -> bool:
        """Record that a session is open. Return whether an OrderAck that was awaited earlier is overdue."""
        self.interval_index = 0
        overdue_ms, self._overdue_ms = self._overdue_ms, None
        due_ms = now.uptime_ms + self.interval_ms
        if not is_out:
            self._would_be_due_ms = due_ms
            return False
        is_overdue = overdue_ms is not None and overdue_ms <= now.uptime_ms
        if overdue_ms is not None and not is_overdue:
            due_ms = min(due_ms, overdue_ms)
        self._start(due_ms)
        return is_overdue

    def disconnected(self) -> None:
        """Stop waiting, because there is no session. The next session resends overdue messages at once."""
        overdue_ms = self.due_ms
        self.stop()
        self._overdue_ms = overdue_ms


class Resends:
    """The kept messages of one sequence that are sent again, in order, `resend_batch` at a time.

    The next batch leaves when an OrderAck acknowledges the current one. The resend ends when an OrderAck acknowledges a
    message after the last one that was sent again. Taken literally, 3.1.6.5 says to resend all messages at once. If a
    destination with a backlog were down, each time-out would then fill the disks on the way with copies.

    ready: messages that were read and have not been sent yet.
    count: how many messages were sent again.
    withheld: the positions of messages that this resend leaves out, because each is to be sent alone.
    """

    def __init__(
        self, queue: int, settings: Settings, numbering: Numbering, withheld: Set[int], wait: OrderAckWait
    ) -> None:
        self._withheld = withheld
        self._wait = wait
        self._queue = queue
        self._settings = settings
        self._numbering = numbering
        self._cursors = numbering.cursors
        self.ready: deque[MessageRow] = deque()
        self.count = 0
        self._is_reading = False

    def begin(self) -> None:
        """Send again all kept messages that were sent."""
        self.ready.clear()
        self._cursors.begin_resend(self._numbering.sent_through)

    def ack_wait_expired(self, now: Moment) -> None:
        """Resend all kept messages, because no OrderAck came in time, and wait longer the next time.  3.1.6.5"""
        self._wait.lengthen(now)
        self.begin()

    def connected(self, now: Moment) -> bool:
        """Resume waiting for OrderAcks of sent messages, because a session to the next hop is open. 3.1.3.2

        Return whether any OrderAck is overdue, in which case messages are resent now.

        Taken literally, 3.1.3.2 would resend all sent messages at once. But messages that the neighbour has
        acknowledged are on its disk, so they are not resent at once. If they were lost beyond the neighbour, they are
        resent at the deadline that they had before the interruption. If each session began a new wait, sessions that
        are shorter than the interval would postpone the resend forever.
        """
        is_overdue = self._wait.connected(now, is_out=self._numbering.unacked_count > 0)
        if is_overdue:
            self.begin()
        return is_overdue

    def disconnected(self) -> None:
        """Stop the resend, because there is no session."""
        self._wait.disconnected()
        self.end()

    def see_it_behind(self, number: int) -> None:
        """Record that the destination is at a lower number than it has acknowledged before.  3.1.5.8.6

        A late OrderAck means nothing. But an answer to a resend means that the destination has lost messages, because
        its store is an older copy. We no longer have the messages that it had acknowledged, so the next message must
        name this lower number as its predecessor. It does no harm if that bridges more than is missing: no message up
        to `last_ack` is ever sent again.
        """
        if number < self._cursors.last_ack and self._wait.in_vain and number != self._numbering.behind:
            self._numbering.behind = number
            self.begin()

    def end(self) -> None:
        """Stop the resend."""
        self.ready.clear()
        self._cursors.end_resend()

    def take(self, limit: int, limit_bytes: int) -> list[MessageRow]:
        """Take the next messages: as many as fit both limits, but at least one."""
        taken: list[MessageRow] = []
        while self.ready and len(taken) < limit and (limit_bytes > 0 or not taken):
            message = self.ready.popleft()
            taken.append(message)
            limit_bytes -= len(message.packet)
        self._cursors.resent_through = taken[-1].position
        self.count += len(taken)
        return taken

    def forget(self, position: int) -> None:
        """Forget a message that is no longer kept."""
        self.ready = deque(message for message in self.ready if message.position != position)

    def _through(self) -> int:
        """Return the position up to which messages are resent before the next OrderAck.

        Up to there, at most `resend_batch` kept messages are resent.
        """
        cursors = self._cursors
        end = cursors.acknowledged + self._settings.resend_batch + len(self._withheld)
        for first, last in self._numbering.holes:
            if cursors.base + first > end:
                break
            end += last - first + 1
        return min(end, cursors.resend_through, self._numbering.sent_through)

    @property
    def wants_page(self) -> bool:
        """Whether messages must be read from the store before any can be resent."""
        cursors = self._cursors
        return not (self._is_reading or self.ready) and cursors.resend_after < cursors.resend_through

    def page(self) -> Iterable[ReadPage]:
        """Yield the page of sent messages to read now, if there is one."""
        after, settings, through = self._cursors.resend_after, self._settings, self._through()
        if after < through:
            self._is_reading = True
            count = min(through - after, max(1, settings.resident_messages // 2))
            yield ReadPage(self._queue, after, count, settings.resident_bytes // 2, ReadBy.RESEND)

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """Take a page that was requested."""
        self._is_reading = False
        if page.after != self._cursors.resend_after:
            return  # What was to be resent has changed since: the page begins at the wrong place.
        through = self._through()
        rows = [row for row in rows if row[0] <= through]
        first_key = message_key(self._queue, 0)
        for position, packet, final_ack in rows:
            if self._numbering.is_kept(position) and position not in self._withheld:
                self.ready.append(MessageRow(first_key | position, packet, 0, final_ack))
        # The page may have been cut by its size, so the next begins behind its last row, whether that is kept or not.
        self._cursors.resend_after = rows[-1][0] if rows else max(self._cursors.resend_after, through)
