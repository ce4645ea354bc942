"""The contents of tables, in a form that can be compared."""

from __future__ import annotations

from mqproto.captures.pipeline.tables.tables import Tables


def rows_of(tables: Tables) -> dict[str, list[str]]:
    """Return all rows of all tables, in a fixed order."""
    return {name: sorted(map(repr, tables.read(name).to_pylist())) for name in tables.names}
