"""Adds to findings the places of the packets that they are about."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.findings import Finding, Severity, of_damaged
from mqproto.captures.decode.systems import APART
from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.recent import KEPT_COUNT, LONGEST_BYTES, NEAR_COUNT, is_damaged
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.stages.schema import FINDINGS, finding_row
from mqproto.captures.pipeline.stages.tasks.buckets import PacketPart, read
from mqproto.captures.pipeline.stages.tasks.context import FINDING_ROWS, OPEN, Context, Done, Task, opened
from mqproto.captures.pipeline.tables.lists import batch_of
from mqproto.captures.pipeline.tables.schemas import packets

READ: Final = (FINDING_ROWS, opened(FINDING_ROWS))
"""The exchanges that `place` reads."""
OWN: Final = ("series", "row_id", "number", "own_findings")
RANK: Final = 3_000_000
"""The rank of findings about a single packet by itself, which come last among the findings about that packet."""
PLACED: Final = ("file", "frame", "file_offset")
NEAR: Final = (
    *("row_id", "number", "connection"),
    *("file", "frame", "first_frame", "source_address", "source_port"),
)
PLACED_FINDINGS: Final = packets.FINDINGS.schema
"""Findings with the place of the packet that each is about: the packet's file, its last frame, and its first offset."""


def place(context: Context, task: Task, inbox: Inbox, outbox: Outbox) -> Done:
    """Write all findings about the packets of a part, together with the places of these packets."""
    done = Done()
    settled, left = (list(inbox.take(name)) for name in READ)
    if task.number in context.new or task.number in context.ends:
        own = left if task.number in context.ends else settled
        own += map(packet_findings, read(context.parts[task.number], OWN))
    wanted = pa.Table.from_batches([*settled, *left], FINDINGS)
    if not wanted.num_rows:
        return done
    is_of_part = task.number < len(context.parts)
    places = _places(context.parts[task.number], wanted) if is_of_part else {}
    damaged = _damaged(context.parts, task.number, wanted) if is_of_part else set()
    for found, stage, batches in ((done.settled, "packets", settled), (done.open, f"{OPEN}-packets", left)):
        rows = pa.Table.from_batches(batches, FINDINGS)
        if not rows.num_rows:
            continue
        if damaged:
            told = [_believed(row, damaged) for row in rows.to_pylist()]
            rows = pa.Table.from_pylist(told, schema=FINDINGS)
        rows = _placed(rows, places)
        found.parts.append(context.part("findings", stage, task.number, rows))
    return done


def _believed(row: dict[str, Any], damaged: set[tuple[bool, int]]) -> dict[str, Any]:
    """Return the finding, or a note in place of a fault that relies on a packet in a damaged frame."""
    rests_on = {(False, number) for number in (row["number"], *row["others"])}
    if row["number"] is None:
        rests_on.add((True, row["row_id"]))
    if row["severity"] != Severity.FAULT or damaged.isdisjoint(rests_on):
        return row
    found = of_damaged(Finding(Severity.FAULT, row["code"], 0, row["text"]))
    return row | {"severity": str(found.severity), "code": found.code, "text": found.text, "section": ""}


def _damaged(parts: Sequence[PacketPart], own: int, wanted: pa.Table) -> set[tuple[bool, int]]:
    """Return the packets that faults in a part rely on and that are in damaged frames, in that part or in others.

    Each is given by its number, or by its row_id if it has no number. Only the readable part of each file is checked.
    """
    faults = wanted.filter(pc.equal(wanted["severity"], str(Severity.FAULT)))
    if not faults.num_rows:
        return set()
    told = zip(faults["row_id"].to_pylist(), faults["number"].to_pylist(), strict=True)
    here = {(True, row_id) if number is None else (False, number) for row_id, number in told}
    others = {(False, number) for number in chain.from_iterable(faults["others"].to_pylist())}
    by_file: defaultdict[str, list[tuple[int, int, tuple[bool, int], Endpoint]]] = defaultdict(list)
    for place, part in enumerate(parts):
        sought = here.copy() if place == own else set()
        if part.series == parts[own].series:
            sought.update(key for key in others if 0 < key[1] - part.framed_before <= part.framed)
        near = defaultdict[int | None, deque[tuple[Any, ...]]](partial(deque, maxlen=NEAR_COUNT))
        for batch in read(part, NEAR) if sought else ():
            for row_id, number, connection, *at in zip(
                *(batch.column(name).to_pylist() for name in NEAR), strict=True
            ):
                near[connection].append(tuple(at))
                for key in sought.intersection(((True, row_id), (False, number))):
                    for file, last, first, *source in near[connection]:
                        by_file[file].append((last, first, key, Endpoint(*source)))
    return {key for file, some in by_file.items() for key in _damaged_in(file, sorted(some))}


