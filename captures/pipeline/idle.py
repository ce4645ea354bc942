"""Whether there is anything to do, by the state of the tables alone: before Spark, or anything else, starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from captures.decode.names import Names
from captures.pipeline.files import inventory
from captures.pipeline.job import CODES, JUDGED, REFUSED, SERIES, TEXTS, Result
from captures.pipeline.judged import digest, judged
from captures.pipeline.known import Known, reads
from captures.pipeline.tables import Tables


def nothing_new(
    paths: Sequence[str], tables: Tables, *, names: Names | None = None, body_texts: bool = False
) -> Result | None:
    """What `analyse` would say of captures that are all in the tables already; None if it has something to do.

    Args:
        paths, names, body_texts: as for `analyse`.
    """
    state = tables.state
    before = judged(state.get(JUDGED))
    if before is None or before.names != digest(names or Names()) or (body_texts and not state[TEXTS]):
        return None
    found = inventory(paths)
    is_read = reads(Known(**entry) for entry in state[SERIES].values())
    if not all(map(is_read, found.files)) or not found.files:
        return None
    refused = {error.where: [error.offset, error.reason] for error in found.refused}
    known = {path: why for path, why in state[REFUSED].items() if path in refused}
    if refused != known or any(file.path in state[REFUSED] for file in found.files):
        return None
    return Result(
        [],
        list(found.refused),
        list(found.repeated),
        list(found.passed_over),
        [file.path for series in found.series for file in series.files],
        Counter({(severity, code): count for severity, code, count in state[CODES]}),
    )
