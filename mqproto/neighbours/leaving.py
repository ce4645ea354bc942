"""The messages that leave on a neighbour's session, in the order and form in which they leave, until the neighbour has
them.  [MS-MQQB] 3.1.7.1
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.drafts import as_sent
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.hosts import Hosts
from mqproto.neighbours.refusals import Refusals
from mqproto.neighbours.trial import Trial
from mqproto.session import InFlight, Session
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue, queue_of
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import is_unsealed
from mqproto.wire import MessageClass, UserHeader, UserMessage, decode_message, encode_packet
from mqproto.wire.glance import has_security_header, identifier_of, is_traced, may_leave_changed, user_flags

PACKET: Final = attrgetter("message.packet")
ORIGIN: Final = attrgetter("origin")
POSITIVE: Final = UserHeader.journal_positive.mask
JOURNALED: Final = POSITIVE | UserHeader.has_transaction.mask
"""Bits of UserHeader.Flags.  3.1.5.5.4

If only the first of them is set, a message is journaled once a neighbour has it.
"""
TURN: Final = 32
"""The maximum number of messages that one queue sends before the next queue to the same neighbour has its turn."""


class Leaving:
    """Takes messages from each queue of a neighbour in turn, sends them, and removes those that are acknowledged."""

    def __init__(self, desk: Desk, hosts: Hosts, refusals: Refusals) -> None:
        self._desk = desk
        self._hosts = hosts
        self._refusals = refusals
        self._sealing = Sealing(desk)
        self.traced: list[tuple[bytes, str]] = []
        """The traced messages that were sent, each with the address it was sent to, until they are reported."""

    def send(self, neighbour: Neighbour, session: Session, now: Moment) -> None:
        """Send as many messages as the window allows, taking the queues in turn."""
        if neighbour.trial is not None and neighbour.trial.one_at_a_time:
            self._send_one(neighbour, neighbour.trial, session, now)
            return
        while (room := session.room) and (queue := neighbour.next_queue()) is not None:
            if entries := self._take(queue, session, min(room, TURN), now):
                self._send(entries, neighbour, session, now)

    def _send_one(self, neighbour: Neighbour, trial: Trial, session: Session, now: Moment) -> None:
        """Send the next message if no other is on its way. This is used while the neighbour refuses a message."""
        while session.room and not session.lost():
            passes_over = trial.lets_pass(neighbour.index) and trial.passes_over
            if passes_over and trial.untried:
                trial.suspects.append(trial.untried.pop(0))  # It is held back unsent.
                continue
            entry = self._refusals.next(neighbour, now)
            if entry is None and (queue := neighbour.next_queue()) is not None:
                entries = trial.without_suspects(self._take(queue, session, 1, now))
                if passes_over:
                    self._refusals.pass_over(neighbour, entries)
                elif entries:
                    self._send(entries, neighbour, session, now)
                continue
            if entry is None and not neighbour.is_waiting:
                entry = self._refusals.next(neighbour, now, last=True)
            if entry is None:
                break
            self._send([entry], neighbour, session, now)

    def _take(self, queue: OutgoingQueue, session: Session, limit: int, now: Moment) -> list[InFlight]:
        """Take the next messages of a queue, and end those that have expired.  3.1.7.1"""
        entries, over = queue.take(limit, session.room_bytes, now, self._desk.writes)
        self._desk.endings += over
        return entries

    def _send(self, entries: list[InFlight], neighbour: Neighbour, session: Session, now: Moment) -> None:
        entries = self._sealing.sealed(entries, neighbour, now)
        if not entries:
            return
        session.send(entries, now, bare=queue_of(entries[0]).name.endswith(ORDER_SUFFIX))
        self._hosts.of(session, now).sent += len(entries)
        self._desk.waypoints.sent(entries, session)
        traced = [entry.packet for entry in entries if is_traced(entry.message.packet)]
        self.traced += [(packet, session.address) for packet in traced]

    def complete(self, session: Session, neighbour: Neighbour | None) -> None:
        """Remove messages from their queues once the other end has acknowledged them."""
        completed = session.take_completed()
        self._desk.waypoints.session_acknowledged(completed, session)
        if neighbour is not None and neighbour.trial is not None and session is neighbour.session:
            self._refusals.answered(neighbour, completed)
        for queue, entries in groupby(completed, ORIGIN):
            assert isinstance(queue, OutgoingQueue)
            queue.acknowledged(list(entries), self._desk.writes)
        for entry in completed:
            if user_flags(entry.message.packet) & JOURNALED == POSITIVE:
                self._desk.endings.append(Ending(entry.packet, MessageClass.ACK_REACH_QUEUE, Place.ELSEWHERE))


class Sealing:
    """Encrypts our own messages as they leave, and not before.  3.1.7.1.5

    Messages are stored unencrypted, so a message that is sent again is encrypted again, with the key that is then
    current. The name of a dead-letter queue after a kept message is also cut off here: no session carries it.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def sealed(self, entries: list[InFlight], neighbour: Neighbour, now: Moment) -> list[InFlight]:
        """Return the entries that may be sent, in the form in which they leave. End the other messages."""
        if not any(map(may_leave_changed, map(PACKET, entries))):
            return entries
        sent: list[InFlight] = []
        gone: set[object] = set()
        for entry in entries:
            if entry.origin in gone:
                # The message before it in its sequence is not the same as when it was taken.
                entry = queue_of(entry).again(entry)
            if self._seal(entry, neighbour, now):
                sent.append(entry)
            else:
                gone.add(entry.origin)
        return sent

    def _seal(self, entry: InFlight, neighbour: Neighbour, now: Moment) -> bool:
        """Encrypt a message if its application asks for that. Return whether the message may be sent."""
        if not may_leave_changed(entry.message.packet):
            return True
        packet = entry.packet
        if identifier_of(packet)[0] == self._desk.identity:
            packet = as_sent(packet)
            if packet is not entry.packet:
                entry.sealed = packet
        if not has_security_header(packet):
            return True
        message = decode_message(packet)
        if is_unsealed(message, self._desk.identity):
            try:
                entry.sealed = encode_packet(self._desk.guard.sealed(message, now))
            except UsageError as error:
                self._end(entry, message, neighbour, str(error), now)
                return False
        return True

    def _end(
        self, entry: InFlight, message: UserMessage, neighbour: Neighbour, reason: str, now: Moment
    ) -> None:
        """End a message that can no longer be encrypted and so must not be sent.  3.1.7.1.5.1"""
        neighbour.history.could_not_encrypt(str(neighbour.hop), reason, now)
        queue = queue_of(entry)
        queue.passed_over(entry)
        in_doubt = queue.may_have_arrived(entry.position)
        queue.remove(entry.message, self._desk.writes)
        facts: dict[str, str | int] = {
            "message_id": message.user.message_id,
            "queue": queue.name,
            "reason": reason,
        }
        self._desk.notes.append(Note("message-not-encrypted", facts))
        self._desk.endings.append(
            Ending(entry.packet, MessageClass.NACK_BAD_ENCRYPTION, Place.ON_THE_WAY, in_doubt=in_doubt)
        )
