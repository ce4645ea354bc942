"""How far the lanes of a queue are to be emptied."""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.queues.lanes import Lane
from mqproto.turn.pending import PendingWrites
from mqproto.wire import MessageClass


class Purging:
    """The lanes whose messages have to be deleted; messages that consumers have are deleted if they are returned."""

    def __init__(self) -> None:
        self.message_class = MessageClass.NACK_Q_PURGED
        self._through: dict[Lane, int] = {}
        self._kept: set[Lane] = set()
        """The lanes whose purge is in the store, and how far it goes."""

    def __bool__(self) -> bool:
        return bool(self._through)

    @property
    def is_reading(self) -> bool:
        """Whether messages that no consumer has are still to leave: they are on disk, and have yet to be read."""
        return any(lane.window.read_through < last for lane, last in self._through.items())

    def through(self, lane: Lane) -> int:
        """The last position to delete in a lane."""
        return self._through.get(lane, 0)

    def begin(
        self,
        lanes: Iterable[Lane],
        message_class: MessageClass = MessageClass.NACK_Q_PURGED,
        writes: PendingWrites | None = None,
    ) -> None:
        """Delete all messages in these lanes now.

        Args:
            writes: keeps how far to delete, if a process that starts again would not know.
        """
        self.message_class = message_class
        for lane in lanes:
            if lane.window.last:
                self._through[lane] = lane.window.last
                if writes is not None:
                    self._kept.add(lane)
                    writes.purge_until(lane.queue, lane.window.last)

    def go_on(self, lane: Lane, last: int) -> bool:
        """Continue a purge that an earlier process may have begun. Return whether anything may be left."""
        if not lane.window.last:
            return False
        self._kept.add(lane)
        self._through[lane] = max(self.through(lane), min(last, lane.window.last))
        return True

    def end(self, lane: Lane, writes: PendingWrites) -> None:
        """The last message of a lane that was to be deleted has left."""
        del self._through[lane]
        if lane in self._kept:
            self._kept.remove(lane)
            writes.purge_until(lane.queue, 0)
