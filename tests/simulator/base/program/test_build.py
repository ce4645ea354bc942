"""Which build runs, and that the processes that it starts are of the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.wire import glance
from simulator.base.program.build import (
    COMPILED,
    PURE,
    SAFE_PATH,
    build,
    build_of,
    keep_the_build,
    python_and_build,
)
from tests.conformance import ROOT


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/packages/mqproto/wire/glance.py", PURE),
        ("/packages/mqproto/wire/glance.cpython-311-x86_64-linux-gnu.so.py", PURE),
        ("/packages/mqproto/wire/glance.abi3.so", COMPILED),
        (f"/packages/mqproto/wire/glance.cpython-{sys.version_info[0]}{sys.version_info[1]}", PURE),
    ],
)
def test_it_is_told_by_where_a_module_came_from(file: str, said: str) -> None:
    assert build_of(file) == said


def test_it_is_that_of_this_process() -> None:
    assert build() == build_of(glance.__file__)
    assert python_and_build().startswith(f"{build()}, Python 3.")


@pytest.mark.pure("there they lie, in a folder of their own")
def test_no_extension_module_lies_in_a_checkout_where_it_would_hide_its_source() -> None:
    found = [
        file for folder in ("mqproto", "simulator", "captures") for file in (ROOT / folder).rglob("*.so")
    ]
    assert found == [], "remove them: what is edited beside them does not run"


def test_what_a_command_starts_is_not_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    """A checkout may be there, of another moment, and not compiled."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mqproto").symlink_to(tmp_path / "elsewhere" / "mqproto")
    environment: dict[str, str] = {}
    keep_the_build([str(tmp_path / "bin" / "mqproto")], [str(tmp_path / "elsewhere")], environment)
    assert environment == {SAFE_PATH: "1"}

    (tmp_path / "mqproto.py").write_text("print('the one in the working directory')")
    command = [
        sys.executable,
        "-c",
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'mqproto'])",
    ]
    for more in ({}, environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        said = subprocess.run(
            command, cwd=tmp_path, env=inherited | more, capture_output=True, text=True, check=True
        ).stdout
        assert ("the one in the working directory" in said) is not bool(more)


def test_a_module_that_was_run_with_m_has_its_processes_look_where_it_did() -> None:
    environment: dict[str, str] = {}
    keep_the_build([f"{ROOT}/mqproto/__main__.py", "demo"], [str(ROOT)], environment)
    assert environment == {}
