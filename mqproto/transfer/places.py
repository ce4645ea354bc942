"""The places in memory for strangers' sequences, and how the store finds a sequence without a place.

There are `strangers_sequences` places. If all are taken, the host with the most places gives one up. Of its queue
managers, the one with the most places gives up the place that it has not used for the longest time. So nobody is turned
away, and a stranger with many sequences displaces only its own. The last accepted number stays on disk, so messages are
accepted in order and exactly once, for as long as they can come again.  [MS-MQQB] 3.1.1.3.1, 3.1.5.8.6
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.spellings import without_case
from mqproto.turn.effects import IncomingRow, ReadSequences
from mqproto.wire import QueueName, TransactionHeader
from mqproto.wire.guid import Guid

SPELLING_BITS: Final = 15
NAME_BITS: Final = 28
QUEUE_BITS: Final = 20
"""How many bits of a negative number hold the number of the local queue.

A sequence without a place has such a negative number instead of the number of a HELD queue. The other bits hold two
hashes of its name: one that ignores case, and one of the exact spelling.
"""


class StrangersPlaces:
    """Those sequences of strangers that have a place in memory."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[Guid, OrderedDict[IncomingSequence, None]]] = {}
        """The sequences, by host and source; the one whose last access was longest ago comes first."""
        self._host_of: dict[IncomingSequence, str] = {}

    def __len__(self) -> int:
        return len(self._host_of)

    def __contains__(self, sequence: IncomingSequence) -> bool:
        return sequence in self._host_of

    def take(self, sequence: IncomingSequence, host: str) -> None:
        """Give a place to a sequence that is accessed from a host, or let it keep its place."""
        if self._host_of.get(sequence) != host:
            if sequence in self._host_of:
                self._leave(sequence)
            self._host_of[sequence] = host
        places = self._hosts.setdefault(host, {}).setdefault(sequence.source, OrderedDict())
        places[sequence] = None
        places.move_to_end(sequence)

    def give_up(self, new_host: str, new_source: Guid) -> tuple[IncomingSequence, IncomingRow | None]:
        """Take the place away from one sequence, and so make room for a sequence from a new source.

        Return the sequence that loses its place, and its row for the disk. The row is None if the sequence never
        accepted a message.
        """
        host = max(
            self._hosts, key=lambda each: sum(map(len, self._hosts[each].values())) + (each == new_host)
        )
        sources = self._hosts[host]
        source = max(sources, key=lambda each: len(sources[each]) + (each == new_source))
        sequence = next(iter(sources[source]))
        self._leave(sequence)
        if not sequence.number:
            return sequence, None
        row = sequence.row()
        return sequence, row._replace(queue=_key(sequence.queue, sequence.name), reply_host=host)

    def _leave(self, sequence: IncomingSequence) -> None:
        host = self._host_of.pop(sequence)
        sources = self._hosts[host]
        del sources[sequence.source][sequence]
        if not sources[sequence.source]:
            del sources[sequence.source]
        if not sources:
            del self._hosts[host]


def lookup(source: Guid, queue: int) -> ReadSequences:
    """Return a request for the stored rows of a source's sequences for a local queue."""
    last = -1 - (queue % 2**QUEUE_BITS << NAME_BITS + SPELLING_BITS)
    return ReadSequences(source, last - 2 ** (NAME_BITS + SPELLING_BITS) + 1, last)


def every_one(source: Guid) -> ReadSequences:
    """Return a request for the stored rows of all sequences of a source."""
    return ReadSequences(source, -(2**63), -1)


def returning(
    rows: Iterable[IncomingRow], queue: int, name: QueueName, header: TransactionHeader
) -> IncomingRow | None:
    """Return the row from `lookup` to which a message belongs; None if there is none.

    The rules are those of spellings.py.
    """
    key, identifier = _key(queue, name), header.tx_sequence_id
    high = NAME_BITS + SPELLING_BITS
    of_queue = (row for row in rows if row.queue >> high == key >> high)
    is_own = {row: row.queue >> SPELLING_BITS == key >> SPELLING_BITS for row in of_queue}
    exact = [
        row for row in is_own if (row.time_stamp, row.ordinal) == (identifier.time_stamp, identifier.ordinal)
    ]
    if header.previous_tx_sequence_number and exact:
        return max(exact, key=lambda row: (is_own[row], row.queue == key, row.number))
    own = [row for row in is_own if is_own[row]]
    if not header.previous_tx_sequence_number:
        own = own if any(row.queue == key or row.time_stamp == identifier.time_stamp for row in own) else []
    return max(
        own,
        key=lambda row: (
            row.time_stamp == identifier.time_stamp,
            row.queue == key,
            row.time_stamp,
            row.ordinal,
        ),
        default=None,
    )


def _key(queue: int, name: QueueName) -> int:
    high = queue % 2**QUEUE_BITS << NAME_BITS | _hash(without_case(name), NAME_BITS)
    return -1 - (high << SPELLING_BITS | _hash(name, SPELLING_BITS))


def _hash(name: QueueName, bits: int) -> int:
    digest = blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) & (1 << bits) - 1
