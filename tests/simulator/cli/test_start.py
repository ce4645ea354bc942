"""The program `mqproto`: the processes that it starts run the modules that it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mqproto
from mqproto.simulator.base.program.extras import version_line
from mqproto.simulator.cli.start import SAFE_PATH, keep_the_installation
from tests.conformance import ROOT


def test_what_a_command_starts_is_not_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    """Another checkout may be there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mqproto").symlink_to(tmp_path / "elsewhere" / "mqproto")
    environment: dict[str, str] = {}
    keep_the_installation([str(tmp_path / "bin" / "mqproto")], [str(tmp_path / "elsewhere")], environment)
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
    keep_the_installation([f"{ROOT}/mqproto/__main__.py", "demo"], [str(ROOT)], environment)
    assert environment == {}


def test_the_version_is_said_without_what_commands_need() -> None:
    program = (
        "import atexit, sys; sys.argv[1:] = ['--version']; "
        "atexit.register(lambda: print('typer' in sys.modules)); "
        "from mqproto.simulator.cli.start import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [version_line(), "False"]
    assert f"mqproto {mqproto.__version__} (" in version_line()
