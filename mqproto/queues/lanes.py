"""Queues whose head is in memory and whose rest is on disk.

A queue manager may have a million messages waiting, so it holds only a window of each queue. Messages enter at
the end and leave at the front, in order of position. Messages that do not fit into the window are only in the
store, and are read a page at a time when their turn approaches. A `Lane` is a window with the positions of its
messages, and a `Purging` has the lanes that are being emptied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import accumulate, chain, count, repeat
from operator import attrgetter, itemgetter
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.turn.effects import (
    UNKNOWN_COUNT,
    MessageRow,
    QueueKind,
    QueueRow,
    ReadBy,
    ReadPage,
    StoredQueue,
    message_key,
)
from mqproto.turn.pending import PendingWrites
from mqproto.wire import MessageClass

POSITION: Final = attrgetter("position")
QUEUE: Final = attrgetter("queue")
PACKET: Final = itemgetter(1)
"""The packet of a `MessageRow`."""
NEW_ROW: Final = partial(tuple.__new__, MessageRow)
"""Does the same as `MessageRow._make`, but without a call in Python for each row."""


class QueueWindow:
    """The next messages of one queue, in order, and the number of messages that are only on disk.

    Messages up to `read_through` that have not left the queue are in memory, or have been handed on from here. The
    messages after that, up to `last`, are only in the store. Their number is kept, so that an error is noticed if a
    page omits one of them.
    """

    def __init__(
        self, queue: int, settings: Settings, *, read_through: int = 0, last: int = 0, on_disk: int = 0
    ) -> None:
        self.queue = queue
        self.read_through = read_through
        self.last = last
        self.on_disk = on_disk
        """The number of messages that are only in the store."""
        self._found_through = last
        """The last position among the messages that were in the store when it was opened."""
        self._limit = settings.resident_messages
        self._limit_bytes = settings.resident_bytes
        self._ready: deque[MessageRow] = deque()
        self._bytes = 0
        self._reading: int | None = None
        """The value of `last` when the awaited page was requested; None if no page is awaited."""

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[MessageRow]:
        return iter(self._ready)

    @property
    def complete(self) -> bool:
        """Whether all messages of the queue have been read into memory, so that none is only on disk."""
        return self.read_through == self.last

    @property
    def next_position(self) -> int:
        """The position of the next message to leave, or a lower bound for it: all messages below it have left."""
        return self._ready[0].position if self._ready else self.read_through + 1

    @property
    def fits(self) -> bool:
        """Whether the next message to be appended would stay in memory. If not, it must be stored, even if express."""
        return (
            self.read_through == self.last
            and len(self._ready) < self._limit
            and self._bytes < self._limit_bytes
        )

    def takes(self, count: int, size_bytes: int) -> bool:
        """Return whether `count` more messages, of `size_bytes` in all, would stay in memory.

        If `fits` is true, a single message stays in memory, however large it is.
        """
        return self.fits and (
            count == 1
            or (len(self._ready) + count <= self._limit and self._bytes + size_bytes <= self._limit_bytes)
        )

    def fitting(self, packets: Sequence[bytes]) -> int:
        """Return how many of these messages, counted from the first, would stay in memory when appended."""
        most, room_bytes = self._limit - len(self._ready), self._limit_bytes - self._bytes
        if self.read_through != self.last or most <= 0 or room_bytes <= 0:
            return 0
        if most > len(packets):
            most = len(packets)
        if sum(map(len, packets)) > room_bytes:
            ends = accumulate(map(len, packets[:most]), initial=0)
            most = next((index for index, end in enumerate(ends) if end >= room_bytes), most)
        return most

    def append(self, messages: Sequence[MessageRow], fitting: int) -> None:
        """Append one or more messages, whose positions are above all earlier ones.

        fitting: how many of them stay in memory, as returned by `fitting`. The others are in the store.
        """
        through = self.last = messages[-1].position
        if fitting < len(messages):
            self.on_disk += len(messages) - fitting
            messages = messages[:fitting]
            if not messages:
                return
            through = messages[-1].position
        self._ready += messages
        self._bytes += sum(map(len, map(PACKET, messages)))
        self.read_through = through

    def pop(self) -> MessageRow:
        """Take the next message out of the window."""
        message = self._ready.popleft()
        self._bytes -= len(message.packet)
        return message

    def take(self, limit: int) -> list[MessageRow]:
        """Take the next messages out of the window, at most `limit` of them."""
        messages = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        self._bytes -= sum(len(message.packet) for message in messages)
        return messages

    def give_back(self, messages: Iterable[MessageRow]) -> None:
        """Return messages to their places in the window. They are given in order of position."""
        back = list(messages)
        self._bytes += sum(len(message.packet) for message in back)
        if back and self._ready and back[-1].position > self._ready[0].position:
            # Earlier messages were given back before.
            self._ready = deque(merge(back, self._ready, key=POSITION))
        else:
            self._ready.extendleft(reversed(back))

    def forget_through(self, position: int, on_disk: int) -> None:
        """Forget the messages up to a position, because they leave the queue without being sent or received.

        Args:
            on_disk: how many of them are only in the store.
        """
        while self._ready and self._ready[0].position <= position:
            self.pop()
        self.read_through = max(self.read_through, min(position, self.last))
        self.on_disk -= on_disk
        self._check()

    def forget_on_disk(self, position: int) -> None:
        """Forget a message that leaves the queue and is not in the window; it may have been handed on."""
        if position > self.read_through:
            self.on_disk -= 1
            assert self.on_disk >= 0, f"message {position} of queue {self.queue} has left it before"

    def forget(self, position: int) -> MessageRow | None:
        """Forget a message that leaves the queue without being sent or received.

        Return the message, or None if it is not in memory.
        """
        for message in self._ready:
            if message.position == position:
                self._ready.remove(message)
                self._bytes -= len(message.packet)
                return message
        return None

    def wanted(self) -> ReadPage | None:
        """Return the page to read now; None if no page is needed.

        No page is needed if the window is more than half full or complete, or if a page is already awaited.
        """
        half = self._limit // 2, self._limit_bytes // 2
        if self._reading is not None or self.complete or len(self._ready) > half[0] or self._bytes > half[1]:
            return None
        self._reading = self.last
        return ReadPage(self.queue, self.read_through, max(1, half[0]), max(1, half[1]), ReadBy.WINDOW)

    def loaded(
        self, rows: Iterable[tuple[int, bytes, bool]], deadline_s: Callable[[int, bytes], int | None]
    ) -> int | None:
        """Take the requested page. If it is empty, the store had no further messages.

        Args:
            deadline_s: returns the time until which the message with this position and packet may leave.

        Returns:
            The earliest deadline of any of the messages; None if they have none.

        Raises:
            AssertionError: the page omits a message that is in the store.
        """
        asked_last, self._reading = self._reading, None
        assert asked_last is not None, "no page was asked for"
        found, first_s, first_key = False, None, message_key(self.queue, 0)
        for position, packet, final_ack in rows:
            found = True
            if position > self.read_through:  # Else it was forgotten while it was being read.
                expires_s = deadline_s(position, packet)
                if expires_s is not None and (first_s is None or expires_s < first_s):
                    first_s = expires_s
                count = UNKNOWN_COUNT if position <= self._found_through else 1
                key = first_key | position
                self._ready.append(MessageRow(key, packet, 0, final_ack, expires_s, delivery_count=count))
                self._bytes += len(packet)
                self.read_through = position
                self.on_disk -= 1
        if not found:
            self.read_through = max(self.read_through, asked_last)
        self._check()
        return first_s

    def _check(self) -> None:
        """Assert that no message remains only in the store once all messages appear to have been read.

        Such a message would appear only after a restart.
        """
        left_out = self.on_disk if self.complete else min(self.on_disk, 0)
        assert not left_out, f"queue {self.queue} is read to its end, and {left_out} of its messages are not"


class Lane:
    """One queue of the store: its positions and its window. A queue with priorities has one lane for each.

    queue: its number in the store.
    registered: whether the store knows it. A queue that only ever had express messages may be missing there.
    """

    def __init__(
        self,
        queue: int,
        kind: QueueKind,
        name: str,
        settings: Settings,
        stored: StoredQueue | None = None,
        *,
        priority: int = 0,
    ) -> None:
        self.queue = queue
        self.kind = kind
        self.name = name
        self.priority = priority
        self.first_key = message_key(queue, 0)
        """The key of position 0: the store's key of a message is `first_key` plus the message's position."""
        self.registered = stored is not None
        first, last, count = (stored.first, stored.last, stored.message_count) if stored else (0, 0, 0)
        self.window = QueueWindow(queue, settings, read_through=max(first - 1, 0), last=last, on_disk=count)
        self._last = stored.last_used if stored else 0
        self.loaded_through = last
        """The last position among the messages that were in the store when it was opened."""

    @property
    def last_position(self) -> int:
        """The position of the message that joined the queue most recently."""
        return self._last

    def key(self, position: int) -> int:
        """Return the store's key of the message at a position."""
        return self.first_key | position

    def stored_row(
        self, position: int, packet: bytes, *, final_ack: bool = False, expires_s: int | None = None
    ) -> MessageRow:
        """Return the row of a message that is in the store, at this position."""
        return MessageRow(self.first_key | position, packet, 0, final_ack, expires_s)

    def register(self, writes: PendingWrites) -> None:
        """Make sure that the store knows the queue."""
        if not self.registered:
            writes.urgent().queues.append(QueueRow(self.queue, self.kind, self.name, self.priority))
            self.registered = True

    def rename(self, name: str, writes: PendingWrites) -> None:
        """Let the lane belong to a queue of this name from now on."""
        if name != self.name:
            self.name = name
            if self.registered:
                self.registered = False
                self.register(writes)

    def rows(
        self,
        packets: Sequence[bytes],
        message_ids: Sequence[int],
        *,
        recoverable: bool,
        final_ack: bool = False,
        expires_s: Sequence[int | None] | None = None,
    ) -> list[MessageRow]:
        """Return rows for consecutive messages that are about to join the lane.

        Those that must survive a crash, or for which memory has no room, will be stored.

        packets: the messages as they will be sent or handed out, without a SessionHeader.
        recoverable: whether they must survive a crash; True for transactional ones.
        final_ack: whether they are kept for a FinalAck after their OrderAck, or ask for a FinalAck.
        expires_s: for each packet, the last second, UTC, before it expires; None if none expires.
        """
        kept = 0 if recoverable else self.window.fitting(packets)
        stored = repeat(True) if not kept else chain(repeat(False, kept), repeat(True))
        keys = count(self.first_key | self._last + 1)
        flags = repeat(final_ack), expires_s or repeat(None), stored, repeat(1)
        return list(map(NEW_ROW, zip(keys, packets, message_ids, *flags, strict=False)))

    def join(self, rows: list[MessageRow], writes: PendingWrites) -> None:
        """Append messages that `rows` has just returned.

        Those that must survive a crash, or for which memory has no room, go to the store.
        """
        fitting = self.window.fitting(list(map(PACKET, rows)))
        if rows[-1].stored:
            if not self.registered:
                self.register(writes)
            writes.put(rows if rows[0].stored else [row for row in rows if row.stored], self.name)
        self._last += len(rows)
        self.window.append(rows, fitting)

    def join_from(
        self, key: int, packet: bytes, writes: PendingWrites, *, final_ack: bool, expires_s: int | None
    ) -> None:
        """Append a message that the store already has under another key."""
        self._last += 1
        self.register(writes)
        writes.urgent().moves.append((key, self.key(self._last), expires_s))
        row = self.stored_row(self._last, packet, final_ack=final_ack, expires_s=expires_s)
        self.window.append([row], self.window.fitting([packet]))


class Purging:
    """The lanes whose messages must be deleted. Messages that consumers have are deleted when they are given back."""

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
            writes: records the last positions in the store; None if they are known in another way after a restart.
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
        """Record that the last message to be deleted has left a lane."""
        del self._through[lane]
        if lane in self._kept:
            self._kept.remove(lane)
            writes.purge_until(lane.queue, 0)
