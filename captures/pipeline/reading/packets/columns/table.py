"""Turns packets and Pings into rows of PACKET_SCHEMA.

The layouts say where the bytes are and which packets follow the rules; walk.py uses them to read packets. Rows that the
walk refuses go through the codec one by one. The codec then judges them, and puts the fault into words.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqproto.captures.decode.security.keyring import KeyRing
from mqproto.captures.decode.sight import INTERNAL_KINDS
from mqproto.captures.pipeline.reading.packets.columns.codec import add_findings, add_one_by_one
from mqproto.captures.pipeline.reading.packets.columns.messages import Messages, add_base, guid_texts
from mqproto.captures.pipeline.reading.packets.columns.schema import Table
from mqproto.captures.pipeline.reading.packets.columns.walk import Fields, Walk
from mqproto.captures.pipeline.source.octets import Mask, Octets, Vector
from mqproto.wire import BaseHeader, ConnectionParameters, EstablishConnection, InternalHeader, SessionAck
from mqproto.wire.layouts.base import INFINITE, base_header
from mqproto.wire.layouts.internal import internal_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet
from mqproto.wire.schema.record import Record

OF_A_PING: Final = -1
"""The connection number of a Ping in a SeenPacket."""
FEW: Final = 32
"""The largest number of packets for which it is faster to read them one by one.

