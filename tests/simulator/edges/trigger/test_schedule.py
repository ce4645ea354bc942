"""The schedule, tested with a list as its queue.

Each group is attempted in order, and nothing is forgotten.
"""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from hypothesis import event, given, strategies as st

from mqproto.simulator.edges.options import LEASE_LIMIT
from mqproto.simulator.edges.trigger.schedule import LEASED_LIMIT_BYTES, Schedule

ATTEMPTS = 4
DELAY_S = 10.0


class Desk:
    """A queue of messages in groups, numbered in order, and the attempts to process them."""

    def __init__(self, schedule: Schedule[int], groups: list[str]) -> None:
        self.schedule = schedule
        self.groups = groups
        self.waiting = list(range(len(groups)))
        self.leased: list[int] = []
        self.running: list[int] = []
        self.leaving: list[int] = []
        self.decided: list[int] = []
        """The messages that were decided, in the order of the decisions."""
        self.attempts: Counter[int] = Counter()
        self.asking = False
        self.now_s = 0.0
        self.held_until_s: float | None = None

    def step(self) -> None:
        """Start attempts that may start, and ask for a message if one is wanted."""
        for number in self.schedule.start(self.now_s):
            assert number in self.leased, "what is attempted is leased"
            group = self.groups[number]
            assert group not in {self.groups[other] for other in self.running}, "one of a group at a time"
            earlier = [other for other in range(number) if self.groups[other] == group]
            assert set(earlier) <= set(self.decided), "the first of its group"
            if self.held_until_s is not None:
                assert self.now_s >= self.held_until_s, "nothing is tried before"
                assert not self.running, "one at a time"
            self.attempts[number] += 1
            self.running.append(number)
        if self.schedule.wants_lease(self.now_s):
            self.schedule.asked()
            self.asking = True

    def answer(self) -> None:
        """Hand out the queue's first message; if there is none, say so after a second."""
        self.asking = False
        if not self.waiting:
            self.now_s += 1
            self.schedule.nothing_there()
            return
        number = self.waiting.pop(0)
        self.leased.append(number)
        self.schedule.leased(number, self.groups[number])

    def end(self, number: int, *, succeeds: bool, holds: bool = False) -> None:
        """End an attempt."""
        self.running.remove(number)
        self.leased.remove(number)
        if succeeds:
            self.held_until_s = None
            self.schedule.go_on()
        elif holds or self.held_until_s is not None:
            self.held_until_s = self.now_s + DELAY_S
            self.schedule.hold(self.held_until_s)
        if succeeds or self.attempts[number] == ATTEMPTS:
            self.decide(number)
            self.schedule.settled(number)
        else:
            self.waiting = sorted([*self.waiting, number])
            self.schedule.given_back(number, self.now_s + DELAY_S)

    def decide(self, number: int) -> None:
        if number not in self.decided:
            self.decided.append(number)

    def let_leave(self, number: int) -> None:
        """Let a message's attempt succeed, so that it is about to leave the queue."""
        self.running.remove(number)
        self.leaving.append(number)
        self.decide(number)
        self.schedule.decided(number)

    def leave(self, number: int) -> None:
        self.leaving.remove(number)
        self.leased.remove(number)
        self.schedule.settled(number)

    def break_connection(self) -> None:
        """Make all leases void; the running attempts end with them."""
        if self.asking:
            self.asking = False
            self.schedule.not_answered()
        for number in self.leased:
            self.schedule.given_back(number)
        self.waiting = sorted(self.waiting + self.leased)
        self.leased, self.running, self.leaving = [], [], []

    def is_quiet(self) -> bool:
        return not (self.running or self.leaving or self.asking)


@given(
    groups=st.lists(st.sampled_from("abcd"), max_size=30),
    parallel=st.integers(1, 3),
    lookahead=st.integers(0, 5),
    ahead=st.integers(0, 3),
    in_order=st.booleans(),
    data=st.data(),
)
def test_whatever_happens_groups_are_attempted_in_order_and_every_message_is_settled(
    groups: list[str], parallel: int, lookahead: int, ahead: int, in_order: bool, data: st.DataObject
) -> None:
    if in_order:
        groups, parallel = ["a"] * len(groups), 1
    desk = Desk(Schedule(parallel, parallel + lookahead, ahead=ahead, in_order=in_order), groups)
    storm = data.draw(st.integers(0, 60))
    while desk.waiting or desk.leased:
        desk.step()
        assert len(desk.leased) + desk.asking <= parallel + lookahead
        assert len(desk.running) <= parallel
        if desk.is_quiet():
            due_s = desk.schedule.next_s(desk.now_s)
            assert due_s < inf, "something is to be done, and nobody would begin with it"
            desk.now_s = due_s
            continue
        choices = [*desk.running, *desk.leaving, *["answer"] * desk.asking, *["break"] * (storm > 0)]
        storm -= 1
        choice = data.draw(st.sampled_from(choices))
        if choice == "answer":
            desk.answer()
        elif choice == "break":
            event("the connection breaks")
            desk.break_connection()
        else:
            assert isinstance(choice, int)
            if choice in desk.leaving:
                desk.leave(choice)
                continue
            if desk.held_until_s is None and data.draw(st.booleans()):
                desk.let_leave(choice)
                continue
            desk.end(choice, succeeds=storm < 0 or data.draw(st.booleans()), holds=data.draw(st.booleans()))
    for group in set(groups):
        decided = [number for number in desk.decided if groups[number] == group]
        assert decided == [number for number, one in enumerate(groups) if one == group]


