"""The table of sessions."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from captures.pipeline.stages.schema import FLAG, INTEGER, SHORT, TEXT

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
        ("skew_ns", INTEGER),
        ("begun", FLAG),
        ("handshake", TEXT),
        ("state", TEXT),
        ("recoverable_ack_timeout_ms", INTEGER),
        ("ack_timeout_ms", INTEGER),
        *(
            (f"{end}_{name}", kind)
            for end in ("client", "server")
            for name, kind in (
                ("window", INTEGER),
                ("packets", INTEGER),
                ("bytes", INTEGER),
                ("messages", INTEGER),
                ("session_acks", INTEGER),
                ("unacknowledged", INTEGER),
                ("unsaved", INTEGER),
                ("missing_bytes", INTEGER),
                ("losses", pa.list_(INTEGER)),
                ("last_ns", INTEGER),
                ("lost_since_ns", INTEGER),
                ("lost_until_ns", INTEGER),
                ("lost_bytes", INTEGER),
                ("snapped", FLAG),
                ("rest_bytes", INTEGER),
                ("rest_came_bytes", INTEGER),
                ("ending", TEXT),
            )
        ),
        ("faults", INTEGER),
        ("notes", INTEGER),
    ]
)
"""A connection as one interface saw it, and its session; row_id, file, frame and file_offset are of its first packet.

    client_key, server_key: as from_key of RELATIONS; client, server: names, as PacketRow's source and destination.
    first_ns, last_ns: of its first and last packet.
    skew_ns: how far times went back from one packet to the next: the halves of a TAP may have clocks of their own.
    opened_ns: when the handshake was complete, if the capture shows that.
    handshake: how far it came: nothing, asked, granted, proposed, open, refused.
    state: at the end: as handshake, or `unknown` where the capture lacks something or somebody was out of turn, or
        `encrypted`.
    *_window: the largest that the end has announced. *_session_acks: SessionHeaders, alone or riding.
    *_unacknowledged, *_unsaved: its messages that had no answer at the end; null where the capture lacks what may have
        answered them, or does not tell their numbers.
    begun: whether the captures have its beginning, or lack bytes of that.
    *_losses: the numbers of its packets before which the captures lack what may have been messages of it; with 64 it is
        taken to have more.
    *_last_ns: of its last packet. *_lost_since_ns, *_lost_until_ns: of the packets before and behind all bytes that the
        captures lack; the first is null where these are its first ones. *_lost_bytes: how many lack in one place
        at most; null where nobody knows. *_snapped: whether all were in frames that the captures have, and cut.
    *_rest_bytes, *_rest_came_bytes: how much it has sent behind its last packet, and how much of that can have come to
        the other end; null where the captures do not tell.
    *_ending: whether the end finished (FIN), reset the connection (RST), or the captures show it open.
    faults, notes: findings about the session itself.
"""
