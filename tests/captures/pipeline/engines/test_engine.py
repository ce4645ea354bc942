"""Rows that are passed from stage to stage: each reaches its bucket once and in order, with any engine."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyspark import TaskContext
from pyspark.sql import SparkSession

from mqproto.captures.pipeline.engines.engine import Engine, Inbox, Outbox, pack, unpack
from mqproto.captures.pipeline.engines.failures import JobError
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.engines.sparkengine import SparkEngine
from mqproto.captures.pipeline.tables.schemas.columns import CODED

FAILED = r"^the job failed: a task with 1 batches: ValueError: no such packet$"
EXCHANGES = ("facts", "endings", "open facts")
Put = tuple[str, int, list[int]]
"""What a task puts: an exchange, a bucket, and the values of some rows."""


@dataclass(frozen=True)
class Putting:
    """A task that puts rows into exchanges."""

    puts: Sequence[Put]

    def __str__(self) -> str:
        return f"a task with {len(self.puts)} batches"


def put(task: Putting, inbox: Inbox, outbox: Outbox) -> int:
    """A stage that puts the rows of its tasks into exchanges."""
    for exchange, bucket, values in task.puts:
        outbox.put(exchange, bucket, pa.record_batch({"value": pa.array(values, pa.int64())}))
    return sum(len(values) for _, _, values in task.puts)


def take(task: Sequence[str], inbox: Inbox, outbox: Outbox) -> dict[str, list[list[int]]]:
    """A stage whose tasks return the rows that they have taken from some exchanges."""
    return {name: [batch["value"].to_pylist() for batch in inbox.take(name)] for name in task}


def fail(task: Putting, inbox: Inbox, outbox: Outbox) -> None:
    """A stage in which one task fails."""
    if len(task.puts) == 1:
        raise ValueError("no such packet")


class Who(NamedTuple):
    """Facts about the process in which a task ran.

    They are the process's number, the number of objects that its garbage collector skips, the memory pool of its
    batches, and the task's number in Spark.
    """

    task: int
    process: int
    spared: int
    pool: str
    part: int | None


def who(task: int, inbox: Inbox, outbox: Outbox) -> Who:
    """A stage in which each task returns a `Who`."""
    context = TaskContext.get()
    part = None if context is None else context.partitionId()
    return Who(task, os.getpid(), gc.get_freeze_count(), pa.default_memory_pool().backend_name, part)


def taken(
    engine: Engine, tasks: Mapping[int, Sequence[Put]], wanted: Sequence[str], buckets: Iterable[int]
) -> dict[int, dict[str, list[list[int]]]]:
    """Return the rows that reach each bucket."""
    engine.carry_out("putting", put, {bucket: Putting(puts) for bucket, puts in tasks.items()})
    reads = [name for name in EXCHANGES if name in wanted]
    asked = dict.fromkeys(buckets, tuple(reads))
    return dict(zip(asked, engine.carry_out("taking", take, asked, reads), strict=True))


def expected(
    tasks: Mapping[int, Sequence[Put]], wanted: Sequence[str], buckets: Iterable[int]
) -> dict[int, dict[str, list[list[int]]]]:
    return {
        bucket: {
            name: [
                values
                for _, puts in sorted(tasks.items())
                for exchange, target, values in puts
                if (exchange, target) == (name, bucket) and values
            ]
            for name in EXCHANGES
            if name in wanted
        }
        for bucket in buckets
    }


puts = st.lists(
    st.tuples(st.sampled_from(EXCHANGES), st.integers(0, 5), st.lists(st.integers(0, 1_000), max_size=3)),
    max_size=8,
)
several = st.dictionaries(st.integers(0, 40), puts, max_size=6)
exchanges = st.sets(st.sampled_from(EXCHANGES), min_size=1).map(sorted)
SOME: Mapping[int, Sequence[Put]] = {
    7: [("facts", 2, [1]), ("endings", 0, [2, 3]), ("facts", 2, [4]), ("open facts", 2, [5])],
    0: [("facts", 2, [6]), ("facts", 5, [7]), ("facts", 1, [])],
    3: [],
}


@given(several, exchanges, st.sets(st.integers(0, 5)))
def test_what_tasks_put_for_a_bucket_comes_to_it_in_their_order(
    tasks: dict[int, list[Put]], wanted: list[str], buckets: set[int]
) -> None:
    with LocalEngine() as engine:
        assert taken(engine, tasks, wanted, buckets) == expected(tasks, wanted, buckets)
        for name in EXCHANGES:
            assert engine.buckets(name) == {
                bucket for each in tasks.values() for some, bucket, rows in each if some == name and rows
            }


@given(several, several)
def test_a_task_that_is_done_again_puts_its_rows_in_place_of_those_before(
    tasks: dict[int, list[Put]], repeated: dict[int, list[Put]]
) -> None:
    repeated = {bucket: puts for bucket, puts in repeated.items() if bucket in tasks}
    with LocalEngine() as engine:
        engine.carry_out("first", put, {bucket: Putting(puts) for bucket, puts in tasks.items()})
        again = {bucket: Putting(puts) for bucket, puts in repeated.items()}
        engine.carry_out("second", put, again, again="first")
        asked = dict.fromkeys(range(6), EXCHANGES)
        found = dict(zip(asked, engine.carry_out("taking", take, asked, EXCHANGES), strict=True))
        assert found == expected(tasks | repeated, EXCHANGES, range(6))


def test_a_pool_does_what_one_process_does() -> None:
    with LocalEngine(processes=2, patience_s=0) as engine:
        assert taken(engine, SOME, EXCHANGES, range(6)) == expected(SOME, EXCHANGES, range(6))
        done = engine.carry_out("looking", who, {bucket: bucket for bucket in (3, 1, 2)})
        assert [each.task for each in done] == [3, 1, 2]
        assert os.getpid() not in {each.process for each in done}
        with pytest.raises(JobError, match=FAILED):
            engine.carry_out("failing", fail, {1: Putting([("facts", 0, [1])]), 2: Putting([])})


def test_few_rows_take_no_more_with_them_than_the_texts_that_they_have() -> None:
    texts = pa.array([f"queue {number}" for number in range(1_000)] * 2, CODED)
    few = pa.record_batch({"queue": texts, "number": range(2_000)}).slice(1_500, 3)
    packed = pack(few)
    assert packed.size < 1_000
    assert unpack(packed).to_pylist() == few.to_pylist()


def test_a_stage_that_fails_says_of_which_task() -> None:
    with (
        LocalEngine() as engine,
        pytest.raises(JobError, match=FAILED),
    ):
        engine.carry_out("failing", fail, {0: Putting([]), 1: Putting([("facts", 0, [1])])})


def test_what_nobody_takes_any_more_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def there() -> list[str]:
        return sorted(path.name for path in tmp_path.rglob("*") if path.is_file())

    with LocalEngine() as engine:
        engine.carry_out("putting", put, {bucket: Putting(puts) for bucket, puts in SOME.items()})
        assert there() == ["0", "7"]
        engine.drop("facts", "endings")
        assert engine.buckets("facts") == set()
        assert engine.buckets("open facts") == {2}
        engine.drop("open facts")
        assert there() == []
        engine.carry_out("putting", put, {9: Putting(SOME[7])})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_spark_moves_rows_as_one_process_does(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    assert taken(engine, SOME, EXCHANGES, [5, 2, 4, 0]) == expected(SOME, EXCHANGES, [5, 2, 4, 0])
    assert engine.buckets("facts") == {2, 5}

    again = {7: Putting([("endings", 2, [8])])}
    engine.carry_out("again", put, again, again="putting")
    (found,) = engine.carry_out("taking", take, {2: ("endings", "open facts")}, ("endings", "open facts"))
    assert found == {"endings": [[8]], "open facts": []}

    done = engine.carry_out("looking", who, {bucket: bucket for bucket in (3, 1, 2)})
    assert [each.task for each in done] == [3, 1, 2]
    assert {each.part for each in done} == {0, 1, 2}
    assert all(each.spared > 10_000 and each.pool == "system" for each in done)
    with pytest.raises(Exception, match="TaskError: a task with 1 batches: ValueError: no such packet"):
        engine.carry_out("failing", fail, {1: Putting([("facts", 0, [1])]), 2: Putting([])})
    engine.clear()
