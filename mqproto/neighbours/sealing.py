"""Encrypts our own messages as they leave, and not earlier.  [MS-MQQB] 3.1.7.1.5

Messages are stored unencrypted, so a message that is sent again is encrypted again, with the key in use at that time. A
stored message may be followed by the name of a dead-letter queue. That is also cut off here: no session carries it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.kept import as_sent
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.trial import queue_of
from mqproto.session import InFlight
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import is_unsealed
from mqproto.wire import MessageClass, UserMessage, decode_message, encode_packet
from mqproto.wire.glance import has_security_header, identifier_of, may_leave_changed

PACKET: Final = attrgetter("message.packet")


class Sealing:
    """Encrypts messages as they are sent."""

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
