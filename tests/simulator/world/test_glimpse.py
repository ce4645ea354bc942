"""An onlooker's view of a packet agrees with what decoding would show."""

from __future__ import annotations

from hypothesis import given

from mqproto.simulator.world.network.glimpse import Glimpse, identity, identity_of, place_in_sequence
from mqproto.testing import final_acks, order_acks, packets
from mqproto.wire import (
    ConnectionParameters,
    Packet,
    SessionAck,
    UserMessage,
    decode_packet,
    encode_packet,
    message_identifier,
)
from mqproto.wire.glance import acknowledges
from mqproto.wire.layouts.properties import MessageIdentifier


@given(packets())
def test_a_glimpse_agrees_with_the_decoded_packet(packet: Packet) -> None:
    data = encode_packet(packet)
    seen = Glimpse(data)
    decoded = decode_packet(data)
    assert seen.is_user == isinstance(decoded, UserMessage)
    session = decoded.session if isinstance(decoded, UserMessage | SessionAck) else None
    assert (seen.session is None) == (session is None)
    if session is not None and seen.session is not None:
        assert seen.session == (
            session.ack_sequence_number,
            session.recoverable_msg_ack_seq_number,
            session.recoverable_msg_ack_flags,
            session.window_size,
        )
        assert seen.window == session.window_size
    elif isinstance(decoded, ConnectionParameters):
        assert seen.window == decoded.window_size
    else:
        assert seen.window == 0
    if isinstance(decoded, UserMessage):
        user = decoded.user
        assert seen.manager == user.queue_manager_address
        assert seen.recoverable == user.recoverable
        assert seen.hop_count == user.hop_count
        assert seen.identity == identity(user.source_queue_manager, user.message_id) == identity_of(data)
        assert seen.identity == message_identifier.encode(
            MessageIdentifier(user.source_queue_manager, user.message_id)
        ), "so that it is the correlation identifier of an administration acknowledgment"


@given(packets())
def test_the_place_in_a_sequence_is_the_transaction_header_s(packet: Packet) -> None:
    if isinstance(packet, UserMessage):
        header = packet.transaction
        expected = None
        if header is not None:
            identifier = header.tx_sequence_id
            expected = (identifier.time_stamp, identifier.ordinal), header.tx_sequence_number
        assert place_in_sequence(encode_packet(packet)) == expected


@given(order_acks(), final_acks())
def test_acknowledgments_are_noticed(order_ack: UserMessage, final_ack: UserMessage) -> None:
    assert acknowledges(encode_packet(order_ack))
    assert acknowledges(encode_packet(final_ack))
