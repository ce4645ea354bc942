"""The facts about a packet that are read without decoding it agree with its record."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from mqproto.testing import final_acks, order_acks, user_messages
from mqproto.wire import INFINITE, Guid, MessageIdentifier, UserMessage, encode_packet, message_identifier
from mqproto.wire.glance import (
    acknowledges,
    body_of,
    correlated,
    correlation_id_of,
    identifier_of,
    is_recoverable,
    is_traced,
    is_transactional,
    may_leave_changed,
    place_in_sequence,
    reach_deadline_s,
    receive_deadline_s,
    sent_times_s,
    user_flags,
)
from tests.examples import a_user_message

seconds = st.sampled_from([0, 1, INFINITE - 1, INFINITE]) | st.integers(0, INFINITE)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(user_messages())
def test_flags_are_seen_as_the_record_has_them(message: UserMessage) -> None:
    packet = encode_packet(message)
    assert user_flags(packet) == message.user.flags
    assert is_recoverable(packet) is message.user.recoverable
    assert is_transactional(packet) is (message.transaction is not None)
    assert is_traced(packet) is message.base.trace
    assert may_leave_changed(packet) is bool(message.user.has_security or message.user.journal_negative)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(message=user_messages(), to_be_received_s=seconds)
def test_the_time_to_be_received_counts_from_when_the_message_was_sent(
    message: UserMessage, to_be_received_s: int
) -> None:
    message.user.time_to_be_received_s = to_be_received_s
    last_s = message.user.sent_time_s + to_be_received_s
    assert receive_deadline_s(encode_packet(message)) == (None if to_be_received_s == INFINITE else last_s)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@given(message=user_messages(), to_reach_queue_s=seconds, to_be_received_s=seconds)
def test_on_its_way_a_message_has_the_shorter_of_both_times(
    message: UserMessage, to_reach_queue_s: int, to_be_received_s: int
) -> None:
    message.base.time_to_reach_queue_s = to_reach_queue_s
    message.user.time_to_be_received_s = to_be_received_s
    finite = [time_s for time_s in (to_reach_queue_s, to_be_received_s) if time_s != INFINITE]
    expected = message.user.sent_time_s + min(finite) if finite else None
    assert reach_deadline_s(encode_packet(message)) == expected


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.3")
@pytest.mark.spec("[MS-MQMQ] 2.2.20.5")
@given(user_messages())
def test_the_names_of_a_message_are_seen_as_the_record_has_them(message: UserMessage) -> None:
    packet = encode_packet(message)
    assert identifier_of(packet) == (message.user.source_queue_manager, message.user.message_id)
    header = message.transaction
    place = None if header is None else (header.tx_sequence_id, header.tx_sequence_number)
    assert place_in_sequence(packet) == place


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.3")
@given(st.binary(min_size=16, max_size=16), st.integers(0, 0xFFFFFFFF))
def test_the_message_that_another_is_about_is_seen_as_the_record_has_it(manager: bytes, ordinal: int) -> None:
    data = correlation_id_of(Guid(manager), ordinal)
    assert data == message_identifier.encode(MessageIdentifier(Guid(manager), ordinal))
    assert correlated(data) == (manager, ordinal)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.3")
@given(user_messages())
def test_the_body_of_a_message_is_seen_as_the_record_has_it(message: UserMessage) -> None:
    assert body_of(encode_packet(message)) == message.properties.message_body


@pytest.mark.spec("[MS-MQQB] 2.2.4")
@pytest.mark.spec("[MS-MQQB] 2.2.5")
@given(order_acks() | final_acks())
def test_no_acknowledgment_is_missed(message: UserMessage) -> None:
    assert acknowledges(encode_packet(message))


def test_a_message_without_times_is_never_over() -> None:
    packet = encode_packet(a_user_message())
    assert (receive_deadline_s(packet), reach_deadline_s(packet)) == (None, None)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(st.lists(user_messages(), max_size=4))
def test_of_many_messages_it_is_known_how_many_were_sent_in_each_second(messages: list[UserMessage]) -> None:
    sent = Counter(message.user.sent_time_s for message in messages)
    assert dict(sent_times_s(map(encode_packet, messages))) == sent
