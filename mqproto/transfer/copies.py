"""Remembers others' messages that wait unsent in a queue, so that a resend is not stored twice.

A sender that gets no OrderAck sends its messages again. An intermediate queue manager whose next hop is down would then
keep every copy. It identifies messages by source and MessageID, and does not read the TransactionHeader. [MS-MQQB]
3.1.1.6.2
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from mqproto.queues.lanes import QueueWindow
from mqproto.turn.effects import MessageRow
from mqproto.wire.glance import identifier_of, is_transactional
from mqproto.wire.guid import Guid

KNOWN: Final = 16_384
"""The maximum number of a queue's waiting messages that are remembered, at about 250 bytes each.

These are the messages that will leave first. A resend sends the oldest messages again, so these are the likely
duplicates.
"""

AS_IT_IS: Final = 0
"""Returned in place of a position if the message waits with the same bytes. Positions are at least 1."""

MessageName = tuple[Guid, int]
"""The source and the MessageID of a message."""


class Copies:
    """The places of the transactional messages in one queue.

    A message that has left the queue is not removed from here at once, because nearly all messages leave soon after
    they arrive. When a message comes again, it is checked whether the earlier copy still waits.

    window: the queue's window.
    """

    def __init__(self, window: QueueWindow) -> None:
        self._window = window
        self._places: dict[MessageName, int] = {}
        """The position of the most recent copy of each message that joined."""
        self._hashes: dict[int, int] = {}
        """The hashes of packets that are outside the window, by position."""
        self._looked_at = 0
        """The window's next position when messages that had left were last removed from here."""

    def __len__(self) -> int:
        return len(self._places)

    def joined(self, names: Sequence[MessageName], first: int, packets: Sequence[bytes]) -> None:
        """Remember messages that have joined the queue.

        first: the position of the first message.
        """
        if len(self._places) + len(names) > KNOWN:
            self._make_room()
            names = names[: max(KNOWN - len(self._places), 0)]
        self._places.update(zip(names, count(first), strict=False))
        read_through, end = self._window.read_through, first + len(names)
        if read_through + 1 < end:
            for position in range(max(read_through + 1, first), end):
                self._hashes[position] = hash(packets[position - first])

    def knows_one_of(self, names: Sequence[MessageName]) -> bool:
        """Return whether any of these messages may be waiting here."""
        return not self._places.keys().isdisjoint(names)

    def is_back(self, message: MessageRow) -> None:
        """Note that a message that had been sent, or was only in the store, is in memory again."""
        if is_transactional(message.packet):
            self._hashes.pop(message.position, None)
            name = identifier_of(message.packet)
            if message.position > self._places.get(name, 0):
                self.joined([name], message.position, [message.packet])

    def later_copy(self, position: int, packet: bytes) -> int | None:
        """Return the position of a later copy with the same bytes; None if no such copy is known to wait.

        From now on, the copy counts as gone.
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
        """Note that a message that was sent before now waits outside the window."""
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
        if following - self._looked_at >= KNOWN // 8:
            self._looked_at = following
            self._places = {name: place for name, place in self._places.items() if place >= following}
