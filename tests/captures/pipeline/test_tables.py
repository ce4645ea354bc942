"""Tables in a folder: a run counts as a whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from captures.pipeline import tables as under_test
from captures.pipeline.parts import Store
from captures.pipeline.tables import LOCK, MANIFEST, VERSION, WORK, Tables, TablesError


def numbers(*values: int) -> pa.Table:
    return pa.table({"number": pa.array(values, pa.int64())})


def add(folder: Path, name: str, *values: int) -> None:
    with Tables(folder).run() as run:
        run.commit(added=[run.store.write_part(name, numbers(*values))])


def found(folder: Path, table: str = "packets") -> list[int]:
    column: list[int] = Tables(folder).read(table)["number"].to_pylist()
    return column


def test_what_runs_add_is_read_together(tmp_path: Path) -> None:
    add(tmp_path / "out", "packets/a.parquet", 1, 2)
    add(tmp_path / "out", "packets/b.parquet", 3)
    add(tmp_path / "out", "sessions/a.parquet", 7)

    tables = Tables(tmp_path / "out")

    assert found(tmp_path / "out") == [1, 2, 3]
    assert tables.manifest.rows("packets") == 3
    assert [Path(path).name for path in tables.paths("sessions")] == ["a.parquet"]
    described = json.loads((tmp_path / "out" / "schema.json").read_text())
    assert described["tables"]["packets"] == [{"name": "number", "type": "int64", "nullable": True}]


def test_a_table_may_be_replaced_and_a_part_dropped(tmp_path: Path) -> None:
    add(tmp_path, "packets/a.parquet", 1)
    add(tmp_path, "packets/b.parquet", 2)
    add(tmp_path, "sessions/a.parquet", 7)
    tables = Tables(tmp_path)

    with tables.run() as run:
        run.commit(
            added=[run.store.write_part("sessions/b.parquet", numbers(8))],
            replaced=["sessions"],
            dropped=[tables.manifest.of("packets")[0]],
        )

    assert found(tmp_path) == [2]
    assert found(tmp_path, "sessions") == [8]
    assert not (tmp_path / "packets" / "a.parquet").exists()


def test_a_run_that_is_not_committed_changes_nothing(tmp_path: Path) -> None:
    add(tmp_path, "packets/a.parquet", 1)

    with Tables(tmp_path).run() as run:
        run.store.write_part("packets/b.parquet", numbers(2))

    assert found(tmp_path) == [1]
    assert not (tmp_path / WORK).exists()


def test_a_repeated_task_writes_the_same_part_once(tmp_path: Path) -> None:
    with Tables(tmp_path).run() as run:
        first = run.store.write_part("packets/a.parquet", numbers(1))
        again = run.store.write_part("packets/a.parquet", numbers(1))
        assert first == again
        assert [path.name for path in (tmp_path / "packets").iterdir()] == ["a.parquet"]
        run.commit(added=[again])

    assert found(tmp_path) == [1]


class Died(BaseException):
    """The process ends here."""


def dies_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], bool]:
    """Have the `step`th change of a name or a file end the process; tells whether it was reached."""
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
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)  # Nobody clears up.
    return lambda: steps > step


def test_a_process_that_dies_anywhere_leaves_all_of_a_run_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After whatever was left, the next run works and leaves no file that does not count."""
    step, died = 0, True
    outcomes = set()
    while died:
        folder = tmp_path / str(step)
        add(folder, "packets/a.parquet", 1)
        with monkeypatch.context() as patched:
            reached = dies_at(patched, step)
            try:
                with Tables(folder).run() as run:
                    parts = [
                        run.store.write_part("packets/b.parquet", numbers(2)),
                        run.store.write_part("sessions/b.parquet", numbers(3)),
                    ]
                    run.commit(added=parts, replaced=["packets"])
            except Died:
                pass
            died = reached()
        outcome = tuple(found(folder))
        outcomes.add(outcome)
        assert outcome in {(1,), (2,)}
        assert (outcome == (2,)) == bool(Tables(folder).paths("sessions"))

        add(folder, "packets/c.parquet", 4)
        assert found(folder) == [*outcome, 4]
        on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
        assert on_disk == {part.name for part in Tables(folder).manifest.parts}
        step += 1
    assert outcomes == {(1,), (2,)}


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        Tables(tmp_path).run(),
        pytest.raises(TablesError, match="being written by another run: wait for its end"),
        Tables(tmp_path).run(),
    ):
        pass


def test_a_first_run_that_failed_can_be_repeated(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Tables(tmp_path / "out").run():
        raise ZeroDivisionError
    assert (tmp_path / "out" / LOCK).exists()

    add(tmp_path / "out", "packets/a.parquet", 1)

    assert found(tmp_path / "out") == [1]


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("my only copy")
    with pytest.raises(TablesError, match="holds something else than tables: choose another folder"):
        Tables(tmp_path)
    with pytest.raises(TablesError, match="holds something else"):
        Tables(tmp_path / "thesis.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"version": 1, "parts": [], "state": {}}',
            f"has tables of version 1, this program makes {VERSION}",
        ),
        ("[1, 2]", "is no manifest of ours"),
        (json.dumps({"version": VERSION}), "is no manifest of ours"),
        ("{", "is no manifest of ours"),
    ],
)
def test_a_manifest_that_cannot_be_read_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(TablesError, match=message):
        Tables(tmp_path)


def test_a_table_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="has no table packets: analyse captures into it first"):
        Tables(tmp_path).read("packets")


def test_a_commit_onto_a_disk_that_fails_leaves_the_tables_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, "packets/a.parquet", 1)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with Tables(tmp_path).run() as run:
        part = run.store.write_part("packets/b.parquet", numbers(2))
        monkeypatch.setattr(under_test, "_replace", fails)
        with pytest.raises(OSError, match="No space left"):
            run.commit(added=[part])

    assert found(tmp_path) == [1]


def test_rows_are_in_groups_so_that_few_of_them_need_not_be_read_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captures.pipeline.parts.GROUP_ROWS", 3)
    part = Store.at(tmp_path).write_part("t/x.parquet", pa.table({"n": pa.array(range(8), pa.int64())}))
    metadata = pq.ParquetFile(tmp_path / part.name).metadata
    known = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
    assert [(each.min, each.max) for each in known] == [(0, 2), (3, 5), (6, 7)]
