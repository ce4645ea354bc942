"""Ends messages that have expired, in memory and on disk, wherever they wait.

[MS-MQQB] 3.1.7.1.2 applies to messages on their way, and [MS-MQDMPR] 3.1.7.2.7 to messages in their destination queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.neighbours.calling import Neighbours
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.desk import Desk
from mqproto.turn.effects import POSITION_BITS, SENT_EXPIRES, ReadBy, ReadExpired, ReadPage, StoredState
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass
from mqproto.wire.glance import reach_deadline_s, receive_deadline_s

LONGEST_WAIT_S: Final = 60
"""The longest time, in seconds, between two checks of the clock.

Checks are needed because somebody may set the clock.
"""


class Expiration:
    """A single timer for all messages: at the earliest known deadline, expired messages end.

    Messages are checked again before they are sent or handed out, so the timer may be late without harm.

    If `expire_sent` has become `figures` since the node last ran, the store's index of deadlines lacks messages that
    were sent. So the stored messages of all outgoing sequences are checked once.
    """

    def __init__(
        self, desk: Desk, outbound: Outbound, neighbours: Neighbours, queues: LocalQueues, state: StoredState
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._queues = queues
        self._neighbours = neighbours
        self._gives_up = desk.settings.follows_figures
        self._page = ReadExpired(*desk.settings.page_limits)
        self._deadline_s: int | None = None
        self.asks_store = True
        """Whether to ask the store. True at the start, because messages expired while the node was down."""
        self.overlooked: list[ReadPage] = []
        """For each sequence, the page at which to continue the search for expired messages that the store does not
        list.
        """
        if self._gives_up != bool(state.counters.get(SENT_EXPIRES)):
            if self._gives_up:
                sequences = (one for one in outbound if isinstance(one, OutgoingSequence) and one.count)
                self.overlooked = [
                    ReadPage(one.queue, 0, *desk.settings.page_limits, ReadBy.EXPIRY) for one in sequences
                ]
            self._expires_sent(self._gives_up and not self.overlooked)

    def expect(self, deadline_s: int | None, now: Moment) -> None:
        """Expect a new message to expire after this second, UTC; None means that it never expires."""
        if deadline_s is None or (self._deadline_s is not None and self._deadline_s <= deadline_s):
            return
        self._deadline_s = deadline_s
        wait_s = min(max(deadline_s + 1 - now.utc_s, 1), LONGEST_WAIT_S)
        self._desk.timers.start(Timer.EXPIRATION, None, now.uptime_ms + 1_000 * wait_s)

    def expect_of(self, expires_s: Sequence[int | None], now: Moment) -> None:
        """Expect messages that have joined a queue to expire after these times, given in seconds, UTC."""
        if expires_s[0] is not None:  # All messages of a run have a deadline, or none.
            self.expect(min([each for each in expires_s if each is not None]), now)

    def look_again(self, now: Moment) -> None:
        """Watch the deadlines of messages that have returned to their queues."""
        if self._desk.timers.runs(Timer.EXPIRATION, None):
            self.expect(now.utc_s, now)

    def due(self, now: Moment) -> None:
        """End expired messages in memory, then ask the store for others. This is called when the timer is due."""
        self._deadline_s = None
        for queue in self._queues:
            queue.let_go(now)
            self._queues.stir(queue)
            for lane in queue.lanes:
                for message in lane.window:
                    self.expect(queue.deadline_s(message.position, message.packet), now)
        for outgoing in self._outbound:
            self._desk.endings += outgoing.expired(now, self._desk.writes)
            for message in outgoing.window:
                self.expect(outgoing.deadline_s(message.position, message.packet), now)
            self._outbound.wake(outgoing)
        if self._gives_up:
            self._give_up(now)
        self._desk.writes.force()
        self.asks_store = True
        if self._deadline_s is None and any(queue.count for queue in (*self._queues, *self._outbound)):
            # Messages that consumers or neighbours have now may come back.
            self._desk.timers.start(Timer.EXPIRATION, None, now.uptime_ms + 1_000 * LONGEST_WAIT_S)

    def _give_up(self, now: Moment) -> None:
        """End expired messages that were sent but never answered.  3.1.1.1.1.3, 3.1.1.1.1.5"""
        for entry in self._neighbours.give_up(now):
            self._desk.endings.append(
                Ending(entry.packet, MessageClass.NACK_REACH_QUEUE_TIMEOUT, Place.ON_THE_WAY)
            )
        for entries in self._neighbours.in_flight().values():
            for entry in entries:
                if (expires_s := entry.message.expires_s) is not None and expires_s >= now.utc_s:
                    self.expect(expires_s, now)

    def _expires_sent(self, expires: bool) -> None:
        """Record whether, from now on, the store also lists expired messages that were sent."""
        self._desk.writes.urgent().counters[SENT_EXPIRES] = int(expires)

    def pages(self) -> Sequence[ReadPage | ReadExpired]:
        """Return the requests to the store.

        They must come after all other pages, because other pages change the store.
        """
        if self.overlooked:
            return self.overlooked[:1]
        asks, self.asks_store = self.asks_store, False
        return [self._page] if asks else []

    def looked_through(self, page: ReadPage, rows: list[tuple[int, bytes, bool]], now: Moment) -> None:
        """Take a page of a sequence, and end those of its messages that have expired."""
        sequence = self._outbound.queue(page.queue)
        assert sequence is not None, "it was there when the search began"
        for position, packet, _ in rows:
            self._end_on_disk(sequence, position, packet, now)
        self._outbound.wake(sequence)
        if rows:
            self.overlooked[0] = page._replace(after=rows[-1][0])
            return
        del self.overlooked[0]
        if not self.overlooked:
            self._expires_sent(True)

    def _end_on_disk(self, queue: OutgoingQueue, position: int, packet: bytes, now: Moment) -> bool:
        """End a stored message if it has expired and its queue can release it. Return whether it ended."""
        ending = queue.expired_on_disk(position, packet, now, self._desk.writes)
        if ending is not None:
            self._desk.endings.append(ending)
        return ending is not None

    def loaded(self, rows: list[tuple[int, bytes, bool]], now: Moment) -> None:
        """Take the stored messages with the earliest deadlines.

        End those that have expired, if this can be decided in the store. The others are left alone: they are in memory
        or will return to memory, or only their destination can tell whether they have ended.
        """
        for key, packet, _ in rows:
            number, position = key >> POSITION_BITS, key & ((1 << POSITION_BITS) - 1)
            outgoing = self._outbound.queue(number)
            local = self._queues.of_lane(number)
            deadline_s = receive_deadline_s(packet) if local else reach_deadline_s(packet)
            if deadline_s is not None and now.utc_s <= deadline_s:
                self.expect(deadline_s, now)
                break
            if local is not None:
                queue, lane = local
                gone = queue.let_go_on_disk(lane, position, packet, now)
            else:
                gone = outgoing is not None and self._end_on_disk(outgoing, position, packet, now)
            if not gone:
                # It is in memory, or it comes back there from a consumer or the next hop, and is looked at there; or
                # only its destination can tell. The store need not name it again.
                self._desk.writes.later.lasting.append(key)
                self.expect(now.utc_s, now)
        else:
            self.asks_store = bool(rows)  # All of these were over, so there may be more.
        if self.asks_store:
            self._desk.writes.force()
