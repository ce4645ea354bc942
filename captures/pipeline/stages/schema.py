"""The columns that stages read from packets, and the tables that they make.

Every table has `series` and the `row_id` of a packet, or that packet's file, frame and file_offset. `series` and
`row_id` join a row with the table of packets, which gives its place in the capture.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.tables.schemas import packets
from mqproto.captures.pipeline.tables.schemas.columns import schema_of

TEXT, INTEGER, SHORT, FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
INTEGERS, TEXTS = pa.list_(INTEGER), pa.list_(TEXT)

BEGUN: Final = ("row_id", "file", "frame", "file_offset")
"""The columns that, in addition to `series`, identify the first packet of a session or sequence in its table."""

RELATIONS: Final = packets.RELATIONS.schema
FINDINGS: Final = schema_of(packets.FOUND)
"""The columns of findings, as in `mqproto.captures.decode.Finding`, before their places in the capture are known."""
ENDINGS: Final = packets.ENDINGS.schema
