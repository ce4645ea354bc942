"""Incoming sequences: messages are accepted in order and only once, held after gaps, and acknowledged to their senders.

2.2.4, 2.2.5, 3.1.5.8.6, 3.1.7.17
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.turn.effects import IncomingRow
from mqproto.turn.endings import ReplyTo
from mqproto.wire import (
    NULL_GUID,
    FinalAck,
    FinalAckBody,
    OrderAck,
    OrderAckBody,
    QueueName,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
)
from mqproto.wire.guid import Guid, guid_from_text, guid_text
from mqproto.wire.messages import ORDER_QUEUE


def comes_next(header: TransactionHeader, last_id: TxSequenceId, last_number: int) -> bool:
    """Whether a transactional message is in order and new.  3.1.5.8.6"""
    previous, number = header.previous_tx_sequence_number, header.tx_sequence_number
    if header.tx_sequence_id == last_id:
        return previous <= last_number < number
    return header.tx_sequence_id > last_id and previous == 0


def begins(header: TransactionHeader) -> bool:
    """Return whether a transactional message can be accepted as the first one of an unknown sequence."""
    return not header.previous_tx_sequence_number


SequenceKey: TypeAlias = tuple[Guid, int, QueueName]
"""Identifies an incoming sequence.

The key consists of the source queue manager, the number of the local queue, and this queue's name in the first packet.
"""


def held_name(key: SequenceKey) -> str:
    """Return the store's name for the queue of a sequence's held messages. It contains the whole key."""
    source, queue, name = key
    if isinstance(name, bytes):
        name = f"{{{guid_text(name)}}}"
    return f"{guid_text(source)}/{queue}/{name}"


def key_of_held(stored_name: str) -> SequenceKey:
    """Return the key from which `held_name` made a name."""
    source, queue, name = stored_name.split("/", 2)
    key: QueueName = name
    if name.startswith("{"):
        key = guid_from_text(name)
    elif name.isdecimal():
        key = int(name)
    return guid_from_text(source), int(queue), key


class ArrivalVerdict(Enum):
    """The decision about a transactional message at its destination."""

    ACCEPT = auto()
    """The message comes next: it goes into the queue."""
    HOLD = auto()
    """The message came early: keep it until the missing messages have arrived."""
    DUPLICATE = auto()
    """The message was accepted or is held already: drop it, and repeat the OrderAck."""
    OVERFLOW = auto()
    """The message came early, but the limit of held messages is reached: drop it. Its sender still has it."""


@dataclass(slots=True)
class Held:
    """A message that came early. `position` is its place in the sequence's queue of held messages."""

    header: TransactionHeader
    packet: bytes
    position: int


