"""The tool that plants random faults: each fault is one line that Python can parse, and the tool reports who notices
it.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.conformance import ROOT
from tests.harmless import EXPLAINED
from tests.mutants import (
    NOT_LOOKED_AT,
    Copy,
    Fault,
    Found,
    all_faults,
    drawn,
    faults_of,
    print_found,
    survivors_in,
    tell,
)
from tests.reach import Reach


@pytest.mark.long
def test_each_fault_changes_one_line_and_is_python() -> None:
    for fault in random.Random(7).sample([*chain(*all_faults().values())], 200):
        lines = (ROOT / fault.path).read_text("utf-8").splitlines()
        assert lines[fault.line - 1] == fault.old != fault.new
        lines[fault.line - 1] = fault.new
        ast.parse("\n".join(lines))


def test_the_same_seed_draws_the_same_faults_in_every_room() -> None:
    faults = drawn(12, random.Random(3))
    assert faults == drawn(12, random.Random(3))
    assert Counter(fault.room for fault in faults) == {"core": 6, "shell": 3, "store": 3}


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("return a < b", ["return (a <= b)"]),
        ("return a is None and b", ["return (a is None or b)", "return (a is not None) and b"]),
        ("return min(a, 1)", ["return max(a, 1)", "return min(a, 2)"]),
        ("self.x = not y", ["pass", "self.x = (y)"]),
        ("assert a < 1", []),
        ("raise Error(a + 1)", []),
    ],
)
def test_what_may_be_wrong_with_a_line(line: str, changes: list[str]) -> None:
    found = faults_of("core", "module.py", f"def f():\n    {line}\n")
    assert sorted(fault.new.strip() for fault in found) == sorted(changes)


def a_fault(old: str, new: str) -> Fault:
    path = "mqproto/queues/rules/consequences.py"
    lines = (ROOT / path).read_text("utf-8").splitlines()
    [line] = [number for number, text in enumerate(lines, 1) if text.strip() == old]
    indented = lines[line - 1]
    return Fault("core", path, line, "end_of", indented, indented.replace(old, new))


CONSEQUENCES = "mqproto/queues/rules/consequences.py"
THEIR_TESTS = "tests/queues/rules/test_consequences.py"


def known(*, worlds: int, tests: int) -> Reach:
    """A measurement in which these tests and worlds, as bits, execute every line of consequences.py."""
    lines = range(1, 1 + len((ROOT / CONSEQUENCES).read_text("utf-8").splitlines()))
    return Reach(
        {CONSEQUENCES: dict.fromkeys(lines, worlds)},
        {CONSEQUENCES: dict.fromkeys(lines, tests)},
        {THEIR_TESTS: 0.1},
    )


@pytest.mark.long
def test_a_copy_tells_who_notices_a_fault_and_the_checkout_stays_as_it_is(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    before = (ROOT / CONSEQUENCES).read_text("utf-8")
    harmful = a_fault("return End.REACHED", "return End.RECEIVED")
    found = copy.look(harmful, 1, known(worlds=0, tests=1))
    assert (found.worlds, found.tests.partition("::")[0]) == (NOT_LOOKED_AT, THEIR_TESTS)
    harmless = a_fault("return End.REACHED", "return  End.REACHED")
    assert copy.look(harmless, 1, known(worlds=1, tests=1)) == Found(harmless, "", "")
    assert (ROOT / CONSEQUENCES).read_text("utf-8") == before


def test_tests_that_do_not_execute_a_line_are_not_asked(tmp_path: Path) -> None:
    harmful = a_fault("return End.REACHED", "return End.RECEIVED")
    assert Copy(tmp_path).look(harmful, 0, known(worlds=0, tests=0)).tests == ""


def test_survivors_are_read_from_what_a_run_has_printed(capsys: pytest.CaptureFixture[str]) -> None:
    one, other, third = drawn(8, random.Random(4))[:3]
    gone = one._replace(old=f"{one.old} and more")
    found = [
        (one, "seed 3: order", ""),
        (other, "", "tests/a.py::b"),
        (third, "seed 1: order", "tests/a.py::b"),
    ]
    for number, each in enumerate([*found, (gone, "", "")], 1):
        print_found(number, Found(*each), 7)
    told = capsys.readouterr().out
    assert survivors_in(told) == [one, other]
    assert "gone: " in capsys.readouterr().out


def test_a_survivor_is_found_again_where_its_line_has_moved() -> None:
    fault = drawn(4, random.Random(5))[0]
    told = f"  1 {fault._replace(line=fault.line + 9)}\n  worlds: SURVIVES\n  tests: x\n"
    [again] = survivors_in(told)
    assert again._replace(line=0) == fault._replace(line=0)


def test_what_is_explained_can_still_be_made() -> None:
    there = {(fault.path, fault.old.strip(), fault.new.strip()) for fault in chain(*all_faults().values())}
    assert EXPLAINED.keys() - there == set()


def test_the_table_has_the_share_that_was_noticed_and_each_survivor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = drawn(4, random.Random(1))[:2]
    tell([Found(one, "seed 3: order", "tests/a.py::b"), Found(other, NOT_LOOKED_AT, "")])
    told = capsys.readouterr().out
    assert "worlds noticed 1 of 1 faults, 100 %" in told
    assert "tests noticed 1 of 2 faults, 50 %" in told
    assert str(other) in told
