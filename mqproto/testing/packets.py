"""Strategies for valid and nearly valid packets."""

from __future__ import annotations

import struct
from typing import Final

from hypothesis import strategies as st

from mqproto.testing.headers import (
    U8,
    U16,
    U32,
    base_headers,
    debug_headers,
    guids,
    made_once,
    message_properties_headers,
    multi_queue_format_headers,
    security_headers,
    session_headers,
    soap_headers,
    transaction_headers,
    tx_sequence_ids,
    u16,
    user_headers,
)
from mqproto.wire import (
    BaseHeader,
    ConnectionParameters,
    EstablishConnection,
    FinalAck,
    FinalAckBody,
    InternalHeader,
    MessageClass,
    OrderAck,
    OrderAckBody,
    Packet,
    Ping,
    SessionAck,
    UserMessage,
    encode_packet,
)
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.internal import CONNECTION_PARAMETERS, ESTABLISH_CONNECTION, SESSION_ACK
from mqproto.wire.messages import ORDER_QUEUE, ORDER_QUEUE_PATH

OPTIONAL: Final = ("transaction", "security", "debug", "soap", "multi", "session")
"""The headers that a UserMessage may have."""


@made_once
@st.composite
def user_messages(draw: st.DrawFn) -> UserMessage:
    """Draw a UserMessage with any set of headers."""
    # One draw for all: half of the messages have any set of headers; of the rest most have none, a few all.
    some, kind = divmod(draw(st.integers(0, 8 * 2 ** len(OPTIONAL) - 1)), 8)
    has = {name for place, name in enumerate(OPTIONAL) if kind == 7 or (kind < 4 and some >> place & 1)}
    return UserMessage(
        base=draw(base_headers(session="session" in has, debug="debug" in has)),
        user=draw(
            user_headers(
                transaction="transaction" in has,
                security="security" in has,
                soap="soap" in has,
                multi_queue_format="multi" in has,
            )
        ),
        transaction=draw(transaction_headers()) if "transaction" in has else None,
        security=draw(security_headers()) if "security" in has else None,
        properties=draw(message_properties_headers()),
        debug=draw(debug_headers()) if "debug" in has else None,
        soap=draw(soap_headers()) if "soap" in has else None,
        multi_queue_format=draw(multi_queue_format_headers()) if "multi" in has else None,
        session=draw(session_headers()) if "session" in has else None,
        trailing=draw(st.just(b"") | st.binary(max_size=9)),
    )


@made_once
@st.composite
def internal_headers(draw: st.DrawFn, packet_type: int) -> InternalHeader:
    header = InternalHeader(reserved=u16(draw), flags=u16(draw))
    header.packet_type = packet_type
    return header


@made_once
def establish_connection_packets() -> st.SearchStrategy[EstablishConnection]:
    return st.builds(
        EstablishConnection,
        base=st.booleans().flatmap(lambda session: base_headers(internal=True, session=session)),
        internal=internal_headers(ESTABLISH_CONNECTION),
        client_guid=guids(),
        server_guid=guids(),
        time_stamp_ms=U32,
        operating_system=U8.map(lambda high: high << 8 | 0x10),
        reserved=U16,
        padding=st.just(b"\x5a" * 512) | st.binary(min_size=512, max_size=512),
    )


@made_once
def connection_parameters_packets() -> st.SearchStrategy[ConnectionParameters]:
    return st.builds(
        ConnectionParameters,
        base=base_headers(internal=True),
        internal=internal_headers(CONNECTION_PARAMETERS),
        recoverable_ack_timeout_ms=st.sampled_from([500, 120_000]) | st.integers(500, 120_000),
        ack_timeout_ms=st.sampled_from([20_000, 120_000]) | st.integers(20_000, 120_000),
        reserved=U16,
        window_size=U16,
    )


@made_once
def session_acks() -> st.SearchStrategy[SessionAck]:
    base = base_headers(internal=True, session=True)
    return st.builds(SessionAck, base, internal_headers(SESSION_ACK), session_headers())


@made_once
def packets() -> st.SearchStrategy[Packet]:
    """Return a strategy for any packet that is sent on a session."""
    return st.one_of(
        user_messages(),
        order_acks(),
        final_acks(),
        session_acks(),
        connection_parameters_packets(),
        establish_connection_packets(),
    )


@made_once
def order_queues() -> st.SearchStrategy[int | str]:
    """Return a strategy for the order queue: its identifier, or a direct name in any mix of case."""
    path = st.sampled_from([ORDER_QUEUE_PATH, ORDER_QUEUE_PATH.lower(), ORDER_QUEUE_PATH.upper()])
    return st.just(ORDER_QUEUE) | st.builds(str.__add__, st.just("TCP:10.0.0.1"), path)


@made_once
def order_acks() -> st.SearchStrategy[UserMessage]:
    body = st.builds(OrderAckBody, tx_sequence_ids(), U32, U32, st.binary(min_size=20, max_size=20))
    return st.builds(
        OrderAck,
        source=guids(),
        destination_manager=guids(),
        destination=order_queues(),
        message_id=U32,
        sent_time_s=U32,
        body=body,
    ).map(OrderAck.message)


@made_once
def final_acks() -> st.SearchStrategy[UserMessage]:
    classes = [each for each in MessageClass if each >= MessageClass.ACK_RECEIVE]
    return st.builds(
        FinalAck,
        source=guids(),
        destination_manager=guids(),
        destination=order_queues(),
        message_id=U32,
        sent_time_s=U32,
        message_class=st.sampled_from(classes).map(int),
        body=st.builds(FinalAckBody, tx_sequence_ids(), U32, U32, guids(), U32),
    ).map(FinalAck.message)


@made_once
def pings() -> st.SearchStrategy[Ping]:
    return st.builds(Ping, flags=U16, cookie=U32, qm_guid=guids())


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw these bytes after a few mutations.

    Bytes and words are overwritten, and pieces are lost, duplicated or inserted.
    """
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed)))
        match draw(st.sampled_from(["byte", "bit", "word", "half", "cut", "insert", "delete", "double"])):
            case "byte" if at < len(changed):
                changed[at] = draw(U8)
            case "bit" if at < len(changed):
                changed[at] ^= 1 << draw(st.integers(0, 7))
            case "half" if at + 2 <= len(changed):
                struct.pack_into("<H", changed, at & ~1, draw(U16))
            case "word" if at & ~3 <= len(changed) - 4:
                struct.pack_into("<I", changed, at & ~3, draw(U32))
            case "cut":
                del changed[at:]
            case "insert":
                changed[at:at] = draw(st.binary(max_size=8))
            case "delete":
                del changed[at : at + draw(st.integers(1, 8))]
            case "double":
                changed[at:at] = changed[at : at + draw(st.integers(1, 40))]
            case _:
                pass
    if draw(st.booleans()) and len(changed) >= base_header.sizeof():
        # Correct PacketSize, so that a parser does not stop there.
        session = BaseHeader.session_header.within(changed[base_header.offset_of("flags")])
        internal = BaseHeader.internal.within(changed[base_header.offset_of("flags")])
        size = len(changed) - (16 if session and not internal else 0)
        struct.pack_into("<I", changed, base_header.offset_of("packet_size"), max(size, 0))
    return bytes(changed)


@made_once
def nearly_valid_packets() -> st.SearchStrategy[bytes]:
    """Return a strategy for packets that were valid before a few mutations. Some of them still are."""
    return packets().map(encode_packet).flatmap(mutated)


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw a way to cut `data` into pieces, such as TCP might deliver."""
    cuts = sorted(draw(st.sets(st.integers(0, len(data)))))
    return [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True)]
