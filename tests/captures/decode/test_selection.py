from __future__ import annotations

from typing import Any

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.decode import Kind, Selection
from mqproto.captures.decode.selection import kinds_named, moment_named, sequence_named
from tests.captures.decode.scene import BEGAN_NS, MILLISECOND
from tests.captures.decode.story import KNOWN, story


def chosen(**wanted: Any) -> list[int]:
    selection = Selection(**wanted)
    return [sight.seen.number for sight in story().sights(KNOWN)[0] if selection.takes(sight, KNOWN)]


@pytest.mark.parametrize(
    ("wanted", "packets"),
    [
        ({"kinds": frozenset({Kind.ORDER_ACK, Kind.FINAL_ACK})}, [19, 20, 21, 22]),
        ({"node": "C", "kinds": frozenset({Kind.ORDER_ACK})}, [19]),
        ({"node": "10.0.0.3", "kinds": frozenset({Kind.TRANSACTIONAL})}, [10, 17, 18]),
        ({"queue": "C\\ORD"}, [9, 10, 11, 17, 18]),
        ({"queue": "2e2e2e63-"}, [9, 10, 11, 17, 18]),
        ({"sequence": "1"}, [9, 10, 11, 17, 18, 19, 20, 21, 22]),
        ({"sequence": "1700000000:1", "connection": 2}, [17, 18, 19, 21]),
        ({"sequence": "2"}, []),
        ({"connection": 1}, [5, 6, 7, 8, 10]),
        ({"after_ns": BEGAN_NS + 11 * MILLISECOND, "before_ns": BEGAN_NS + 12 * MILLISECOND}, [11, 12]),
    ],
)
def test_a_selection_takes_what_fits_all_that_it_asks_for(wanted: dict[str, Any], packets: list[int]) -> None:
    assert chosen(**wanted) == packets


def test_one_that_asks_for_nothing_takes_everything() -> None:
    assert Selection().takes_all
    assert not Selection(node="a").takes_all
    assert len(chosen()) == len(story().packets)


def test_kinds_go_by_their_beginnings_and_by_groups() -> None:
    assert kinds_named(["session-ack", "est", "ORDERACK"]) == {
        Kind.SESSION_ACK,
        Kind.ESTABLISH_CONNECTION,
        Kind.ORDER_ACK,
    }
    everything = kinds_named(["UserMessage"]) | kinds_named(["internal"])
    assert set(Kind) - everything == {Kind.PING, Kind.MALFORMED, Kind.ENCRYPTED, Kind.CUT}
    for word in ("frobnicate", "", "-"):
        with pytest.raises(UsageError, match="SessionAck"):
            kinds_named([word])


@pytest.mark.parametrize(
    ("text", "after_ns"),
    [
        ("1.5", 1_500 * MILLISECOND),
        ("+10000-01-01T00:00:00", 253_402_300_800_000 * MILLISECOND - BEGAN_NS),
        ("-0400-03-01T00:00:00+00:00", -74_784_816_000_000 * MILLISECOND - BEGAN_NS),
        ("-1", -1_000 * MILLISECOND),
        ("22:13:20", 0),
        ("22:13", -20_000 * MILLISECOND),
        ("22:13:21.25", 1_250 * MILLISECOND),
        ("2023-11-14T22:13:21", 1_000 * MILLISECOND),
        ("2023-11-14 22:13:20.500", 500 * MILLISECOND),
        ("2023-11-14T23:13:20+01:00", 0),
    ],
)
def test_times_are_relative_or_of_the_day_or_absolute(text: str, after_ns: int) -> None:
    assert moment_named(text)(BEGAN_NS) == BEGAN_NS + after_ns


@pytest.mark.parametrize("text", ["soon", "", "inf", "nan", "24:00:00", "23:60", "2023-99-99"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="write seconds"):
        moment_named(text)


def test_sequences_go_by_their_ordinal_or_in_full() -> None:
    assert [sequence_named(text) for text in ("7", "17:1")] == ["7", "17:1"]
    for text in ("", "x", "1:2:3"):
        with pytest.raises(UsageError, match="ORDINAL"):
            sequence_named(text)
