"""Reads a UserMessage by hand."""

from __future__ import annotations

from codecs import utf_16_le_decode
from typing import Any, Final

from mqproto.wire.generator import Refused
from mqproto.wire.guid import Guid
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.debug import DebugHeader
from mqproto.wire.layouts.multiqueue import MultiQueueFormatHeader, multi_queue_format_header
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from mqproto.wire.layouts.security import SecurityHeader
from mqproto.wire.layouts.session import SessionHeader
from mqproto.wire.layouts.soap import SoapHeader
from mqproto.wire.layouts.transaction import TransactionHeader, TxSequenceId
from mqproto.wire.layouts.user import PrivateQueueFormatName, QueueName, UserHeader
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.layout import PacketStream
from mqproto.wire.schema.record import to_records
from tests.bench.byhand.formats import (
    COUNT,
    DEBUG,
    HEAD,
    OTHER_NAMES,
    PRIVATE,
    PROPERTIES,
    SECURITY,
    SESSION,
    SIGNATURE,
    SOAP,
    TRANSACTION,
    WORD,
)

_unpack_head: Final = HEAD.unpack_from
_unpack_word: Final = WORD.unpack_from
_unpack_transaction: Final = TRANSACTION.unpack_from
_unpack_properties: Final = PROPERTIES.unpack_from
_new: Final = object.__new__
# A frozen record is filled through its slots.
_slots: Final = vars(TxSequenceId)
_set_time_stamp: Final = _slots["time_stamp"].__set__
_set_ordinal: Final = _slots["ordinal"].__set__


def parse(data: bytes) -> UserMessage:
    """One whole UserMessage, its SessionHeader included.

    Raises:
        one of REFUSALS: the bytes form none.
    """
    if type(data) is not bytes:
        data = bytes(data)
    end = len(data)
    (
        version,
        base_reserved,
        base_flags,
        signature,
        packet_size,
        to_reach_queue_s,
        source,
        address,
        to_be_received_s,
        sent_time_s,
        message_id,
        flags,
    ) = _unpack_head(data)
    if (
        version != 0x10
        or signature != SIGNATURE
        or base_flags & 0x0008  # internal
        or base_flags & 0x0120 == 0x0100  # TR without DH
        or not 120 <= packet_size <= 0x00400000
        or flags & 0x1F > 29  # hops
        or flags & 0x02200040 != 0x00200000  # over HTTP, has properties, delivery mode above 1
        or flags & 0x00100020 == 0x00100000  # transactional and express
        or not 0b10101001 >> (flags >> 10 & 7) & 1  # destination
        or not 0b11101101 >> (flags >> 13 & 7) & 1  # administration queue
    ):
        raise Refused

    session = None
    if base_flags & 0x0010:
        end -= 16
        session = _parse_session(data, end)
    if packet_size != end:
        raise Refused

    destination: QueueName
    admin: QueueName = None
    response: QueueName = None
    connector = None
    padding = admin_padding = response_padding = b""
    kind = flags >> 10 & 7
    if kind == 3:
        (destination,) = _unpack_word(data, 64)
        at = 68
    elif kind == 0:
        destination = None
        at = 64
    else:
        destination, padding, at = _parse_name(kind, data, 64, end)
    if flags & OTHER_NAMES:
        admin, admin_padding, at = _parse_name(flags >> 13 & 7, data, at, end)
        response, response_padding, at = _parse_name(flags >> 16 & 7, data, at, end)
    if flags & 0x00400000:
        connector = Guid(_octets(data, at, 16, end))
        at += 16

    transaction = None
    if flags & 0x00100000:
        (tx_flags, ordinal, time_stamp, number, previous) = _unpack_transaction(data, at)
        if number < 1 or previous > 0xFFFFFFFE:
            raise Refused
        at += 20
        identifier = _new(TxSequenceId)
        _set_time_stamp(identifier, time_stamp)
        _set_ordinal(identifier, ordinal)
        transaction = _new(TransactionHeader)
        transaction.flags = tx_flags
        transaction.tx_sequence_id = identifier
        transaction.tx_sequence_number = number
        transaction.previous_tx_sequence_number = previous
        if tx_flags & 1:
            transaction.connector_qm_guid = Guid(_octets(data, at, 16, end))
            at += 16
        else:
            transaction.connector_qm_guid = None
    security = None
    if flags & 0x00080000:
        security, at = _parse_security(data, at, end)

    (
        properties_flags,
        label_length,
        message_class,
        correlation_id,
        body_type,
        application_tag,
        body_size,
        allocation_size,
        privacy_level,
        hash_algorithm,
        encryption_algorithm,
        extension_size,
    ) = _unpack_properties(data, at)
    at += 56
    label = None
    if label_length:
        stop = at + 2 * label_length
        if label_length > 250 or stop > end:
            raise Refused
        label = _text(data, at, stop)
        at = stop
    extension = b""
    if extension_size:
        stop = at + extension_size
        if stop > end:
            raise Refused
        extension = data[at:stop]
        at = stop
    stop = at + body_size
    if stop > end:
        raise Refused
    body = data[at:stop]
    at = stop
    body_padding = b""
    if at & 3:
        stop = (at + 3) & ~3
        if stop > end:
            raise Refused
        body_padding = data[at:stop]
        at = stop

    debug = soap = lists = None
    trailing = b""
    if base_flags & 0x0020:
        debug, at = _parse_debug(data, at, end)
    if flags & 0x10000000:
        soap, at = _parse_soap(data, at, end)
    if flags & 0x00800000:
        lists, at = _read_lists(data[:end], at)
    if at != end:
        trailing = data[at:end]

    base = _new(BaseHeader)
    base.reserved = base_reserved
    base.flags = base_flags
    base.time_to_reach_queue_s = to_reach_queue_s
    user = _new(UserHeader)
    user.source_queue_manager = source
    user.queue_manager_address = address
    user.time_to_be_received_s = to_be_received_s
    user.sent_time_s = sent_time_s
    user.message_id = message_id
    user.flags = flags
    user.destination_queue = destination
    user.destination_padding = padding
    user.admin_queue = admin
    user.admin_padding = admin_padding
    user.response_queue = response
    user.response_padding = response_padding
    user.connector_type = connector
    properties = _new(MessagePropertiesHeader)
    properties.flags = properties_flags
    properties.message_class = message_class
    properties.correlation_id = correlation_id
    properties.body_type = body_type
    properties.application_tag = application_tag
    properties.allocation_body_size = allocation_size
    properties.privacy_level = privacy_level
    properties.hash_algorithm = hash_algorithm
    properties.encryption_algorithm = encryption_algorithm
    properties.label = label
    properties.extension_data = extension
    properties.message_body = body
    properties.padding = body_padding
    message = _new(UserMessage)
    message.base = base
    message.user = user
    message.transaction = transaction
    message.security = security
    message.properties = properties
    message.debug = debug
    message.soap = soap
    message.multi_queue_format = lists
    message.session = session
    message.trailing = trailing
    return message


