"""Packets over time."""

from __future__ import annotations

from collections import Counter
from typing import Final

from duckdb import DuckDBPyConnection

from mqproto.captures.decode.sight import MESSAGES, Kind
from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.facts.facts import Captured, Traffic
from mqproto.captures.pipeline.report.facts.overtime import steps_of

SORTS: Final = {
    "messages": MESSAGES | {Kind.REPORT},
    "acknowledgments": {Kind.SESSION_ACK, Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK},
    "sessions and pings": {Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.PING},
}
MALFORMED: Final = "malformed"
_PACKETS: Final = """
select step_of(time_ns, $steps) as step, coalesce(nullif(kind, ''), $malformed) as kind, count(*) as packets,
    sum(size_bytes) as size_bytes
from packets group by all
"""


def traffic(connection: DuckDBPyConnection, captured: Captured) -> Traffic | None:
    """Return the packets over time; None if there are none."""
    if captured.first_ns is None or captured.last_ns is None:
        return None
    steps = steps_of(captured)
    sort_of = {str(kind): name for name, kinds in SORTS.items() for kind in kinds}
    counts = {name: [0] * steps.length for name in (*SORTS, MALFORMED)}
    sizes = [0] * steps.length
    kinds: Counter[str] = Counter()
    for row in rows(connection, _PACKETS, steps=steps._asdict(), malformed=str(Kind.MALFORMED)):
        kinds[row["kind"]] += row["packets"]
        counts[sort_of.get(row["kind"], MALFORMED)][row["step"]] += row["packets"]
        sizes[row["step"]] += row["size_bytes"] or 0
    if not kinds:
        return None
    return Traffic(
        steps.first_ns,
        steps.step_ns,
        {name: each for name, each in counts.items() if any(each)},
        sizes,
        dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
    )
