"""Tables for tests of reports: some come from samples, and others are made row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.reading.rows import PACKETS, STREAMS
from mqproto.captures.pipeline.run.job import analyse
from mqproto.captures.pipeline.run.work import CAPTURES
from mqproto.captures.pipeline.stages.messages.clocks import CLOCKS
from mqproto.captures.pipeline.stages.messages.duplicates import DUPLICATES
from mqproto.captures.pipeline.stages.schema import GAPS, HISTORIES, HOPS, RELATIONS, SEQUENCE_HOPS, SEQUENCES
from mqproto.captures.pipeline.stages.sessions.sessions import SESSIONS
from mqproto.captures.pipeline.stages.tasks.findings import PLACED_FINDINGS
from mqproto.captures.pipeline.tables.tables import Tables
from tests.conformance import ROOT

SAMPLES: Final = ROOT / "captures" / "samples"
SCHEMAS: Final = {
    "captures": CAPTURES,
    "packets": PACKETS,
    "streams": STREAMS,
    "relations": RELATIONS,
    "sessions": SESSIONS,
    "findings": PLACED_FINDINGS,
    "clocks": CLOCKS,
    "histories": HISTORIES,
    "hops": HOPS,
    "duplicates": DUPLICATES,
    "sequences": SEQUENCES,
    "sequence_hops": SEQUENCE_HOPS,
    "gaps": GAPS,
}
BY_ONE_CLOCK: Final = {"histories": {"latency_uncertainty_ns": 0}, "hops": {"waited_uncertainty_ns": 0}}
BEGIN_NS: Final = 1_700_000_000_000_000_000
Rows = Sequence[dict[str, Any]]


def sample(name: str, folder: Path) -> Tables:
    """Return the tables that the pipeline makes from a sample."""
    tables = Tables(folder / name)
    analyse([str(SAMPLES / f"{name}.pcapng")], tables, LocalEngine())
    return tables


def made_up(folder: Path, rows: dict[str, Rows], part_rows: int = 1_000_000) -> Tables:
    """Make tables of these rows, in parts of `part_rows` rows.

    Values that a row lacks are null, except uncertainties, which are 0 as with a single clock.
    """
    tables = Tables(folder)
    with tables.run() as run:
        parts = [
            run.store.write_part(
                f"{name}/{low:06d}.parquet",
                pa.Table.from_pylist(
                    [BY_ONE_CLOCK.get(name, {}) | row for row in some[low : low + part_rows]],
                    schema=SCHEMAS[name],
                ),
            )
            for name, some in rows.items()
            for low in range(0, max(len(some), 1), part_rows)
        ]
        run.commit(added=parts, schemas={name: SCHEMAS[name] for name in rows})
    return tables


def capture(**columns: Any) -> dict[str, Any]:
    """Return a row of the table `captures`."""
    counts = dict.fromkeys(
        (
            "frames",
            "segment_frames",
            "ping_frames",
            "other_frames",
            "cut_frames",
            "untimed_frames",
            "size_bytes",
        ),
        0,
    )
    times = {"first_ns": BEGIN_NS, "last_ns": BEGIN_NS + 10**9}
    return {"series": "day.pcapng", "file": "day.pcapng", **counts, **times, **columns}


def stream(connection: int, *, client: bool = True, **columns: Any) -> dict[str, Any]:
    """Return a row of the table `streams`.

    It is one direction of a connection to MSMQ's port, and nothing is missing.
    """
    ends = [("10.0.0.1", 49152), ("10.0.0.2", 1801)]
    (source, source_port), (destination, destination_port) = ends if client else ends[::-1]
    lacks = ("missing_bytes", "gap_count", "snapped_bytes", "headless_bytes", "cut_count", "cut_bytes")
    counts = dict.fromkeys((*lacks, "packet_count"), 0)
    return {
        "series": "day.pcapng",
        "connection": connection,
        "interface": 0,
        "source_address": source,
        "source_port": source_port,
        "destination_address": destination,
        "destination_port": destination_port,
        "from_start": True,
        "ending": "finished",
        "data_bytes": 100,
        **counts,
        **columns,
    }


def history(number: int, **columns: Any) -> dict[str, Any]:
    """Return a row of histories: a message that crossed two hops and was confirmed."""
    first_ns = BEGIN_NS + number * 1_000
    return {
        "message": f"A-GUID\\{number}",
        "queue": "PRIVATE=C-GUID\\00000001",
        "delivery": "transactional",
        "sequence": "1:1",
        "sequence_number": number,
        "label": f"order {number}",
        "body_bytes": 7,
        "first_ns": first_ns,
        "last_ns": first_ns + 5_000_000,
        "route": ["a", "b", "c"],
        "hops": 2,
        "resends": 0,
        "arrived_ns": first_ns + 5_000_000,
        "latency_ns": 5_000_000,
        "order_acked_ns": first_ns + 9_000_000,
        "order_ack_at_source": True,
        "administration": [],
        "administration_ns": [],
        "outcome": "confirmed",
        "whereabouts": "c",
        "complete": True,
        "series": "day.pcapng",
        "file": "day.pcapng",
        "frame": 10 + number,
        **columns,
    }


def hop(message: str, position: int, ends: str, first_ns: int, **columns: Any) -> dict[str, Any]:
    """Return a row of the table `hops`, between queue managers with names of one letter."""
    return {
        "message": message,
        "position": position,
        "from_key": f"{ends[0]}-key",
        "to_key": f"{ends[1]}-key",
        "from_label": ends[0],
        "to_label": ends[1],
        "first_ns": first_ns,
        "last_ns": first_ns,
        "numbered": True,
        "copies": 1,
        "places": 1,
        "series": "day.pcapng",
        "number": position,
        "file": "day.pcapng",
        "frame": 10 + position,
        **columns,
    }


def hops_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the two hops of a row that `history` made."""
    message, first_ns = row["message"], row["first_ns"]
    return [
        hop(message, 1, "ab", first_ns, acknowledged_ns=first_ns + 1_000_000),
        hop(message, 2, "bc", first_ns + 5_000_000, waited_ns=5_000_000),
    ]
