"""A queue that applications receive from: messages by priority, handed out and settled.  [MS-MQDMPR] 3.1.1.2"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.messages.kept import is_letter
from mqproto.queues.delays import Delays
from mqproto.queues.joining import Joining
from mqproto.queues.lanes import LANE, Handed, Lane
from mqproto.queues.protection import OPEN, Protection
from mqproto.turn.effects import UNKNOWN_COUNT, Departure, QueueKind, ReadPage, Received, StoredQueue, Waiting
from mqproto.turn.endings import Ending, Place
from mqproto.turn.pending import PendingWrites
from mqproto.turn.waypoints import OFF, Waypoints
from mqproto.wire import MessageClass, UserHeader
from mqproto.wire.glance import receive_deadline_s, sent_time_s, user_flags
from mqproto.wire.guid import Guid


class SystemQueue(StrEnum):
    """The queues that each queue manager has for itself. Applications receive from them; only it sends there."""

    JOURNAL = "system$;journal"
    """SystemJournalQueue: messages that we sent with JP set and that arrived."""
    DEADLETTER = "system$;deadletter"
    """SystemDeadletterQueue: messages with JN set that ended here, and are not transactional."""
    DEADXACT = "system$;deadxact"
    """SystemTransactionalDeadletterQueue: our own transactional messages with JN set that ended anywhere."""


DEAD_LETTERS: Final = (SystemQueue.DEADXACT, SystemQueue.DEADLETTER)
JOURNAL_SUFFIX: Final = ";journal"
"""Follows a queue's name in the name of its journal.  [MS-MQMQ] 2.1.1"""
HEARD_OF: Final = (
    UserHeader.journal_negative.mask | UserHeader.journal_positive.mask | UserHeader.admin_type.mask
)
"""Bits of UserHeader.Flags: without these and a FinalAck, nothing follows when a message is received."""


def is_system(name: str) -> bool:
    """Whether a queue of this name is a dead-letter queue or a journal."""
    return name in set(SystemQueue) or name.endswith(JOURNAL_SUFFIX)


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue that a queue manager hosts.

    identifier: PrivateQueueIdentifier, by which routed messages name it; 1 to 2**32 - 1, and 4 is the order queue's.
    public: its GUID in the directory, if it has one.
    quota_bytes: how many bytes all its messages may take; a message beyond that is refused.
    journal: whether what applications receive from it is copied to its journal, up to `journal_quota_bytes`.
    strangers: whether queue managers that nobody has declared may send to it.
    protection: what it asks of messages.
    connector: the GUID of the foreign system whose connector queue it is. A system has two of them: one for
        transactional messages, one for all others.
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
        """The GUIDs by which packets name it, each with whether it is for transactional messages."""
        found = [(self.public, kind) for kind in (False, True)] if self.public is not None else []
        return found if self.connector is None else [*found, (self.connector, self.transactional)]

    @property
    def path_name(self) -> str:
        """The path name by which its own queue manager may call it.  [MS-MQMQ] 2.1.1"""
        return f".\\{self.name}" if self.public is not None else f".\\private$\\{self.name}"


@dataclass(slots=True)
class Consumer:
    """One request of an application for messages."""

    consumer: int
    limit: int
    transactional: bool


