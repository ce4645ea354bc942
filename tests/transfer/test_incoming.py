"""Sequences at their destination: in order, once, with messages held behind gaps."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.transfer.incoming import (
    ArrivalVerdict,
    Held,
    IncomingSequence,
    comes_next,
    held_name,
    key_of_held,
)
from mqproto.wire import Guid, QueueName, TransactionHeader, TxSequenceId
from tests.pair import guid_of

FIRST = TxSequenceId(time_stamp=9, ordinal=1)
SECOND = TxSequenceId(time_stamp=9, ordinal=2)
NOW = Moment(50_000, 1_700_000_000)


def a_header(number: int, previous: int | None = None, identifier: TxSequenceId = FIRST) -> TransactionHeader:
    return TransactionHeader(
        tx_sequence_id=identifier,
        tx_sequence_number=number,
        previous_tx_sequence_number=number - 1 if previous is None else previous,
    )


def a_sequence(settings: Settings | None = None) -> IncomingSequence:
    return IncomingSequence((guid_of("a"), 1, 16), 2, settings or Settings(), Timers(), NOW)


def arrive(sequence: IncomingSequence, header: TransactionHeader, size: int = 100) -> list[int]:
    """Let one message arrive; return the numbers that are accepted because of it."""
    packet = bytes(size)
    verdict = sequence.take(header, size)
    if verdict is ArrivalVerdict.HOLD:
        sequence.hold(header, packet)
    if verdict is not ArrivalVerdict.ACCEPT:
        return []
    accepted, _ = sequence.release()
    return [header.tx_sequence_number, *(held.header.tx_sequence_number for held in accepted)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (a_header(6, 5), True),
        (a_header(9, 5), True),
        (a_header(9, 2), True),
        (a_header(6, 6), False),
        (a_header(7, 6), False),
        (a_header(5, 4), False),
        (a_header(1, 0), False),
        (a_header(1, 0, SECOND), True),
        (a_header(3, 0, SECOND), True),
        (a_header(2, 1, SECOND), False),
        (a_header(6, 5, TxSequenceId(time_stamp=8, ordinal=7)), False),
        (a_header(1, 0, TxSequenceId(time_stamp=10, ordinal=0)), True),
    ],
)
def test_what_comes_next_is_told_by_identifier_number_and_previous_number(
    header: TransactionHeader, accepted: bool
) -> None:
    assert comes_next(header, FIRST, 5) is accepted


@st.composite
def streams(draw: st.DrawFn) -> list[TransactionHeader]:
    """Draw several sequences of one sender; each has jumps, which the messages' previous numbers bridge."""
    headers = []
    for ordinal in range(1, draw(st.integers(2, 4))):
        previous = 0
        for step in draw(st.lists(st.integers(1, 3), min_size=1, max_size=12)):
            headers.append(a_header(previous + step, previous, TxSequenceId(time_stamp=9, ordinal=ordinal)))
            previous += step
    return headers


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
@given(headers=streams(), seed=st.integers(), limit=st.integers(1, 30))
def test_in_any_order_and_however_often_each_message_is_accepted_once_and_in_order(
    headers: list[TransactionHeader], seed: int, limit: int
) -> None:
    """A new sequence begins when the previous one has been acknowledged, so each is shuffled separately."""
    dice = random.Random(seed)
    sequence = a_sequence(Settings(held_messages_limit=limit))
    for identifier in sorted({header.tx_sequence_id for header in headers}):
        part = [header for header in headers if header.tx_sequence_id == identifier]
        old = [header for header in headers if header.tx_sequence_id < identifier]
        numbers = [header.tx_sequence_number for header in part]
        accepted: list[int] = []
        for _ in range(len(part) + 1):  # The sender sends again what is not acknowledged.
            arrivals = part + dice.choices(part + old, k=5)
            dice.shuffle(arrivals)
            for header in arrivals:
                accepted += arrive(sequence, header)
                assert accepted == numbers[: len(accepted)]
                assert sequence.held_count <= limit
                if accepted:
                    assert (sequence.identifier, sequence.number) == (identifier, accepted[-1])
        assert accepted == numbers
        sequence.release()
        assert sequence.held_count == 0
        assert sequence.held_bytes == 0


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_a_message_that_is_not_accepted_does_not_advance_the_sequence() -> None:
    """According to the letter of the text, the sequence would advance, and the messages before this one would be
    lost.
    """
    sequence = a_sequence()
    assert arrive(sequence, a_header(1)) == [1]
    assert sequence.take(a_header(3), 10) is ArrivalVerdict.HOLD
    assert (sequence.identifier, sequence.number) == (FIRST, 1)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
