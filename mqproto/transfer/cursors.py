"""The progress of an outgoing sequence, as positions in its queue, and the numbers in its packets.

3.1.1.3.1.1, 3.1.1.6.2, 3.1.7.1.3

Positions count all messages that ever joined the queue. Numbers, from 1, count those of the current sequence, which
begins after `base`; so message `number` is at position `base + number`.

    base        acknowledged    saved_through   sent_ceiling             last
     │ OrderAck came │ next hop has │ was sent once │ was never sent       │
    ─┼───────────────┼──────────────┼───────────────┼──────────────────────┼──►
                     │<─────────────── kept until their OrderAck ─────────>│
    what the store says about sent_ceiling:            └── up to 256 more ──► stored_ceiling

    a resend:        └─ sent again ─► resent_through ─ read ─► resend_after ─ to be read ─► resend_through

`sent_through`, the position of the window's head, is at or before `sent_ceiling`: when a session breaks it moves back.
base, acknowledged, saved_through, last and stored_ceiling are on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.base.ranges import Ranges
from mqproto.queues.lanes import QueueWindow
from mqproto.turn.effects import OutgoingRow
from mqproto.wire import TxSequenceId, with_place, with_previous_number

CEILING_BLOCK: Final = 256
"""How many positions the stored ceiling may be ahead of the sent messages.

Because of this margin, few sends wait for a commit.
"""


class Cursors:
    """The progress of one sequence, as positions in its queue.

    When a sequence begins, the first five fields are all set to the last position in the queue. Of the others,
    `resent_through` is 0 until the first resend.

    base: the position before the first message of the current sequence.
    acknowledged: the last message that an OrderAck has acknowledged; all messages before it are acknowledged, too.
    saved_through: the next hop has all messages up to this one on its disk.
    sent_ceiling: no message after it was ever sent. After a restart it is unknown, so it starts as the stored ceiling,
        or as the last message if that comes first.
    stored_ceiling: the ceiling in the store.
    resend_after, resend_through: during a resend, the messages after `resend_after`, up to `resend_through`, have yet
        to be read; both are 0 at other times.
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
        """Record that all messages up to a position are leaving.

        Return whether the stored ceiling has been raised, so that it must be on disk before they leave.
        """
        self.sent_ceiling = max(self.sent_ceiling, position)
        if self.sent_ceiling <= self.stored_ceiling:
            return False
        self.stored_ceiling = self.sent_ceiling + CEILING_BLOCK
        return True

    def save(self, position: int) -> bool:
        """Record that the next hop has all messages up to a position. Return whether this is new."""
        if position <= self.saved_through:
            return False
        self.saved_through = position
        return True

    def acknowledge(self, position: int) -> bool:
        """Record that the destination, and so the next hop, has all messages up to a position.

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


TRANSACTION_LIMIT: Final = 10_000
"""The maximum number of messages in one transaction; all of them are written in one commit."""
LAST_NUMBER: Final = 0xFFFFFFFE
"""The highest TxSequenceNumber that a later message can name as its previous one.  [MS-MQMQ] 2.2.20.5"""
USED_UP: Final = LAST_NUMBER - TRANSACTION_LIMIT
"""A sequence that has reached this number takes no more messages.

It begins again when all its messages are acknowledged.
"""
NUMBER_BLOCK: Final = 4_096
"""The size of the blocks in which a sequence takes its numbers if no number may be used twice.

