"""Session acknowledgments, tested with a neighbour that counts without wrapping."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session import Session
from mqproto.session.acknowledgment import ACK_BYTES, ACK_DELAY_MS, FLAG_COUNT, take_session_header
from mqproto.session.data import ahead
from mqproto.session.states import UNSAVED_LIMIT
from mqproto.wire import Packet, SessionAck, SessionHeader, UserMessage, decode_packet
from tests.sessions import (
    EXPRESS,
    NOW,
    RECOVERABLE,
    SETTINGS,
    a_packet,
    a_session,
    acks_of,
    an_ack,
    an_entry,
    later,
    receive,
    send,
    sent,
)

WAIT_MS = SETTINGS.ack_wait_timeout_ms


def positions(session: Session) -> list[int]:
    return [entry.position for entry in session.take_completed()]


def waits_until(session: Session) -> int | None:
    return session.data.timers.deadline_ms(Timer.SESSION_ACK_WAIT, session.key)


# What the neighbour has received: 3.1.5.5.1, 3.1.5.5.2


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.2")
def test_express_messages_are_done_when_received() -> None:
    session = a_session()
    send(session, 3, recoverable=False)
    receive(session, an_ack(2))
    assert positions(session) == [1, 2]
    assert [entry.position for entry in session.lost()] == [3]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.1")
def test_recoverable_messages_are_done_only_when_saved() -> None:
    session = a_session()
    send(session, 3)
    receive(session, an_ack(3))
    assert positions(session) == []
    assert session.room
    receive(session, an_ack(3, base=1, flags=0b011))
    assert positions(session) == [1, 2]
    assert [entry.position for entry in session.lost()] == [3]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_what_comes_before_the_first_flag_is_saved_too() -> None:
    session = a_session()
    send(session, 5)
    receive(session, an_ack(5, base=4, flags=1))
    assert positions(session) == [1, 2, 3, 4]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_a_hole_in_the_flags_stays_open_until_a_later_flag_fills_it() -> None:
    session = a_session()
    send(session, 4)
    receive(session, an_ack(4, base=1, flags=0b1101))
    assert positions(session) == [1, 3, 4]
    assert [entry.position for entry in session.lost()] == [2]
    receive(session, an_ack(4, base=1, flags=0b1101))
    assert positions(session) == []
    receive(session, an_ack(4, base=1, flags=0b0010))
    assert positions(session) == [2]
    assert session.lost() == []
    receive(session, an_ack(4, base=1, flags=0b1111))
    assert positions(session) == []
    assert session.is_open


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
@pytest.mark.parametrize("number", [3, 100, 0x8000])
def test_an_acknowledgment_of_what_was_never_sent_closes_with_both_numbers(number: int) -> None:
    session = a_session()
    send(session, 2)
    receive(session, an_ack(1))
    receive(session, an_ack(number))
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.1"
    assert f"message {number}" in session.closed.reason
    assert "sent was 2" in session.closed.reason


OLDER = "10001b00 4c494f52 24000000 ffffffff 0000 0100 {number:04x}0000 00000000 00000000 4000 0000"
"""A SessionAck, byte by byte: two headers, then AckSequenceNumber; nothing is saved or sent, and the window is 64."""


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
@pytest.mark.parametrize("number", [0, 1, 0xFFFF, 0x8002])
@pytest.mark.parametrize("start", [0, 0xFFFE])
def test_an_acknowledgment_older_than_the_last_marks_nothing_and_the_session_goes_on(
    number: int, start: int
) -> None:
    session = a_session()
    session.data.message_sent_count = start
    send(session, 3, recoverable=False)
    receive(session, an_ack(start + 2))
    assert positions(session) == [1, 2]
    older = (start + number) & 0xFFFF
    receive(session, bytes.fromhex(OLDER.format(number=older << 8 & 0xFF00 | older >> 8)))
    assert session.closed is None
    assert positions(session) == []
    assert [entry.position for entry in session.lost()] == [3]
    receive(session, an_ack(start + 3))
    assert positions(session) == [3]


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_what_an_older_acknowledgment_says_is_saved_is_saved_and_its_counts_have_to_agree() -> None:
    session = a_session()
    send(session, 2)
    receive(session, an_ack(2))
    receive(session, an_ack(1, base=1, flags=0b01))
    assert positions(session) == [1]
    receive(session, an_ack(1, user=1))
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.5"


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_flags_for_what_was_never_sent_close_and_complete_nothing() -> None:
    session = a_session()
    send(session, 2)
    receive(session, an_ack(2, base=1, flags=0b111))
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.3"
    assert "recoverable message 3, the last one sent was 2" in session.closed.reason
    assert positions(session) == []
    assert len(session.lost()) == 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
@pytest.mark.parametrize(("user", "recoverable"), [(2, 1), (1, 0), (0, 0), (1, 2)])
def test_counts_that_differ_close_the_session(user: int, recoverable: int) -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    receive(session, an_ack(0, user=user, recoverable=recoverable))
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.5"
    assert f"sent {user} messages, {recoverable} of them" in session.closed.reason


@pytest.mark.spec("[MS-MQQB] 3.1.5.5")
def test_the_neighbour_may_change_its_window_with_any_header() -> None:
    session = a_session()
    receive(session, an_ack(0, window=1))
    send(session, 1)
    assert not session.room
    receive(session, an_ack(1, base=1, flags=1, window=2))
    send(session, 1)
    assert session.room


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
@pytest.mark.spec("[MS-MQQB] 3.1.2.4")
def test_the_ack_wait_timer_starts_with_the_first_message_and_restarts_with_each_header() -> None:
    session = a_session()
    send(session, 1, now=NOW)
    send(session, 1, now=later(10))
    assert waits_until(session) == NOW.uptime_ms + WAIT_MS
    receive(session, an_ack(1), later(50))
    assert waits_until(session) == later(50).uptime_ms + WAIT_MS
    receive(session, an_ack(2, base=1, flags=0b11), later(60))
    assert waits_until(session) == later(50).uptime_ms + WAIT_MS, "nothing waits: it runs out by itself"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.4")
def test_a_header_that_rides_on_a_message_counts_like_one_alone() -> None:
    ours, theirs = a_session(), a_session(initiator=False)
    send(ours, 1)
    theirs.receive(b"".join(ours.take_outbox()), NOW)
    theirs.send([an_entry(recoverable=False)], NOW)
    theirs.acknowledge()
    (chunk,) = theirs.take_outbox()
    assert receive(ours, chunk) == 1
    assert positions(ours) == [1]
    assert ours.is_open


# What we acknowledge: 3.1.6.4, 3.1.5.8.7


@pytest.mark.spec("[MS-MQQB] 3.1.2.5")
@pytest.mark.spec("[MS-MQQB] 3.1.6.4")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.7")
@given(kinds=st.lists(st.booleans(), max_size=100))
def test_one_turn_acknowledges_all_that_came_with_32_recoverable_messages_to_a_header(
    kinds: list[bool],
) -> None:
    session = a_session()
    for recoverable in kinds:
        receive(session, RECOVERABLE if recoverable else EXPRESS)
    session.acknowledge()
    packets = sent(session)
    assert all(isinstance(packet, SessionAck) for packet in packets)
    headers = acks_of(packets)
    saved = [
        header.recoverable_msg_ack_seq_number + bit
        for header in headers
        for bit in range(FLAG_COUNT)
        if header.recoverable_msg_ack_flags >> bit & 1
    ]
    assert saved == list(range(1, sum(kinds) + 1))
    assert {header.ack_sequence_number for header in headers} == ({len(kinds)} if kinds else set())
    assert len(headers) == max(-(-sum(kinds) // FLAG_COUNT), 1 if kinds else 0)
    session.acknowledge()
    assert sent(session) == [], "nothing came since"


@pytest.mark.spec("[MS-MQQB] 3.1.7.11")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_the_first_header_rides_on_the_last_message_and_counts_it() -> None:
    session = a_session()
    for _ in range(40):
        receive(session, RECOVERABLE)
    send(session, 2)
    session.acknowledge()
    packets = sent(session)
    assert [type(packet) for packet in packets] == [UserMessage, UserMessage, SessionAck]
    riding, alone = acks_of(packets)
    assert (riding.ack_sequence_number, riding.recoverable_msg_ack_flags) == (40, 2**32 - 1)
    assert (riding.user_msg_sequence_number, riding.recoverable_msg_seq_number) == (2, 2)
    assert (alone.recoverable_msg_ack_seq_number, alone.recoverable_msg_ack_flags) == (33, 0xFF)
    assert riding.window_size == SETTINGS.window_size


@pytest.mark.spec("[MS-MQQB] 3.1.6.4")
def test_a_session_that_is_not_open_acknowledges_nothing() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    session.close("3.1.5.9", "a test")
    session.acknowledge()
    assert sent(session) == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_a_message_is_counted_whatever_becomes_of_it_so_that_both_counts_agree() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    receive(
        session, RECOVERABLE
    )  # The same one again: a duplicate, as far as the queue manager is concerned.
    receive(session, an_ack(0, user=2, recoverable=2))
    assert session.is_open


# When we acknowledge: 3.1.2.5, 3.1.6.4, 3.1.5.8.7


def said(session: Session, now: Moment = NOW) -> list[int]:
    """Return each AckSequenceNumber that a session sends at the end of a turn."""
    session.acknowledge(now)
    return [header.ack_sequence_number for header in acks_of(sent(session))]


def due_ms(session: Session) -> int | None:
    return session.data.timers.deadline_ms(Timer.SESSION_ACK_SEND, session.key)


@pytest.mark.spec("[MS-MQQB] 3.1.2.5")
@pytest.mark.spec("[MS-MQQB] 3.1.6.4")
def test_an_acknowledgment_waits_for_more_to_acknowledge_until_its_timer_is_due() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    assert said(session) == []
    due = later(ACK_DELAY_MS)
    receive(session, RECOVERABLE, later(60))
    assert said(session, later(60)) == []
    assert due_ms(session) == due.uptime_ms, "a second message puts nothing off"
    session.expired(Timer.SESSION_ACK_SEND, due)
    assert said(session, due) == [2]
    assert due_ms(session) is None
    assert said(session, later(5_000)) == [], "nothing came since"
    receive(session, RECOVERABLE, later(5_000))
    assert said(session, later(5_000)) == []
    assert due_ms(session) == later(5_000 + ACK_DELAY_MS).uptime_ms


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.7")
@pytest.mark.parametrize(
    ("ours", "theirs", "part"),
    [(64, 64, 16), (64, 8, 2), (8, 64, 2), (1_024, 1_024, 256), (1, 64, 1), (64, 1, 1)],
)
def test_a_part_of_the_window_is_acknowledged_at_once_so_that_its_sender_never_waits(
    ours: int, theirs: int, part: int
) -> None:
    session = a_session(settings=Settings(window_size=ours), received_window_size=theirs)
    for _ in range(part - 1):
        receive(session, RECOVERABLE)
        assert said(session) == []
    receive(session, RECOVERABLE)
    assert set(said(session)) == {part}
    assert due_ms(session) is None


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.7")
def test_what_is_large_is_acknowledged_at_once_as_its_sender_may_have_so_much_on_its_way_and_no_more() -> (
    None
):
    session = a_session()
    receive(session, a_packet(body=bytes(ACK_BYTES // 2)))
    assert said(session) == []
    receive(session, a_packet(body=bytes(ACK_BYTES // 2)))
    assert said(session) == [2]
    receive(session, a_packet(body=bytes(ACK_BYTES // 2)))
    assert said(session) == [], "what was acknowledged does not count any more"


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.7")
def test_an_express_message_is_acknowledged_at_once_with_all_that_came_before_it() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    assert said(session) == []
    receive(session, EXPRESS)
    assert said(session) == [2]
    receive(session, EXPRESS)
    assert said(session) == [3]


@pytest.mark.spec("[MS-MQQB] 3.1.7.11")
def test_what_goes_to_the_neighbour_takes_the_acknowledgment_along_before_it_is_due() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    assert said(session) == []
    send(session, 1)
    assert said(session) == [1]
    assert due_ms(session) is None


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_session_that_closes_acknowledges_nothing_later() -> None:
    session = a_session()
    receive(session, RECOVERABLE)
    assert said(session) == []
    session.close("3.1.5.9", "a test")
    assert due_ms(session) is None


# Counts wrap


@given(number=st.integers(0, 2**20), lead=st.integers(0, 0xFFFF))
def test_ahead_is_right_across_the_wrap(number: int, lead: int) -> None:
    assert ahead((number + lead) & 0xFFFF, number & 0xFFFF) == lead


class Neighbour:
    """A neighbour that counts a session's messages in plain integers, and answers in one of several ways."""

    def __init__(self, seed: int, manner: str) -> None:
        self.dice = random.Random(seed)
        self.manner = manner
        self.received = 0
        self.numbers: list[int] = []
        """The neighbour's numbers for recoverable messages that it has received but not flagged yet."""
        self.recoverable = 0
        self.answered = 0

    def take(self, recoverable: bool) -> None:
        self.received += 1
        if recoverable:
            self.recoverable += 1
            self.numbers.append(self.recoverable)

    def headers(self) -> list[SessionHeader]:
        """Acknowledge some messages, or all."""
        found = [an_ack(self.received)] if self.manner == "flags later" else []
        group = self.numbers[: self.dice.choice([1, 7, 32])] if self.manner != "all" else self.numbers
        while group:
            base = group[0]
            if self.manner == "old flags again" and base > 5 and self.dice.random() < 0.3:
                base -= self.dice.randrange(5)
            covered = [number for number in group if number < base + FLAG_COUNT]
            if self.manner == "holes":
                covered = [number for number in covered if number == base or self.dice.random() < 0.7]
            flags = 0
            for number in range(base, covered[-1] + 1):
                if number in covered or number < group[0]:
                    flags |= 1 << number - base
            found.append(an_ack(self.received, base=base, flags=flags))
            done = set(covered)
            self.numbers = [number for number in self.numbers if number not in done]
            group = self.numbers if self.manner == "all" else []
        if self.manner == "holes" and self.dice.random() < 0.5 and self.numbers:
            # Fill the first hole by itself.
            number = self.numbers.pop(0)
            found.append(an_ack(self.received, base=number, flags=1))
        return [ack.session for ack in found or [an_ack(self.received)]]


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.1.4")
@pytest.mark.parametrize(
    ("manner", "total"),
    [("all", 200_000), ("flags later", 70_000), ("holes", 70_000), ("old flags again", 70_000)],
)
def test_a_session_that_has_wrapped_works_like_a_new_one(manner: str, total: int) -> None:
    session = a_session()
    neighbour = Neighbour(1, manner)
    dice = random.Random(manner)
    count, completed = 0, 0
    entries = (an_entry(n, recoverable=n % 3 != 0) for n in range(total))
    while count < total:
        burst = dice.choice([1, 10, 64])
        while burst and session.room and count < total and len(neighbour.numbers) < 100:
            entry = next(entries)
            session.send([entry], NOW)
            neighbour.take(entry.recoverable)
            count += 1
            burst -= 1
        for header in neighbour.headers():
            take_session_header(session.data, header, NOW)
        session.take_outbox()
        completed += len(session.take_completed())
        assert session.closed is None, session.closed
    for _ in range(20_000):
        if completed == total:
            break
        for header in neighbour.headers():
            take_session_header(session.data, header, NOW)
        completed += len(session.take_completed())
        assert session.closed is None, session.closed
    assert completed == total
    assert session.lost() == []
    assert session.data.in_flight_bytes == 0


