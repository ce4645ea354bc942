"""The result of `pip install` with only construct. For the extras, .ci/run calls tests/wheels.py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import construct
import pytest

import mqproto
from mqproto.simulator.base.program.extras import to_install
from tests.conformance import ROOT
from tests.wheels import CHECKS, DECODE, PYTEST, Check, Installed, built, packed, write_theirs


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Provide the installed wheel with its dependencies, which are already on this machine: a test uses no network."""
    folder = tmp_path_factory.mktemp("wheel")
    environment = Installed(folder)
    environment.install("--no-deps", str(built(folder)))
    assert construct.__file__ is not None
    shutil.copytree(Path(construct.__file__).parent, environment.packages / "construct")
    return environment


@pytest.mark.long
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
        ("duckdb", ["report"], "spark"),
        ("trio", ["demo"], "simulator"),
        ("cryptography", ["keys", "make", "shop"], "security"),
    ],
)
def test_a_missing_module_is_told_with_what_brings_it(module: str, arguments: list[str], extra: str) -> None:
    missing = ModuleNotFoundError(name=module)
    assert to_install(missing, arguments) == f"{module} is not installed: pip install 'mqproto[{extra}]'"


@pytest.mark.parametrize("module", [None, "_sqlite3", "mqproto.simulator.missing"])
def test_no_extra_brings_a_part_of_python_or_of_ours(module: str | None) -> None:
    assert to_install(ModuleNotFoundError(name=module), ["demo"]) is None


@pytest.mark.long
def test_an_sdist_has_what_builds_the_same_wheel_and_tests_it(installed: Installed, tmp_path: Path) -> None:
    sources = packed(tmp_path)
    assert (sources.name, (sources / ".git").exists()) == (f"mqproto-{mqproto.__version__}+gab1", False)
    build = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('.')"]
    subprocess.run(build, cwd=sources, capture_output=True, check=True)
    [wheel] = sources.glob(f"{sources.name}-*.whl")
    [ours] = installed.folder.glob("*.whl")
    with ZipFile(wheel) as its, ZipFile(ours) as mine:
        same = [{name for name in files.namelist() if "dist-info" not in name} for files in (its, mine)]
        [about] = [its.read(name).decode() for name in its.namelist() if name.endswith("/METADATA")]
    assert same[0] == same[1]
    assert "](http" in about
    assert re.findall(r"\]\((?!https?://)", about) == [], "such a link leads nowhere on an index"
    tests = [sys.executable, "-m", "pytest", "-n", "0", "tests/wire", "tests/simulator/cli/test_start.py"]
    done = subprocess.run(tests, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_is_at_the_top_but_our_name_and_the_one_that_spark_looks_for(installed: Installed) -> None:
    names = {path.name for path in installed.packages.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"mqproto", "pyspark_mqproto", "construct"}


@pytest.mark.long
@pytest.mark.parametrize("command", PYTEST)
def test_in_a_project_that_has_packages_of_such_names_its_tests_run_and_our_fixture_too(
    command: str, tmp_path: Path
) -> None:
    write_theirs(tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_that_each_pytest_loads_imports_nothing_but_itself() -> None:
    program = (
        "import sys, pytest\nbefore = set(sys.modules)\n"
        "import mqproto.simulator.testing.plugin\nprint(*sorted(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    parts = ["mqproto", "simulator", "testing", "plugin"]
    assert said.split() == [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


@pytest.mark.long
def test_type_checkers_see_a_wheel_and_an_editable_install(installed: Installed, tmp_path: Path) -> None:
    """Type checkers do not see an import hook, which setuptools makes for editable installs by default."""
    use = tmp_path / "use.py"
    use.write_text("import mqproto\nreveal_type(mqproto.QueueManager.take)\n")
    for python in (installed.python, sys.executable):
        mypy = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}", "use.py"]
        said = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert "-> mqproto.turn.effects.Batch" in said


def test_a_checkout_whose_links_are_files_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mqproto").mkdir()
    (tmp_path / "mqproto" / "simulator").write_text("../simulator")
    done = subprocess.run(
        [ROOT / ".ci" / "venv", "dev"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("mqproto/simulator is not a symbolic link here: ")


def test_python_m_mqproto_is_the_command() -> None:
    said = subprocess.check_output([sys.executable, "-m", "mqproto", "--version"], text=True)
    assert said.startswith("mqproto 0.")


@pytest.mark.parametrize("check", DECODE, ids=lambda check: str(check.command))
def test_captures_are_decoded_without_what_their_extra_does_not_bring(check: Check, tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules |= dict.fromkeys(sys.argv.pop(1).split())\n"
        "from mqproto.simulator.cli.start import main\nmain()"
    )
    others = "trio anyio structlog httptools prometheus_client httpx sqlalchemy pyspark numpy cryptography hypothesis"
    typed = shlex.split(check.command)[1:]
    done = subprocess.run(
        [sys.executable, "-c", program, others, *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert check.says in done.stdout
