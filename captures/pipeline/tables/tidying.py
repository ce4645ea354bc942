"""Merges small parts of a table, so that a folder in use for months does not collect a million files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.engines.engine import Inbox, Outbox
from mqproto.captures.pipeline.tables.parts import Part, Store, parquet_table

PARTS: Final = 32
"""A number of small parts. Once a table has this many, they are merged."""
ROWS: Final = 1_000_000
"""The maximum number of rows of a merged part. A part is small if it has less than a quarter of this."""


@dataclass(frozen=True, slots=True)
class TidyTask:
    """A task that merges some parts into one.

    names: the names of the parts.
    name: the name of the merged part.
    """

    store: Store
    names: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return f"{len(self.names)} parts from {self.store.path(self.names[0])} on"


def groups(parts: Iterable[tuple[str, Part]]) -> Iterator[list[Part]]:
    """Yield groups of parts to merge.

    Args:
        parts: parts, each with a key before it; only parts with the same key are merged.
    """
    small: defaultdict[str, list[Part]] = defaultdict(list)
    for key, part in parts:
        if part.rows < ROWS // 4:
            small[key].append(part)
    for some in small.values():
        if len(some) >= PARTS:
            together = [some[:1]]
            for part in some[1:]:
                if sum(each.rows for each in together[-1]) + part.rows > ROWS:
                    together.append([])
                together[-1].append(part)
            yield from (group for group in together if len(group) > 1)


def tidy(task: TidyTask, inbox: Inbox, outbox: Outbox) -> Part:
    """Merge parts into one."""
    rows = pa.concat_tables(parquet_table(task.store.path(name)) for name in task.names)
    return task.store.write_part(task.name, rows)
