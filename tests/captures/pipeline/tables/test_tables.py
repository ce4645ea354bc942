"""Tables in a folder: a run counts either completely or not at all, and readers see the result of a single run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mqproto.captures.pipeline.tables import runs
from mqproto.captures.pipeline.tables.parts import Part, Store
from mqproto.captures.pipeline.tables.queries import answer
from mqproto.captures.pipeline.tables.runs import VERSION
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from mqproto.captures.pipeline.tables.tables import LOCK, WORK, Run, Tables, TablesError

NUMBERS: Final = pa.schema([("number", pa.int64())])
SCHEMAS: Final = {"packets": NUMBERS, "sessions": NUMBERS}


def numbers(*values: int) -> pa.Table:
    return pa.table([pa.array(values, pa.int64())], schema=NUMBERS)


def add(
    folder: Path | str, rows: Mapping[str, tuple[int, ...]], *, anew: bool = False, keep_s: float = 0
) -> None:
    """Make a run that adds rows to tables, or replaces all of their rows if `anew`."""
    tables = Tables(folder)
    with tables.run() as run:
        dropped = [part.name for name in rows for part in tables.parts(name)] if anew else []
        written = [write(run, name, *values) for name, values in rows.items()]
        run.commit(added=written, schemas=SCHEMAS, dropped=dropped, keep_s=keep_s)


def write(run: Run, table: str, *values: int) -> Part:
    return run.store.write_part(f"{table}/{run.name}.parquet", numbers(*values))


def found(folder: Path | str, table: str = "packets") -> list[int]:
    column: list[int] = Tables(folder).read(table)["number"].to_pylist()
    return column


def on_disk(folder: Path) -> set[str]:
    """Return the table files in a folder, without the tables' logs."""
    return {path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet")}


def test_what_runs_add_is_read_together(tmp_path: Path) -> None:
    out = tmp_path / "out"
    add(out, {"packets": (1, 2)})
    add(out, {"packets": (3,), "sessions": (7,)})

    tables = Tables(out)

    assert tables.names == ["packets", "sessions"]
    assert (found(out), found(out, "sessions")) == ([1, 2, 3], [7])
    assert tables.rows("packets") == 3
    assert sorted(tables.dataset("packets").to_table()["number"].to_pylist()) == [1, 2, 3]
    assert DeltaTable(out / "packets").count() == 3
    assert [(row.run, dict(row.rows)) for row in tables.history.all()] == [
        (1, {"packets": 2, "sessions": 0}),
        (2, {"packets": 3, "sessions": 1}),
    ]


def test_rows_are_found_by_texts_and_flags_of_which_the_log_has_no_least_and_most(tmp_path: Path) -> None:
    schema = pa.schema([("kind", pa.string()), ("valid", pa.bool_())])
    rows = pa.table({"kind": ["Ping", "Express", None], "valid": [True, False, None]}, schema=schema)
    tables = Tables(tmp_path)
    with tables.run() as run:
        part = run.store.write_part(f"packets/{run.name}.parquet", rows)
        run.commit(added=[part], schemas={"packets": schema})
    kind, valid = pc.field("kind"), pc.field("valid")
    for asked, count in ((kind == "Ping", 1), (kind > "A", 2), (valid, 1), (~valid, 1), (kind.is_null(), 1)):
        assert tables.dataset("packets").count_rows(filter=asked) == count
    assert answer(tables, "SELECT valid FROM packets WHERE kind = 'Express'").rows == [(False,)]
    assert answer(tables, "SELECT run FROM runs WHERE program <> ''").rows == [(1,)]


def test_parts_may_be_replaced_and_those_who_read_an_earlier_run_go_on(tmp_path: Path) -> None:
    add(tmp_path, {"packets": (1,), "sessions": (7,)}, keep_s=1_000)
    earlier = Tables(tmp_path)
    add(tmp_path, {"packets": (2,)}, anew=True, keep_s=1_000)

    assert (found(tmp_path), found(tmp_path, "sessions")) == ([2], [7])
    assert earlier.read("packets")["number"].to_pylist() == [1]
    assert Tables(tmp_path, run=1).dataset("packets").to_table()["number"].to_pylist() == [1]
    with pytest.raises(TablesError, match="has no run 3: its table `runs` has those that there were"):
        Tables(tmp_path, run=3)

    before = on_disk(tmp_path)
    assert Tables(tmp_path).vacuum(keep_s=1_000) == 0
    assert Tables(tmp_path).vacuum() == 2  # A part, and what the first run kept.
    assert len(before - on_disk(tmp_path)) == 1
    assert (found(tmp_path), found(tmp_path, "sessions")) == ([2], [7])


def test_a_run_that_is_not_committed_changes_nothing_and_the_next_one_clears_up(tmp_path: Path) -> None:
    add(tmp_path, {"packets": (1,)})
    with Tables(tmp_path).run() as run:
        write(run, "packets", 2)

    assert found(tmp_path) == [1]
    assert not (tmp_path / WORK).exists()
    add(tmp_path, {"sessions": (7,)})
    assert on_disk(tmp_path) == {part.name for part in Tables(tmp_path).every_part()} | runs_of(tmp_path)


def runs_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in (folder / "runs").glob("*.parquet")}


