"""Time and memory: a target that takes too much is stopped, and others are left alone."""

from __future__ import annotations

import gc
import resource
import signal
from contextlib import suppress
from threading import Event

import pytest

from mqproto.simulator.fuzz.parser.bounds import TookTooLong, Watch, memory_limit


def test_what_comes_to_no_end_is_stopped_even_if_it_catches_everything() -> None:
    watch = Watch(0.1)

    def never_ends() -> None:
        while True:
            with suppress(Exception):
                sum(range(100))

    with watch.watching(), pytest.raises(TookTooLong, match=r"0\.1 s"):
        never_ends()


def test_what_waits_for_ever_is_stopped() -> None:
    with Watch(0.02).watching(), pytest.raises(TookTooLong, match=r"0\.2 s .* waits for something"):
        Event().wait()


def test_many_packets_that_take_no_time_each_are_not_stopped() -> None:
    watch = Watch(0.05)
    with watch.watching():
        for _ in range(300_000):
            watch.packets += 1
    assert watch.packets == 300_000


def test_afterwards_nothing_is_watched_any_more() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)]
    with Watch(0.1).watching():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_garbage_is_not_looked_for_among_what_was_there_before() -> None:
    there = gc.get_freeze_count()
    before: list[list[int]] = [[] for _ in range(1_000)]
    with Watch(0.1).watching():
        assert gc.get_freeze_count() > there + len(before)
    assert gc.get_freeze_count() == 0


def test_memory_beyond_the_limit_is_refused_and_then_given_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with memory_limit(64 * 2**20):
        assert len(bytes(16 * 2**20)) == 16 * 2**20
        with pytest.raises(MemoryError):
            bytes(2**31)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_of_two_memory_limits_the_inner_one_counts() -> None:
    with memory_limit(64 * 2**20):
        outer = resource.getrlimit(resource.RLIMIT_AS)
        with memory_limit(512 * 2**20):
            assert len(bytes(128 * 2**20)) == 128 * 2**20
        # Little memory is not asked for here: what other tests gave back may do for it.
        assert resource.getrlimit(resource.RLIMIT_AS) == outer
