"""Caches of keys and certificates: what is found, what is dropped to make room, and what the timer removes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.security import AgeingCache, SendName
from mqproto.wire import Guid

LIFETIME_MS = 600_000
MINUTE_MS = 60_000


def name(number: int, remote: int = 1) -> SendName:
    return SendName(Guid(bytes([remote]) * 16), "aes", number)


def filled(size: int, count: int) -> AgeingCache[SendName, int]:
    """Return a cache with `count` entries, one added each second from second 1 on."""
    cache: AgeingCache[SendName, int] = AgeingCache(size, LIFETIME_MS)
    for number in range(1, count + 1):
        cache.add(name(number), number, 1_000 * number)
    return cache


@pytest.mark.spec("[MS-MQQB] 3.1.1.3.3")
def test_an_entry_is_found_by_all_of_its_name() -> None:
    cache = filled(53, 1)
    assert cache.find(name(1)) == 1
    assert cache.find(name(2)) is None
    assert cache.find(name(1, remote=2)) is None


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.parametrize(("size", "left"), [(53, 27), (127, 64), (2, 1), (1, 0)])
def test_where_there_is_no_room_the_older_half_goes(size: int, left: int) -> None:
    cache = filled(size, size)
    assert len(cache) == size
    cache.add(name(0), 0, 10**6)
    assert [cache.find(name(number)) for number in range(1, size + 1) if cache.find(name(number))] == [
        *range(size - left + 1, size + 1)
    ]
    assert cache.find(name(0)) == 0


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.5")
def test_an_entry_that_is_made_anew_is_the_youngest_and_takes_no_room() -> None:
    cache = filled(4, 4)
    cache.add(name(1), 10, 5_000)
    assert [cache.find(name(number)) for number in (1, 2, 3, 4)] == [10, 2, 3, 4]
    cache.add(name(5), 5, 6_000)
    assert [cache.find(name(number)) for number in (1, 2, 3, 4, 5)] == [10, None, None, 4, 5]


@pytest.mark.spec("[MS-MQQB] 3.1.2.10")
def test_the_timer_runs_from_the_first_entry_on() -> None:
    assert filled(53, 0).deadline_ms is None
    assert filled(53, 5).deadline_ms == 1_000 + LIFETIME_MS


@pytest.mark.spec("[MS-MQQB] 3.1.6.10")
@pytest.mark.spec("[MS-MQQB] 3.1.6.11")
def test_at_the_timer_what_is_too_old_goes_and_it_runs_until_a_minute_after_the_next_is() -> None:
    cache = filled(53, 3)
    cache.clean(1_000 + LIFETIME_MS)
    assert len(cache) == 3, "as old as it may become, and not older"
    assert cache.deadline_ms == 1_000 + LIFETIME_MS + MINUTE_MS
    cache.clean(2_001 + LIFETIME_MS)
    assert [cache.find(name(number)) for number in (1, 2, 3)] == [None, None, 3]
    assert cache.deadline_ms == 3_000 + LIFETIME_MS + MINUTE_MS
    cache.clean(3_000 + LIFETIME_MS + MINUTE_MS)
    assert len(cache) == 0
    cache.add(name(4), 4, 10**9)
    assert cache.deadline_ms == 10**9 + LIFETIME_MS, "it had stopped, and runs again"


def test_what_was_made_for_a_key_that_is_no_more_is_forgotten() -> None:
    cache = filled(53, 2)
    cache.add(name(1, remote=2), 7, 0)
    cache.forget(Guid(bytes([1]) * 16))
    assert (len(cache), cache.find(name(1, remote=2))) == (1, 7)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2 * LIFETIME_MS)), max_size=30),
)
def test_whatever_comes_it_stays_within_its_size_and_age(size: int, steps: list[tuple[int, int]]) -> None:
    cache: AgeingCache[SendName, int] = AgeingCache(size, LIFETIME_MS)
    now_ms, made_ms = 0, dict[SendName, int]()
    for number, later_ms in steps:
        now_ms += later_ms
        if cache.deadline_ms is not None and now_ms >= cache.deadline_ms:
            cache.clean(now_ms)
            assert all(made_ms[one] >= now_ms - LIFETIME_MS for one in made_ms if cache.find(one) is not None)
        cache.add(name(number), number, now_ms)
        made_ms[name(number)] = now_ms
        assert 1 <= len(cache) <= size
        assert cache.find(name(number)) == number
        assert cache.deadline_ms is not None
