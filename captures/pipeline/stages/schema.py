"""The columns that stages read from packets, and the tables that they make.

Every table has `series` and the `row_id` of a packet, or that packet's file, frame and file_offset. By `series` and
`row_id`, a row joins the table of packets, and so finds its place in the capture.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.tables.schemas import packets
from mqproto.captures.pipeline.tables.schemas.columns import schema_of

TEXT, INTEGER, SHORT, FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
INTEGERS, TEXTS = pa.list_(INTEGER), pa.list_(TEXT)

BEGUN: Final = ("row_id", "file", "frame", "file_offset")
"""The columns in tables of sessions and sequences for the first packet of each, beside its series."""

RELATIONS: Final = packets.RELATIONS.schema
FINDINGS: Final = schema_of(packets.FOUND)
"""The columns of findings, as in `mqproto.captures.decode.Finding`, before their places are known."""
ENDINGS: Final = packets.ENDINGS.schema
