"""Transactional sequences, hop by hop, with their gaps."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.judging.sequences.sequence_schema import GAPS, SEQUENCE_HOPS
from mqproto.captures.pipeline.report.counts.scanning import Top, batches, integers
from mqproto.captures.pipeline.report.facts.facts import SequenceHop, Sequences
from mqproto.captures.pipeline.tables.tables import Tables

SHOWN: Final = 12
SHOWN_WHOLE: Final = 6
"""If none of them has a gap, fewer do."""
GAPS_SHOWN: Final = 200
"""Of each of them."""
_KEY: Final = ("series", "source_manager", "sequence")
_HOP: Final = (*_KEY, "from_key", "to_key")
_WEIGHT: Final = 1 << 31
"""Open gaps weigh more than gaps, and these more than messages; each counts up to this."""


def sequences(tables: Tables, labels: dict[str, str]) -> Sequences:
    """How many there are, and those most worth a look.

    Args:
        labels: of queue managers, by their keys.
    """
    found = Sequences(count=tables.rows("sequences"))
    top = Top(SHOWN)
    for batch in batches(tables, "sequence_hops", SEQUENCE_HOPS.names):
        gaps, _ = integers(batch.column("gaps"))
        gaps_open, _ = integers(batch.column("gaps_open"))
        messages, _ = integers(batch.column("messages"))
        found.gaps += int(gaps.sum())
        found.gaps_open += int(gaps_open.sum())
        # Together they stay below 63 bits.
        weight = (
            gaps_open.clip(0, 1 << 15) * _WEIGHT * (1 << 16)
            + gaps.clip(0, 1 << 15) * _WEIGHT
            + messages.clip(0, _WEIGHT - 1)
        )
        top.take(batch, weight, gaps >= 0)
    worst = top.rows()
    if not found.gaps:
        worst = worst[:SHOWN_WHOLE]
    hops = sorted(
        worst,
        key=lambda row: (row["first_ns"], row["series"], row["sequence"], row["from_key"], row["interface"]),
    )
    gaps_of = _gaps(tables, hops)
    queues = _queues(tables, hops)
    for row in hops:
        row["from_label"] = labels.get(row["from_key"], row["from_key"])
        row["to_label"] = labels.get(row["to_key"], row["to_key"])
        hop, sequence = _values(row, _HOP), _values(row, _KEY)
        found.shown.append(SequenceHop(row, queues.get(sequence, ""), gaps_of[hop]))
    return found


def _gaps(tables: Tables, hops: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {_values(row, _HOP): [] for row in hops}
    for batch in batches(tables, "gaps", GAPS.names):
        for row in _of_sequences(batch, hops):
            gaps = found.get(_values(row, _HOP))
            if gaps is not None and len(gaps) < GAPS_SHOWN:
                gaps.append(row)
    return found


def _queues(tables: Tables, hops: list[dict[str, Any]]) -> dict[tuple[Any, ...], str]:
    return {
        _values(row, _KEY): row["queue"] or ""
        for batch in batches(tables, "sequences", (*_KEY, "queue"))
        for row in _of_sequences(batch, hops)
    }


def _of_sequences(batch: pa.RecordBatch, hops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that may be of these sequences."""
    names = pa.array(sorted({row["sequence"] for row in hops}), pa.string())
    found: list[dict[str, Any]] = batch.filter(
        pc.is_in(batch.column("sequence"), value_set=names)
    ).to_pylist()
    return found


def _values(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
