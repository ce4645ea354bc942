"""Puts IP fragments together across the borders of ranges.

Each range is read as if nothing before it waited for fragments, and hands on its own fragments. Then one task goes
through the few fragments of a whole series in order. For each range with fragments, it reports the packets that wait
for fragments before that range. The range is then read again with these packets.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqproto.captures.net.ip import Datagram, Fragment, IpReader
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox, pickled
from mqproto.captures.pipeline.reading.addresses import FRAGMENTS
from mqproto.captures.pipeline.tables.kept import decoded, encoded

ROWS: Final = pa.schema([("place", pa.int64()), ("fragments", pa.large_binary())])
"""The columns of the rows with the pickled fragments of a range."""


class FragmentLog(IpReader):
    """Keeps the fragments that it receives, in addition to putting them together.

    Args:
        waiting: a reader whose state this one continues.
    """

    def __init__(self, waiting: IpReader) -> None:
        super().__init__()
        vars(self).update(vars(waiting))
        self.fragments: list[Fragment] = []

    def add(self, fragment: Fragment) -> Datagram | None:
        self.fragments.append(fragment)
        return super().add(fragment)


def fragment_rows(place: int, fragments: Sequence[Fragment]) -> pa.RecordBatch:
    """Return the fragments of a range as rows for `join_fragments`."""
    return pa.record_batch([[place], [pickled(list(fragments))]], schema=ROWS)


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """All fragments of a series.

    first: the number of the first new range of the series.
    before: the state of packets that wait for fragments when that range begins; None if there are none.
    end: a number that is higher than the number of any range.
    """

    series: str
    first: int
    before: bytes | None
    end: int

    def __str__(self) -> str:
        return f"fragments in {self.series}"


@dataclass(slots=True)
class FragmentsJoined:
    """The result of joining fragments.

    waiting: the fragments that wait before each range that was read without them, keyed by the number of the range;
        also those that wait at the end, keyed by `FragmentTask.end`.
    waiting_count: how many packets wait for more fragments at the end.
    """

    waiting: dict[int, bytes]
    waiting_count: int


def join_fragments(task: FragmentTask, inbox: Inbox, outbox: Outbox) -> FragmentsJoined:
    """Report which packets wait for fragments before each range that has fragments, and at the end."""
    ip = waiting_packets(task.before)
    waiting: dict[int, bytes] = {}

    def look_before(number: int) -> None:
        if ip.waiting_count and number != task.first:
            waiting[number] = encoded(ip)

    for rows in inbox.take(FRAGMENTS):
        for number, fragments in zip(rows["place"].to_pylist(), rows["fragments"], strict=True):
            look_before(number)
            for fragment in pickle.loads(fragments.as_buffer()):
                ip.add(fragment)
    look_before(task.end)
    return FragmentsJoined(waiting, ip.waiting_count)


def waiting_packets(saved: bytes | None) -> IpReader:
    """Return the packets that wait for fragments, as `join_fragments` has reported them."""
    if saved is None:
        return IpReader()
    return decoded(saved, IpReader)
