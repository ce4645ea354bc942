"""The table of captures: each file that was read, its frames, and where it is damaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.packets import Totals
from mqproto.captures.pipeline.reading.reading import RangeRead
from mqproto.captures.pipeline.source.files import CaptureFile
from mqproto.captures.pipeline.tables.schemas import sessions

CAPTURES: Final = sessions.CAPTURES.schema


@dataclass(slots=True)
class FileRead:
    """The result of reading a file: the number of its ranges, its frames, and its damage.

    back_ns: how far times go back in the file.
    """

    ranges: int = 0
    totals: Totals = field(default_factory=Totals)
    damage: CaptureError | None = None
    back_ns: int = 0

    def add(self, read: RangeRead) -> None:
        """Add the result of one range of the file."""
        self.ranges += 1
        before_ns, first_ns = self.totals.last_ns, read.totals.first_ns
        back_ns = 0 if before_ns is None or first_ns is None else before_ns - first_ns
        self.back_ns = max(self.back_ns, read.back_ns, back_ns)
        self.totals.add(read.totals)
        self.damage = self.damage or read.damage


def captures_table(series: str, files: Iterable[CaptureFile], found: Mapping[str, FileRead]) -> pa.Table:
    """Return the rows of some files of a series.

    Args:
        found: the results, keyed by file path.
    """
    rows = []
    for file in files:
        read = found[file.path]
        totals, damage = read.totals, read.damage
        rows.append(
            {
                "series": series,
                "file": file.path,
                "fingerprint": file.fingerprint,
                "size_bytes": file.size_bytes,
                "form": file.form,
                "packing": file.packing,
                "ranges": read.ranges,
                "frames": totals.frames,
                "segment_frames": totals.segment_frames,
                "ping_frames": totals.ping_frames,
                "other_frames": sum(totals.other_frames.values()),
                "other_reasons": sorted(totals.other_frames.items()),
                "cut_frames": totals.cut_frames,
                "untimed_frames": totals.untimed_frames,
                "back_ns": read.back_ns,
                "first_ns": totals.first_ns,
                "last_ns": totals.last_ns,
                "damage": damage.reason if damage else None,
                "damage_offset": damage.offset if damage else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=CAPTURES)
