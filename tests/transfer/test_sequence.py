"""Sequences of our own transactional messages, kept until their OrderAck."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mqproto.base.configuration import FIGURES, Settings
from mqproto.base.timers import Timer, Timers
from mqproto.session import InFlight
from mqproto.transfer import cursors
from mqproto.transfer.cursors import CEILING_BLOCK
from mqproto.transfer.incoming import ArrivalVerdict, IncomingSequence
from mqproto.turn.effects import ReadBy, ReadExpired, ReadPage, Writes, message_key
from mqproto.turn.endings import Ending
from mqproto.wire import INFINITE, TxSequenceId
from tests.pair import guid_of
from tests.windows import FINAL, NOW, QUEUE, SMALL, Sender, header_of, key_of


@pytest.fixture
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause the limit on sent numbers to be written again for each message."""
    monkeypatch.setattr(cursors, "CEILING_BLOCK", 0)


def sent(sender: Sender) -> list[int]:
    """Return the numbers that may have been sent."""
    return [number for number in range(20) if sender.sequence.numbering.was_sent(number)]


def numbers(keys: list[tuple[TxSequenceId, int]]) -> list[int]:
    return [number for _, number in keys]


# Numbers


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_messages_are_numbered_from_one_and_each_names_the_one_before() -> None:
    sender = Sender()
    assert [sender.put()[1] for _ in range(3)] == [1, 2, 3]
    headers = [header_of(entry.packet) for entry in sender.take(3)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    assert {h.tx_sequence_id for h in headers} == {TxSequenceId(time_stamp=9, ordinal=1)}


def test_a_packet_that_is_kept_is_given_the_place_that_it_is_sent_with() -> None:
    sender = Sender()
    sender.put()
    sender.put()
    kept = [entry.packet for entry in sender.take(2)]
    numbering = sender.sequence.numbering
    assert [numbering.with_its_place(position, kept[position - 1]) for position in (1, 2)] == kept
    sender.sequence.renumber(TxSequenceId(time_stamp=9, ordinal=7), sender.now, sender.writes)
    header = header_of(sender.sequence.numbering.with_its_place(2, kept[1]))
    assert header.tx_sequence_id == TxSequenceId(time_stamp=9, ordinal=7)
    assert (header.tx_sequence_number, header.previous_tx_sequence_number) == (2, 1)


@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_a_number_that_was_looked_at_is_not_used_up() -> None:
    sender = Sender()
    assert sender.sequence.number_next() == sender.sequence.number_next()
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 1)


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.5")
def test_when_all_is_acknowledged_the_next_message_begins_a_new_sequence() -> None:
    sender = Sender()
    sender.put_some(3)
    sender.take_numbers()
    assert sender.order_ack(2)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 4)
    sender.take_numbers()
    assert sender.order_ack(4)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=2), 1)
    assert [header_of(entry.packet).previous_tx_sequence_number for entry in sender.take()] == [0]


def test_of_a_new_sequence_only_what_has_no_order_ack_is_kept() -> None:
    sender = Sender()
    sender.put_some(2)
    sender.take_numbers()
    sender.order_ack(2)
    sender.put_some(3)
    sender.take_numbers()
    sender.order_ack(1)
    assert [sender.sequence.awaits(position) for position in (1, 2, 3, 4, 5)] == [False] * 3 + [True] * 2


# OrderAck


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3.1.1")
def test_an_order_ack_removes_up_to_its_number_and_says_when_the_next_resend_is() -> None:
    sender = Sender(Settings())
    sender.put_some(5)
    sender.take_numbers()
    sender.pass_ms(700)
    assert sender.order_ack(3)
    sequence = sender.sequence
    assert (sequence.count, sequence.cursors.last_ack, sequence.wait.ack_count) == (2, 3, 1)
    assert sequence.wait.due_ms == sender.now.uptime_ms + 30_000
    assert not sender.order_ack(3), "nothing new"
    assert not sender.order_ack(1), "going back"
    assert (sequence.count, sequence.cursors.last_ack, sequence.wait.ack_count) == (2, 3, 3)
    assert sender.order_ack(5)
    assert sequence.wait.due_ms is None


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.5.5.5")
def test_a_message_leaves_the_disk_with_its_order_ack_and_not_with_a_session_ack() -> None:
    sender = Sender()
    sender.put()
    (entry,) = sender.take()
    sender.sequence.acknowledged([entry], sender.writes)
    sender.commit_all()
    assert len(sender.store.messages) == 1
    sender.order_ack(1)
    sender.commit_all()
    assert sender.store.messages == {}


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_what_asked_for_a_final_ack_is_kept_apart_by_its_message_id() -> None:
    sender = Sender()
    for final_ack in (False, True, False):
        sender.put(final_ack=final_ack)
    sender.take_numbers()
    sender.order_ack(3)
    sender.commit_all()
    assert list(sender.store.messages) == [message_key(FINAL, 1_002)]
    assert not sender.sequence.final_asked


