"""Which worlds and which test files execute each line; this is measured once. Only they can notice a fault in that
line.

`measured` runs worlds and tests in a checkout under coverage. It also measures processes that a test starts, except for
those that are killed. pytest loads this module as a plugin; the plugin tells each process its test file.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from operator import or_
from pathlib import Path
from typing import Any, Final

import coverage
import pytest

from tests.conformance import ROOT

FILE: Final = "MQPROTO_TEST_FILE"
"""The environment variable that tells processes which test file has started them."""
TOLD: Final = "MQPROTO_TEST_TIMES"
"""The environment variable that tells the plugin where to write its report."""
MEASURED: Final = ("mqproto", "simulator/node", "simulator/storage")
CONFIGURATION: Final = """
[run]
data_file = {place}/data
include =
{folders}
parallel = true
context = ${{{file}-}}
disable_warnings = no-data-collected, module-not-measured
"""
WORLDS: Final = """
import json, sys
import coverage
first, last, where, *folders = sys.argv[1:]
measure = coverage.Coverage(data_file=None, include=[f"{folder}/*" for folder in folders], config_file=False)
measure.start()
from mqproto.simulator.base.program.collector import seldom_collected
from mqproto.simulator.world import draw, simulate
with seldom_collected():
    for seed in range(int(first), int(last)):
        measure.switch_context(str(seed))
        simulate(draw(seed))
measure.stop()
data = measure.get_data()
with open(where, "w") as file:
    json.dump({path: data.contexts_by_lineno(path) for path in data.measured_files()}, file)
"""
SHARE: Final = 100
"""The number of worlds that one process measures."""

Lines = dict[str, dict[int, int]]
"""For each path and line number, the set of worlds or test files that execute the line, with one bit for each."""
ALL: Final = -1
"""The set of all worlds and files, for lines that are executed before the first world or test, such as on import."""


class Plugin:
    """Records what pytest reports about the tests while they are measured.

    seconds: the time that each test file took.
    failed: the files with a test that did not pass.
    """

    def __init__(self, told: Path) -> None:
        self._told = told
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record that a test begins; lines that are executed from now on count for its file."""
        os.environ[FILE] = nodeid.partition("::")[0]
        if (current := coverage.Coverage.current()) is not None:
            current.switch_context(os.environ[FILE])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the duration of one phase of a test, and whether it failed."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] = self._seconds.get(file, 0) + report.duration
        if report.failed:
            self._failed.add(file)

    def pytest_sessionfinish(self) -> None:
        """Write the report after all tests are over."""
        self._told.write_text(json.dumps([self._seconds, sorted(self._failed)]), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Register a plugin that records the tests."""
    config.pluginmanager.register(Plugin(Path(os.environ[TOLD])))


@dataclass(slots=True)
class Reach:
    """Shows which worlds and tests execute each line.

    worlds: the seeds of the worlds, as bits.
    tests: the places of the test files in `seconds`, as bits.
    seconds: the time that each test file took while it was measured.
    """

    worlds: Lines = field(default_factory=dict)
    tests: Lines = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    """The modules and test files that have changed since the measurement; nothing is known about them."""

    def seeds(self, path: str, lines: Iterable[int], count: int) -> list[int]:
        """Return which of the first `count` worlds execute any of these lines."""
        found = self._any(self.worlds, path, lines)
        return [seed for seed in range(count) if found >> seed & 1]

    def files(self, path: str, lines: Iterable[int]) -> list[str]:
        """Return the test files that execute any of these lines.

        The module's own file comes first, then the other files in its folder, and then the rest; within each group,
        quicker ones come first.
        """
        folder, _, name = path.removeprefix("mqproto/").rpartition("/")
        own, room = f"tests/{folder}/test_{name}", f"tests/{folder}/"
        found = self._any(self.tests, path, lines)
        wanted = [file for number, file in enumerate(self.seconds) if found >> number & 1]
        wanted += self.changed - set(wanted) - self.tests.keys()
        return sorted(
            wanted, key=lambda file: (file != own, not file.startswith(room), self.seconds.get(file, 0), file)
        )

    def _any(self, where: Lines, path: str, lines: Iterable[int]) -> int:
        if path in self.changed:
            return ALL
        reached = where.get(path, {})
        return reduce(or_, (reached.get(line, 0) for line in lines), 0)

    def keep(self, file: Path) -> None:
        """Write the measurement to a file from which `kept` can read it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([self.worlds, self.tests, self.seconds, _digests(self)]), "utf-8")


