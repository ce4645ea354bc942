"""Messages that are about to join a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Joining(NamedTuple):
    """One or more consecutive packets, with the facts that their queue needs.

    A field with a single value applies to all of the packets.

    packets: the messages as they will be sent or handed out, without a SessionHeader.
    recoverable: whether they must survive a crash; True for transactional ones.
    final_ack: whether they are kept for a FinalAck after their OrderAck, or ask for a FinalAck.
    expires_s: for each packet, the second, UTC, after which to check whether it has expired; None if it never expires.
    """

    packets: Sequence[bytes]
    message_ids: Sequence[int]
    recoverable: bool
    final_ack: bool
    expires_s: Sequence[int | None]

    def singly(self) -> Iterator[Joining]:
        """Yield each message as a `Joining` of its own."""
        for packet, message_id, expires_s in zip(self.packets, self.message_ids, self.expires_s, strict=True):
            yield joining(packet, message_id, self.recoverable, self.final_ack, expires_s)


def joining(
    packet: bytes, message_id: int, recoverable: bool, final_ack: bool = False, expires_s: int | None = None
) -> Joining:
    """Return one packet as a `Joining`."""
    return Joining((packet,), (message_id,), recoverable, final_ack, (expires_s,))
