"""The sequence to which a message belongs, however it spells the name of its queue."""

from __future__ import annotations

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.spellings import IncomingSequences, without_case
from mqproto.wire import QueueName, TransactionHeader, TxSequenceId, UserMessage, user_message
from tests.pair import guid_of

A, B, C = guid_of("a"), guid_of("b"), guid_of("c")
NOW = Moment(50_000, 1_700_000_000)
FIRST, SECOND = TxSequenceId(time_stamp=9, ordinal=1), TxSequenceId(time_stamp=9, ordinal=2)
OS, TCP = r"OS:c\PRIVATE$\orders", r"TCP:c\PRIVATE$\orders"


def a_sequence(name: QueueName, identifier: TxSequenceId = FIRST, queue: int = 5) -> IncomingSequence:
    sequence = IncomingSequence((A, queue, name), 2, Settings(), Timers(), NOW)
    sequence.identifier, sequence.number = identifier, 4
    return sequence


def a_message(name: int | str, identifier: TxSequenceId = FIRST, previous: int = 4) -> UserMessage:
    header = TransactionHeader(
        tx_sequence_id=identifier, tx_sequence_number=previous + 1, previous_tx_sequence_number=previous
    )
    return user_message(
        source=A,
        destination_manager=C,
        destination=name,
        message_id=1,
        sent_time_s=0,
        body=b"",
        transaction=header,
    )


def find(sequences: IncomingSequences, message: UserMessage, queue: int) -> IncomingSequence | None:
    """Return the sequence to which a message for a local queue belongs."""
    header, user = message.transaction, message.user
    assert header is not None
    return sequences.find(user.source_queue_manager, queue, user.destination_queue, header)


def filled(*members: IncomingSequence) -> IncomingSequences:
    sequences = IncomingSequences()
    for sequence in members:
        sequences.add(sequence)
    return sequences


def test_what_a_sequence_has_counted_stays_when_it_is_forgotten() -> None:
    first, second = a_sequence(OS), a_sequence(TCP, SECOND)
    first.duplicate_count, first.held_count_total, second.overflow_count = 3, 2, 1
    sequences = filled(first, second)
    assert sequences.counted == (3, 2, 1)
    sequences.remove(first)
    second.duplicate_count = 1
    assert sequences.counted == (4, 2, 1)


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
@pytest.mark.parametrize("spelling", [OS, r"os:C\private$\ORDERS", OS.upper()])
def test_case_does_not_count(spelling: str) -> None:
    sequence = a_sequence(OS)
    for previous in (0, 4):
        assert find(filled(sequence), a_message(spelling, SECOND, previous), 5) is sequence


@pytest.mark.spec("[MS-MQDMPR] 3.1.1.5")
@pytest.mark.parametrize(
    ("identifier", "previous", "joins"),
    [(FIRST, 4, True), (FIRST, 7, True), (FIRST, 0, False), (SECOND, 4, False), (SECOND, 0, False)],
)
def test_another_name_joins_the_sequence_with_its_exact_identifier_unless_it_begins(
    identifier: TxSequenceId, previous: int, joins: bool
) -> None:
    sequence = a_sequence(OS)
    for name in (TCP, 16):
        found = find(filled(sequence), a_message(name, identifier, previous), 5)
        assert found is (sequence if joins else None)


def test_a_sequence_under_its_own_name_comes_first_and_those_of_other_queues_and_sources_never() -> None:
    first, second, elsewhere = a_sequence(OS), a_sequence(TCP), a_sequence(16, queue=6)
    sequences = filled(first, second, elsewhere)
    assert find(sequences, a_message(OS), 5) is first
    assert find(sequences, a_message(TCP), 5) is second
    assert find(sequences, a_message(TCP), 6) is elsewhere
    assert find(sequences, a_message(TCP), 7) is None
    assert sequences.of(B, 5) is None


def test_of_two_under_one_name_the_time_stamp_tells_then_the_spelling_and_else_the_one_that_is_furthest() -> (
    None
):
    """With stores of layout 4, names that differed only in case counted as different."""
    older, newer = a_sequence(OS.upper(), TxSequenceId(time_stamp=7, ordinal=9)), a_sequence(OS, FIRST)
    sequences = filled(older, newer)
    for name in (OS, OS.upper(), OS.lower()):
        assert find(sequences, a_message(name, TxSequenceId(time_stamp=7, ordinal=10), 0), 5) is older
        assert find(sequences, a_message(name, SECOND, 0), 5) is newer
    other = TxSequenceId(time_stamp=8, ordinal=1)
    assert find(sequences, a_message(OS.upper(), other, 0), 5) is older
    assert find(sequences, a_message(OS, other, 0), 5) is newer
    assert find(sequences, a_message(OS.lower(), other, 3), 5) is newer
    assert find(sequences, a_message(OS.lower(), other, 0), 5) is None, "a sequence beside the others"


def test_what_was_removed_is_not_found() -> None:
    members = [a_sequence(OS), a_sequence(OS.lower(), SECOND), a_sequence(TCP), a_sequence(16, queue=6)]
    sequences = filled(*members)
    assert (len(sequences), list(sequences)) == (4, members)
    for left, sequence in enumerate(members, 1):
        sequences.remove(sequence)
        assert (len(sequences), list(sequences)) == (4 - left, members[left:])
    assert find(sequences, a_message(OS), 5) is None


def test_names_that_are_no_text_have_no_case() -> None:
    assert [without_case(name) for name in (16, A, None, "OS:C\\Q")] == [16, A, None, "os:c\\q"]
