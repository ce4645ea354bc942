"""What is compiled, who is refused, and when the wheel is built anew. `make compiled` has the tests on it."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.base.program.build import COMPILED, PURE, build
from simulator.world.draw import draw
from simulator.world.run import simulate
from tests import compiled, conftest
from tests.conformance import ROOT

MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mqproto"]["compiled"]


def test_what_is_compiled_is_there_and_named_once_in_order() -> None:
    assert sorted(set(MODULES)) == MODULES
    assert [name for name in MODULES if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("module", MODULES)
def test_nothing_that_is_compiled_is_held_by_a_weak_reference(
    module: str,
) -> None:
    """A compiled class has no place for one, nor a dictionary of attributes."""
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words = {
        keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords
    }
    assert not names & {"__dict__", "cached_property", "WeakValueDictionary", "WeakKeyDictionary"}
    assert "weakref_slot" not in words


@pytest.mark.parametrize("module", MODULES)
def test_in_what_is_compiled_each_error_of_a_function_has_a_name_of_its_own(module: str) -> None:
    """mypyc gives one name one type: an error of the second kind would be refused by the type of the first."""
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [
            node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name
        ]
        assert sorted(set(names)) == sorted(names), f"{module}: {function.name}"


@pytest.mark.parametrize(
    ("word", "step", "reason"),
    [
        (
            "yes",
            "bdist_wheel",
            "MQPROTO_COMPILE is 'yes': 1 has the hot modules compiled, 0 or nothing has none",
        ),
        ("1", "editable_wheel", "a compiled module would hide its source here: leave it out, or --editable"),
        ("1", "--inplace", "a compiled module would hide its source here"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    word: str, step: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQPROTO_COMPILE", word)
    monkeypatch.setattr(sys, "argv", ["setup.py", "build_ext", step])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "setup.py"))
    assert reason in str(end.value)
    assert "\n" not in str(end.value)


def test_the_wheel_is_built_anew_when_a_source_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    name = f"mqproto-0.5.0-{tag}-{tag}-linux_x86_64.whl"
    made: list[bool] = []

    def built(folder: Path, *, compiled: bool = False) -> Path:
        made.append(compiled)
        (folder / name).touch()
        return folder / name

    monkeypatch.setattr(compiled, "built", built)
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "DIST", tmp_path / "dist")
    monkeypatch.setattr(compiled, "SOURCES", ("mqproto",))
    (tmp_path / "mqproto").mkdir()
    source = tmp_path / "mqproto" / "session.py"
    source.touch()
    os.utime(source, (1, 1))
    assert compiled.wheel() == tmp_path / "dist" / name
    assert compiled.wheel() == tmp_path / "dist" / name
    assert made == [True]
    os.utime(source, (2**32, 2**32))
    compiled.wheel()
    assert made == [True, True]


@pytest.mark.parametrize(
    ("arguments", "run", "worlds"),
    [
        ([], compiled.SELECTION, [compiled.WORLDS]),
        (["--short"], compiled.SHORT_SELECTION, [compiled.SHORT_WORLDS]),
        (["-n", "2", "tests/wire"], ("-n", "2", "tests/wire"), []),
    ],
)
def test_what_is_run_on_the_compiled_build(
    arguments: list[str], run: tuple[str, ...], worlds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    compared: list[int] = []

    def counted(count: int) -> int:
        compared.append(count)
        return 0

    def ran(command: list[str], **given: Any) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(compiled, "wheel", lambda: Path("mqproto.whl"))
    monkeypatch.setattr(compiled, "lay_out", lambda found: None)
    monkeypatch.setattr(compiled, "compare_worlds", counted)
    monkeypatch.setattr(subprocess, "run", ran)
    assert compiled.test(arguments) == 3
    [command] = commands
    assert command[-len(run) :] == [*run]
    assert "--short" not in command
    assert compared == worlds


@pytest.mark.parametrize("name", compiled.SHORT_SELECTION)
def test_what_ci_runs_is_part_of_the_whole_selection(name: str) -> None:
    assert name in compiled.SELECTION
    assert (ROOT / name).exists()


HELD = "digest, every invariant held"


@pytest.mark.parametrize(
    ("pure", "fast", "found"),
    [
        ([PURE, f"0: {HELD}"], [COMPILED, f"0: {HELD}"], []),
        (
            [PURE, "0: one, every invariant held"],
            [COMPILED, "0: other, every invariant held"],
            ["seed 0: one, every invariant held, and compiled 0: other, every invariant held"],
        ),
        (
            [PURE, f"0: {HELD}"],
            [PURE, f"0: {HELD}"],
            ["these are not the two builds: ['pure Python'], ['pure Python']"],
        ),
        ([PURE, f"0: {HELD}"], [], ["these are not the two builds: ['pure Python'], []"]),
        ([PURE, f"0: {HELD}"], [COMPILED], ["of 1 worlds 1 ended on the source, 0 compiled"]),
        ([PURE], [COMPILED], ["of 1 worlds 0 ended on the source, 0 compiled"]),
    ],
)
def test_worlds_that_come_to_something_else_are_named(
    pure: list[str], fast: list[str], found: list[str]
) -> None:
    assert compiled.differences(pure, fast, 1) == found


def test_of_a_world_its_trace_counts_and_what_broke() -> None:
    traced = simulate(draw(3), traced=True)
    assert [*compiled.come_to([3])] == [build(), f"3: {traced.trace.digest()}, every invariant held"]


class Item:
    """A test that was collected, with a mark or without."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def get_closest_marker(self, name: str) -> object:
        return self if name == self.mark else None


@pytest.mark.parametrize("build", [PURE, COMPILED])
def test_what_is_of_the_source_alone_is_left_out_where_modules_are_compiled(
    build: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "build", lambda: build)
    told: list[Any] = []
    monkeypatch.setattr(pytestconfig.hook, "pytest_deselected", lambda items: told.extend(items))
    of_source, early, of_both = Item("pure"), Item("early"), Item()
    items: list[Any] = [of_both, of_source, early]
    conftest.pytest_collection_modifyitems(pytestconfig, items)
    left_out = [of_source] if build == COMPILED else []
    assert told == left_out
    assert items == [item for item in (early, of_both, of_source) if item not in left_out]
