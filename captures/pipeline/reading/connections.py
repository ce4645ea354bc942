"""The stage that reads connections: all segments between two ends go through one reader, which finds their packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mqproto.captures.framing import StreamCount
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.reading.addresses import (
    CLOSED_STREAMS,
    FOUND_ROWS,
    OPEN_STREAMS,
    SEGMENTS,
    Addresses,
    hash_of,
)
from mqproto.captures.pipeline.reading.carrying import SegmentParts
from mqproto.captures.pipeline.reading.growth import FOLDER, KEPT_COUNT, saved_pairs
from mqproto.captures.pipeline.reading.packets.cutting import Packets
from mqproto.captures.pipeline.reading.packets.flows import END_OF_CAPTURE, Flows
from mqproto.captures.pipeline.reading.rows import Asked, closed_rows, packet_rows
from mqproto.captures.pipeline.tables.kept import save
from mqproto.captures.pipeline.tables.parts import Part, Store


@dataclass(frozen=True, slots=True)
class ReadSeries:
    """A series whose ranges have all been read.

    first: the number of the first new range.
    first_numbers: for each new range, the number of its first frame.
    silent_ns: pairs that have been silent since this time count as over.
    apart: as in mqproto.captures.pipeline.reading.packets.reassembly.SegmentPart.
    open_pairs: files with pairs that were open before the first new range.
    asked: what to read from packets in addition to their fields.
    saved: the prefix of the names of the parts that this run saves about the series, in `store`.
    """

    addresses: Addresses
    first: int
    first_numbers: tuple[int, ...]
    silent_ns: int
    apart: bool
    open_pairs: tuple[str, ...]
    asked: Asked
    store: Store
    saved: str

    @property
    def end(self) -> int:
        """Return a number that is higher than the number of any range.

        It is for rows that only the end of the series reveals.
        """
        return self.first + len(self.first_numbers)


@dataclass(frozen=True, slots=True)
class ConnectionsTask:
    """The task for all pairs of ends in one bucket of a series."""

    series: str
    bucket: int

    def __str__(self) -> str:
        return f"connections of {self.series}"


@dataclass(slots=True)
class ConnectionsRead:
    """The result of reading connections.

    rows, framed: for each range, the number of its rows, and of its framed packets.
    connections: the numbers of the first frames of connections.
    totals: the totals of streams that are over.
    open_totals: the totals of streams that would be over if the series ended here.
    saved: the saved pairs that are still open.
    """

    rows: Counter[int] = field(default_factory=Counter)
    framed: Counter[int] = field(default_factory=Counter)
    connections: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    totals: Totals = field(default_factory=Totals)
    open_totals: Totals = field(default_factory=Totals)
    saved: Part | None = None


def read_connections(
    all_series: Mapping[str, ReadSeries], task: ConnectionsTask, inbox: Inbox, outbox: Outbox
) -> ConnectionsRead:
    """Read the connections of a bucket; save the open ones, and append the rows that only the end reveals."""
    series, bucket = all_series[task.series], task.bucket
    pairs = saved_pairs(series.open_pairs, bucket, series.addresses.count)
    flows, parts, sink = Flows(pairs), SegmentParts(series.apart), _Sink(series, outbox)
    for rows in inbox.take(SEGMENTS):
        for part in parts.take(rows):
            sink.put(flows.read(part), series.end - 1)
    for part in parts.rest():
        sink.put(flows.read(part), series.end - 1)
    sink.put(flows.decide(), series.end - 1)
    sink.put(flows.finish(series.silent_ns), series.end - 1)
    flows.forget(KEPT_COUNT)
    name = f"{FOLDER}/{series.saved}-open-{bucket:02d}.parquet"
    sink.read.saved = save(series.store, name, ((hash_of(ends), pair) for ends, pair in flows.pairs.items()))
    sink.close(CLOSED_STREAMS, bucket, flows.closed, sink.read.totals)
    flows.closed.clear()
    sink.put(flows.finish(), series.end)
    sink.close(OPEN_STREAMS, bucket, flows.closed, sink.read.open_totals)
    return sink.read


class _Sink:
    """Puts packets into the ranges in which they become readable, and counts them."""

    def __init__(self, series: ReadSeries, outbox: Outbox) -> None:
        self.read = ConnectionsRead()
        self._series = series
        self._outbox = outbox

    def put(self, packets: Packets, last: int) -> None:
        """Put packets into their ranges; `last` is the range for packets that only the capture's end reveals."""
        series = self._series
        for batch in packet_rows(packets, series.asked):
            readable = batch["readable"].to_numpy()
            at = np.searchsorted(series.first_numbers, readable, side="right") - 1 + series.first
            at = np.clip(at, series.first, last)
            at[readable >= END_OF_CAPTURE] = last
            places, firsts = np.unique(at, return_index=True)
            ends = [*firsts[1:].tolist(), len(at)]
            for place, first, end in zip(places.tolist(), firsts.tolist(), ends, strict=True):
                rows = batch.slice(first, end - first)
                framed = rows["framed"].true_count
                self.read.rows[place] += end - first
                self.read.framed[place] += framed
                self._outbox.put(FOUND_ROWS, series.addresses.range(place), rows)

    def close(self, exchange: str, bucket: int, seen: Iterable[StreamCount], totals: Totals) -> None:
        """Send streams that are over to an exchange, and add them to the totals."""
        streams = list(seen)
        for one in streams:
            totals.add_stream(one)
        self._outbox.put(exchange, self._series.addresses.streams + bucket, closed_rows(streams))
        numbers = {one.stream.connection for one in streams}
        self.read.connections = np.union1d(self.read.connections, np.array([*numbers], np.int64))