def test_rejections_are_counted_until_the_next_acceptance() -> None:
    sequence = a_sequence()
    arrive(sequence, a_header(1))
    arrive(sequence, a_header(1))
    arrive(sequence, a_header(4))
    assert sequence.reject_count == 2
    arrive(sequence, a_header(2))
    assert sequence.reject_count == 0
    assert (sequence.duplicate_count, sequence.held_count_total) == (1, 1)


def test_what_is_held_already_is_a_duplicate() -> None:
    sequence = a_sequence()
    arrive(sequence, a_header(3))
    assert sequence.take(a_header(3), 10) is ArrivalVerdict.DUPLICATE


@pytest.mark.parametrize(
    "settings", [Settings(held_messages_limit=2), Settings(held_bytes_limit=250)], ids=["count", "bytes"]
)
def test_what_is_held_is_bounded_in_count_and_bytes(settings: Settings) -> None:
    sequence = a_sequence(settings)
    arrive(sequence, a_header(3))
    arrive(sequence, a_header(5))
    assert sequence.take(a_header(7), 100) is ArrivalVerdict.OVERFLOW
    assert (sequence.held_count, sequence.overflow_count) == (2, 1)
    assert arrive(sequence, a_header(1)) == [1]
    assert arrive(sequence, a_header(2)) == [2, 3]
    assert sequence.take(a_header(7), 100) is ArrivalVerdict.HOLD


def test_what_was_held_and_then_came_again_over_a_bridge_is_nobodys_need() -> None:
    sequence = a_sequence()
    arrive(sequence, a_header(1))
    arrive(sequence, a_header(4))  # 2 and 3 are withdrawn, and 4 comes again:
    assert sequence.take(a_header(4, 1), 100) is ArrivalVerdict.ACCEPT
    accepted, stale = sequence.release()
    assert accepted == []
    assert [held.header.tx_sequence_number for held in stale] == [4]
    assert sequence.held_count == 0


def test_what_is_held_can_be_forgotten_and_comes_again_at_new_positions() -> None:
    sequence = a_sequence()
    for number in (3, 5, 7):
        arrive(sequence, a_header(number))
    assert (sequence.drop_held(a_header(7)), sequence.held_bytes) == (3, 200)
    assert sequence.forget_held() == 3, "the last position that is to be removed"
    assert (sequence.held_count, sequence.held_bytes, sequence.missing) == (0, 0, None)
    assert sequence.take(a_header(3), 10) is ArrivalVerdict.HOLD
    assert sequence.hold(a_header(3), bytes(10)).position == 4
    assert arrive(sequence, a_header(1)) == [1]
    assert arrive(sequence, a_header(2)) == [2, 3]


def test_what_is_missing_is_what_comes_before_the_first_message_that_is_held() -> None:
    sequence = a_sequence()
    assert sequence.missing is None
    arrive(sequence, a_header(1))
    assert sequence.missing is None
    arrive(sequence, a_header(9))
    assert sequence.missing == (2, 8)
    arrive(sequence, a_header(6, 4))
    assert sequence.missing == (2, 4), "5 was withdrawn"
    arrive(sequence, a_header(4, 1))
    assert sequence.missing == (7, 8)
    for number in (7, 8):
        arrive(sequence, a_header(number))
    assert sequence.missing is None


def test_of_a_new_sequence_all_before_the_first_message_that_is_held_is_missing() -> None:
    sequence = a_sequence()
    for number in (1, 2):
        arrive(sequence, a_header(number))
    arrive(sequence, a_header(3, 2, SECOND))
    assert sequence.missing == (1, 2)


def test_a_sequence_and_what_it_holds_survive_a_restart() -> None:
    sequence = a_sequence()
    arrive(sequence, a_header(1))
    held = [sequence.hold(a_header(n), bytes(10)) for n in (3, 4)]
    again = a_sequence()
    again.restore(sequence.row(), last_held=held[-1].position)
    for one in held:
        again.restore_held(one.header, one.packet, one.position)
    assert again.row() == sequence.row()
    assert again.row().queue == 2, "the HELD queue's number"
    assert again.hold(a_header(9), b"").position == 3, "positions are not used twice"
    assert arrive(again, a_header(2)) == [2, 3, 4]
    assert isinstance(held[0], Held)


