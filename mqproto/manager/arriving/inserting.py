"""Inserts arriving messages into a local queue, or refuses them.  3.1.5.8.3, 3.1.5.8.8"""

from __future__ import annotations

from typing import Final

from mqproto.base.moment import Moment
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.arriving.room import Room
from mqproto.manager.expiration import Expiration
from mqproto.manager.localqueues import LocalQueues
from mqproto.queues.lanes import Joining
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.protection import OPEN
from mqproto.session import Remote
from mqproto.transfer.incoming import Held
from mqproto.turn.desk import Desk
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import ProtectionError, is_encrypted
from mqproto.wire import MessageClass, UserHeader, encode_packet, without_session_header
from mqproto.wire.glance import RECOVERABLE, priority_of, reach_deadline_s, receive_deadline_s
from mqproto.wire.shapes import Facts, Run, run_of

SECURED: Final = UserHeader.has_security.mask


class Inserting:
    """The last checks before messages enter their queue, and their insertion."""

    def __init__(
        self, desk: Desk, queues: LocalQueues, expiration: Expiration, refusing: Refusing, room: Room
    ) -> None:
        self._desk = desk
        self._queues = queues
        self._expiration = expiration
        self._refusing = refusing
        self._room = room

    def let_in(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> None:
        """Insert messages or refuse them.  3.1.5.8.8

        Transactional messages must be the next ones in their sequence. Messages are inserted together if no check can
        fail for any of them.
        """
        packets = run.packets
        if len(packets) > 1 and not (
            queue.declaration.protection == OPEN
            and reach_deadline_s(packets[0]) is None
            and queue.has_room(sum(map(len, packets)))
        ):
            for packet in packets:
                self.let_in(queue, Run(run.shape, [packet]), remote, now)
            return
        admitted = self.admitted(queue, run, remote, now)
        if admitted is not None:
            self.insert(queue, run, admitted, now)

    def insert(
        self, queue: LocalQueue, run: Run, packets: list[bytes], now: Moment, *, was_held: bool = False
    ) -> None:
        """Add messages to a queue. A message that was held reuses its stored row, so the store does not grow.

        packets: the packets of the run, in the form in which the queue keeps them.
        """
        flags = run.shape.flags
        priority = priority_of(packets[0], flags)
        messages = self._joining(run, packets)
        if not was_held:
            self._room.count(queue.lane(priority), messages)
        queue.insert(messages, priority=priority)
        self._inserted(queue, run.facts, messages, now)

    def _joining(self, run: Run, packets: list[bytes]) -> Joining:
        """Return the messages of a run, prepared for joining a local queue."""
        expires_s: list[int | None]
        if receive_deadline_s(packets[0]) is None:
            expires_s = [None] * len(packets)
        else:
            expires_s = list(map(receive_deadline_s, packets))
        recoverable = bool(run.shape.flags & RECOVERABLE)
        return Joining(packets, run.message_ids, recoverable, run.facts.final_ack, expires_s)

    def admitted(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> list[bytes] | None:
        """Return the packets of messages in the form in which they join the queue; None if they are refused. 3.1.5.8.3,
        3.1.7.1.2, 3.1.5.8.8

        run: one message, or several for which no check can fail.

        Encrypted or signed messages that came by a direct format name are judged like all others. The specification
        says nothing about them, and no application could read them.
        """
        packets = run.packets
        if not run.shape.may_have_others:
            packets = list(map(without_session_header, packets))
        protection = queue.declaration.protection
        try:
            if run.shape.flags & SECURED:
                message = self._desk.guard.opened(run.message, protection.weak_ciphers, now)
                packets = [without_session_header(encode_packet(message))]
                protection.check(message, encrypted=is_encrypted(run.message))
            elif protection != OPEN:
                protection.check(run.message, encrypted=False)
        except ProtectionError as error:
            self._refusing.refuse(run, remote, error.message_class, error.reason)
            return None
        deadline_s = reach_deadline_s(packets[0])
        if deadline_s is not None and now.utc_s > deadline_s:
            self._refusing.refuse(run, remote, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        elif not queue.has_room(sum(map(len, packets))):
            self._refusing.refuse(run, remote, MessageClass.NACK_Q_EXCEED_QUOTA)
        else:
            return packets
        return None

    def _inserted(self, queue: LocalQueue, facts: Facts, messages: Joining, now: Moment) -> None:
        self._queues.stir(queue)
        self._expiration.expect_of(messages.expires_s, now)
        if facts.acknowledge_arrival:
            self._desk.endings += [
                Ending(packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION)
                for packet in messages.packets
            ]

    def insert_held(self, queue: LocalQueue, held: Held, key: int, remote: Remote, now: Moment) -> bool:
        """Insert a message that was held after a gap.

        Return whether the held copy remains and must be deleted.
        """
        run = run_of(held.packet)
        packets = self.admitted(queue, run, remote, now)
        if packets is None:
            return True
        if packets[0] is not held.packet:
            # The packet that joins the queue is not the one on disk.
            self.insert(queue, run, packets, now, was_held=True)
            return True
        messages = self._joining(run, packets)
        queue.insert_held(key, messages)
        self._inserted(queue, run.facts, messages, now)
        return False
