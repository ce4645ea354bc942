"""Packets over time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from captures.decode.sight import MESSAGES, Kind
from captures.pipeline.report.facts import Captured, Traffic
from captures.pipeline.report.scanning import batches, integers
from captures.pipeline.tables import Tables

STEPS: Final = 120
"""How many there are at most."""
SORTS: Final = {
    "messages": MESSAGES | {Kind.REPORT},
    "acknowledgments": {Kind.SESSION_ACK, Kind.ORDER_ACK, Kind.FINAL_ACK, Kind.ADMIN_ACK},
    "sessions and pings": {Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.PING},
}
MALFORMED: Final = "malformed"
_COLUMNS: Final = ("time_ns", "kind", "size_bytes")


def traffic(tables: Tables, captured: Captured) -> Traffic | None:
    """Packets over time; None if there are none."""
    if captured.first_ns is None or captured.last_ns is None or not tables.manifest.rows("packets"):
        return None
    step_ns = nice_step_ns((captured.last_ns - captured.first_ns) // STEPS + 1)
    first_ns = captured.first_ns // step_ns * step_ns
    steps = (captured.last_ns - first_ns) // step_ns + 1
    names = [*SORTS, MALFORMED]
    sort_of = {str(kind): place for place, kinds in enumerate(SORTS.values()) for kind in kinds}
    counts = np.zeros((len(names), steps), dtype=np.int64)
    sizes = np.zeros(steps, dtype=np.int64)
    kinds: Counter[str] = Counter()
    for batch in batches(tables, "packets", _COLUMNS):
        times_ns, _ = integers(batch.column("time_ns"))
        step = np.clip((times_ns - first_ns) // step_ns, 0, steps - 1)
        encoded = batch.column("kind").dictionary_encode(null_encoding="encode")
        found = [kind or str(Kind.MALFORMED) for kind in encoded.dictionary.to_pylist()]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        kinds.update(dict(zip(found, np.bincount(indices, minlength=len(found)).tolist(), strict=True)))
        sorts = np.array([sort_of.get(kind, len(SORTS)) for kind in found], dtype=np.int64)[indices]
        np.add.at(counts, (sorts, step), 1)
        np.add.at(sizes, step, integers(batch.column("size_bytes"))[0])
    return Traffic(
        first_ns,
        step_ns,
        {name: counts[place].tolist() for place, name in enumerate(names) if counts[place].any()},
        sizes.tolist(),
        dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
    )


def nice_step_ns(least_ns: int) -> int:
    """The next step above that people can read: 1, 2 or 5 of a decimal unit; above a second those of clocks."""
    second_ns = 10**9
    clocks = [each * second_ns for each in (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400)]
    below = [each * 10**power for power in range(3, 9) for each in (1, 2, 5)]
    found = next((each for each in [*below, *clocks] if each >= least_ns), None)
    return found or -(-least_ns // clocks[-1]) * clocks[-1]
