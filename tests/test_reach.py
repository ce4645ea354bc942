"""Measures which worlds and tests execute a line, including the processes that these start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import reach
from tests.conformance import ROOT
from tests.mutants import TESTS, Copy
from tests.reach import Reach, kept, measured, statement_around

SOURCE = """\
def f(a, b):
    if (
        a
        and b
    ):
        return g(
            a,
            1,
        )
    while a: b()
    with a: pass
    return 2
"""


@pytest.mark.parametrize(
    ("line", "statement"),
    [
        *((line, range(2, 6)) for line in (2, 3, 4, 5)),
        *((line, range(6, 10)) for line in (6, 8, 9)),
        (10, range(10, 11)),
        (12, range(12, 13)),
    ],
)
def test_a_line_stands_for_its_statement_or_for_the_head_of_it(line: int, statement: range) -> None:
    assert statement_around(SOURCE, line) == statement


def line_of(path: str, text: str) -> int:
    """Return the number of the only line that has this text."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if text in line]
    return number


CARRY = "mqproto/manager/carry.py"
CONSEQUENCES, TESTED = "mqproto/queues/rules/consequences.py", "tests/queues/rules/test_consequences.py"
IN_A_PROCESS = "tests/queues/rules/test_process.py"
STARTS_A_PROCESS = """
import subprocess, sys

def test_that_starts_a_process():
    code = "from mqproto.queues.rules.consequences import end_of; end_of(0x4000)"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.mark.long
def test_worlds_tests_and_their_processes_are_measured(tmp_path: Path) -> None:
    copy, place = Copy(tmp_path / "copy"), tmp_path / "place"
    place.mkdir()
    (copy.folder / IN_A_PROCESS).write_text(STARTS_A_PROCESS, "utf-8")
    found = measured(copy.folder, place, 2, [TESTED, IN_A_PROCESS])
    line = line_of(CONSEQUENCES, "return End.RECEIVED")
    assert found.files(CONSEQUENCES, [line]) == [TESTED, IN_A_PROCESS]
    assert found.files(CONSEQUENCES, [1]) == [TESTED, IN_A_PROCESS]
    assert found.files(CONSEQUENCES, [9_999]) == []
    assert found.seeds(CARRY, [line_of(CARRY, "hands.commit(batch.writes)")], 3) == [0, 1]


def test_tests_that_do_not_run_are_said_to_and_nothing_is_measured(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(SystemExit, match=r"(?s)nothing_of_that_name.*the tests did not run"):
        measured(ROOT, tmp_path, 0, [str(tmp_path / "test_broken.py")])


@pytest.mark.long
def test_a_copy_has_all_that_tests_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=Copy(tmp_path).folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_module_s_own_tests_come_first_then_its_neighbours_then_the_quickest() -> None:
    files = ["tests/a.py", "tests/b.py", "tests/queues/test_lanes.py", "tests/queues/test_localqueue.py"]
    found = Reach(tests={"mqproto/queues/localqueue.py": {3: 0b0011, 4: 0b1100}})
    found.seconds = dict(zip(files, (9, 1, 5, 7), strict=True))
    assert found.files("mqproto/queues/localqueue.py", [3, 4]) == [files[3], files[2], files[1], files[0]]
    assert found.files("mqproto/queues/localqueue.py", [4]) == [files[3], files[2]]
    assert found.files("mqproto/queues/localqueue.py", [5]) == []


def test_what_was_measured_is_kept_and_holds_while_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "ROOT", tmp_path)
    module, test, other = (tmp_path / name for name in ("mqproto/a.py", "tests/test_a.py", "tests/test_b.py"))
    for file in (module, test, other):
        file.parent.mkdir(exist_ok=True)
        file.write_text("1")
    found = Reach({"mqproto/a.py": {1: 0b100}}, {"mqproto/a.py": {1: 0b10}})
    found.seconds = {"tests/test_a.py": 1.0, "tests/test_b.py": 2.0}
    found.keep(tmp_path / "reach.json")

    again = kept(tmp_path / "reach.json")
    assert again == found
    assert again.seeds("mqproto/a.py", [1], 9) == [2]
    test.write_text("2")
    assert kept(tmp_path / "reach.json").files("mqproto/a.py", [1]) == ["tests/test_a.py", "tests/test_b.py"]
    module.write_text("2")
    assert kept(tmp_path / "reach.json").seeds("mqproto/a.py", [7], 3) == [0, 1, 2]
