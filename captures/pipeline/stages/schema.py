"""The columns that stages read from packets, and the tables that they make.

Every table has `series` and the `row_id` of a packet, or that packet's file, frame and file_offset. `series` and
`row_id` join a row with the table of packets, which gives its place in the capture.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from mqproto.captures.decode.findings import Finding
from mqproto.captures.pipeline.tables.schemas import messages, packets
from mqproto.captures.pipeline.tables.schemas.columns import CODED, schema_of

TEXT, INTEGER, SHORT, FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
INTEGERS, TEXTS = pa.list_(INTEGER), pa.list_(TEXT)

BEGUN: Final = ("row_id", "file", "frame", "file_offset")
"""The columns that, in addition to `series`, identify the first packet of a session or sequence in its table."""

RELATIONS: Final = packets.RELATIONS.schema
FINDINGS: Final = schema_of(packets.FOUND)
"""The columns of findings, as in `mqproto.captures.decode.Finding`, before their places in the capture are known."""
ENDINGS: Final = packets.ENDINGS.schema


COVERED: Final = "Covered"
"""The kind of a row of CONFIRMATIONS that comes from the positive FinalAck of a later message.

Like an OrderAck, such a FinalAck confirms the messages before it.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
"""
PASSED: Final = "Passed"
"""The kind of a row of CONFIRMATIONS that withdraws the confirmation of a message.

It comes from a later message that passed over the confirmed one, but was read after the OrderAck:
packets of connections with losses are read late.
"""
SEQUENCES: Final = messages.SEQUENCES.schema
SEQUENCE_HOPS: Final = messages.SEQUENCE_HOPS.schema
GAPS: Final = messages.GAPS.schema
ORDER_ACKS: Final = messages.ORDER_ACKS.schema
CONFIRMATIONS: Final = pa.schema(
    [
        ("series", CODED),
        ("row_id", INTEGER),
        ("number", INTEGER),
        ("interface", SHORT),
        ("time_ns", INTEGER),
        ("kind", CODED),
        ("subject", TEXT),
        ("about", FLAG),
        ("from_key", CODED),
        ("to_key", CODED),
        ("sequence_number", INTEGER),
        ("connection", INTEGER),
        ("unseen", pa.list_(INTEGER)),
        ("ended", INTEGER),
    ]
)
"""An OrderAck for one message, or its equivalent, as a row.

The row joins those of `subjects.keyed`, and has the same columns.

kind: OrderAck, COVERED or PASSED.
sequence_number: the acknowledged number; for PASSED, the number of the message that passed over the confirmed one.
connection: null if the acknowledgment's sender may have received packets that the captures show only later.
unseen: the first number of each of the last gaps up to the acknowledged number. The messages in these gaps had not been
    seen when the acknowledgment came.
ended: how many messages before the acknowledged one had a FinalAck.
"""


HOPS: Final = messages.HOPS.schema
HISTORIES: Final = messages.HISTORIES.schema
SCHEMAS: Final = {"hops": HOPS, "histories": HISTORIES}
TOLD: Final = {
    "hops": (
        *("position", "first_ns", "last_ns", "waited_ns", "waited_uncertainty_ns", "acknowledged_ns"),
        *("numbered", "copies", "places"),
    ),
    "histories": (
        *("first_ns", "last_ns", "route", "hops", "hop_ns", "resends", "arrived_ns", "latency_ns"),
        *("latency_uncertainty_ns", "order_acked_ns", "order_ack_at_source", "covered_ns"),
        *("final_class", "final_ns", "administration", "administration_ns", "outcome", "reason"),
        *("whereabouts", "complete"),
    ),
}
"""The columns that `histories` makes, keyed by table; all others are copied from the first packet."""


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
