"""The peer's messages are accepted in order and once, and are acknowledged as a destination would."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.simulator.replay.receiver import Receiver
from mqproto.transfer.incoming import IncomingSequence
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    MessageClass,
    OrderAckBody,
    UserMessage,
    acknowledgment_in,
    decode_packet,
    encode_packet,
)
from tests.conversations import DESTINATION, SENDER, SENT_S, a_message, an_order_ack

NOW = Moment(uptime_ms=1_000, utc_s=SENT_S)
LATER = Moment(uptime_ms=60_000, utc_s=SENT_S + 59)
US = DESTINATION


class Desk:
    """A receiver, and its timers."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.receiver = Receiver(Settings(), self.timers, itertools.count(1).__next__)

    def take(self, message: UserMessage) -> None:
        self.receiver.arrived(message, encode_packet(message), US, "10.0.0.1", NOW)

    def wait(self) -> None:
        for _, sequence in self.timers.expired(LATER.uptime_ms):
            assert isinstance(sequence, IncomingSequence)
            self.receiver.order_ack_due(sequence, LATER)

    def answers(self) -> list[UserMessage]:
        packets = [decode_packet(self.receiver.outgoing.popleft()) for _ in list(self.receiver.outgoing)]
        return [packet for packet in packets if isinstance(packet, UserMessage)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@given(st.lists(st.integers(1, 8), min_size=1, max_size=30))
def test_messages_count_once_and_are_acknowledged_up_to_the_first_gap(numbers: list[int]) -> None:
    desk = Desk()
    for number in numbers:
        desk.take(a_message(number))
    assert not desk.receiver.owes_nothing
    desk.wait()
    had = next(number for number in range(1, 10) if number not in numbers) - 1
    bodies = [acknowledgment_in(answer) for answer in desk.answers()]
    assert [body.tx_sequence_number for body in bodies if isinstance(body, OrderAckBody)] == [had] * bool(had)
    assert desk.receiver.received_count == had
    assert desk.receiver.owes_nothing


@pytest.mark.spec("[MS-MQQB] 2.2.5")
def test_a_final_ack_goes_out_for_each_message_that_asks_for_one_also_if_it_was_held() -> None:
    desk = Desk()
    for number in (2, 1, 3):
        message = a_message(number)
        assert message.transaction is not None
        message.transaction.final_ack = number < 3
        desk.take(message)
    answers = desk.answers()
    assert [answer.properties.message_class for answer in answers] == [MessageClass.ACK_RECEIVE] * 2
    bodies = [acknowledgment_in(answer) for answer in answers]
    assert [body.message_id for body in bodies if isinstance(body, FinalAckBody)] == [101, 102]


def test_whoever_was_addressed_answers_even_if_he_stands_behind_us() -> None:
    desk = Desk()
    behind = type(US)(b"\x77" * 16)
    desk.take(a_message(1, destination_manager=behind))
    desk.take(a_message(1, destination=r"TCP:10.0.0.2\private$\orders", message_id=9))
    desk.wait()
    addresses = {
        answer.user.source_queue_manager: (answer.user.queue_manager_address, answer.user.destination_queue)
        for answer in desk.answers()
    }
    assert addresses == {
        behind: (SENDER, 4),
        US: (NULL_GUID, r"TCP:10.0.0.1\PRIVATE$\order_queue$"),
    }


def test_express_messages_count_once_and_are_not_answered() -> None:
    desk = Desk()
    for message_id in (1, 2, 1):
        desk.take(a_message(1, transaction=None, message_id=message_id))
    desk.take(an_order_ack(1))
    assert (desk.receiver.received_count, desk.receiver.duplicate_count) == (2, 1)
    assert desk.receiver.owes_nothing
