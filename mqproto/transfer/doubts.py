"""Remembers the dead letters of messages that may have arrived, until the outcome is reported.

[MS-MQQB] 3.1.1.1.1.7

With `expire_sent = figures`, a transactional message expires even if it was sent and its OrderAck is still awaited. Its
outcome is then unknown, so it is in doubt until its destination reports the outcome. A row in a queue of the store, at
the same position as the dead letter, marks the letter. So even an acknowledgment that comes after a restart finds it.
The row is the FinalAck that this queue manager would have sent for such a message, and identifies the message. Each
queue with letters in doubt, whether it is the system's or an application's, has such a queue of marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mqproto.base.moment import Moment
from mqproto.queues.localqueue import LocalQueue
from mqproto.transfer.incoming import make_final_ack
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow, Note, QueueKind, QueueRow, StoredState, message_key
from mqproto.turn.endings import ReplyTo
from mqproto.wire import (
    FinalAckBody,
    MessageClass,
    TxSequenceId,
    UserMessage,
    acknowledgment_in,
    decode_message,
    encode_packet,
)

IN_DOUBT_NAME: Final = "in_doubt$"
"""The name, in the store, of a queue of marks for the system's letters in doubt.

For an application's letters, the number of their lane is appended. The queue has the order queue's kind, and its
messages stay in memory.
"""
DOUBTS: Final = 65_536
"""The maximum number of messages in doubt, at about 500 bytes each.

When there are more, the oldest one remains as an ordinary dead letter.
"""


class Doubt(NamedTuple):
    """One message in doubt.

    lane: the number, in the store, of the lane that has its dead letter.
    letter: the position of its dead letter.
    """

    identifier: TxSequenceId
    number: int
    message_id: int
    lane: int
    letter: int

    @property
    def place(self) -> tuple[int, int]:
        """The place of its dead letter: the lane and the position."""
        return self.lane, self.letter


class Doubts:
    """All messages in doubt, keyed by their places in their sequences, and by the places of their dead letters.

    They are transactional, so all of a queue's letters in doubt are in its first lane.

    Args:
        letters: the system's queue of dead letters.
    """

    def __init__(
        self, desk: Desk, letters: LocalQueue, next_queue: Callable[[], int], state: StoredState
    ) -> None:
        self._desk = desk
        self._next_queue = next_queue
        self.by_place: dict[TxSequenceId, dict[int, Doubt]] = {}
        """The messages in doubt, by sequence and number."""
        self._by_letter: dict[tuple[int, int], Doubt] = {}
        """The messages in doubt, keyed by the places of their dead letters, the oldest first."""
        self._letters = letters
        self._lists: dict[int, int] = {}
        """For each lane of dead letters, the store's number of the queue with the marks for its letters in doubt."""
        for row in state.queues:
            if row.kind is QueueKind.ORDER and row.name.startswith(IN_DOUBT_NAME):
                self._lists[int(row.name[len(IN_DOUBT_NAME) :] or letters.queue)] = row.queue
        lanes = {number: lane for lane, number in self._lists.items()}
        for key, packet in state.resident if lanes else ():
            number = key // message_key(1, 0)
            if number in lanes:
                body = acknowledgment_in(decode_message(packet))
                assert isinstance(body, FinalAckBody), "add has put it there"
                self._remember(_doubt_of(body, lanes[number], key - message_key(number, 0)))

    def __len__(self) -> int:
        return len(self._by_letter)

    def are_in(self, lane: int) -> bool:
        """Return whether a lane of the store has, or once had, letters in doubt."""
        return lane in self._lists

    def _list_beside(self, lane: int) -> int:
        number = self._lists.get(lane)
        if number is None:
            number = self._lists[lane] = self._next_queue()
            name = IN_DOUBT_NAME if lane == self._letters.queue else f"{IN_DOUBT_NAME}{lane}"
            self._desk.writes.urgent().queues.append(QueueRow(number, QueueKind.ORDER, name))
        return number

    def add(self, message: UserMessage, letters: LocalQueue, now: Moment) -> None:
        """Remember a message that may have arrived. Its dead letter was the last to join the given queue."""
        lane = letters.lane(0)
        letter = lane.last_position
        if len(self) >= DOUBTS:
            oldest = self._by_letter[next(iter(self._by_letter))]
            self.forget(oldest)
            self._desk.notes.append(Note("stays-in-doubt", {"message_id": oldest.message_id}))
        user = message.user
        ack = make_final_ack(
            message,
            MessageClass.NACK_REACH_QUEUE_TIMEOUT,
            ReplyTo(self._desk.identity, None),
            self._desk.identity,
            user.message_id,
            now,
        )
        key = message_key(self._list_beside(lane.queue), letter)
        row = MessageRow(key, encode_packet(ack), user.message_id, final_ack=False)
        self._desk.writes.put([row], IN_DOUBT_NAME)
        body = acknowledgment_in(ack)
        assert isinstance(body, FinalAckBody), "it is one"
        self._remember(_doubt_of(body, lane.queue, letter))
        facts: dict[str, str | int] = {"message_id": user.message_id, "number": body.tx_sequence_number}
        self._desk.notes.append(Note("message-in-doubt", facts))

    def _remember(self, doubt: Doubt) -> None:
        self._by_letter[doubt.place] = self.by_place.setdefault(doubt.identifier, {})[doubt.number] = doubt

    def at(self, identifier: TxSequenceId, number: int) -> Doubt | None:
        """Return the message in doubt that has this place in a sequence; None if there is none."""
        return self.by_place.get(identifier, {}).get(number)

    def between(self, identifier: TxSequenceId, first: int, last: int) -> Iterator[Doubt]:
        """Yield the messages in doubt with numbers from `first` to `last`, both inclusive."""
        of_sequence = self.by_place.get(identifier, {})
        if last - first < len(of_sequence):
            yield from (of_sequence[number] for number in range(first, last + 1) if number in of_sequence)
        else:
            yield from (doubt for number, doubt in sorted(of_sequence.items()) if first <= number <= last)

    def of_letter(self, lane: int, letter: int) -> Doubt | None:
        """Return the message in doubt whose dead letter is at a position of a lane; None if there is none."""
        return self._by_letter.get((lane, letter))

    def forget(self, doubt: Doubt) -> None:
        """Forget a message in doubt, because its outcome is known or no longer matters."""
        of_sequence = self.by_place[doubt.identifier]
        del self._by_letter[doubt.place], of_sequence[doubt.number]
        if not of_sequence:
            del self.by_place[doubt.identifier]
        self._desk.writes.urgent().remove(self._lists[doubt.lane], doubt.letter, doubt.letter)


def _doubt_of(body: FinalAckBody, lane: int, letter: int) -> Doubt:
    return Doubt(body.tx_sequence_id, body.tx_sequence_number, body.message_id, lane, letter)