def test_a_repeated_task_writes_the_same_part_once(tmp_path: Path) -> None:
    with Tables(tmp_path).run() as run:
        first, again = write(run, "packets", 1), write(run, "packets", 1)
        assert first == again
        assert [path.name for path in (tmp_path / "packets").iterdir()] == [f"{run.name}.parquet"]
        run.commit(added=[again], schemas=SCHEMAS)

    assert found(tmp_path) == [1]


class Died(BaseException):
    """Raised at the point where the process is to die."""


def dies_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], bool]:
    """Make the process die at the `step`th change to a file or a table; return a function that tells whether it did."""
    steps = 0

    def stepping(real: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > step:
                raise Died
            return real(*args, **options)

        return stepped

    monkeypatch.setattr(os, "replace", stepping(os.replace))
    monkeypatch.setattr(os, "fsync", stepping(os.fsync))
    monkeypatch.setattr(Path, "unlink", stepping(Path.unlink))
    for name in ("create", "create_write_transaction", "restore"):
        monkeypatch.setattr(DeltaTable, name, stepping(getattr(DeltaTable, name)))
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)  # Nobody clears up.
    return lambda: steps > step


@pytest.mark.long
@pytest.mark.parametrize("is_first", [True, False])
def test_a_process_that_dies_anywhere_leaves_all_of_a_run_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """Wherever the process dies, the next run works, and leaves only rows and files of complete runs."""
    before = {} if is_first else {"packets": [1], "sessions": [6]}
    step, died = 0, True
    outcomes = set()
    while died:
        folder = tmp_path / str(step)
        if before:
            add(folder, {"packets": (1,), "sessions": (6,)})
        with monkeypatch.context() as patched:
            reached = dies_at(patched, step)
            with suppress(Died):
                add(folder, {"packets": (2,), "sessions": (3,)}, anew=True)
            died = reached()
        there = {name: found(folder, name) for name in Tables(folder).names}
        outcomes.add(str(there))
        assert there in ({}, before, {"packets": [2], "sessions": [3]})

        add(folder, {"packets": (4,)})
        then = {"packets": [*there.get("packets", []), 4], "sessions": there.get("sessions", [])}
        assert {name: found(folder, name) for name in SCHEMAS} == then
        # The last version of each table is what counts, for those who know nothing of runs.
        assert {name: numbers_of(folder, name) for name in SCHEMAS} == then
        assert on_disk(folder) - runs_of(folder) == {part.name for part in Tables(folder).every_part()}
        step += 1
    assert len(outcomes) == 2
    assert step > 12


def numbers_of(folder: Path, table: str) -> list[int]:
    """Read a table with a program that knows Delta Lake, but nothing about runs."""
    return sorted(DeltaTable(folder / table).to_pyarrow_table()["number"].to_pylist())


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        Tables(tmp_path).run(),
        pytest.raises(TablesError, match="being written by another run: wait for its end"),
        Tables(tmp_path).run(),
    ):
        pass