class IncomingSequence:
    """The messages that one source queue manager sends to one of our queues by one of its names.

    [MS-MQDMPR] 3.1.1.5. A sequence outlives sessions, restarts and routes, so its key consists of these three, and not
    of the session. A sender may number its messages separately for a private and a direct format name, so the name is
    part of the key (see spellings.py).
    """

    def __init__(
        self, key: SequenceKey, held_queue: int, settings: Settings, timers: Timers, now: Moment
    ) -> None:
        self.source, self.queue, self.name = key
        self.held_queue = held_queue
        self.identifier = TxSequenceId(ordinal=0, time_stamp=0)
        self.number = 0
        self._turned_away = self.identifier
        """The sequence of the last message that came early and was not held."""
        self.reject_count = 0
        self.last_access_s = now.utc_s
        self.reply_to = ReplyTo(self.source, None)
        self.peer = ""
        """The address from which the last message came, and to which acknowledgments are sent."""
        self.held_bytes = 0
        self.held_count_total = 0
        self.duplicate_count = 0
        self.overflow_count = 0
        self._held: dict[tuple[TxSequenceId, int], Held] = {}
        self._order: list[tuple[TxSequenceId, int]] = []
        """The keys of `_held`, in order."""
        self._last_held_position = 0
        self._settings = settings
        self._timers = timers
        self._last_order_ack_ms = now.uptime_ms
        self._scheduled: Moment | None = None

    @property
    def held_count(self) -> int:
        """How many messages wait after a gap."""
        return len(self._held)

    @property
    def place(self) -> tuple[TxSequenceId, int] | None:
        """The last accepted message, as an OrderAck names it; None if there was none.

        If a message of a later sequence has come early, its sender keeps no more messages of earlier sequences; whether
        we held the message does not matter. We have accepted no message of the later sequence, so the OrderAck names
        that sequence with number 0. If we had acknowledged messages of the later sequence, our store is a restored
        earlier copy, and those messages are lost.
        """
        early = self._order[0][0] if self._order else self._turned_away
        if early > self.identifier:
            return early, 0
        return (self.identifier, self.number) if self.number else None

    @property
    def time_stamp(self) -> int:
        """The TimeStamp of the last message accepted, or of the first held message if none was accepted."""
        return self._order[0][0].time_stamp if self._order and not self.number else self.identifier.time_stamp

    @property
    def missing(self) -> tuple[int, int] | None:
        """The first and last missing number before the first held message; None if no message is held."""
        if not self._order:
            return None
        key = self._order[0]
        had = self.number if key[0] == self.identifier else 0
        return had + 1, self._held[key].header.previous_tx_sequence_number

    def has_had(self, header: TransactionHeader) -> bool:
        """Return True if a message has come before and was then accepted or finally dealt with."""
        return (header.tx_sequence_id, header.tx_sequence_number) <= (self.identifier, self.number)

    def awaits(self, header: TransactionHeader) -> bool:
        """Whether a message is the next of this sequence."""
        return comes_next(header, self.identifier, self.number)

    def take(self, header: TransactionHeader, size_bytes: int, *, may_hold: bool = True) -> ArrivalVerdict:
        """Decide about a message, and advance the sequence if it is accepted.  3.1.5.8.6

        A message that is not accepted does not advance the sequence. Taken literally, 3.1.5.8.6 would have it do so,
        and then the messages before it would be lost.

        may_hold: whether the message may be held if it is early. A stranger's message may not.
        """
        key = (header.tx_sequence_id, header.tx_sequence_number)
        if comes_next(header, self.identifier, self.number):
            self.identifier, self.number = key
            self.reject_count = 0
            return ArrivalVerdict.ACCEPT
        self.reject_count += 1
        if self.has_had(header) or key in self._held:
            self.duplicate_count += 1
            return ArrivalVerdict.DUPLICATE
        if (
            not may_hold
            or len(self._held) >= self._settings.held_messages_limit
            or self.held_bytes + size_bytes > self._settings.held_bytes_limit
        ):
            return self.turn_away(header)
        return ArrivalVerdict.HOLD

    def turn_away(self, header: TransactionHeader) -> ArrivalVerdict:
        """Drop an early message, whether it was held or not."""
        self.overflow_count += 1
        self._turned_away = header.tx_sequence_id
        return ArrivalVerdict.OVERFLOW

    def hold(self, header: TransactionHeader, packet: bytes) -> Held:
        """Hold a message, as `take` decided. The caller stores it at the position that is returned with it."""
        self._last_held_position += 1
        held = Held(header, packet, self._last_held_position)
        self._keep(held)
        self.held_count_total += 1
        return held

    def restore_held(self, header: TransactionHeader, packet: bytes, position: int) -> None:
        """Restore a message that was held when the node stopped."""
        self._keep(Held(header, packet, position))

    def _keep(self, held: Held) -> None:
        key = (held.header.tx_sequence_id, held.header.tx_sequence_number)
        self._held[key] = held
        self.held_bytes += len(held.packet)
        insort(self._order, key)

    def drop_held(self, header: TransactionHeader) -> int | None:
        """Drop a message that belongs to another sequence. Return its position, or None if it was not held."""
        key = (header.tx_sequence_id, header.tx_sequence_number)
        held = self._held.pop(key, None)
        if held is None:
            return None
        self.held_bytes -= len(held.packet)
        del self._order[bisect_left(self._order, key)]
        return held.position

    @property
    def highest_held(self) -> int:
        """The number of the last held message; 0 if none is held."""
        return self._order[-1][1] if self._order else 0

    def let_go(self) -> Held:
        """Stop holding the last message. No OrderAck covered it, so its sender still has it.  3.1.5.6"""
        held = self._held[self._order[-1]]
        self.drop_held(held.header)
        self.turn_away(held.header)
        return held

    def forget_held(self) -> int:
        """Forget all held messages. Return the last position that was used for any of them."""
        self._held.clear()
        self._order.clear()
        self.held_bytes = 0
        return self._last_held_position

    def release(self) -> tuple[list[Held], list[Held]]:
        """After a message was accepted, release the held messages that no longer have to wait.

        Returns:
            The held messages that come next, in order, and those that are no longer needed.
        """
        accepted: list[Held] = []
        stale: list[Held] = []
        for key in self._order:
            held = self._held[key]
            if comes_next(held.header, self.identifier, self.number):
                self.identifier, self.number = key
                accepted.append(held)
            elif key <= (self.identifier, self.number):
                stale.append(held)
            else:
                break
            del self._held[key]
            self.held_bytes -= len(held.packet)
        del self._order[: len(accepted) + len(stale)]
        return accepted, stale

    def schedule_order_ack(self, now: Moment) -> None:
        """Start or postpone the Order Ack Send Timer after a transactional message.  3.1.1.6.2, 3.1.2.7

        It is postponed only until MaximumOrderAckDelay has passed since the last OrderAck, so an OrderAck is sent
        eventually.
        """
        if now is self._scheduled:
            return  # It came together with the one before.
        self._scheduled = now
        self.last_access_s = now.utc_s
        if self._timers.runs(Timer.ORDER_ACK_SEND, self):
            since_ms = now.uptime_ms - self._last_order_ack_ms
            if since_ms >= self._settings.maximum_order_ack_delay_s * 1_000:
                return
        self._timers.start(Timer.ORDER_ACK_SEND, self, now.uptime_ms + self._settings.order_ack_timeout_ms)

    def order_ack_sent(self, now: Moment) -> None:
        """Record that an OrderAck has left, so that the next one may be postponed again.  3.1.6.9"""
        self._last_order_ack_ms = now.uptime_ms
        self._scheduled = None

    def row(self) -> IncomingRow:
        """The data that must survive failures of the process and of the node."""
        return IncomingRow(
            self.source,
            self.held_queue,
            self.identifier.time_stamp,
            self.identifier.ordinal,
            self.number,
            self.reject_count,
            self.last_access_s,
            self.reply_to.direct_host or "",
        )

    def restore(self, row: IncomingRow, last_held: int) -> None:
        """Continue from a stored row. Messages that are held from now on get positions above `last_held`."""
        self._last_held_position = last_held
        self.identifier = TxSequenceId(ordinal=row.ordinal, time_stamp=row.time_stamp)
        self.number = row.number
        self.reject_count = row.reject_count
        self.last_access_s = row.last_access_s
        self.reply_to = ReplyTo(row.source, row.reply_host or None)


