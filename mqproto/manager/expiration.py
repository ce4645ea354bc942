"""Messages whose time is over: found in memory and on disk, wherever they wait.

[MS-MQQB] 3.1.7.1.2 for those on their way, [MS-MQDMPR] 3.1.7.2.7 for those in the queue that they were for.
"""

from __future__ import annotations

from typing import Final

from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.turn.desk import Desk
from mqproto.turn.effects import POSITION_BITS, ReadExpired
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass
from mqproto.wire.glance import reach_deadline_s, receive_deadline_s

LONGEST_WAIT_S: Final = 60
"""After what time the clock is looked at again: it may have been set."""


class Expiration:
    """One timer for all messages: at the earliest deadline known, whatever is over is let go.

    Messages are looked at again before they are sent or handed out, so the timer may be late without harm.
    """

    def __init__(self, desk: Desk, outbound: Outbound, queues: LocalQueues) -> None:
        self._timers = desk.timers
        self._writes = desk.writes
        self._endings = desk.endings
        self._outbound = outbound
        self._queues = queues
        self._page = ReadExpired(*desk.settings.page_limits)
        self._deadline_s: int | None = None
        self._read = True
        """Whether the store is to be asked. It is at the start, for what expired while the node was down."""

    def expect(self, deadline_s: int | None, now: Moment) -> None:
        """A message joined that is over after this second, UTC; None never is."""
        if deadline_s is None or (self._deadline_s is not None and self._deadline_s <= deadline_s):
            return
        self._deadline_s = deadline_s
        wait_s = min(max(deadline_s + 1 - now.utc_s, 1), LONGEST_WAIT_S)
        self._timers.start(Timer.EXPIRATION, None, now.uptime_ms + 1_000 * wait_s)

    def look_again(self, now: Moment) -> None:
        """Messages came back from where their time was not watched."""
        if self._timers.runs(Timer.EXPIRATION, None):
            self.expect(now.utc_s, now)

    def due(self, now: Moment) -> None:
        """The timer is due: let go what is over in memory, then ask the store."""
        self._deadline_s = None
        for queue in self._queues:
            queue.let_go(now, self._writes, self._endings)
            self._queues.stir(queue)
            for lane in queue.lanes:
                for message in lane.window:
                    self.expect(queue.deadline_s(message.position, message.packet), now)
        for outgoing in self._outbound:
            for packet in outgoing.expired(now, self._writes):
                self._end(packet)
            for message in outgoing.window:
                self.expect(outgoing.deadline_s(message.position, message.packet), now)
            self._outbound.wake(outgoing)
        self._writes.force()
        self._read = True
        if self._deadline_s is None and any(queue.count for queue in (*self._queues, *self._outbound)):
            # What consumers or neighbours have now may come back.
            self._timers.start(Timer.EXPIRATION, None, now.uptime_ms + 1_000 * LONGEST_WAIT_S)

    def _end(self, packet: bytes) -> None:
        self._endings.append(Ending(packet, MessageClass.NACK_REACH_QUEUE_TIMEOUT, Place.ON_THE_WAY))

    def pages(self) -> list[ReadExpired]:
        """What to ask the store; it goes after all other pages, for it is answered by what these leave on disk."""
        read, self._read = self._read, False
        return [self._page] if read else []

    def loaded(self, rows: list[tuple[int, bytes, bool]], now: Moment) -> None:
        """The messages in the store with the earliest deadlines."""
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
                gone = queue.let_go_on_disk(lane, position, packet, now, self._writes, self._endings)
            else:
                gone = outgoing is not None and outgoing.expired_on_disk(position, packet, now, self._writes)
                if gone:
                    self._end(packet)
            if not gone:
                # It is in memory, or it comes back there from a consumer or the next hop, and is looked at there; or
                # only its destination can tell. The store need not name it again.
                self._writes.later.lasting.append(key)
                self.expect(now.utc_s, now)
        else:
            self._read = bool(rows)  # All of these were over, so there may be more.
        if self._read:
            self._writes.force()
