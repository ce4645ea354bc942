"""Which of any number of keys have a row: none with one of the largest numbers is missed, however many there are."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
from hypothesis import example, given, strategies as st

from mqproto.captures.pipeline.report.counts.choosing import ROOM, Leaders, each_of, keyed, largest

ROWS = st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(-1, 40)), max_size=60)
TEXTS = st.sampled_from(["", "a", "b", None])


@given(ROWS, st.integers(1, 3), st.integers(1, 9))
@example([("a", 1), ("b", 2), ("c", 3), ("a", 1)], 1, 9)
@example([(letter, number) for number, letter in enumerate("abcdefghijklmnop")], 1, 2)
def test_keys_with_the_largest_numbers_are_kept_in_bounded_room(
    rows: list[tuple[str, int]], limit: int, size: int
) -> None:
    leaders = Leaders(limit, 1)
    most: dict[str, int] = defaultdict(lambda: -1)
    for low in range(0, len(rows), size):
        some = rows[low : low + size]
        keys = sorted({key for key, _ in some})
        counts = np.array([sum(key == each for each, _ in some) for key in keys])
        found = np.array([max(number for each, number in some if each == key) for key in keys])
        leaders.take([(key,) for key in keys], counts, found)
        for key, number in some:
            most[key] = max(most[key], number)
        assert len(leaders) <= 2 * ROOM * limit
    chosen = [key for (key,) in leaders.chosen()]
    first = sorted((key for key in most if most[key] >= 0), key=lambda key: (-most[key], key))[:limit]
    assert set(first) <= set(chosen)
    assert len(chosen) <= 2 * limit
    occurred = Counter(key for key, _ in rows)
    if len(occurred) <= ROOM * limit:
        assert set(sorted(occurred, key=lambda key: (-occurred[key], key))[:limit]) <= set(chosen)


@given(st.lists(st.tuples(TEXTS, TEXTS, st.integers(-5, 5), st.booleans()), min_size=1, max_size=30))
def test_rows_are_at_the_places_of_their_keys(rows: list[tuple[str | None, str | None, int, bool]]) -> None:
    columns = [pa.array([row[column] for row in rows], pa.string()) for column in (0, 1)]
    batch = pa.RecordBatch.from_arrays(columns, names=["x", "y"])
    keys, codes = keyed(batch, ("x", "y"))
    assert [keys[code] for code in codes] == [(x or "", y or "") for x, y, *_ in rows]
    values, where = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    found = largest(codes, values, where, len(keys))
    for code, number in enumerate(found):
        counted = [max(row[2], 0) for row, at in zip(rows, codes, strict=True) if at == code and row[3]]
        assert number == max(counted, default=-1)
    places, each = each_of(batch, ("x", "y"), lambda key: {("a", "b"): 0, ("", "a"): 1}.get(key, -1))
    expected: dict[int, list[int]] = {0: [], 1: []}
    for row, place in enumerate(places.tolist()):
        expected.setdefault(place, []).append(row)
    for place, at in each:
        assert expected.pop(place) == at.tolist()
    assert not [place for place, at in expected.items() if place >= 0 and at]
