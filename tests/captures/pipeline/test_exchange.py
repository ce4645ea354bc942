"""Rows handed from stage to stage: each comes to its bucket once, in the order of the tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from captures.pipeline.exchange import Exchange
from tests.memory import memory_folder


def rows(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.int64())})


handed = st.lists(
    st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 1_000), max_size=4), max_size=6), max_size=5
)


@given(handed)
def test_what_tasks_put_into_a_bucket_is_taken_from_it_in_order(tasks: list[dict[int, list[int]]]) -> None:
    with memory_folder() as folder:
        exchange = Exchange(Path(folder), "facts")
        for number, batches in enumerate(tasks):
            exchange.put(number, {bucket: rows(values) for bucket, values in batches.items()})

        for bucket in range(6):
            taken = [batch["value"].to_pylist() for batch in exchange.take(bucket, range(len(tasks)))]
            assert taken == [batches[bucket] for batches in tasks if batches.get(bucket)]


def test_a_repeated_task_replaces_what_it_wrote(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, "facts")
    exchange.put(0, {1: rows([1, 2, 3])})
    exchange.put(0, {1: rows([4])})
    assert [batch["value"].to_pylist() for batch in exchange.take(1, [0])] == [[4]]
    assert [path.name for path in (tmp_path / "facts").iterdir()] == ["000000.arrow"]


def test_batches_outlive_the_mapping_that_they_were_read_by(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, "facts")
    exchange.put(0, {0: rows(list(range(10_000)))})
    batches = list(exchange.take(0, [0]))
    (tmp_path / "facts" / "000000.arrow").unlink()
    assert sum(batches[0]["value"].to_pylist()) == sum(range(10_000))


@given(st.lists(st.lists(st.integers(0, 1_000), max_size=4), max_size=5))
def test_a_task_takes_all_that_another_has_put_for_it(batches: list[list[int]]) -> None:
    with memory_folder() as folder:
        exchange = Exchange(Path(folder), "facts")
        exchange.put_all(3, rows([]).schema, map(rows, batches))
        assert [batch["value"].to_pylist() for batch in exchange.everything(3)] == batches


def test_what_is_dropped_takes_no_room_and_others_stay(tmp_path: Path) -> None:
    exchange, other = Exchange(tmp_path, "facts"), Exchange(tmp_path, "relations")
    for each in (exchange, other):
        each.put(0, {1: rows([1, 2, 3])})
    exchange.drop()
    exchange.drop()
    assert [path.name for path in tmp_path.iterdir()] == ["relations"]
    assert [batch["value"].to_pylist() for batch in other.take(1, [0])] == [[1, 2, 3]]
