"""How long all programs that use one history remember ids, and how forgotten ids are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.edges.history.documents import UNKNOWN, Begin, Documents, Finish, LookUp
from mqproto.simulator.edges.history.forgetting import GATEWAY, LEAP_S, TRIGGER

KEEP_S, EVERY_S = 1_000.0, 11.0
DATE_S, DAY_S = 1_800_000_000.0, 24 * 3_600.0
ACCEPTED, DELIVERED, BILLED = GATEWAY + "orders", TRIGGER + "orders", TRIGGER + "bills"


class World:
    """A history and its clock."""

    def __init__(self, url: str, keep_s: float | None = KEEP_S) -> None:
        self.now_s = 1_000_000.0
        self.documents = Documents(url, keep_s, lambda: self.now_s, lambda: self.now_s)
        self._ticket = 0

    def finish(self, scope: str, key: str, entry: Entry = Entry.COMPLETED) -> None:
        self.documents.carry_out([Finish(scope, key, 0, entry, b"")])

    def begin(self, scope: str, key: str) -> None:
        self._ticket += 1
        self.documents.carry_out([Begin(scope, key, "a", self._ticket)])

    def has(self, scope: str, key: str) -> bool:
        return self.documents.carry_out([LookUp(scope, key)]) != [UNKNOWN]

    def wait(self, seconds: float) -> None:
        """Let time pass, and look for ids that are too old."""
        while seconds > LEAP_S:
            self.wait(LEAP_S)
            seconds -= LEAP_S
        self.now_s += seconds
        self.has("", "nothing")


def test_one_says_how_long_and_all_keep_to_it(history_url: str) -> None:
    trigger, gateway = World(history_url, None), World(history_url, 50.0)
    with closing(trigger.documents), closing(gateway.documents):
        trigger.finish(DELIVERED, "17")
        trigger.wait(49.0)
        assert trigger.has(DELIVERED, "17")
        trigger.wait(EVERY_S)
        assert not trigger.has(DELIVERED, "17")
        assert trigger.documents.keep_s == 50.0
        with closing(World(history_url, 70.0).documents):
            trigger.finish(DELIVERED, "18")
            trigger.wait(60.0)
            assert trigger.has(DELIVERED, "18")


def test_an_id_is_not_forgotten_before_what_was_delivered_under_it(history_url: str) -> None:
    """Otherwise the id's producer could use it again and be told 200, but the trigger would drop the message."""
    world = World(history_url)
    with closing(world.documents):
        for key in ("late", "begun", "early"):
            world.finish(ACCEPTED, key)
        world.finish(DELIVERED, "early")
        world.begin(DELIVERED, "begun")
        world.finish(BILLED, "late")
        world.wait(KEEP_S - 100)
        world.finish(DELIVERED, "late")
        world.wait(110)
        assert [world.has(ACCEPTED, key) for key in ("late", "begun", "early")] == [True, True, False]
        assert not world.has(BILLED, "late")
        world.wait(KEEP_S - 100)
        assert not world.has(ACCEPTED, "late")
        assert not world.has(DELIVERED, "late")
        assert world.has(ACCEPTED, "begun")


Places = st.sampled_from([ACCEPTED, DELIVERED])


@pytest.mark.long
@given(
    steps=st.lists(
        st.tuples(Places, st.sampled_from("abc"), st.sampled_from([0.0, 300.0, 900.0])), max_size=10
    )
)
def test_whatever_comes_when_an_id_is_remembered_as_long_as_what_was_delivered(
    new_sqlite_url: Callable[[], str], steps: list[tuple[str, str, float]]
) -> None:
    world = World(new_sqlite_url())
    with closing(world.documents):
        for scope, key, wait_s in steps:
            if scope == ACCEPTED or world.has(ACCEPTED, key):
                world.finish(scope, key)
            world.wait(wait_s)
            for each in "abc":
                assert world.has(ACCEPTED, each) or not world.has(DELIVERED, each)
        world.wait(3 * KEEP_S)
        world.wait(EVERY_S)
        world.wait(KEEP_S + EVERY_S)
        assert not any(world.has(scope, key) for scope in (ACCEPTED, DELIVERED) for key in "abc")


