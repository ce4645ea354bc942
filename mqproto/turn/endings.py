"""The ways in which messages end: received, refused, expired or deleted. manager/outcomes.py has the consequences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from mqproto.wire.guid import Guid


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The destination of a sequence's acknowledgments.  3.1.7.17

    direct_host: the neighbour's address if the message came by a direct format name, else None.
    """

    manager: Guid
    direct_host: str | None


class Place(Enum):
    """Where a message was when its way ended."""

    ON_THE_WAY = auto()
    """In an outgoing queue of ours, or just arrived for another queue manager."""
    AT_DESTINATION = auto()
    """Just arrived at its destination, but not in its queue."""
    IN_QUEUE = auto()
    """In its destination queue, which is ours."""
    ELSEWHERE = auto()
    """At its destination or on the way there: our own message, whose FinalAck or session acknowledgment informed us."""


class Ending(NamedTuple):
    """One message that ended here, or whose end was reported to us.

    queue: the store's number of its local queue; 0 if it was not in one.
    reply_to: the destination of a FinalAck, if it is another's transactional message.
    is_set_aside: whether it is kept here as a dead letter even if its sender did not ask for that.
    in_doubt: whether it is our own, was sent, and may have arrived.
    is_copy: whether its sender keeps it until its destination has answered.
    """

    packet: bytes
    message_class: int
    place: Place
    queue: int = 0
    reply_to: ReplyTo | None = None
    is_set_aside: bool = False
    in_doubt: bool = False
    is_copy: bool = False
