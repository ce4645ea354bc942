"""Patched packets are the same as after decoding, changing and encoding."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.testing import session_headers, user_messages
from mqproto.wire import (
    MessageClass,
    SessionHeader,
    UserMessage,
    decode_packet,
    encode_packet,
    passed_on,
    with_hop_counted,
    with_message_class,
    with_previous_number,
    with_session_header,
    without_session_header,
)
from mqproto.wire.glance import variable_part
from mqproto.wire.layouts.user import MAXIMUM_HOP_COUNT
from mqproto.wire.patch import beginning
from tests.examples import (
    a_session_ack,
    a_session_header,
    a_transactional_message,
    a_user_message,
    an_establish_connection,
)


@given(user_messages(), session_headers())
def test_a_session_header_is_put_on_or_replaced(message: UserMessage, header: SessionHeader) -> None:
    patched = with_session_header(encode_packet(message), header)
    message.base.session_header, message.session = True, header
    assert patched == encode_packet(message)


@given(user_messages())
def test_a_session_header_is_taken_off(message: UserMessage) -> None:
    patched = without_session_header(encode_packet(message))
    message.base.session_header, message.session = False, None
    assert patched == encode_packet(message)


def test_a_packet_without_a_session_header_comes_back_as_it_is() -> None:
    for packet in (a_user_message(), a_session_ack(), an_establish_connection()):
        data = encode_packet(packet)
        assert without_session_header(data) is data


def test_a_session_header_rides_on_no_internal_packet() -> None:
    with pytest.raises(UsageError, match="SessionAck"):
        with_session_header(encode_packet(an_establish_connection()), a_session_header())


@given(user_messages())
def test_a_hop_changes_rc_and_nothing_else(message: UserMessage) -> None:
    data = encode_packet(message)
    if message.user.hop_count == MAXIMUM_HOP_COUNT:
        with pytest.raises(UsageError, match="hop_count"):
            with_hop_counted(data)
        return
    message.user.hop_count += 1
    assert with_hop_counted(data) == encode_packet(message)


@pytest.mark.parametrize("hop_count", [MAXIMUM_HOP_COUNT - 1, MAXIMUM_HOP_COUNT])
def test_rc_goes_as_high_as_it_may_and_no_higher(hop_count: int) -> None:
    message = a_user_message()
    message.user.hop_count = hop_count
    data = encode_packet(message)
    if hop_count == MAXIMUM_HOP_COUNT:
        with pytest.raises(UsageError, match="hop_count is 29 already"):
            with_hop_counted(data)
        return
    message.user.hop_count += 1
    assert with_hop_counted(data) == encode_packet(message)


@given(user_messages())
def test_what_is_passed_on_has_one_more_hop_and_no_session_header(message: UserMessage) -> None:
    data = encode_packet(message)
    if message.user.hop_count == MAXIMUM_HOP_COUNT:
        with pytest.raises(UsageError, match="hop_count is 29 already"):
            passed_on([data])
        return
    message.user.hop_count += 1
    message.base.session_header, message.session = False, None
    assert passed_on([data, data]) == [encode_packet(message)] * 2


@given(user_messages(), st.integers(0, 0xFFFFFFFE))
def test_the_previous_number_changes_and_nothing_else(message: UserMessage, number: int) -> None:
    data = encode_packet(message)
    if message.transaction is None:
        with pytest.raises(UsageError, match="TransactionHeader"):
            with_previous_number(data, number)
        return
    message.transaction.previous_tx_sequence_number = number
    assert with_previous_number(data, number) == encode_packet(message)


@pytest.mark.parametrize("number", [-1, 0xFFFFFFFF, 2**32])
def test_a_previous_number_out_of_range_is_the_callers_mistake(number: int) -> None:
    with pytest.raises(UsageError, match="PreviousTxSequenceNumber"):
        with_previous_number(encode_packet(a_transactional_message()), number)


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
@given(user_messages(), st.integers(0, 0xFFFF))
def test_the_class_changes_and_nothing_else(message: UserMessage, message_class: int) -> None:
    data = encode_packet(message)
    message.properties.message_class = message_class
    assert with_message_class(data, message_class) == encode_packet(message)


def test_what_was_patched_still_decodes() -> None:
    data = with_previous_number(
        with_hop_counted(with_session_header(encode_packet(a_transactional_message()), a_session_header())), 0
    )
    data = with_message_class(data, MessageClass.NACK_Q_PURGED)
    message = decode_packet(data)
    assert isinstance(message, UserMessage)
    assert message.transaction is not None
    assert (message.user.hop_count, message.transaction.previous_tx_sequence_number) == (1, 0)
    assert message.properties.message_class == MessageClass.NACK_Q_PURGED
    assert message.session == a_session_header()


@given(user_messages(), st.data())
def test_a_message_that_has_begun_is_read_as_one_without_body_and_what_follows(
    message: UserMessage, data: st.DataObject
) -> None:
    packet = encode_packet(message)
    _, start, _, end = variable_part(packet)
    came = data.draw(st.integers(16, len(packet)))
    found = beginning(packet[:came])
    assert (found is not None) == (came >= start)
    if found is not None:
        assert found[1:] == (start, end)
        read = decode_packet(found[0])
        assert isinstance(read, UserMessage)
        message.base.flags, message.user.flags = read.base.flags, read.user.flags
        message.properties.extension_data = message.properties.message_body = b""
        message.session = message.debug = message.soap = message.multi_queue_format = None
        message.trailing = b""
        assert read == message
