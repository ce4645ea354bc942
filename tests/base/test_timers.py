"""Deadlines in one table, compared with a naive model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqproto.base.timers import Timer, Timers

TIMERS = st.sampled_from([Timer.SESSION_CLEANUP, Timer.ORDER_ACK_SEND, Timer.LAZY_WRITES])
OWNERS = st.integers(0, 2)


class TimersAgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers = Timers()
        self.model: dict[tuple[Timer, int], int] = {}
        self.now = 0

    @rule(timer=TIMERS, owner=OWNERS, delay_ms=st.integers(1, 20))
    def start(self, timer: Timer, owner: int, delay_ms: int) -> None:
        self.timers.start(timer, owner, self.now + delay_ms)
        self.model[timer, owner] = self.now + delay_ms

    @rule(timer=TIMERS, owner=OWNERS)
    def stop(self, timer: Timer, owner: int) -> None:
        self.timers.stop(timer, owner)
        self.model.pop((timer, owner), None)

    @rule(elapsed_ms=st.integers(0, 30))
    def time_passes(self, elapsed_ms: int) -> None:
        self.now += elapsed_ms
        due = {key: at for key, at in self.model.items() if at <= self.now}
        seen = list(self.timers.expired(self.now))
        assert len(seen) == len(set(seen))
        assert set(seen) == set(due)
        assert [due[key] for key in seen] == sorted(due.values()), "the earliest first"
        for key in due:
            del self.model[key]

    @invariant()
    def the_next_deadline_is_the_earliest(self) -> None:
        assert self.timers.next_ms == min(self.model.values(), default=None)

    @invariant()
    def each_timer_tells_its_deadline(self) -> None:
        for timer in (Timer.SESSION_CLEANUP, Timer.ORDER_ACK_SEND, Timer.LAZY_WRITES):
            for owner in range(3):
                assert self.timers.deadline_ms(timer, owner) == self.model.get((timer, owner))
                assert self.timers.runs(timer, owner) == ((timer, owner) in self.model)


TestTimersAgainstADictionary = TimersAgainstADictionary.TestCase


@pytest.mark.spec("[MS-MQQB] 3.1.2")
def test_a_timer_that_is_restarted_while_it_is_handled_is_not_due_again_in_the_same_turn() -> None:
    timers = Timers()
    timers.start(Timer.ORDER_ACK_SEND, "a", 10)
    seen = []
    for key in timers.expired(100):
        seen.append(key)
        timers.start(*key, 101)
    assert seen == [(Timer.ORDER_ACK_SEND, "a")]


def test_putting_a_timer_off_for_each_message_does_not_make_the_table_grow() -> None:
    timers = Timers()
    for deadline_ms in range(100_000):
        timers.start(Timer.ORDER_ACK_SEND, "a", deadline_ms)
    assert len(timers._heap) == 1
    assert timers.next_ms == 99_999
