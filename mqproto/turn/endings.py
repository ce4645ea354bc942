"""How messages end: received, refused, expired, deleted. manager/outcomes.py has what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from mqproto.wire.guid import Guid


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """Where the acknowledgments of a sequence go.  3.1.7.17

    direct_host: the neighbour's address when the message came by a direct format name, else None.
    """

    manager: Guid
    direct_host: str | None


class Place(Enum):
    """Where a message was when its way ended."""

    ON_THE_WAY = auto()
    """Here, on its way to somewhere else: in an outgoing queue, or just arrived."""
    AT_DESTINATION = auto()
    """Just arrived, and not let into the queue that it is for."""
    IN_QUEUE = auto()
    """In the local queue that it was for."""
    ELSEWHERE = auto()
    """Our own message, at its destination or on the way; its FinalAck or session acknowledgment told us."""


class Ending(NamedTuple):
    """One message whose way ended here, or whose end we were told about.

    queue: the number in the store of the local queue that it was in, or else 0.
    reply_to: where a FinalAck would go, if it is transactional and another's.
    is_set_aside: whether it is kept here as a dead letter even if its sender did not ask for that.
    in_doubt: whether it is our own, was sent, and may have arrived.
    is_copy: whether its sender keeps it until its destination has answered for it.
    """

    packet: bytes
    message_class: int
    place: Place
    queue: int = 0
    reply_to: ReplyTo | None = None
    is_set_aside: bool = False
    in_doubt: bool = False
    is_copy: bool = False
