"""The effect of a log's records on the messages in the tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple, Self

from mqproto.simulator.storage.recent import RecentRows
from mqproto.turn.effects import MessageRow, Writes


class Logged(NamedTuple):
    """The effect of the log on the messages in the tables.

    messages: the messages that the log adds and does not remove again, in order.
    keys: the keys of these messages.
    removed: the ranges of keys that the log removes, in order.
    """

    messages: list[MessageRow]
    keys: frozenset[int]
    removed: list[tuple[int, int]]

    @classmethod
    def of(cls, records: Mapping[int, Writes]) -> Self:
        """Return the effect of these records on the messages in the tables."""
        recent = RecentRows()
        removed: list[tuple[int, int]] = []
        for number in sorted(records):
            recent.add(records[number], {})
            removed += records[number].removals
        rows = recent.messages.rows
        return cls([rows[key] for key in sorted(rows)], frozenset(rows), _joined(removed))

    def replaces(self, key: int) -> bool:
        """Return whether the log removes or replaces the message that the tables have under a key."""
        at = bisect_right(self.removed, key, key=itemgetter(0))
        return key in self.keys or (at > 0 and key <= self.removed[at - 1][1])


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same keys as ascending ranges that do not overlap."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result
