"""Findings as rows, and those that a packet gives by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from captures.decode.analyst import own_findings
from captures.decode.findings import Finding
from captures.packets import SeenPacket
from captures.pipeline.stages.rows import batch_of
from captures.pipeline.stages.schema import FINDINGS

RANK: Final = 3_000_000
"""Findings that a packet gives by itself are the last among its findings."""


def finding_row(series: str, row_id: int | None, rank: int, finding: Finding) -> tuple[Any, ...]:
    """A finding as a row of FINDINGS."""
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


def packet_findings(series: str, packets: Iterable[tuple[int, SeenPacket]]) -> pa.RecordBatch:
    """What packets say by themselves that is wrong or odd.

    Args:
        packets: those that are not valid or look odd, each with its row_id; of others there is nothing to say.
    """
    rows = [
        finding_row(series, row_id, RANK + rank, finding)
        for row_id, seen in packets
        for rank, finding in enumerate(own_findings(seen))
    ]
    return batch_of(FINDINGS, rows)
