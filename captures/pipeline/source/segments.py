"""The TCP segments and Pings of a range as columns.

The link, IP and TCP headers of all frames are read at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.taps import Half
from mqproto.captures.net.tcp import PROTOCOL_TCP, TCP_HEADER, Endpoint, Segment, endpoint
from mqproto.captures.net.tunnels import TUNNEL_PORTS
from mqproto.captures.net.udp import PROTOCOL_UDP, UDP_HEADER
from mqproto.captures.packets import (
    DAMAGED_TCP,
    PING_PORT,
    UDP,
    SeenPacket,
    content_of,
)
from mqproto.captures.pipeline.source.heads import (
    NO_PLACE,
    Datagrams,
    datagrams_4,
    datagrams_6,
    ip_starts,
    layout,
    versions,
)
from mqproto.captures.pipeline.source.octets import binaries
from mqproto.captures.pipeline.source.records import Data, Frames, Integers, gather
from mqproto.captures.pipeline.source.scan import Reading, frames
from mqproto.captures.translation import Translation

TCP_LAYOUT: Final = layout(
    TCP_HEADER, "source destination sequence acknowledgment length flags window checksum urgent"
)
PORTS_LAYOUT: Final = layout(UDP_HEADER, "source destination size checksum")

Indexes = npt.NDArray[np.int32]


@dataclass(slots=True)
class Segments:
    """The TCP segments of a range, its Pings, and counts of its other frames.

    There is one row for each segment, in the order of the capture. frame_count is the number of segments and Pings plus
    the sum of `other_frames`. Segments on their way to the readers of connections have no counts, because their ranges
    have already counted them.

    frame: the index in the range, from 0; `reading.first_number` must be added for the frame's number in the file. For
        segments on their way to the readers of connections, it is the number over the whole series.
    time_ns: the time since 1970, UTC; 0 if the file does not say. Times beyond 64 bits become the nearest that fit.
    offset: the place of the frame's record in the file.
    interface: the number of its interface, a key of `interfaces`.
    source, destination: indexes into `ends`, which has each endpoint once.
    sequence, acknowledgment: the numbers in the header, from 0 to 2**32 - 1.
    flags: the byte with FIN, SYN, RST, PSH and ACK.
    cut: the number of bytes that the capture cut off the end of the payload.
    start, size: the place and size of the payload in the mapped file. `start` is -1 if the payload is not in one piece
        (fragments, extension headers); then `odd_payloads` has it, keyed by row.
    frame_start, frame_size, frame_missing: `start`, `size` and `missing` of the whole frame, as in
        mqproto.captures.pipeline.source.records.Frames.
    pings: the Pings as mqproto.captures.packets makes them; their `number` is 0.
    other_frames, cut_frames, untimed_frames, first_ns, last_ns: as in mqproto.captures.packets.Totals.
    back_ns: as in mqproto.captures.points.Point; the maximum over all interfaces.
    dropped: what the range says about dropped frames.
    passed: the segments whose content is removed, keyed by row, as in mqproto.captures.net.recent.DamagedCopies.
    """

    frame: Integers
    time_ns: Integers
    offset: Integers
    interface: Indexes
    source: Indexes
    destination: Indexes
    sequence: Integers
    acknowledgment: Integers
    flags: npt.NDArray[np.uint8]
    start: Integers
    size: Integers
    cut: Integers
    frame_start: Integers
    frame_size: Integers
    frame_missing: Integers
    ends: list[Endpoint]
    interfaces: dict[int, Interface]
    odd_payloads: dict[int, bytes]
    pings: list[SeenPacket] = field(default_factory=list)
    frame_count: int = 0
    other_frames: Counter[str] = field(default_factory=Counter)
    cut_frames: int = 0
    untimed_frames: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    back_ns: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    passed: dict[int, Frame | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def join_halves(self, halves: Mapping[int, Half]) -> None:
        """Treat the two interfaces of each TAP as one, as in mqproto.captures.net.taps."""
        for number, (other, ahead_ns) in halves.items():
            here = self.interface == number
            self.time_ns[here & (self.time_ns != 0)] -= ahead_ns
            self.interface[here] = other.number
            self.interfaces[other.number] = other

    def translate(self, translations: Sequence[Translation], first_number: int) -> None:
        """Treat each translated connection as its original, as in mqproto.captures.translation.

        Args:
            first_number: the number of the first frame.
        """
        if not translations:
            return
        index = {end: place for place, end in enumerate(self.ends)}
        count = len(index)
        source, destination = self.source.astype(np.int64), self.destination.astype(np.int64)
        pair = np.minimum(source, destination) * count + np.maximum(source, destination)
        by = np.argsort(pair, kind="stable")
        in_order = pair[by]
        for number, way, shown, _ in translations:
            here, there = (index.get(end, count) for end in way)
            if here >= count or there >= count:
                continue
            key = min(here, there) * count + max(here, there)
            first, last = np.searchsorted(in_order, [key, key + 1])
            rows = by[first:last]
            rows = rows[self.frame[rows] + first_number >= number]
            is_straight = source[rows] == here
            one, other = (index.setdefault(end, len(index)) for end in shown or way)
            self.source[rows] = np.where(is_straight, one, other)
            self.destination[rows] = np.where(is_straight, other, one)
        self.ends[:] = index

    def pass_over(self, frame: int, whole: Frame | None) -> None:
        """Remove the content of a frame's segment, as mqproto.captures.net.recent.DamagedCopies says."""
        row = int(np.searchsorted(self.frame, frame))
        self.size[row] = self.flags[row] = self.cut[row] = 0
        if row in self.odd_payloads:
            self.odd_payloads[row] = b""
        self.passed[row] = whole

    def payload(self, data: Data, row: int) -> bytes:
        """Return the payload of one segment."""
        start = int(self.start[row])
        return self.odd_payloads[row] if start < 0 else data[start : start + int(self.size[row])]

    def frame_of(self, data: Data, row: int) -> Frame:
        """Return the frame of one segment."""
        return next(self.frames_of(data, np.array([row])))

    def frames_of(self, data: Data, rows: Integers) -> Iterator[Frame]:
        """Yield the frames of some segments."""
        numbers = (self.time_ns, self.frame_missing, self.interface, self.frame, self.offset)
        columns = (each[rows].tolist() for each in (self.frame_start, self.frame_size, *numbers))
        for start, size, time_ns, missing_bytes, interface, number, offset in zip(*columns, strict=True):
            frame = data[start : start + size]
            yield Frame(time_ns, frame, "", missing_bytes, self.interfaces[interface], number, offset)

    def payloads(self, data: Data, rows: Integers) -> pa.LargeBinaryArray:
        """Return the payloads of some segments, in the order of `rows`.

        Payloads in the file are not copied by Python code.
        """
        start, size = self.start[rows], self.size[rows]
        is_odd = start < 0
        if not is_odd.any():
            return binaries(np.frombuffer(data, np.uint8), start, size)
        # A payload outside the file has no place there, and is inserted afterwards.
        column = binaries(
            np.frombuffer(data, np.uint8), np.where(is_odd, 0, start), np.where(is_odd, 0, size)
        )
        values = [self.odd_payloads[row] for row in rows[is_odd].tolist()]
        return pc.replace_with_mask(column, pa.array(is_odd), pa.array(values, pa.large_binary()))


