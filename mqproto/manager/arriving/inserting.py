"""Puts arriving messages into a local queue, or refuses them.  3.1.5.8.3, 3.1.5.8.8

First it decides whether the store has room for them, and which messages to drop if it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.queues.lanes import PACKET
from mqproto.queues.localqueue import LocalQueue
from mqproto.queues.protection import OPEN
from mqproto.session import Remote
from mqproto.transfer.incoming import Held, begins
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow
from mqproto.turn.endings import Ending, Place
from mqproto.turn.guard import ProtectionError, is_encrypted
from mqproto.wire import MessageClass, UserHeader, acknowledgment_in, encode_packet, without_session_header
from mqproto.wire.glance import (
    RECOVERABLE,
    TRANSACTIONAL,
    Head,
    goes_to_private,
    priority_of,
    reach_deadline_s,
    receive_deadline_s,
)
from mqproto.wire.messages import ORDER_QUEUE
from mqproto.wire.shapes import Facts, Run, run_of

NEARLY_FULL: Final = 8
"""The denominator of a fraction. A message is not held after a gap if the room left in the store would then be less
than this fraction (1/N) of the store's contents.
"""
HIGHEST_HELD: Final = attrgetter("highest_held")


def is_acknowledgment(run: Run) -> bool:
    """Whether the message in a run of one is an OrderAck or a FinalAck."""
    return acknowledgment_in(run.message) is not None


class NoRoomError(Exception):
    """A message that cannot be taken without harm to others.

    The session is closed, and the sender keeps the message.  3.1.5.8.8
    """


class Room:
    """The room that is left in the store of one queue manager.

    Attributes:
        stored_bytes: the store's size at the last commit, plus the messages that have been added since.
        limit_bytes: the maximum size of the store after the next commit, if the disk is nearly full; otherwise None.
    """

    def __init__(
        self,
        desk: Desk,
        sequences: IncomingSequences,
        outbound: Outbound,
        queues: LocalQueues,
        histories: Histories,
    ) -> None:
        self._desk = desk
        self._sequences = sequences
        self._outbound = outbound
        self._queues = queues
        self._histories = histories
        self.stored_bytes = 0
        self.limit_bytes: int | None = None

    @property
    def left_bytes(self) -> int:
        """The number of bytes that can still be added to the store, within the quota and the room on the disk."""
        limit_bytes, quota_bytes = self.limit_bytes, self._desk.settings.quota_bytes
        if limit_bytes is None or limit_bytes > quota_bytes:
            limit_bytes = quota_bytes
        return limit_bytes - self.stored_bytes

    def count(self, rows: Sequence[MessageRow]) -> None:
        """Count the bytes that the store will need for messages that are about to join a queue."""
        stored = rows if rows[0].stored else [row for row in rows if row.stored]
        self.stored_bytes += sum(map(len, map(PACKET, stored)))

    def see_that_it_fits(self, run: Run, head: Head, remote: Remote, *, is_ours: bool) -> None:
        """Check that there is room for a message.

        This is called when the message would make the store exceed a limit. A duplicate that was never acknowledged
        takes no room, and acknowledgments make room.

        Raises:
            NoRoomError: there is no room for the message.
        """
        [packet] = run.packets
        recoverable = bool(head.flags & RECOVERABLE)
        would_be_bytes = self.stored_bytes + len(packet)
        disk_is_full = (
            self.limit_bytes is not None
            and would_be_bytes > self.limit_bytes
            and (recoverable or not self._stays_in_memory(run, head, is_ours=is_ours))
        )
        if not disk_is_full and would_be_bytes <= self._desk.settings.quota_bytes:
            return
        if is_acknowledgment(run):
            return
        hop_count = None if is_ours else head.flags & UserHeader.hop_count.mask
        if not head.flags & TRANSACTIONAL and self._histories.of(remote).came_before(
            head.source_queue_manager, head.message_id, hop_count, recoverable=recoverable
        ):
            return
        if disk_is_full:
            raise NoRoomError("the disk is full: make room, or receive or purge")
        if remote.is_proven and is_ours and head.flags & TRANSACTIONAL and self._gives_way(run, head):
            return
        raise NoRoomError(
            f"the store holds as much as quota_bytes = {self._desk.settings.quota_bytes:,} allows: receive or purge"
        )

    def _gives_way(self, run: Run, head: Head) -> bool:
        """Return whether there is room for a transactional message to us after held messages have given way.

        Held messages give way to the next message of a sequence, because they may be waiting for exactly that message.
        The held messages with the highest numbers, over all sequences, go first. A duplicate needs no room, and an
        early message is turned away.

        But if there would be no room even then, the message is refused, even if it is a duplicate or early. If such
        messages were taken, their sender would conclude that we object to a single message.
        """
        [packet] = run.packets
        queue = self._queues.of_run(run)
        if queue is None or not queue.declaration.transactional:
            return False
        if self.left_bytes + self._held_bytes < len(packet):
            return False
        source, name, header = (
            head.source_queue_manager,
            run.facts.destination_queue,
            run.shape.header_of(packet),
        )
        own = self._sequences.find(source, queue.queue, name, header)
        if not (own.awaits(header) if own is not None else begins(header)):
            return True
        while self.left_bytes < len(packet):
            sequence = max(self._sequences, key=HIGHEST_HELD)
            held = sequence.let_go()
            self.stored_bytes -= len(held.packet)
            self._desk.writes.later.remove(sequence.held_queue, held.position, held.position)
            self._desk.waypoints.dropped(held.packet, self._queues.numbered(sequence.queue).name)
        return True

    @property
    def _held_bytes(self) -> int:
        return sum(sequence.held_bytes for sequence in self._sequences)

    def may_hold(self, size_bytes: int) -> bool:
        """Return whether there is room to hold one more message.

        No message is held when little room is left, and held messages take at most half of the store.
        """
        stored_bytes, half_bytes = self.stored_bytes + size_bytes, self._desk.settings.quota_bytes // 2
        if self.left_bytes - size_bytes < stored_bytes // NEARLY_FULL:
            return False
        return stored_bytes <= half_bytes or self._held_bytes + size_bytes <= half_bytes

    def _stays_in_memory(self, run: Run, head: Head, *, is_ours: bool) -> bool:
        """Whether an express message needs no room on disk.

        That is so if its queue has room in memory or does not exist.
        """
        packet = run.packets[0]
        priority = priority_of(packet, head.flags)
        if is_ours:
            local = self._queues.of_run(run)
            lane = local.known_lane(priority) if local is not None else None
            return lane is None or lane.window.fits
        order = goes_to_private(packet, head.flags, ORDER_QUEUE)
        return self._outbound.towards_manager(head.queue_manager_address, priority, order=order).window.fits


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
        flags, final_ack = run.shape.flags, run.facts.final_ack
        expires_s: list[int | None] = [None] * len(packets)
        if receive_deadline_s(packets[0]) is not None:
            expires_s = list(map(receive_deadline_s, packets))
        recoverable, lane = bool(flags & RECOVERABLE), queue.lane(priority_of(packets[0], flags))
        rows = lane.rows(
            packets, run.message_ids, recoverable=recoverable, final_ack=final_ack, expires_s=expires_s
        )
        if not was_held:
            self._room.count(rows)
        queue.insert(rows)
        self._inserted(queue, run.facts, packets, expires_s, now)

    def admitted(self, queue: LocalQueue, run: Run, remote: Remote, now: Moment) -> list[bytes] | None:
        """Return the packets of messages in the form in which they join the queue; None if they are refused. 3.1.5.8.3,
        3.1.7.1.2, 3.1.5.8.8

        run: one message, or several for which no check can fail.

        Encrypted or signed messages that were addressed by a direct format name are judged like all others. The
        specification says nothing about them, and no application could read them.
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

    def _inserted(
        self,
        queue: LocalQueue,
        facts: Facts,
        packets: list[bytes],
        expires_s: Sequence[int | None],
        now: Moment,
    ) -> None:
        self._queues.stir(queue)
        self._expiration.expect_of(expires_s, now)
        if facts.acknowledge_arrival:
            self._desk.endings += [
                Ending(packet, MessageClass.ACK_REACH_QUEUE, Place.AT_DESTINATION) for packet in packets
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
        facts, expires_s = run.facts, receive_deadline_s(held.packet)
        queue.insert_held(key, held.packet, final_ack=facts.final_ack, expires_s=expires_s)
        self._inserted(queue, facts, packets, [expires_s], now)
        return False
