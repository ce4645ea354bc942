"""The ways in which messages end: received, refused, expired or deleted.

manager/outcomes.py handles the consequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from mqproto.wire.guid import Guid


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The destination for a sequence's acknowledgments.  3.1.7.17

    direct_host: the neighbour's address if the message came by a direct format name; otherwise None.
    """

    manager: Guid
    direct_host: str | None


class Place(Enum):
    """Where a message was when it ended."""

    ON_THE_WAY = auto()
    """It was in an outgoing queue of ours, or had just arrived for another queue manager."""
    AT_DESTINATION = auto()
    """It had just arrived at its destination, but was not in its queue."""
    IN_QUEUE = auto()
    """It was in its destination queue, which is ours."""
    ELSEWHERE = auto()
    """It was our own, and was at its destination or on its way there.

    A FinalAck or a session acknowledgment told us about its end.
    """


class Ending(NamedTuple):
    """One message that ended here, or whose end was reported to us.

    queue: the number that the store has for the local queue in which it was; 0 if it was in none.
    reply_to: the destination of a FinalAck, if the message is another queue manager's transactional one.
    is_set_aside: whether it is kept here as a dead letter even if its sender did not ask for that.
    in_doubt: whether it is our own, was sent, and may have arrived.
    is_copy: whether it is only a copy: its sender keeps the message until the destination has answered.
    """

    packet: bytes
    message_class: int
    place: Place
    queue: int = 0
    reply_to: ReplyTo | None = None
    is_set_aside: bool = False
    in_doubt: bool = False
    is_copy: bool = False
