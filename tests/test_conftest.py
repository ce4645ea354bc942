"""The promises of conftest.py about skipped tests, processes and hypothesis profiles."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

from tests.conformance import ROOT
from tests.conftest import group_of, profile_name, pytest_xdist_auto_num_workers

A_TEST_OF_EACH_KIND = """
import os, pytest, signal, subprocess

def test_that_asks_for_a_program(): pytest.skip("no tshark")
def test_of_what_is_not_allowed(): pytest.skip("this machine allows no night work")
@pytest.mark.xfail(strict=True)
def test_of_a_known_fault(): assert False
def test_whose_children_end():
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(os.getpid(), number)
        child = subprocess.Popen(["sleep", "100"])
        child.send_signal(number)
        assert child.wait() == -number
"""
A_MODULE_THAT_SKIPS_ITSELF = "import pytest; pytest.importorskip('no_such_module')"


TESTS_THAT_TELL_THEIR_PROCESS = """
import os, pytest

@pytest.mark.parametrize("number", range(3))
def test_number(number): print("process of", __name__, os.getpid())
"""
OF_A_GROUP = "import pytest; pytestmark = pytest.mark.xdist_group('costly')" + TESTS_THAT_TELL_THEIR_PROCESS


@pytest.fixture
def run_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Return a function that runs tests in a separate process as `make test` would, in CI or not.

    The process ignores some signals, like a background process of a script or one that nohup starts.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest("from tests.conftest import *")
    pytester.makepyfile(test_kinds=A_TEST_OF_EACH_KIND, test_module=A_MODULE_THAT_SKIPS_ITSELF)

    def run(ci: str, *options: str) -> pytest.RunResult:
        monkeypatch.setenv("CI", ci)
        always = ["--continue-on-collection-errors", "-p", "no:trio", "--dist", "loadfile"]
        ignoring = ["sh", "-c", "trap '' INT HUP TERM; exec \"$@\"", "sh"]
        return pytester.run(*ignoring, sys.executable, "-m", "pytest", *always, *options)

    return run


@pytest.mark.parametrize(
    ("ci", "expected"),
    [
        ("", {"passed": 1, "xfailed": 1, "skipped": 3}),
        ("true", {"passed": 1, "xfailed": 1, "failed": 1, "errors": 1, "skipped": 1}),
    ],
)
def test_a_skipped_test_has_failed_in_ci_and_only_there_unless_the_machine_does_not_allow_it(
    run_tests: Callable[..., pytest.RunResult], ci: str, expected: dict[str, int]
) -> None:
    result = run_tests(ci, "-n", "0")
    assert result.parseoutcomes() == expected
    result.stdout.fnmatch_lines(
        [
            "conformance.toml*",
            "not shown here: test_kinds.py::test_of_what_is_not_allowed: this machine allows no night work",
        ]
    )


@pytest.mark.long
def test_processes_that_share_the_work_agree_on_skips_and_run_files_and_groups_of_files_whole(
    pytester: pytest.Pytester, run_tests: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(test_a=OF_A_GROUP, test_b=TESTS_THAT_TELL_THEIR_PROCESS, test_c=OF_A_GROUP)
    result = run_tests("true", "-n", "2", "-rP")
    assert result.parseoutcomes() == {"passed": 1 + 9, "xfailed": 1, "failed": 1, "errors": 1, "skipped": 1}
    result.stdout.fnmatch_lines("conformance.toml*")
    told = {line.removeprefix("process of ") for line in result.outlines if line.startswith("process of ")}
    [a, _, c] = [line.split()[1] for line in sorted(told)]
    assert a == c
    # Which of them takes what is left depends on who is done first.
    assert {line.split()[0] for line in result.outlines if line.startswith("[gw")} == {"[gw0]", "[gw1]"}


def test_files_that_take_long_come_first(pytester: pytest.Pytester) -> None:
    """Otherwise the last of these files would still run after all other processes are done."""
    early = "import pytest; pytestmark = pytest.mark.early\n" + TESTS_THAT_TELL_THEIR_PROCESS
    pytester.makeini("[pytest]\nmarkers = early")
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems")
    pytester.makepyfile(
        test_a=TESTS_THAT_TELL_THEIR_PROCESS, test_b=early, test_c=TESTS_THAT_TELL_THEIR_PROCESS
    )
    result = pytester.runpytest("--collect-only", "-p", "no:trio")
    result.stdout.fnmatch_lines(["*test_b.py*", "*test_a.py*", "*test_c.py*"])


def test_all_tests_that_ask_for_spark_are_in_one_process() -> None:
    """Each process that runs one of these tests starts its own Spark session."""
    asks = re.compile(r'\bspark: SparkSession\b|usefixtures\("spark"\)')
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if asks.search(path.read_text("utf-8"))]
    assert files
    assert {group_of(path) for path in files} == {"spark"}


def test_there_is_a_process_more_than_cores_unless_somebody_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def processes(cores: int) -> int:
        hook = pytest_xdist_auto_num_workers()
        next(hook)
        with pytest.raises(StopIteration) as ended:
            hook.send(cores)
        return int(ended.value.value)

    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    assert processes(2) == 3
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "2")
    assert processes(2) == 2


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "fast"),
        ({"CI": ""}, "fast"),
        ({"CI": "true"}, "ci"),
        ({"CI": "true", "HYPOTHESIS_PROFILE": "deep"}, "deep"),
        ({"HYPOTHESIS_PROFILE": "ci"}, "ci"),
    ],
)
def test_the_profile_is_chosen_by_the_environment(environment: dict[str, str], name: str) -> None:
    assert profile_name(environment) == name


def test_only_ci_repeats_its_examples_and_no_profile_has_a_deadline() -> None:
    profiles = {name: settings.get_profile(name) for name in ("fast", "ci", "deep")}
    assert {name: profile.derandomize for name, profile in profiles.items()} == {
        "fast": False,
        "ci": True,
        "deep": False,
    }
    assert {profile.deadline for profile in profiles.values()} == {None}
    assert profiles["fast"].max_examples < profiles["ci"].max_examples < profiles["deep"].max_examples
