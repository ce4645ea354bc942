"""A message on its way into a queue."""

from __future__ import annotations

from typing import NamedTuple


class Joining(NamedTuple):
    """A packet with what its queue has to know of it, so that no queue reads it again.

    packet: as it will be sent or handed out, without a SessionHeader.
    recoverable: whether it must survive a crash; transactional ones are.
    final_ack: whether it is kept for a FinalAck after its OrderAck, or asks for one.
    expires_s: after this second, UTC, it is to be looked at, for its time may be over; None if it never is.
    """

    packet: bytes
    message_id: int
    recoverable: bool
    final_ack: bool = False
    expires_s: int | None = None
