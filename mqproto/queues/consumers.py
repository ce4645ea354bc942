"""The applications that wait for a queue's messages, what they have not settled, and how long messages waited."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

from mqproto.base.durations import Durations
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.queues.lanes import POSITION, QUEUE, Lane
from mqproto.turn.effects import UNKNOWN_COUNT, MessageRow
from mqproto.turn.waypoints import Waypoints
from mqproto.wire.glance import sent_times_s

WAIT_BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
"""The upper bounds of waits, in seconds.

The lowest are for a consumer that is waiting, the highest for one that comes once a day.
"""
AGE_BOUNDS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
"""The upper bounds of ages, in seconds. Ages are whole seconds."""
GRAIN: Final = 16
"""The denominator of a fraction: marks are merged if that makes a wait appear longer by at most 1/GRAIN."""
SPARE: Final = 256
"""The number of marks that are added before merging is tried again."""


@dataclass(slots=True)
class Consumer:
    """One application's request for messages."""

    consumer: int
    limit: int
    transactional: bool


class Consumers:
    """The waiting consumers of one queue, in order of arrival, and the messages that each was given.

    lanes: the queue's lanes, by their numbers in the store.
    """

    def __init__(self, queue_name: str, waypoints: Waypoints, lanes: Mapping[int, Lane]) -> None:
        self.waiting: deque[Consumer] = deque()
        self.unsettled: dict[int, list[MessageRow]] = {}
        self._queue_name = queue_name
        self._waypoints = waypoints
        self._lanes = lanes

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unsettled)

    @property
    def handed(self) -> Iterator[MessageRow]:
        """Return the messages that were handed out and not settled."""
        return chain.from_iterable(self.unsettled.values())

    def ask(self, consumer: Consumer) -> None:
        """Handle an application's request for messages: it gets them now, or as soon as there are some.

        Raises:
            UsageError: this consumer is already asking, has unsettled messages, or asks for less than one message.
        """
        if consumer.limit < 1:
            raise UsageError(
                f"consumer {consumer.consumer} asks for {consumer.limit} messages; ask for 1 or more"
            )
        self.check_settled(
            consumer.consumer, is_asking=consumer.consumer in {one.consumer for one in self.waiting}
        )
        self.waiting.append(consumer)

    def check_settled(self, consumer: int, *, is_asking: bool = False) -> None:
        """Check that a consumer has no unsettled messages, and is not already asking."""
        if is_asking or consumer in self.unsettled:
            raise UsageError(f"consumer {consumer} must settle queue {self._queue_name} before it asks again")

    def give(self, consumer: int, handed: Sequence[MessageRow]) -> list[MessageRow]:
        """Give messages to a consumer. Return them, for a delivery."""
        self._waypoints.delivered(handed, self._queue_name, consumer)
        return [*handed]

    def settled(self, consumer: int) -> list[MessageRow]:
        """Return the messages that a consumer was given, and forget that it has them.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        try:
            return self.unsettled.pop(consumer)
        except KeyError:
            raise UsageError(
                f"consumer {consumer} has nothing of queue {self._queue_name} to settle"
            ) from None

    def roll_back(self, consumer: int) -> None:
        """Return a consumer's messages to their places.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        by_queue: dict[int, list[MessageRow]] = {}
        handed = self.settled(consumer)
        self._waypoints.rolled_back((one.packet for one in handed), self._queue_name, consumer)
        for one in handed:
            count = one.delivery_count
            again = one if count == UNKNOWN_COUNT else one._replace(delivery_count=count + 1)
            by_queue.setdefault(one.queue, []).append(again)
        for queue, messages in by_queue.items():
            self._lanes[queue].window.give_back(messages)

    def abandon(self, consumer: int) -> None:
        """Forget an application that is gone, and roll back its unsettled messages."""
        self.waiting = deque(waiting for waiting in self.waiting if waiting.consumer != consumer)
        if consumer in self.unsettled:
            self.roll_back(consumer)

    def take_back(self, key: int) -> MessageRow | None:
        """Take a message back from its consumer and return it; return None if no consumer has it."""
        for handed in self.unsettled.values():
            for one in handed:
                if one.key == key:
                    handed.remove(one)
                    return one
        return None


