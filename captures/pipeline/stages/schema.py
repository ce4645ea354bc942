"""The columns that stages read of packets, and the tables that they make.

Every table has `series` and the `row_id` of a packet, or that packet's file, frame and file_offset themselves; with
`series` and `row_id` a row joins the table of packets, and so the place in the capture.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TEXT, INTEGER, SHORT, FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
INTEGERS = pa.list_(INTEGER)

PLACE: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("number", INTEGER),
        ("file", TEXT),
        ("frame", INTEGER),
        ("file_offset", INTEGER),
        ("time_ns", INTEGER),
        ("interface", SHORT),
        ("connection", INTEGER),
    ]
)
"""Of the columns of packets, those that say where one is.

    series: which captures belong together; numbers of packets and connections are counted over a series.
    row_id: of a packet in its series; ascends as packets could be read; bytes that begin no packet have one too.
    number: as `captures.packets.SeenPacket.number`: of bytes that begin no packet, that of the packet before them.
    connection: null for a Ping.

The others are `captures.decode.row.PacketRow`'s.
"""

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
    ]
)
"""What a packet is to its session, one row for each packet. As in PacketRow, and

    from_key, to_key: the queue managers at its two ends: a GUID where a handshake told it, else an address.
    from_client: whether the end that sent it is the one that asked for the session; null for a Ping.
    acknowledged_by, saved_by: the numbers of the packets that first say of this message that it was received, and
        saved; acknowledged_ns: when.
"""

SESSIONS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("file", TEXT),
        ("frame", INTEGER),
        ("file_offset", INTEGER),
        ("connection", INTEGER),
        ("interface", SHORT),
        ("client_address", TEXT),
        ("client_port", SHORT),
        ("server_address", TEXT),
        ("server_port", SHORT),
        ("client_key", TEXT),
        ("server_key", TEXT),
        ("client", TEXT),
        ("server", TEXT),
        ("first_ns", INTEGER),
        ("opened_ns", INTEGER),
        ("last_ns", INTEGER),
        ("handshake", TEXT),
        ("state", TEXT),
        ("recoverable_ack_timeout_ms", INTEGER),
        ("ack_timeout_ms", INTEGER),
        *(
            (f"{end}_{name}", INTEGER)
            for end in ("client", "server")
            for name in (
                "window",
                "packets",
                "bytes",
                "messages",
                "session_acks",
                "unacknowledged",
                "unsaved",
                "missing_bytes",
                "lossy_since",
            )
        ),
        ("faults", INTEGER),
        ("notes", INTEGER),
    ]
)
"""A connection as one interface saw it, and its session; row_id, file, frame and file_offset are of its first packet.

    client_key, server_key: as from_key of RELATIONS; client, server: names, as PacketRow's source and destination.
    first_ns, last_ns: of its first and last packet.
    opened_ns: when the handshake was complete, if the capture shows that.
    handshake: how far it came: nothing, asked, granted, proposed, open, refused.
    state: at the end: as handshake, or `unknown` where the capture lacks something or somebody was out of turn.
    *_window: the largest that the end has announced. *_session_acks: SessionHeaders, alone or riding.
    *_unacknowledged, *_unsaved: its messages that had no answer at the end.
    *_lossy_since: the number of its first packet before which the capture lacks bytes.
    faults, notes: findings about the session itself.
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
"""Numbers that did not cross a hop before later ones. opened_by, filled_by: packets; the second null while some lack.

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
        ("time_ns", INTEGER),
        ("kind", TEXT),
        ("subject", TEXT),
        ("about", FLAG),
        ("from_key", TEXT),
        ("to_key", TEXT),
    ]
)
"""An OrderAck for one message: rows to be put beside those of `journeys.keyed`, with their columns."""

ENDINGS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("ended_packets", INTEGERS),
        ("ended_count", INTEGER),
    ]
)
"""What an OrderAck, a FinalAck or an administration acknowledgment is about, as in PacketRow."""
