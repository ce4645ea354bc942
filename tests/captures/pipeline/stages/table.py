"""Packets in the form in which the pipeline's stages get them: rows that hold the packets' own fields, but not the
packets themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from mqproto.captures.decode import Analyst, Finding, Names, PacketRow, row_of
from mqproto.captures.decode.digest import digest_of
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.captures.pipeline.reading.packets.columns.codec import found
from mqproto.captures.pipeline.reading.rows import PACKETS
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from mqproto.wire import UserMessage
from tests.conformance import ROOT

FOLDER: Final = ROOT / "captures" / "samples"
SAMPLES: Final = sorted(path.stem for path in FOLDER.glob("*.pcapng"))
SERIES: Final = "the capture"
OF_OTHERS: Final = (
    "source",
    "destination",
    "session_number",
    "session_recoverable_number",
    "received_packets",
    "received_count",
    "saved_packets",
    "saved_count",
    "queue_name",
    "ended_packets",
    "ended_count",
    "findings",
)
"""The fields of a packet's row that the packet itself does not state."""


@dataclass(frozen=True)
class Decoded:
    """A capture in two forms: rows for the stages, and what `mqproto decode` makes of it."""

    seen: list[SeenPacket]
    rows: list[PacketRow]
    last: list[Finding]
    packets: pa.Table


def sample(name: str) -> tuple[list[SeenPacket], bool]:
    """Return the packets of a sample, and whether none of its bytes are missing."""
    reader = PacketReader(read_capture(FOLDER / f"{name}.pcapng"))
    seen = list(reader)
    return seen, not reader.totals.missing_bytes


def decode(
    seen: Sequence[SeenPacket], names: Names | None = None, *, lossless: bool = True, series: str = SERIES
) -> Decoded:
    """Return a capture in both forms."""
    analyst = Analyst(names)
    rows = [_row_of(analyst, each) for each in seen]
    return Decoded(
        list(seen), rows, list(analyst.finish(lossless=lossless)), packet_table(seen, series=series)
    )


def _row_of(analyst: Analyst, seen: SeenPacket) -> PacketRow:
    sight = analyst.take(seen)
    return row_of(sight, None if sight.message is None else analyst.names.destination(sight.message.user))


def packet_table(seen: Iterable[SeenPacket], *, series: str = SERIES) -> pa.Table:
    """Return packets as a table."""
    return pa.Table.from_pylist([_row(row_id, each, series) for row_id, each in enumerate(seen)], PACKETS)


def _row(row_id: int, seen: SeenPacket, series: str) -> dict[str, Any]:
    sight = sight_of(seen)
    row = row_of(sight).as_json()
    is_whole = isinstance(seen.packet, UserMessage) and not seen.cut_bytes
    digest = digest_of(seen.data) if is_whole else None
    own = {
        "series": series,
        "row_id": row_id,
        "number": seen.number,
        "file": f"{series}.pcapng",
        "interface": seen.interface.number,
        "digest": digest,
        "own_findings": found(seen),
        "time": None,
    }
    return {name: value for name, value in row.items() if name not in OF_OTHERS} | own


def uncoded(table: pa.Table) -> pa.Table:
    """Return a table in which dictionary-coded texts are plain strings."""
    kinds = ((field.name, pa.string() if field.type == CODED else field.type) for field in table.schema)
    return table.cast(pa.schema(list(kinds)))


def batches(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    """Return a table's rows in batches of at most `size` rows."""
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=size)
    return found


def collected(outputs: Iterable[dict[str, pa.RecordBatch]]) -> dict[str, list[dict[str, Any]]]:
    """Return the output of a stage as lists of rows, keyed by table."""
    tables: dict[str, list[dict[str, Any]]] = {}
    for output in outputs:
        for name, batch in output.items():
            tables.setdefault(name, []).extend(batch.to_pylist())
    return tables
