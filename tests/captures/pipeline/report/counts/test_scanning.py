"""Tables read in batches: the same comes out however they are cut."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from mqproto.captures.pipeline.report.counts.scanning import Top, batches, grouped
from tests.captures.pipeline.report.tables import history, made_up

NUMBERS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=30)


@given(NUMBERS, st.integers(1, 5), st.integers(1, 7))
def test_the_largest_are_kept_and_of_equal_ones_the_first(
    numbers: list[tuple[int, bool]], limit: int, size: int
) -> None:
    top = Top(limit)
    table = pa.table({"place": pa.array(range(len(numbers)), pa.int64())})
    for batch in table.to_batches(max_chunksize=size):
        here = [numbers[place] for place in batch.column("place").to_pylist()]
        by = np.array([number for number, _ in here], dtype=np.int64)
        top.take(batch, by, np.array([counts for _, counts in here], dtype=bool))
    places = sorted(
        (place for place, (_, counts) in enumerate(numbers) if counts),
        key=lambda place: (-numbers[place][0], place),
    )
    assert [row["place"] for row in top.rows()] == places[:limit]


TEXTS = st.sampled_from(["", "a", "b", None])


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30))
def test_groups_are_those_of_a_dictionary(rows: list[tuple[str | None, str | None]]) -> None:
    expected = defaultdict(list)
    for place, key in enumerate(rows):
        expected[key].append(place)
    columns = [pa.array([row[column] for row in rows], pa.string()) for column in (0, 1)]
    batch = pa.RecordBatch.from_arrays(columns, names=["x", "y"])
    found = [(key, places.tolist()) for key, places in grouped(batch, ("x", "y"))]
    assert found == list(expected.items())


def test_all_parts_are_read_in_their_order_and_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    tables = made_up(tmp_path / "out", {"histories": [history(number) for number in range(7)]}, part_rows=3)
    found = [
        row["sequence_number"]
        for batch in batches(tables, "histories", ["sequence_number"])
        for row in batch.to_pylist()
    ]
    assert found == list(range(7))
    assert list(batches(tables, "gaps", ["series"])) == []
