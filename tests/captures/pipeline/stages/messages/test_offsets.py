"""Lines between the bounds of a clock: the true line is among them, however the clock was set and however fast it
runs.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, strategies as st

from mqproto.captures.pipeline.stages.messages.offsets import HULL_LIMIT, Ahead, Bounds, hull, lines_between

SECOND = 10**9
START = 1_700_000_000 * SECOND


def read(time_ns: int, offset_ns: int, drift_ppm: float) -> int:
    """Return what a clock shows at a given time if it is ahead by `offset_ns` at START, and gains `drift_ppm`."""
    return time_ns + offset_ns + round((time_ns - START) * drift_ppm / 1e6)


def bounds_of(seed: int, offset_ns: int, drift_ppm: float, span_ns: int, count: int) -> Bounds:
    """Return the bounds found from packets in both directions between two points; the first point's clock is true."""
    chance, found = random.Random(seed), Bounds()
    for _ in range(count):
        time_ns = START + chance.randrange(span_ns)
        way_ns = round(chance.expovariate(1 / 500_000))
        found.below.append((time_ns, read(time_ns + way_ns, offset_ns, drift_ppm) - time_ns))
        back_ns = time_ns + way_ns
        found.above.append((back_ns, read(time_ns, offset_ns, drift_ppm) - back_ns))
    found.add(Bounds())
    return found


@given(
    st.integers(0, 10**6),
    st.integers(-3_600 * SECOND, 3_600 * SECOND),
    st.floats(-200, 200),
    st.sampled_from([SECOND, 60 * SECOND, 86_400 * SECOND]),
    st.integers(1, 200),
)
@example(535, 0, 0.0005, 86_400 * SECOND, 28)  # A drift that is none in whole billionths.
def test_the_true_clock_is_within_the_uncertainty_at_all_times(
    seed: int, offset_ns: int, drift_ppm: float, span_ns: int, count: int
) -> None:
    found = lines_between(bounds_of(seed, offset_ns, drift_ppm, span_ns, count), START, START + span_ns)
    assert found is not None
    other, one = found.ahead(count)
    for time_ns in (START, START + span_ns // 3, START + span_ns):
        shown_ns = read(time_ns, offset_ns, drift_ppm)
        assert other.uncertainty_ns is not None
        assert abs(other.of(shown_ns) - (shown_ns - time_ns)) <= other.uncertainty_ns
        assert abs(one.of(time_ns) - (time_ns - shown_ns)) <= other.uncertainty_ns


def test_much_is_known_of_a_clock_that_was_seen_often() -> None:
    found = lines_between(bounds_of(1, SECOND, 80, 600 * SECOND, 2_000), START, START + 600 * SECOND)
    assert found is not None
    other, _ = found.ahead(2_000)
    assert other.uncertainty_ns is not None
    assert other.uncertainty_ns < 200_000
    assert other.drift_ppb == pytest.approx(80_000, abs=500)


def test_a_clock_that_may_go_alike_has_no_drift() -> None:
    found = lines_between(bounds_of(2, 5_000, 0, 10 * SECOND, 50), START, START + 10 * SECOND)
    assert found is not None
    assert found.ahead(50)[0].drift_ppb == 0


def test_bounds_that_no_clock_keeps_have_no_line() -> None:
    set_back = Bounds([(START, 0), (START + 10 * SECOND, -SECOND)], [(START + SECOND, 0)])
    assert lines_between(set_back, START, START + 10 * SECOND) is None
    assert lines_between(Bounds(below=[(START, 0)]), START, START + SECOND) is None


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-50, 50)), min_size=1),
    st.integers(-9, 9),
    st.booleans(),
)
def test_a_line_is_below_all_points_if_it_is_below_their_hull(
    points: list[tuple[int, int]], rise: int, lower: bool
) -> None:
    chosen = hull(points, lower=lower)
    nearest = min if lower else max
    assert set(chosen) <= set(points)
    assert nearest(v - rise * t for t, v in chosen) == nearest(v - rise * t for t, v in points)
    assert len(hull([(at, at * at) for at in range(9 * HULL_LIMIT)], lower=True)) == HULL_LIMIT


@given(*[st.integers(-(10**10), 10**10)] * 2, *[st.integers(-300_000, 300_000)] * 2)
def test_a_clock_is_compared_by_way_of_another(
    one_ns: int, other_ns: int, one_ppb: int, other_ppb: int
) -> None:
    at_ns = START + 5 * SECOND
    step, reference = Ahead(one_ns, 5, 9, at_ns, one_ppb), Ahead(other_ns, 7, 9, START, other_ppb)
    found = step.behind(reference)
    assert found.uncertainty_ns == 12
    for time_ns in (START, START + 90 * SECOND):
        between_ns = time_ns - step.of(time_ns)
        expected_ns = step.of(time_ns) + reference.of(between_ns)
        assert abs(found.of(time_ns) - expected_ns) <= 60
    assert Ahead(1, None, 9).behind(reference).uncertainty_ns is None
