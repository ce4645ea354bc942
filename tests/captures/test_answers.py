"""The account of a peer's answers to messages: OrderAcks, FinalAcks, administration acknowledgments, and session
acknowledgments.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.answers import Answers, Fate, Witness, class_name, identity_of, place_of
from mqproto.captures.net.conversation import Side
from mqproto.wire import NULL_GUID, MessageClass, OrderAckBody, TxSequenceId, encode_packet, user_message
from mqproto.wire.messages import OrderAck
from tests.conversations import (
    DESTINATION,
    SENDER,
    SEQUENCE,
    Said,
    a_final_ack,
    a_message,
    acknowledged,
    an_administration_ack,
    an_order_ack,
    answered,
    handshake,
)


def an_account(*numbers: int, sent: int | None = None) -> Answers:
    """Return an account of messages with these numbers in one sequence; the first `sent` of them were sent, or all by
    default.
    """
    answers = Answers()
    for number in numbers:
        message = a_message(number)
        answers.expect(identity_of(message), place_of(message))
    for number in range(len(numbers) if sent is None else sent):
        answers.sent(number)
    return answers


def ordered(answers: Answers) -> list[bool]:
    return [fate.ordered for fate in answers.fates]


# OrderAcks


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@given(st.permutations(range(1, 9)), st.integers(1, 8))
def test_an_order_ack_covers_all_up_to_its_number_in_whatever_order_they_were_sent(
    order: list[int], through: int
) -> None:
    answers = an_account(*order)
    assert {order[number] for number in answers.heard(an_order_ack(through))} == set(range(1, through + 1))
    assert ordered(answers) == [number <= through for number in order]
    assert answers.faults == []


@pytest.mark.spec("[MS-MQQB] 2.2.4.1")
@given(st.permutations(range(1, 9)), st.integers(0, 8), st.integers(1, 8))
def test_an_order_ack_beyond_a_gap_is_a_fault_and_covers_nothing_that_was_not_sent(
    order: list[int], sent: int, through: int
) -> None:
    answers = an_account(*order, sent=sent)
    answers.heard(an_order_ack(through))
    missing = sorted(set(range(1, through + 1)) - set(order[:sent]))
    assert [order[fault.message or 0] for fault in answers.faults] == missing
    assert ordered(answers) == [number <= through and place < sent for place, number in enumerate(order)]


def test_an_order_ack_of_more_than_there_is_is_a_fault() -> None:
    answers = an_account(1, 2)
    for number in (3, 4, 3):
        answers.heard(an_order_ack(number))
    assert [fault.text for fault in answers.faults] == [
        "OrderAck of a number above 2, the last of its sequence"
    ]


def test_an_order_ack_of_another_sequence_says_nothing() -> None:
    answers = an_account(1, 2)
    assert answers.heard(an_order_ack(2, sequence=TxSequenceId(time_stamp=1, ordinal=1))) == []
    assert (ordered(answers), answers.order_ack_count) == ([False, False], 0)


def test_an_order_ack_with_its_number_in_the_sequence_id_is_understood() -> None:
    answers = an_account(1, 2, 3)
    answers.heard(an_order_ack(0, sequence=TxSequenceId(time_stamp=0, ordinal=2)))
    assert ordered(answers) == [True, True, False]


@pytest.mark.parametrize(("manager", "covered"), [(SENDER, True), (NULL_GUID, True), (DESTINATION, False)])
def test_an_order_ack_counts_for_the_queue_manager_that_it_is_addressed_to(
    manager: bytes, covered: bool
) -> None:
    message = an_order_ack(1)
    message.user.queue_manager_address = type(SENDER)(manager)
    answers = an_account(1)
    answers.heard(message)
    assert ordered(answers) == [covered]


def test_two_senders_may_have_sequences_of_one_name() -> None:
    answers = an_account(1)
    other = a_message(1, source=DESTINATION)
    answers.expect(identity_of(other), place_of(other))
    answers.sent(1)
    answers.heard(
        OrderAck(
            source=SENDER,
            destination_manager=DESTINATION,
            destination=4,
            message_id=1,
            sent_time_s=0,
            body=OrderAckBody(SEQUENCE, 1, 0),
        ).message()
    )
    assert ordered(answers) == [False, True]


# FinalAcks and administration


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_positive_final_ack_says_that_all_before_it_arrived_a_negative_one_speaks_for_itself() -> None:
    answers = an_account(1, 2, 3)
    answers.heard(a_final_ack(3, MessageClass.NACK_Q_PURGED))
    answers.heard(a_final_ack(2))
    assert ordered(answers) == [True, True, False]
    assert [fate.final for fate in answers.fates] == [
        None,
        MessageClass.ACK_RECEIVE,
        MessageClass.NACK_Q_PURGED,
    ]


def test_of_two_final_acks_the_first_holds() -> None:
    answers = an_account(1)
    answers.heard(a_final_ack(1))
    answers.heard(a_final_ack(1, MessageClass.NACK_Q_PURGED))
    assert answers.fates[0].final == MessageClass.ACK_RECEIVE


def test_a_final_ack_of_a_message_that_was_not_sent_is_a_fault() -> None:
    answers = an_account(1, sent=0)
    answers.heard(a_final_ack(1, MessageClass.NACK_BAD_DST_Q))
    assert [fault.text for fault in answers.faults] == ["FinalAck NACK_BAD_DST_Q before it was sent"]


def test_an_administration_acknowledgment_is_found_by_its_correlation_id() -> None:
    answers = an_account(1, 2)
    assert answers.heard(an_administration_ack(2, MessageClass.ACK_REACH_QUEUE)) == [1]
    assert answers.heard(an_administration_ack(9, MessageClass.ACK_REACH_QUEUE)) == []
    assert [set(fate.administration) for fate in answers.fates] == [set(), {MessageClass.ACK_REACH_QUEUE}]


def test_an_applications_message_is_no_answer() -> None:
    assert an_account(1).heard(a_message(1)) == []


def test_the_same_message_again_is_no_other() -> None:
    answers = an_account(1)
    again = a_message(1)
    assert answers.expect(identity_of(again), place_of(again)) == 0
    assert len(answers.fates) == 1


# Fates


fates = st.builds(
    Fate,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, MessageClass.ACK_RECEIVE, MessageClass.NACK_Q_PURGED]),
    st.frozensets(st.sampled_from([MessageClass.ACK_REACH_QUEUE, MessageClass.NACK_Q_PURGED])),
)


@given(fates)
def test_a_fate_does_not_differ_from_itself(fate: Fate) -> None:
    assert list(fate.differences(fate)) == []
    assert not fate.lacks(fate)


@given(fates, fates)
def test_what_is_lacking_is_a_difference(live: Fate, captured: Fate) -> None:
    if live.lacks(captured):
        assert list(live.differences(captured))


@given(fates)
def test_more_that_is_positive_is_no_difference(captured: Fate) -> None:
    live = Fate(
        True,
        True,
        captured.final or MessageClass.ACK_RECEIVE,
        captured.administration | {MessageClass.REPORT},
    )
    assert list(live.differences(captured)) == []


@pytest.mark.parametrize(
    ("live", "captured", "words"),
    [
        (Fate(), Fate(acknowledged=True), "no session acknowledgment, the capture has one"),
        (Fate(), Fate(ordered=True), "no OrderAck, the capture has one"),
        (Fate(), Fate(final=0x4000), "no FinalAck, the capture has ACK_RECEIVE"),
        (Fate(final=0xC001), Fate(final=0x4000), "FinalAck NACK_Q_PURGED, the capture has ACK_RECEIVE"),
        (Fate(final=0xC001), Fate(), "FinalAck NACK_Q_PURGED, the capture has none"),
        (
            Fate(administration=frozenset({0x8003})),
            Fate(),
            "administration acknowledgment NACK_Q_EXCEED_QUOTA, the capture has none",
        ),
        (
            Fate(),
            Fate(administration=frozenset({2})),
            "no administration acknowledgment ACK_REACH_QUEUE, the capture has one",
        ),
    ],
)
def test_differences_are_told_in_words(live: Fate, captured: Fate, words: str) -> None:
    assert list(live.differences(captured)) == [words]


def test_a_class_without_a_name_is_told_by_its_number() -> None:
    assert class_name(0x1234) == "class 0x1234"


# Sessions


def follow(witness: Witness, talk: list[Said], us: Side = Side.CLIENT) -> list[int]:
    """Give a witness all packets; our messages are numbered in the order in which they were sent."""
    spoken_of, number = [], 0
    for said in talk:
        data = encode_packet(said.packet)
        if said.side is us:
            is_message = hasattr(said.packet, "transaction")
            witness.said(said.packet, data, number if is_message else None)
            number += is_message
        else:
            spoken_of += witness.heard(said.packet, data)
    return spoken_of


@pytest.mark.spec("[MS-MQQB] 3.1.5.5")
def test_the_session_says_which_messages_are_saved() -> None:
    witness = Witness()
    assert follow(witness, answered([1, 2, 3])) == [0, 1, 2]
    assert witness.fault == ""


def test_an_express_message_is_had_when_it_is_received() -> None:
    express = user_message(
        source=SENDER, destination_manager=DESTINATION, destination=17, message_id=1, sent_time_s=0, body=b"x"
    )
    header = acknowledged(Side.SERVER, 0)
    header.packet.session.ack_sequence_number = 1  # type: ignore[union-attr]
    assert follow(Witness(), [*handshake(), Said(Side.CLIENT, express), header]) == [0]


def test_the_side_that_accepted_the_session_is_followed_as_well() -> None:
    talk = [*handshake(), Said(Side.SERVER, a_message(1)), acknowledged(Side.CLIENT, 1)]
    assert follow(Witness(), talk, Side.SERVER) == [0]


def test_a_session_acknowledgment_of_more_than_was_sent_is_a_fault() -> None:
    witness = Witness()
    follow(witness, [*handshake(), Said(Side.CLIENT, a_message(1)), acknowledged(Side.SERVER, 5)])
    assert witness.fault == "it acknowledges message 5, the last one sent was 1  [MS-MQQB] 3.1.5.5.1"


def test_of_a_session_that_began_before_nothing_is_known() -> None:
    witness = Witness()
    assert follow(witness, answered([1, 2])[4:]) == []
    assert witness.fault == ""
