"""Places queue managers on a route map, and determines how the paths between them bend.

Messages go from left to right, or downwards if there is little room side by side. Places are given in the caller's
unit, counted from the left and from the top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

Point = tuple[float, float]
STRAIGHT: Final = 0.0
RETURNED: Final = 0.14
"""How far a path bends if there is also a path back."""
AROUND: Final = 0.35
"""How far a path bends around a queue manager that lies between its ends."""
LINE_CHARACTERS: Final = 17
"""The largest number of characters in a label on one line; a longer label is written on two lines."""


class Way(Protocol):
    """A hop: its two ends, and how many messages crossed it."""

    @property
    def from_key(self) -> str: ...

    @property
    def to_key(self) -> str: ...

    @property
    def messages(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The area to draw on.

    width: the whole width.
    edge: the free space at the top and at the bottom together.
    side: the free space at the left and at the right together.
    row: the height of a row.
    dense_row: the height of a row if there are at least `dense_rows` rows.
    column: the greatest distance between columns.
    abreast: how many queue managers fit side by side; a longer chain goes downwards.
    """

    width: float
    edge: float
    side: float
    row: float
    dense_row: float
    column: float
    dense_rows: int = 5
    abreast: int = 4


class Room(NamedTuple):
    """The area that something takes up: its middle, and its size."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Room) -> bool:
        """Whether the two areas overlap."""
        apart = abs(self.x - other.x), abs(self.y - other.y)
        return apart[0] < (self.width + other.width) / 2 and apart[1] < (self.height + other.height) / 2

    def has(self, point: Point) -> bool:
        """Whether a point is in the area."""
        return abs(self.x - point[0]) < self.width / 2 and abs(self.y - point[1]) < self.height / 2

    def is_within(self, width: float, height: float) -> bool:
        """Whether the area is completely inside a picture of this size."""
        fits = self.width / 2 <= self.x <= width - self.width / 2
        return fits and self.height / 2 <= self.y <= height - self.height / 2


def placed(ways: Sequence[Way], sheet: Sheet, alone: Iterable[str] = ()) -> tuple[dict[str, Point], float]:
    """Return the middle of each queue manager, keyed by queue manager, and the height of the whole map.

    Queue managers are placed from left to right by the number of hops; those at the same distance are placed below one
    another. If there would be too many columns, queue managers are placed downwards instead, a few side by side.

    Args:
        alone: keys of queue managers without any path.
    """
    groups = _groups(ways)
    known = {key for group in groups for key in group}
    if others := [key for key in alone if key not in known]:
        groups = (
            [*groups, others] if not groups or sheet.abreast == 1 else [[*groups[0], *others], *groups[1:]]
        )
    if not groups:
        return {}, sheet.edge
    if len(groups) <= sheet.abreast and sheet.abreast > 1:
        rows = max(map(len, groups))
        height = sheet.edge + (sheet.row if rows < sheet.dense_rows else sheet.dense_row) * rows
        return {
            key: (_across(column, len(groups), sheet), height * (row + 0.5) / len(keys))
            for column, keys in enumerate(groups)
            for row, key in enumerate(keys)
        }, height
    lines = [keys[low : low + sheet.abreast] for keys in groups for low in range(0, len(keys), sheet.abreast)]
    return {
        key: (_across(column, len(keys), sheet), sheet.edge / 2 + sheet.row * (row + 0.5))
        for row, keys in enumerate(lines)
        for column, key in enumerate(keys)
    }, sheet.edge + sheet.row * len(lines)


def bend(start: Point, end: Point, places: Iterable[Point], *, is_returned: bool) -> float:
    """Return how far a path bends, to keep clear of a path back and of queue managers between its ends."""
    length = math.dist(start, end)
    for place in places:
        if place not in (start, end) and math.dist(start, place) + math.dist(place, end) < length * 1.03:
            return AROUND
    return RETURNED if is_returned else STRAIGHT


def along(start: Point, end: Point, bent: float, part: float) -> Point:
    """Return the point at a given fraction along a path, which is a quadratic Bézier curve."""
    (x, y), (to_x, to_y) = start, end
    dx, dy = to_x - x, to_y - y
    away = 2 * part * (1 - part) * bent
    return x + part * dx - away * dy, y + part * dy + away * dx


def label_lines(label: str) -> list[str]:
    """Return a label, on two lines if it is long; it breaks after a separator close to its middle."""
    if len(label) <= LINE_CHARACTERS:
        return [label]
    joints = [at for at in range(1, len(label)) if label[at - 1] in ".:-_\\ "]
    middle = len(label) // 2
    at = min([*joints, middle], key=lambda at: abs(at - middle) + 4 * (at == middle and at not in joints))
    return [label[:at], label[at:]]


def ranks(ways: Sequence[Way]) -> dict[str, int]:
    """Map each queue manager's key to its distance, in hops, from where the messages begin their path.

    Each group of connected queue managers begins at 0.
    """
    messages = {(way.from_key, way.to_key): way.messages for way in ways}
    neighbours: dict[str, list[tuple[str, int]]] = {}
    surplus: dict[str, int] = {}
    for way in ways:
        there, back = way.messages, messages.get((way.to_key, way.from_key), 0)
        down = 1 if there > back or (there == back and way.from_key < way.to_key) else -1
        neighbours.setdefault(way.from_key, []).append((way.to_key, down))
        neighbours.setdefault(way.to_key, []).append((way.from_key, -down))
        surplus[way.from_key] = surplus.get(way.from_key, 0) + way.messages
        surplus[way.to_key] = surplus.get(way.to_key, 0) - way.messages
    found: dict[str, int] = {}
    for start in sorted(neighbours, key=lambda key: (-surplus[key], key)):
        if start in found:
            continue
        connected = {start: 0}
        waiting = [start]
        for key in waiting:
            for other, down in neighbours[key]:
                if other not in connected:
                    connected[other] = connected[key] + down
                    waiting.append(other)
        least = min(connected.values())
        found |= {key: rank - least for key, rank in connected.items()}
    return found


def _groups(ways: Sequence[Way]) -> list[list[str]]:
    """Return queue managers grouped by distance, and ordered by their neighbours so that paths seldom cross."""
    neighbours: dict[str, list[str]] = {}
    for way in ways:
        neighbours.setdefault(way.from_key, []).append(way.to_key)
        neighbours.setdefault(way.to_key, []).append(way.from_key)
    by_rank: dict[int, list[str]] = {}
    for key, rank in sorted(ranks(ways).items()):
        by_rank.setdefault(rank, []).append(key)
    at: dict[str, float] = {}
    for rank in sorted(by_rank):
        keys = by_rank[rank]
        before: Mapping[str, list[float]] = {
            key: [at[other] for other in neighbours[key] if other in at] for key in keys
        }
        keys.sort(key=lambda key: sum(before[key]) / len(before[key]) if before[key] else 0.5)
        at |= {key: (row + 0.5) / len(keys) for row, key in enumerate(keys)}
    return [by_rank[rank] for rank in sorted(by_rank)]


def _across(column: int, columns: int, sheet: Sheet) -> float:
    """Return the middle of a column."""
    apart = min(sheet.column, (sheet.width - sheet.side) / max(columns - 1, 1))
    return sheet.width / 2 + (column - (columns - 1) / 2) * apart
