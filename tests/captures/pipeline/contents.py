"""What tables hold, to compare them by."""

from __future__ import annotations

from mqproto.captures.pipeline.tables.tables import Tables


def rows_of(tables: Tables) -> dict[str, list[str]]:
    """All rows of all tables, in an order of their own."""
    return {name: sorted(map(repr, tables.read(name).to_pylist())) for name in tables.names}
