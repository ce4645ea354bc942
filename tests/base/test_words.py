"""Times in the form that people read: every time that a capture can have is read back as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.words import clock, date, when
from mqproto.captures.decode.selection import moment_named
from mqproto.captures.files.pcapng import Clock
from mqproto.captures.pipeline.report.facts import words

SECOND = 10**9
TICKS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
CLOCKS = st.builds(
    Clock,
    st.integers(0, 127).map(lambda power: 10**power) | st.integers(0, 127).map(lambda power: 2**power),
    st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -(2**62), 2**63 - 1, -(2**63)]),
)


@given(TICKS, CLOCKS)
@example(2**64 - 1, Clock(1, 2**63 - 1))
@example(0, Clock(1_000_000, -(2**62)))
def test_every_time_is_written_and_read_as_it_was_written(ticks: int, told_by: Clock) -> None:
    time_ns = told_by.time_ns(ticks)
    assert moment_named(when(time_ns, parted="T"))(0) == time_ns // 1_000 * 1_000
    later_ns = time_ns + 400 * 146_097 * 216 * SECOND
    assert date(later_ns)[-6:] == date(time_ns)[-6:]
    for said in (words.when(time_ns), words.clock(time_ns, 0), words.decode_command("a", time_ns=time_ns)):
        assert said.isprintable()


@given(st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)))
def test_times_of_four_digits_are_as_everybody_writes_them(moment: datetime) -> None:
    time_ns = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000
    assert f"{when(time_ns, parted='T')}+00:00" == moment.isoformat(timespec="microseconds")


@pytest.mark.parametrize(
    ("time_ns", "said"),
    [
        (912_692_102_202_147_328 * 1_000, "+30892-01-22 23:56:42.147328"),
        (-3_600 * SECOND, "1969-12-31 23:00:00.000000"),
        (-1, "1969-12-31 23:59:59.999999"),
        (253_402_300_800 * SECOND, "+10000-01-01 00:00:00.000000"),
        (-62_167_219_200 * SECOND - 1, "-0001-12-31 23:59:59.999999"),
        ((2**32 - 1) * SECOND, "2106-02-07 06:28:15.000000"),
    ],
)
def test_years_that_have_not_four_digits_have_a_sign(time_ns: int, said: str) -> None:
    assert when(time_ns) == said
    assert clock(time_ns, 3) == said[-15:-3]
