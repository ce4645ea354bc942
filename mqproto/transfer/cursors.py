"""How far an outgoing sequence has progressed, given as positions in its queue.  3.1.1.6.2

Positions count all messages that ever joined the queue. Numbers, which start from 1, count the messages of the current
sequence, which begins after `base`. So message `number` is at position `base + number`.

    base        acknowledged    saved_through   sent_ceiling             last
     │ OrderAck came │ next hop has │ was sent once │ was never sent       │
    ─┼───────────────┼──────────────┼───────────────┼──────────────────────┼──►
                     │<─────────────── kept until their OrderAck ─────────>│
    what the store says about sent_ceiling:            └── up to 256 more ──► stored_ceiling

    a resend:        └─ sent again ─► resent_through ─ read ─► resend_after ─ to be read ─► resend_through

`sent_through` is the position just before the window's head. It is at or before `sent_ceiling`, because it moves back
when a session breaks. base, acknowledged, saved_through, last and stored_ceiling are on disk.
"""

from __future__ import annotations

from typing import Final

CEILING_BLOCK: Final = 256
"""How far, in positions, the stored ceiling may be ahead, so that few sends wait for a commit."""


class Cursors:
    """The places of one sequence, all of them positions. At the start, all except `last` are the same.

    base: the position before the first message of the current sequence.
    acknowledged: the last message that an OrderAck has acknowledged; all messages before it are acknowledged, too.
    saved_through: the last message up to which the next hop has all messages on its disk.
    sent_ceiling: no message after it was ever sent. After a restart it is unknown, so it starts as the stored ceiling.
    stored_ceiling: the ceiling in the store.
    resend_after, resend_through: during a resend, the messages after `resend_after`, up to `resend_through`, have yet
        to be read.
    resent_through: the last message that was sent again.
    """

    __slots__ = (
        "acknowledged",
        "base",
        "resend_after",
        "resend_through",
        "resent_through",
        "saved_through",
        "sent_ceiling",
        "stored_ceiling",
    )

    def __init__(self, last: int) -> None:
        self.resent_through = 0
        self.begin(last)

    def begin(self, last: int) -> None:
        """Begin a new sequence after the last message of the queue. It has no messages of its own yet."""
        self.base = self.acknowledged = self.saved_through = self.sent_ceiling = self.stored_ceiling = last
        self.end_resend()

    def restore(self, base: int, acknowledged: int, saved_through: int, ceiling: int, last: int) -> None:
        """Continue from the state in the store. The next hop has all acknowledged messages."""
        self.base, self.acknowledged = base, acknowledged
        self.saved_through = max(saved_through, acknowledged)
        self.stored_ceiling, self.sent_ceiling = ceiling, min(ceiling, last)
        self.check(last)

    def send(self, position: int) -> bool:
        """Note that all messages up to a position leave.

        Return whether the stored ceiling has been raised, so that it must be on disk before they leave.
        """
        self.sent_ceiling = max(self.sent_ceiling, position)
        if self.sent_ceiling <= self.stored_ceiling:
            return False
        self.stored_ceiling = self.sent_ceiling + CEILING_BLOCK
        return True

    def save(self, position: int) -> bool:
        """Note that the next hop has all messages up to a position. Return whether this was not known yet."""
        if position <= self.saved_through:
            return False
        self.saved_through = position
        return True

    def acknowledge(self, position: int) -> bool:
        """Note that the destination, and so the next hop, has all messages up to a position.

        Returns:
            Whether these include messages beyond those that were sent again. If so, the first copies were
            only late, and the resend ends.
        """
        self.acknowledged = position
        self.saved_through = max(self.saved_through, position)
        return position > self.resent_through

    def begin_resend(self, sent_through: int) -> None:
        """Begin to resend all messages that are not acknowledged."""
        self.resend_after = self.resent_through = self.acknowledged
        self.resend_through = sent_through

    def end_resend(self) -> None:
        """Stop the resend."""
        self.resend_after = self.resend_through = 0

    @property
    def last_ack(self) -> int:
        """The number in the last OrderAck; 0 if none has come for the current sequence."""
        return self.acknowledged - self.base

    def check(self, last: int) -> None:
        """Assert that the positions are in the same order as in the picture."""
        places = self.base, self.acknowledged, self.saved_through, last
        assert list(places) == sorted(places), f"the places of a sequence are out of order: {places}"
        most = min(self.stored_ceiling, last)
        assert self.sent_ceiling <= most, f"{self.sent_ceiling} was sent, and it can be {most} at most"
