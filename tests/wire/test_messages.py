"""UserMessages made from what a sender knows."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.testing import guids
from mqproto.wire import (
    INFINITE,
    NULL_GUID,
    Guid,
    MessageIdentifier,
    PrivateQueueFormatName,
    QueueName,
    UserMessage,
    decode_packet,
    encode_packet,
)
from mqproto.wire.layouts.properties import message_identifier
from mqproto.wire.layouts.user import (
    DIRECT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
)
from tests.examples import (
    DESTINATION,
    SENDER,
    SOMEBODY,
    a_debug_header,
    a_multi_queue_format_header,
    a_transaction_header,
    a_user_message,
)


@given(
    st.one_of(st.integers(0, 0xFFFFFFFF), guids(), st.just(r"OS:computer\q")),
    st.text(st.characters(exclude_characters="\0"), max_size=100),
    st.binary(max_size=50),
)
def test_a_message_survives_the_wire(destination: int | Guid | str, label: str, body: bytes) -> None:
    message = a_user_message(destination=destination, label=label, body=body)
    assert decode_packet(encode_packet(message)) == message


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(
    ("destination", "kind", "manager"),
    [
        (17, PRIVATE_ON_DESTINATION, DESTINATION),
        (SOMEBODY, PUBLIC, DESTINATION),
        (r"OS:computer\q", DIRECT, NULL_GUID),
    ],
)
def test_the_type_bits_and_the_managers_guid_follow_the_destination(
    destination: int | Guid | str, kind: int, manager: Guid
) -> None:
    user = a_user_message(destination=destination).user
    assert (user.destination_type, user.queue_manager_address) == (kind, manager)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(
    ("name", "kind", "on_the_wire"),
    [
        (None, NO_QUEUE, None),
        (3, PRIVATE_ON_SOURCE, 3),
        (SOMEBODY, PUBLIC, SOMEBODY),
        ("TCP:10.0.0.1\\q", DIRECT, "TCP:10.0.0.1\\q"),
        (PrivateQueueFormatName(SENDER, 3), PRIVATE_ON_SOURCE, 3),
        (PrivateQueueFormatName(DESTINATION, 3), PRIVATE_ON_DESTINATION, 3),
        (PrivateQueueFormatName(SOMEBODY, 3), PRIVATE_ELSEWHERE, PrivateQueueFormatName(SOMEBODY, 3)),
    ],
)
def test_other_queues_go_by_the_shortest_name(name: QueueName, kind: int, on_the_wire: QueueName) -> None:
    user = a_user_message(admin_queue=name, response_queue=name).user
    assert (user.admin_type, user.admin_queue) == (kind, on_the_wire)
    assert (user.response_type, user.response_queue) == (kind, on_the_wire)


@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
def test_a_transactional_message_is_recoverable_and_has_priority_0() -> None:
    message = a_user_message(transaction=a_transaction_header())
    assert (message.base.priority, message.user.recoverable, message.user.has_transaction) == (0, True, True)


def test_an_ordinary_message_is_express_with_priority_3_and_lives_for_ever() -> None:
    message = a_user_message()
    assert (message.base.priority, message.user.recoverable, message.transaction) == (3, False, None)
    assert message.base.time_to_reach_queue_s == message.user.time_to_be_received_s == INFINITE
    assert message.properties.allocation_body_size == len(message.properties.message_body)


@pytest.mark.parametrize("priority", [-1, 8])
def test_priorities_are_0_to_7(priority: int) -> None:
    with pytest.raises(UsageError, match="priority"):
        a_user_message(priority=priority)


def test_an_empty_label_takes_no_bytes_and_a_mere_nul_is_another() -> None:
    absent, nul = a_user_message(label=""), a_user_message(label="")
    nul.properties.label = ""
    assert absent.properties.label is None
    for message in (absent, nul):
        decoded = decode_packet(encode_packet(message))
        assert isinstance(decoded, UserMessage)
        assert decoded.properties.label == message.properties.label


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.3")
def test_a_message_identifier_fills_a_correlation_id() -> None:
    identifier = MessageIdentifier(SENDER, 5)
    assert message_identifier.encode(identifier) == SENDER + bytes.fromhex("05000000")
    assert message_identifier.decode(SENDER + bytes.fromhex("05000000")) == identifier


@pytest.mark.spec("[MS-MQMQ] 2.2.20.8")
def test_a_traced_message_names_the_public_queue_that_reports_go_to() -> None:
    message = a_user_message(trace_queue=SOMEBODY)
    assert (message.base.trace, message.base.debug_header) == (True, True)
    assert message.debug == a_debug_header()
    assert decode_packet(encode_packet(message)) == message
    plain = a_user_message()
    assert (plain.base.trace, plain.base.debug_header, plain.debug) == (False, False, None)


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
def test_a_copy_lists_all_destinations() -> None:
    listed = a_multi_queue_format_header()
    message = a_user_message(multi_queue_format=listed)
    assert message.user.has_multi_queue_format
    assert message.multi_queue_format == listed
    assert decode_packet(encode_packet(message)) == message
    assert not a_user_message().user.has_multi_queue_format


def test_what_is_asked_for_is_in_the_headers() -> None:
    message = a_user_message(
        recoverable=True,
        journal_negative=True,
        journal_positive=True,
        acknowledgments=0x05,
        extension=b"ext",
        application_tag=3,
        body_type=8,
        correlation_id=bytes(range(20)),
        message_class=1,
    )
    user, properties = message.user, message.properties
    assert (user.recoverable, user.journal_negative, user.journal_positive) == (True, True, True)
    assert (properties.acknowledge_arrival, properties.acknowledge_receipt) == (True, False)
    assert (properties.report_no_arrival, properties.report_no_receipt) == (True, False)
    assert (properties.extension_data, properties.application_tag, properties.body_type) == (b"ext", 3, 8)
    assert (properties.correlation_id, properties.message_class) == (bytes(range(20)), 1)
