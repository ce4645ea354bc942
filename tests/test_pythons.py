"""Which Pythons the tests run on: those that actually run on this machine, each version once."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conformance import ROOT

SCRIPT = ROOT / ".ci" / "pythons"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a PATH folder with Pythons that only print their versions, and another Python that pyenv has."""
    says = {"python3.11": "3.11.99", "python3.12": "3.12.99", "pyenv/versions/3.12.99/bin/python3": "3.12.99"}
    for name, version in says.items():
        program(tmp_path / name, f"echo {version}")
    program(tmp_path / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    program(tmp_path / "pyenv/versions/3.13.99/bin/python3", "echo 3.13.99")
    return tmp_path


def program(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def listed(folder: Path, *pythons: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYENV_ROOT": str(folder / "pyenv"),
    }
    return subprocess.run(
        [SCRIPT, "--list", *pythons], env=environment, capture_output=True, text=True, check=False
    )


def test_each_version_that_runs_is_taken_once_and_a_shim_that_leads_nowhere_is_none(folder: Path) -> None:
    found = dict(line.split(" ", 1) for line in listed(folder).stdout.splitlines())
    assert {version: path for version, path in found.items() if version.endswith(".99")} == {
        "3.11.99": str(folder / "python3.11"),
        "3.12.99": str(folder / "python3.12"),
        "3.13.99": str(folder / "pyenv/versions/3.13.99/bin/python3"),
    }


def test_one_that_is_named_has_to_run(folder: Path) -> None:
    assert listed(folder, "python3.12").stdout == "3.12.99 python3.12\n"
    done = listed(folder, "python3.13")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "python3.13 is not Python 3.11 or newer that runs here\n"


def test_the_classifiers_name_pythons_that_are_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    assert named == ["3.11", "3.12", "3.13"]
    assert "for minor in 11 12 13" in SCRIPT.read_text("utf-8")


def test_what_the_core_names_is_there() -> None:
    listed = SCRIPT.read_text("utf-8").partition("core=(")[2].partition("\n)")[0]
    names = [name for line in listed.splitlines() if "#" not in line for name in line.split()]
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
