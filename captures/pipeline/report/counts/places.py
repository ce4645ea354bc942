"""Where packets are: those that messages and findings lead to, all found in one pass over the table of packets,
of which groups of rows are passed over that have none of them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.judging.messages.bounds import Ahead
from mqproto.captures.pipeline.report.counts.scanning import grouped, integers, near, rows
from mqproto.captures.pipeline.report.facts.facts import Place
from mqproto.captures.pipeline.report.facts.security import Secured
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.lists import subject_of
from mqproto.captures.pipeline.tables.tables import Tables

ACKNOWLEDGMENTS: Final = pa.array(map(str, (Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK)), pa.string())
_COLUMNS: Final = (
    "series",
    "row_id",
    "number",
    "framed",
    "kind",
    "time_ns",
    "interface",
    "file",
    "frame_file",
    "frame",
    "message",
    "ack_message",
    "ack_sequence",
    "correlation",
    "class_name",
    "journal_negative",
    *Secured._fields,
)

_CLOCK: Final = ("series", "interface", "offset_ns", "at_ns", "drift_ppb")
AROUND_NS: Final = 4


class Seen(NamedTuple):
    """A packet.

    time_ns: by the reference clock. captured_ns: by that of its capture point.
    message: the identifier of what it carries, if that is a message.
    journal_negative: whether that is to be kept as a dead letter if it fails.  [MS-MQMQ] 2.2.19.2
    secured: what it says of its security, if it says something.
    """

    place: Place
    time_ns: int
    captured_ns: int
    message: str | None
    journal_negative: bool
    secured: Secured | None = None


class Places:
    """Packets that were asked for, each by what leads to it; first all are asked for, then found, then looked up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Seen | None] = {}
        self._numbers: dict[tuple[str, int], Seen | None] = {}
        self._acknowledgments: dict[tuple[str, str | None, int], Seen | None] = {}

    def want_row(self, series: str, row_id: int) -> None:
        """A row of the table, which bytes that are no packet have as well."""
        self._rows[series, row_id] = None

    def want_packet(self, series: str, number: int) -> None:
        """A packet of a series."""
        self._numbers[series, number] = None

    def want_acknowledgment(self, about: str, class_name: str | None, time_ns: int) -> None:
        """An OrderAck of a sequence, or an acknowledgment of a message; by the reference clock."""
        self._acknowledgments[about, class_name, time_ns] = None

    def row(self, series: str, row_id: int) -> Seen | None:
        """What was wanted by its row."""
        return self._rows.get((series, row_id))

    def packet(self, series: str, number: int) -> Seen | None:
        """What was wanted by its number."""
        return self._numbers.get((series, number))

    def acknowledgment(self, about: str, class_name: str | None, time_ns: int) -> Seen | None:
        """What was wanted by what it is about; of several at one time, the first."""
        return self._acknowledgments.get((about, class_name, time_ns))

    def find(self, tables: Tables) -> None:
        """Look for all that is wanted."""
        if not (self._rows or self._numbers or self._acknowledgments):
            return
        row_ids, numbers, times_ns = (
            np.unique(np.fromiter((key[-1] for key in wanted), dtype=np.int64, count=len(wanted)))
            for wanted in (self._rows, self._numbers, self._acknowledgments)
        )
        ahead = {
            (row["series"], row["interface"]): Ahead(
                row["offset_ns"], None, 0, row["at_ns"], row["drift_ppb"] or 0
            )
            for row in rows(tables, "clocks", _CLOCK)
        }
        captured_ns = np.unique(
            np.concatenate([times_ns, *(_captured_ns(each, times_ns) for each in ahead.values())])
        )
        wanted = {"row_id": row_ids, "number": numbers, "time_ns": captured_ns}
        for batch in near(tables, "packets", _COLUMNS, wanted):
            framed = batch.column("framed").to_numpy(zero_copy_only=False)
            hits = np.isin(integers(batch.column("row_id"))[0], row_ids)
            hits |= framed & np.isin(integers(batch.column("number"))[0], numbers)
            if len(times_ns):
                kinds = pc.is_in(batch.column("kind"), value_set=ACKNOWLEDGMENTS)
                hits |= kinds.to_numpy(zero_copy_only=False) & np.isin(_times_ns(batch, ahead), times_ns)
            for row in batch.filter(pa.array(hits)).to_pylist():
                self._keep(row, ahead)

    def _keep(self, row: dict[str, Any], ahead: dict[tuple[str, int], Ahead]) -> None:
        series = row["series"]
        captured_ns = row["time_ns"]
        clock = ahead.get((series, row["interface"]))
        time_ns = captured_ns if clock is None else captured_ns - clock.of(captured_ns)
        place = Place(row["frame_file"] or row["file"], row["frame"])
        said = Secured(*(row[name] for name in Secured._fields))
        secured = said if said.is_protected or said.sender_id is not None else None
        seen = Seen(place, time_ns, captured_ns, row["message"], bool(row["journal_negative"]), secured)
        if (series, row["row_id"]) in self._rows:
            self._rows[series, row["row_id"]] = seen
        if row["framed"] and (series, row["number"]) in self._numbers:
            self._numbers[series, row["number"]] = seen
        acknowledgment = _about(row), row["class_name"], time_ns
        if self._acknowledgments.get(acknowledgment, seen) is None:
            self._acknowledgments[acknowledgment] = seen


def _about(row: dict[str, Any]) -> str:
    """What an acknowledgment is about: a sequence, or a message by its identifier; empty for other packets."""
    if row["kind"] == Kind.ADMIN_ACK and row["correlation"] is not None:
        return identifier_text(*subject_of(row["correlation"]))
    return row["ack_sequence" if row["kind"] == Kind.ORDER_ACK else "ack_message"] or ""


def _captured_ns(clock: Ahead, times_ns: Integers) -> Integers:
    """What a clock shows at times of the reference, and around them, as it goes otherwise."""
    if not clock.drift_ppb:
        return times_ns + clock.offset_ns
    # It is ahead by as much as some nanoseconds later or earlier.
    nearly = [time_ns + clock.of(time_ns + clock.of(time_ns)) for time_ns in times_ns.tolist()]
    return np.add.outer(np.array(nearly, dtype=np.int64), np.arange(-AROUND_NS, AROUND_NS + 1)).ravel()


def _times_ns(batch: pa.RecordBatch, ahead: dict[tuple[str, int], Ahead]) -> Any:
    """Times by the reference clock."""
    times_ns = integers(batch.column("time_ns"))[0]
    if ahead:
        times_ns = times_ns.copy()
        for point, places in grouped(batch, ("series", "interface")):
            if (clock := ahead.get(point)) is not None:
                times_ns[places] -= [clock.of(time_ns) for time_ns in times_ns[places].tolist()]
    return times_ns
