"""The frames printed in [MS-MQQB] 4.1, byte for byte."""

from __future__ import annotations

import pytest

from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    UserMessage,
    decode_packet,
    encode_packet,
    inspect_packet,
    ping_packet,
    reference,
)
from tests.frames import (
    FRAME_1,
    FRAME_2,
    FRAME_3,
    FRAME_4,
    FRAME_5,
    FRAME_6,
    FRAME_7,
    FRAME_8,
    SESSION_FRAMES,
)

CLIENT = bytes.fromhex("D1587355509195954997B6E611EA26C6")
SERVER = bytes.fromhex("0789CD434C39118F44459078909EA0FC")


@pytest.mark.spec("[MS-MQQB] 2.2.7")
def test_frame_1_asks_whether_the_server_would_talk_to_a_client() -> None:
    ping = ping_packet.decode(FRAME_1)
    assert (ping.client, ping.refused, ping.cookie, ping.qm_guid) == (True, False, 4, CLIENT)


@pytest.mark.spec("[MS-MQQB] 2.2.7")
def test_frame_2_answers_with_the_cookie_of_the_request() -> None:
    ping = ping_packet.decode(FRAME_2)
    assert (ping.flags, ping.refused, ping.cookie, ping.qm_guid) == (0xB295, False, 4, SERVER)


@pytest.mark.parametrize("frame", [FRAME_1, FRAME_2])
def test_a_ping_builds_back_byte_for_byte(frame: bytes) -> None:
    assert ping_packet.encode(ping_packet.decode(frame)) == frame


@pytest.mark.spec("[MS-MQQB] 2.2.3")
def test_frame_3_asks_for_a_session_and_keeps_the_arbitrary_reserved_byte() -> None:
    packet = decode_packet(FRAME_3)
    assert isinstance(packet, EstablishConnection)
    assert (packet.base.reserved, packet.base.priority, packet.base.internal) == (0xC0, 3, True)
    assert (packet.client_guid, packet.server_guid) == (CLIENT, SERVER)
    assert (packet.time_stamp_ms, packet.operating_system, packet.reserved) == (501_140_046, 0x0310, 0)
    assert (packet.no_ping, packet.server_class, packet.quality_of_service) == (True, True, False)
    assert not packet.refused
    assert packet.padding == b"\x5a" * 512


@pytest.mark.spec("[MS-MQQB] 2.2.3")
def test_frame_4_accepts_the_session_though_its_dump_names_other_queue_managers() -> None:
    packet = decode_packet(FRAME_4)
    assert isinstance(packet, EstablishConnection)
    assert (packet.time_stamp_ms, packet.refused) == (501_140_046, False)
    assert packet.client_guid == bytes.fromhex("0523741F5EBE7741BC77C4DD7719E474")
    assert packet.server_guid == bytes.fromhex("EB6A3A3C67F5434187D385CF4D68CEB4")


@pytest.mark.spec("[MS-MQQB] 2.2.2.1")
@pytest.mark.parametrize("frame", [FRAME_5, FRAME_6])
def test_frames_5_and_6_agree_on_timeouts_and_window(frame: bytes) -> None:
    packet = decode_packet(frame)
    assert isinstance(packet, ConnectionParameters)
    assert (packet.recoverable_ack_timeout_ms, packet.ack_timeout_ms, packet.window_size) == (
        1496,
        120_000,
        64,
    )


@pytest.mark.spec("[MS-MQMQ] 2.2.20")
def test_frame_7_carries_a_message_with_a_sid_and_without_ai() -> None:
    message = decode_packet(FRAME_7)
    assert isinstance(message, UserMessage)
    user, security, properties = message.user, message.security, message.properties

    assert (message.base.priority, message.base.time_to_reach_queue_s) == (3, 345_600)
    assert (user.source_queue_manager, user.queue_manager_address) == (CLIENT, NULL_GUID)
    assert (user.message_id, user.hop_count, user.recoverable) == (2286, 0, False)
    assert user.destination_queue == r"OS:a04bm02\q"
    assert (user.admin_queue, user.response_queue, message.transaction) == (None, None, None)

    assert security is not None
    assert (security.sender_id_type, security.has_security_data) == (1, False)
    assert security.sender_id.hex() == "010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"

    assert (properties.flags, properties.message_class, properties.body_type) == (0x0F, 0, 8)
    assert properties.label == "mqsender label"
    assert properties.message_body.decode("utf-16-le") == "a" * 1000
    assert (properties.allocation_body_size, properties.privacy_level) == (2000, 0)
    assert (properties.hash_algorithm, properties.encryption_algorithm) == (0x8004, 0x6801)
    assert (message.trailing, message.session) == (b"", None)


def test_frame_7_was_sent_at_the_second_that_spells_lior() -> None:
    message = decode_packet(FRAME_7)
    assert isinstance(message, UserMessage)
    assert message.user.sent_time_s.to_bytes(4, "little") == b"LIOR"


@pytest.mark.spec("[MS-MQQB] 2.2.6")
def test_frame_8_acknowledges_one_message_in_a_packet_size_that_counts_the_session_header() -> None:
    packet = decode_packet(FRAME_8)
    assert isinstance(packet, SessionAck)
    assert (packet.base.session_header, packet.session.ack_sequence_number) == (True, 1)
    assert (packet.session.recoverable_msg_ack_flags, packet.session.window_size) == (0, 64)
    assert int.from_bytes(FRAME_8[8:12], "little") == len(FRAME_8) == 36


@pytest.mark.parametrize("frame", SESSION_FRAMES)
def test_a_frame_builds_back_byte_for_byte(frame: bytes) -> None:
    assert encode_packet(decode_packet(frame)) == frame
    assert reference.packet.build(reference.read(frame)) == frame


@pytest.mark.parametrize("frame", SESSION_FRAMES)
def test_a_frame_shows_every_byte_to_an_analyst(frame: bytes) -> None:
    inspection = inspect_packet(frame)
    assert inspection.is_valid
    assert b"".join(field.raw for field in inspection.fields) == frame
