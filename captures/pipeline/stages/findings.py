"""Rows of findings, and the findings in single packets."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.pipeline.stages.schema import FINDINGS
from mqproto.captures.pipeline.tables.lists import batch_of

COLUMNS: Final = ("series", "row_id", "number", "own_findings")
RANK: Final = 3_000_000
"""The rank of findings about a single packet by itself, which come last among the findings about that packet."""


def finding_row(series: str, row_id: int | None, rank: int, finding: Finding) -> tuple[Any, ...]:
    """Return a finding as a row of FINDINGS."""
    return (
        series,
        row_id,
        rank,
        str(finding.severity),
        finding.code,
        finding.packet or None,
        finding.text,
        finding.section,
        list(finding.others),
    )


def packet_findings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the faults and oddities found in single packets, as FINDINGS.

    Args:
        batch: packets, with COLUMNS.
    """
    odd = batch.filter(pc.is_valid(batch.column("own_findings")))
    columns = (odd.column(name).to_pylist() for name in COLUMNS)
    rows = (
        finding_row(
            series,
            row_id,
            RANK + rank,
            Finding(Severity(found["severity"]), found["code"], number or 0, found["text"], found["section"]),
        )
        for series, row_id, number, own in zip(*columns, strict=True)
        for rank, found in enumerate(own)
    )
    return batch_of(FINDINGS, rows)
