"""Findings, with the places of the packets that they are about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.findings import Severity
from mqproto.captures.pipeline.engines.engine import Count, Inbox, Outbox
from mqproto.captures.pipeline.judging import findings
from mqproto.captures.pipeline.judging.schema import FINDINGS
from mqproto.captures.pipeline.judging.tasks.buckets import PacketPart, read
from mqproto.captures.pipeline.judging.tasks.workbench import OPEN, Bench, Done, Task, opened
from mqproto.captures.pipeline.tables.schemas import packets

OF_SESSIONS: Final = "findings of sessions"
OF_SEQUENCES: Final = "findings of sequences"
OF_JOURNEYS: Final = "findings of journeys"
FINDERS: Final = (OF_SESSIONS, OF_SEQUENCES, OF_JOURNEYS)
OPEN_FINDERS: Final = tuple(map(opened, FINDERS))
"""Findings on their way to the packets that they are about, by the stage that found them."""
PLACED: Final = ("file", "frame", "file_offset")
PLACED_FINDINGS: Final = packets.FINDINGS.schema
"""Findings, and the place of the packet that each is about: its file, the frame that ended it, and where it began."""


def place_findings(bench: Bench, task: Task, inbox: Inbox, outbox: Outbox, count: Count) -> Done:
    """All that was found about the packets of a part, with their places."""
    done = Done()
    settled, left = _findings(inbox, FINDERS), _findings(inbox, OPEN_FINDERS)
    if task.number in bench.new or task.number in bench.ends:
        own = left if task.number in bench.ends else settled
        own += map(findings.packet_findings, read(bench.parts[task.number], findings.COLUMNS))
    wanted = pa.Table.from_batches([*settled, *left], FINDINGS)
    if not wanted.num_rows:
        return done
    places = _places(bench.parts[task.number], wanted) if task.number < len(bench.parts) else {}
    for found, stage, batches in ((done.settled, "packets", settled), (done.open, f"{OPEN}-packets", left)):
        rows = pa.Table.from_batches(batches, FINDINGS)
        if not rows.num_rows:
            continue
        rows = _placed(rows, places)
        found.codes.update(zip(rows["severity"].to_pylist(), rows["code"].to_pylist(), strict=True))
        found.parts.append(bench.part("findings", stage, task.number, rows))
        count(rows.num_rows, 0)
    return done


def _findings(inbox: Inbox, names: Iterable[str]) -> list[pa.RecordBatch]:
    return [batch for name in names for batch in inbox.take(name)]


def _placed(rows: pa.Table, places: dict[tuple[int, bool], tuple[Any, ...]]) -> pa.Table:
    """Findings with the places of the packets that they are about."""
    rows = rows.sort_by([("number", "ascending"), ("row_id", "ascending"), ("rank", "ascending")])
    placed = [
        places.get((row_id, True)) or places.get((number, False)) or (None, None, None)
        for row_id, number in zip(rows["row_id"].to_pylist(), rows["number"].to_pylist(), strict=True)
    ]
    for name, column in zip(PLACED, zip(*placed, strict=True), strict=True):
        rows = rows.append_column(name, pa.array(column, PLACED_FINDINGS.field(name).type))
    return rows


def _places(part: PacketPart, wanted: pa.Table) -> dict[tuple[int, bool], tuple[Any, ...]]:
    """Places of the packets that findings are about: by row_id where that is such a packet, and by number."""
    numbers = pa.array(wanted["number"].unique().to_pylist(), pa.int64())
    told = dict(zip(wanted["row_id"].to_pylist(), wanted["number"].to_pylist(), strict=True))
    places: dict[tuple[int, bool], tuple[Any, ...]] = {}
    for batch in read(part, ("row_id", "number", "framed", *PLACED)):
        near = batch.filter(pc.is_in(batch.column("number"), value_set=numbers))
        for row_id, number, framed, *place in zip(
            *(near.column(name).to_pylist() for name in ("row_id", "number", "framed", *PLACED)), strict=True
        ):
            if told.get(row_id) == number:
                places[row_id, True] = tuple(place)
            if framed:
                places[number, False] = tuple(place)
    return places


def rows_of_captures(
    damage: Iterable[tuple[str, str, int, str]], translated: Iterable[tuple[str, str]]
) -> pa.Table:
    """Findings about captures, and not about packets.

    Args:
        damage: of each file that could not be read, or not to its end: its series, the file, where in it, and why.
        translated: of connections that are others, their series, and what is to be said.
    """
    rows = [
        _of_capture(series) | {"code": "damaged-capture", "text": reason, "file": file, "file_offset": offset}
        for series, file, offset, reason in damage
    ]
    rows += (
        _of_capture(series) | {"code": "address-translation", "text": text} for series, text in translated
    )
    return pa.Table.from_pylist(rows, schema=PLACED_FINDINGS)


def _of_capture(series: str) -> dict[str, Any]:
    return {"series": series, "rank": 0, "severity": str(Severity.NOTE), "section": "", "others": []}
