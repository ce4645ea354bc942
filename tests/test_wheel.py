"""What `pip install` makes of us, with construct alone. With extras, .ci/run asks tests/wheels.py."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import construct
import pytest

from mqproto.simulator.base.program.extras import to_install
from tests.wheels import CHECKS, Check, Installed, built


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what it depends on, which is here already: a test asks no network."""
    folder = tmp_path_factory.mktemp("wheel")
    environment = Installed(folder)
    environment.install("--no-deps", str(built(folder)))
    assert construct.__file__ is not None
    shutil.copytree(Path(construct.__file__).parent, environment.packages / "construct")
    return environment


@pytest.mark.parametrize("check", CHECKS[""], ids=lambda check: str(check.command))
def test_without_an_extra_there_is_the_protocol_and_a_command_that_says_what_to_install(
    installed: Installed, check: Check
) -> None:
    assert installed.fault(check) is None


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("typer", [], "simulator"),
        ("rich.console", ["decode", "run.pcapng"], "captures"),
        ("pyspark", ["analyse"], "spark"),
        ("numpy", ["decode", "run.pcapng", "--tables", "tables"], "spark"),
        ("numpy", ["decode", "--tables=tables", "run.pcapng"], "spark"),
        ("matplotlib", ["report"], "spark"),
        ("trio", ["demo"], "simulator"),
        ("cryptography", ["keys", "make", "shop"], "security"),
    ],
)
def test_a_missing_module_is_told_with_what_brings_it(module: str, arguments: list[str], extra: str) -> None:
    missing = ModuleNotFoundError(name=module)
    assert to_install(missing, arguments) == f"{module} is not installed: pip install 'mqproto[{extra}]'"


@pytest.mark.parametrize("module", [None, "_sqlite3", "simulator.missing", "captures"])
def test_no_extra_brings_a_part_of_python_or_of_ours(module: str | None) -> None:
    assert to_install(ModuleNotFoundError(name=module), ["demo"]) is None


def test_type_checkers_see_a_wheel_and_an_editable_install(installed: Installed, tmp_path: Path) -> None:
    """An import hook, as setuptools makes them for editable installs unless it is told otherwise, they do not see."""
    use = tmp_path / "use.py"
    use.write_text("import mqproto\nreveal_type(mqproto.QueueManager.take)\n")
    for python in (installed.python, sys.executable):
        mypy = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}", "use.py"]
        said = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert "-> mqproto.turn.effects.Batch" in said


def test_python_m_mqproto_is_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["mqproto", "--version"])
    monkeypatch.setenv(
        "PYTHONSAFEPATH", "1"
    )  # The command sets it for its processes; here it goes with the test.
    with pytest.raises(SystemExit) as end:
        runpy.run_module("mqproto", run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("mqproto 0.")
