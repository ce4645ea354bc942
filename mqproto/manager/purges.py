"""Outgoing queues that an operator deletes: all that waits in them ends here.  [MS-MQDMPR] 3.1.7.1.7"""

from __future__ import annotations

from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.turn.desk import Desk
from mqproto.turn.effects import QueueKind, ReadBy, ReadPage
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass
from mqproto.wire.glance import is_transactional


class Purges:
    """Goes through the messages of each queue that is purged, in memory and on disk, a page at a time.

    A message that the neighbour may have by now, and has not acknowledged, stays with the session. A transactional one
    of ours goes also if it was sent: the operator wants to be rid of it, whether or not it arrived. One of others is
    only a copy here. Its end is for its sender or its destination to say, so it goes in silence, and may come again.

    How far a queue is purged is on disk before the first message goes, and until the last has gone: a process that is
    killed meanwhile goes on with it when it starts again, and what has come since stays.
    """

    def __init__(self, desk: Desk) -> None:
        self._writes = desk.writes
        self._endings = desk.endings
        self._waypoints = desk.waypoints
        self._limits = desk.settings.page_limits
        self._going: dict[int, tuple[OutgoingQueue, int]] = {}
        """By its number, a queue and the last position that is to go."""
        self._reads: list[ReadPage] = []

    def begin(self, queue: OutgoingQueue) -> None:
        """All that is in a queue now is to go; one that is being purged already goes on to what has come since."""
        for message in list(queue.window):
            self._end(queue, message.position, message.packet)
        if queue.queue not in self._going:
            self._read(queue, 0)
        self._writes.purge_until(queue.queue, queue.last_position)
        self._going[queue.queue] = (queue, queue.last_position)

    def go_on(self, queue: OutgoingQueue, last: int) -> None:
        """An earlier process had this to do, and may have begun."""
        self._read(queue, 0)
        self._going[queue.queue] = (queue, last)

    def is_going_through(self, queue: OutgoingQueue) -> bool:
        """Whether some of what is to go has yet to be read."""
        return queue.queue in self._going

    def _read(self, queue: OutgoingQueue, after: int) -> None:
        self._reads.append(ReadPage(queue.queue, after, *self._limits, ReadBy.PURGE))

    def _end(self, queue: OutgoingQueue, position: int, packet: bytes) -> None:
        is_copy = queue.kind is QueueKind.OUTGOING and is_transactional(packet)
        if not queue.delete(position, self._writes):
            return
        if is_copy:
            self._waypoints.ended(packet, MessageClass.NACK_DELETED)
        else:
            self._endings.append(Ending(packet, MessageClass.NACK_DELETED, Place.ON_THE_WAY))

    def pages(self) -> list[ReadPage]:
        """The pages to read now."""
        reads, self._reads = self._reads, []
        return reads

    def loaded(self, page: ReadPage, rows: list[tuple[int, bytes, bool]]) -> None:
        """A page of a queue that is purged."""
        queue, last = self._going[page.queue]
        for position, packet, _ in rows:
            if position <= last:
                self._end(queue, position, packet)
        if rows and rows[-1][0] < last:
            self._read(queue, rows[-1][0])
        else:
            del self._going[page.queue]
            self._writes.purge_until(page.queue, 0)
