"""Hostile packets, line by line, and the words of each refusal: field, offset, value, limit, section."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.base.errors import WireFormatError
from mqproto.wire import decode_packet, encode_packet, inspect_packet
from tests.examples import (
    a_connection_parameters,
    a_full_message,
    a_session_ack,
    a_transactional_message,
    a_user_message,
    an_establish_connection,
    poked,
)

MESSAGE = encode_packet(a_transactional_message())
DIRECT = encode_packet(a_user_message(destination=r"OS:computer\private$\orders"))
FULL = encode_packet(a_full_message())
ESTABLISH = encode_packet(an_establish_connection())
PARAMETERS = encode_packet(a_connection_parameters())
ACK = encode_packet(a_session_ack())


def word(data: bytes, name: str) -> int:
    """Return the number in a field."""
    [value] = [field.value for field in inspect_packet(data).fields if field.name == name]
    assert isinstance(value, int)
    return value


def with_bits(data: bytes, name: str, *, set_: int = 0, clear: int = 0) -> bytes:
    return poked(data, name, word(data, name) & ~clear | set_)


def refusal(data: bytes) -> WireFormatError:
    with pytest.raises(WireFormatError) as caught:
        decode_packet(data)
    return caught.value


def flags(clear: int, set_: int, data: bytes = MESSAGE) -> bytes:
    return with_bits(data, "user.flags", set_=set_, clear=clear)


BASE, USER, PROPERTIES = "[MS-MQMQ] 2.2.19.1", "[MS-MQMQ] 2.2.19.2", "[MS-MQMQ] 2.2.19.3"
TRANSACTION, SECURITY, SESSION = "[MS-MQMQ] 2.2.20.5", "[MS-MQMQ] 2.2.20.6", "[MS-MQMQ] 2.2.20.4"
SOAP, DEBUG, LISTS = "[MS-MQMQ] 2.2.20.7", "[MS-MQMQ] 2.2.20.8", "[MS-MQMQ] 2.2.20.2"
NAME, ELEMENT = "[MS-MQMQ] 2.2.18.1.5.2", "[MS-MQMQ] 2.2.18.1.4"

REFUSED: list[tuple[str, bytes, str, str]] = [
    # the name of the case, the packet, the field that is blamed, the section
    ("a version other than 0x10", poked(MESSAGE, "base.version_number", 0x11), "base.version_number", BASE),
    ("another signature", poked(MESSAGE, "base.signature", 0x4C494F53), "base.signature", BASE),
    ("a signature back to front", poked(MESSAGE, "base.signature", b"ROIL"), "base.signature", BASE),
    ("no size", poked(MESSAGE, "base.packet_size", 0), "base.packet_size", BASE),
    ("size 15", poked(MESSAGE, "base.packet_size", 15), "base.packet_size", BASE),
    ("a size above 4 MiB", poked(MESSAGE, "base.packet_size", 0x00400001), "base.packet_size", BASE),
    ("the largest number as size", poked(MESSAGE, "base.packet_size", 0xFFFFFFFF), "base.packet_size", BASE),
    ("tracing without DebugHeader", with_bits(MESSAGE, "base.flags", set_=0x100), "base.flags", BASE),
    ("packet type 0", poked(ACK, "internal.flags", 0), "internal.packet_type", "[MS-MQQB] 2.2.1"),
    *(
        (f"packet type {kind}", poked(ACK, "internal.flags", kind), "internal.packet_type", "[MS-MQQB] 2.2.1")
        for kind in range(4, 16)
    ),
    ("571 bytes", poked(ESTABLISH, "base.packet_size", 571)[:-1], "base.packet_size", "[MS-MQQB] 2.2.3"),
    ("573 bytes", poked(ESTABLISH, "base.packet_size", 573) + b"Z", "base.packet_size", "[MS-MQQB] 2.2.3"),
    ("another RE", poked(ESTABLISH, "operating_system", 0x0300), "operating_system", "[MS-MQQB] 2.2.3"),
    *(
        (f"{field} {value}", poked(PARAMETERS, field, value), field, "[MS-MQQB] 2.2.2.1")
        for field, value in [
            ("recoverable_ack_timeout_ms", 499),
            ("recoverable_ack_timeout_ms", 120_001),
            ("ack_timeout_ms", 19_999),
            ("ack_timeout_ms", 120_001),
        ]
    ),
    ("a SessionAck without SH", with_bits(ACK, "base.flags", clear=0x10), "base.flags", "[MS-MQQB] 2.2.6"),
    ("a window of 0", poked(ACK, "session.window_size", 0), "session.window_size", SESSION),
    ("a riding window of 0", poked(FULL, "session.window_size", 0), "session.window_size", SESSION),
    *(
        (f"destination type {kind}", flags(7 << 10, kind << 10), "user.destination_type", USER)
        for kind in (1, 2, 4, 6)
    ),
    *((f"admin type {kind}", flags(7 << 13, kind << 13), "user.admin_type", USER) for kind in (1, 4)),
    *((f"delivery mode {mode}", flags(3 << 5, mode << 5), "user.delivery_mode", USER) for mode in (2, 3)),
    *((f"{hops} hops", flags(31, hops), "user.hop_count", USER) for hops in (30, 31)),
    ("no MessagePropertiesHeader", flags(1 << 21, 0), "user.has_properties", USER),
    ("an express transaction", flags(3 << 5, 0), "user.delivery_mode", USER),
    ("a message that came over HTTP", flags(0, 1 << 25), "user.over_http", USER),
    *(
        (f"a name of {count} bytes", poked(DIRECT, "user.destination_queue.count", count), field, NAME)
        for count, field in [
            (0, "user.destination_queue.count"),
            (1, "user.destination_queue.count"),
            (55, "user.destination_queue.count"),
            (54, "user.destination_queue.name"),
            (0xFFFE, "user.destination_queue.name"),
        ]
    ),
    (
        "number 0",
        poked(MESSAGE, "transaction.tx_sequence_number", 0),
        "transaction.tx_sequence_number",
        TRANSACTION,
    ),
    (
        "the largest previous number",
        poked(MESSAGE, "transaction.previous_tx_sequence_number", 0xFFFFFFFF),
        "transaction.previous_tx_sequence_number",
        TRANSACTION,
    ),
    *(
        (f"{size} past the end", poked(FULL, f"security.{size}", value), f"security.{item}", SECURITY)
        for size, item, value in [
            ("sender_id_size", "sender_id", 0xFFFF),
            ("encryption_key_size", "encryption_key", 0xFFFF),
            ("signature_size", "signature", 0xFFFF),
            ("sender_cert_size", "sender_cert", 0xFFFF),
            ("provider_info_size", "provider_info", 0xFFFFFFFD),
            ("provider_info_size", "provider_info", 0xFFFFFFFF),
        ]
    ),
    (
        "a certificate of 64 KiB",
        poked(FULL, "security.sender_cert_size", 0x10000),
        "security.sender_cert_size",
        SECURITY,
    ),
    *(
        (f"sender type {kind}", with_bits(FULL, "security.flags", clear=15, set_=kind), field, SECURITY)
        for kind, field in [
            (0, "security.sender_id_size"),
            (3, "security.sender_id_type"),
            (15, "security.sender_id_type"),
        ]
    ),
    ("a label of 251", poked(MESSAGE, "properties.label_length", 251), "properties.label_length", PROPERTIES),
    ("a label past the end", poked(MESSAGE, "properties.label_length", 250), "properties.label", PROPERTIES),
    ("a label without NUL", poked(MESSAGE, "properties.label_length", 3), "properties.label", PROPERTIES),
    *(
        (
            f"a body of {size:#x}",
            poked(MESSAGE, "properties.message_size", size),
            "properties.message_body",
            PROPERTIES,
        )
        for size in (17, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    ),
    *(
        (f"an extension of {size:#x}", poked(MESSAGE, "properties.extension_size", size), field, PROPERTIES)
        # With the first of them ExtensionSize + MessageSize is 0 in 32 bits.
        for size, field in [
            (0xFFFFFFF3, "properties.extension_data"),
            (0xFFFFFFFF, "properties.extension_data"),
        ]
    ),
    *(
        (
            f"trace queue type {kind}",
            with_bits(FULL, "debug.flags", clear=3, set_=kind),
            "debug.queue_type",
            DEBUG,
        )
        for kind in (2, 3)
    ),
    ("another SOAP header id", poked(FULL, "soap.header_section_id", 0x0321), "soap.header_section_id", SOAP),
    ("another SOAP body id", poked(FULL, "soap.body_section_id", 0x0320), "soap.body_section_id", SOAP),
    *(
        (f"{field} {value:#x}", poked(FULL, f"soap.{field}", value), f"soap.{text}", SOAP)
        # Doubled in 32 bits the first would be 2 and the second 18, which is right for neither.
        for field, text, value in [
            ("header_data_length", "header", 0x80000001),
            ("body_data_length", "body", 0x80000009),
            ("body_data_length", "body", 0xFFFFFFFF),
        ]
    ),
]


@pytest.mark.parametrize(
    ("data", "field", "section"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_a_packet_is_refused_at_the_field_that_is_wrong(data: bytes, field: str, section: str) -> None:
    error = refusal(data)
    assert (error.field, error.section) == (field, section)
    assert 0 <= error.offset <= len(data)
    assert error.limit
    assert str(error).startswith(f"{field} at byte {error.offset} is ")


LIST = "multi_queue_format.destination"


@pytest.mark.spec("[MS-MQMQ] 2.2.20.2")
@pytest.mark.parametrize(
    ("field", "value", "blamed"),
    [
        (f"{LIST}.header_size", 11, f"{LIST}.header_size"),
        (f"{LIST}.header_size", 0xFFFFFFFF, f"{LIST}.format_name_list"),
        (f"{LIST}.element_count", 0xFFFFFFFF, f"{LIST}.element_count"),
        (f"{LIST}.element_count", 0x40000000, f"{LIST}.element_count"),
        (f"{LIST}.header_id", 0x00C8, f"{LIST}.header_id"),
        (
            "multi_queue_format.administration.header_id",
            0x0064,
            "multi_queue_format.administration.header_id",
        ),
        ("multi_queue_format.response.header_id", 0x015E, "multi_queue_format.response.header_id"),
        (
            f"{LIST}.format_name_list.elements[2].format_type",
            4,
            f"{LIST}.format_name_list.elements[2].format_type",
        ),
        (
            f"{LIST}.format_name_list.elements[0].format_type",
            0xFFFF,
            f"{LIST}.format_name_list.elements[0].format_type",
        ),
        (
            "multi_queue_format.administration.header_size",
            20,
            "multi_queue_format.administration.format_name_list.elements[0].format_name",
        ),
        ("multi_queue_format.signature.id", 0x0064, "multi_queue_format.signature.id"),
        ("multi_queue_format.signature.size", 6, "multi_queue_format.signature.signature"),
        ("multi_queue_format.signature.size", 0xFFFFFFFF, "multi_queue_format.signature.signature"),
    ],
)
def test_a_list_of_queues_is_judged_before_it_is_prepared(field: str, value: int, blamed: str) -> None:
    assert refusal(poked(FULL, field, value)).field == blamed


def test_a_refusal_names_field_offset_value_limit_and_section() -> None:
    error = refusal(flags(7 << 10, 6 << 10))
    assert str(error) == "user.destination_type at byte 60 is 6, must be 0, 3, 5 or 7  [MS-MQMQ] 2.2.19.2"
    error = refusal(poked(MESSAGE, "properties.message_size", 17))
    assert str(error) == (
        f"properties.message_body at byte {len(MESSAGE) - 16} is 16 bytes, must be 17 bytes  [MS-MQMQ] 2.2.19.3"
    )


def test_the_headers_of_a_message_that_came_over_http_are_named() -> None:
    assert "SRMPEnvelopeHeader" in refusal(flags(0, 1 << 25)).limit


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_a_security_header_without_any_item_is_refused() -> None:
    message = a_user_message()
    message.user.has_security = True
    data = bytearray(encode_packet(a_full_message()))
    start = next(each.offset for each in inspect_packet(bytes(data)).fields if each.name == "security.flags")
    data[start : start + 16] = bytes(16)
    error = refusal(bytes(data))
    assert (error.field, error.section) == ("security.provider_info_size", SECURITY)


def test_a_header_that_is_announced_and_absent_is_refused() -> None:
    plain = encode_packet(a_user_message(body=b""))
    assert refusal(flags(0, 1 << 19, plain)).field.startswith("security.")
    assert refusal(flags(0, 1 << 22, plain)).field.startswith("properties.")
    assert refusal(flags(0, 1 << 28, plain)).field.startswith("soap.")
    assert refusal(flags(0, 1 << 23, plain)).field.startswith("multi_queue_format.")
    assert refusal(with_bits(plain, "base.flags", set_=0x20)).field.startswith("debug.")
    assert refusal(with_bits(plain, "base.flags", set_=0x10)).field == "base.packet_size"


RESERVED_BITS: list[tuple[str, int]] = [
    *(("base.flags", 1 << bit) for bit in (6, 7, 9, 10, 11, 12, 13, 14, 15)),
    *(("user.flags", 1 << bit) for bit in (7, 24, 26, 27, 29, 30, 31)),
    *(("transaction.flags", 1 << bit) for bit in range(24, 32)),
    *(("properties.flags", 1 << bit) for bit in range(4, 8)),
]


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(("name", "bit"), RESERVED_BITS)
def test_a_reserved_bit_is_kept_and_changes_nothing_else(name: str, bit: int) -> None:
    data = with_bits(MESSAGE, name, set_=bit)
    packet: Any = decode_packet(data)
    assert encode_packet(packet) == data
    header, field = name.split(".")
    setattr(getattr(packet, header), field, getattr(getattr(packet, header), field) & ~bit)
    assert packet == decode_packet(MESSAGE)


def test_a_zero_server_guid_is_accepted() -> None:
    packet = decode_packet(poked(ESTABLISH, "server_guid", bytes(16)))
    assert packet == an_establish_connection(server_guid=bytes(16))
