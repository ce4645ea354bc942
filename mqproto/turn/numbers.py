"""Numbers that one queue manager never gives twice.  3.1.1.3, 3.1.1.3.1"""

from __future__ import annotations

from typing import Final

from mqproto.turn.effects import (
    LIFE,
    MESSAGE_ID_CEILING,
    SEQUENCE_ORDINAL_CEILING,
    SEQUENCE_ORDINAL_FIRST,
    NewLife,
    StoredState,
)
from mqproto.turn.pending import PendingWrites
from mqproto.wire import TxSequenceId

MESSAGE_ID_BLOCK: Final = 65_536
"""How many MessageIDs the store sets aside at a time. A crash leaves the rest of a block unused."""
ORDINAL_BLOCK: Final = 4_096
"""How many Ordinals of TxSequenceIDs are set aside at a time.

One is used whenever all messages are acknowledged.
"""


class GivenNumbers:
    """The next numbers for queues and messages, and the ceilings of these numbers in the store.

    first_ordinal: the first Ordinal of a TxSequenceID that no earlier life can have given; 0 if that is not known.
    """

    def __init__(self, writes: PendingWrites, state: StoredState) -> None:
        self._writes = writes
        self.first_ordinal = state.counters.get(SEQUENCE_ORDINAL_FIRST, 0)
        self._ordinal_ceiling = state.counters.get(SEQUENCE_ORDINAL_CEILING, 0)
        self._next_queue = 1 + max((stored.queue for stored in state.queues), default=0)
        self._next_message_id = self._message_id_ceiling = state.counters.get(MESSAGE_ID_CEILING, 1)
        if state.life is not None:
            self._begin(state.life)

    def _begin(self, life: NewLife) -> None:
        """Give no MessageID or TxSequenceID that an earlier life may have given.  3.1.1.3, 3.1.1.3.1"""
        self._next_message_id = self._message_id_ceiling = life.first_message_id
        self.first_ordinal = self._ordinal_ceiling = max(self._ordinal_ceiling, life.first_sequence_ordinal)
        self._writes.urgent().counters |= {
            LIFE: life.number,
            MESSAGE_ID_CEILING: self._message_id_ceiling,
            SEQUENCE_ORDINAL_CEILING: self._ordinal_ceiling,
            SEQUENCE_ORDINAL_FIRST: self.first_ordinal,
        }

    def next_queue(self) -> int:
        """Return a number for a queue that is new to the store."""
        self._next_queue += 1
        return self._next_queue - 1

    def next_message_id(self) -> int:
        """Return the next MessageIdOrdinal.  3.1.1.3"""
        return self.next_message_ids(1)[0]

    def next_message_ids(self, count: int) -> list[int]:
        """Return the next MessageIdOrdinals, one for each of several messages."""
        first, self._next_message_id = self._next_message_id, self._next_message_id + count
        while self._next_message_id > self._message_id_ceiling:
            self._message_id_ceiling += MESSAGE_ID_BLOCK
            self._writes.urgent().counters[MESSAGE_ID_CEILING] = self._message_id_ceiling
        return [number & 0xFFFFFFFF for number in range(first, self._next_message_id)]

    def set_aside(self, identifier: TxSequenceId) -> None:
        """Make the store's ceiling higher than an identifier's Ordinal, before any message has the identifier."""
        if identifier.ordinal >= self._ordinal_ceiling:
            self._ordinal_ceiling = identifier.ordinal + ORDINAL_BLOCK
            self._writes.urgent().counters[SEQUENCE_ORDINAL_CEILING] = self._ordinal_ceiling
