"""Texts for people: times and sizes, and strangers' texts made harmless."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.decode.selection import moment_named
from mqproto.captures.decode.views.words import duration, share
from mqproto.captures.pipeline.report.facts.facts import Sequences
from mqproto.captures.pipeline.report.facts.words import (
    about,
    decode_command,
    escaped,
    gaps_text,
    harmless,
    rate,
    sentence,
    took,
    when,
)


@pytest.mark.parametrize(
    ("milliseconds", "uncertainty_ms", "text"),
    [
        (5, 0, "after 5 ms"),
        (5, 2, "after 5 ms"),
        (1, 2, "after at most 3 ms"),
        (-1, 2, "after at most 1 ms"),
        (0, 0, "after 0 ns"),
        (5, None, "after at least 5 ms"),
    ],
)
def test_a_time_below_what_the_clocks_tell_is_said_to_be_so(
    milliseconds: int, uncertainty_ms: int | None, text: str
) -> None:
    uncertainty_ns = None if uncertainty_ms is None else uncertainty_ms * 10**6
    assert sentence(took("after", milliseconds * 10**6, uncertainty_ns)) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "–"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (20_000_000, "20 ms"),
        (638_123_456, "638 ms"),
        (59_000_000_000, "59 s"),
        (90 * 10**9, "1.5 min"),
        (3 * 86_400 * 10**9, "3 days"),
        (-2_000_000, "−2 ms"),
    ],
)
def test_a_duration_is_in_the_largest_unit_that_fits(nanoseconds: int | None, text: str) -> None:
    assert duration(nanoseconds) == text


def test_what_is_read_off_a_spread_has_two_digits() -> None:
    assert [about(ns) for ns in (0, 19_922_943, 638_123_456)] == ["0 ns", "20 ms", "640 ms"]


def test_shares_say_nothing_and_all_only_where_it_is_so() -> None:
    assert [share(*each) for each in ((0, 9), (1, 900), (899, 900), (9, 9), (1, 4), (0, 0))] == [
        "0 %",
        "< 1 %",
        "> 99 %",
        "100 %",
        "25 %",
        "–",
    ]


def test_a_rate_needs_two_and_time_between_them() -> None:
    assert [rate(*each) for each in ((1, 5), (5, 0), (100, 10**9), (1, 10**9), (2, 7_200 * 10**9))] == [
        "–",
        "–",
        "100/s",
        "–",
        "1/h",
    ]


def test_a_moment_is_utc_to_the_millisecond() -> None:
    assert when(1_700_000_000_123_456_789) == "2023-11-14 22:13:20.123"


@given(st.text())
def test_no_text_of_a_stranger_is_more_than_text(text: str) -> None:
    found = escaped(text)
    assert not re.search(r"[<>\"'\n\r\0]", found)
    assert harmless(text).isprintable()
    assert len(harmless(text)) <= 300


@given(st.integers(0, 4 * 10**18), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_command_names_its_file_whatever_that_is_called_and_a_span_with_the_packet_in_it(
    time_ns: int, file: str
) -> None:
    words = shlex.split(decode_command(file, time_ns=time_ns))
    assert words[:3] == ["mqproto", "decode", file]
    after, before = (moment_named(words[place])(0) for place in (4, 6))
    assert after <= time_ns < before
    assert before - after == 10**6


def test_a_command_follows_a_message_if_the_packet_has_one() -> None:
    assert shlex.split(decode_command("a b.pcap", message="G\\1"))[2:] == ["a b.pcap", "--follow", "G\\1"]


def test_a_gap_that_frames_may_have_filled_that_nobody_saw_is_not_said_to_be_open() -> None:
    assert gaps_text(Sequences(1, 3, 0)) == "3 gaps, all filled"
    assert gaps_text(Sequences(1, 3, 1)) == "3 gaps, 1 not seen to be filled"
