"""The analyst's view: every byte once, and the same verdict as the strict codec."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.testing import nearly_valid_packets, packets, pings
from mqproto.wire import (
    EstablishConnection,
    Packet,
    UserMessage,
    announced_sizes,
    begins_stream,
    decode_beginning,
    decode_packet,
    encode_packet,
    inspect_packet,
    inspect_stream,
    ping_packet,
)
from mqproto.wire.generated import properties_offset
from tests.examples import (
    EVERY_PACKET,
    SOMEBODY,
    a_full_message,
    a_transactional_message,
    a_user_message,
    an_establish_connection,
    poked,
)
from tests.frames import FRAME_7


@given(packets())
def test_a_valid_packet_lists_every_byte_exactly_once(packet: Packet) -> None:
    data = encode_packet(packet)
    inspection = inspect_packet(data)
    end = 0
    for field in inspection.fields:
        assert (field.offset, len(field.raw)) == (end, field.size)
        assert field.raw == data[end : end + field.size]
        assert field.section
        end += field.size
    assert end == len(data)
    assert inspection.is_valid
    assert inspection.packet == packet


@given(nearly_valid_packets() | st.binary(max_size=200))
def test_any_bytes_are_shown_to_the_last(data: bytes) -> None:
    assert b"".join(field.raw for field in inspect_packet(data).fields) == data


@given(nearly_valid_packets())
def test_the_verdict_is_that_of_the_strict_codec_and_its_error_is_among_the_findings(data: bytes) -> None:
    inspection = inspect_packet(data)
    refusal = None
    try:
        decode_packet(data)
    except WireFormatError as error:
        refusal = str(error)
    assert inspection.is_valid == (refusal is None)
    assert refusal is None or refusal in map(str, inspection.findings)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 31])
def test_a_packet_size_below_the_base_header_hides_nothing_that_the_strict_codec_finds(size: int) -> None:
    data = poked(EVERY_PACKET[0], "base.packet_size", size)
    with pytest.raises(WireFormatError) as refusal:
        decode_packet(data)
    inspection = inspect_packet(data)
    assert str(refusal.value) in map(str, inspection.findings)
    assert "base.time_to_reach_queue_s" in {field.name for field in inspection.fields}


def test_a_packet_size_of_nothing_that_a_session_header_makes_up_for_hides_nothing_either() -> None:
    data = bytes.fromhex("10003000 4c494f52 00000000 00000000")
    with pytest.raises(WireFormatError) as refusal:
        decode_packet(data)
    assert str(refusal.value) in map(str, inspect_packet(data).findings)


def test_names_are_those_of_the_records() -> None:
    names = {field.name for field in inspect_packet(encode_packet(a_full_message())).fields}
    assert {
        "base.packet_size",
        "user.destination_queue.count",
        "user.destination_queue.name",
        "user.admin_queue.source_queue_manager",
        "transaction.tx_sequence_id.ordinal",
        "security.signature_padding",
        "properties.message_body",
        "debug.queue_identifier",
        "soap.header",
        "multi_queue_format.destination.format_name_list.elements[3].format_name",
        "session.window_size",
    } <= names


def test_values_are_shown_as_numbers_text_and_bytes() -> None:
    values = {field.name: field.value for field in inspect_packet(FRAME_7).fields}
    assert values["base.signature"] == 0x524F494C
    assert values["user.destination_queue.name"] == r"OS:a04bm02\q"
    assert values["properties.message_body"] == b"a\0" * 1000


def test_rules_broken_in_several_places_are_all_found() -> None:
    data = encode_packet(a_transactional_message())
    data = poked(data, "base.version_number", 0x11)
    data = poked(data, "transaction.tx_sequence_number", 0)
    inspection = inspect_packet(data)
    assert [finding.field for finding in inspection.findings] == [
        "base.version_number",
        "transaction.tx_sequence_number",
    ]
    assert isinstance(inspection.packet, UserMessage)
    assert inspection.packet.properties.message_body == b"body of seven"


def test_what_lies_beyond_the_fault_is_one_field() -> None:
    data = poked(encode_packet(a_user_message()), "properties.message_size", 0xFFFFFFFF)
    inspection = inspect_packet(data)
    assert inspection.fields[-1].name == "unread"
    assert inspection.fields[-1].raw.startswith(b"body of seven")
    assert inspection.packet is None


def test_a_packet_cut_short_is_read_as_far_as_it_goes() -> None:
    for data in EVERY_PACKET:
        for size in (*range(20), *range(21, len(data), 7)):
            inspection = inspect_packet(data[:size])
            assert [field.name for field in inspection.fields][:1] == ["base.version_number"][:size]
            assert not inspection.is_valid
            assert b"".join(field.raw for field in inspection.fields) == data[:size]


def remarks_on(packet: Packet) -> list[str]:
    inspection = inspect_packet(encode_packet(packet))
    assert inspection.is_valid
    return [finding.field for finding in inspection.findings]


@pytest.mark.spec("[MS-MQMQ] 2.2.20")
def test_bytes_after_the_last_header_are_remarked_on() -> None:
    message = a_user_message()
    message.trailing = b"1234"
    assert remarks_on(message) == ["trailing"]


def test_what_senders_should_not_do_is_remarked_on() -> None:
    message = a_transactional_message(priority=3, acknowledgments=1, destination=r"OS:a\b")
    message.user.queue_manager_address = SOMEBODY
    message.properties.allocation_body_size = 0
    assert remarks_on(message) == [
        "base.priority",
        "user.queue_manager_address",
        "user.admin_queue",
        "properties.allocation_body_size",
    ]


def test_a_receivers_bits_in_a_security_header_are_remarked_on() -> None:
    message = a_full_message()
    assert message.security is not None
    message.security.authenticated = True
    assert "security.flags" in remarks_on(message)


def test_internal_packets_are_remarked_on_too() -> None:
    packet = an_establish_connection()
    packet.base.debug_header = True
    packet.base.time_to_reach_queue_s = 5
    assert remarks_on(packet) == ["base.flags", "base.time_to_reach_queue_s"]


def test_a_remark_reads_as_a_sentence() -> None:
    message = a_user_message()
    message.trailing = b"1234"
    [remark] = inspect_packet(encode_packet(message)).findings
    assert str(remark) == "trailing holds 4 bytes that no header counts  [MS-MQMQ] 2.2.20"


def test_an_ordinary_message_gives_no_cause_for_remarks() -> None:
    assert remarks_on(a_user_message()) == []


@given(
    st.lists(packets().map(encode_packet) | pings().map(ping_packet.encode), min_size=1, max_size=4),
    st.integers(0, 60),
)
def test_packets_and_pings_behind_one_another_are_shown_each_alone(parts: list[bytes], missing: int) -> None:
    data = b"".join(parts)
    shown = list(inspect_stream(data))
    assert [b"".join(field.raw for field in inspection.fields) for _, inspection in shown] == parts
    assert [at for at, _ in shown] == [sum(map(len, parts[:number])) for number in range(len(parts))]
    assert all(inspection.is_valid for _, inspection in shown)

    cut = data[: max(len(data) - missing, 0)]
    again = list(inspect_stream(cut))
    assert b"".join(field.raw for _, inspection in again for field in inspection.fields) == cut
    assert all(inspection.is_valid for _, inspection in again[:-1])


@given(nearly_valid_packets() | st.binary(max_size=200))
def test_a_stream_of_any_bytes_is_shown_to_the_last(data: bytes) -> None:
    shown = list(inspect_stream(data))
    assert b"".join(field.raw for _, inspection in shown for field in inspection.fields) == data
    assert begins_stream(data) or len(shown) <= 1


def test_a_rest_says_why_it_is_no_packet() -> None:
    _, (at, rest) = inspect_stream(EVERY_PACKET[0] + b"\x10\0\0\0rest of it, no packet")
    assert at == len(EVERY_PACKET[0])
    assert [str(finding).partition(" at ")[0] for finding in rest.findings] == ["base.signature"]
    assert rest.packet is None


# Beginnings


@given(packets(), st.data())
def test_the_beginning_of_a_packet_says_what_the_whole_one_says(packet: Packet, data: st.DataObject) -> None:
    whole = encode_packet(packet)
    beginning = whole[: data.draw(st.integers(16, len(whole) - 1))]
    found = decode_beginning(beginning)
    if isinstance(packet, UserMessage) and isinstance(found, UserMessage):
        properties, known = packet.properties, found.properties
        assert (found.base, found.user, found.transaction) == (packet.base, packet.user, packet.transaction)
        assert (found.security, found.session) == (packet.security, None)
        is_told = len(beginning) >= properties_offset(beginning) + 56
        extension_bytes = len(properties.extension_data) if is_told else None
        assert announced_sizes(beginning) == (extension_bytes, len(properties.message_body))
        assert known.hash_algorithm in (0, properties.hash_algorithm)
        assert properties.message_body.startswith(known.message_body)
        assert known.label in (None, properties.label)
        assert known.extension_data in (b"", properties.extension_data)
        assert known.correlation_id == properties.correlation_id
    elif isinstance(packet, EstablishConnection) and isinstance(found, EstablishConnection):
        assert (found.base, found.internal) == (packet.base, packet.internal)
        assert len(beginning) < 36 or found.client_guid == packet.client_guid
        assert len(beginning) < 52 or found.server_guid == packet.server_guid
    else:
        assert found is None


def test_all_before_the_body_is_enough_and_less_than_the_fixed_fields_is_not() -> None:
    message = a_full_message()
    whole = encode_packet(message)
    body = whole.index(message.properties.message_body)
    found = decode_beginning(whole[:body])
    assert isinstance(found, UserMessage)
    assert (found.properties.label, found.properties.message_body) == (message.properties.label, b"")
    assert found.properties.extension_data == message.properties.extension_data
    through_size = properties_offset(whole) + 36
    for size in range(through_size, through_size + 21):
        found = decode_beginning(whole[:size])
        assert isinstance(found, UserMessage)
        assert (found.properties.label, found.properties.message_class) == (
            None,
            message.properties.message_class,
        )
    assert decode_beginning(whole[: through_size - 1]) is None


def test_a_beginning_that_breaks_a_rule_says_nothing() -> None:
    whole = encode_packet(a_full_message())
    for name, value in (("properties.message_size", 0xFFFFFF), ("properties.label_length", 251)):
        assert decode_beginning(poked(whole, name, value)[:-1]) is None
    assert decode_beginning(encode_packet(an_establish_connection())[:19]) is None


@given(nearly_valid_packets() | st.binary(max_size=200))
def test_any_bytes_are_a_beginning_or_none(data: bytes) -> None:
    assert decode_beginning(data.ljust(16, b"\0")) is None or len(data) >= 20
