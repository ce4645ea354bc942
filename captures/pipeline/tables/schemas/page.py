"""`python -m mqproto.captures.pipeline.tables.schemas.page`: what the tables hold, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.captures.pipeline.tables.schemas.tables import RUNS, TABLES


def page() -> Iterator[str]:
    """Its lines."""
    yield "# The tables of `mqproto analyse`"
    yield ""
    yield (
        "This page is made of `schemas/`, by `python -m mqproto.captures.pipeline.tables.schemas.page`. "
        "Types are Arrow's."
    )
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


if __name__ == "__main__":
    print("\n".join(page()))
