"""A queue that applications receive from: its messages, by priority, are handed out and settled.

[MS-MQDMPR] 3.1.1.2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.drafts import is_letter
from mqproto.queues.consumers import Consumer, Consumers, Delays
from mqproto.queues.lanes import PACKET, Lane, Purging
from mqproto.queues.protection import OPEN, Protection
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Departure, MessageRow, QueueKind, ReadPage, StoredQueue
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass, UserHeader
from mqproto.wire.glance import receive_deadline_s, sent_time_s, user_flags
from mqproto.wire.guid import Guid


class SystemQueue(StrEnum):
    """The system queues of each queue manager. Applications receive from them, but cannot send to them."""

    JOURNAL = "system$;journal"
    """SystemJournalQueue: messages that we sent with JP set, and that arrived."""
    DEADLETTER = "system$;deadletter"
    """SystemDeadletterQueue: messages with JN set that ended here and are not transactional."""
    DEADXACT = "system$;deadxact"
    """SystemTransactionalDeadletterQueue: our own transactional messages with JN set that ended anywhere."""


DEAD_LETTERS: Final = (SystemQueue.DEADXACT, SystemQueue.DEADLETTER)
JOURNAL_SUFFIX: Final = ";journal"
"""The suffix that is added to a queue's name to form the name of its journal.  [MS-MQMQ] 2.1.1"""
HEARD_OF: Final = (
    UserHeader.journal_negative.mask | UserHeader.journal_positive.mask | UserHeader.admin_type.mask
)
"""Bits of UserHeader.Flags. If none of them is set and no FinalAck is wanted, a message's receipt has no effect."""


