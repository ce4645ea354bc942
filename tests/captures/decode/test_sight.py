from __future__ import annotations

import pytest

from mqproto.captures.decode import Kind
from mqproto.captures.decode.sight import sight_of
from mqproto.captures.packets import SeenPacket
from mqproto.wire import MessageClass, Packet, encode_packet
from tests.captures.decode.scene import BEGAN_NS, address
from tests.examples import (
    a_connection_parameters,
    a_final_ack,
    a_session_ack,
    a_transactional_message,
    a_user_message,
    an_establish_connection,
    an_order_ack,
)


def seen(data: bytes) -> SeenPacket:
    return SeenPacket(data, source=address("a"), destination=address("c"), time_ns=BEGAN_NS)


@pytest.mark.parametrize(
    ("packet", "kind"),
    [
        (an_establish_connection(), Kind.ESTABLISH_CONNECTION),
        (a_connection_parameters(), Kind.CONNECTION_PARAMETERS),
        (a_session_ack(), Kind.SESSION_ACK),
        (a_user_message(), Kind.EXPRESS),
        (a_user_message(recoverable=True), Kind.RECOVERABLE),
        (a_transactional_message(), Kind.TRANSACTIONAL),
        (an_order_ack(), Kind.ORDER_ACK),
        (a_final_ack(), Kind.FINAL_ACK),
        (a_user_message(message_class=MessageClass.ACK_REACH_QUEUE), Kind.ADMIN_ACK),
        (a_user_message(message_class=MessageClass.NACK_Q_PURGED), Kind.ADMIN_ACK),
        (a_user_message(message_class=MessageClass.REPORT), Kind.REPORT),
        (a_user_message(message_class=0x1234), Kind.EXPRESS),
    ],
)
def test_a_packet_is_of_the_kind_that_its_headers_and_its_class_make_it(packet: Packet, kind: Kind) -> None:
    sight = sight_of(seen(encode_packet(packet)))
    assert sight.kind is kind
    assert (sight.acknowledgment is not None) is (kind in (Kind.ORDER_ACK, Kind.FINAL_ACK))
    assert (sight.session is not None) is (kind is Kind.SESSION_ACK)


def test_bytes_that_form_no_packet_are_malformed() -> None:
    assert sight_of(seen(bytes(40))).kind is Kind.MALFORMED


def test_kinds_are_keys_whether_as_members_or_as_text() -> None:
    assert {Kind.ORDER_ACK: 1}["OrderAck"] == {"OrderAck": 1}[Kind.ORDER_ACK] == 1  # type: ignore[index]