def _damaged_in(
    path: str, packets: list[tuple[int, int, tuple[bool, int], Endpoint]]
) -> Iterator[tuple[bool, int]]:
    """Yield the keys of damaged packets in a file.

    Args:
        packets: for each packet, its last frame, its first frame, its key and its source.
    """
    kept: deque[Frame] = deque(maxlen=KEPT_COUNT)
    waiting = iter(packets)
    with suppress(CaptureError, OSError, StopIteration):
        last, first, key, source = next(waiting)
        for frame in read_capture(path):
            if len(frame.data) <= LONGEST_BYTES:
                kept.append(frame)
            while frame.number == last:
                if is_damaged(kept, first, last, source):
                    yield key
                last, first, key, source = next(waiting)


def _placed(rows: pa.Table, places: dict[tuple[int | None, int], tuple[Any, ...]]) -> pa.Table:
    """Return findings together with the places of the packets that they are about."""
    rows = rows.sort_by([("number", "ascending"), ("row_id", "ascending"), ("rank", "ascending")])
    placed = [
        places.get((row_id, number)) or places.get((None, number)) or (None, None, None)
        for row_id, number in zip(rows["row_id"].to_pylist(), rows["number"].to_pylist(), strict=True)
    ]
    for name, column in zip(PLACED, zip(*placed, strict=True), strict=True):
        rows = rows.append_column(name, pa.array(column, PLACED_FINDINGS.field(name).type))
    return rows


def _places(part: PacketPart, wanted: pa.Table) -> dict[tuple[int | None, int], tuple[Any, ...]]:
    """Return the places of the packets that findings are about, keyed by row_id and number.

    The place of a packet is also keyed by None and number. If the bytes in a row are not a packet, the first key is the
    only one.
    """
    numbers = wanted["number"].unique()
    places: dict[tuple[int | None, int], tuple[Any, ...]] = {}
    for batch in read(part, ("row_id", "number", "framed", *PLACED)):
        near = batch.filter(pc.is_in(batch.column("number"), value_set=numbers))
        for row_id, number, framed, *place in zip(
            *(near.column(name).to_pylist() for name in ("row_id", "number", "framed", *PLACED)), strict=True
        ):
            places[row_id, number] = tuple(place)
            if framed:
                places[None, number] = tuple(place)
    return places


def rows_of_captures(
    damage: Iterable[tuple[str, str, int, str]], noted: Iterable[tuple[str, str, str]]
) -> pa.Table:
    """Return findings about captures rather than packets.

    Args:
        damage: for each file that is not read at all, or not to its end: its series, the file, the offset, and the
            reason.
        noted: for translated connections, and for frames that contradict one another: their series, the code, and the
            text.
    """
    rows = [
        _of_capture(series) | {"code": _code_of(reason), "text": reason, "file": file, "file_offset": offset}
        for series, file, offset, reason in damage
    ]
    rows += (_of_capture(series) | {"code": code, "text": text} for series, code, text in noted)
    return pa.Table.from_pylist(rows, schema=PLACED_FINDINGS)


def _code_of(reason: str) -> str:
    """Return the code of the finding for a file that was not read, or not to its end."""
    return "other-system" if reason.startswith(APART) else "damaged-capture"


def _of_capture(series: str) -> dict[str, Any]:
    return {"series": series, "rank": 0, "severity": str(Severity.NOTE), "section": "", "others": []}


def packet_findings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the faults and oddities found in single packets, as FINDINGS.

    Args:
        batch: packets, with OWN.
    """
    odd = batch.filter(pc.is_valid(batch.column("own_findings")))
    columns = (odd.column(name).to_pylist() for name in OWN)
    rows = (
        finding_row(
            series,
            row_id,
            RANK + rank,
            Finding(Severity(found["severity"]), found["code"], number or 0, found["text"], found["section"]),
        )
        for series, row_id, number, own in zip(*columns, strict=True)
        for rank, found in enumerate(own)
    )
    return batch_of(FINDINGS, rows)
