"""The columns that stages read of packets, and the tables that they make.

Every table has `series` and the `row_id` of a packet, or that packet's file, frame and file_offset themselves; with
`series` and `row_id` a row joins the table of packets, and so the place in the capture.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TEXT, INTEGER, SHORT, FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
INTEGERS, TEXTS = pa.list_(INTEGER), pa.list_(TEXT)

PLACE: Final = (
    ("series", TEXT),
    ("row_id", INTEGER),
    ("number", INTEGER),
    ("file", TEXT),
    ("frame", INTEGER),
    ("file_offset", INTEGER),
)
"""Where a packet is.

    series: which captures belong together; numbers of packets and connections are counted over a series.
    row_id: of a packet in its series; ascends as packets could be read; bytes that begin no packet have one too.
    number: as `captures.packets.SeenPacket.number`: of bytes that begin no packet, that of the packet before them.

The others are `captures.decode.row.PacketRow`'s.
"""
BEGUN: Final = ("row_id", "file", "frame", "file_offset")
"""What tables of sessions and sequences have of the packet that each began with, beside its series."""

RELATIONS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("source", TEXT),
        ("destination", TEXT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("from_client", FLAG),
        ("session_number", SHORT),
        ("session_recoverable_number", SHORT),
        ("received_packets", INTEGERS),
        ("received_count", INTEGER),
        ("saved_packets", INTEGERS),
        ("saved_count", INTEGER),
        ("acknowledged_by", INTEGER),
        ("acknowledged_ns", INTEGER),
        ("saved_by", INTEGER),
        ("queue_name", TEXT),
    ]
)
"""What a packet is to its session, one row for each packet. As in PacketRow, and

    from_key, to_key: the queue managers at its two ends: a GUID where a handshake told it, else an address.
    from_client: whether the end that sent it is the one that asked for the session; null for a Ping.
    acknowledged_by, saved_by: the numbers of the packets that first say of this message that it was received, and
        saved; acknowledged_ns: when.
"""

FINDINGS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("rank", INTEGER),
        ("severity", TEXT),
        ("code", TEXT),
        ("number", INTEGER),
        ("text", TEXT),
        ("section", TEXT),
        ("others", INTEGERS),
    ]
)
"""What was found, as `captures.decode.Finding`.

    row_id: of the packet with which it came to light; null for what came out at the end of the series.
    rank: by which the findings of one packet are sorted.
    number: of the packet that it is about, which gives file and frame; null for none.
    others: the numbers of other packets that it rests on.
"""

ENDINGS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("ended_packets", INTEGERS),
        ("ended_count", INTEGER),
    ]
)
"""What an OrderAck, a FinalAck or an administration acknowledgment is about, as in PacketRow."""