The first block has the numbers 1 to 4,096.
"""


def block_of(number: int) -> int:
    """Return the first number of the block that contains this number."""
    return (number - 1) // NUMBER_BLOCK * NUMBER_BLOCK + 1


def block_after(number: int) -> int:
    """Return the first number of the block after the one that contains this number."""
    return block_of(number + NUMBER_BLOCK)


class Numbering:
    """The numbers between the last OrderAck and the message that joined last.

    holes: numbers that no longer belong to any message; the next message bridges them.  3.1.7.1.3
    behind: the destination's last number, if that is lower than in its earlier OrderAck, because its store is an older
        copy. The messages that it lost are gone here, too, so the first kept message bridges their numbers.
    renumbered_through: up to this position, the packets in the store have numbers other than those with which they are
        sent.
    """

    def __init__(self, cursors: Cursors, window: QueueWindow) -> None:
        self.cursors = cursors
        self._window = window
        self.identifier = TxSequenceId()
        self.holes = Ranges()
        self.behind: int | None = None
        self.renumbered_through = 0
        self._of_others = Ranges()
        """The members of `holes` that this sequence skipped, because other sequences may use these numbers."""
        self._bridged_through = 0
        """The highest number that a message sent so far has bridged."""

    def begin(self, identifier: TxSequenceId) -> None:
        """Begin without any kept messages. The next message gets the number 1."""
        self.identifier = identifier
        self.holes.clear()
        self._of_others.clear()
        self._bridged_through = 0

    @property
    def first_number(self) -> int:
        """The number of EodFirstNonAck, the first message without an OrderAck.

        If there is no such message, it is the number that the next message gets.
        """
        return self.holes.after(self.cursors.last_ack)

    def kept_through(self, number: int) -> int:
        """Return how many messages up to a number still wait for their OrderAck."""
        last_ack = self.cursors.last_ack
        return number - last_ack - self.holes.count_through(number) if number > last_ack else 0

    @property
    def sent_through(self) -> int:
        """The position before the next message to send. Every message up to it has had its turn at least once."""
        return self._window.next_position - 1

    @property
    def _last_begun(self) -> int:
        """The last number whose message was sent or withdrawn; 0 if there is none.

        It is also 0 if the window's position is still before the sequence, because earlier messages were purged only on
        disk.
        """
        return max(0, self.sent_through - self.cursors.base)

    @property
    def last_sent_number(self) -> int:
        """The number of EodLastNonAck, the last message that was sent.  [MS-MQDMPR] 3.1.1.4"""
        return self.holes.before(self._last_begun + 1)

    @property
    def unacked_count(self) -> int:
        """EodNoAckCount: the number of messages that were sent and have no OrderAck yet.  [MS-MQDMPR] 3.1.1.4"""
        return self.kept_through(self._last_begun)

    def is_kept(self, position: int) -> bool:
        """Whether the message at a position still waits for its OrderAck."""
        number = position - self.cursors.base
        return number > self.cursors.last_ack and number not in self.holes

    def pass_over(self, first: int, last: int) -> None:
        """Skip these numbers, because other sequences may give them to messages."""
        self.holes.add(first, last)
        self._of_others.add(first, last)

    def numbered(self, position: int, packet: bytes) -> bytes:
        """Return a packet as it is sent.

        Its PreviousTxSequenceNumber bridges the gap left by messages that were withdrawn, or that the destination lost.
        If it was renumbered, it has its new place.
        """
        number = position - self.cursors.base
        previous = self.holes.before(number)
        if self.behind is not None and previous <= self.cursors.last_ack:
            previous = self.behind
        if previous < number - 1:
            self._bridged_through = max(self._bridged_through, number - 1)
        if position <= self.renumbered_through:
            return with_place(packet, self.identifier, number, previous)
        return with_previous_number(packet, previous)

    def with_its_place(self, position: int, packet: bytes) -> bytes:
        """Return a stored packet with its present place in the sequence."""
        if position > self.renumbered_through:
            return packet
        number = position - self.cursors.base
        return with_place(packet, self.identifier, number, self.holes.before(number))

    def was_sent(self, number: int) -> bool:
        """Return whether a message with this number may have reached the destination.

        After a restart, any of them may have.
        """
        return 0 < number <= self.cursors.sent_ceiling - self.cursors.base

    def may_mean(self, number: int) -> bool:
        """Return whether an OrderAck that has only this number may be about this sequence."""
        return self.was_sent(number) and number not in self._of_others

    def first_proven(self, number: int) -> int:
        """Return the number of the earliest message whose arrival is proved by an OrderAck with `number`.

        This is about messages that are no longer kept. The message with `number` has arrived. Earlier ones have
        arrived, too, unless a message sent after them has bridged their numbers.
        """
        return min(number, max(self.cursors.last_ack, self._bridged_through) + 1)

    def renumber(self, identifier: TxSequenceId, last: int) -> None:
        """Give another identifier, and numbers from 1, to the kept messages up to a position."""
        gone, holes = self.cursors.last_ack, list(self.holes)
        self.begin(identifier)
        for first, through in holes:
            self.holes.add(first - gone, through - gone)
        self.cursors.base = self.cursors.acknowledged
        self.renumbered_through = last
        self.behind = None

    def restore(self, row: OutgoingRow, missing: Iterable[tuple[int, int]]) -> None:
        """Continue from a stored row.

        missing: ranges of unacknowledged messages that are gone.
        """
        self.identifier = TxSequenceId(ordinal=row.ordinal, time_stamp=row.time_stamp)
        self.renumbered_through = row.renumbered_through
        self._bridged_through = row.next_number - 1  # What was passed over before is not known.
        self._give_up_blocks(1, row.last_ack, row.next_number)
        for low, high in missing:
            if low <= high:
                self.holes.add(low - row.base, high - row.base)
                self._give_up_blocks(low - row.base, high - row.base, row.next_number)

    def _give_up_blocks(self, first: int, last: int, next_number: int) -> None:
        """Give up whole blocks of these numbers, except for the last block.

        None of the numbers belongs to a kept message, so other sequences may use them.
        """
        first, last = block_after(first - 1), block_of(min(last + 1, next_number - 1)) - 1
        if first <= last:
            self._of_others.add(first, last)
