"""The MessageIDHistoryTable: compared with a plain set, and in whole queue managers whose connections break."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.configuration import WINDOWS_REMEMBERED, Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.manager.identifiers import COUNTED_SENDERS, LEAST_LOOKED_AT, MessageIdHistory
from mqproto.simulator.storage import Store
from mqproto.simulator.storage.disk import Disk
from mqproto.turn.effects import IdentifierRow
from mqproto.turn.pending import PendingWrites
from mqproto.wire import Guid
from tests.pair import guid_of

A, B, C, NEAR = guid_of("a"), guid_of("b"), guid_of("c"), guid_of("near")
HALF_AN_HOUR_S = Settings().remove_duplicate_cleanup_ms // 1_000


def at(seconds: int) -> Moment:
    return Moment(seconds * 1_000, 1_700_000_000 + seconds)


START = at(0)


class Table:
    """A history with everything that it needs, including a disk from which it can be restored."""

    def __init__(self, size: int = 10_000, window: int = 1, disk: Disk | Store | None = None) -> None:
        self.settings = Settings(remove_duplicate_size=size, window_size=window)
        self.disk = disk or Disk()
        self.connected = {NEAR}
        self.restart()

    def restart(self, now: Moment = START) -> None:
        self.timers = Timers()
        self.writes = PendingWrites(self.timers)
        rows = self.disk.load().identifiers
        self.history = MessageIdHistory(
            self.settings, self.timers, rows, now, lambda: self.connected, self.settings.remove_duplicate_size
        )

    def is_duplicate(
        self,
        ordinal: int,
        seconds: int = 0,
        *,
        recoverable: bool = True,
        source: Guid = A,
        by: Guid = NEAR,
        window: int | None = None,
    ) -> bool:
        self.history.brought_by(by, window or self.settings.window_size)
        return self.history.is_duplicate(source, ordinal, at(seconds), self.writes, recoverable=recoverable)

    def commit(self, seconds: int = 0) -> None:
        """End a batch as `QueueManager.take` does."""
        writes = self.writes.take(at(seconds))
        self.history.make_room(self.writes)
        if writes is not None:
            self.disk.commit(writes)

    def clean_up(self, seconds: int) -> None:
        self.timers.stop(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
        self.history.clean_up(at(seconds), self.writes)

    def knows(self, ordinal: int, *, recoverable: bool = True, source: Guid = A) -> bool:
        return self.history.came_before(source, ordinal, None, recoverable=recoverable)

    def known(self, ordinals: range, *, recoverable: bool = True, source: Guid = A) -> list[int]:
        return [n for n in ordinals if self.knows(n, recoverable=recoverable, source=source)]


# What comes twice

SOURCES = (A, B, C)
NEIGHBOURS = (guid_of("n1"), guid_of("n2"))


@st.composite
def events(draw: st.DrawFn) -> list[tuple[object, ...]]:
    """Draw events of a node that has two neighbours; each of these passes on messages from several senders."""
    message = st.tuples(st.just("message"), st.integers(0, 1), st.sampled_from(SOURCES), st.booleans())
    broken = st.tuples(st.just("break"), st.integers(0, 1), st.integers(0, 100))
    others = st.sampled_from([("commit",), ("restart",), ("clean up", 1), ("clean up", 4_000)])
    stranger = st.tuples(st.just("stranger"), st.integers(1, 40))
    return draw(st.lists(message | message | message | broken | others | stranger, max_size=120))


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
@given(events=events(), window=st.integers(1, 6))
def test_whatever_may_come_twice_is_known_when_it_does(events: list[tuple[object, ...]], window: int) -> None:
    """Each neighbour repeats its latest messages, at most a window of them; a plain set is the oracle."""
    # Two neighbours and a stranger: each has its share.
    size = 3 * WINDOWS_REMEMBERED * window
    table = Table(size, window)
    table.connected = set(NEIGHBOURS) | {NEAR}
    sent: list[deque[tuple[Guid, bool, int]]] = [deque(maxlen=window) for _ in NEIGHBOURS]
    came: set[tuple[Guid, bool, int]] = set()
    ordinal = seconds = stranger = 0
    for event in events:
        match event:
            case ("message", int(number), bytes(name), bool(recoverable)):
                ordinal += 1
                # Each sender has one way to us.
                source = Guid(bytes([number]) + name[1:])
                sent[number].append((source, recoverable, ordinal))
                came.add((source, recoverable, ordinal))
                assert not table.is_duplicate(
                    ordinal, seconds, recoverable=recoverable, source=source, by=NEIGHBOURS[number]
                )
            case ("break", int(number), int(lost)):
                for source, recoverable, again in list(sent[number])[-lost or window :]:
                    assert ((source, recoverable, again) in came) == table.is_duplicate(
                        again, seconds, recoverable=recoverable, source=source, by=NEIGHBOURS[number]
                    )
            case ("restart",):
                table.commit(seconds)
                table.restart(at(seconds))
                # Express messages are forgotten with all that was on its way: nobody promises anything of them.
                sent = [deque((one for one in each if one[1]), maxlen=window) for each in sent]
            case ("clean up", int(later)):
                seconds += later
                table.clean_up(seconds)
            case ("stranger", int(count)):
                for _ in range(count):
                    stranger += 1
                    # Express ones: of what is on disk nobody knows after a restart who has brought it.
                    source = guid_of(f"x{stranger}")
                    table.is_duplicate(
                        stranger, seconds, recoverable=False, source=source, by=NEAR, window=65_535
                    )
        table.commit(seconds)
        assert len(table.history) <= size
    table.writes.force()
    table.commit(seconds)
    assert len(table.disk.load().identifiers) <= size


@pytest.mark.long
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
@pytest.mark.parametrize(
    "others", [{"recoverable": False}, {"source": B}], ids=["express", "of another sender"]
)
@pytest.mark.parametrize(
    ("window", "size", "count", "restarted"),
    [
        (64, WINDOWS_REMEMBERED * 64, 1_000, True),
        (64, WINDOWS_REMEMBERED * 64, 1_000, False),
        (32_767, Settings().remove_duplicate_size, 140_000, True),
    ],
)
def test_others_that_pass_while_a_link_is_broken_push_nothing_out(
    tmp_path: Path, others: dict[str, object], window: int, size: int, count: int, restarted: bool
) -> None:
    with Store(tmp_path / "a.sqlite", guid_of("us")) as store:
        table = Table(size, window, store)
        for ordinal in range(window):
            assert not table.is_duplicate(ordinal)
        table.commit()
        for ordinal in range(100_000, 100_000 + count):
            table.is_duplicate(ordinal, 1, **others)  # type: ignore[arg-type]
            if ordinal % 500 == 0:
                table.commit(1)
        table.commit(1)
        if restarted:
            table.restart(at(2))
        assert sum(not table.is_duplicate(ordinal, 2) for ordinal in range(window)) == 0


# What is kept


def test_a_window_that_is_larger_than_what_is_remembered_is_refused() -> None:
    Settings(window_size=25, remove_duplicate_size=100)
    with pytest.raises(
        UsageError, match=r"window_size = 26: .* remove_duplicate_size = 100 .*: set it to 104"
    ):
        Settings(window_size=26, remove_duplicate_size=100)
    Settings(window_size=32_767)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_two_senders_that_count_alike_do_not_lose_messages_to_each_other() -> None:
    """If the specification is taken literally, only the ordinals are compared."""
    table = Table()
    assert not table.is_duplicate(1)
    assert [table.knows(1, source=source) for source in (A, B)] == [True, False]
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
    assert len(table.history) == 1, "one message, however often it came"
    taken = table.writes.take(at(9))
    assert taken is not None
    assert [row.time_stamp_s for row in taken.identifiers] == [at(0).utc_s, at(9).utc_s]


@pytest.mark.spec("[MS-MQQB] 3.1.3.1")
@pytest.mark.spec("[MS-MQQB] 3.1.2.8")
def test_the_cleanup_timer_runs_while_there_may_be_something_to_forget_also_after_a_restart() -> None:
    table = Table()
    assert table.timers.next_ms is None
    table.is_duplicate(1, 7)
    table.is_duplicate(2, 8)
    table.commit()
    assert table.timers.next_ms == (7 + HALF_AN_HOUR_S) * 1_000, "what came second does not restart it"
    table.restart()
    assert table.timers.next_ms == HALF_AN_HOUR_S * 1_000
    assert table.is_duplicate(1)


@pytest.mark.spec("[MS-MQQB] 3.1.6.7")
def test_what_is_old_goes_in_the_cleanup_but_for_the_newest_of_each_sender() -> None:
    table = Table(window=2)
    for ordinal in range(10):
        table.is_duplicate(ordinal, ordinal)
    table.is_duplicate(100, 0, source=B)
    table.commit()
    table.clean_up(HALF_AN_HOUR_S + 5)
    assert table.known(range(10)) == [5, 6, 7, 8, 9], "those of the last half hour"
    assert table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    table.clean_up(10 * HALF_AN_HOUR_S)
    assert table.known(range(10)) == [6, 7, 8, 9], "twice the window, for ever"
    assert table.knows(100, source=B)
    assert not table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None), "nothing is left that may go"
    table.is_duplicate(11, 20 * HALF_AN_HOUR_S)
    assert table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    table.commit()
    assert {row.ordinal for row in table.disk.load().identifiers} == {6, 7, 8, 9, 11, 100}


def test_a_neighbour_that_pauses_has_still_what_its_window_was() -> None:
    table = Table()
    for ordinal in range(20):
        table.is_duplicate(ordinal, window=8 if ordinal < 19 else 1)
    table.clean_up(2 * HALF_AN_HOUR_S)
    assert table.known(range(20)) == list(range(4, 20))


def test_another_way_with_a_smaller_window_does_not_shorten_what_is_remembered() -> None:
    table = Table()
    for ordinal in range(20):
        table.is_duplicate(ordinal, by=B if ordinal < 19 else C, window=8 if ordinal < 19 else 1)
    table.clean_up(2 * HALF_AN_HOUR_S)
    assert table.known(range(20)) == list(range(4, 20))


def test_after_a_restart_nothing_is_too_old_before_it_is_known_who_brings_it() -> None:
    table = Table()
    for ordinal in range(20):
        table.is_duplicate(ordinal, window=10)
    table.commit()
    table.restart(at(3 * HALF_AN_HOUR_S))
    table.clean_up(4 * HALF_AN_HOUR_S)
    assert len(table.known(range(20))) == 20
    assert table.timers.runs(Timer.MESSAGE_ID_HISTORY_CLEANUP, None)
    table.is_duplicate(19, 4 * HALF_AN_HOUR_S, window=5)
    table.clean_up(4 * HALF_AN_HOUR_S)
    assert table.known(range(20)) == list(range(10, 20))


# A full table


def test_a_full_table_loses_first_what_is_remembered_for_its_youth_alone() -> None:
    table = Table(size=16, window=2)
    table.connected = {B}
    for ordinal in range(4):
        table.is_duplicate(ordinal, source=A, by=A)
    for ordinal in range(100):
        table.is_duplicate(ordinal, source=B, by=B)
        table.commit()
    assert table.known(range(4)) == [0, 1, 2, 3], "also of one without a session"
    assert table.known(range(100), source=B) == list(range(88, 100))


def test_then_what_a_neighbour_has_brought_in_more_names_than_its_window_has_room_for() -> None:
    table = Table(size=64, window=2)
    for source in (A, B):
        for ordinal in range(4):
            table.is_duplicate(ordinal, source=source, by=source)
    for number in range(20_000):
        table.is_duplicate(1, source=guid_of(f"x{number}"), by=NEAR)
        table.commit()
    assert [table.known(range(4), source=source) for source in (A, B)] == [[0, 1, 2, 3]] * 2
    assert len(table.history) <= 64


def test_then_those_without_a_session_and_never_one_that_has_one() -> None:
    table = Table(size=16, window=2)
    table.connected = {B, NEAR}
    by = {A: A, B: B, C: NEAR, guid_of("d"): guid_of("d")}
    for source in (A, B, C, guid_of("d")):
        for ordinal in range(4):
            table.is_duplicate(ordinal, source=source, by=by[source])
    table.commit()
    table.connected |= {guid_of("e"), guid_of("d")}
    for ordinal in range(4):
        table.is_duplicate(ordinal, source=guid_of("e"), by=guid_of("e"))
    table.commit()
    assert table.known(range(4)) == []
    for source in (B, C, guid_of("d"), guid_of("e")):
        assert len(table.known(range(4), source=source)) == 4


def test_then_the_neighbour_that_has_most_and_each_keeps_its_share() -> None:
    table = Table(size=8)
    table.connected = {A, B, C}
    table.is_duplicate(1, source=A, by=A)
    table.is_duplicate(2, source=A, by=A)
    for kind in (True, False):
        for source in (B, C):
            for ordinal in range(10):
                table.is_duplicate(ordinal, source=source, by=source, recoverable=kind)
                table.commit()
    assert table.known(range(4)) == [1, 2]
    assert [
        sum(len(table.known(range(10), source=source, recoverable=kind)) for kind in (True, False))
        for source in (B, C)
    ] == [3, 3]


def test_what_is_forgotten_goes_from_the_disk_in_the_next_transaction() -> None:
    table = Table(size=8, window=2)
    for ordinal in range(20):
        table.is_duplicate(ordinal)
    table.commit()
    assert table.known(range(20)) == list(range(12, 20))
    assert len(table.disk.load().identifiers) == 20
    assert not table.is_duplicate(3)
    table.commit()
    assert [row.ordinal for row in table.disk.load().identifiers] == [*range(12, 20), 3]
    table.writes.force()
    table.commit()
    assert [row.ordinal for row in table.disk.load().identifiers] == [*range(13, 20), 3]


# Messages for others, and counts


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.1")
def test_a_message_for_others_that_comes_back_with_more_hops_is_no_duplicate() -> None:
    """The route that the message took no longer exists: a node that discards the message loses it."""
    table = Table(size=4)
    judged = [
        table.history.is_duplicate(A, 1, at(0), table.writes, recoverable=True, hop_count=hop_count)
        for hop_count in (0, 0, 2, 1, 2, 3)
    ]
    assert judged == [False, True, False, True, True, False]
    assert table.is_duplicate(1), "for us it came before, however it did"
    for ordinal in (2, 3, 4, 5):
        table.is_duplicate(ordinal)
    table.commit()
    assert not table.history.came_before(A, 1, 0, recoverable=True), (
        "what is forgotten is forgotten with its hops"
    )


def test_duplicates_are_counted_by_sender_and_those_of_too_many_in_the_sum_alone() -> None:
    table = Table()
    for number in range(COUNTED_SENDERS + 5):
        source = guid_of(f"x{number}")
        for _ in range(3):
            table.is_duplicate(1, source=source)
    assert table.history.duplicate_count == 2 * (COUNTED_SENDERS + 5)
    assert len(table.history.duplicates) == COUNTED_SENDERS
    assert set(table.history.duplicates.values()) == {2}


def test_a_sender_that_gives_identifiers_again_is_told_from_one_whose_connection_broke() -> None:
    table = Table(window=512)
    for number in range(2_000):
        table.is_duplicate(number)
    for number in range(2_000 - 512, 2_000):
        assert table.is_duplicate(number), "a window comes again"
    assert table.history.drops_most_of() == {}
    for number in range(2_000, 3_000):
        table.is_duplicate(number)
    for number in range(1_000, 3_000):
        assert table.is_duplicate(number), "its MessageIDs begin anew, where some are still remembered"
    dropped, came = table.history.drops_most_of()[A]
    assert came / 2 < dropped < came
    for number in range(3_000, 6_000):
        table.is_duplicate(number)
    assert table.history.drops_most_of() == {}


def test_of_a_few_messages_of_a_sender_it_is_not_said_how_many_were_duplicates() -> None:
    table = Table()
    for number in range(LEAST_LOOKED_AT // 2 - 1):
        table.is_duplicate(number)
    for _ in range(LEAST_LOOKED_AT // 2):
        table.is_duplicate(0)
    assert table.history.drops_most_of() == {}
    table.is_duplicate(0)
    assert table.history.drops_most_of() == {A: (LEAST_LOOKED_AT // 2 + 1, LEAST_LOOKED_AT)}