@pytest.mark.spec("[MS-MQQB] 3.1.1.4")
def test_two_sessions_talk_across_the_wrap_in_both_directions() -> None:
    ours, theirs = a_session(), a_session(initiator=False)
    for session, other in ((ours, theirs), (theirs, ours)):
        session.data.message_sent_count = other.data.message_received_count = 0xFFF0
        session.data.recoverable_message_sent_count = 0xFFFA
        other.data.recoverable_message_received_count = other.data.last_acked_recoverable_msg_seq_number = (
            0xFFFA
        )
    for turn in range(20):
        for session, other in ((ours, theirs), (theirs, ours)):
            send(session, 3)
            send(session, 1, recoverable=False)
            session.acknowledge()
            other.receive(b"".join(session.take_outbox()), NOW)
        assert ours.is_open, (turn, ours.closed)
        assert theirs.is_open, (turn, theirs.closed)
    ours.acknowledge()
    theirs.receive(b"".join(ours.take_outbox()), NOW)
    assert theirs.lost() == []
    assert len(ours.lost()) <= 4


@pytest.mark.spec("[MS-MQQB] 3.1.7.1")
def test_what_is_received_and_never_saved_is_bounded_by_half_of_the_circle() -> None:
    session = a_session()
    for number in range(UNSAVED_LIMIT):
        assert session.room, number
        session.send([an_entry(number)], NOW)
        take_session_header(session.data, an_ack(number + 1).session, NOW)
    assert not session.room
    take_session_header(session.data, an_ack(UNSAVED_LIMIT, base=1, flags=1).session, NOW)
    assert session.room


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
@given(
    saved=st.integers(0, 3),
    count=st.integers(1, 70),
    number=st.integers(0, 70),
    start=st.sampled_from([0, 65_500]),
)
def test_a_number_without_flags_says_that_all_up_to_it_is_saved(
    saved: int, count: int, number: int, start: int
) -> None:
    """This is the first sentence of 3.1.5.5.3.

    According to [MS-MQMQ] 2.2.20.4, the number 0 acknowledges nothing, even after a wrap.
    """
    saved, number = min(saved, count), min(number, count)
    session = a_session()
    data = session.data
    data.message_sent_count = data.recoverable_message_sent_count = start
    send(session, count)
    last = (start + count) & 0xFFFF
    if saved:
        take_session_header(data, an_ack(last, base=(start + 1) & 0xFFFF, flags=2**saved - 1).session, NOW)
        session.take_completed()
    base = (start + number) & 0xFFFF
    take_session_header(data, an_ack(last, base=base, flags=0).session, NOW)
    means_nothing = base == 0 or number <= saved
    assert positions(session) == ([] if means_nothing else list(range(saved + 1, number + 1)))
    assert session.is_open


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.3")
def test_a_number_without_flags_of_what_was_never_sent_closes_and_completes_nothing() -> None:
    session = a_session()
    send(session, 2)
    receive(session, an_ack(2, base=3))
    assert session.closed is not None
    assert session.closed.section == "3.1.5.5.3"
    assert "recoverable message 3, the last one sent was 2" in session.closed.reason
    assert positions(session) == []


