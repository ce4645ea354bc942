"""What conftest.py promises about skipped tests and hypothesis profiles."""

from __future__ import annotations

import sys

import pytest
from hypothesis import settings

from tests.conformance import ROOT
from tests.conftest import profile_name

A_TEST_OF_EACH_KIND = """
import pytest

def test_that_asks_for_a_program(): pytest.skip("no tshark")
@pytest.mark.xfail(strict=True)
def test_of_a_known_fault(): assert False
def test_that_runs(): pass
"""
A_MODULE_THAT_SKIPS_ITSELF = "import pytest; pytest.importorskip('no_such_module')"


@pytest.mark.parametrize(
    ("ci", "workers", "expected"),
    [
        ("", "0", {"passed": 1, "xfailed": 1, "skipped": 2}),
        ("true", "0", {"passed": 1, "xfailed": 1, "failed": 1, "errors": 1}),
        ("true", "2", {"passed": 1, "xfailed": 1, "failed": 1, "errors": 1}),
    ],
)
def test_a_skipped_test_has_failed_in_ci_and_only_there_whoever_runs_it(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    workers: str,
    expected: dict[str, int],
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CI", ci)
    pytester.makeconftest("from tests.conftest import *")
    pytester.makepyfile(test_kinds=A_TEST_OF_EACH_KIND, test_module=A_MODULE_THAT_SKIPS_ITSELF)
    options = ["--continue-on-collection-errors", "-p", "no:trio", "-n", workers, "--dist", "loadfile"]
    result = pytester.run(sys.executable, "-m", "pytest", *options)
    assert result.parseoutcomes() == expected
    result.stdout.fnmatch_lines("conformance.toml*")


TESTS_THAT_TELL_THEIR_PROCESS = """
import os, pytest

@pytest.mark.parametrize("number", range(3))
def test_number(number): print("process of", __name__, os.getpid())
"""
OF_A_GROUP = "import pytest; pytestmark = pytest.mark.xdist_group('costly')" + TESTS_THAT_TELL_THEIR_PROCESS


def test_files_of_one_group_run_in_one_process_and_so_does_every_other_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest("from tests.conftest import *")
    pytester.makepyfile(test_a=OF_A_GROUP, test_b=TESTS_THAT_TELL_THEIR_PROCESS, test_c=OF_A_GROUP)
    options = ["-n", "2", "--dist", "loadfile", "-p", "no:trio", "-rP"]
    result = pytester.run(sys.executable, "-m", "pytest", *options)
    assert result.parseoutcomes() == {"passed": 9}
    told = {line.removeprefix("process of ") for line in result.outlines if line.startswith("process of ")}
    [a, b, c] = [line.split()[1] for line in sorted(told)]
    assert a == c != b


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
