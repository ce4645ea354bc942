"""Which messages of others wait unsent in a queue, so that a resend is not stored beside the copy before it.

A sender that hears of no OrderAck sends again, and an intermediate whose next hop is down would keep each copy. It
knows the messages by source and MessageID; the TransactionHeader it does not read.  [MS-MQQB] 3.1.1.6.2
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mqproto.wire.glance import identifier_of, is_transactional
from mqproto.wire.guid import Guid

KNOWN: Final = 16_384
"""Of how many messages of a queue it is known that they wait, those that leave first; some 250 bytes each. A resend
sends the oldest again, so these are the ones that come."""

MessageName = tuple[Guid, int]
"""Source and MessageID."""


class Copy(NamedTuple):
    """Where a message waits, and its packet, or the hash of it if the store alone has that."""

    position: int
    packet: bytes | int

    def is_of(self, packet: bytes) -> bool:
        """Whether the message has come again as it was."""
        return self.packet == (packet if isinstance(self.packet, bytes) else hash(packet))


class Copies:
    """The transactional messages in one queue that wait to be sent."""

    __slots__ = ("_by_name", "_by_position")

    def __init__(self) -> None:
        self._by_name: dict[MessageName, Copy] = {}
        self._by_position: dict[int, MessageName] = {}

    def __len__(self) -> int:
        return len(self._by_position)

    def of(self, name: MessageName) -> Copy | None:
        """The copy that joined last and waits, if one is known."""
        return self._by_name.get(name)

    def waits(self, name: MessageName, position: int, packet: bytes, *, in_memory: bool) -> None:
        """A message waits here from now on."""
        if len(self._by_position) < KNOWN:
            self._by_name[name] = Copy(position, packet if in_memory else hash(packet))
            self._by_position[position] = name

    def waits_again(self, position: int, packet: bytes) -> None:
        """A message is in memory that was sent before, or was in the store alone."""
        if is_transactional(packet):
            self.leaves(position)
            name = identifier_of(packet)
            newer = self._by_name.get(name)
            if newer is None or newer.position < position:
                self.waits(name, position, packet, in_memory=True)

    def leaves(self, position: int) -> None:
        """A message is sent, or leaves the queue."""
        name = self._by_position.pop(position, None)
        if name is not None and self._by_name[name].position == position:
            del self._by_name[name]