def kept(file: Path) -> Reach:
    """Return the measurement of an earlier run; files that have changed since are marked."""
    *lines, seconds, digests = json.loads(file.read_text("utf-8"))
    worlds, tests = (
        {path: {int(line): who for line, who in reached.items()} for path, reached in each.items()}
        for each in lines
    )
    reach = Reach(worlds, tests, seconds)
    now = _digests(reach)
    reach.changed = frozenset(name for name in now.keys() | digests if now.get(name) != digests.get(name))
    return reach


def _digests(reach: Reach) -> dict[str, str]:
    """Return a digest of each module and test file as it is now."""
    folders = {Path(file).parent for file in reach.seconds}
    files = {file for folder in folders for file in (ROOT / folder).glob("test_*.py")}
    files |= {file for folder in MEASURED for file in (ROOT / folder).rglob("*.py")}
    return {
        file.relative_to(ROOT).as_posix(): sha256(file.read_bytes()).hexdigest() for file in sorted(files)
    }


def statement_around(source: str, line: int) -> range:
    """Return the lines of the innermost statement that contains a line; for a compound statement, those of its header.

    Python reports only some lines of a statement when it executes the statement.
    """
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            body: list[ast.stmt] = getattr(node, "body", [])
            last = max(first, body[0].lineno - 1) if body else node.end_lineno  # type: ignore[union-attr]
            assert last is not None
            if first <= line <= last:
                found = range(first, last + 1)
    return found


def measured(folder: Path, place: Path, seeds: int, tests: Sequence[str]) -> Reach:
    """Run the worlds and tests of the checkout in `folder`; `place` is an empty folder to which coverage writes.

    Raises:
        SystemExit: the tests do not run, or a test fails even without coverage.
    """
    reach = Reach()
    _measure_tests(reach, folder, place, tests)
    _measure_worlds(reach, folder, place, seeds)
    return reach


def _measure_tests(reach: Reach, folder: Path, place: Path, tests: Sequence[str]) -> None:
    configuration, told = place / "coverage.ini", place / "told.json"
    folders = "\n".join(f"    {folder}/{name}/*" for name in MEASURED)
    configuration.write_text(CONFIGURATION.format(place=place, folders=folders, file=FILE), "utf-8")
    environment = os.environ | {
        "COVERAGE_PROCESS_START": str(configuration),
        "PYTHONPATH": str(folder),
        TOLD: str(told),
    }
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_command, "-p", "tests.reach", *tests],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"{done.stdout}\nthe tests did not run in a copy of the checkout: see above")
    reach.seconds, failed = json.loads(told.read_text("utf-8"))
    # Under coverage all is slower, and a test may mind.
    if failed and subprocess.run([*pytest_command, *failed], cwd=folder, check=False).returncode:
        raise SystemExit("without any fault tests fail; mend them first")
    whole = coverage.Coverage(data_file=str(place / "data"), config_file=str(configuration))
    whole.combine([str(place)])
    data = whole.get_data()
    numbers = {file: number for number, file in enumerate(reach.seconds)}
    found = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
    _take(reach.tests, folder, found, numbers.__getitem__)


def _measure_worlds(reach: Reach, folder: Path, place: Path, seeds: int) -> None:
    folders = [str(folder / name) for name in MEASURED]
    for first in range(0, seeds, SHARE):
        where = place / f"worlds-{first}.json"
        last = min(seeds, first + SHARE)
        command = [sys.executable, "-c", WORLDS, str(first), str(last), str(where), *folders]
        subprocess.run(command, cwd=folder, check=True)
        _take(reach.worlds, folder, json.loads(where.read_text("utf-8")), int)


def _take(
    into: Lines, folder: Path, found: dict[str, dict[Any, list[str]]], number_of: Callable[[str], int]
) -> None:
    """Add the results of coverage to `into`."""
    for path, lines in found.items():
        taken = into.setdefault(Path(path).relative_to(folder).as_posix(), {})
        for line, contexts in lines.items():
            for context in contexts:
                taken[int(line)] = taken.get(int(line), 0) | (1 << number_of(context) if context else ALL)
