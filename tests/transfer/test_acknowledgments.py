"""The contents and destinations of OrderAcks and FinalAcks."""

from __future__ import annotations

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.transfer.incoming import IncomingSequence, make_final_ack, make_order_ack, reply_to_sender
from mqproto.turn.endings import ReplyTo
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    acknowledgment_in,
    decode_packet,
    encode_packet,
    user_message,
)
from mqproto.wire.messages import ORDER_QUEUE
from tests.observing import messages
from tests.pair import at, chain, guid_of, queue

A, C = guid_of("a"), guid_of("c")
NOW = Moment(0, 1_700_000_000)
SEQUENCE = TxSequenceId(time_stamp=7, ordinal=3)


def a_sequence(reply_to: ReplyTo) -> IncomingSequence:
    sequence = IncomingSequence((A, 1, 16), 2, Settings(), Timers(), NOW)
    sequence.identifier, sequence.number, sequence.reply_to = SEQUENCE, 8, reply_to
    return sequence


def a_message(destination: int | str = 16) -> UserMessage:
    return user_message(
        source=A,
        destination_manager=C,
        destination=destination,
        message_id=77,
        sent_time_s=1,
        body=b"",
        transaction=TransactionHeader(
            tx_sequence_id=SEQUENCE, tx_sequence_number=8, previous_tx_sequence_number=5
        ),
    )


def on_the_wire(message: UserMessage) -> UserMessage:
    decoded = decode_packet(encode_packet(message))
    assert isinstance(decoded, UserMessage)
    return decoded


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
@pytest.mark.spec("[MS-MQQB] 2.2.4.1")
def test_an_order_ack_carries_the_sequence_and_number_of_the_message_that_it_acknowledges() -> None:
    """According to the table in 3.1.7.17, our own OutgoingTxSequenceID would be sent."""
    message = on_the_wire(make_order_ack(ReplyTo(A, None), (SEQUENCE, 8), C, 5, NOW))
    assert acknowledgment_in(message) == OrderAckBody(SEQUENCE, 8, 7)
    assert (message.user.source_queue_manager, message.user.message_id) == (C, 5)
    assert not message.user.recoverable
    assert message.properties.message_class == MessageClass.ORDER_ACK


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
@pytest.mark.spec("[MS-MQQB] 2.2.5.1")
def test_a_final_ack_repeats_what_names_the_message_and_is_recoverable() -> None:
    ack = make_final_ack(a_message(), MessageClass.NACK_BAD_DST_Q, ReplyTo(A, None), C, 6, NOW)
    message = on_the_wire(ack)
    assert acknowledgment_in(message) == FinalAckBody(SEQUENCE, 8, 5, A, 77)
    assert message.user.recoverable
    assert message.properties.message_class == MessageClass.NACK_BAD_DST_Q


@pytest.mark.spec("[MS-MQQB] 3.1.7.17")
@pytest.mark.parametrize(
    ("destination", "manager", "named"),
    [(16, A, ORDER_QUEUE), (r"TCP:c\private$\q", NULL_GUID, r"TCP:10.0.0.9\PRIVATE$\order_queue$")],
)
def test_an_acknowledgment_goes_to_the_first_sender_the_way_the_message_came(
    destination: int | str, manager: Guid, named: int | str
) -> None:
    """According to the letter of the text, the address is RemoteQMGuid, that of the neighbour.

    With an intermediate, the neighbour is not the first sender.
    """
    reply_to = reply_to_sender(a_message(destination), "10.0.0.9")
    user = on_the_wire(make_order_ack(reply_to, (SEQUENCE, 8), C, 5, NOW)).user
    assert (user.queue_manager_address, user.destination_queue) == (manager, named)


@pytest.mark.spec("[MS-MQQB] 2.2.4")
@pytest.mark.spec("[MS-MQQB] 2.2.5")
def test_no_session_header_rides_on_an_order_ack_or_a_final_ack() -> None:
    net = chain("a", "c", queues=[queue("orders")])
    net.send("a", at("c"), "x", transactional=True, journal_positive=True)
    net.run()
    net.receive("c", "orders")  # The message still waits for its session acknowledgment.
    net.pass_ms(2_000)
    assert [message.base.flags for message in messages(net, "c", "a")] == [0, 0]