def segments(reading: Reading, data: Data, ip: IpReader | None = None) -> Segments:
    """Return the segments of a range.

    Args:
        data: the whole file, from `files.mapped`.
        ip: the reader with the fragments still waiting at the end of the previous range; None if there are none.

    Raises:
        CaptureError: the file has changed since it was scanned.
    """
    found = frames(reading, data)
    other: Counter[str] = Counter()
    ends = _Ends()
    at = _ip_places(found, data)
    end = found.start + found.size
    is_left = np.ones(len(found), np.bool_)
    rows = np.flatnonzero(at != NO_PLACE)
    version = versions(data, at[rows])
    parts: list[_Columns] = []
    for number, read in ((4, datagrams_4), (6, datagrams_6)):
        some = rows[version == number]
        datagrams = read(data, some, at[some], end[some], found.missing[some])
        is_left[datagrams.row] = False
        is_left[_odd_in(data, datagrams, other)] = True
        parts.append(_segments_in(data, datagrams, ends, other))

    single = _OneByOne(reading, data, found, ip or IpReader(), ends, other)
    for row in np.flatnonzero(is_left).tolist():
        single.take(row)
    parts.append(single.columns())
    columns = _joined(parts)
    timed_ns = found.time_ns[found.time_ns != 0]
    return Segments(
        frame=columns.row,
        time_ns=found.time_ns[columns.row],
        offset=found.offset[columns.row],
        interface=found.interface[columns.row].astype(np.int32),
        source=columns.source,
        destination=columns.destination,
        sequence=columns.sequence,
        acknowledgment=columns.acknowledgment,
        flags=columns.flags,
        start=columns.start,
        size=columns.size,
        cut=columns.cut,
        frame_start=found.start[columns.row],
        frame_size=found.size[columns.row],
        frame_missing=found.missing[columns.row],
        ends=ends.endpoints,
        interfaces=found.interfaces,
        odd_payloads={int(np.searchsorted(columns.row, row)): one for row, one in single.payloads.items()},
        pings=single.pings,
        frame_count=len(found),
        other_frames=+other,  # reasons without a frame are left out
        cut_frames=int((found.missing > 0).sum()),
        untimed_frames=len(found) - len(timed_ns),
        first_ns=int(timed_ns.min()) if len(timed_ns) else None,
        last_ns=int(timed_ns.max()) if len(timed_ns) else None,
        back_ns=_back_ns(found),
        dropped=found.dropped,
    )