def reply_to_sender(message: UserMessage, peer: str) -> ReplyTo:
    """Return where to send a message's acknowledgments.

    That is a direct name if the message came by one, and otherwise the GUID of its sender.
    """
    user = message.user
    return ReplyTo(user.source_queue_manager, peer if isinstance(user.destination_queue, str) else None)


def order_queue_of(reply_to: ReplyTo) -> tuple[Guid, int | str]:
    """Return QueueManagerAddress and DestinationQueue for the order queue of a message's sender.  3.1.7.17

    The sender is the original one (3.1.1.6.2), and not the neighbour that RemoteQMGuid would name.
    """
    if reply_to.direct_host is not None:
        return NULL_GUID, rf"TCP:{reply_to.direct_host}\PRIVATE$\order_queue$"
    return reply_to.manager, ORDER_QUEUE


def make_order_ack(
    reply_to: ReplyTo, place: tuple[TxSequenceId, int], identity: Guid, message_id: int, now: Moment
) -> UserMessage:
    """Make an OrderAck: it says that all messages of a sequence up to a number are on our disk.  2.2.4

    The number 0 means that none of them is.
    """
    identifier, number = place
    manager, destination = order_queue_of(reply_to)
    return OrderAck(
        source=identity,
        destination_manager=manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=now.utc_s,
        body=OrderAckBody(
            tx_sequence_id=identifier,
            tx_sequence_number=number,
            tx_previous_sequence_number=max(0, number - 1),
        ),
    ).message()


def make_final_ack(
    message: UserMessage, message_class: int, reply_to: ReplyTo, identity: Guid, message_id: int, now: Moment
) -> UserMessage:
    """Make a FinalAck, which reports the end of one transactional message.  2.2.5"""
    assert message.transaction is not None
    manager, destination = order_queue_of(reply_to)
    return FinalAck(
        source=identity,
        destination_manager=manager,
        destination=destination,
        message_id=message_id,
        sent_time_s=now.utc_s,
        message_class=message_class,
        body=FinalAckBody(
            tx_sequence_id=message.transaction.tx_sequence_id,
            tx_sequence_number=message.transaction.tx_sequence_number,
            tx_previous_sequence_number=message.transaction.previous_tx_sequence_number,
            source_guid=message.user.source_queue_manager,
            message_id=message.user.message_id,
        ),
    ).message()
