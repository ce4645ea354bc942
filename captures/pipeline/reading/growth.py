"""The state of a series, kept among the tables, so that the series may grow.

A rotating capture continues from file to file. The state at the end of its last file is where the next file begins:
open connections, packets that wait for fragments, and counts. So files that are added to a series are read without
those before them, and the tables are the same as if all had been read at once. Packets that only the end reveals,
because no earlier bytes can come, are in a separate part, which the next run replaces.

The folder `_series` has these files for each series: one with a `Growth`, one with the frames in which
connections begin, and some with `mqproto.captures.pipeline.reading.packets.flows.OpenPair`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.net.taps import Half
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.reading.packets.flows import OpenPair
from mqproto.captures.pipeline.source.files import CaptureFile
from mqproto.captures.pipeline.tables.kept import every_saved
from mqproto.captures.pipeline.tables.parts import HIDDEN
from mqproto.captures.translation import Between, Translation

FORM: Final = 18
"""The form of saved data, to be raised when the meaning of the data changes.

Data of another form is not used: a series that has grown is then read again as a whole.
"""
FOLDER: Final = f"{HIDDEN}series"
CONNECTIONS: Final = pa.schema([("first_frame", pa.int64())])
KEPT_COUNT: Final = 1_024
"""The number of last frames whose content is kept, to recognize repetitions in the next file."""
SILENT_NS: Final = 24 * 3600 * NANOSECONDS
"""The silence, in nanoseconds, after which the connections between two ends count as over.

This limit keeps the state of an endless capture from growing. Later segments between the same ends are another
connection.
"""


@dataclass(slots=True)
class Growth:
    """A series at the end of its last file; without arguments, an empty series.

    files: all files of the series.
    frames_before: for each file, the number of frames in the files before it.
    last_ns: the time of the last frame; 0 if there is none.
    range_count: the number of all ranges.
    frames, rows, framed: the sums over all ranges, without rows that only the end reveals.
    totals: the totals of streams that are over.
    waiting: packets that wait for fragments, as encoded by `kept`; None if there are none.
    halves: maps the number of an interface of a TAP to the interface that it is read as, as in
        mqproto.captures.net.taps.
    translations: connections that repeat others behind address translation; only the last one for each pair of ends.
    crossings: the hosts between which these translations are, with counts, as in
        mqproto.captures.translation.Crossings.
    """

    files: tuple[CaptureFile, ...] = ()
    frames_before: tuple[int, ...] = ()
    last_ns: int = 0
    range_count: int = 0
    frames: int = 0
    rows: int = 0
    framed: int = 0
    totals: Totals = field(default_factory=Totals)
    waiting: bytes | None = None
    halves: dict[int, Half] = field(default_factory=dict)
    translations: tuple[Translation, ...] = ()
    crossings: dict[Between, tuple[Translation, int]] = field(default_factory=dict)


def saved_pairs(paths: Sequence[str], bucket: int, buckets: int) -> Iterator[OpenPair]:
    """Yield the open pairs of a bucket."""
    for path in paths:
        yield from every_saved(path, OpenPair, bucket, buckets)