# A queue on hold: 3.1.7.13


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
@given(
    saved=st.integers(0, 70),
    unsaved=st.integers(0, 70),
    sent_before=st.integers(0, 10),
    express=st.booleans(),
    start=st.sampled_from([0, 65_530]),
)
def test_a_pause_acknowledges_only_what_was_acknowledged_before_and_what_follows_fits(
    saved: int, unsaved: int, sent_before: int, express: bool, start: int
) -> None:
    """Both ends pause at once: neither finds a discrepancy in the counts, before or after unsaved messages are
    committed.
    """
    ours, theirs = a_session(), a_session()
    for one, other in ((ours.data, theirs.data), (theirs.data, ours.data)):
        one.message_sent_count = other.message_received_count = start
        one.recoverable_message_sent_count = other.recoverable_message_received_count = start
        other.last_acked_recoverable_msg_seq_number = start

    def carry(source: Session, target: Session) -> list[Packet]:
        packets = source.take_outbox()
        for packet in packets:
            receive(target, packet)
        return [decode_packet(packet) for packet in packets]

    send(theirs, saved, recoverable=not express)
    carry(theirs, ours)
    ours.acknowledge()
    carry(ours, theirs)
    send(theirs, unsaved, recoverable=not express)
    carry(theirs, ours)
    send(ours, sent_before)
    ours.pause()
    [*packets] = carry(ours, theirs)
    assert [header.window_size for header in acks_of(packets)] == [1]
    assert len(positions(theirs)) == saved
    assert theirs.data.received_window_size == 1
    assert not ours.data.session_active
    ours.acknowledge()
    carry(ours, theirs)
    assert len(positions(theirs)) == unsaved
    assert theirs.data.received_window_size == (64 if unsaved else 1)
    assert ours.closed is theirs.closed is None


