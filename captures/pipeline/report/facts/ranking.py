"""Which hops and queues come first: by how slow they are as well as by how many messages they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    turns = [row for both in zip(slowest(rows), rows, strict=True) for row in both]
    return list({id(row): row for row in turns}.values())[:limit]
