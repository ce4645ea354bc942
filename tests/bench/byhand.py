"""UserMessages read and written by hand with `struct`: the yardstick for the generated codec.

A careful engineer who cares only about this packet would write this code. It makes the same records, and checks
everything that the layouts check. Each section is bounded by the end of the packet, reserved bits are kept, and the
common packet is handled first. Records that every packet has are made without their `__init__`, as in the generated
codec, because there is no quicker way. So the comparison with this code shows the cost of generated code, and not the
cost of objects. Headers that the measured messages do not have are left to the library `construct`.

test_byhand.py compares this code with the codec on valid and on broken packets. Nobody should prefer this code, because
every offset and every rule is written twice, and it does not give reasons for refusals.  [MS-MQMQ] 2.2.19, 2.2.20
"""

from __future__ import annotations

import struct
from codecs import utf_16_le_decode, utf_16_le_encode
from typing import Any, Final

from mqproto.wire.guid import Guid
from mqproto.wire.layouts.base import BaseHeader
from mqproto.wire.layouts.debug import debug_header
from mqproto.wire.layouts.multiqueue import multi_queue_format_header
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from mqproto.wire.layouts.security import security_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.soap import soap_header
from mqproto.wire.layouts.transaction import TransactionHeader, TxSequenceId
from mqproto.wire.layouts.user import PrivateQueueFormatName, QueueName, UserHeader
from mqproto.wire.packets import UserMessage
from mqproto.wire.schema.layout import plain
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import Refused
from mqproto.wire.schema.stream import PacketStream

HEAD: Final = struct.Struct("<BBHIII16s16sIIII")
"""The form of the BaseHeader and the fixed part of the UserHeader."""
TRANSACTION: Final = struct.Struct("<IIIII")
PROPERTIES: Final = struct.Struct("<BBH20sIIIIIIII")
PRIVATE: Final = struct.Struct("<16sI")
WORD: Final = struct.Struct("<I")
COUNT: Final = struct.Struct("<H")

SIGNATURE: Final = 0x524F494C
OTHER_NAMES: Final = 0x7 << 13 | 0x7 << 16
"""The bits of AdminType and ResponseType in the flags of a UserHeader."""

_unpack_head: Final = HEAD.unpack_from
_unpack_word: Final = WORD.unpack_from
_unpack_transaction: Final = TRANSACTION.unpack_from
_unpack_properties: Final = PROPERTIES.unpack_from
_new: Final = object.__new__
# A frozen record is filled through its slots.
_slots: Final = vars(TxSequenceId)
_set_time_stamp: Final = _slots["time_stamp"].__set__
_set_ordinal: Final = _slots["ordinal"].__set__
_pack_head: Final = HEAD.pack
_pack_word: Final = WORD.pack
_pack_transaction: Final = TRANSACTION.pack
_pack_properties: Final = PROPERTIES.pack


def parse(data: bytes) -> UserMessage:
    """Read one whole UserMessage, including its SessionHeader.

    Raises:
        one of REFUSALS: the bytes are not a UserMessage.
    """
    if type(data) is not bytes:
        data = bytes(data)
    end = len(data)
    (
        version, base_reserved, base_flags, signature, packet_size, to_reach_queue_s, source, address,
        to_be_received_s, sent_time_s, message_id, flags
    ) = _unpack_head(data)  # fmt: skip
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
        session, _ = _parse_rare(session_header, data, end)
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
        security, at = _parse_rare(security_header, data[:end], at)

    (
        properties_flags, label_length, message_class, correlation_id, body_type, application_tag, body_size,
        allocation_size, privacy_level, hash_algorithm, encryption_algorithm, extension_size
    ) = _unpack_properties(data, at)  # fmt: skip
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
        debug, at = _parse_rare(debug_header, data[:end], at)
    if flags & 0x10000000:
        soap, at = _parse_rare(soap_header, data[:end], at)
    if flags & 0x00800000:
        lists, at = _parse_rare(multi_queue_format_header, data[:end], at)
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


def _parse_name(kind: int, data: bytes, at: int, end: int) -> tuple[QueueName, bytes, int]:
    """Read a queue name of the UserHeader and the padding after it. Return both, and where the padding ends."""
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


def _parse_rare(record: Record[Any], data: bytes, at: int) -> tuple[Any, int]:
    """Use construct to read a header that few messages have. Return it, and where it ends."""
    stream = PacketStream(data[at:], at)
    try:
        return record.typed(record.parse_stream(stream)), stream.tell()
    except ValueError as error:
        raise Refused from error


def _octets(data: bytes, at: int, size: int, end: int) -> bytes:
    if at + size > end:
        raise Refused
    return data[at : at + size]


def _text(data: bytes, at: int, stop: int) -> str:
    """Return UTF-16 text without its final NUL. It must not contain another NUL."""
    text = utf_16_le_decode(data[at : stop - 2], "surrogatepass", True)[0]
    if data[stop - 2] or data[stop - 1] or "\0" in text:
        raise Refused
    return text


def build(message: UserMessage) -> bytes:
    """Return the bytes of a UserMessage, including its SessionHeader.

    Raises:
        one of REFUSALS: a value breaks a rule, or the flags announce headers other than those that the message has.
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
        middle += _build_rare(security_header, message.security, 64 + len(names) + len(middle))
    elif message.security is not None:
        raise Refused

    label, extension, body = properties.label, properties.extension_data, properties.message_body
    wire = b"" if label is None else _wide(label)
    label_length = len(wire) >> 1
    if label_length > 250:
        raise Refused
    fixed = _pack_properties(
        properties.flags, label_length, properties.message_class, correlation_id, properties.body_type,
        properties.application_tag, len(body), properties.allocation_body_size, properties.privacy_level,
        properties.hash_algorithm, properties.encryption_algorithm, len(extension)
    )  # fmt: skip
    at = 120 + len(names) + len(middle) + len(wire) + len(extension) + len(body)
    padding = _fitting(properties.padding, -at & 3)
    at += len(padding)
    rare = b""
    if base_flags & 0x0020:
        rare = _build_rare(debug_header, message.debug, at)
    elif message.debug is not None:
        raise Refused
    if flags & 0x10000000:
        rare += _build_rare(soap_header, message.soap, at + len(rare))
    elif message.soap is not None:
        raise Refused
    if flags & 0x00800000:
        rare += _build_rare(multi_queue_format_header, message.multi_queue_format, at + len(rare))
    elif message.multi_queue_format is not None:
        raise Refused
    trailing = message.trailing
    packet_size = at + len(rare) + len(trailing)
    if packet_size > 0x00400000:
        raise Refused
    head = _pack_head(
        0x10, base.reserved, base_flags, SIGNATURE, packet_size, base.time_to_reach_queue_s, source, address,
        user.time_to_be_received_s, user.sent_time_s, user.message_id, flags
    )  # fmt: skip
    session = b""
    if base_flags & 0x0010:
        session = _build_rare(session_header, message.session, packet_size)
    elif message.session is not None:
        raise Refused
    return b"".join((head, names, middle, fixed, wire, extension, body, padding, rare, trailing, session))


def _build_name(kind: int, name: Any, padding: bytes, at: int) -> bytes:
    """Return the bytes of a queue name of the UserHeader, with the padding after it."""
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


def _build_rare(record: Record[Any], value: Any, at: int) -> bytes:
    """Use construct to build a header that few messages have. Return its bytes."""
    stream = PacketStream(b"", at)
    try:
        record.build_stream(plain(value), stream)
    except ValueError as error:
        raise Refused from error
    return stream.getvalue()
