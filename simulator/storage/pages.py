"""What one page of a queue has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

Row = tuple[int, bytes, bool]
"""A message: its key or its position, its packet, and `final_ack`."""


def fitting(rows: Iterable[Row], limit_messages: int, limit_bytes: int) -> list[Row]:
    """The longest prefix that keeps within both limits, but at least the first row if there is one.

    Whatever is cut by size goes through here. The reader goes on behind the last row that it was given, so a row that
    is left out must not have another behind it that is not.
    """
    found: list[Row] = []
    size_bytes = 0
    for row in islice(rows, max(1, limit_messages)):
        size_bytes += len(row[1])
        if found and size_bytes > limit_bytes:
            break
        found.append(row)
    return found