@pytest.mark.spec("[MS-MQQB] 3.1.7.13")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
def test_a_pause_is_said_before_a_newer_acknowledgment_and_not_behind_it() -> None:
    session, neighbour = a_session(), a_session()
    send(neighbour, 2)
    for packet in neighbour.take_outbox():
        session.receive(packet, NOW)
    send(session, 1)
    session.pause()
    session.acknowledge()
    for packet in session.take_outbox():
        neighbour.receive(packet, NOW)
    assert neighbour.is_open
    assert positions(neighbour) == [1, 2]


# How long the neighbour takes


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
def test_one_message_at_a_time_is_timed_until_the_neighbour_has_acknowledged_it() -> None:
    session = a_session()
    assert session.acknowledged_ms is None
    send(session, 3)
    send(session, 2, now=later(40))
    receive(session, an_ack(2), now=later(60))
    assert session.acknowledged_ms is None, "the last of those that were sent together is timed"
    receive(session, an_ack(4), now=later(80))
    assert session.acknowledged_ms == 80
    send(session, 1, now=later(100))
    receive(session, an_ack(4), now=later(110))
    assert session.acknowledged_ms == 80, "an acknowledgment of nothing new says nothing"
    receive(session, an_ack(6), now=later(116))
    assert session.acknowledged_ms == 80 + (16 - 80) / 8


@pytest.mark.spec("[MS-MQQB] 3.1.5.5.1")
def test_a_neighbour_is_timed_where_counts_begin_again() -> None:
    session = a_session()
    session.data.message_sent_count = session.data.recoverable_message_sent_count = 0xFFFE
    send(session, 1)
    send(session, 3, now=later(5))
    receive(session, an_ack(1), now=later(30))
    assert session.acknowledged_ms == 30
