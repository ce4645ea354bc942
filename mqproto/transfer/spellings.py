"""One queue under several names: which of them mean one sequence.

A queue has a number, perhaps a GUID, and direct names without end, as a host has names and addresses and case does not
count. A sender may keep one stream and name the queue in each message as its application did, or count the messages
under each name apart. Both are right, and both may come from one sender:

    goes on (PreviousTxSequenceNumber is not 0)   joins the sequence of that source and queue which has its exact
                                                  TxSequenceID, the one under its own name first
    begins (it is 0), or no sequence has it       belongs to the sequence under its own name, without case

So a stream may change its spelling in the midst, and two streams that are called the same stay apart from the first
message on. Senders that count apart what differs in case, as our version 0.5 did, give each spelling a TimeStamp of its
own: what begins under a new spelling and a new TimeStamp is a sequence beside the first, as otherwise all of the lower
TimeStamp would be taken for what came before.  [MS-MQDMPR] 3.1.1.5, [MS-MQQB] 3.1.5.8.6
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from mqproto.transfer.incoming import IncomingSequence
from mqproto.wire import QueueName, TransactionHeader
from mqproto.wire.guid import Guid


def without_case(name: QueueName) -> QueueName:
    """The name of a queue in a packet, as all spellings of it are compared."""
    return name.lower() if isinstance(name, str) else name


class Counts(NamedTuple):
    """What incoming sequences have counted."""

    duplicates: int = 0
    held: int = 0
    overflowed: int = 0

    def plus(self, sequences: Iterable[IncomingSequence]) -> Counts:
        """The same and what these have."""
        duplicates, held, overflowed = self
        for sequence in sequences:
            duplicates += sequence.duplicate_count
            held += sequence.held_count_total
            overflowed += sequence.overflow_count
        return Counts(duplicates, held, overflowed)


class IncomingSequences:
    """The incoming sequences of one queue manager, by source, local queue and name without case."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[Guid, int], dict[QueueName, list[IncomingSequence]]] = {}
        self._as_spelt: dict[tuple[Guid, int, QueueName], IncomingSequence] = {}
        """By source, local queue and name with its case: nearly every message goes on where its name says."""
        self._count = 0
        self._forgotten = Counts()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[IncomingSequence]:
        for names in self._by_queue.values():
            yield from chain.from_iterable(names.values())

    def find(
        self, source: Guid, queue: int, name: QueueName, header: TransactionHeader
    ) -> IncomingSequence | None:
        """The sequence that a transactional message belongs to, if it is there.

        queue: the number of the local queue that it is for, which it calls by this name.
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
        """Whether there is a sequence of exactly this name; then `find` always finds one."""
        return (source, queue, name) in self._as_spelt

    def under_name(self, source: Guid, queue: int, name: QueueName) -> list[IncomingSequence]:
        """The sequence under the name that messages have for a local queue; one for each spelling with a TimeStamp of
        its own."""
        return self._by_queue.get((source, queue), {}).get(without_case(name), [])

    def of(self, source: Guid, queue: int) -> IncomingSequence | None:
        """Any sequence of a source for a local queue: all of them are answered at one place."""
        names = self._by_queue.get((source, queue), {})
        return next(chain.from_iterable(names.values()), None)

    def add(self, sequence: IncomingSequence) -> None:
        """A sequence that is new here."""
        names = self._by_queue.setdefault((sequence.source, sequence.queue), {})
        names.setdefault(without_case(sequence.name), []).append(sequence)
        self._as_spelt[sequence.source, sequence.queue, sequence.name] = sequence
        self._count += 1

    @property
    def counted(self) -> Counts:
        """What all have counted since the process began, also those that are forgotten: it never falls."""
        return self._forgotten.plus(self)

    def remove(self, sequence: IncomingSequence) -> None:
        """A sequence is forgotten. What it has counted is not."""
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
