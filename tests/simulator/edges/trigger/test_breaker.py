"""When a queue is held and for how long, and which messages lose an attempt because of that."""

from __future__ import annotations

from functools import partial
from itertools import takewhile

import pytest
from hypothesis import given, strategies as st

from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.options import Retries
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Answer, system_error

RETRIES = Retries(interval_s=1, factor=2, limit_s=60)
DOWN = system_error("it cannot be connected to (refused)", is_unseen=True)
SLOW = system_error("no answer within 30 s")
WORKS = Answer(Attempt.SUCCEEDED)


@given(
    limit=st.integers(0, 5),
    messages=st.integers(1, 2),
    said=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([DOWN, SLOW, WORKS])), max_size=30),
)
def test_it_opens_after_so_many_failures_in_a_row_with_one_cause_and_closes_when_the_consumer_answers(
    limit: int, messages: int, said: list[tuple[str, Answer]]
) -> None:
    breaker, now_s, is_open, spared = Breaker(limit, RETRIES, messages), 0.0, False, 0
    for place, (message, answer) in enumerate(said):
        if answer is WORKS:
            breaker.answered()
            is_open = False
            assert breaker.held is None
            continue
        pause = breaker.failed(message, answer, now_s, now_s)
        row = [*takewhile(partial(_is_alike, answer), reversed(said[: place + 1]))]
        are_several = answer is DOWN or len({one for one, _ in row}) >= messages
        is_open = is_open or (0 < limit <= len(row) and are_several)
        assert (pause is not None) is is_open is (breaker.held is not None)
        if pause is not None:
            assert pause.is_spared is (answer is DOWN)
            spared += pause.is_spared
            now_s += pause.pause_s
    assert breaker.spared("a") + breaker.spared("b") == spared


def _is_alike(answer: Answer, one: tuple[str, Answer]) -> bool:
    return one[1] is answer


def test_pauses_grow_and_the_consumer_may_ask_for_longer_ones() -> None:
    breaker, now_s, pauses = Breaker(2, RETRIES), 0.0, []
    later = system_error("HTTP 503", 100.0, is_unseen=True)
    for answer in (*[DOWN] * 7, later):
        pause = breaker.failed("a", answer, now_s, 1_800_000_000 + now_s)
        if pause is not None:
            now_s += pause.pause_s
            pauses.append(pause.pause_s)
    assert pauses == [2, 4, 8, 16, 32, 60, 100]
    assert breaker.held is not None
    assert (breaker.held.cause, breaker.held.failures) == ("HTTP 503", 8)
    assert (breaker.held.since_s, breaker.held.probe_s) == (1_800_000_000, 1_800_000_000 + now_s)


@pytest.mark.parametrize("answer", [DOWN, SLOW])
def test_what_was_called_before_it_opened_neither_lengthens_the_pause_nor_uses_an_attempt_up_unseen(
    answer: Answer,
) -> None:
    breaker = Breaker(1, RETRIES)
    breaker.failed("a", DOWN, 0, 0)
    pause = breaker.failed("b", answer, 0.25, 0.25)
    assert pause == (0.75, answer is DOWN)
    assert breaker.held is not None
    assert breaker.held.failures == 1
    breaker.settled("b")
    assert (breaker.spared("a"), breaker.spared("b")) == (1, 0)
