"""Our transactional sequences, by destination queue.  3.1.1.3.1

They are created when first needed, and restored after a restart.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.manager.outbound import Outbound
from mqproto.neighbours.calling import Neighbours
from mqproto.routing import Routes
from mqproto.session import Remote
from mqproto.transfer.cursors import USED_UP, block_after
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.transfer.succession import FIRST_TIME_STAMP, Succession, one_spelling, time_stamp_of
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note, OutgoingRow, QueueKind, QueueRow, StoredQueue, StoredState, message_key
from mqproto.wire import NULL_GUID
from mqproto.wire.guid import Guid

LAST_NUMBER_OF: Final = attrgetter("last_number")


class OwnSequences:
    """Finds the sequence for our next messages to a destination, and the sequence that an acknowledgment is about.

    The sequences are among the queues of `outbound`, which sends their messages.
    """

    def __init__(
        self,
        desk: Desk,
        routes: Routes,
        neighbours: Neighbours,
        outbound: Outbound,
        state: StoredState,
        now: Moment,
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._neighbours = neighbours
        self._outbound = outbound
        self._numbers = outbound.numbers
        self._dice = state.dice
        self._successions: dict[str, Succession] = {}
        """The successions, by their destination's name in the spelling of `one_spelling`."""
        self._by_time_stamp: dict[int, Succession] = {}
        self._finals = {each.name: each.queue for each in state.queues if each.kind is QueueKind.FINAL}
        """The queues of messages that await a FinalAck, by the stored name of the messages' sequence."""
        self.sequence_to = self._sequence_to
        """The function that finds or begins a sequence; tests may replace it, see manager/parts.py."""
        rows = {row.queue: row for row in state.outgoing}
        for stored in state.queues:
            if stored.kind is QueueKind.OUTGOING:
                outbound.restore(stored)
            elif stored.kind is QueueKind.SEQUENCE:
                self._restore(stored, rows[stored.queue], state.gaps, now)
        self._numbered = dict.fromkeys(sorted(self._successions.values(), key=LAST_NUMBER_OF))
        """The successions whose numbers other sequences may have to avoid.

        The succession with the highest numbers comes last.
        """

    def _restore(
        self, stored: StoredQueue, row: OutgoingRow, gaps: list[tuple[int, int]], now: Moment
    ) -> None:
        manager = None if row.manager == NULL_GUID else row.manager
        desk = self._desk
        sequence = OutgoingSequence(
            stored.queue, stored.name, manager, desk.settings, desk.timers, now, stored
        )
        low, high = message_key(stored.queue, 0), message_key(stored.queue + 1, 0)
        own = [(first - low, last - low) for first, last in gaps if low <= first < high]
        sequence.restore(row, own, stored.first)
        self._add(sequence, host_of(stored.name))
        if sequence.final_asked:
            self.final_queue_of(sequence)  # A damaged store may have lost it.

    def _sequence_to(
        self, name: str, manager: Guid | None, host: str | None, count: int, now: Moment
    ) -> OutgoingSequence:
        """Return the sequence that our next transactional messages to the queue with this name will join.

        All its messages are sent under the name in the first message, because the destination may treat names that
        differ only in case as different.
        """
        spelling = one_spelling(name)
        succession = self._successions.get(spelling)
        number = self._unused_number(succession, count)
        if succession is None or succession.newest.is_closed:
            sequence = succession.spare if succession is not None else None
            if sequence is None:
                name = succession.newest.name if succession is not None else name
                sequence = OutgoingSequence(
                    self._numbers.next_queue(), name, manager, self._desk.settings, self._desk.timers, now
                )
                sequence.register(self._desk.writes)
                self._add(sequence, host)
                self._outbound.take_over_hold(sequence)
            succession = self._successions[spelling]
            succession.begin(sequence, now)
        self._numbers.set_aside(succession.newest.identifier)
        if number + count > USED_UP:
            succession.by_name = True
        elif number:
            succession.newest.pass_over(number)
            self._numbered.pop(succession, None)
            self._numbered[succession] = None
        return succession.newest

    def _unused_number(self, succession: Succession | None, count: int) -> int:
        """Return the first number of an unused block for new messages; 0 if they take the next numbers of their
        sequence.

        The block is above the numbers of all our sequences, to any queue, because a queue manager may have several
        names. See readings.py.
        """
        if succession is not None and (succession.by_name or succession.newest.has_room(count)):
            return 0
        while self._numbered and next(reversed(self._numbered)).by_name:
            self._numbered.popitem()
        given = next(reversed(self._numbered)).last_number if self._numbered else 0
        return block_after(given)

    def _add(self, sequence: OutgoingSequence, host: str | None) -> None:
        sequence.final_queue = self._finals.get(sequence.name, 0)
        succession = self._successions.get(one_spelling(sequence.name)) or self._new_succession(sequence)
        succession.add(sequence)
        if sequence.is_closed:
            self._by_time_stamp[sequence.identifier.time_stamp] = succession
        self._outbound.lead(sequence, host)

    def _new_succession(self, sequence: OutgoingSequence) -> Succession:
        time_stamp = sequence.identifier.time_stamp
        if time_stamp < FIRST_TIME_STAMP:
            time_stamp = time_stamp_of(sequence.name)
            while time_stamp in self._by_time_stamp:
                time_stamp += 1
        succession = Succession(time_stamp, self._numbers.first_ordinal, self._dice, self._neighbours.wake)
        self._successions[one_spelling(sequence.name)] = self._by_time_stamp[time_stamp] = succession
        return succession

    def is_full(self, name: str) -> bool:
        """Return whether a sequence has no number left.

        It starts again when all its messages are acknowledged.
        """
        succession = self._successions.get(one_spelling(name))
        if succession is None or succession.newest.is_closed:
            return False
        return succession.newest.next_number > USED_UP

    def succession(self, time_stamp: int) -> Succession | None:
        """Return the sequences whose TxSequenceIDs have this TimeStamp; None if there are none.

        All of them go to one destination queue.
        """
        return self._by_time_stamp.get(time_stamp)

    def towards_source(self, source: Guid, remote: Remote) -> list[Succession]:
        """Return the sequences for which an acknowledgment from `source` counts.

        remote: the neighbour or stranger that brings the acknowledgment.
        """
        return [one for one in self._successions.values() if self.speaks_for(one.head, source, remote)]

    def final_queue_of(self, sequence: OutgoingSequence) -> int:
        """Return the number of the queue for those messages of a sequence that wait for their FinalAck.

        These messages have been acknowledged by an OrderAck.
        """
        if not sequence.final_queue:
            number = self._finals[sequence.name] = self._numbers.next_queue()
            self._desk.writes.urgent().queues.append(QueueRow(number, QueueKind.FINAL, sequence.name))
            for member in self._successions[one_spelling(sequence.name)]:
                if member.name == sequence.name:
                    member.final_queue = number
        return sequence.final_queue

    def speaks_for(self, sequence: OutgoingSequence, source: Guid, remote: Remote) -> bool:
        """Return whether an acknowledgment from `source` counts for a sequence.

        If the destination is known only by a direct name, any peer that calls from that name's host speaks for it, and
        so does the queue manager that is declared there.

        remote: the neighbour or stranger that brings the acknowledgment.
        """
        is_itself = remote.is_met and remote.manager == source
        if sequence.destination_manager is not None:
            return sequence.destination_manager == source and (remote.is_proven or is_itself)
        host = (host_of(sequence.name) or "").lower()
        return (
            host == remote.address.lower()
            or (remote.is_proven and self._routes.proves(source, host, None))
            or (is_itself and self._neighbours.reached(host) == source)
        )

    def resend(self, number: int, now: Moment) -> Note:
        """Send a sequence's messages again, because their OrderAck did not arrive in time.  3.1.6.5

        Return the line for the log.
        """
        sequence = self._outbound.queue(number)
        assert isinstance(sequence, OutgoingSequence)
        sequence.resends.ack_wait_expired(now)
        self._neighbours.wake(sequence)
        return sequence.resend_note


def host_of(format_name: str) -> str | None:
    r"""Return the host in a direct format name; None for other names.

    The host in `DIRECT=TCP:10.0.0.7\private$\q` is `10.0.0.7`.
    """
    keyword, _, rest = format_name.partition("=")
    if keyword != "DIRECT":
        return None
    return rest.partition(":")[2].partition("\\")[0]
