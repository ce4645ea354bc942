"""Layout and record stay together; flag words have names for their bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from construct import Const, Int8ul, Int16ul, Int32ul, Rebuild, len_, this
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.testing import (
    base_headers,
    debug_headers,
    message_properties_headers,
    multi_queue_format_headers,
    security_headers,
    session_headers,
    soap_headers,
    transaction_headers,
    tx_sequence_ids,
    user_headers,
)
from mqproto.wire import BaseHeader, ProviderInfo, TransactionHeader, UserHeader
from mqproto.wire.layouts.base import base_header
from mqproto.wire.layouts.debug import debug_header
from mqproto.wire.layouts.multiqueue import multi_queue_format_header
from mqproto.wire.layouts.properties import message_properties_header
from mqproto.wire.layouts.security import provider_info, security_header
from mqproto.wire.layouts.session import session_header
from mqproto.wire.layouts.soap import soap_header
from mqproto.wire.layouts.transaction import transaction_header, tx_sequence_id
from mqproto.wire.layouts.user import user_header
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import Octets, Text, wide_size_
from mqproto.wire.schema.record import Record

HEADERS: list[tuple[Record[Any], st.SearchStrategy[Any]]] = [
    (user_header, user_headers()),
    (transaction_header, transaction_headers()),
    (security_header, security_headers()),
    (message_properties_header, message_properties_headers()),
    (debug_header, debug_headers()),
    (soap_header, soap_headers()),
    (multi_queue_format_header, multi_queue_format_headers()),
    (session_header, session_headers()),
    (tx_sequence_id, tx_sequence_ids()),
]


@pytest.mark.parametrize(("record", "values"), HEADERS, ids=[record.kind.__name__ for record, _ in HEADERS])
@given(data=st.data())
def test_a_header_by_itself_survives_the_round_trip(
    record: Record[Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    encoded = record.encode(value)
    assert record.decode(encoded) == value
    assert record.encode(record.decode(encoded)) == encoded


@given(base_headers())
def test_a_base_header_is_16_bytes_with_the_size_that_it_is_told(header: BaseHeader) -> None:
    encoded = base_header.encode(header, packet_size=1000)
    assert len(encoded) == 16
    assert encoded[8:12] == (1000).to_bytes(4, "little")
    assert base_header.decode(encoded) == header


@dataclass
class Pair:
    left: int = 0
    right: bytes = b""


def test_a_record_without_a_field_of_the_layout_is_found_at_import() -> None:
    with pytest.raises(AssertionError):
        Record(Pair, Layout("[X] 1", "left" / Int8ul, "right" / Octets(2), "third" / Int8ul))


def test_a_layout_without_a_field_of_the_record_is_found_at_import() -> None:
    with pytest.raises(AssertionError):
        Record(Pair, Layout("[X] 1", "left" / Int8ul))


pair = Record(
    Pair,
    Layout(
        "[X] 1",
        "magic" / Const(0xAA, Int8ul),
        "left" / Int16ul,
        Must("left", this.left != 7, "anything but 7"),
        "size" / Rebuild(Int32ul, len_(this.right)),
        "right" / Octets(this.size),
    ),
)


def test_what_follows_from_the_content_is_computed_and_not_in_the_record() -> None:
    assert pair.encode(Pair(1, b"abc")) == bytes.fromhex("aa 0100 03000000") + b"abc"


@pytest.mark.parametrize(
    ("data", "field", "offset", "value", "limit"),
    [
        ("ab", "magic", 0, 0xAB, "0xaa"),
        ("aa 01", "left", 1, "1 bytes", "2 bytes"),
        ("aa 0700", "left", 1, 7, "anything but 7"),
        ("aa 0100 05000000 61", "right", 7, "1 bytes", "5 bytes"),
        ("aa 0100 00000000 61", "after the last field", 7, "1 bytes", "the end"),
    ],
)
def test_bytes_that_form_no_record_are_refused_in_its_words(
    data: str, field: str, offset: int, value: object, limit: str
) -> None:
    with pytest.raises(WireFormatError) as caught:
        pair.decode(bytes.fromhex(data))
    error = caught.value
    assert (error.field, error.offset, error.value, error.limit) == (field, offset, value, limit)
    assert error.section == "[X] 1"


def test_a_record_that_breaks_a_rule_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="left is 7, must be anything but 7"):
        pair.encode(Pair(7, b""))
    with pytest.raises(UsageError, match="left is 65536"):
        pair.encode(Pair(65536, b""))


def test_offsets_are_the_sizes_of_the_fields_before() -> None:
    assert [pair.offset_of(name) for name in ("magic", "left", "size", "right")] == [0, 1, 3, 7]
    assert pair.struct_format("left", "size") == "<xHL"
    with pytest.raises(KeyError):
        session_header.offset_of("middle")


BITS = [
    (UserHeader, "hop_count", 0x0000001F),
    (UserHeader, "delivery_mode", 0x00000060),
    (UserHeader, "journal_negative", 0x00000100),
    (UserHeader, "journal_positive", 0x00000200),
    (UserHeader, "destination_type", 0x00001C00),
    (UserHeader, "admin_type", 0x0000E000),
    (UserHeader, "response_type", 0x00070000),
    (UserHeader, "has_security", 0x00080000),
    (UserHeader, "has_transaction", 0x00100000),
    (UserHeader, "has_properties", 0x00200000),
    (UserHeader, "has_connector_type", 0x00400000),
    (UserHeader, "has_multi_queue_format", 0x00800000),
    (UserHeader, "over_http", 0x02000000),
    (UserHeader, "has_soap", 0x10000000),
    (BaseHeader, "priority", 0x0007),
    (BaseHeader, "internal", 0x0008),
    (BaseHeader, "session_header", 0x0010),
    (BaseHeader, "debug_header", 0x0020),
    (BaseHeader, "trace", 0x0100),
    (TransactionHeader, "connector", 0x1),
    (TransactionHeader, "final_ack", 0x2),
    (TransactionHeader, "first", 0x4),
    (TransactionHeader, "last", 0x8),
    (TransactionHeader, "identifier", 0x00FFFFF0),
]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(("kind", "name", "mask"), BITS)
def test_a_name_covers_its_bits_and_no_others(kind: type, name: str, mask: int) -> None:
    header = kind(flags=0)
    width = mask.bit_count()
    setattr(header, name, True if width == 1 else (1 << width) - 1)
    assert header.flags == mask
    header = kind(flags=0xFFFFFFFF)
    assert getattr(header, name) == (1 << width) - 1
    setattr(header, name, 0)
    assert header.flags == 0xFFFFFFFF & ~mask


@pytest.mark.parametrize("value", [-1, 32])
def test_bits_refuse_what_does_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit 5 bits"):
        UserHeader().hop_count = value


def test_the_alternative_provider_of_a_signature_can_be_read() -> None:
    info = ProviderInfo(provider_type=1, provider_name="Provider")
    encoded = provider_info.encode(info)
    assert encoded == bytes.fromhex("01000000") + "Provider\0".encode("utf-16-le")
    assert provider_info.decode(encoded) == info
    with pytest.raises(WireFormatError, match="provider_name"):
        provider_info.decode(encoded[:-2])


def test_text_keeps_unpaired_surrogates() -> None:
    @dataclass
    class Note:
        text: str | None

    note = Record(
        Note, Layout("[X] 2", "size" / Rebuild(Int8ul, wide_size_(this.text)), "text" / Text(this.size))
    )
    for text in ("", "a\ud800b", "\udfff", "😀", None):
        assert note.decode(note.encode(Note(text))) == Note(text)
