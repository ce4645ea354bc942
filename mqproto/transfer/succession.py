"""The sequences to one destination queue: those that earlier processes began, and the one that takes messages.

A store may be one of an earlier moment, put back, and nothing here need tell. So a process adds nothing to a sequence
that it found: the next numbers there may stand for messages that a later moment of the store had sent, and the
destination would drop others under them as duplicates. It begins one of its own, which waits until nothing of the ones
before is kept.

    found in the store, in order of their TxSequenceIDs          begun in this process
    ┌ 1999999999/1700000000 ─┐  ┌ 1999999999/1700003600 ─┐        ┌ 1999999999/1700007200 ─┐
    │ is the head, sends     │  │ waits                  │        │ waits, takes messages  │
    └────────────────────────┘  └────────────────────────┘        └────────────────────────┘
      when nothing of it is kept, the next one is the head ──►

The TimeStamp is made of the destination's name, whatever its case, in every store alike. So an OrderAck is known to
be about this destination queue, though it may name an identifier that this store has not given, or not yet; it says
nothing else of where it belongs. The Ordinal is one more after each sequence, as 3.1.5.6 says. With each process it
is the present second, UTC, and a few more, where that is above. So it is greater than all that another moment of the
store has given, unless the clock was wrong; and where the store knows that a new life of it begins, it knows up to
where the one before had come. If it is not greater after all, the destination tells:
`Confirmations._destination_is_ahead`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.pending import PendingWrites
from mqproto.wire import TxSequenceId

FIRST_TIME_STAMP: Final = 2**31 - 2**28
"""The lowest of our TimeStamps: above the seconds, UTC, that version 0.5 took, and that Windows takes by note <35>,
until July 2029. The highest has 31 bits, as the whole is a signed integer elsewhere ([MS-MQMQ] 2.2.5)."""
LAST_TIME_STAMP: Final = FIRST_TIME_STAMP + 2**28 - 1
SPREAD: Final = 256
"""Among how many ordinals a process chooses its first."""
LAST_ORDINAL: Final = 0xFFFFFFFF - 0xFFFF
"""No destination's word leads above it: each end of a sequence takes another."""
IDENTIFIER: Final = attrgetter("identifier")


def one_spelling(name: str) -> str:
    """A format name as all spellings of it are compared: case does not count, and this is how most are written."""
    keyword, colon, rest = name.partition(":")
    if not colon:
        return name.upper()
    return keyword.upper() + colon + rest.lower().replace("\\private$\\", "\\PRIVATE$\\", 1)


def time_stamp_of(name: str) -> int:
    """The TimeStamp of all sequences to the queue with this format name; by chance another's may be the same."""
    return FIRST_TIME_STAMP + zlib.crc32(one_spelling(name).encode()) % 2**28


class Succession:
    """The sequences to one destination queue, in order.

    Version 0.5 told names apart by case. What it left under several spellings is one succession with several
    TimeStamps: the lower are sent first, and what begins has the highest, under the name of those that have it.

    Args:
        time_stamp: that of what begins from now on. Sequences that version 0.5 left may have another.
        first_ordinal: from which Ordinal on none can have been given before; 0 if that is not known.
        dice: a number of the shell's, another one in each process.
        wake: tells that a sequence may have something to send.
    """

    def __init__(
        self, time_stamp: int, first_ordinal: int, dice: int, wake: Callable[[OutgoingSequence], None]
    ) -> None:
        self.time_stamp = time_stamp
        self._first_ordinal = first_ordinal
        self._dice = dice
        self._wake = wake
        self._members: list[OutgoingSequence] = []
        self.by_name = False
        """Whether only an OrderAck that names one of them counts: its destination has done so since this process began,
        or there are no numbers left that were never given."""

    def __iter__(self) -> Iterator[OutgoingSequence]:
        return iter(self._members)

    @property
    def head(self) -> OutgoingSequence:
        """The one that sends."""
        return next(member for member in self._members if member.is_head)

    @property
    def newest(self) -> OutgoingSequence:
        """The last one; it takes messages if it is not closed."""
        return self._members[-1]

    @property
    def spare(self) -> OutgoingSequence | None:
        """One that keeps nothing, and may begin again under its name."""
        name = self.newest.name
        return next((member for member in self._members if not member.count and member.name == name), None)

    @property
    def last_number(self) -> int:
        """The highest number that one of them has given."""
        return max(member.next_number for member in self._members) - 1

    def named(self, identifier: TxSequenceId) -> OutgoingSequence | None:
        """The one that has this identifier now."""
        return next((member for member in self._members if member.identifier == identifier), None)

    def speaking_of(self, identifier: TxSequenceId) -> OutgoingSequence:
        """The one that has this identifier, or one that followed on it."""
        time_stamp = identifier.time_stamp
        same = (member for member in self._members if member.identifier.time_stamp == time_stamp)
        return self.named(identifier) or (
            self.head if self.head.identifier.time_stamp == time_stamp else next(same, self.head)
        )

    def add(self, sequence: OutgoingSequence) -> None:
        """One that was found, or a new one; each has its place by its identifier."""
        self.time_stamp = max(self.time_stamp, sequence.identifier.time_stamp)
        sequence.emptied = self._choose_head
        self._members.append(sequence)
        self._members.sort(key=IDENTIFIER)
        self._choose_head()

    def begin(self, sequence: OutgoingSequence, now: Moment) -> None:
        """One of them, or a new one, takes messages from now on, and is the newest."""
        sequence.begin(self._above(0, now))
        if sequence in self._members:
            self._members.remove(sequence)
        self.add(sequence)

    def renumber(self, sequence: OutgoingSequence, above: int, now: Moment, writes: PendingWrites) -> None:
        """One that this process began gets an Ordinal above one that its destination has seen, and above all others."""
        sequence.renumber(self._above(above, now), now, writes)
        self._members.sort(key=IDENTIFIER)

    def _above(self, seen: int, now: Moment) -> TxSequenceId:
        """An identifier above all here, and above that with an Ordinal that the destination has seen.

        Each of those here may still end, and then takes the Ordinal after its own.
        """
        known = max((member.identifier.ordinal for member in self._members), default=0)
        ordinal = max(known + 2, seen + 1, self._first_ordinal, now.utc_s) + self._dice % SPREAD
        return TxSequenceId(time_stamp=self.time_stamp, ordinal=ordinal)

    def _choose_head(self) -> None:
        head = next((member for member in self._members if member.count), self.newest)
        for member in self._members:
            was_head, member.is_head = member.is_head, member is head
            if member.is_head and not was_head:
                self._wake(member)
