"""Makes a Markdown page about the contents of the tables."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.captures.pipeline.tables.schemas.tables import RUNS, TABLES


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
