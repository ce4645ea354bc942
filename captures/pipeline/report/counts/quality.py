"""What each capture point lacks, from the tables of streams, captures and clocks."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.files.frame import Interface
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.captures.pipeline.judging.messages.clocks import CLOCKS
from mqproto.captures.pipeline.report.counts.scanning import batches, rows
from mqproto.captures.pipeline.tables.tables import Tables
from mqproto.captures.points import Clock, Point, Points, Side, point_name

WAITING: Final = 4_096
"""How many connections at most are waited with for more of their rows, which are close to each other."""
_ENDS: Final = ("source_address", "source_port", "destination_address", "destination_port")
_STREAM: Final = (
    "series",
    "connection",
    "interface",
    *_ENDS,
    "from_start",
    "ending",
    "data_bytes",
    "missing_bytes",
    "gap_count",
    "snapped_bytes",
    "headless_bytes",
    "cut_count",
    "cut_bytes",
    "packet_count",
)
_CLOCK: Final = tuple(CLOCKS.names)
_FRAMES: Final = ("series", "frames", "cut_frames", "untimed_frames", "back_ns")
_SIDE: Final = tuple(name for name in _STREAM if name != "packet_count")
Row = dict[str, Any]


def quality(tables: Tables) -> Points:
    """All capture points: those with streams of MSMQ, and the only one of a series without.

    Frames are those of all files in which it is: the table of captures does not tell them apart by interface.
    """
    points = Points()
    found: dict[str, set[str]] = {}
    waiting: OrderedDict[tuple[str, int], list[Row]] = OrderedDict()
    for batch in batches(tables, "streams", _STREAM):
        for row in batch.filter(_of_msmq(batch)).select(_SIDE).to_pylist():
            found.setdefault(row["series"], set()).add(_name(row["series"], row["interface"]))
            key = row["series"], row["connection"]
            waiting.setdefault(key, []).append(row)
            waiting.move_to_end(key)
            if len(waiting) > WAITING:
                _take(points, waiting.popitem(last=False)[1])
    for sides in waiting.values():
        _take(points, sides)
    _add_frames(points, tables, found)
    _add_clocks(points, tables)
    _shorten(points, found)
    return points


def _of_msmq(batch: pa.RecordBatch) -> Any:
    ports = [pc.equal(batch.column(f"{end}_port"), MSMQ_PORT) for end in ("source", "destination")]
    return pc.or_(pc.greater(batch.column("packet_count"), 0), pc.or_(*ports))


def _take(points: Points, sides: list[Row]) -> None:
    first = [sides[0][name] for name in _ENDS[:2]]
    points.connection(
        [
            Side(
                _name(row["series"], row["interface"]),
                [row[name] for name in _ENDS[:2]] == first,
                row["data_bytes"],
                row["missing_bytes"],
                row["gap_count"],
                row["headless_bytes"] + row["cut_bytes"],
                row["from_start"],
                row["ending"] == Ending.OPEN.value,
                row["snapped_bytes"],
                row["cut_count"],
            )
            for row in sides
        ]
    )


def _add_frames(points: Points, tables: Tables, found: dict[str, set[str]]) -> None:
    for row in rows(tables, "captures", _FRAMES):
        names = found.setdefault(row["series"], set())
        if not names:
            names.add(_name(row["series"], 0))
        for name in names:
            point = points.of(name)
            point.by_file = True
            point.frames += row["frames"]
            point.cut_frames += row["cut_frames"]
            point.untimed_frames += row["untimed_frames"] or 0
            # Tables of earlier versions have no such column.
            point.back_ns = max(point.back_ns, row.get("back_ns") or 0)


def _add_clocks(points: Points, tables: Tables) -> None:
    """Where two points saw MSMQ, their clocks were compared."""
    for point in points.found.values():
        point.compared = len(points.found) > 1 and point.connections > 0
    for row in rows(tables, "clocks", _CLOCK):
        name = _name(row["series"], row["interface"])
        if name in points.found:
            reference = _name(row["reference_series"] or "", row["reference_interface"] or 0)
            points.found[name].clock = Clock(
                reference,
                row["offset_ns"],
                row["uncertainty_ns"],
                row["packets"],
                row["drift_ppb"],
            )


def _shorten(points: Points, found: dict[str, set[str]]) -> None:
    """A series is called as its file, unless another is, too; and the only point of a series as that is."""
    files = Counter(os.path.basename(series) for series in found)
    short = {}
    for series, names in found.items():
        file = os.path.basename(series)
        called = file if files[file] == 1 else series
        for name in names:
            short[name] = called if len(names) == 1 else called + name.removeprefix(series)
    for point in points.found.values():
        point.name = short.get(point.name, point.name)
        if point.clock is not None:
            point.clock.reference = short.get(point.clock.reference, point.clock.reference)
    points.found = {point.name: point for point in sorted(points.found.values(), key=_lacking)}


def _name(series: str, interface: int) -> str:
    return f"{series}, {point_name(Interface(interface))}"


def _lacking(point: Point) -> tuple[int, int, int, str]:
    """Those that lack most come first."""
    return -point.missing_bytes, -point.cut_frames, -point.one_sided, point.name
