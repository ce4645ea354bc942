"""Packets over time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from mqproto.captures.decode.sight import MESSAGES, Kind
from mqproto.captures.pipeline.report.counts.scanning import batches, integers
from mqproto.captures.pipeline.report.facts.facts import Captured, Traffic
from mqproto.captures.pipeline.report.facts.overtime import steps_of
from mqproto.captures.pipeline.tables.tables import Tables

SORTS: Final = {
    "messages": MESSAGES | {Kind.REPORT},
    "acknowledgments": {Kind.SESSION_ACK, Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK},
    "sessions and pings": {Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.PING},
}
MALFORMED: Final = "malformed"
_COLUMNS: Final = ("time_ns", "kind", "size_bytes")


def traffic(tables: Tables, captured: Captured) -> Traffic | None:
    """Packets over time; None if there are none."""
    if captured.first_ns is None or captured.last_ns is None or not tables.rows("packets"):
        return None
    steps = steps_of(captured)
    names = [*SORTS, MALFORMED]
    sort_of = {str(kind): place for place, kinds in enumerate(SORTS.values()) for kind in kinds}
    counts = np.zeros((len(names), steps.length), dtype=np.int64)
    sizes = np.zeros(steps.length, dtype=np.int64)
    kinds: Counter[str] = Counter()
    for batch in batches(tables, "packets", _COLUMNS):
        times_ns, _ = integers(batch.column("time_ns"))
        step = steps.of(times_ns)
        encoded = batch.column("kind").dictionary_encode(null_encoding="encode")
        found = [kind or str(Kind.MALFORMED) for kind in encoded.dictionary.to_pylist()]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        kinds.update(dict(zip(found, np.bincount(indices, minlength=len(found)).tolist(), strict=True)))
        sorts = np.array([sort_of.get(kind, len(SORTS)) for kind in found], dtype=np.int64)[indices]
        np.add.at(counts, (sorts, step), 1)
        np.add.at(sizes, step, integers(batch.column("size_bytes"))[0])
    return Traffic(
        steps.first_ns,
        steps.step_ns,
        {name: counts[place].tolist() for place, name in enumerate(names) if counts[place].any()},
        sizes.tolist(),
        dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
    )
