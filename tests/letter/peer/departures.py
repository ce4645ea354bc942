"""How messages leave: they are numbered, sent and resent until they are confirmed or expire.

[MS-MQQB] 3.1.5.6, 3.1.5.7, 3.1.6.5, 3.1.7.1
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Final
from uuid import UUID

from .packets import ENDLESS, NA, Class, OrderBody, TxSequenceId, UserMessage
from .queues import Outgoing, OutgoingQueue, Sequence
from .session import Session

if TYPE_CHECKING:
    from .peer import Peer

BATCH: Final = 64
"""The number of messages that are resent at a time, unless `resend_all` is on."""


class Departures:
    """The sending half of a queue manager."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.switches = peer, peer.switches
        self.queues: dict[str, OutgoingQueue] = {}
        """The outgoing queues, keyed by format name, ignoring case."""
        self.sequences: dict[str, Sequence] = {}
        """The sequences, keyed by format name or by neighbour."""
        self.awaiting: list[UserMessage] = []
        """AwaitingFinalACKTable: the messages that wait for a FinalAck."""
        self.finals: dict[int, int] = {}
        """The class of each message's FinalAck, for tests."""
        self.last_stamp = 0
        """The TimeStamp most recently given to a sequence; the next attribute is the Ordinal most recently given to any
        sequence.
        """
        self.last_ordinal = 0

    # -- queues and sequences -------------------------------------------------------------------------------------

    def queue(self, name: str) -> OutgoingQueue:
        key = name.casefold()
        if key not in self.queues:
            of = self.peer.host(name) if self.switches.sequence_per_neighbour else key
            if of not in self.sequences:
                self.sequences[of] = Sequence(self._first_identifier())
            self.queues[key] = OutgoingQueue(name, self.sequences[of])
        return self.queues[key]

    def _first_identifier(self) -> TxSequenceId:
        """Return an identifier for a new sequence; its TimeStamp is new, or is that of the installation. [MS-MQQB]
        3.1.1.3.1, note 35
        """
        if self.switches.ordinals_interleave:
            self.last_stamp = self.last_stamp or int(self.peer.utc())
            self.last_ordinal += 1
            return TxSequenceId(self.last_stamp, self.last_ordinal)
        self.last_stamp = max(self.last_stamp + 1, int(self.peer.utc()))
        return TxSequenceId(self.last_stamp, 1)

    def renew(self, sequence: Sequence, at_least: int = 0) -> None:
        """Begin a new sequence if no message waits in the old one.  [MS-MQQB] 3.1.5.6"""
        if any(True for _ in self._unconfirmed(sequence)) or (sequence.next_number == 1 and not at_least):
            return
        ordinal = max(sequence.identifier.ordinal + 1, at_least)
        if self.switches.ordinals_interleave:
            self.last_ordinal = ordinal = self.last_ordinal + 1
        sequence.identifier = sequence.identifier._replace(ordinal=ordinal)
        sequence.next_number, sequence.last_number = 1, 0
        sequence.interval_index, sequence.resend_at, sequence.batch_end = 0, inf, 0

    def _unconfirmed(self, sequence: Sequence) -> Iterator[tuple[OutgoingQueue, Outgoing]]:
        """Yield the messages that have a number in this sequence but no OrderAck yet."""
        for queue in self.queues.values():
            for entry in queue.transactional():
                it = entry.message.transaction
                if queue.sequence is sequence and it and it.number:
                    yield queue, entry

    def post(self, message: UserMessage) -> None:
        """Accept a message for another queue manager.  [MS-MQQB] 3.1.7.12"""
        queue, entry = self.queue(message.destination), Outgoing(message)
        if message.transaction and not self.switches.numbered_when_sent:
            self._number(queue, message)
        queue.add(entry)

    def _number(self, queue: OutgoingQueue, message: UserMessage) -> None:
        """Give a message its number in the queue's sequence.  [MS-MQQB] 3.1.7.1.3"""
        it, sequence = message.transaction, queue.sequence
        assert it
        it.sequence, it.number, it.previous = sequence.identifier, sequence.next_number, sequence.last_number
        sequence.last_number = sequence.next_number
        sequence.next_number += 1

    # -- sending --------------------------------------------------------------------------------------------------

    def leave(self, now: float) -> None:
        """Send what the windows allow; the last message for each session may carry an acknowledgment."""
        order = list(self.queues.values())
        sessions = {queue.name: self.peer.session_for(queue.name) for queue in order}
        turn: dict[Session, list[tuple[OutgoingQueue, Outgoing]]] = {}
        while True:
            ready = []
            for queue in order:
                session = sessions[queue.name]
                entry = next((entry for entry in queue.entries if not entry.on_way), None)
                if session and entry and session.room() > len(turn.get(session, [])):
                    ready.append((queue, entry, session))
            if not ready:
                break
            if self.switches.priority_over_all:  # [MS-MQDMPR] 3.1.7.3.9
                ready = [max(ready, key=lambda chosen: chosen[1].message.priority)]
            for queue, entry, session in ready:
                if session.room() > len(turn.setdefault(session, [])):
                    entry.on_way = True
                    turn[session].append((queue, entry))
        for session, chosen in turn.items():
            for queue, entry in chosen:
                self._prepare(queue, entry, now)
                session.send_message(entry, last=entry is chosen[-1][1])

    def _prepare(self, queue: OutgoingQueue, entry: Outgoing, now: float) -> None:
        """Number a message, and set the Transactional Ack Wait Timer.  [MS-MQQB] 3.1.7.1.3, 3.1.2.6"""
        it, sequence = entry.message.transaction, queue.sequence
        if it is None:
            return
        if not it.number:
            self._number(queue, entry.message)
        if entry.transmitted and self.switches.previous_from_table:
            it.previous = queue.before(entry)
        if sequence.resend_at == inf:
            sequence.resend_at = now + self._interval(sequence)

    def _interval(self, sequence: Sequence) -> float:
        table = self.peer.timers.resend
        return table[min(sequence.interval_index, len(table) - 1)]

    def time_out(self, now: float) -> float:
        """Resend messages that have no OrderAck; return the time of the next time-out.  [MS-MQQB] 3.1.6.5, note 24"""
        for sequence in self.sequences.values():
            if sequence.resend_at <= now:
                if not self.switches.interval_grows_with_ack:
                    sequence.interval_index += 1
                sequence.resend_at = now + self._interval(sequence) if self._resend(sequence, 0) else inf
        return min((sequence.resend_at for sequence in self.sequences.values()), default=inf)

    def _resend(self, sequence: Sequence, after: int) -> bool:
        """Mark unconfirmed messages with numbers above `after` to be resent: all of them, or one batch.

        Return whether any were marked. An OrderAck will report the end of the batch.
        """
        again = [entry for _, entry in self._unconfirmed(sequence) if entry.transmitted]
        again = [
            entry for entry in again if entry.message.transaction and entry.message.transaction.number > after
        ]
        batch = again if self.switches.resend_all else again[:BATCH]
        for entry in batch:
            entry.on_way = False
        last = batch[-1].message.transaction if len(batch) < len(again) else None
        sequence.batch_end = last.number if last else 0
        return bool(again)

    def reopened(self, session: Session) -> None:
        """Handle a newly opened session: with `resend_at_open`, resend all messages without an OrderAck. [MS-MQQB]
        3.1.3.2
        """
        if self.switches.resend_at_open:
            for queue in self.queues.values():
                if self.peer.session_for(queue.name) is session:
                    for entry in queue.entries:
                        entry.on_way = False

    # -- what is said of them -------------------------------------------------------------------------------------

    def taken(self, entry: Outgoing) -> None:
        """Record that the next hop has a message: on disk, or in memory if it is express.  [MS-MQQB] 3.1.5.5.2 to
        3.1.5.5.4
        """
        if entry.message.transaction is None:
            for queue in self.queues.values():
                if entry in queue.entries:
                    queue.entries.remove(entry)
                    if entry.message.journal:
                        self.peer.journal.append(entry.message)

    def take_order_ack(self, body: OrderBody, now: float) -> None:
        """Take an OrderAck: all messages up to its number have arrived.  [MS-MQQB] 3.1.5.6

        Its TxSequenceID identifies the sequence. If none of our sequences has that identifier, the OrderAck is for the
        only sequence that is waiting.
        """
        found = [sequence for sequence in self.sequences.values() if sequence.identifier == body.sequence]
        if not found:
            found = [one for one in self.sequences.values() if one.resend_at < inf]
        if len(found) != 1:
            return
        sequence, news = found[0], False
        if self.switches.interval_grows_with_ack:
            sequence.interval_index += 1
        for queue, entry in list(self._unconfirmed(sequence)):
            it = entry.message.transaction
            if it and entry.transmitted and it.number <= body.number:
                news = True
                queue.entries.remove(entry)
                if entry.message.journal or entry.message.dead_letter:
                    self.awaiting.append(entry.message)
        if sequence.batch_end and sequence.batch_end <= body.number:
            self._resend(sequence, sequence.batch_end)
        if news:
            self._confirmed(sequence, now)

    def _confirmed(self, sequence: Sequence, now: float) -> None:
        """Record that a message has left a sequence: either the timer starts again, or a new sequence begins."""
        if not self.switches.interval_grows_with_ack:
            sequence.interval_index = 0
        waits = any(entry.transmitted for _, entry in self._unconfirmed(sequence))
        sequence.resend_at = now + self._interval(sequence) if waits else inf
        self.renew(sequence)

    def take_final_ack(self, message_class: int, body: OrderBody, now: float) -> None:
        """Take a FinalAck: a message was received, or never will be.  [MS-MQQB] 3.1.5.7"""
        if body.source != self.peer.guid:
            return
        self.finals[body.message_id] = message_class
        for message in [message for message in self.awaiting if message.message_id == body.message_id]:
            self.awaiting.remove(message)
            self._end(message, message_class)
        for queue in self.queues.values():
            for entry in [one for one in queue.transactional() if one.message.message_id == body.message_id]:
                queue.drop(entry)
                self._end(entry.message, message_class)
                self._confirmed(queue.sequence, now)

    def _end(self, message: UserMessage, message_class: int) -> None:
        if message_class == Class.ACK_RECEIVE:
            if message.journal:
                self.peer.journal.append(message)
        elif message.dead_letter:
            self.peer.dead_letters.append(message)

    # -- what ends here -------------------------------------------------------------------------------------------

    def expires(self, message: UserMessage) -> float:
        """Return the last second, in UTC, at which a message is alive.  [MS-MQQB] 3.1.7.1.2, [MS-MQMQ] 2.2.19.1"""
        life = message.time_to_reach_queue
        if not self.switches.life_counts_on_arrival:
            life = min(life, message.time_to_be_received)
        return inf if life == ENDLESS else message.sent_time + life

    def expire(self, utc: float) -> float:
        """Give up on messages that have expired before they could be sent.  [MS-MQQB] 3.1.7.1.2

        Return the time at which the next message will have expired.
        """
        following = inf
        for queue in self.queues.values():
            for entry in list(queue.entries):
                sent = entry.message.transaction and entry.transmitted
                if entry.on_way or (sent and not self.switches.sent_expires):
                    continue
                if self.expires(entry.message) < utc:
                    self._give_up(queue, entry, Class.NACK_REACH_QUEUE_TIMEOUT)
                else:
                    following = min(following, self.expires(entry.message) + 1)
        return following

    def delete(self, name: str) -> None:
        """Empty an outgoing queue, as an operator would.  [MS-MQDMPR] 3.1.7.1.7"""
        queue = self.queue(name)
        for entry in list(queue.entries):
            purged = self.switches.deleted_is_purged
            self._give_up(queue, entry, Class.NACK_Q_PURGED if purged else Class.NACK_DELETED)

    def _give_up(self, queue: OutgoingQueue, entry: Outgoing, message_class: int) -> None:
        queue.drop(entry)
        if entry.message.dead_letter:
            self.peer.dead_letters.append(entry.message)
        self.peer.arrivals.tell(entry.message, message_class, NA)

    def own_sequence(self, neighbour: UUID) -> TxSequenceId:
        """Return the OutgoingTxSequenceID of the session with a neighbour, as the table in 3.1.7.17 requires."""
        for queue in self.queues.values():
            if queue.sequence.next_number > 1 and self.peer.leads_to(queue.name, neighbour):
                return queue.sequence.identifier
        return TxSequenceId(max(self.last_stamp, 1), 1)