@pytest.mark.parametrize("steps", range(1, 6))
def test_of_two_runs_that_do_not_see_each_other_one_counts_and_the_other_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """This is like two runs on two machines, between which there is no lock.

    The second run begins between any two commits of the first.
    """
    monkeypatch.setattr("mqproto.captures.pipeline.tables.tables._take", lambda *_: None)
    add(tmp_path, {"packets": (1,), "sessions": (6,)})
    real = DeltaTable.create_write_transaction
    left = [steps]

    def committed(*args: Any, **options: Any) -> None:
        left[0] -= 1
        if not left[0]:
            other = Tables(tmp_path)
            with other.run() as run:
                other_parts = [write(run, "packets", 4), write(run, "sessions", 5)]
                run.commit(added=other_parts, schemas=SCHEMAS)
        real(*args, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", committed)
    monkeypatch.setattr(Tables, "_remove_leftovers", lambda _: None)
    told = ""
    try:
        add(tmp_path, {"packets": (2,), "sessions": (3,)}, keep_s=1_000)
    except TablesError as error:
        told = str(error)
    monkeypatch.undo()

    first = left[0] > 0
    assert first or told.startswith(f"{tmp_path} has been written by another run meanwhile")
    assert "\n" not in told
    counts = ([1, 2], [6, 3]) if first else ([1, 4], [6, 5])
    assert (found(tmp_path), found(tmp_path, "sessions")) == counts
    add(tmp_path, {"packets": (7,)})
    assert (numbers_of(tmp_path, "packets"), numbers_of(tmp_path, "sessions")) == (
        sorted([*counts[0], 7]),
        sorted(counts[1]),
    )


def test_a_first_run_that_failed_can_be_repeated(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Tables(tmp_path / "out").run():
        raise ZeroDivisionError
    assert (tmp_path / "out" / LOCK).exists()

    add(tmp_path / "out", {"packets": (1,)})

    assert found(tmp_path / "out") == [1]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("my only copy")
    with pytest.raises(TablesError, match="holds something else than tables: choose another folder"):
        Tables(tmp_path)
    with pytest.raises(TablesError, match="holds something else"):
        Tables(tmp_path / "thesis.txt")


def test_tables_of_a_later_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("mqproto.captures.pipeline.tables.tables.VERSION", VERSION + 1)
        add(tmp_path, {"packets": (1,)})
    with pytest.raises(
        TablesError, match=f"has tables of layout {VERSION + 1}, this program makes {VERSION}"
    ):
        Tables(tmp_path)


def test_a_log_that_is_damaged_is_said_in_one_line(tmp_path: Path) -> None:
    add(tmp_path, {"packets": (1,)})
    (tmp_path / "packets" / "_delta_log" / f"{0:020d}.json").write_text("{")
    with pytest.raises(TablesError, match="table packets as of run 1 cannot be read: ") as told:
        Tables(tmp_path).read("packets")
    assert "\n" not in str(told.value)


def test_a_table_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="has no table packets: analyse captures into it first"):
        Tables(tmp_path).read("packets")


def test_a_commit_onto_a_disk_that_fails_leaves_the_tables_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, {"packets": (1,)})

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with Tables(tmp_path).run() as run:
        part = write(run, "packets", 2)
        monkeypatch.setattr(Store, "write", fails)
        with pytest.raises(OSError, match="No space left"):
            run.commit(added=[part], schemas=SCHEMAS)

    assert found(tmp_path) == [1]


def test_many_runs_leave_few_files_and_small_parts_that_become_one_are_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PARTS", 3)
    for number in range(6):
        add(tmp_path, {"packets": (number,)})
    assert len(runs_of(tmp_path)) <= 3
    assert [row.run for row in Tables(tmp_path).history.all()] == [1, 2, 3, 4, 5, 6]
    assert len(list((tmp_path / runs.STATES).iterdir())) == 1

    tables = Tables(tmp_path)
    with tables.run() as run:
        one = run.store.write_part(f"packets/{run.name}-tidy.parquet", numbers(*range(6)))
        gone = [part.name for part in tables.parts("packets")]
        run.commit(added=[one], schemas=SCHEMAS, dropped=gone, tidied={one.name, *gone})
    assert found(tmp_path) == list(range(6))
    assert tables.rows("packets") == 6
    log = (tmp_path / "packets" / "_delta_log" / f"{6:020d}.json").read_text().splitlines()
    changes = [entry for line in log for kind, entry in json.loads(line).items() if kind in ("add", "remove")]
    assert [change["dataChange"] for change in changes] == [False] * 7


def test_rows_are_in_groups_so_that_few_of_them_need_not_be_read_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.tables.parts.GROUP_ROWS", 3)
    part = Store.at(tmp_path).write_part("t/x.parquet", pa.table({"n": pa.array(range(8), pa.int64())}))
    metadata = pq.ParquetFile(tmp_path / part.name).metadata
    known = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
    assert [(each.min, each.max) for each in known] == [(0, 2), (3, 5), (6, 7)]
    assert json.loads(part.statistics) == {
        "numRecords": 8,
        "minValues": {"n": 0},
        "maxValues": {"n": 7},
        "nullCount": {"n": 0},
    }


def test_texts_that_came_with_several_dictionaries_are_read_as_texts_and_are_in_the_file_once(
    tmp_path: Path,
) -> None:
    texts = [f"a queue with a long name, and number {number}" for number in range(100)]
    several = pa.chunked_array([pa.array(some * 10, CODED) for some in (texts, texts[::-1])])
    part = Store.at(tmp_path).write_part("t/x.parquet", pa.table({"queue": several}))
    column = pq.read_table(tmp_path / part.name)["queue"]
    assert (column.type, column.to_pylist()) == (pa.string(), several.to_pylist())
    assert (
        pq.ParquetFile(tmp_path / part.name).metadata.row_group(0).column(0).total_uncompressed_size < 10_000
    )
