"""Finds, in one pass over the table of packets, the places of all packets that messages and findings refer to."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from duckdb import DuckDBPyConnection

from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.facts.facts import Place
from mqproto.captures.pipeline.report.facts.security import Secured
from mqproto.captures.pipeline.tables.lists import subject_of

_BY_REFERENCE: Final = """
create or replace temp view seen as
select packets.* exclude (time_ns), time_ns as captured_ns, by_reference(time_ns, clocks) as time_ns
from packets left join clocks on clocks.series = packets.series and clocks.interface = packets.interface
"""
_PACKETS: Final = f"""
with numbered as (
    select unnest($numbers::struct(series varchar, number bigint)[], recursive := true)
), wanted as (
    select unnest($rows::struct(series varchar, row_id bigint)[], recursive := true)
    union select series, row_id from packets semi join numbered using (series, number) where framed
    union select series, row_id from seen
    where kind in {tuple(map(str, (Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK)))}
        and time_ns in (select unnest($times_ns::bigint[]))
)
select series, row_id, number, framed, kind, time_ns, captured_ns, file, frame_file, frame, message, ack_message,
    ack_sequence, correlation, class_name, journal_negative, {", ".join(Secured._fields)}
from seen semi join wanted using (series, row_id) order by place
"""


class Seen(NamedTuple):
    """A packet.

    time_ns: its time by the reference clock.
    captured_ns: its time by the clock of its capture point.
    message: the identifier of the message that it carries, if any.
    journal_negative: whether that message goes to a dead-letter queue if it fails.  [MS-MQMQ] 2.2.19.2
    secured: the packet's security fields, if it has any.
    """

    place: Place
    time_ns: int
    captured_ns: int
    message: str | None
    journal_negative: bool
    secured: Secured | None = None


class Places:
    """Packets that callers refer to: they request all of them, search once, then look each one up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Seen | None] = {}
        self._numbers: dict[tuple[str, int], Seen | None] = {}
        self._acknowledgments: dict[tuple[str, str | None, int], Seen | None] = {}

    def want_row(self, series: str, row_id: int) -> None:
        """Request the packet in a row of the table; bytes that form no packet have rows, too."""
        self._rows[series, row_id] = None

    def want_packet(self, series: str, number: int) -> None:
        """Request a packet of a series by its number."""
        self._numbers[series, number] = None

    def want_acknowledgment(self, about: str, class_name: str | None, time_ns: int) -> None:
        """Request an OrderAck of a sequence, or an acknowledgment of a message.

        It is identified by its time on the reference clock.
        """
        self._acknowledgments[about, class_name, time_ns] = None

    def row(self, series: str, row_id: int) -> Seen | None:
        """Return the packet for a row."""
        return self._rows.get((series, row_id))

    def packet(self, series: str, number: int) -> Seen | None:
        """Return the packet for a number."""
        return self._numbers.get((series, number))

    def acknowledgment(self, about: str, class_name: str | None, time_ns: int) -> Seen | None:
        """Return a requested acknowledgment of a sequence or message; if several have the same time, the first."""
        return self._acknowledgments.get((about, class_name, time_ns))

    def find(self, connection: DuckDBPyConnection) -> None:
        """Find all requested packets."""
        if not (self._rows or self._numbers or self._acknowledgments):
            return
        wanted = {
            "rows": [{"series": series, "row_id": row_id} for series, row_id in self._rows],
            "numbers": [{"series": series, "number": number} for series, number in self._numbers],
            "times_ns": [time_ns for _, _, time_ns in self._acknowledgments],
        }
        connection.execute(_BY_REFERENCE)
        for row in rows(connection, _PACKETS, **wanted):
            self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        series, time_ns = row["series"], row["time_ns"]
        place = Place(row["frame_file"] or row["file"], row["frame"])
        said = Secured(*(row[name] for name in Secured._fields))
        secured = said if said.is_protected or said.sender_id is not None else None
        seen = Seen(
            place, time_ns, row["captured_ns"], row["message"], bool(row["journal_negative"]), secured
        )
        if (series, row["row_id"]) in self._rows:
            self._rows[series, row["row_id"]] = seen
        if row["framed"] and (series, row["number"]) in self._numbers:
            self._numbers[series, row["number"]] = seen
        acknowledgment = _about(row), row["class_name"], time_ns
        if self._acknowledgments.get(acknowledgment, seen) is None:
            self._acknowledgments[acknowledgment] = seen


def _about(row: dict[str, Any]) -> str:
    """Return what an acknowledgment is about: a sequence, or a message's identifier.

    Return an empty text for other packets.
    """
    if row["kind"] == Kind.ADMIN_ACK and row["correlation"] is not None:
        return identifier_text(*subject_of(row["correlation"]))
    return row["ack_sequence" if row["kind"] == Kind.ORDER_ACK else "ack_message"] or ""