def _parse_session(data: bytes, at: int) -> SessionHeader:
    values = SESSION.unpack_from(data, at)
    if values[5] < 1:
        raise Refused
    return SessionHeader(*values)


def _parse_name(kind: int, data: bytes, at: int, end: int) -> tuple[QueueName, bytes, int]:
    """A queue name of UserHeader, the padding behind it, and where that ends."""
    if kind < 2:
        return None, b"", at
    if kind < 5:
        return _unpack_word(data, at)[0], b"", at + 4
    if kind == 5:
        return Guid(_octets(data, at, 16, end)), b"", at + 16
    if kind == 6:
        return PrivateQueueFormatName(*PRIVATE.unpack_from(data, at)), b"", at + 20
    (size,) = COUNT.unpack_from(data, at)
    stop = at + 2 + size
    if size < 2 or size & 1 or stop > end:
        raise Refused
    name = _text(data, at + 2, stop)
    if not stop & 3:
        return name, b"", stop
    return name, _octets(data, stop, -stop & 3, end), (stop + 3) & ~3


def _parse_security(data: bytes, at: int, end: int) -> tuple[SecurityHeader, int]:
    flags, *sizes = SECURITY.unpack_from(data, at)
    if flags & 0xF > 2 or (not flags & 0xF and sizes[0]) or sizes[3] > 0xFFFF or not any(sizes):
        raise Refused
    at += 16
    items = []
    for size in sizes:
        items.append(_octets(data, at, size, end))
        at += size
        items.append(_octets(data, at, -at & 3, end))
        at = (at + 3) & ~3
    return SecurityHeader(flags, *items), at


def _parse_debug(data: bytes, at: int, end: int) -> tuple[DebugHeader, int]:
    flags, reserved = DEBUG.unpack_from(data, at)
    if flags & 3 > 1:
        raise Refused
    if not flags & 3:
        return DebugHeader(flags, reserved), at + 4
    return DebugHeader(flags, reserved, Guid(_octets(data, at + 4, 16, end))), at + 20


def _parse_soap(data: bytes, at: int, end: int) -> tuple[SoapHeader, int]:
    values: list[Any] = []
    for section in (0x0320, 0x0384):
        found, reserved, length = SOAP.unpack_from(data, at)
        at += 8
        stop = at + 2 * length
        if found != section or stop > end:
            raise Refused
        values += [reserved, _text(data, at, stop) if length else None]
        at = stop
    return SoapHeader(*values), at


def _read_lists(data: bytes, at: int) -> tuple[MultiQueueFormatHeader, int]:
    stream = PacketStream(data[at:], at)
    try:
        lists: MultiQueueFormatHeader = to_records(multi_queue_format_header.parse_stream(stream))
    except ValueError as error:
        raise Refused from error
    return lists, stream.tell()


def _octets(data: bytes, at: int, size: int, end: int) -> bytes:
    if at + size > end:
        raise Refused
    return data[at : at + size]


def _text(data: bytes, at: int, stop: int) -> str:
    """UTF-16 that ends with its only NUL, without that."""
    text = utf_16_le_decode(data[at : stop - 2], "surrogatepass", True)[0]
    if data[stop - 2] or data[stop - 1] or "\0" in text:
        raise Refused
    return text