def test_what_gateways_accepted_is_counted_when_it_is_forgotten(
    history_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.edges.history.forgetting.FORGET_ROWS", 2)
    world = World(history_url)
    with closing(world.documents):
        for key in ("1", "2", "3"):
            world.finish(ACCEPTED, key)
            world.now_s += 1
        last_s = world.now_s - 1
        world.finish(DELIVERED, "elsewhere")
        world.finish(ACCEPTED, "refused", Entry.FAILED)
        assert world.documents.forgotten() == (0, 0.0)
        world.wait(2 * KEEP_S)
        for _ in range(4):
            world.has("", "nothing")
        assert world.documents.forgotten() == (3, last_s)


class Program:
    """A program that has the history open and has a wall clock of its own; seconds pass at the same rate for all
    programs.
    """

    passed_s = 0.0

    def __init__(self, url: str, date_s: float = DATE_S) -> None:
        self.date_s, self.warnings = date_s, list[str]()
        self.documents = Documents(
            url,
            KEEP_S,
            lambda: self.date_s + Program.passed_s,
            lambda: Program.passed_s,
            self.warnings.append,
        )

    def has(self, key: str) -> bool:
        return self.documents.carry_out([LookUp(ACCEPTED, key)]) != [UNKNOWN]

    def accept(self, *keys: str) -> None:
        self.documents.carry_out([Finish(ACCEPTED, key, 0, Entry.COMPLETED, b"") for key in keys])


@pytest.fixture(autouse=True)
def nothing_has_passed() -> None:
    Program.passed_s = 0.0


@pytest.mark.parametrize("days", [-35, 35])
def test_a_program_with_another_date_forgets_nothing_and_says_that_its_clock_is_off(
    history_url: str, days: int
) -> None:
    with closing(Program(history_url).documents) as documents:
        documents.carry_out([Finish(ACCEPTED, "17", 0, Entry.COMPLETED, b"")])
        other = Program(history_url, DATE_S + days * DAY_S)
        with closing(other.documents):
            other.accept("18")
            Program.passed_s += 11
            assert other.has("17")
        assert len(other.warnings) == (days < 0 or "postgresql" in history_url)
        late = Program(history_url)
        with closing(late.documents):
            assert late.has("17")
            assert late.has("18")
        assert len(late.warnings) == (days > 0 or "postgresql" in history_url)


@pytest.mark.parametrize("days", [-35, 35])
def test_a_clock_that_jumps_while_it_runs_forgets_nothing(history_url: str, days: int) -> None:
    program = Program(history_url, time.time())
    with closing(program.documents):
        program.accept("17")
        program.date_s += days * DAY_S
        Program.passed_s += 11
        assert program.has("17")
        [warning] = program.warnings
        assert warning.startswith(f"the clock was set, by {days * DAY_S:+,.0f} s: no id is forgotten")
        Program.passed_s += 11
        assert program.has("17")
        assert program.warnings == [warning]


def test_what_passes_for_two_programs_at_once_counts_once(history_url: str) -> None:
    one, other = Program(history_url), Program(history_url)
    with closing(one.documents), closing(other.documents):
        one.accept("17")
        for _ in range(9):
            Program.passed_s += KEEP_S / 10
            assert one.has("17")
            assert other.has("17")
        Program.passed_s += KEEP_S / 10
        one.has("17")
        assert not other.has("17")


def test_one_that_did_nothing_for_long_says_when_something_came_by_the_time_of_all(history_url: str) -> None:
    """Otherwise, a message that the program has just accepted would seem as old as the program's last look."""
    busy, idle = Program(history_url), Program(history_url)
    with closing(busy.documents), closing(idle.documents):
        for _ in range(9):
            Program.passed_s += LEAP_S
            busy.has("nothing")
        idle.accept("17")
        Program.passed_s += KEEP_S - 10
        assert busy.has("17")


def test_a_leap_counts_as_ten_minutes_and_time_in_which_nobody_has_it_as_none(history_url: str) -> None:
    program = Program(history_url)
    with closing(program.documents):
        program.accept("17")
        Program.passed_s += 1e9
        assert program.has("17")
    Program.passed_s += 1e9
    again = Program(history_url)
    with closing(again.documents):
        assert again.has("17")
        Program.passed_s += KEEP_S - LEAP_S - 1
        assert again.has("17")
    # A program of short life has moved it on as well, at its end.
    for _ in range(2):
        last = Program(history_url)
        Program.passed_s += 11
        last.documents.close()
    last = Program(history_url)
    with closing(last.documents):
        last.has("17")
        assert not last.has("17")