# The Order Ack Send Timer: 3.1.2.7


@pytest.mark.spec("[MS-MQQB] 3.1.2.7")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
@given(gaps_ms=st.lists(st.integers(0, 700), min_size=1, max_size=200))
@example(gaps_ms=[400] * 6)  # One message comes when the delay is just over.
def test_an_order_ack_leaves_half_a_second_after_the_last_message_or_once_the_delay_is_reached(
    gaps_ms: list[int],
) -> None:
    """The rule as it is written: the timer restarts if it runs and the last OrderAck was less than the delay ago."""
    settings = Settings(maximum_order_ack_delay_s=2)
    sequence = a_sequence(settings)
    timers = sequence._timers
    now, last_sent, deadline = NOW.uptime_ms, NOW.uptime_ms, None
    for gap in gaps_ms:
        now += gap
        if deadline is not None and deadline <= now:
            assert [key[0] for key in timers.expired(now)] == [Timer.ORDER_ACK_SEND]
            sequence.order_ack_sent(Moment(deadline, 0))
            last_sent, deadline = deadline, None
        sequence.schedule_order_ack(Moment(now, 0))
        if deadline is None or now - last_sent < 2_000:
            deadline = now + 500
        assert timers.deadline_ms(Timer.ORDER_ACK_SEND, sequence) == deadline
        assert now - last_sent < 2_000 + 700 + 500 or deadline == now + 500


@pytest.mark.spec("[MS-MQQB] 3.1.2.7")
def test_under_a_steady_stream_an_order_ack_leaves_within_the_delay_and_one_timeout() -> None:
    sequence = a_sequence()
    sent = []
    for now in range(NOW.uptime_ms, NOW.uptime_ms + 60_000, 100):
        for _ in sequence._timers.expired(now):
            sequence.order_ack_sent(Moment(now, 0))
            sent.append(now)
        sequence.schedule_order_ack(Moment(now, now // 1_000))
    assert len(sent) >= 5
    assert all(b - a <= 10_600 for a, b in zip([NOW.uptime_ms, *sent], sent, strict=False))
    assert sequence.last_access_s == now // 1_000


@pytest.mark.spec("[MS-MQQB] 3.1.6.9")
def test_a_message_that_comes_after_an_order_ack_asks_for_another_at_whatever_moment() -> None:
    sequence = a_sequence()
    for _ in range(2):
        sequence.schedule_order_ack(NOW)
        due = sequence._timers.expired(NOW.uptime_ms + 500)
        assert [timer for timer, _ in due] == [Timer.ORDER_ACK_SEND]
        sequence.order_ack_sent(NOW)


# Keys


@given(
    name=st.one_of(
        st.integers(1, 2**32 - 1),
        st.binary(min_size=16, max_size=16).map(Guid),
        st.text(min_size=1).map(lambda text: f"TCP:{text}\\private$\\q"),
    )
)
def test_the_name_of_a_held_queue_tells_the_whole_key(name: QueueName) -> None:
    key = (guid_of("a"), 12, name)
    assert key_of_held(held_name(key)) == key


def test_an_early_message_that_may_not_be_held_is_answered_that_nothing_of_its_sequence_is_here() -> None:
    """The message is a stranger's: if this store was restored, the messages that the stranger repeats would be early
    forever.
    """
    sequence = a_sequence()
    assert sequence.place is None
    assert sequence.take(a_header(2, identifier=SECOND), 100, may_hold=False) is ArrivalVerdict.OVERFLOW
    assert sequence.place == (SECOND, 0)
    assert sequence.take(a_header(1), 100, may_hold=False) is ArrivalVerdict.ACCEPT
    assert sequence.place == (SECOND, 0), "its sender has gone on to that one"
    for number in (1, 2):
        assert (
            sequence.take(a_header(number, identifier=SECOND), 100, may_hold=False) is ArrivalVerdict.ACCEPT
        )
        assert sequence.place == (SECOND, number)
    assert sequence.take(a_header(9, identifier=SECOND), 100, may_hold=False) is ArrivalVerdict.OVERFLOW
    assert sequence.place == (SECOND, 2), "what was accepted of it"