def _back_ns(found: Frames) -> int:
    back_ns = 0
    for number in np.unique(found.interface).tolist() if len(found.interfaces) > 1 else [*found.interfaces]:
        own_ns = found.time_ns[(found.interface == number) & (found.time_ns != 0)]
        if len(own_ns) and (own_ns[1:] < own_ns[:-1]).any():
            back_ns = max(back_ns, int((np.maximum.accumulate(own_ns) - own_ns).max()))
    return back_ns


@dataclass(slots=True)
class _Columns:
    """Segments as columns; `row` is the index of the frame, and the other columns are as in `Segments`."""

    row: Integers
    source: Indexes
    destination: Indexes
    sequence: Integers
    acknowledgment: Integers
    flags: npt.NDArray[np.uint8]
    start: Integers
    size: Integers
    cut: Integers


class _Ends:
    """The endpoints of a range, each with its index."""

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []
        self._indexes: dict[Endpoint, int] = {}

    def index(self, one: Endpoint) -> int:
        index = self._indexes.setdefault(one, len(self.endpoints))
        if index == len(self.endpoints):
            self.endpoints.append(one)
        return index

    def indexes(self, addresses: npt.NDArray[np.void], ports: npt.NDArray[np.uint16]) -> Indexes:
        """Return the indexes of many endpoints at once."""
        keys = np.empty(len(addresses), [("address", addresses.dtype), ("port", ">u2")])
        keys["address"], keys["port"] = addresses, ports
        kind = pa.binary(keys.itemsize)
        # Arrow finds the distinct ones by hashing; numpy would sort them all.
        encoded = pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(keys)]).dictionary_encode()
        own = [
            self.index(endpoint(key[:-2], int.from_bytes(key[-2:], "big")))
            for key in encoded.dictionary.to_pylist()
        ]
        indexes: Indexes = np.array(own, np.int32)[encoded.indices.to_numpy()]
        return indexes


def _ip_places(found: Frames, data: Data) -> Integers:
    """Return where the IP packet of each frame begins."""
    at = np.full(len(found), NO_PLACE, np.int64)
    numbers = np.unique(found.interface) if len(found.interfaces) > 1 else np.array([*found.interfaces])
    link_types = np.array([found.interfaces[number].link_type for number in numbers.tolist()], np.int64)
    link_type = link_types[np.searchsorted(numbers, found.interface)]
    for one in sorted({*link_types.tolist()}):
        rows = np.flatnonzero(link_type == one)
        at[rows] = ip_starts(data, one, found.start[rows], found.size[rows])
    return at


