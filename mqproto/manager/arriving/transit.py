"""Forwards messages that are for other queue managers.  3.1.5.8.2, 3.1.1.6.2"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.base.moment import Moment
from mqproto.manager.arriving.inserting import Room
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.expiration import Expiration
from mqproto.manager.outbound import Outbound
from mqproto.session import Remote
from mqproto.transfer.outgoing import AS_IT_IS, OutgoingQueue
from mqproto.turn.desk import Desk
from mqproto.turn.effects import MessageRow
from mqproto.wire import MessageClass, UserHeader, passed_on
from mqproto.wire.glance import (
    RECOVERABLE,
    TRANSACTIONAL,
    Head,
    goes_to_private,
    priority_of,
    reach_deadline_s,
)
from mqproto.wire.guid import Guid
from mqproto.wire.messages import ORDER_QUEUE
from mqproto.wire.shapes import Run

HOP_COUNT: Final = UserHeader.hop_count.mask
HOP_LIMIT: Final = 0x1D
"""The limit of RC, which counts the queue managers that have forwarded a message. [MS-MQMQ] 2.2.19.2"""


class Transit:
    """The rules for forwarding messages."""

    def __init__(
        self,
        desk: Desk,
        outbound: Outbound,
        confirmations: Confirmations,
        expiration: Expiration,
        refusing: Refusing,
        room: Room,
    ) -> None:
        self._desk = desk
        self._outbound = outbound
        self._confirmations = confirmations
        self._expiration = expiration
        self._refusing = refusing
        self._room = room
        self._expires_sent = desk.settings.follows_figures
        self.forwarded_count = 0

    def forward(self, run: Run, head: Head, remote: Remote, now: Moment) -> None:
        """Forward messages to another queue manager.  3.1.5.8.2, 3.1.1.6.2

        The hop is counted, and the messages' TransactionHeaders are left unchanged. A transactional message that has
        expired is still forwarded, except with `expire_sent = figures`. Only its destination knows whether it has
        already received the message.
        """
        packets = run.packets
        flags, source = head.flags, head.source_queue_manager
        transactional = bool(flags & TRANSACTIONAL)
        if flags & HOP_COUNT >= HOP_LIMIT:
            self._end_of_hops(run, head, remote)
            return
        expires_s: list[int | None] = [None] * len(packets)
        passes = transactional and (not self._expires_sent or source == self._desk.identity)
        if not passes and reach_deadline_s(packets[0]) is not None:
            run, expires_s = self._in_time(run, remote, now)
            if not expires_s:
                return
        queue = self._outbound.towards_manager(
            head.queue_manager_address,
            priority_of(packets[0], flags),
            order=goes_to_private(packets[0], flags, ORDER_QUEUE),
        )
        packets = passed_on(run.packets)
        if transactional:
            self._pass_on_transactional(queue, source, packets, run.message_ids, expires_s)
        else:
            recoverable = bool(flags & RECOVERABLE)
            rows = queue.rows(packets, run.message_ids, recoverable=recoverable, expires_s=expires_s)
            self._pass_on(queue, rows, packets)
            self._outbound.put(queue, rows)
        self._expiration.expect_of(expires_s, now)

    def _pass_on_transactional(
        self,
        queue: OutgoingQueue,
        source: Guid,
        packets: list[bytes],
        message_ids: Sequence[int],
        expires_s: list[int | None],
    ) -> None:
        """Forward transactional messages, but drop a message if an identical copy still waits here."""
        names = [(source, message_id) for message_id in message_ids]
        if queue.copies.knows_one_of(names):
            if len(names) > 1:
                for packet, message_id, until_s in zip(packets, message_ids, expires_s, strict=True):
                    self._pass_on_transactional(queue, source, [packet], [message_id], [until_s])
                return
            [packet], [name] = packets, names
            earlier = queue.earlier_copy(name, packet)
            if earlier == AS_IT_IS:
                self._desk.waypoints.duplicate_dropped(packet)
                return
            if earlier is not None:
                queue.delete(earlier, self._desk.writes)
        rows = queue.rows(packets, message_ids, recoverable=True, expires_s=expires_s)
        self._pass_on(queue, rows, packets)
        self._outbound.pass_on(queue, rows, names)

    def _pass_on(self, queue: OutgoingQueue, rows: list[MessageRow], packets: list[bytes]) -> None:
        """Count messages that are passed on to an outgoing queue."""
        self._room.count(rows)
        self.forwarded_count += len(rows)
        self._desk.waypoints.forwarded(packets, queue.name)

    def _end_of_hops(self, run: Run, head: Head, remote: Remote) -> None:
        """End messages whose RC is at its limit.

        Some of them are copies of our own messages that went in circles.
        """
        for packet in run.packets:
            alone = Run(run.shape, [packet])
            if head.flags & TRANSACTIONAL and head.source_queue_manager == self._desk.identity:
                self._desk.waypoints.duplicate_dropped(packet)
                self._confirmations.came_back(alone.message)
            else:
                self._refusing.refuse(alone, remote, MessageClass.NACK_HOP_COUNT_EXCEEDED)

    def _in_time(self, run: Run, remote: Remote, now: Moment) -> tuple[Run, list[int | None]]:
        """Refuse the messages whose TimeToReachQueue has expired. Return the others, with their deadlines."""
        packets, expires_s = list[bytes](), list[int | None]()
        for packet in run.packets:
            deadline_s = reach_deadline_s(packet)
            if deadline_s is not None and now.utc_s > deadline_s:
                self._refusing.refuse(Run(run.shape, [packet]), remote, MessageClass.NACK_REACH_QUEUE_TIMEOUT)
            else:
                packets.append(packet)
                expires_s.append(deadline_s)
        return Run(run.shape, packets), expires_s
