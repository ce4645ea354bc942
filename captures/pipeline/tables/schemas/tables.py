"""All tables, by name. Each of them exists, even if it has no rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.tables.schemas import messages, packets, sessions
from mqproto.captures.pipeline.tables.schemas.columns import Table, columns

RUNS: Final = Table(
    "A run, and the versions of all tables that it left: those belong together.",
    columns("""
run integer  counted from 1
name text  unique, and in the names of all files that it wrote
time time  when it was over
program text  what made it
form short  of the tables: this program reads one
versions counts  by the names of the tables, the version of Delta Lake that it left
rows counts  by the names of the tables, how many rows they had
state text  the file with what the next run has to know of it
"""),
)

TABLES: Final = {
    "arrivals": messages.ARRIVALS,
    "captures": sessions.CAPTURES,
    "clocks": sessions.CLOCKS,
    "duplicates": messages.DUPLICATES,
    "endings": packets.ENDINGS,
    "findings": packets.FINDINGS,
    "gaps": messages.GAPS,
    "histories": messages.HISTORIES,
    "hops": messages.HOPS,
    "order_acks": messages.ORDER_ACKS,
    "packets": packets.PACKETS,
    "relations": packets.RELATIONS,
    "sequence_hops": messages.SEQUENCE_HOPS,
    "sequences": messages.SEQUENCES,
    "sessions": sessions.SESSIONS,
    "streams": sessions.STREAMS,
}
COMMENTED: Final[dict[str, pa.Schema]] = {name: table.commented for name, table in TABLES.items()}


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# The tables of `mqproto analyse`"
    yield ""
    yield "Types are Arrow's."
    for name, table in (*TABLES.items(), ("runs", RUNS)):
        yield ""
        yield f"## {name}"
        yield ""
        yield table.about
        yield ""
        yield "| column | type | unit | |"
        yield "|---|---|---|---|"
        for column in table.columns:
            yield f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |"
