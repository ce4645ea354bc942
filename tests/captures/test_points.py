"""Capture points: what each of them saw and lost, counted while a capture is read."""

from __future__ import annotations

from itertools import permutations

import pytest

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.points import OTHERS, PointCounter, PointDirection, Points, point_name


def side(point: str = "p", *, client: bool = True, **counts: int | bool) -> PointDirection:
    """Return one direction of a connection; the point has seen all of it."""
    given = {"data_bytes": 100, "missing_bytes": 0, "gaps": 0, "unread_bytes": 0, "from_start": True}
    return PointDirection(point, client, **{**given, "is_open": False, **counts})  # type: ignore[arg-type]


def nothing(point: str = "p", *, client: bool = False) -> PointDirection:
    """Return a direction of which a point saw nothing."""
    return side(point, client=client, data_bytes=0, from_start=False, is_open=True)


def test_what_a_connection_lacks_is_counted_once_for_its_point() -> None:
    points = Points()
    points.connection(
        [side(missing_bytes=7, gaps=2, unread_bytes=3), side(client=False, missing_bytes=1, gaps=1)]
    )
    points.connection([side(), side(client=False)])
    point = points.found["p"]
    assert (point.connections, point.lossy, point.missing_bytes, point.gaps) == (2, 1, 8, 3)
    assert (point.data_bytes, point.unread_bytes, point.headless, point.one_sided) == (400, 3, 0, 0)


def test_one_direction_alone_is_one_side_unless_the_other_was_seen_to_begin_and_say_nothing() -> None:
    points = Points()
    points.connection([side(), nothing()])
    assert (points.found["p"].one_sided, points.found["p"].halves) == (1, 0)
    points.connection([side(), side(client=False, data_bytes=0)])
    assert points.found["p"].one_sided == 1


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5])
def test_halves_of_a_tap_are_known_as_such_in_any_order(order: tuple[int, ...]) -> None:
    sides = [side("in"), nothing("in"), nothing("out", client=True), side("out", client=False)]
    points = Points()
    points.connection([sides[place] for place in order])
    assert {name: (each.one_sided, each.halves) for name, each in points.found.items()} == {
        "in": (1, 1),
        "out": (1, 1),
    }


def test_a_connection_without_its_beginning_is_late_only_where_its_bytes_are() -> None:
    points = Points()
    points.connection([side(from_start=False), side(client=False)])
    points.connection([side(), nothing()])
    assert points.found["p"].headless == 1


def test_frames_are_counted_where_they_were_caught_and_the_largest_that_was_cut_tells_the_snaplen() -> None:
    counter = PointCounter()
    ether, other = Interface(0, name="eth0"), Interface(1)
    for size, missing in ((60, 0), (96, 20), (96, 400), (90, 1)):
        counter.frame(Frame(1, b"x" * size, missing_bytes=missing, interface=ether))
    counter.frame(Frame(0, b"", interface=other))
    first, second = counter.points.found.values()
    assert (first.name, first.frames, first.cut_frames, first.snaplen) == ("interface 0 (eth0)", 4, 3, 96)
    assert (second.name, second.frames, second.untimed_frames) == (point_name(other), 1, 1)


@pytest.mark.parametrize("first_ns", [0, -100])
def test_times_that_go_back_are_those_of_one_interface(first_ns: int) -> None:
    counter = PointCounter()
    for number, time_ns in ((0, 50), (1, 20), (0, 0), (0, 30), (0, 45), (1, 21), (0, 60), (0, 55)):
        counter.frame(Frame(time_ns + first_ns * (time_ns > 0), b"", interface=Interface(number)))
    assert [point.back_ns for point in counter.points.found.values()] == [20, 0]


def test_interfaces_that_somebody_made_up_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.captures.points.POINTS_LIMIT", 3)
    counter = PointCounter()
    for number in range(50):
        counter.frame(Frame(1, b"", interface=Interface(number)))
    assert len(counter.points.found) == 4
    assert counter.points.found[OTHERS].frames == 47
