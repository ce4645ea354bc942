"""Writes a UserMessage by hand."""

from __future__ import annotations

from codecs import utf_16_le_encode
from typing import Any, Final

from mqproto.wire.generator import Refused
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.multiqueue import MultiQueueFormatHeader, multi_queue_format_header
from mqproto.wire.layouts.security import SecurityHeader
from mqproto.wire.layouts.session import SessionHeader
from mqproto.wire.layouts.soap import SoapHeader
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.layout import PacketStream
from mqproto.wire.schema.record import to_containers
from tests.bench.byhand.formats import (
    COUNT,
    DEBUG,
    HEAD,
    OTHER_NAMES,
    PROPERTIES,
    SECURITY,
    SESSION,
    SIGNATURE,
    SOAP,
    TRANSACTION,
    WORD,
)

_pack_head: Final = HEAD.pack
_pack_word: Final = WORD.pack
_pack_transaction: Final = TRANSACTION.pack
_pack_properties: Final = PROPERTIES.pack


def build(message: UserMessage) -> bytes:
    """The bytes of a UserMessage, its SessionHeader included.

    Raises:
        one of REFUSALS: a value breaks a rule, or the flags announce other headers than there are.
    """
    base, user, properties = message.base, message.user, message.properties
    base_flags, flags = base.flags, user.flags
    source, address, correlation_id = (
        user.source_queue_manager,
        user.queue_manager_address,
        properties.correlation_id,
    )
    if (
        base_flags & 0x0008
        or base_flags & 0x0120 == 0x0100
        or flags & 0x1F > 29
        or flags & 0x02200040 != 0x00200000
        or flags & 0x00100020 == 0x00100000
        or not 0b10101001 >> (flags >> 10 & 7) & 1
        or not 0b11101101 >> (flags >> 13 & 7) & 1
        or len(source) != 16
        or len(address) != 16
        or len(correlation_id) != 20
    ):
        raise Refused

    kind = flags >> 10 & 7
    if kind == 3:
        names = _pack_word(user.destination_queue)
        _fitting(user.destination_padding, 0)
    else:
        names = _build_name(kind, user.destination_queue, user.destination_padding, 64)
    if flags & OTHER_NAMES:
        names += _build_name(flags >> 13 & 7, user.admin_queue, user.admin_padding, 64 + len(names))
        names += _build_name(flags >> 16 & 7, user.response_queue, user.response_padding, 64 + len(names))
    else:
        if user.admin_queue is not None or user.response_queue is not None:
            raise Refused
        _fitting(user.admin_padding, 0)
        _fitting(user.response_padding, 0)
    if flags & 0x00400000:
        names += _sixteen(user.connector_type)
    elif user.connector_type is not None:
        raise Refused

    transaction = message.transaction
    middle = b""
    if flags & 0x00100000:
        if transaction is None:
            raise Refused
        identifier = transaction.tx_sequence_id
        tx_flags, number = transaction.flags, transaction.tx_sequence_number
        previous = transaction.previous_tx_sequence_number
        if number < 1 or previous > 0xFFFFFFFE:
            raise Refused
        middle = _pack_transaction(tx_flags, identifier.ordinal, identifier.time_stamp, number, previous)
        if tx_flags & 1:
            middle += _sixteen(transaction.connector_qm_guid)
        elif transaction.connector_qm_guid is not None:
            raise Refused
    elif transaction is not None:
        raise Refused
    if flags & 0x00080000:
        middle += _build_security(message.security)
    elif message.security is not None:
        raise Refused

    label, extension, body = properties.label, properties.extension_data, properties.message_body
    wire = b"" if label is None else _wide(label)
    label_length = len(wire) >> 1
    if label_length > 250:
        raise Refused
    fixed = _pack_properties(
        properties.flags,
        label_length,
        properties.message_class,
        correlation_id,
        properties.body_type,
        properties.application_tag,
        len(body),
        properties.allocation_body_size,
        properties.privacy_level,
        properties.hash_algorithm,
        properties.encryption_algorithm,
        len(extension),
    )
    at = 120 + len(names) + len(middle) + len(wire) + len(extension) + len(body)
    padding = _fitting(properties.padding, -at & 3)
    at += len(padding)
    rare = b""
    if base_flags & 0x0020:
        rare = _build_debug(message.debug)
    elif message.debug is not None:
        raise Refused
    if flags & 0x10000000:
        rare += _build_soap(message.soap)
    elif message.soap is not None:
        raise Refused
    if flags & 0x00800000:
        rare += _build_lists(message.multi_queue_format, at + len(rare))
    elif message.multi_queue_format is not None:
        raise Refused
    trailing = message.trailing
    packet_size = at + len(rare) + len(trailing)
    if packet_size > 0x00400000:
        raise Refused
    head = _pack_head(
        0x10,
        base.reserved,
        base_flags,
        SIGNATURE,
        packet_size,
        base.time_to_reach_queue_s,
        source,
        address,
        user.time_to_be_received_s,
        user.sent_time_s,
        user.message_id,
        flags,
    )
    session = b""
    if base_flags & 0x0010:
        session = _build_session(message.session)
    elif message.session is not None:
        raise Refused
    return b"".join((head, names, middle, fixed, wire, extension, body, padding, rare, trailing, session))