def _odd_in(data: Data, datagrams: Datagrams, other: Counter[str]) -> Integers:
    """Return the frames that hold Pings or may hold tunnels. Other datagrams are counted."""
    udp = datagrams.of(PROTOCOL_UDP)
    fits = np.flatnonzero(udp.end - udp.start >= PORTS_LAYOUT.itemsize)
    head = gather(data, udp.start[fits], PORTS_LAYOUT)
    is_odd = np.ones(len(udp.row), bool)  # Also those that end before their ports.
    is_odd[fits] = (head["source"] == PING_PORT) | np.isin(head["destination"], [PING_PORT, *TUNNEL_PORTS])
    other[UDP] += len(udp.row) - int(is_odd.sum())
    neither = datagrams.row[(datagrams.protocol != PROTOCOL_TCP) & (datagrams.protocol != PROTOCOL_UDP)]
    return np.concatenate([udp.row[is_odd], neither])


def _segments_in(data: Data, datagrams: Datagrams, ends: _Ends, other: Counter[str]) -> _Columns:
    """Return the segments of whole IP packets; count damaged ones.

    They are decoded as in mqproto.captures.net.tcp.decode_segment.
    """
    tcp = datagrams.of(PROTOCOL_TCP)
    fits = np.flatnonzero(tcp.end - tcp.start >= TCP_LAYOUT.itemsize)
    head = gather(data, tcp.start[fits], TCP_LAYOUT)
    start = tcp.start[fits] + (head["length"] >> 4).astype(np.int64) * 4
    good = (head["length"] >> 4 >= TCP_LAYOUT.itemsize // 4) & (start <= tcp.end[fits])
    if not good.all():
        fits, head, start = fits[good], head[good], start[good]
    if len(fits) < len(tcp.row):
        other[DAMAGED_TCP] += len(tcp.row) - len(fits)
    return _Columns(
        row=tcp.row[fits],
        source=ends.indexes(tcp.source[fits], head["source"]),
        destination=ends.indexes(tcp.destination[fits], head["destination"]),
        sequence=head["sequence"].astype(np.int64),
        acknowledgment=head["acknowledgment"].astype(np.int64),
        flags=head["flags"].copy(),
        start=start,
        size=tcp.end[fits] - start,
        cut=tcp.cut[fits],
    )


class _OneByOne:
    """Reads odd frames and Pings one by one, in the same way as mqproto.captures.packets."""

    def __init__(
        self,
        reading: Reading,
        data: Data,
        found: Frames,
        ip: IpReader,
        ends: _Ends,
        other: Counter[str],
    ) -> None:
        self._ip = ip
        self.pings: list[SeenPacket] = []
        self.payloads: dict[int, bytes] = {}
        self._reading = reading
        self._data = data
        self._found = found
        self._ends = ends
        self._other = other
        self._segments: list[tuple[int, Segment]] = []

    def take(self, row: int) -> None:
        found = self._found
        start = int(found.start[row])
        content = content_of(
            Frame(
                time_ns=int(found.time_ns[row]),
                data=self._data[start : start + int(found.size[row])],
                missing_bytes=int(found.missing[row]),
                interface=found.interfaces[int(found.interface[row])],
                number=self._reading.first_number + row,
                offset=int(found.offset[row]),
            ),
            self._ip,
        )
        if isinstance(content, Segment):
            self._segments.append((row, content))
            self.payloads[row] = content.payload
        elif isinstance(content, SeenPacket):
            self.pings.append(content)
        else:
            self._other[content] += 1

    def columns(self) -> _Columns:
        some = self._segments
        index = self._ends.index

        def column(values: Iterable[int]) -> Integers:
            return np.fromiter(values, np.int64, len(some))

        return _Columns(
            row=column(row for row, _ in some),
            source=column(index(one.source) for _, one in some).astype(np.int32),
            destination=column(index(one.destination) for _, one in some).astype(np.int32),
            sequence=column(one.sequence_number for _, one in some),
            acknowledgment=column(one.acknowledgment_number for _, one in some),
            flags=column(one.flags for _, one in some).astype(np.uint8),
            start=np.full(len(some), NO_PLACE, np.int64),
            size=column(len(one.payload) for _, one in some),
            cut=column(one.cut_bytes for _, one in some),
        )


def _joined(parts: Sequence[_Columns]) -> _Columns:
    """Return all segments, in the order of their frames."""
    parts = [part for part in parts if len(part.row)] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.row for part in parts]))
    names = (one.name for one in fields(_Columns))
    return _Columns(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in names))
