"""What a series has come to, kept among the tables, so that it may grow.

A rotating capture goes on from file to file. What is known at the end of its last one is where the next begins:
connections that are open, packets that wait for fragments, how much there was. So files that are added to a series
are read without those before them, and the tables are what they would be had all been read at once. What only the end
lets be read, as no earlier bytes can come any more, is in a part of its own, which the next run replaces.

It lies in the folder `_series` (saving.py): of each series one file with a `Growth`, one with the frames that
connections begin with, and some with `mqproto.captures.pipeline.reading.ranges.seams.OpenPair`s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.kept.saving import every_saved
from mqproto.captures.pipeline.reading.ranges.seams import OpenPair
from mqproto.captures.pipeline.reading.reading import Place
from mqproto.captures.pipeline.source.files import CaptureFile
from mqproto.captures.pipeline.tables.parts import HIDDEN
from mqproto.captures.translation import Between, Translation

FORM: Final = 14
"""To be raised when what is saved means something else than before. Of another form nothing is used: then a series
that has grown is read again as a whole."""
FOLDER: Final = f"{HIDDEN}series"
CONNECTIONS: Final = pa.schema([("first_frame", pa.int64())])
SILENT_NS: Final = 24 * 3600 * NANOSECONDS
"""After this time of silence two ends are taken to have parted, so that what is saved of a capture that never
ends does not grow with it. If they speak again, that is another connection."""


@dataclass(slots=True)
class Growth:
    """A series at the end of its last file; without arguments, one that has none.

    files: all of them. frames_before: of each, in those before it.
    places: of the last ranges, as many as may be read again. last_ns: of each, when its last frame was caught.
    range_count: how many there were. frames, rows, framed: in them, without what only the end lets be read.
    totals: of what is over.
    waiting: by their numbers, what waits for fragments before some of `places`, and before the next one; by state.py.
    translations: the connections, of all there have been, that are others: of the same two ends the last.
    crossings: between whom they are, and how many, as mqproto.captures.translation.Crossings has it.
    """

    files: tuple[CaptureFile, ...] = ()
    frames_before: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    last_ns: tuple[int, ...] = ()
    range_count: int = 0
    frames: int = 0
    rows: int = 0
    framed: int = 0
    totals: Totals = field(default_factory=Totals)
    waiting: dict[int, bytes] = field(default_factory=dict)
    translations: tuple[Translation, ...] = ()
    crossings: dict[Between, tuple[Translation, int]] = field(default_factory=dict)


def saved_pairs(paths: Sequence[str], bucket: int, buckets: int) -> Iterator[OpenPair]:
    """The open pairs of a bucket."""
    for path in paths:
        yield from every_saved(path, OpenPair, bucket, buckets)
