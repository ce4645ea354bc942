"""Captures that are made worse: lost frames are gone, the others are unchanged, and the same seed always gives the same
result.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.spoil import cut, delayed, lost, repeated, shortened, shuffled, swapped
from mqproto.captures.spoil.frames import QUEUED_NS

shares = st.sampled_from([0, 1, 30, 100])
seeds = st.integers(0, 5)


def some_frames(count: int = 40) -> list[Frame]:
    return [Frame(number * 1_000, bytes([number]) * (20 + number)) for number in range(count)]


def bare(frames: list[Frame]) -> list[bytes]:
    return [frame.data for frame in frames]


@given(shares, seeds)
def test_of_what_is_lost_nothing_is_left_and_the_rest_is_as_it_was(percent: int, seed: int) -> None:
    frames = some_frames()
    left = list(lost(frames, percent, seed))
    assert left == [frame for frame in frames if frame in left]
    if percent in (0, 100):
        assert len(left) == 40 - 40 * percent // 100
    assert left == list(lost(frames, percent, seed))


@given(shares, seeds)
def test_what_is_delayed_comes_all_the_same_and_time_never_goes_back(percent: int, seed: int) -> None:
    frames = some_frames()
    late = list(delayed(frames, percent, seed))
    assert Counter(bare(late)) == Counter(bare(frames))
    assert [frame.time_ns for frame in late] == sorted(frame.time_ns for frame in late)
    if percent == 0:
        assert late == frames


@given(shares, seeds)
def test_what_is_repeated_comes_a_second_time_behind_the_first(percent: int, seed: int) -> None:
    frames = some_frames()
    more = list(repeated(frames, percent, seed))
    assert [frame for frame in more if not frame.comment] == frames
    assert [frame.time_ns for frame in more] == sorted(frame.time_ns for frame in more)
    if percent == 100:
        assert Counter(bare(more)) == Counter(bare(frames) * 2)


@given(shares, seeds)
def test_what_is_swapped_stands_one_place_away_and_time_never_goes_back(percent: int, seed: int) -> None:
    frames = some_frames(41)
    worse = list(swapped(frames, percent, seed))
    assert Counter(bare(worse)) == Counter(bare(frames))
    assert [frame.time_ns for frame in worse] == [frame.time_ns for frame in frames]
    assert all(abs(frame.data[0] - place) <= 1 for place, frame in enumerate(worse))
    if percent == 100:
        assert [frame.data[0] for frame in worse[:4]] == [1, 0, 3, 2]
        assert worse[-1] == frames[-1]


@given(st.integers(0, 30), seeds, st.sampled_from([1, 30_000_000, QUEUED_NS + 1]))
def test_what_is_shuffled_is_overtaken_by_so_many_at_most(places: int, seed: int, apart_ns: int) -> None:
    frames = [frame._replace(time_ns=place * apart_ns) for place, frame in enumerate(some_frames())]
    worse = list(shuffled(frames, places, seed))
    assert Counter(bare(worse)) == Counter(bare(frames))
    assert [frame.time_ns for frame in worse] == [frame.time_ns for frame in frames]
    assert all(place - frame.data[0] <= places for place, frame in enumerate(worse))
    assert all(abs(frame.time_ns - frames[frame.data[0]].time_ns) <= QUEUED_NS for frame in worse)


@given(st.integers(0, 45), st.integers(0, 45))
def test_a_sniffer_that_began_late_or_stopped_early_saw_what_is_between(start: int, end: int) -> None:
    frames = some_frames()
    assert list(cut(frames, start, end)) == frames[start : max(start, len(frames) - end)]


def test_a_snapshot_length_cuts_frames_and_says_how_much() -> None:
    short = list(shortened(some_frames(), 30))
    assert [len(frame.data) + frame.missing_bytes for frame in short] == [
        len(data) for data in bare(some_frames())
    ]
    assert max(len(frame.data) for frame in short) == 30
