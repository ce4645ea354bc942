"""The losses of each capture point, from the tables of streams, captures and clocks."""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby
from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.files.frame import Interface
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.points import Clock, Point, PointDirection, Points, point_name

_ENDS: Final = ("source_address", "source_port")
_STREAMS: Final = f"""
select series, connection, interface, {", ".join(_ENDS)}, from_start, ending, data_bytes, missing_bytes, gap_count,
    snapped_bytes, headless_bytes, cut_count, cut_bytes
from streams where packet_count > 0 or source_port = {MSMQ_PORT} or destination_port = {MSMQ_PORT}
order by max(place) over (partition by series, connection), place
"""
"""The statement for all streams; those of one connection are adjacent."""
_FRAMES: Final = """
select series, frames, cut_frames, untimed_frames, back_ns from captures order by place
"""
Row = dict[str, Any]


def quality(connection: DuckDBPyConnection) -> Points:
    """Return all capture points with MSMQ streams, and one point for each series without such streams.

    A point's frames are those of all files of its series: the table of captures does not count them by interface.
    """
    points = Points()
    found: dict[str, set[str]] = {}
    streams = rows(connection, _STREAMS)
    for (series, _), sides in groupby(streams, lambda row: (row["series"], row["connection"])):
        of_one = [*sides]
        found.setdefault(series, set()).update(_name(series, row["interface"]) for row in of_one)
        _take(points, of_one)
    _add_frames(points, connection, found)
    _add_clocks(points, connection)
    _shorten(points, found)
    return points


def _take(points: Points, sides: list[Row]) -> None:
    first = [sides[0][name] for name in _ENDS]
    points.connection(
        [
            PointDirection(
                _name(row["series"], row["interface"]),
                [row[name] for name in _ENDS] == first,
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


def _add_frames(points: Points, connection: DuckDBPyConnection, found: dict[str, set[str]]) -> None:
    for row in rows(connection, _FRAMES):
        names = found.setdefault(row["series"], set())
        if not names:
            names.add(_name(row["series"], 0))
        for name in names:
            point = points.of(name)
            point.by_file = True
            point.frames += row["frames"]
            point.cut_frames += row["cut_frames"]
            point.untimed_frames += row["untimed_frames"] or 0
            point.back_ns = max(point.back_ns, row["back_ns"] or 0)


def _add_clocks(points: Points, connection: DuckDBPyConnection) -> None:
    """Add the offsets of clocks; two points are compared only if both saw MSMQ."""
    for point in points.found.values():
        point.compared = len(points.found) > 1 and point.connections > 0
    for row in rows(connection, "select * from clocks order by place"):
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
    """Call a series by its file's name if that is unique, and a series' only point by the series' name."""
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
    """Return a sort key that puts the points with the most losses first."""
    return -point.missing_bytes, -point.cut_frames, -point.one_sided, point.name