def _build_session(session: SessionHeader | None) -> bytes:
    if session is None or session.window_size < 1:
        raise Refused
    return SESSION.pack(
        session.ack_sequence_number,
        session.recoverable_msg_ack_seq_number,
        session.recoverable_msg_ack_flags,
        session.user_msg_sequence_number,
        session.recoverable_msg_seq_number,
        session.window_size,
        session.reserved,
    )


def _build_name(kind: int, name: Any, padding: bytes, at: int) -> bytes:
    """A queue name of UserHeader, with the padding behind it."""
    if kind < 2:
        if name is not None:
            raise Refused
        return _fitting(padding, 0)
    if kind < 5:
        return _pack_word(name) + _fitting(padding, 0)
    if kind == 5:
        return _sixteen(name) + _fitting(padding, 0)
    if kind == 6:
        identifier = name.private_queue_identifier
        return _sixteen(name.source_queue_manager) + _pack_word(identifier) + _fitting(padding, 0)
    wire = _wide(name)
    return COUNT.pack(len(wire)) + wire + _fitting(padding, -(at + 2 + len(wire)) & 3)


def _build_security(security: SecurityHeader | None) -> bytes:
    if security is None:
        raise Refused
    items = (
        (security.sender_id, security.sender_id_padding),
        (security.encryption_key, security.encryption_key_padding),
        (security.signature, security.signature_padding),
        (security.sender_cert, security.sender_cert_padding),
        (security.provider_info, security.provider_info_padding),
    )
    sizes = [len(item) for item, _ in items]
    flags = security.flags
    if flags & 0xF > 2 or (not flags & 0xF and sizes[0]) or sizes[3] > 0xFFFF or not any(sizes):
        raise Refused
    pieces = [SECURITY.pack(flags, *sizes)]
    for item, padding in items:
        pieces += [item, _fitting(padding, -len(item) & 3)]
    return b"".join(pieces)


def _build_debug(debug: DebugHeader | None) -> bytes:
    if debug is None or debug.flags & 3 > 1:
        raise Refused
    fixed = DEBUG.pack(debug.flags, debug.reserved)
    if debug.flags & 3:
        return fixed + _sixteen(debug.queue_identifier)
    if debug.queue_identifier is not None:
        raise Refused
    return fixed


def _build_soap(soap: SoapHeader | None) -> bytes:
    if soap is None:
        raise Refused
    header = b"" if soap.header is None else _wide(soap.header)
    body = b"" if soap.body is None else _wide(soap.body)
    return b"".join(
        (
            SOAP.pack(0x0320, soap.reserved, len(header) >> 1),
            header,
            SOAP.pack(0x0384, soap.reserved1, len(body) >> 1),
            body,
        )
    )


def _sixteen(value: Any) -> bytes:
    if len(value) != 16:
        raise Refused
    octets: bytes = b"" + value  # text is refused here
    return octets


def _fitting(padding: bytes, size: int) -> bytes:
    return padding if len(padding) == size else bytes(size)


def _wide(text: str) -> bytes:
    if "\0" in text:
        raise Refused
    return utf_16_le_encode(text, "surrogatepass")[0] + b"\0\0"


def _build_lists(lists: MultiQueueFormatHeader | None, at: int) -> bytes:
    stream = PacketStream(b"", at)
    try:
        multi_queue_format_header.build_stream(to_containers(lists), stream)
    except ValueError as error:
        raise Refused from error
    return stream.getvalue()
