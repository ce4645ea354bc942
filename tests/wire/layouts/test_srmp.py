"""The headers that follow if AH is set: analysts see them, the codec refuses them by name, and false sizes are
reported.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.wire import Inspection, decode_packet, encode_packet, inspect_packet
from mqproto.wire.layouts.srmp import QUEUE_JUMPER
from mqproto.wire.packets import SrmpMessage
from tests.examples import a_user_message

ENVELOPE = "<se:Envelope/>\0".encode("utf-16-le")
REQUEST = b"POST /msmq HTTP/1.1\r\n\r\nMessage\0\0"
CHARACTERS = len(ENVELOPE) // 2
SIZES = ("characters", "request_size", "body_size", "body_at")
"""The names of the arguments of `headers` that are sizes."""


def over_http(behind: bytes) -> bytes:
    """Return a message with AH set, and with these bytes after its MessagePropertiesHeader."""
    packet = bytearray(encode_packet(a_user_message(body=b"")) + behind)
    [flags] = struct.unpack_from("<I", packet, 60)
    struct.pack_into("<I", packet, 60, flags | 1 << 25)
    struct.pack_into("<I", packet, 8, len(packet))
    return bytes(packet)


def headers(
    characters: int = CHARACTERS, request_size: int = len(REQUEST), body_size: int = 7, body_at: int = 23
) -> bytes:
    envelope = struct.pack("<HHI", 0, 0, characters) + ENVELOPE
    compound = struct.pack("<HHIII", 500, 0, request_size, body_size, body_at) + REQUEST
    return envelope + bytes(-len(envelope) % 4) + compound


def errors(inspection: Inspection) -> list[WireFormatError]:
    """Return all errors except the one about AH."""
    first, *others = [each for each in inspection.findings if isinstance(each, WireFormatError)]
    assert first.field == "user.over_http"
    return others


@pytest.mark.spec("[MS-MQRR] 2.2.5.1.2.1")
@pytest.mark.spec("[MS-MQRR] 2.2.5.1.2.2")
def test_both_headers_are_shown_and_what_stands_behind_them() -> None:
    inspection = inspect_packet(over_http(headers() + b"\x0c\0\0\0"))
    assert errors(inspection) == []
    shown = {field.name: field.value for field in inspection.fields}
    assert shown["srmp_envelope.data"] == "<se:Envelope/>"
    assert shown["compound_message.header_id"] == 500
    assert shown["compound_message.data"] == REQUEST
    assert shown["trailing"] == b"\x0c\0\0\0"
    assert isinstance(inspection.packet, SrmpMessage)


def test_the_codec_refuses_them_by_name() -> None:
    with pytest.raises(WireFormatError, match="SRMPEnvelopeHeader"):
        decode_packet(over_http(headers()))


@pytest.mark.parametrize(
    ("behind", "field", "words"),
    [
        (headers(characters=CHARACTERS + 2**31), "srmp_envelope.data_length", "in 32 bits 0x10000001e is 30"),
        (headers(characters=0x8000000), "srmp_envelope.data_length", "it lies"),
        (headers(request_size=2**32 - 1), "compound_message.http_body_size", "it lies"),
        (headers(request_size=len(REQUEST) + 1), "compound_message.http_body_size", "as 32 bytes are left"),
    ],
)
def test_a_size_that_lies_is_named(behind: bytes, field: str, words: str) -> None:
    [error] = errors(inspect_packet(over_http(behind)))
    assert error.field == field
    assert words in str(error)
    assert QUEUE_JUMPER in str(error)


@pytest.mark.parametrize(("size", "at"), [(8, 25), (33, 0), (0, 2**32 - 1), (2**32 - 1, 1)])
def test_a_body_outside_of_the_request_is_a_fault_without_that_name(size: int, at: int) -> None:
    [error] = errors(inspect_packet(over_http(headers(body_size=size, body_at=at))))
    assert error.field == "compound_message.msg_body_size"
    assert QUEUE_JUMPER not in str(error)


def test_a_packet_of_which_the_end_is_missing_does_not_lie() -> None:
    whole = over_http(headers())
    for size in range(len(whole) - len(headers()) + 8, len(whole)):
        found = " ".join(map(str, inspect_packet(whole[:size]).findings))
        assert "base.packet_size" in found
        assert QUEUE_JUMPER not in found


@given(st.binary(max_size=60))
def test_whatever_stands_there_every_byte_is_shown_once(behind: bytes) -> None:
    data = over_http(behind)
    inspection = inspect_packet(data)
    assert b"".join(field.raw for field in inspection.fields) == data
    assert not inspection.is_valid