def test_that_a_message_asked_for_a_final_ack_is_known_after_a_restart() -> None:
    sender = Sender()
    sender.put(final_ack=True)
    sender.take()
    sender.restart()
    assert sender.sequence.final_asked
    sender.order_ack(1)
    sender.commit_all()
    assert list(sender.store.messages) == [message_key(FINAL, 1_001)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.6")
def test_what_was_sent_is_known_also_after_a_restart_when_any_may_have_been() -> None:
    sender = Sender()
    sender.put_some(3)
    sender.take(2)
    assert sent(sender) == [1, 2]
    sender.restart()
    assert sent(sender) == [1, 2, 3]


# Withdrawing


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_later_messages_bridge_the_gap_that_a_refused_one_leaves() -> None:
    sender = Sender(Settings())
    sender.put_some(4)
    sender.take_numbers()
    sender.withdraw(2)
    sender.withdraw(3)
    sender.withdraw(3)
    assert sender.sequence.count == 2
    sender.time_out()
    headers = [header_of(entry.packet) for entry in sender.take(2)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [(1, 0), (4, 1)]
    sender.order_ack(1)
    sender.withdraw(1)
    assert sender.sequence.count == 1
    sender.withdraw(4)
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 5), "an OrderAck may still come for 4"
    assert sender.sequence.count == 1


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_gap_at_the_end_of_what_is_kept_is_bridged_after_a_restart_too() -> None:
    sender = Sender()
    sender.put_some(3)
    sender.take_numbers()
    sender.withdraw(3)
    sender.restart()
    sender.put()
    assert sender.sequence.number_next()[2] == 4
    headers = [header_of(entry.packet) for entry in sender.take(3)]
    assert [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers] == [
        (1, 0),
        (2, 1),
        (4, 2),
    ]


def test_an_order_ack_for_what_a_hurt_store_has_lost_leaves_nothing_to_wait_for() -> None:
    sender = Sender()
    sender.put_some(3)
    sender.take_numbers()
    sender.store.commit(Writes(removals=[(message_key(QUEUE, 1), message_key(QUEUE, 3))]))
    sender.restart()
    assert sender.sequence.count == 0
    sender.order_ack(3)
    assert (sender.sequence.count, sender.sequence.cursors.last_ack) == (0, 0)


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_message_that_was_withdrawn_while_it_was_out_does_not_come_back_with_the_session() -> None:
    sender = Sender()
    sender.put()
    sender.put()
    entries = sender.take(2)
    sender.withdraw(1)
    sender.sequence.resends.disconnected()
    sender.sequence.returned(entries)
    assert sender.take_numbers() == [2]


def test_a_page_that_was_read_before_a_withdrawal_does_not_bring_the_message_back() -> None:
    sender = Sender(Settings())
    sender.put_some(3)
    sender.take_numbers()
    sender.sequence.resends.ack_wait_expired(sender.now)
    (page,) = sender.sequence.pages()
    rows = sender.store.read(page)
    sender.withdraw(2)
    sender.sequence.loaded(page, rows)
    assert sender.take_numbers() == [1, 3]


# Resending: 3.1.6.5


@pytest.mark.spec("[MS-MQQB] 3.1.2.6")
@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
def test_time_outs_in_a_row_wait_longer_and_an_order_ack_brings_the_first_interval_back() -> None:
    """According to 3.1.5.6, the interval grows with each OrderAck; according to note <24>, with each consecutive
    time-out.
    """
    sender = Sender(Settings())
    sender.put()
    sender.put()
    sender.take_numbers()
    sequence = sender.sequence
    intervals = []
    for _ in range(11):
        due = sequence.wait.due_ms
        assert due is not None
        intervals.append(due - sender.now.uptime_ms)
        sender.pass_ms(intervals[-1])
        [(timer, owner)] = sender.timers.expired(sender.now.uptime_ms)
        assert (timer, owner) == (Timer.TRANSACTIONAL_ACK_WAIT, sequence.wait)
        sender.time_out()
        assert sender.take_numbers() == [1, 2]
    assert [ms // 1_000 for ms in intervals] == [30] * 3 + [300] * 3 + [1_800] * 3 + [21_600] * 2
    assert sequence.resends.count == 22
    sender.order_ack(1)
    assert sequence.wait.interval_ms == 30_000


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_goes_a_batch_at_a_time_and_on_when_an_order_ack_tells_that_it_arrives() -> None:
    """According to the letter of the text, all messages are sent at once; with the destination down, each time-out
    would fill disks.
    """
    sender = Sender()
    sender.put_some(7)
    sender.take_numbers()
    sender.time_out()
    assert sender.take_numbers() == [1, 2]
    sender.order_ack(1)
    assert sender.take_numbers() == [3]
    sender.order_ack(3)
    assert sender.take_numbers() == [4, 5]
    sender.order_ack(5)
    sender.put()
    assert sender.take_numbers() == [6, 7, 8]


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_leaves_out_what_an_order_ack_covers_meanwhile() -> None:
    sender = Sender(Settings())
    sender.put_some(6)
    sender.take_numbers()
    sender.time_out()
    sender.take(3)
    sender.order_ack(2)
    assert sender.take_numbers() == [4, 5, 6]


@pytest.mark.spec("[MS-MQQB] 3.1.6.5")
def test_a_resend_ends_when_an_order_ack_tells_of_more_than_was_sent_again() -> None:
    """The first copies were late but not lost: a backlog that drains is not sent a second time."""
    sender = Sender(Settings())
    sender.put_some(6)
    sender.take_numbers()
    sender.time_out()
    sender.take(2)
    sender.order_ack(3)
    assert sender.take_numbers() == []
    sender.time_out()
    assert sender.take_numbers() == [4, 5, 6]


def test_a_page_that_a_newer_time_out_has_overtaken_is_read_again_from_the_start() -> None:
    sender = Sender(Settings(resident_messages=4, resend_batch=10))
    sender.put_some(6)
    sender.take_numbers()
    sender.time_out()
    sender.take(2)
    sender.sequence.resends.ack_wait_expired(sender.now)
    stale = ReadPage(QUEUE, 2, 2, 2**20, ReadBy.RESEND)
    sender.sequence.loaded(stale, sender.store.read(stale))
    sender.commit()
    assert sender.take_numbers() == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_a_new_session_sends_nothing_again_that_is_not_overdue() -> None:
    """According to 3.1.3.2, all would be sent again at once; but messages that the neighbour has acknowledged are on
    its disk.
    """
    sender = Sender(Settings())
    sender.put()
    sender.sequence.acknowledged(sender.take(), sender.writes)
    due_ms = sender.sequence.wait.due_ms
    sender.sequence.resends.disconnected()
    assert sender.sequence.wait.due_ms is None
    sender.pass_ms(29_999)
    sender.sequence.resends.connected(sender.now)
    assert sender.sequence.wait.due_ms == due_ms
    assert not sender.sequence.has_next


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_a_wait_that_had_grown_long_begins_anew_with_a_session() -> None:
    sender = Sender(Settings())
    sender.put()
    sender.sequence.acknowledged(sender.take(), sender.writes)
    sender.time_out()
    sender.time_out()
    assert sender.sequence.wait.interval_index == 2
    sender.sequence.resends.disconnected()
    sender.sequence.resends.connected(sender.now)
    assert sender.sequence.wait.interval_index == 0
    assert sender.sequence.wait.due_ms == sender.now.uptime_ms + 30_000


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_what_is_overdue_goes_again_with_the_next_session_however_short_sessions_are() -> None:
    """The message was lost beyond the neighbour, and each session ends before a timer could show that."""
    sender = Sender(Settings())
    sender.put()
    sender.sequence.acknowledged(sender.take(), sender.writes)
    for _ in range(3):
        sender.pass_ms(10_000)
        sender.sequence.resends.disconnected()
        assert not sender.sequence.has_next
        sender.sequence.resends.connected(sender.now)
        sender.commit()
    assert sender.take_numbers() == [1]
    assert sender.sequence.wait.due_ms == sender.now.uptime_ms + 30_000
    sender.order_ack(1)
    sender.put()
    sender.take()
    sender.sequence.resends.disconnected()
    sender.sequence.resends.connected(sender.now)
    assert sender.sequence.wait.due_ms == sender.now.uptime_ms + 30_000, "the wait for another begins anew"


@pytest.mark.spec("[MS-MQQB] 3.1.3.2")
def test_a_session_without_anything_unacknowledged_starts_no_timer() -> None:
    sender = Sender()
    sender.put()
    sender.sequence.resends.connected(sender.now)
    assert sender.sequence.wait.due_ms is None


@pytest.mark.spec("[MS-MQQB] 3.1.2.6")
def test_what_was_saved_out_of_order_and_returned_in_part_is_still_waited_for() -> None:
    """The neighbour has saved 2 but not 1: 1 is sent again, and both wait for their OrderAck."""
    sender = Sender(Settings())
    sender.put()
    sender.put()
    first, second = sender.take(2)
    sender.sequence.acknowledged([second], sender.writes)
    sender.sequence.resends.disconnected()
    sender.sequence.returned([first])
    assert sender.take_numbers() == [1]
    sender.order_ack(1)
    assert sender.sequence.wait.due_ms is not None
    sender.time_out()
    assert sender.take_numbers() == [2]


@pytest.mark.spec("[MS-MQQB] 3.1.2.6")
@pytest.mark.parametrize("in_a_new_session", [False, True])
def test_later_ones_that_are_out_are_waited_for_when_those_before_them_are_withdrawn(
    in_a_new_session: bool,
) -> None:
    """2 is to be sent again, and is withdrawn, because it has expired or an operator deletes it. 3 is lost."""
    sender = Sender(Settings())
    sender.put_some(3)
    entries = sender.take(3)
    if in_a_new_session:
        sender.sequence.acknowledged([entries[0], entries[2]], sender.writes)
        sender.sequence.resends.disconnected()
    sender.sequence.returned([entries[1]])
    sender.order_ack(1)
    if in_a_new_session:
        sender.sequence.resends.connected(sender.now)
    assert sender.sequence.wait.due_ms is None
    sender.withdraw(2, decided=True)
    assert sender.sequence.wait.due_ms == sender.now.uptime_ms + sender.sequence.wait.interval_ms
    sender.time_out()
    [again] = sender.take()
    header = header_of(again.packet)
    assert (header.tx_sequence_number, header.previous_tx_sequence_number) == (3, 1)


@pytest.mark.spec("[MS-MQQB] 3.1.5.9")
def test_a_copy_that_was_out_when_the_session_broke_does_not_go_again_at_once() -> None:
    """The first copy is on the neighbour's disk; if it was lost further on, the next resend brings another."""
    sender = Sender()
    sender.put()
    [first] = sender.take()
    sender.sequence.acknowledged([first], sender.writes)
    sender.time_out()
    [again] = sender.take()
    assert again.resent
    sender.sequence.resends.disconnected()
    sender.sequence.returned([again])
    assert not sender.sequence.has_next


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.2")
def test_after_a_restart_only_what_the_neighbour_has_not_acknowledged_goes_at_once() -> None:
    sender = Sender()
    sender.put_some(4)
    entries = sender.take(3)
    for entry in entries[:2]:
        sender.sequence.acknowledged([entry], sender.writes)
    sender.commit_all()
    sender.restart()
    assert sender.take_numbers() == [3, 4]
    sender.time_out()
    assert sender.take_numbers() == [1, 2]


# What expires, and what cannot


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.usefixtures("no_margin")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_never_sent_expires_in_memory_and_on_disk_and_what_was_sent_does_not(
    restarted: bool,
) -> None:
    """The destination must report the end of a message that was sent, because the message may have arrived."""
    sender = Sender()
    sender.put_some(8, time_to_reach_queue_s=5)
    sender.put()
    sender.take(2)
    if restarted:
        sender.restart()
    sender.pass_s(5)
    assert sender.expire() == []
    sender.pass_s(1)
    assert numbers(sender.expire()) == [3, 4, 5, 6, 7, 8]
    assert sender.sequence.count == 3
    assert sender.kept_on_disk() == [1, 2, 9]
    assert sender.take_numbers() == ([1, 2, 9] if restarted else [9])
    sender.time_out()
    headers = [header_of(entry.packet) for entry in sender.take(2)]
    assert [header.tx_sequence_number for header in headers] == [1, 2]
    sender.order_ack(2)
    assert sender.take_numbers() == [9]


NINE = replace(SMALL, expire_sent=FIGURES)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.parametrize("sent_alone", [False, True])
def test_what_was_passed_over_was_not_sent_until_it_goes_alone(sent_alone: bool) -> None:
    """2 is held back because the neighbour refuses 1, and 3 is sent.

    A message that may have arrived ends at its destination.
    """
    sender = Sender(Settings())
    sender.put_some(3, time_to_reach_queue_s=5)
    sender.take()
    [second] = sender.take()
    sender.sequence.withhold(second, sender.writes)
    sender.sequence.passed_over(second)
    sender.take()
    if sent_alone:
        sender.sequence.again(second)
    sender.sequence.release(2)
    sender.sequence.returned([second])
    sender.pass_s(6)
    assert numbers(sender.expire()) == ([] if sent_alone else [2])


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
@pytest.mark.parametrize("again", ["", "alone", "resent"])
def test_what_left_and_cannot_leave_again_may_have_arrived(again: str) -> None:
    """When the message was to be sent alone, or again, it could no longer be encrypted."""
    sender = Sender(Settings())
    sender.put()
    [message] = sender.take()
    if again == "alone":
        sender.sequence.withhold(message, sender.writes)
        message = sender.sequence.again(message)
        sender.sequence.release(1)
    elif again:
        sender.time_out()
        [message] = sender.take()
    sender.sequence.passed_over(message)
    assert sender.sequence.may_have_arrived(1) == bool(again)


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
@pytest.mark.usefixtures("no_margin")
@pytest.mark.parametrize("restarted", [False, True])
def test_where_it_is_set_what_was_sent_expires_wherever_it_is(restarted: bool) -> None:
    sender = Sender(NINE)
    for seconds in (5, 5, INFINITE, 5):
        sender.put(time_to_reach_queue_s=seconds)
    sender.take(2)
    if restarted:
        sender.restart()
    sender.pass_s(5)
    assert sender.expire() == []
    sender.pass_s(1)
    assert sorted(numbers(sender.expire())) == [1, 2, 4]
    assert sender.kept_on_disk() == [3]
    assert sender.expire() == []


@pytest.mark.spec("[MS-MQQB] 3.1.1.1.1.7")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_expires_is_known_by_the_place_that_it_was_sent_with(restarted: bool) -> None:
    """The destination may report the message's outcome later, and knows the message only by the place with which it was
    sent.
    """
    sender = Sender(NINE)
    sender.put_some(2, time_to_reach_queue_s=5)
    sender.take(2)
    anew = TxSequenceId(time_stamp=9, ordinal=7)
    sender.sequence.renumber(anew, sender.now, sender.writes)
    sender.commit()
    sender.take(2)
    if restarted:
        sender.restart()
    sender.pass_s(6)
    assert sorted(sender.expire()) == [(anew, 1), (anew, 2)]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
@pytest.mark.spec("[MS-MQQB] 3.1.1.6.2")
def test_a_resend_passes_over_what_is_over_and_a_later_number_proves_it_no_more() -> None:
    sender = Sender(replace(NINE, resident_messages=8))
    for seconds in (5, 5, INFINITE):
        sender.put(time_to_reach_queue_s=seconds)
    sender.take(3)
    assert [sender.sequence.numbering.first_proven(number) for number in (1, 2, 3)] == [1, 1, 1]
    sender.time_out()
    sender.pass_s(6)
    entries, over = sender.take_run(10)
    assert [(key_of(ending.packet)[1], ending.in_doubt) for ending in over] == [(1, True), (2, True)]
    assert not entries
    [entry] = sender.take()
    assert header_of(entry.packet).previous_tx_sequence_number == 0
    assert [sender.sequence.numbering.first_proven(number) for number in (1, 2, 3)] == [1, 2, 3]
    sender.order_ack(3)
    sender.put(time_to_reach_queue_s=5)
    sender.take(1)
    sender.time_out()
    sender.pass_s(6)
    entries, over = sender.take_run(10)
    assert (len(entries), len(over), sender.sequence.count) == (0, 1, 0)


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
@pytest.mark.usefixtures("no_margin")
def test_a_message_that_is_over_when_its_turn_comes_is_not_sent_and_the_next_one_bridges_it() -> None:
    sender = Sender()
    sender.put()
    sender.put(time_to_reach_queue_s=5)
    sender.put()
    sender.take(1)
    sender.pass_s(6)
    over = sender.take_next()
    assert isinstance(over, Ending)
    assert key_of(over.packet)[1] == 2
    assert not over.in_doubt
    [entry] = sender.take()
    header = header_of(entry.packet)
    assert (header.tx_sequence_number, header.previous_tx_sequence_number) == (3, 1)
    sender.commit_all()
    assert sender.kept_on_disk() == [1, 3]
    assert sent(sender) == [1, 2, 3], "3 was, and with it all before it may have been"


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.3")
def test_a_gap_is_on_disk_before_the_message_that_bridges_it_is_on_the_wire() -> None:
    """Otherwise, a crash would bring the expired message back, below the limit of numbers that may have been sent.

    The destination is past that number and would drop the message, and nobody would ever report its end.
    """
    sender = Sender()
    for seconds in (INFINITE, 5, INFINITE):
        sender.put(time_to_reach_queue_s=seconds)
    sender.take()
    sender.pass_s(6)
    assert isinstance(sender.take_next(), Ending)
    sender.take()
    sender.restart()
    assert sender.kept_on_disk() == [1, 3]


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.2")
def test_the_ceiling_is_on_disk_before_a_message_is_on_the_wire_and_not_written_for_each() -> None:
    sender = Sender(Settings())
    for _ in range(CEILING_BLOCK + 2):
        sender.put()
    written = []
    for position in range(1, CEILING_BLOCK + 3):
        sender.sequence.take(1, 1, sender.now, sender.writes)
        if sender.commit() is not None:
            written.append(position)
        [row] = sender.store.outgoing.values()
        assert row.sent_ceiling >= position
    assert written == [1, CEILING_BLOCK + 2]


def test_after_a_crash_all_below_the_ceiling_may_have_been_sent_and_nothing_that_came_since() -> None:
    sender = Sender()
    sender.put_some(3, time_to_reach_queue_s=5)
    sender.take(1)
    sender.restart()
    sender.put(time_to_reach_queue_s=5)
    assert sent(sender) == [1, 2, 3]
    sender.pass_s(6)
    assert numbers(sender.expire()) == [4]


def test_where_nothing_was_sent_all_may_expire_and_the_numbers_go_on() -> None:
    sender = Sender()
    sender.put_some(5, time_to_reach_queue_s=5)
    sender.restart()
    sender.pass_s(6)
    assert numbers(sender.expire()) == [1, 2, 3, 4, 5]
    assert sender.store.messages == {}
    sender.restart()
    assert sender.put() == (TxSequenceId(time_stamp=9, ordinal=1), 6)
    assert sender.take_numbers() == [6]
    sender.order_ack(6)
    assert sender.sequence.count == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_of_a_new_sequence_nothing_was_sent_though_the_old_ones_ceiling_was_above_it(restarted: bool) -> None:
    """Otherwise, a message for a destination that is now unreachable would wait forever, unsent, after a restart."""
    sender = Sender()
    sender.put()
    sender.take()
    sender.order_ack(1)
    sender.put(time_to_reach_queue_s=5)
    if restarted:
        sender.restart()
    assert sent(sender) == []
    sender.pass_s(6)
    assert numbers(sender.expire()) == [1]


# How a message is withdrawn


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
@pytest.mark.parametrize("final_ack", [True, False])
@pytest.mark.parametrize("decided", [True, False])
def test_a_message_whose_outcome_is_not_known_here_waits_for_it_if_it_asked_for_one(
    final_ack: bool, decided: bool
) -> None:
    sender = Sender()
    sender.put(final_ack=final_ack, time_to_reach_queue_s=5)
    sender.put()
    sender.take(2)
    sender.withdraw(1, decided=decided)
    assert sender.sequence.count == 1
    assert sender.kept_on_disk() == [2]
    waits = final_ack and not decided
    assert (message_key(FINAL, 1_001) in sender.store.messages) is waits
    assert sender.store.read(ReadExpired(9, 2**40)) == []


def test_a_message_that_is_deleted_goes_whether_or_not_it_was_sent_and_only_once() -> None:
    sender = Sender()
    sender.put_some(5, final_ack=True)
    sender.take(3)
    sender.order_ack(1)
    sender.withdraw(2)
    deleted = [number for number in range(1, 7) if sender.sequence.delete(number, sender.writes)]
    sender.commit_all()
    assert deleted == [3, 4, 5]
    assert sender.sequence.count == 0
    assert sorted(sender.store.messages) == [message_key(FINAL, 1_001), message_key(FINAL, 1_002)]


def test_a_message_that_is_deleted_is_sent_no_more_for_the_first_time_or_again() -> None:
    sender = Sender(Settings())
    sender.put_some(6)
    sender.take(3)
    sender.time_out()
    for number in (2, 5):
        assert sender.sequence.delete(number, sender.writes)
    headers = [header_of(entry.packet) for entry in sender.take(4)]
    assert [header.tx_sequence_number for header in headers] == [1, 3, 4, 6]
    assert [header.previous_tx_sequence_number for header in headers] == [0, 1, 3, 4]
    assert not sender.sequence.has_next


def test_a_paused_sequence_sends_neither_new_messages_nor_old_ones_again() -> None:
    sender = Sender(Settings())
    sender.put()
    sender.put()
    sender.take(1)
    sender.time_out()
    sender.sequence.on_hold = True
    assert not sender.sequence.has_next
    sender.sequence.on_hold = False
    assert sender.take_numbers() == [1, 2]


def test_what_was_withdrawn_at_either_end_and_between_is_known_after_a_restart() -> None:
    sender = Sender(Settings())
    sender.put_some(8)
    sender.take_numbers()
    for number in (1, 4, 5, 8):
        sender.withdraw(number)
    sender.restart()
    assert sender.sequence.count == 4
    assert sender.sequence.number_next() == (TxSequenceId(time_stamp=9, ordinal=1), 9, 7)
    headers = [header_of(entry.packet) for entry in sender.take(4)]
    numbers = [(h.tx_sequence_number, h.previous_tx_sequence_number) for h in headers]
    assert numbers == [(2, 0), (3, 2), (6, 3), (7, 6)]


class ASequenceFromEndToEnd(RuleBasedStateMachine):
    """A sequence, a wire that breaks, a destination that refuses some messages, messages that expire, and crashes.

    The destination is an IncomingSequence with a disk that never fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(cursors, "CEILING_BLOCK", 2)
        self.sender = Sender()
        self.destination = IncomingSequence(
            (guid_of("a"), 1, 16), 2, Settings(held_messages_limit=3), Timers(), NOW
        )
        self.connected = False
        self.wire: list[InFlight] = []
        self.unanswered: list[InFlight] = []
        self.refusals: list[tuple[TxSequenceId, int]] = []
        self.unwanted: set[tuple[TxSequenceId, int]] = set()
        """Messages that the destination refuses whatever their numbers, for instance because their queue is missing."""
        self.deadlines: dict[tuple[TxSequenceId, int], int] = {}
        self.every: list[tuple[TxSequenceId, int]] = []
        self.accepted: list[tuple[TxSequenceId, int]] = []
        self.expired: set[tuple[TxSequenceId, int]] = set()
        """Messages that expired at the sender."""
        self.came_late: set[tuple[TxSequenceId, int]] = set()
        """Messages that expired at the destination."""
        self.kept: list[tuple[TxSequenceId, int]] = []

    @rule(unwanted=st.booleans(), count=st.integers(1, 4), seconds=st.sampled_from([INFINITE, 5]))
    def put(self, unwanted: bool, count: int, seconds: int) -> None:
        for _ in range(count):
            key = self.sender.put(time_to_reach_queue_s=seconds)
            self.deadlines[key] = self.sender.now.utc_s + seconds
            self.every.append(key)
            self.kept.append(key)
            if unwanted:
                self.unwanted.add(key)

    @rule()
    def time_passes(self) -> None:
        self.sender.pass_s(3)

    def is_over(self, key: tuple[TxSequenceId, int]) -> bool:
        return self.sender.now.utc_s > self.deadlines[key]

    def expires(self, key: tuple[TxSequenceId, int]) -> None:
        """Let the sender tell its application that a message expired.

        The message must never be delivered after that.
        """
        assert self.is_over(key)
        self.expired.add(key)
        self.kept.remove(key)

    @rule()
    def the_sender_looks_at_its_clock(self) -> None:
        for key in self.sender.expire():
            self.expires(key)

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.connected = True
        self.sender.sequence.resends.connected(self.sender.now)

    @precondition(lambda self: self.connected and self.sender.sequence.has_next)
    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        entries, over = self.sender.take_run(count)
        self.wire += entries
        for message in over:
            self.expires(key_of(message.packet))

    def decide(self, key: tuple[TxSequenceId, int]) -> None:
        """Let the destination decide about a message when it is that message's turn."""
        if self.is_over(key):
            self.came_late.add(key)
            self.refusals.append(key)
        else:
            self.accepted.append(key)

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        entry = self.wire.pop(0)
        self.unanswered.append(entry)
        header, key = header_of(entry.packet), key_of(entry.packet)
        if key in self.unwanted:
            self.refusals.append(key)
            return
        verdict = self.destination.take(header, len(entry.packet))
        if verdict is ArrivalVerdict.HOLD:
            self.destination.hold(header, entry.packet)
        elif verdict is ArrivalVerdict.ACCEPT:
            self.decide(key)
            for held in self.destination.release()[0]:
                self.decide((held.header.tx_sequence_id, held.header.tx_sequence_number))

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        entry = self.unanswered.pop(data.draw(st.integers(0, len(self.unanswered) - 1)))
        self.sender.sequence.acknowledged([entry], self.sender.writes)

    def _lose(self) -> list[InFlight]:
        lost = sorted([*self.wire, *self.unanswered], key=lambda entry: entry.position)
        self.wire, self.unanswered, self.connected = [], [], False
        return lost

    @precondition(lambda self: self.connected)
    @rule()
    def lose_the_session(self) -> None:
        lost = self._lose()
        self.sender.sequence.returned(lost)
        self.sender.sequence.resends.disconnected()
        self.sender.commit()

    @rule()
    def crash(self) -> None:
        self._lose()
        self.sender.restart()

    @precondition(lambda self: self.connected and self.sender.sequence.has_next)
    @rule()
    def crash_before_a_commit(self) -> None:
        """Crash after some decisions, which are then not carried out.

        The message is not on the wire, and nobody hears about an end.
        """
        self.sender.sequence.take(1, 1, self.sender.now, self.sender.writes)
        self.crash()

    @precondition(lambda self: self.destination.number)
    @rule()
    def order_ack(self) -> None:
        sequence, identifier, number = (
            self.sender.sequence,
            self.destination.identifier,
            self.destination.number,
        )
        if identifier == sequence.identifier:
            assert sequence.numbering.was_sent(number)
            self.sender.order_ack(number)
            self.kept = [key for key in self.kept if key[0] != identifier or key[1] > number]

    @precondition(lambda self: self.refusals)
    @rule()
    def final_ack(self) -> None:
        identifier, number = self.refusals.pop(0)
        sequence = self.sender.sequence
        if identifier == sequence.identifier:
            assert sequence.numbering.was_sent(number)
            self.sender.withdraw(number)
            self.kept = [key for key in self.kept if key != (identifier, number)]

    @precondition(lambda self: self.connected and self.sender.sequence.wait.due_ms is not None)
    @rule()
    def time_out(self) -> None:
        self.sender.time_out()

    @invariant()
    def what_was_accepted_is_in_order_and_once(self) -> None:
        assert self.accepted == sorted(set(self.accepted))

    @invariant()
    def no_message_ends_twice(self) -> None:
        """A message that was reported as lost is never delivered, and never refused because it has expired."""
        assert not self.expired & {*self.accepted, *self.came_late}

    @invariant()
    def what_is_on_the_wire_is_below_the_ceiling_on_disk(self) -> None:
        [row] = self.sender.store.outgoing.values()
        assert all(entry.position <= row.sent_ceiling for entry in self.wire)

    @invariant()
    def what_the_operator_sees_is_right(self) -> None:
        sequence = self.sender.sequence
        kept = [
            number
            for number in range(1, sequence.next_number)
            if sequence.awaits(sequence.cursors.base + number)
        ]
        sent = [
            number for number in kept if sequence.cursors.base + number <= sequence.numbering.sent_through
        ]
        assert sequence.count == len(kept)
        assert sequence.numbering.first_number == min(kept, default=sequence.next_number)
        assert sequence.numbering.unacked_count == len(sent)
        assert not sent or sequence.numbering.last_sent_number == sent[-1]

    @invariant()
    def the_count_is_right(self) -> None:
        stored = len(self.sender.kept_on_disk())
        assert self.sender.sequence.count <= stored, "an OrderAck may be on disk later, never before"
        if self.kept or self.sender.sequence.count:
            assert self.sender.sequence.count >= len(self.kept)

    def teardown(self) -> None:
        """Check, once nothing fails any more, that each message has one end, and that nothing is kept."""
        for _ in range(400):
            if not self.sender.sequence.count:
                break
            if not self.connected:
                self.connect()
            if self.sender.sequence.has_next:
                self.send(100)
            elif self.sender.sequence.wait.due_ms is not None:
                self.time_out()
            while self.wire:
                self.arrive()
            while self.unanswered:
                self.sender.sequence.acknowledged([self.unanswered.pop(0)], self.sender.writes)
            while self.refusals:
                self.final_ack()
            if self.destination.number:
                self.order_ack()
        self.patch.undo()
        assert self.sender.sequence.count == 0
        assert {*self.accepted, *self.expired, *self.came_late, *self.unwanted} == set(self.every)
        assert not self.unwanted & {*self.accepted, *self.came_late}
        self.sender.commit_all()
        assert self.sender.store.messages == {}


TestASequenceFromEndToEnd = ASequenceFromEndToEnd.TestCase
TestASequenceFromEndToEnd.settings = hypothesis_settings(stateful_step_count=40)
