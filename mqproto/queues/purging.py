"""The purge of a queue: the position in each lane up to which messages are deleted."""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.queues.lanes import Lane
from mqproto.turn.pending import PendingWrites
from mqproto.wire import MessageClass


class Purging:
    """The lanes whose messages must be deleted. Those that consumers have are deleted when given back."""

    def __init__(self) -> None:
        self.message_class = MessageClass.NACK_Q_PURGED
        self._through: dict[Lane, int] = {}
        self._kept: set[Lane] = set()
        """The lanes whose purge is recorded in the store."""

    def __bool__(self) -> bool:
        return bool(self._through)

    @property
    def is_reading(self) -> bool:
        """Whether messages that no consumer holds still have to be read from disk and deleted."""
        return any(lane.window.read_through < last for lane, last in self._through.items())

    def through(self, lane: Lane) -> int:
        """Return the last position to delete in a lane; 0 if it is not being purged."""
        return self._through.get(lane, 0)

    def begin(
        self,
        lanes: Iterable[Lane],
        message_class: MessageClass = MessageClass.NACK_Q_PURGED,
        writes: PendingWrites | None = None,
    ) -> None:
        """Start deleting all messages that are now in these lanes.

        Args:
            writes: records the last positions. None if a process that starts again knows them in another way.
        """
        self.message_class = message_class
        for lane in lanes:
            if lane.window.last:
                self._through[lane] = lane.window.last
                if writes is not None:
                    self._kept.add(lane)
                    writes.purge_until(lane.queue, lane.window.last)

    def go_on(self, lane: Lane, last: int) -> bool:
        """Continue a purge that an earlier process may have begun. Return whether any messages may be left."""
        if not lane.window.last:
            return False
        self._kept.add(lane)
        self._through[lane] = max(self.through(lane), min(last, lane.window.last))
        return True

    def end(self, lane: Lane, writes: PendingWrites) -> None:
        """Note that the last message to be deleted has left a lane."""
        del self._through[lane]
        if lane in self._kept:
            self._kept.remove(lane)
            writes.purge_until(lane.queue, 0)
