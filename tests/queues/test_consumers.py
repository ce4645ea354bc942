"""How long messages wait in a queue, compared with a list that records when each one arrived."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.durations import Durations
from mqproto.queues.consumers import AGE_BOUNDS_S, GRAIN, SPARE, WAIT_BOUNDS_S, Marks, count_ages
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.turn.effects import MessageRow, QueueKind
from tests.examples import SENT_S
from tests.pair import queue
from tests.windows import NOW, Hosted, a_packet

LANE = Lane(1, QueueKind.LOCAL, "q", Settings())
DAY_MS = 86_400_000


def handed(*positions: int) -> list[MessageRow]:
    return [LANE.stored_row(position, b"") for position in positions]


def waited(hosted: Hosted) -> tuple[int, float]:
    waits = hosted.queue.delays.waits
    return waits.count, round(waits.total_s, 3)


def insert(hosted: Hosted, count: int = 1, *, priority: int = 3) -> None:
    """Make messages arrive in one turn."""
    for number in range(count):
        hosted.insert(number, priority=priority)
    hosted.queue.take_fresh(hosted.now)


turns = st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 5, 200, 5_000, DAY_MS]), st.integers(0, 5))


@given(st.lists(turns, max_size=100))
def test_each_message_has_waited_for_as_long_as_it_was_there(turns: list[tuple[int, int, int]]) -> None:
    marks, waits, model = Marks(), Durations(WAIT_BOUNDS_S), Durations(WAIT_BOUNDS_S)
    came: list[int] = []
    left = now_ms = 0
    for count, passed_ms, taken in turns:
        came += [now_ms] * count
        marks.came(len(came), now_ms)
        now_ms += passed_ms
        last = min(left + taken, len(came))
        marks.count(handed(*range(left + 1, last + 1)), now_ms, waits)
        for position in range(left, last):
            model.add((now_ms - came[position]) / 1_000)
        left = last
    assert waits.within == model.within
    assert waits.total_s == pytest.approx(model.total_s)


def test_a_backlog_of_a_month_has_few_marks_and_waits_that_are_nearly_right() -> None:
    marks, came, now_ms, most = Marks(), [0], 0, 0
    for number in range(20_000):
        # A busy day at the end of a quiet month.
        now_ms += DAY_MS // 400 if number < 12_000 else 10
        came.append(now_ms)
        marks.came(number + 1, now_ms)
        most = max(most, len(marks))
    assert most < 800 + SPARE
    for position in range(1, 20_001, 37):
        waits = Durations(WAIT_BOUNDS_S)
        marks.count(handed(position), now_ms, waits)
        wait_s = (now_ms - came[position]) / 1_000
        assert wait_s <= waits.total_s <= wait_s * (1 + 1 / GRAIN) + 0.001, position


@pytest.mark.parametrize("transactional", [True, False])
def test_a_message_waits_until_an_application_has_received_it_for_good(transactional: bool) -> None:
    hosted = Hosted()
    insert(hosted, 2)
    hosted.pass_ms(1_500)
    hosted.ask(1, 2, transactional=transactional)
    hosted.hand_out()
    if not transactional:
        assert waited(hosted) == (2, 3.0)
        return
    hosted.pass_ms(500)
    assert waited(hosted) == (0, 0), "the application has not settled"
    hosted.queue.consumers.roll_back(1)
    hosted.ask(1, 2, transactional=True)
    hosted.hand_out()
    hosted.settle(1)
    assert waited(hosted) == (2, 4.0)


def test_messages_of_several_priorities_that_are_received_at_once_each_have_their_wait() -> None:
    hosted = Hosted()
    for priority, pass_ms in ((1, 4_000), (7, 2_000), (1, 1_000)):
        insert(hosted, priority=priority)
        hosted.pass_ms(pass_ms)
    hosted.ask(1, 9)
    assert len(hosted.hand_out()[1]) == 3
    assert waited(hosted) == (3, 7 + 3 + 1)


def test_what_is_rejected_expires_or_is_purged_was_not_received() -> None:
    hosted = Hosted()
    insert(hosted)
    hosted.ask(1, transactional=True)
    hosted.hand_out()
    hosted.reject(1)
    hosted.insert("short", time_to_be_received_s=1)
    insert(hosted)
    hosted.pass_s(5)
    hosted.queue.purging.begin(hosted.queue.lanes)
    hosted.let_go()
    assert (hosted.queue.count, waited(hosted)) == (0, (0, 0))


def test_what_was_there_when_the_process_began_counts_from_when_it_was_sent() -> None:
    hosted = Hosted(settings=Settings())
    insert(hosted, 2)
    hosted.pass_s(3_600)
    hosted.restart()
    hosted.loaded(hosted.wanted())
    insert(hosted)
    hosted.pass_ms(1_250)
    hosted.ask(1, 9)
    hosted.hand_out()
    sent_ago_s = hosted.now.utc_s - SENT_S
    assert sent_ago_s >= 3_600
    assert waited(hosted) == (3, 2 * sent_ago_s + 1.25)


def test_a_message_that_is_received_in_the_turn_in_which_it_came_has_not_waited() -> None:
    hosted = Hosted()
    hosted.insert("x")
    hosted.ask(1)
    hosted.hand_out()
    assert waited(hosted) == (1, 0)


def test_nobody_waits_for_what_is_in_a_journal() -> None:
    hosted = Hosted(QueueDeclaration(SystemQueue.JOURNAL.value, 0))
    insert(hosted)
    hosted.ask(1)
    hosted.hand_out()
    assert waited(hosted) == (0, 0)


def test_what_was_in_a_queue_of_the_same_name_that_was_deleted_is_not_counted() -> None:
    hosted = Hosted()
    insert(hosted, 2)
    hosted.pass_s(10)
    hosted.ask(1, 2)
    hosted.hand_out()
    hosted.queue.become(queue("orders", transactional=False))
    assert waited(hosted) == (0, 0)
    insert(hosted)
    hosted.pass_s(2)
    hosted.ask(1)
    hosted.hand_out()
    assert waited(hosted) == (1, 2.0)


def test_ages_are_whole_seconds_and_never_below_nothing() -> None:
    ages = Durations(AGE_BOUNDS_S)
    sent = [NOW.utc_s, NOW.utc_s - 7, NOW.utc_s - 7, NOW.utc_s + 60]
    count_ages([a_packet("x", sent_time_s=each) for each in sent], NOW, ages)
    assert (ages.count, ages.total_s) == (4, 14)
    assert dict(ages.within)[5.0] == 2
    assert dict(ages.within)[10.0] == 4
