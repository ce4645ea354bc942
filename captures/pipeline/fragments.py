"""IP fragments over the borders of ranges.

Each range is read as if nothing waited for fragments before it, and keeps those that it has. Then one task goes through
the fragments of a whole series in their order, as they are few, and leaves what waits before each range that has some.
Such a range is read once more, with that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captures.net.ip import Datagram, Fragment, IpReader
from captures.pipeline.folders import SeriesFolder
from captures.pipeline.runner import Count
from captures.pipeline.saving import loads, pickled
from captures.pipeline.whole import whole


class FragmentLog(IpReader):
    """Keeps the fragments that it is given, beside putting them together.

    Args:
        waiting: goes on as this one does.
    """

    def __init__(self, waiting: IpReader) -> None:
        super().__init__()
        vars(self).update(vars(waiting))
        self.fragments: list[Fragment] = []

    def add(self, fragment: Fragment) -> Datagram | None:
        self.fragments.append(fragment)
        return super().add(fragment)

    def save(self, path: Path) -> None:
        """Leave them for `join_fragments`, if there are any."""
        if self.fragments:
            _save(path, self.fragments)


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """All fragments of a series.

    first: the number of its first new range. What waits before that is known.
    ranges: those that have fragments.
    end: a number behind all ranges.
    """

    folder: SeriesFolder
    first: int
    ranges: tuple[int, ...]
    end: int

    def __str__(self) -> str:
        return f"fragments in {self.folder.path.name}"


@dataclass(slots=True)
class FragmentsJoined:
    """What became of them.

    again: the ranges that were read without what waits before them.
    waiting_count: packets that wait for more at the end.
    """

    again: list[int]
    waiting_count: int


def join_fragments(task: FragmentTask, count: Count) -> FragmentsJoined:
    """Leave what waits before each range with fragments, and at the end, in the folder of the series."""
    ip = waiting_before(task.folder, task.first)
    again = []
    for number in (*task.ranges, task.end):
        if ip.waiting_count and number != task.first:
            _save(task.folder.waiting(number), ip)
            again.append(number)
        if number != task.end:
            for fragment in loads(task.folder.fragments(number).read_bytes()):
                ip.add(fragment)
    return FragmentsJoined([number for number in again if number != task.end], ip.waiting_count)


def waiting_before(folder: SeriesFolder, number: int) -> IpReader:
    """What waits for fragments before a range, as far as that is known by now."""
    path = folder.waiting(number)
    if not path.exists():
        return IpReader()
    ip: IpReader = loads(path.read_bytes())  # It may be from an earlier run's tables.
    return ip


def _save(path: Path, thing: object) -> None:
    with whole(path) as new:
        new.write_bytes(pickled(thing))
