"""Stamped packets are the same as encoded ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.testing import user_messages
from mqproto.testing.headers import labels
from mqproto.wire import TransactionHeader, TxSequenceId, UserMessage, encode_packet, without_session_header
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE
from mqproto.wire.patch import Stamp, place_bytes
from tests.examples import a_user_message

WORDS = st.integers(0, 0xFFFFFFFF)
PLACES = st.builds(
    TransactionHeader,
    flags=WORDS,
    tx_sequence_id=st.builds(TxSequenceId, time_stamp=WORDS, ordinal=WORDS),
    tx_sequence_number=st.integers(1, 0xFFFFFFFF),
    previous_tx_sequence_number=st.integers(0, 0xFFFFFFFE),
)


def bytes_of(header: TransactionHeader | None) -> bytes:
    if header is None:
        return b""
    return place_bytes(
        header.flags, header.tx_sequence_id, header.tx_sequence_number, header.previous_tx_sequence_number
    )


@given(
    user_messages(),
    st.binary(max_size=50),
    labels(),
    st.binary(min_size=20, max_size=20),
    st.binary(max_size=50),
    WORDS,
    WORDS,
    PLACES,
)
def test_a_stamped_packet_is_the_same_as_an_encoded_one(
    message: UserMessage,
    body: bytes,
    label: str | None,
    correlation_id: bytes,
    extension: bytes,
    sent_time_s: int,
    message_id: int,
    place: TransactionHeader,
) -> None:
    message.properties.padding = b""
    stamp = Stamp(without_session_header(encode_packet(message)))

    message.base.session_header, message.session = False, None
    message.user.sent_time_s, message.user.message_id = sent_time_s, message_id
    if message.transaction is not None:
        # Whether a connector's GUID follows is not the place's to change.
        connector = message.transaction.connector_qm_guid
        place = replace(place, connector_qm_guid=connector)
        place.connector = connector is not None
        message.transaction = place
    properties = message.properties
    properties.message_body, properties.allocation_body_size = body, len(body)
    properties.label, properties.correlation_id = label or None, correlation_id
    properties.extension_data = extension
    place_in_sequence = bytes_of(message.transaction)
    packet = stamp.packet(
        body, label or "", correlation_id, extension, sent_time_s, message_id, place_in_sequence
    )
    assert packet == encode_packet(message)
    assert stamp.size_bytes(body, label or "", extension) == len(packet)


def test_a_packet_that_would_be_too_large_is_refused() -> None:
    packet = encode_packet(a_user_message())
    stamp = Stamp(packet)
    room = MAXIMUM_PACKET_SIZE - (len(stamp.packet(b"", "label", bytes(20), b"", 1, 1)))
    assert len(stamp.packet(bytes(room), "label", bytes(20), b"", 1, 1)) == MAXIMUM_PACKET_SIZE
    with pytest.raises(UsageError, match=r"the packet would have 4,194,308 bytes, at most 4,194,304"):
        stamp.packet(bytes(room + 1), "label", bytes(20), b"", 1, 1)


@pytest.mark.parametrize(
    ("label", "correlation_id"),
    [("x" * 250, bytes(20)), ("a\0", bytes(20)), ("", bytes(19)), ("", bytes(21))],
)
def test_what_no_header_can_carry_is_refused(label: str, correlation_id: bytes) -> None:
    stamp = Stamp(encode_packet(a_user_message()))
    with pytest.raises(UsageError, match="at most 249 without a NUL, and 20"):
        stamp.packet(b"", label, correlation_id, b"", 1, 1)


@pytest.mark.parametrize(("number", "previous"), [(0, 0), (2**32, 0), (1, -1), (1, 0xFFFFFFFF)])
def test_a_place_that_does_not_fit_is_refused(number: int, previous: int) -> None:
    with pytest.raises(UsageError, match=f"number {number} behind {previous}: must be 1 to 0xffffffff"):
        place_bytes(0, TxSequenceId(), number, previous)
