"""Decides which of the several names of one queue stand for the same sequence.

A queue has a number, perhaps a GUID, and any number of direct names, because a host has names and addresses, and case
does not count. A sender may number all its messages together, and use in each message the name that its application
used. Or it may number the messages separately for each name. Both are right, and one sender may do both:

    PreviousTxSequenceNumber    the sequence that the message belongs to
    not 0: continues            the one of that source and queue that has exactly the message's
                                TxSequenceID, preferably the one under the message's own name
    0: begins                   the one under the message's own name, ignoring case. The same holds
                                if the message continues, but no sequence has its TxSequenceID

So the spelling of the name may change in the middle of a sequence, and two sequences with the same TxSequenceID but
different names stay apart from their first message on. Some senders number their messages separately for spellings that
differ in case, as ours did with layout 4 of stores. They give each spelling its own TimeStamp. So a sequence with a new
spelling and a new TimeStamp is kept in addition to the first one. Otherwise all messages with the lower TimeStamp would
count as duplicates.  [MS-MQDMPR] 3.1.1.5, [MS-MQQB] 3.1.5.8.6
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from mqproto.transfer.incoming import IncomingSequence
from mqproto.wire import QueueName, TransactionHeader
from mqproto.wire.guid import Guid


def without_case(name: QueueName) -> QueueName:
    """Return a queue's name from a packet in the form in which all its spellings are compared."""
    return name.lower() if isinstance(name, str) else name


class IncomingCounts(NamedTuple):
    """Counts of what happened to messages of incoming sequences."""

    duplicates: int = 0
    held: int = 0
    overflowed: int = 0

    def plus(self, sequences: Iterable[IncomingSequence]) -> IncomingCounts:
        """Return these counts plus those of the sequences."""
        duplicates, held, overflowed = self
        for sequence in sequences:
            duplicates += sequence.duplicate_count
            held += sequence.held_count_total
            overflowed += sequence.overflow_count
        return IncomingCounts(duplicates, held, overflowed)


class IncomingSequences:
    """The incoming sequences of one queue manager, by source, local queue, and name regardless of case."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[Guid, int], dict[QueueName, list[IncomingSequence]]] = {}
        self._as_spelt: dict[tuple[Guid, int, QueueName], IncomingSequence] = {}
        """The sequences by source, local queue and exact name, by which nearly every message finds its own."""
        self._count = 0
        self._forgotten = IncomingCounts()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[IncomingSequence]:
        for names in self._by_queue.values():
            yield from chain.from_iterable(names.values())

    def find(
        self, source: Guid, queue: int, name: QueueName, header: TransactionHeader
    ) -> IncomingSequence | None:
        """Return the sequence to which a transactional message belongs; None if it is not in memory.

        queue: the number of the local queue, which has this name in the message.
        """
        identifier = header.tx_sequence_id
        usual = self._as_spelt.get((source, queue, name))
        if usual is not None and usual.identifier == identifier:
            return usual
        names = self._by_queue.get((source, queue))
        if names is None:
            return None
        own = self.under_name(source, queue, name)
        for sequence in own:
            if sequence.identifier == identifier:
                return sequence
        if header.previous_tx_sequence_number:
            for sequence in chain.from_iterable(names.values()):
                if sequence.identifier == identifier:
                    return sequence
        time_stamp = identifier.time_stamp
        if not header.previous_tx_sequence_number and all(
            one.name != name and one.time_stamp != time_stamp for one in own
        ):
            return None
        return max(
            own,
            key=lambda one: (one.time_stamp == time_stamp, one.name == name, one.identifier),
            default=None,
        )

    def has(self, source: Guid, queue: int, name: QueueName) -> bool:
        """Return whether a sequence has exactly this name. If so, `find` always finds one."""
        return (source, queue, name) in self._as_spelt

    def under_name(self, source: Guid, queue: int, name: QueueName) -> list[IncomingSequence]:
        """Return the sequences for a local queue under a name, ignoring case.

        There is one for each spelling that has a TimeStamp of its own.
        """
        return self._by_queue.get((source, queue), {}).get(without_case(name), [])

    def of(self, source: Guid, queue: int) -> IncomingSequence | None:
        """Return any sequence from a source to a local queue; None if there is none.

        Any will do, because the acknowledgments of all of them go to the same place.
        """
        names = self._by_queue.get((source, queue), {})
        return next(chain.from_iterable(names.values()), None)

    def add(self, sequence: IncomingSequence) -> None:
        """Add a sequence that is not known yet."""
        names = self._by_queue.setdefault((sequence.source, sequence.queue), {})
        names.setdefault(without_case(sequence.name), []).append(sequence)
        self._as_spelt[sequence.source, sequence.queue, sequence.name] = sequence
        self._count += 1

    @property
    def counted(self) -> IncomingCounts:
        """Return the counts of all sequences since the process started. They never fall.

        Forgotten sequences are included.
        """
        return self._forgotten.plus(self)

    def remove(self, sequence: IncomingSequence) -> None:
        """Forget a sequence, but not its counts."""
        self._forgotten = self._forgotten.plus([sequence])
        of_queue, name = (sequence.source, sequence.queue), without_case(sequence.name)
        names = self._by_queue[of_queue]
        names[name].remove(sequence)
        if not names[name]:
            del names[name]
        if not names:
            del self._by_queue[of_queue]
        del self._as_spelt[sequence.source, sequence.queue, sequence.name]
        self._count -= 1