def is_system(name: str) -> bool:
    """Whether a queue of this name is a dead-letter queue or a journal."""
    return name in set(SystemQueue) or name.endswith(JOURNAL_SUFFIX)


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue that a queue manager hosts.

    identifier: PrivateQueueIdentifier, by which routed messages name it: 1 to 2**32 - 1, but not 4, which is the order
        queue.
    public: its GUID in the directory, if it has one.
    quota_bytes: the maximum total size of its messages; further messages are refused.
    journal: whether received messages are copied to its journal, up to `journal_quota_bytes`.
    strangers: whether undeclared queue managers may send to it.
    protection: its requirements for messages.
    connector: the GUID of the foreign system whose connector queue it is. A system has two of them: one for
        transactional messages, and one for all others.
    """

    name: str
    identifier: int
    transactional: bool = False
    public: Guid | None = None
    quota_bytes: int | None = None
    journal: bool = False
    journal_quota_bytes: int | None = None
    strangers: bool = False
    protection: Protection = OPEN
    connector: Guid | None = None

    @property
    def guids(self) -> list[tuple[Guid, bool]]:
        """The GUIDs by which packets name the queue, each with True if it is used for transactional messages."""
        found = [(self.public, kind) for kind in (False, True)] if self.public is not None else []
        return found if self.connector is None else [*found, (self.connector, self.transactional)]

    @property
    def path_name(self) -> str:
        """The path name of the queue on its own queue manager.  [MS-MQMQ] 2.1.1"""
        return f".\\{self.name}" if self.public is not None else f".\\private$\\{self.name}"


class LocalQueue:
    """A local queue: messages by priority and in order, some of them handed out but not yet settled.

    `queue` is the number, in the store, of its lane for priority 0, which always exists.
    """

    def __init__(
        self,
        desk: Desk,
        declaration: QueueDeclaration,
        next_queue: Callable[[], int],
        stored: Iterable[StoredQueue],
    ) -> None:
        self.count = 0
        self.size_bytes = 0
        self._desk = desk
        self._next_queue = next_queue
        self._lanes: dict[int, Lane] = {}
        """The lanes by priority, the highest first."""
        self._by_queue: dict[int, Lane] = {}
        """The lanes by their numbers in the store."""
        self._begin(declaration)
        for known in stored:
            self._open(
                Lane(known.queue, QueueKind.LOCAL, self.name, desk.settings, known, priority=known.priority)
            )
            self.count += known.message_count
            self.size_bytes += known.size_bytes
        self._restored_count = self.count
        self.queue = self.lane(0).queue

    @property
    def name(self) -> str:
        """The queue's name, without a host or `private$`."""
        return self.declaration.name

    def become(self, declaration: QueueDeclaration) -> None:
        """Reuse this deleted, empty queue. New positions follow those of its earlier messages."""
        assert not self.count, f"{self.name} still has {self.count} messages"
        assert not self.consumers, f"an application receives from {self.name}"
        self._begin(declaration)
        for lane in self.lanes:
            lane.rename(declaration.name, self._desk.writes)

    def _begin(self, declaration: QueueDeclaration) -> None:
        """Start as a queue to which no message has come in this process."""
        self.declaration = declaration
        self.is_system = is_system(declaration.name)
        """Whether it is a dead-letter queue or a journal, whose messages have already ended."""
        self.delays = Delays()
        """How long messages were in this queue until they were received."""
        self.consumers = Consumers(declaration.name, self._desk.waypoints, self._by_queue)
        self.purging = Purging()
        self._fresh: list[bytes] = []
        """The packets that have come since the last `take_fresh`, except dead letters, which had already ended."""
        self._fresh_letters = self._entered_before = self._restored_count = 0

    def respell(self) -> None:
        """Store the current spelling of the name, which differs from the stored one only in case."""
        for lane in self.lanes:
            lane.registered = False
            lane.register(self._desk.writes)

    @property
    def entered_count(self) -> int:
        """The number of messages that have come since the process started."""
        return self._entered_before + self._fresh_letters + len(self._fresh)

    def take_fresh(self, now: Moment) -> list[bytes]:
        """Return the packets of messages that have come since the last call, and remember when they came."""
        fresh = self._fresh
        if not fresh and not self._fresh_letters:
            return fresh
        self._entered_before = self.entered_count
        self._fresh, self._fresh_letters = [], 0
        for lane in self._lanes.values():
            self.delays.came(lane, now)
        return fresh

    @property
    def left_count(self) -> int:
        """The number of messages that have left since the process started, for whatever reason."""
        return self._restored_count + self.entered_count - self.count

    @property
    def oldest_s(self) -> int | None:
        """Return the SentTime of the oldest message in memory; None if there is none.

        That message is the first one of some priority, either in the queue or held by a consumer.
        """
        first = [handed[0] for handed in self.consumers.unsettled.values() if handed]
        first += [next(iter(lane.window)) for lane in self._lanes.values() if lane.window]
        return min((sent_time_s(message.packet) for message in first), default=None)

    @property
    def lanes(self) -> Iterable[Lane]:
        """The existing lanes, from the highest priority to the lowest."""
        return self._lanes.values()

    def lane(self, priority: int) -> Lane:
        """Return the lane of a priority, which is opened when it is first needed."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = Lane(
                self._next_queue(), QueueKind.LOCAL, self.name, self._desk.settings, priority=priority
            )
            self._open(lane)
        return lane

    def known_lane(self, priority: int) -> Lane | None:
        """Return the lane of a priority; None if there is none."""
        return self._lanes.get(priority)

    def _open(self, lane: Lane) -> None:
        self._lanes[lane.priority] = self._by_queue[lane.queue] = lane
        self._lanes = dict(sorted(self._lanes.items(), reverse=True))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message of this size fits into the queue's quota."""
        quota = self.declaration.quota_bytes
        return quota is None or self.size_bytes + size_bytes <= quota

    def insert(self, rows: list[MessageRow], *, is_kept: bool = False) -> None:
        """Insert rows of one lane: they have reached their destination, or are kept where they ended.  3.1.5.8.8"""
        packets = list(map(PACKET, rows))
        self.count += len(packets)
        self.size_bytes += sum(map(len, packets))
        if is_kept:
            self._fresh_letters += len(packets)
        else:
            self._fresh += packets
            self._desk.waypoints.queued(packets, self.name)
        self._by_queue[rows[0].queue].join(rows, self._desk.writes)

    def insert_held(self, key: int, packet: bytes, *, final_ack: bool, expires_s: int | None) -> None:
        """Insert a transactional message that the store already holds, after a gap that has now been closed."""
        self.count += 1
        self.size_bytes += len(packet)
        self._fresh.append(packet)
        self._desk.waypoints.queued([packet], self.name)
        self.lane(0).join_from(key, packet, self._desk.writes, final_ack=final_ack, expires_s=expires_s)

    def _left(self, handed: Sequence[MessageRow]) -> None:
        """Handle messages that have left the queue."""
        self.count -= len(handed)
        self.size_bytes -= sum(len(message.packet) for message in handed)
        if stored := [message.key for message in handed if message.stored]:
            self._desk.writes.urgent().remove_each(stored)

    def _end(self, handed: Sequence[MessageRow], message_class: MessageClass) -> None:
        """End these messages, which leave the queue for the reason that their class gives.  3.1.7.2

        Most received messages ask for no acknowledgment or copy, so nothing more is done about them.
        """
        self._left(handed)
        if stored := [message.packet for message in handed if message.stored]:
            self._desk.writes.urgent().departures.append(Departure(self.name, message_class, stored))
        quiet = message_class == MessageClass.ACK_RECEIVE and not self.declaration.journal
        waypoints = self._desk.waypoints
        for message in handed:
            packet = message.packet
            waypoints.ended(packet, message_class, self.name)
            if self.is_system or (quiet and not message.final_ack and not user_flags(packet) & HEARD_OF):
                continue
            self._desk.endings.append(Ending(packet, message_class, Place.IN_QUEUE, self.queue))

    def deadline_s(self, position: int, packet: bytes) -> int | None:
        """Return the last second, UTC, at which a message may be received here; None if there is no limit."""
        deadline_s = None if self.is_system else receive_deadline_s(packet)
        return None if deadline_s is None or is_letter(packet) else deadline_s

    def _is_over(self, message: MessageRow, now: Moment) -> bool:
        deadline_s = self.deadline_s(message.position, message.packet)
        return deadline_s is not None and now.utc_s > deadline_s

    # Applications receive

    def hand_out(self, now: Moment) -> Iterator[tuple[Consumer, list[MessageRow]]]:
        """Give messages to the waiting consumers, in the order in which the consumers arrived."""
        consumers = self.consumers
        while consumers.waiting:
            consumer = consumers.waiting[0]
            handed: list[MessageRow] = []
            while len(handed) < consumer.limit and (lane := self._first()) is not None:
                for message in lane.window.take(consumer.limit - len(handed)):
                    if message.expires_s is not None and self._is_over(message, now):
                        self._end([message], MessageClass.NACK_RECEIVE_TIMEOUT)
                    else:
                        handed.append(message)
            if not handed:
                return
            consumers.waiting.popleft()
            received = consumers.give(consumer.consumer, handed)
            if consumer.transactional:
                consumers.unsettled[consumer.consumer] = handed
            else:
                self._receive(handed, now)
            yield consumer, received

    def hand_out_these(self, consumer: int, keys: Iterable[int], now: Moment) -> list[MessageRow]:
        """Give a transactional consumer the messages with these keys, all or none, in the order of the queue.

        Raises:
            UsageError: a message is not in memory, because it has left or a consumer has it; or a message has expired;
                or this consumer has unsettled messages.
        """
        self.consumers.check_settled(consumer)
        wanted = set(keys)
        found = [
            message
            for lane in self._lanes.values()
            for message in lane.window
            if message.key in wanted and not self._is_over(message, now)
        ]
        if len(found) < len(wanted):
            raise UsageError(
                f"{self.name}: {len(wanted) - len(found)} of these messages are not there, or were handed out"
            )
        for message in found:
            self._by_queue[message.queue].window.forget(message.position)
        self.consumers.unsettled[consumer] = found
        return self.consumers.give(consumer, found)

    def _first(self) -> Lane | None:
        """Return the lane whose turn it is; None if there is none.

        There is none while a lane of higher priority has messages that have yet to be read from disk.
        """
        for lane in self._lanes.values():
            if lane.window:
                return lane
            if not lane.window.complete:
                return None
        return None

    def settle(self, consumer: int, now: Moment) -> None:
        """Remove a consumer's messages from the queue, because the application has received them.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        self._receive(self.consumers.settled(consumer), now)

    def _receive(self, handed: Sequence[MessageRow], now: Moment) -> None:
        if not self.is_system:
            self.delays.received(handed, self._by_queue, now)
        self._end(handed, MessageClass.ACK_RECEIVE)

    def reject(self, consumer: int) -> None:
        """Remove a consumer's messages, because its application has rejected them.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        self._end(self.consumers.settled(consumer), MessageClass.NACK_RECEIVE_REJECTED)

    def peek(self, limit: int) -> list[MessageRow]:
        """Return the first `limit` messages, or as many as are in memory."""
        messages = (message for lane in self._lanes.values() for message in lane.window)
        return [*islice(messages, limit)]

    # Messages that leave unreceived

    def take_out(self, key: int, again: int = 0) -> bytes | None:
        """Remove one message from the queue if it is in memory. Return its packet, or None.

        again: the MessageID of the message that was sent in its place.
        """
        for lane in self._lanes.values():
            position = key - lane.key(0)
            if 0 < position <= lane.window.last:
                message = lane.window.forget(position)
                if message is not None:
                    self._left([message])
                    if message.stored:
                        left = Departure(self.name, MessageClass.NORMAL, [message.packet], again)
                        self._desk.writes.urgent().departures.append(left)
                    return message.packet
        return None

    def recall(self, position: int, packet: bytes) -> bool:
        """Remove a message of lane 0, even if it is only on disk or a consumer has not settled it.

        Return whether the message was there.
        """
        lane = self.lane(0)
        window = lane.window
        message = window.forget(position)
        if message is None and window.read_through < position <= window.last:
            window.forget_on_disk(position)
            message = lane.stored_row(position, packet)
        if message is None:
            message = self.consumers.take_back(lane.key(position))
        if message is None:
            return False
        self._left([message])
        return True

    def let_go(self, now: Moment) -> None:
        """Remove messages in memory that were purged or have expired."""
        for lane in self._lanes.values():
            purged = self.purging.through(lane)
            for message in list(lane.window):
                if message.position <= purged:
                    message_class = self.purging.message_class
                elif self._is_over(message, now):
                    message_class = MessageClass.NACK_RECEIVE_TIMEOUT
                else:
                    continue
                lane.window.forget(message.position)
                self._end([message], message_class)
            if purged and lane.window.read_through >= purged and not self._is_out(lane, purged):
                self.purging.end(lane, self._desk.writes)

    def _is_out(self, lane: Lane, position: int) -> bool:
        """Return whether a consumer holds a message of this lane, at or before this position, and may give it back."""
        return any(one.queue == lane.queue and one.position <= position for one in self.consumers.handed)

    def let_go_on_disk(self, lane: Lane, position: int, packet: bytes, now: Moment) -> bool:
        """Remove a message that is only in the store if it has expired. Return whether it was removed."""
        message = lane.stored_row(position, packet)
        if not lane.window.read_through < position <= lane.window.last or not self._is_over(message, now):
            return False
        lane.window.forget_on_disk(position)
        self._end([message], MessageClass.NACK_RECEIVE_TIMEOUT)
        return True

    def lose(self, lane: Lane, position: int, packet: bytes) -> bool:
        """Remove a damaged message that is only in the store. Return whether it was there."""
        if not lane.window.read_through < position <= lane.window.last:
            return False
        lane.window.forget_on_disk(position)
        self._left([lane.stored_row(position, packet)])
        return True

    def pages(self) -> Iterable[ReadPage]:
        """Yield the pages to read now. A lane with messages in memory needs one only if a consumer waits."""
        for lane in self._lanes.values():
            if not lane.window or self.consumers.waiting:
                page = lane.window.wanted()
                if page is not None:
                    yield page
