"""Which hops and queues come first: by how slow they are as well as by how many messages they have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from mqproto.captures.pipeline.report.facts.facts import Hop, Queue

Ranked = TypeVar("Ranked", Hop, Queue)


def slowest(rows: Iterable[Ranked]) -> list[Ranked]:
    """The slowest first."""
    return sorted(rows, key=lambda row: (-row.slow_ns, -row.most_ns, -row.messages))


def worth_a_look(rows: Sequence[Ranked], limit: int) -> list[Ranked]:
    """So many of those that are slowest or have most messages, by turns; the slowest of all comes first.

    Args:
        rows: those with most messages first.
    """
    turns = itertools.chain.from_iterable(zip(slowest(rows), rows, strict=True))
    return list(itertools.islice(_once(turns), limit))


def _once(rows: Iterable[Ranked]) -> Iterator[Ranked]:
    seen: set[int] = set()
    for row in rows:
        if id(row) not in seen:
            seen.add(id(row))
            yield row