Reading packets all at once takes as long for one packet as for 1,000.
"""


def packet_columns(
    data: Octets,
    starts: Vector,
    sizes: Vector,
    framed: Mask | None = None,
    cut: Vector | None = None,
    *,
    texts: bool = False,
    ring: KeyRing | None = None,
) -> pa.RecordBatch:
    """Return packets as rows of PACKET_SCHEMA, one row for each, in the given order.

    Pass many packets at a time, because each call takes at least about 5 ms. But pass at most 100,000 packets, because
    each takes up to 2 KB of memory. Pass at most 512 MiB of packets, because the texts of a column must fit in 2 GiB.

    Args:
        data: bytes, such as a mapped file.
        starts, sizes: where each packet begins in `data`, and its size, including the SessionHeader beyond PacketSize.
        framed: which of them are packets, valid or not; by default all. Of bytes that do not form a packet, the first
            16 are given, and their row only says that they begin no packet.
        cut: for each packet, its size beyond the given bytes, as in mqproto.captures.packets.SeenPacket.cut_bytes; by
            default all packets are whole.
        texts: whether to read the texts of bodies, which doubles the time; otherwise `body_text` is null.
        ring: keys to try on signed or encrypted messages, one message at a time.
    """
    ends = starts + sizes
    framed = np.ones(len(starts), bool) if framed is None else framed
    assert ((starts >= 0) & (sizes >= 0) & (ends <= len(data))).all(), "packets lie within the data"
    table = Table(len(starts))
    if len(starts) <= FEW:
        add_one_by_one(table, data, np.arange(len(starts)), starts, ends, framed, cut, texts=texts, ring=ring)
        return table.batch()

    heads = Walk(base_header, data, starts, np.minimum(starts + base_header.sizeof(), ends))
    flags = heads.fields.numbers("flags")
    is_internal = BaseHeader.internal.within(flags) != 0
    rides = ~is_internal & (BaseHeader.session_header.within(flags) != 0)
    record_ends = ends - session_header.sizeof() * rides
    # A cut packet is shorter than its head says.
    whole = framed & heads.taken & (starts + heads.fields.numbers("packet_size") == record_ends)

    messages = np.flatnonzero(whole & ~is_internal)
    taken = [_add_messages(table, data, messages, starts, record_ends, ends, texts=texts, ring=ring)]
    internal = np.flatnonzero(whole & is_internal)
    heads_end = starts[internal] + base_header.sizeof()
    kinds = Walk(internal_header, data, heads_end, heads_end + internal_header.sizeof())
    types = InternalHeader.packet_type.within(kinds.fields.numbers("flags"))
    for packet_type, record in INTERNAL_PACKETS.items():
        if len(rows := internal[types == packet_type]):
            taken.append(_add_internal(table, data, rows, starts, ends, record))

    left = np.ones(len(starts), bool)
    left[np.concatenate(taken)] = False
    valid = np.flatnonzero(~left)
    table.put("size_bytes", valid, sizes[valid])
    table.put("valid", valid, True)
    add_one_by_one(table, data, np.flatnonzero(left), starts, ends, framed, cut, texts=texts, ring=ring)
    return table.batch()


def ping_columns(data: Octets, starts: Vector, sizes: Vector) -> pa.RecordBatch:
    """Return Pings as rows of PACKET_SCHEMA; they are rare, and are read one by one.

    Args: as for `packet_columns`, with the payloads of UDP datagrams as packets.
    """
    table = Table(len(starts))
    add_one_by_one(table, data, np.arange(len(starts)), starts, starts + sizes, connection=OF_A_PING)
    return table.batch()


def _add_messages(
    table: Table,
    data: Octets,
    rows: Vector,
    starts: Vector,
    record_ends: Vector,
    ends: Vector,
    *,
    texts: bool,
    ring: KeyRing | None,
) -> Vector:
    """Fill in UserMessages; return their rows."""
    taken = np.ones(len(rows), bool)
    while True:  # Repeated without refused rows, so that all vectors are for the same rows.
        rows = rows[taken]
        whole = Walk(user_message_packet, data, starts[rows], record_ends[rows])
        rides = np.flatnonzero(record_ends[rows] < ends[rows])
        riding = rows[rides]
        session = Walk(session_header, data, record_ends[riding], ends[riding])
        taken = whole.taken
        taken[rides] &= session.taken
        if taken.all():
            break
    messages = Messages(table, data, rows, starts[rows], record_ends[rows], ends[rows], whole.fields)
    messages.add()
    if texts:
        messages.add_texts()
    if ring is not None:
        messages.add_evidence(ring, texts=texts)
    _add_session(table, riding, session.fields)
    return rows


def _add_internal(
    table: Table, data: Octets, rows: Vector, starts: Vector, ends: Vector, record: Record[Any]
) -> Vector:
    """Fill in internal packets of one kind; return their rows.  [MS-MQQB] 2.2.2, 2.2.3, 2.2.6"""
    walk = Walk(record, data, starts[rows], ends[rows])
    if not walk.taken.all():
        rows = rows[walk.taken]
        walk = Walk(record, data, starts[rows], ends[rows])
    fields = walk.fields
    table.put_items("kind", rows, [INTERNAL_KINDS[record.kind]], np.zeros(len(rows), np.int64))
    base = fields.inside("base")
    flags, seconds = base.numbers("flags"), base.numbers("time_to_reach_queue_s")
    add_base(table, rows, base)
    signs = BaseHeader.debug_header.within(flags), seconds != INFINITE
    add_findings(table, data, rows, starts[rows], ends[rows], *signs)
    if record.kind is SessionAck:
        _add_session(table, rows, fields.inside("session"))
        return rows
    table.put("refused", rows, InternalHeader.refused.within(fields.inside("internal").numbers("flags")) != 0)
    if record.kind is EstablishConnection:
        for name in ("client", "server"):
            table.put_items(name, rows, *guid_texts(fields.octets(f"{name}_guid")))
    if record.kind is ConnectionParameters:
        for name in ("recoverable_ack_timeout_ms", "ack_timeout_ms", "window_size"):
            table.put(name, rows, fields.numbers(name))
    return rows


def _add_session(table: Table, rows: Vector, header: Fields) -> None:
    """Fill in a SessionHeader, alone or after a message.  [MS-MQMQ] 2.2.20.4"""
    for column, name in (
        ("ack_number", "ack_sequence_number"),
        ("saved_first", "recoverable_msg_ack_seq_number"),
        ("saved_flags", "recoverable_msg_ack_flags"),
        ("sent_count", "user_msg_sequence_number"),
        ("recoverable_sent_count", "recoverable_msg_seq_number"),
        ("window_size", "window_size"),
    ):
        table.put(column, rows, header.numbers(name))
