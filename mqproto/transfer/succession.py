"""The sequences to one destination queue: those of earlier processes, and one that takes new messages.

A store may have been restored from an earlier copy, and nothing in it shows that. The later store, which was lost, may
have sent messages with the next numbers. The destination would then drop others with these numbers as duplicates. So a
process adds no message to a sequence that it finds in the store. Instead, it begins its own sequence, which waits until
the earlier ones keep no message.

    found in the store, in order of their TxSequenceIDs          begun in this process
    ┌ 1999999999/1700000000 ─┐  ┌ 1999999999/1700003600 ─┐        ┌ 1999999999/1700007200 ─┐
    │ is the head, sends     │  │ waits                  │        │ waits, takes messages  │
    └────────────────────────┘  └────────────────────────┘        └────────────────────────┘
      when it keeps no message, the next one is the head ──►

The TimeStamp is made from the destination's name, regardless of case, and is the same in every store. So an OrderAck
shows which destination queue it is about, even if it has an identifier that this store has not given. Nothing else in
the OrderAck shows that. The Ordinal grows by one after each sequence, as 3.1.5.6 says. Each process starts with the
current UTC time in seconds, plus a few, if that is higher. So its Ordinal is greater than any that another copy of the
store has given, unless the clock was wrong. If a store is known to have been restored, the last Ordinal that it gave
before is usually known, too. If an Ordinal is too low after all, the destination's OrderAck shows
it: `Confirmations._destination_is_ahead`.
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
"""The lowest of our TimeStamps.

Stores of layout 4, and Windows according to note <35>, use the UTC time in seconds instead. Until July 2029, that is
lower. The highest TimeStamp has 31 bits, because other programs use a signed integer.  [MS-MQMQ] 2.2.5
"""
LAST_TIME_STAMP: Final = FIRST_TIME_STAMP + 2**28 - 1
SPREAD: Final = 256
"""The number of ordinals from which a process chooses its first one."""
LAST_ORDINAL: Final = 0xFFFFFFFF - 0xFFFF
"""The highest Ordinal to accept from OrderAcks. Each sequence that ends uses up one more Ordinal."""
IDENTIFIER: Final = attrgetter("identifier")


def one_spelling(name: str) -> str:
    """Return a format name in the form for comparison, without case. Most names already have this form."""
    keyword, colon, rest = name.partition(":")
    if not colon:
        return name.upper()
    return keyword.upper() + colon + rest.lower().replace("\\private$\\", "\\PRIVATE$\\", 1)


def time_stamp_of(name: str) -> int:
    """Return the TimeStamp of all sequences to the queue with this format name.

    Other names may have the same one by chance.
    """
    return FIRST_TIME_STAMP + zlib.crc32(one_spelling(name).encode()) % 2**28


class Succession:
    """The sequences to one destination queue, in order.

    Stores of layout 4 distinguished names by case. Their sequences under several spellings form one succession with
    several TimeStamps. Sequences with lower TimeStamps are sent first. New sequences have the highest TimeStamp, with
    its spelling.

    Args:
        time_stamp: the TimeStamp of new sequences. Sequences of a store of layout 4 may have another one.
        first_ordinal: the first Ordinal that cannot have been given before; 0 if that is not known.
        dice: a number from the shell, different in each process.
        wake: called when a sequence may have something to send.
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
        """Whether only an OrderAck that names a sequence counts.

        That is so if the destination has sent such an OrderAck since this process started, or if there are no unused
        numbers left.
        """

    def __iter__(self) -> Iterator[OutgoingSequence]:
        return iter(self._members)

    @property
    def head(self) -> OutgoingSequence:
        """The sequence that sends."""
        return next(member for member in self._members if member.is_head)

    @property
    def newest(self) -> OutgoingSequence:
        """The last sequence. It takes messages if it is not closed."""
        return self._members[-1]

    @property
    def spare(self) -> OutgoingSequence | None:
        """A sequence without messages that may begin again under the newest one's name; None if there is none."""
        name = self.newest.name
        return next((member for member in self._members if not member.count and member.name == name), None)

    @property
    def last_number(self) -> int:
        """The highest number that any of the sequences has given."""
        return max(member.next_number for member in self._members) - 1

    def named(self, identifier: TxSequenceId) -> OutgoingSequence | None:
        """Return the sequence that has this identifier now; None if there is none."""
        return next((member for member in self._members if member.identifier == identifier), None)

    def speaking_of(self, identifier: TxSequenceId) -> OutgoingSequence:
        """Return the sequence with this identifier.

        If there is none, return a present sequence that has the identifier's TimeStamp, preferably the head. If there
        is none of these either, return the head.
        """
        time_stamp = identifier.time_stamp
        same = (member for member in self._members if member.identifier.time_stamp == time_stamp)
        return self.named(identifier) or (
            self.head if self.head.identifier.time_stamp == time_stamp else next(same, self.head)
        )

    def add(self, sequence: OutgoingSequence) -> None:
        """Add a sequence that was found in the store, or a new one. Its place depends on its identifier."""
        self.time_stamp = max(self.time_stamp, sequence.identifier.time_stamp)
        sequence.emptied = self._choose_head
        self._members.append(sequence)
        self._members.sort(key=IDENTIFIER)
        self._choose_head()

    def begin(self, sequence: OutgoingSequence, now: Moment) -> None:
        """Let a sequence, whether known or new, take messages from now on. It becomes the newest."""
        sequence.begin(self._above(0, now))
        if sequence in self._members:
            self._members.remove(sequence)
        self.add(sequence)

    def renumber(self, sequence: OutgoingSequence, above: int, now: Moment, writes: PendingWrites) -> None:
        """Give a sequence of this process an Ordinal that is higher than all others.

        above: an Ordinal that the destination has seen; the new Ordinal is higher than this, too.
        """
        sequence.renumber(self._above(above, now), now, writes)
        self._members.sort(key=IDENTIFIER)

    def _above(self, seen: int, now: Moment) -> TxSequenceId:
        """Return an identifier above all others here, whose Ordinal is higher than `seen`.

        The next Ordinal after each present one is left for the sequence that has the present one, which takes it when
        it ends.

        seen: an Ordinal that the destination has seen.
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
