"""The MessageIDHistoryTable, against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.manager.identifiers import MessageIdHistory
from mqproto.turn.effects import IdentifierRow
from mqproto.turn.pending import PendingWrites
from mqproto.wire import Guid
from tests.pair import guid_of

A, B = guid_of("a"), guid_of("b")
HALF_AN_HOUR_MS = Settings().remove_duplicate_cleanup_ms


def at(seconds: int) -> Moment:
    return Moment(seconds * 1_000, 1_700_000_000 + seconds)


class Table:
    """A history with all that it needs."""

    def __init__(self, size: int = 10_000, rows: tuple[IdentifierRow, ...] = ()) -> None:
        self.timers = Timers()
        self.writes = PendingWrites(self.timers)
        self.history = MessageIdHistory(Settings(remove_duplicate_size=size), self.timers, rows, at(0))

    def is_duplicate(
        self, ordinal: int, seconds: int = 0, *, recoverable: bool = True, source: Guid = A
    ) -> bool:
        return self.history.is_duplicate(source, ordinal, at(seconds), self.writes, recoverable=recoverable)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
@given(arrivals=st.lists(st.integers(0, 20), max_size=100), size=st.integers(1, 10))
def test_a_message_is_a_duplicate_while_it_is_among_the_newest(arrivals: list[int], size: int) -> None:
    table = Table(size)
    newest: list[int] = []
    duplicates = 0
    for second, ordinal in enumerate(arrivals):
        assert table.is_duplicate(ordinal, second) == (ordinal in newest)
        duplicates += ordinal in newest
        newest = ([n for n in newest if n != ordinal] + [ordinal])[-size:]
        assert len(table.history) == len(newest) <= size
    assert table.history.duplicate_count == duplicates


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_two_senders_that_count_alike_do_not_lose_messages_to_each_other() -> None:
    """By the letter the ordinal alone is compared."""
    table = Table()
    assert not table.is_duplicate(1)
    assert [table.history.came_before(source, 1, None) for source in (A, B)] == [True, False]
    assert not table.is_duplicate(1, source=B)
    assert table.is_duplicate(1)


@pytest.mark.spec("[MS-MQQB] 3.1.1.3")
def test_only_what_is_remembered_of_recoverable_messages_of_ours_goes_to_disk() -> None:
    table = Table()
    table.is_duplicate(1, recoverable=False)
    assert table.writes.take(at(0)) is None
    table.history.is_duplicate(A, 9, at(0), table.writes, recoverable=True, hop_count=0)
    assert table.writes.take(at(0)) is None, "nobody could tell a copy that comes back by it"
    table.is_duplicate(2, 5)
    taken = table.writes.take(at(5))
    assert taken is not None
    assert taken.identifiers == [IdentifierRow(A, 2, at(5).utc_s)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_a_duplicate_gets_the_time_at_which_it_came_again() -> None:
    table = Table()
    table.is_duplicate(1, 0)
    table.is_duplicate(1, 9)
    taken = table.writes.take(at(9))
    assert taken is not None
    assert [row.time_stamp_s for row in taken.identifiers] == [at(0).utc_s, at(9).utc_s]


@pytest.mark.spec("[MS-MQQB] 3.1.3.1")
@pytest.mark.spec("[MS-MQQB] 3.1.2.8")
def test_the_cleanup_timer_runs_while_the_table_is_not_empty_also_after_a_restart() -> None:
    assert Table().timers.next_ms is None
    restarted = Table(rows=(IdentifierRow(A, 1, at(0).utc_s),))
    assert restarted.timers.next_ms == HALF_AN_HOUR_MS
    assert restarted.is_duplicate(1)
    fresh = Table()
    fresh.is_duplicate(1, 7)
    fresh.is_duplicate(2, 8)
    assert fresh.timers.next_ms == 7_000 + HALF_AN_HOUR_MS, "what came second does not restart it"


@pytest.mark.spec("[MS-MQQB] 3.1.6.7")
def test_the_cleanup_forgets_what_is_older_than_the_timer_is_long_and_runs_on_while_anything_is_left() -> (
    None
):
    table = Table()
    half_an_hour_s = HALF_AN_HOUR_MS // 1_000
    table.is_duplicate(1, 0)
    table.is_duplicate(2, 10)
    table.timers.stop(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    table.history.clean_up(at(half_an_hour_s + 10), table.writes)
    assert len(table.history) == 1
    assert table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    taken = table.writes.take(at(half_an_hour_s + 10))
    assert taken is not None
    assert taken.identifiers_before_s == at(10).utc_s
    table.timers.stop(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    table.history.clean_up(at(half_an_hour_s + 11), table.writes)
    assert len(table.history) == 0
    assert not table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_a_message_for_others_that_comes_back_with_more_hops_is_no_duplicate() -> None:
    """The way that it took is gone: a node that discards it loses it."""
    table = Table(size=2)
    judged = [
        table.history.is_duplicate(A, 1, at(0), table.writes, recoverable=True, hop_count=hop_count)
        for hop_count in (0, 0, 2, 1, 2, 3)
    ]
    assert judged == [False, True, False, True, True, False]
    assert table.is_duplicate(1), "for us it came before, however it did"
    for ordinal in (2, 3):
        table.is_duplicate(ordinal)
    assert not table.history.came_before(A, 1, 0), "what is forgotten is forgotten with its hops"
