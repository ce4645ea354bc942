"""The tables of transactional sequences.  [MS-MQQB] 3.1.1.5

They are joined with each other by `series`, `source_manager` and `sequence`, and with packets by packet numbers.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from mqproto.captures.pipeline.stages.schema import FLAG, INTEGER, SHORT, TEXT
from mqproto.captures.pipeline.tables.schemas import messages
from mqproto.captures.pipeline.tables.schemas.columns import CODED

COVERED: Final = "Covered"
"""The kind of a row of CONFIRMATIONS that comes from the positive FinalAck of a later message.

Like an OrderAck, such a FinalAck confirms the messages before it.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
"""
PASSED: Final = "Passed"
"""The kind of a row of CONFIRMATIONS that withdraws others.

It comes from a later message that passed this one over, and that was read after the OrderAck that had confirmed this
one. Packets of connections with losses are read late.
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
"""An OrderAck for one message, or its equivalent, as a row that joins those of `subjects.keyed` and has the same
columns.

kind: OrderAck, COVERED or PASSED.
sequence_number: the acknowledged number, or that of the message that passed this one over.
connection: null if packets that the acknowledgment's sender had by then may come later.
unseen: the first numbers of the last gaps up to the acknowledged number. The messages in these gaps had not been seen
    by then.
ended: how many messages before the acknowledged one had a FinalAck.
"""
