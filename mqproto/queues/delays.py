"""A histogram of how long messages wait in a queue until applications receive them.

The store has no column for a message's arrival time, because a column would cost something for every message. Positions
in a lane rise with time, so one mark per turn, with the position of the last message that arrived, is enough.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from mqproto.base.durations import Durations
from mqproto.base.moment import Moment
from mqproto.queues.lanes import POSITION, QUEUE, Lane
from mqproto.turn.effects import MessageRow
from mqproto.wire.glance import sent_times_s

WAIT_BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
"""The upper bounds of waits, in seconds.

The lowest are for a consumer that is waiting, the highest for one that comes once a day.
"""
AGE_BOUNDS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
"""The upper bounds of ages, in seconds. Ages are whole seconds."""
GRAIN: Final = 16
"""Marks are merged if a wait then appears longer by at most one part in this many."""
SPARE: Final = 256
"""How many marks are added before merging is tried again."""


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
        """Note that messages up to this position have arrived."""
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
    """The waiting times of one queue's messages.

    Messages that were in the store when it was opened count from the time when they were sent, by their senders'
    clocks.
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