class Marks:
    """The arrival times of a lane's messages. A mark covers all positions after the previous mark.

    The older the marks are, the more of them are merged. A backlog of a month has about 700 marks, and a wait appears
    too long by at most a sixteenth.
    """

    def __init__(self) -> None:
        self._through = array("q")
        self._first_ms = array("q")
        self._last_ms = array("q")
        self._limit = SPARE

    def __len__(self) -> int:
        return len(self._through)

    def came(self, position: int, now_ms: int) -> None:
        """Record that messages up to this position have arrived."""
        if self._through and self._through[-1] >= position:
            return
        if len(self) >= self._limit:
            self._join(now_ms)
        self._through.append(position)
        self._first_ms.append(now_ms)
        self._last_ms.append(now_ms)

    def _join(self, now_ms: int) -> None:
        """Merge marks that are not needed."""
        joined = Marks()
        for through, first_ms, last_ms in zip(self._through, self._first_ms, self._last_ms, strict=True):
            if joined and (last_ms - joined._first_ms[-1]) * GRAIN <= now_ms - last_ms:
                joined._through[-1], joined._last_ms[-1] = through, last_ms
            else:
                joined._through.append(through)
                joined._first_ms.append(first_ms)
                joined._last_ms.append(last_ms)
        self._through, self._first_ms, self._last_ms = joined._through, joined._first_ms, joined._last_ms
        self._limit = len(self) + SPARE

    def count(self, handed: Sequence[MessageRow], now_ms: int, waits: Durations) -> None:
        """Count how long messages that came in this process have waited until now.

        handed: the messages, in order of position.
        """
        start = 0
        while start < len(handed):
            mark = bisect_left(self._through, handed[start].position)
            if mark == len(self):  # They came in this turn.
                waits.add(0, len(handed) - start)
                return
            end = bisect_right(handed, self._through[mark], start, key=POSITION)
            waits.add(max(0, now_ms - self._first_ms[mark]) / 1_000, end - start)
            start = end


class Delays:
    """A histogram of how long the messages of one queue wait until applications receive them.

    The store has no column for a message's arrival time, because a column would cost something for every message.
    Positions in a lane rise with time, so one mark per turn, with the last position that came, is enough. Messages that
    were in the store when it was opened count from the time when they were sent, by their senders' clocks.
    """

    def __init__(self) -> None:
        self.waits = Durations(WAIT_BOUNDS_S)
        self._marks: dict[Lane, Marks] = {}

    def came(self, lane: Lane, now: Moment) -> None:
        """Record that all messages now in a lane have arrived by this time."""
        marks = self._marks.get(lane)
        if marks is None:
            if lane.last_position == lane.loaded_through:
                return
            self._marks[lane] = marks = Marks()
        marks.came(lane.last_position, now.uptime_ms)

    def received(self, handed: Sequence[MessageRow], lanes: Mapping[int, Lane], now: Moment) -> None:
        """Count messages that applications have received. They are grouped by lane, in order of position.

        lanes: the lanes, by their numbers in the store.
        """
        if handed and handed[0].queue == handed[-1].queue:
            self._received(lanes[handed[0].queue], handed, now)
            return
        for queue, run in groupby(handed, QUEUE):
            self._received(lanes[queue], [*run], now)

    def _received(self, lane: Lane, handed: Sequence[MessageRow], now: Moment) -> None:
        if handed[0].position <= lane.loaded_through:
            restored = bisect_right(handed, lane.loaded_through, key=POSITION)
            count_ages([one.packet for one in handed[:restored]], now, self.waits)
            handed = handed[restored:]
        self._marks.get(lane, NO_MARKS).count(handed, now.uptime_ms, self.waits)


NO_MARKS: Final = Marks()
"""The marks of a lane to which no message has come in this process."""


def count_ages(packets: Sequence[bytes], now: Moment, ages: Durations) -> None:
    """Count the ages of messages since their SentTime, in whole seconds; 0 if the sender's clock is ahead."""
    for sent_s, count in sent_times_s(packets):
        ages.add(max(0, now.utc_s - sent_s), count)