def test_a_group_that_waits_does_not_hold_up_the_others() -> None:
    desk = Desk(Schedule(1, 4), ["a", "a", "b"])
    for _ in range(2):
        desk.step()
        if desk.asking:
            desk.answer()
    assert desk.running == [0]
    desk.end(0, succeeds=False)
    for _ in range(4):
        desk.step()
        if desk.asking:
            desk.answer()
    assert desk.running == [2]
    assert desk.schedule.next_s(desk.now_s) == DELAY_S


def test_while_the_queue_is_held_each_group_is_tried_in_turn() -> None:
    """The consumer may fail for one group only, and work for the others."""
    desk = Desk(Schedule(2, 4), ["a", "a", "b"])
    desk.step()
    desk.answer()
    desk.step()
    desk.end(0, succeeds=False, holds=True)
    tried = []
    for _ in range(3):
        while not desk.running:
            desk.step()
            if desk.asking:
                desk.answer()
            elif not desk.running:
                desk.now_s = desk.schedule.next_s(desk.now_s)
        tried += desk.running
        while desk.waiting and desk.schedule.wants_lease(desk.now_s):
            desk.step()
            desk.answer()
        desk.end(desk.running[0], succeeds=False)
    assert tried == [0, 2, 0]


def test_in_order_the_next_one_is_leased_ahead_and_begins_when_the_one_before_is_decided() -> None:
    schedule = Schedule[int](1, 3, in_order=True)
    for number in range(3):
        assert schedule.wants_lease(0)
        schedule.asked()
        schedule.leased(number, "")
    assert not schedule.wants_lease(0)
    assert schedule.start(0) == [0]
    schedule.decided(0)
    assert schedule.start(0) == [1]
    # It did not leave: to the history it is processed, so it is attempted when there is nothing else to attempt.
    schedule.given_back(0)
    schedule.asked()
    schedule.leased(0, "")
    assert schedule.start(0) == []
    schedule.settled(1)
    assert schedule.start(0) == [0]
    schedule.given_back(0, due_s=5)
    assert schedule.start(0) == []
    assert not schedule.wants_lease(4.9)
    assert schedule.wants_lease(5)


def test_one_at_a_time_leases_nothing_while_the_first_message_is_not_due() -> None:
    schedule = Schedule[int](1, 1)
    schedule.asked()
    schedule.leased(0, "")
    assert schedule.start(0) == [0]
    assert not schedule.wants_lease(0)
    schedule.given_back(0, due_s=5)
    assert not schedule.wants_lease(4.9)
    assert schedule.next_s(4.9) == 5
    assert schedule.wants_lease(5)


@pytest.mark.parametrize("empty", [False, True])
def test_a_message_that_somebody_else_took_holds_nobody_up(empty: bool) -> None:
    """The message was given back, and then the queue was asked again and handed out another one."""
    schedule = Schedule[int](1, 3)
    for number in (0, 1):
        schedule.asked()
        schedule.leased(number, "a")
    assert schedule.start(0) == [0]
    schedule.given_back(0)
    assert schedule.start(0) == [], "the second waits for the first"
    schedule.asked()
    if empty:
        schedule.nothing_there()
    else:
        schedule.leased(2, "a")
    assert schedule.start(0) == [1]


def test_a_message_handed_out_before_another_was_given_back_says_nothing_of_it() -> None:
    schedule = Schedule[int](1, 3)
    schedule.asked()
    schedule.leased(0, "a")
    assert schedule.start(0) == [0]
    schedule.asked()
    schedule.given_back(0)
    schedule.leased(1, "a")
    assert schedule.start(0) == [], "the first is still in the queue"
    schedule.asked()
    schedule.leased(0, "a")
    assert schedule.start(0) == [0]


def test_a_message_of_a_higher_priority_says_nothing_of_one_that_was_given_back() -> None:
    schedule = Schedule[int](1, 3)
    schedule.asked()
    schedule.leased(0, "a", priority=3)
    assert schedule.start(0) == [0]
    schedule.given_back(0)
    schedule.asked()
    schedule.leased(1, "a", priority=7)
    schedule.asked()
    schedule.leased(0, "a", priority=3)
    assert schedule.start(0) == [0]


def test_leases_are_bounded_in_number_and_in_bytes() -> None:
    schedule = Schedule[int](2)
    for number in range(LEASE_LIMIT):
        assert schedule.wants_lease(0)
        schedule.asked()
        schedule.leased(number, "a", size_bytes=1)
        schedule.start(0)
    assert not schedule.wants_lease(0)
    schedule = Schedule[int](2)
    schedule.asked()
    schedule.leased(0, "a", size_bytes=LEASED_LIMIT_BYTES)
    assert schedule.start(0) == [0]
    assert not schedule.wants_lease(0)
