"""OrderAck and FinalAck are distinguished from other messages, and written as the specification says."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given

from mqproto.base.errors import UsageError
from mqproto.testing import final_acks, order_acks
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    TxSequenceId,
    UserMessage,
    acknowledgment_in,
    decode_packet,
    encode_packet,
    with_session_header,
)
from mqproto.wire.layouts.acknowledgment import final_ack_body, order_ack_body
from mqproto.wire.messages import FinalAck, OrderAck, asks_final_ack
from tests.examples import (
    DESTINATION,
    SENDER,
    a_final_ack,
    a_session_header,
    a_transactional_message,
    a_user_message,
    an_order_ack,
)


def arrived(message: UserMessage) -> UserMessage:
    """Return the message as its receiver decodes it."""
    packet = decode_packet(encode_packet(message))
    assert isinstance(packet, UserMessage)
    return packet


@given(order_acks())
def test_an_order_ack_is_recognised_with_its_body(message: UserMessage) -> None:
    body = acknowledgment_in(arrived(message))
    assert isinstance(body, OrderAckBody)
    assert order_ack_body.encode(body) == message.properties.message_body


@given(final_acks())
def test_a_final_ack_is_recognised_with_its_body(message: UserMessage) -> None:
    body = acknowledgment_in(arrived(message))
    assert isinstance(body, FinalAckBody)
    assert final_ack_body.encode(body) == message.properties.message_body


@pytest.mark.spec("[MS-MQQB] 2.2.4")
def test_an_order_ack_has_no_flag_but_mp_and_dq() -> None:
    message = an_order_ack()
    assert message.base.flags == 0
    assert message.user.flags == 1 << 21 | 3 << 10
    assert (message.user.destination_queue, message.user.queue_manager_address) == (4, SENDER)
    properties = message.properties
    assert (properties.label, properties.flags, properties.body_type) == ("QM Ordering Ack", 0, 0)
    assert (properties.message_class, len(properties.message_body)) == (MessageClass.ORDER_ACK, 0x24)


@pytest.mark.spec("[MS-MQQB] 2.2.5")
def test_a_final_ack_is_recoverable_besides() -> None:
    message = a_final_ack(message_class=MessageClass.NACK_Q_DELETED)
    assert message.base.flags == 0
    assert message.user.flags == 1 << 21 | 3 << 10 | 1 << 5
    assert message.properties.message_class == 0xC000


@pytest.mark.spec("[MS-MQQB] 2.2.4.1")
def test_the_body_of_an_order_ack_lies_as_printed() -> None:
    body = OrderAckBody(TxSequenceId(time_stamp=2, ordinal=1), 4, 3)
    assert order_ack_body.encode(body) == bytes.fromhex("01000000 02000000 04000000 03000000") + bytes(20)


@pytest.mark.spec("[MS-MQQB] 2.2.5.1")
def test_the_body_of_a_final_ack_lies_as_printed() -> None:
    body = FinalAckBody(TxSequenceId(time_stamp=2, ordinal=1), 4, 3, DESTINATION, 5)
    printed = bytes.fromhex("01000000 02000000 04000000 03000000") + DESTINATION + bytes.fromhex("05000000")
    assert final_ack_body.encode(body) == printed


def test_the_number_may_stand_in_the_sequence_id() -> None:
    """The reading in the first seed: TxSequenceID holds the number, and nothing else is set."""
    body = OrderAckBody(TxSequenceId(ordinal=41))
    assert acknowledgment_in(arrived(an_order_ack(body=body))) == body


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
def test_a_session_header_may_ride_on_an_acknowledgment() -> None:
    message = decode_packet(with_session_header(encode_packet(an_order_ack()), a_session_header()))
    assert isinstance(message, UserMessage)
    assert acknowledgment_in(message) == acknowledgment_in(an_order_ack())


RESERVED: Final = (6, 7, *range(9, 16))
"""The bits X9 to X0 of BaseHeader.Flags, which are ignored on receipt."""


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
@pytest.mark.spec("[MS-MQMQ] 2.2.19.1")
@pytest.mark.parametrize("flags", [*range(8), *(1 << bit for bit in RESERVED), 0xFEC7])
@pytest.mark.parametrize("ack", [an_order_ack(), a_final_ack()], ids=["OrderAck", "FinalAck"])
def test_a_priority_and_reserved_bits_hide_no_acknowledgment(flags: int, ack: UserMessage) -> None:
    packet = encode_packet(ack)
    assert packet[:4] == b"\x10\0\0\0", "version, Reserved, and no flag"
    message = decode_packet(packet[:2] + flags.to_bytes(2, "little") + packet[4:])
    assert isinstance(message, UserMessage)
    assert acknowledgment_in(message) == acknowledgment_in(ack) is not None


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
@pytest.mark.parametrize(
    "queue", ["TCP:10.0.0.1\\PRIVATE$\\order_queue$", "tcp:[::1]\\private$\\ORDER_QUEUE$"]
)
def test_the_order_queue_may_go_by_a_direct_name_in_any_case(queue: str) -> None:
    assert acknowledgment_in(arrived(an_order_ack(destination=queue))) is not None


def changed(**changes: Any) -> UserMessage:
    """Return an OrderAck with some header fields changed."""
    message = an_order_ack()
    for path, value in changes.items():
        header, field = path.split("__")
        setattr(getattr(message, header), field, value)
    return message


@pytest.mark.spec("[MS-MQQB] 3.1.5.1.1")
@pytest.mark.parametrize(
    "message",
    [
        a_user_message(),
        changed(properties__label="QM ordering ack"),
        changed(properties__label=None),
        changed(properties__message_body=bytes(0x23)),
        changed(properties__message_body=bytes(0x25)),
        changed(properties__message_class=MessageClass.NORMAL),
        changed(properties__message_class=MessageClass.ACK_REACH_QUEUE),
        changed(base__debug_header=True),
        changed(user__destination_queue=5),
        changed(user__destination_type=5, user__destination_queue=SENDER),
        an_order_ack(destination="TCP:10.0.0.1\\private$\\orders"),
        an_order_ack(destination="TCP:10.0.0.1\\order_queue$"),
    ],
    ids=range(12),
)
def test_an_application_cannot_pass_for_an_acknowledgment_by_half(message: UserMessage) -> None:
    assert acknowledgment_in(message) is None


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.2")
def test_sequence_ids_compare_by_time_stamp_first() -> None:
    older, newer = TxSequenceId(time_stamp=1, ordinal=9), TxSequenceId(time_stamp=2, ordinal=1)
    assert older < newer
    assert len({older, newer, TxSequenceId(time_stamp=1, ordinal=9)}) == 2


@pytest.mark.parametrize("body", [OrderAckBody(tx_sequence_number=2**32), FinalAckBody(message_id=-1)])
def test_a_body_that_does_not_fit_its_fields_is_refused_with_words(body: OrderAckBody | FinalAckBody) -> None:
    common: dict[str, Any] = {"source": NULL_GUID, "destination_manager": NULL_GUID, "destination": 4}
    common |= {"message_id": 1, "sent_time_s": 0, "body": body}
    ack = OrderAck(**common) if isinstance(body, OrderAckBody) else FinalAck(message_class=0x4000, **common)
    with pytest.raises(UsageError, match=r"tx_sequence_number|message_id"):
        ack.message()


@pytest.mark.spec("[MS-MQQB] 2.2.5")
@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
@pytest.mark.parametrize(
    ("changes", "final_ack", "asked"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"journal_positive": True}, False, True),
        ({"journal_negative": True}, False, True),
        ({"acknowledgments": 0xF, "admin_queue": 9}, False, False),
        ({"transaction": None, "journal_negative": True}, False, False),
    ],
)
def test_a_final_ack_is_asked_for_by_its_bit_and_by_either_journal(
    changes: dict[str, Any], final_ack: bool, asked: bool
) -> None:
    message = a_transactional_message(**changes)
    if message.transaction is not None:
        message.transaction.final_ack = final_ack
    assert asks_final_ack(message) is asked