class LocalQueue:
    """A queue of ours: messages by priority and in order, some of them handed out and not yet settled.

    `queue` is the store's number of its lane for priority 0, which is always there.
    """

    def __init__(
        self,
        declaration: QueueDeclaration,
        settings: Settings,
        next_queue: Callable[[], int],
        stored: Iterable[StoredQueue],
        waypoints: Waypoints = OFF,
    ) -> None:
        self.declaration = declaration
        self.is_system = is_system(declaration.name)
        """Whether it is a dead-letter queue or a journal: messages that are kept there have ended already."""
        self.count = 0
        self.size_bytes = 0
        self.delays = Delays()
        """How long messages were here until they were received."""
        self.unsettled: dict[int, list[Handed]] = {}
        self._fresh: list[bytes] = []
        """The packets that came since `take_fresh` was called, except letters, whose way had ended before."""
        self._fresh_letters = self._entered_before = 0
        self._settings = settings
        self._next_queue = next_queue
        self._waypoints = waypoints
        self._lanes: dict[int, Lane] = {}
        self._waiting: deque[Consumer] = deque()
        self._purging: dict[Lane, int] = {}
        self._purges_kept: set[Lane] = set()
        """The lanes whose purge is in the store, and how far it goes."""
        self._purge_class = MessageClass.NACK_Q_PURGED
        self._given_back: dict[int, int] = {}
        """How often a message in the queue was handed out and came back, by its key."""
        for known in stored:
            self._open(
                Lane(known.queue, QueueKind.LOCAL, self.name, settings, known, priority=known.priority)
            )
            self.count += known.message_count
            self.size_bytes += known.size_bytes
        self._restored_count = self.count
        self.queue = self.lane(0).queue

    @property
    def name(self) -> str:
        """The queue's name, without a host or `private$`."""
        return self.declaration.name

    def become(self, declaration: QueueDeclaration, writes: PendingWrites) -> None:
        """Become this queue: it was deleted and is empty. New messages stand behind those that have left."""
        assert not self.count, f"{self.name} still has {self.count} messages"
        assert not self.is_in_use, f"an application receives from {self.name}"
        self.declaration, self.is_system = declaration, is_system(declaration.name)
        self._fresh.clear()
        self._fresh_letters = self._entered_before = self._restored_count = 0
        self.delays = Delays()
        self._purging.clear()
        self._purge_class = MessageClass.NACK_Q_PURGED
        for lane in self.lanes:
            lane.rename(declaration.name, writes)

    def respell(self, writes: PendingWrites) -> None:
        """Tell the store this spelling of the name; it has it in another case."""
        for lane in self.lanes:
            lane.registered = False
            lane.register(writes)

    @property
    def entered_count(self) -> int:
        """Messages that came since the process began."""
        return self._entered_before + self._fresh_letters + len(self._fresh)

    def take_fresh(self, now: Moment) -> list[bytes]:
        """Return the packets of messages that came since the last call, and remember when they came."""
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
        """Messages that left since the process began, for whatever reason."""
        return self._restored_count + self.entered_count - self.count

    @property
    def oldest_s(self) -> int | None:
        """SentTime, as its sender says, of the message that is here longest; None if there is none in memory.

        It is the first of a priority; those that consumers have come before it.
        """
        first = [handed[0].message for handed in self.unsettled.values() if handed]
        first += [next(iter(lane.window)) for lane in self._lanes.values() if lane.window]
        return min((sent_time_s(message.packet) for message in first), default=None)

    @property
    def lanes(self) -> Iterable[Lane]:
        """The existing lanes, the highest priority first."""
        return self._lanes.values()

    def lane(self, priority: int) -> Lane:
        """The lane of a priority, opened when it is first needed."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = Lane(self._next_queue(), QueueKind.LOCAL, self.name, self._settings, priority=priority)
            self._open(lane)
        return lane

    def known_lane(self, priority: int) -> Lane | None:
        """The lane of a priority, if there is one."""
        return self._lanes.get(priority)

    def _open(self, lane: Lane) -> None:
        self._lanes[lane.priority] = lane
        self._lanes = dict(sorted(self._lanes.items(), reverse=True))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message of this size fits into the queue's quota."""
        quota = self.declaration.quota_bytes
        return quota is None or self.size_bytes + size_bytes <= quota

    def insert(
        self, messages: Joining, writes: PendingWrites, *, priority: int, is_kept: bool = False
    ) -> None:
        """Insert messages that have reached their destination, or are kept where they ended.  3.1.5.8.8"""
        packets = messages.packets
        self.count += len(packets)
        self.size_bytes += sum(map(len, packets))
        if is_kept:
            self._fresh_letters += len(packets)
        else:
            self._fresh += packets
            self._waypoints.queued(packets, self.name)
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self.lane(priority)
        lane.join(messages, writes)

    def insert_held(self, key: int, messages: Joining, writes: PendingWrites) -> None:
        """Insert a transactional message that the store already holds, behind a gap that is closed now."""
        [packet] = messages.packets
        self.count += 1
        self.size_bytes += len(packet)
        self._fresh.append(packet)
        self._waypoints.queued(messages.packets, self.name)
        self.lane(0).join_from(key, messages, writes)

    def _left(self, handed: Sequence[Handed], writes: PendingWrites) -> None:
        """Messages have left the queue."""
        self.count -= len(handed)
        self.size_bytes -= sum(len(message.packet) for _, message in handed)
        if self._given_back:
            for one in handed:
                self._given_back.pop(one.key, None)
        for lane, run in groupby(handed, LANE):
            if stored := [message.position for _, message in run if message.stored]:
                writes.urgent().remove_each(lane.queue, stored)

    def _end(
        self,
        handed: Sequence[Handed],
        message_class: MessageClass,
        writes: PendingWrites,
        endings: list[Ending],
    ) -> None:
        """Messages leave the queue for the reason that their class gives.  3.1.7.2

        Nobody wants to hear about most received messages, so they are not looked at again.
        """
        self._left(handed, writes)
        if stored := [message.packet for _, message in handed if message.stored]:
            writes.urgent().departures.append(Departure(self.name, message_class, stored))
        quiet = message_class == MessageClass.ACK_RECEIVE and not self.declaration.journal
        for _, message in handed:
            packet = message.packet
            self._waypoints.ended(packet, message_class, self.name)
            if self.is_system or (quiet and not message.final_ack and not user_flags(packet) & HEARD_OF):
                continue
            endings.append(Ending(packet, message_class, Place.IN_QUEUE, self.queue))

    def deadline_s(self, position: int, packet: bytes) -> int | None:
        """The last second, UTC, at which an application may receive a message from here; None if there is no limit."""
        deadline_s = None if self.is_system else receive_deadline_s(packet)
        return None if deadline_s is None or is_letter(packet) else deadline_s

    def _is_over(self, message: Waiting, now: Moment) -> bool:
        deadline_s = self.deadline_s(message.position, message.packet)
        return deadline_s is not None and now.utc_s > deadline_s

    # Applications receive

    def ask(self, consumer: Consumer) -> None:
        """An application asks for messages, now or as soon as there are some.

        Raises:
            UsageError: this consumer is asking already, has not settled what it was given, or asks for nothing.
        """
        if consumer.limit < 1:
            raise UsageError(
                f"consumer {consumer.consumer} asks for {consumer.limit} messages; ask for 1 or more"
            )
        if consumer.consumer in self.unsettled or any(c.consumer == consumer.consumer for c in self._waiting):
            raise UsageError(
                f"consumer {consumer.consumer} must settle queue {self.name} before it asks again"
            )
        self._waiting.append(consumer)

    def hand_out(
        self, now: Moment, writes: PendingWrites, endings: list[Ending]
    ) -> Iterator[tuple[Consumer, list[Received]]]:
        """Give messages to those who wait, first come, first served."""
        while self._waiting:
            consumer = self._waiting[0]
            handed: list[Handed] = []
            while len(handed) < consumer.limit and (lane := self._first()) is not None:
                for message in lane.window.take(consumer.limit - len(handed)):
                    if message.expires_s is not None and self._is_over(message, now):
                        self._end([Handed(lane, message)], MessageClass.NACK_RECEIVE_TIMEOUT, writes, endings)
                    else:
                        handed.append(Handed(lane, message))
            if not handed:
                return
            self._waiting.popleft()
            received = [self.received(one) for one in handed]
            self._waypoints.delivered(received, self.name, consumer.consumer)
            if consumer.transactional:
                self.unsettled[consumer.consumer] = handed
            else:
                self._receive(handed, now, writes, endings)
            yield consumer, received

    def hand_out_these(self, consumer: int, keys: Iterable[int], now: Moment) -> list[Received]:
        """Give a transactional consumer the messages with these keys, in the order of the queue: all, or none.

        Raises:
            UsageError: one is not in memory, because it has left or somebody has it, or its time is over; or
                this consumer has not settled what it was given.
        """
        if consumer in self.unsettled:
            raise UsageError(f"consumer {consumer} must settle queue {self.name} before it asks again")
        wanted = set(keys)
        found = [
            Handed(lane, message)
            for lane in self._lanes.values()
            for message in lane.window
            if lane.key(message.position) in wanted and not self._is_over(message, now)
        ]
        if len(found) < len(wanted):
            raise UsageError(
                f"{self.name}: {len(wanted) - len(found)} of these messages are not there, or were handed out"
            )
        for lane, message in found:
            lane.window.forget(message.position)
        self.unsettled[consumer] = found
        received = [self.received(one) for one in found]
        self._waypoints.delivered(received, self.name, consumer)
        return received

    def received(self, handed: Handed) -> Received:
        """Return a message as an application gets it."""
        lane, message = handed
        key = lane.first_key | message.position
        count = self._given_back.get(key, 0) + 1
        if message.position <= lane.loaded_through:
            count = UNKNOWN_COUNT
        return Received(key, message.packet, count)

    def _first(self) -> Lane | None:
        """The lane whose turn it is; None if a higher one has messages that are still to be read."""
        for lane in self._lanes.values():
            if lane.window:
                return lane
            if not lane.window.complete:
                return None
        return None

    def settle(self, consumer: int, now: Moment, writes: PendingWrites, endings: list[Ending]) -> None:
        """The messages that an application was given leave the queue: it has received them.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        self._receive(self._settled(consumer), now, writes, endings)

    def _receive(
        self, handed: Sequence[Handed], now: Moment, writes: PendingWrites, endings: list[Ending]
    ) -> None:
        if not self.is_system:
            self.delays.received(handed, now)
        self._end(handed, MessageClass.ACK_RECEIVE, writes, endings)

    def reject(self, consumer: int, writes: PendingWrites, endings: list[Ending]) -> None:
        """The messages that an application was given leave the queue: it has rejected them for good.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        self._end(self._settled(consumer), MessageClass.NACK_RECEIVE_REJECTED, writes, endings)

    def roll_back(self, consumer: int) -> None:
        """The messages that a consumer was given go back to where they were.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        by_lane: dict[Lane, list[Waiting]] = {}
        handed = self._settled(consumer)
        self._waypoints.rolled_back((one.message.packet for one in handed), self.name, consumer)
        for one in handed:
            by_lane.setdefault(one.lane, []).append(one.message)
            self._given_back[one.key] = self._given_back.get(one.key, 0) + 1
        for lane, messages in by_lane.items():
            lane.window.give_back(messages)

    def _settled(self, consumer: int) -> list[Handed]:
        try:
            return self.unsettled.pop(consumer)
        except KeyError:
            raise UsageError(f"consumer {consumer} has nothing of queue {self.name} to settle") from None

    def abandon(self, consumer: int) -> None:
        """The application is gone: it waits no longer, and what it did not settle is rolled back."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.consumer != consumer)
        if consumer in self.unsettled:
            self.roll_back(consumer)

    def peek(self, limit: int) -> list[Received]:
        """Return the first messages, at most as many as are in memory."""
        messages = (Handed(lane, message) for lane in self._lanes.values() for message in lane.window)
        return [self.received(handed) for handed, _ in zip(messages, range(limit), strict=False)]

    # Messages that leave unreceived

    def take_out(self, key: int, writes: PendingWrites, again: int = 0) -> bytes | None:
        """Remove one message from the queue, if it is in memory. Return its packet.

        again: the MessageID of the message that was sent in its place.
        """
        for lane in self._lanes.values():
            position = key - lane.key(0)
            if 0 < position <= lane.window.last:
                message = lane.window.forget(position)
                if message is not None:
                    self._left([Handed(lane, message)], writes)
                    if message.stored:
                        left = Departure(self.name, MessageClass.NORMAL, [message.packet], again)
                        writes.urgent().departures.append(left)
                    return message.packet
        return None

    def recall(self, position: int, packet: bytes, writes: PendingWrites) -> bool:
        """Remove a message of lane 0, even if it is only on disk, or an application has it and has not
        settled. Return whether it was there."""
        lane = self.lane(0)
        window = lane.window
        message = window.forget(position)
        if message is None and window.read_through < position <= window.last:
            window.forget_on_disk(position)
            message = Waiting(position, packet, final_ack=False, stored=True)
        if message is None:
            message = self._taken_back(lane, position)
        if message is None:
            return False
        self._left([Handed(lane, message)], writes)
        return True

    def _taken_back(self, lane: Lane, position: int) -> Waiting | None:
        for handed in self.unsettled.values():
            for one in handed:
                if one.lane is lane and one.message.position == position:
                    handed.remove(one)
                    return one.message
        return None

    def let_go(self, now: Moment, writes: PendingWrites, endings: list[Ending]) -> None:
        """Let go of messages in memory that were purged or whose time is over."""
        for lane in self._lanes.values():
            purged = self._purging.get(lane, 0)
            for message in list(lane.window):
                if message.position <= purged:
                    message_class = self._purge_class
                elif self._is_over(message, now):
                    message_class = MessageClass.NACK_RECEIVE_TIMEOUT
                else:
                    continue
                lane.window.forget(message.position)
                self._end([Handed(lane, message)], message_class, writes, endings)
            if purged and lane.window.read_through >= purged and not self._is_out(lane, purged):
                del self._purging[lane]
                if lane in self._purges_kept:
                    self._purges_kept.remove(lane)
                    writes.purge_until(lane.queue, 0)

    def _is_out(self, lane: Lane, position: int) -> bool:
        """Whether a consumer has a message of a lane up to a position, and may give it back."""
        return any(
            one.lane is lane and one.message.position <= position
            for handed in self.unsettled.values()
            for one in handed
        )

    def let_go_on_disk(
        self,
        lane: Lane,
        position: int,
        packet: bytes,
        now: Moment,
        writes: PendingWrites,
        endings: list[Ending],
    ) -> bool:
        """Let go of a message that only the store has, if its time is over. Return whether it was."""
        message = Waiting(position, packet, final_ack=False, stored=True)
        if not lane.window.read_through < position <= lane.window.last or not self._is_over(message, now):
            return False
        lane.window.forget_on_disk(position)
        self._end([Handed(lane, message)], MessageClass.NACK_RECEIVE_TIMEOUT, writes, endings)
        return True

    def lose(self, lane: Lane, position: int, packet: bytes, writes: PendingWrites) -> bool:
        """Remove a message that only the store has, and that is damaged. Return whether it was there."""
        if not lane.window.read_through < position <= lane.window.last:
            return False
        lane.window.forget_on_disk(position)
        self._left([Handed(lane, Waiting(position, packet, final_ack=False, stored=True))], writes)
        return True

    @property
    def is_in_use(self) -> bool:
        """Whether an application waits for a message, or has some that it has not settled."""
        return bool(self._waiting or self.unsettled)

    @property
    def consumer_count(self) -> int:
        """How many such applications there are."""
        return len(self._waiting) + len(self.unsettled)

    def purge(
        self, message_class: MessageClass = MessageClass.NACK_Q_PURGED, writes: PendingWrites | None = None
    ) -> None:
        """Delete all that is in the queue now; messages that consumers have not settled go if they give them back.

        Args:
            writes: keeps how far to delete, if a process that starts again would not know.
        """
        self._purge_class = message_class
        for lane in self._lanes.values():
            if lane.window.last:
                self._purging[lane] = lane.window.last
                if writes is not None:
                    self._purges_kept.add(lane)
                    writes.purge_until(lane.queue, lane.window.last)

    def go_on_purging(self, lane: Lane, last: int) -> bool:
        """Continue a purge that an earlier process may have begun. Return whether anything may be left."""
        if not lane.window.last:
            return False
        self._purges_kept.add(lane)
        self._purging[lane] = max(self._purging.get(lane, 0), min(last, lane.window.last))
        return True

    @property
    def purging(self) -> bool:
        """Whether messages are still to leave."""
        return bool(self._purging)

    @property
    def is_emptying(self) -> bool:
        """Whether messages that no consumer has are still to leave: they are on disk, and have yet to be read."""
        return any(lane.window.read_through < last for lane, last in self._purging.items())

    def pages(self) -> Iterable[ReadPage]:
        """Yield the pages to read now: none while nobody asks and a peek has something to show."""
        for lane in self._lanes.values():
            if not lane.window or self._waiting:
                page = lane.window.wanted()
                if page is not None:
                    yield page
