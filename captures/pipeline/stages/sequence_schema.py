"""The tables of transactional sequences.  [MS-MQQB] 3.1.1.5

`series`, `source_manager` and `sequence` join them with each other; numbers of packets join them with packets.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from captures.pipeline.stages.schema import FLAG, INTEGER, SHORT, TEXT

COVERED: Final = "Covered"
"""The kind of a row of CONFIRMATIONS that no OrderAck makes, but the positive FinalAck of a later message: it says of
those before it what an OrderAck would.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
"""
SEQUENCES: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("file", TEXT),
        ("frame", INTEGER),
        ("file_offset", INTEGER),
        ("source_manager", TEXT),
        ("destination_manager", TEXT),
        ("queue", TEXT),
        ("sequence", TEXT),
        ("first_ns", INTEGER),
        ("last_ns", INTEGER),
        ("first_number", INTEGER),
        ("last_number", INTEGER),
        ("messages", INTEGER),
        ("order_acks", INTEGER),
        ("order_acked", INTEGER),
        ("final_acks_positive", INTEGER),
        ("final_acks_negative", INTEGER),
        ("one_queue", FLAG),
    ]
)
"""A transactional sequence, by its first packet.  [MS-MQQB] 3.1.1.5

    first_number, last_number, messages: of the numbers that crossed at least one hop, how many different ones.
    order_acks, order_acked: how many OrderAcks there were, each counted once, and the highest number they covered.
    final_acks_positive, final_acks_negative: of MQMSG_CLASS_ACK_RECEIVE, and of all other classes.
    one_queue: false where one identifier served two queues, so that nothing is judged.
"""

SEQUENCE_HOPS: Final = pa.schema(
    [
        ("series", TEXT),
        ("source_manager", TEXT),
        ("sequence", TEXT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("interface", SHORT),
        ("first_ns", INTEGER),
        ("last_ns", INTEGER),
        ("first_number", INTEGER),
        ("last_number", INTEGER),
        ("messages", INTEGER),
        ("resends", INTEGER),
        ("gaps", INTEGER),
        ("gaps_open", INTEGER),
    ]
)
"""What of a sequence crossed one hop, as one interface saw it; source_manager and sequence join SEQUENCES."""

GAPS: Final = pa.schema(
    [
        ("series", TEXT),
        ("source_manager", TEXT),
        ("sequence", TEXT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("first_number", INTEGER),
        ("last_number", INTEGER),
        ("opened_by", INTEGER),
        ("opened_ns", INTEGER),
        ("filled_by", INTEGER),
        ("filled_ns", INTEGER),
    ]
)
"""Numbers that were not seen on a hop before later ones.

opened_by, filled_by: packets; the second null while some lack.

The captures lack nothing of the connection before its packet `opened_by`: where they do, no gap is told of. These
numbers may be among what they lack of other connections of the hop.

A destination holds what came behind a gap: of the hop that leads there, a gap tells how long it did.
"""

ORDER_ACKS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("number", INTEGER),
        ("time_ns", INTEGER),
        ("source_manager", TEXT),
        ("sequence", TEXT),
        ("sequence_number", INTEGER),
        ("acker", TEXT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("covered", INTEGER),
        ("delay_ns", INTEGER),
        ("at_source", FLAG),
    ]
)
"""An OrderAck on one hop.  [MS-MQQB] 2.2.4.1

    acker: the queue manager that made it. at_source: whether this hop ends where the messages come from.
    covered: how many messages it newly covers; told on the first hop where it is seen, as is
    delay_ns: from when the last of these first came to its destination; null where the capture lacks that.
"""

CONFIRMATIONS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("number", INTEGER),
        ("interface", SHORT),
        ("time_ns", INTEGER),
        ("kind", TEXT),
        ("subject", TEXT),
        ("about", FLAG),
        ("from_key", TEXT),
        ("to_key", TEXT),
    ]
)
"""An OrderAck for one message, or what is as good: rows to be put beside those of `subjects.keyed`, with their columns.

    kind: OrderAck, or COVERED.
"""
