"""The codec that nodes run: generated.py, about eighty times as fast as interpreting the layouts.

That code only accepts or refuses. After a refusal, the reference codec takes the same bytes, or the same record, and
words the error. So both refuse the same input by construction, and a test checks that they accept the same input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

from mqproto.wire import reference
from mqproto.wire.generated import (
    build_connection_parameters,
    build_establish_connection,
    build_session_ack,
    build_session_header,
    build_user_message,
    check_each_mqf_format_name_element,
    check_user_message,
    read_connection_parameters,
    read_establish_connection,
    read_session_ack,
    read_session_header,
    read_user_message,
)
from mqproto.wire.layouts.base import BaseHeader, base_header
from mqproto.wire.layouts.internal import (
    CONNECTION_PARAMETERS,
    ESTABLISH_CONNECTION,
    SESSION_ACK,
    ConnectionParameters,
    EstablishConnection,
    InternalHeader,
    SessionAck,
    internal_header,
)
from mqproto.wire.layouts.multiqueue import mqf_format_name_element
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import Packet, UserMessage
from mqproto.wire.schema.record import Record
from mqproto.wire.schema.refused import REFUSALS, Refused
from mqproto.wire.schema.stream import Onlooker

_read_internal: Final[dict[int, Callable[[bytes], Packet]]] = {
    SESSION_ACK: read_session_ack,
    ESTABLISH_CONNECTION: read_establish_connection,
    CONNECTION_PARAMETERS: read_connection_parameters,
}
_build_internal: Final[dict[type, Callable[[Any], bytes]]] = {
    SessionAck: build_session_ack,
    EstablishConnection: build_establish_connection,
    ConnectionParameters: build_connection_parameters,
}

_internal_flags = struct.Struct(internal_header.struct_format("flags"))
_INTERNAL: Final = BaseHeader.internal.mask
_SESSION: Final = BaseHeader.session_header.mask
_INTERNAL_OR_SESSION: Final = _INTERNAL | _SESSION
_SESSION_HEADER_SIZE: Final = session_header.sizeof()
_BASE_HEADER_SIZE: Final = base_header.sizeof()
_PACKET_TYPE: Final = InternalHeader.packet_type.mask
assert _PACKET_TYPE & 1, "the type is the lowest bits of its word"

_FLAGS_AT: Final = base_header.offset_of("flags")
assert _INTERNAL_OR_SESSION < 0x100, "the bits lie in the first byte of the flags"


def decode_packet(data: bytes | bytearray | memoryview) -> Packet:
    """Turn one whole packet into its record.  [MS-MQQB] 3.1.5.1.1, 3.1.5.1.2

    Args:
        data: the bytes from the BaseHeader to the last padding byte, and the SessionHeader beyond PacketSize if a
            UserMessage has one; in total at most 4 MiB plus 16 bytes.

    Raises:
        WireFormatError: the bytes do not form a packet of [MS-MQQB] 2.2.
    """
    if type(data) is not bytes:
        data = bytes(data)
    try:
        # Most packets are UserMessages without a SessionHeader, so they skip one call.
        if data[_FLAGS_AT] & _INTERNAL_OR_SESSION:
            return decode_or_refuse(data)
        return read_user_message(data, None)
    except REFUSALS as refusal:
        _explain(data, refusal)


def _explain(data: bytes, refusal: Exception) -> NoReturn:
    """Raise the reference codec's error about a packet.

    Only that codec has texts for errors, and it must refuse the packet, too.
    """

    def skip(item: Record[Any], at: int, end: int) -> int:
        assert item is mqf_format_name_element, "lists are of nothing else"
        try:
            after = check_each_mqf_format_name_element(data, at, end, 1)
        except REFUSALS:
            return -1
        return after if after <= end else -1

    reference.read(data, Onlooker(skip=skip))
    raise AssertionError("the generated codec refuses what the reference reads") from refusal


def decode_message(data: bytes | bytearray | memoryview) -> UserMessage:
    """Decode a packet that is known to be a UserMessage."""
    message = decode_packet(data)
    assert isinstance(message, UserMessage), "it is another packet"
    return message


def decode_or_refuse(data: bytes) -> Packet:
    """Decode with only the generated code, for callers that need no error text.

    A fault raises one of REFUSALS.
    """
    flags = data[_FLAGS_AT] & _INTERNAL_OR_SESSION
    packet: Packet
    if not flags:
        packet = read_user_message(data, None)
    elif flags == _SESSION:
        session = read_session_header(data[-_SESSION_HEADER_SIZE:])
        packet = read_user_message(data[:-_SESSION_HEADER_SIZE], session)
    else:
        [internal_flags] = _internal_flags.unpack_from(data, _BASE_HEADER_SIZE)
        read = _read_internal.get(internal_flags & _PACKET_TYPE)
        if read is None:
            raise Refused
        packet = read(data)
    return packet


def check_packet(data: bytes | bytearray | memoryview) -> None:
    """Refuse whatever `decode_packet` refuses, but do not make a record.

    For a UserMessage, this takes less than half the time. An intermediate node must judge the whole of a peer's packet,
    but needs only the fields that glance.py reads.

    Raises:
        WireFormatError: as for `decode_packet`.
    """
    if type(data) is not bytes:
        data = bytes(data)
    try:
        check_or_refuse(data)
    except REFUSALS as refusal:
        _explain(data, refusal)


def check_or_refuse(data: bytes) -> None:
    """Check with only the generated code, for callers that need no error text.

    A fault raises one of REFUSALS.
    """
    flags = data[_FLAGS_AT] & _INTERNAL_OR_SESSION
    if not flags:
        check_user_message(data)
    elif flags == _SESSION:
        read_session_header(data[-_SESSION_HEADER_SIZE:])
        check_user_message(data[:-_SESSION_HEADER_SIZE])
    else:
        decode_or_refuse(data)


def encode_packet(packet: Packet) -> bytes:
    """Return the bytes of a packet, with its SessionHeader. Sizes and counts follow from its contents.

    Raises:
        UsageError: a value breaks a rule of the specification, or the flags announce headers other than those that are
            present.
    """
    try:
        if type(packet) is not UserMessage:
            if (build := _build_internal.get(type(packet))) is None:
                raise Refused
            return build(packet)
        session = packet.session
        if packet.base.flags & _SESSION:
            return build_user_message(packet) + build_session_header(session)
        if session is not None:
            raise Refused
        return build_user_message(packet)
    except REFUSALS as refusal:
        reference.packet.build(packet)
        raise AssertionError("the generated codec refuses what the reference writes") from refusal
