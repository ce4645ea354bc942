"""The program `mqproto`: the processes that it starts run the same modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import mqproto
from mqproto.simulator.base.program import extras
from mqproto.simulator.base.program.extras import build, version_line
from mqproto.simulator.cli.start import SAFE_PATH, keep_the_installation
from tests.conformance import ROOT


def test_what_a_command_starts_is_not_looked_for_in_the_working_directory(tmp_path: Path) -> None:
    """The working directory may contain another checkout."""
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
    assert version_line().startswith(f"mqproto {build()} (Python 3.")


def installed(monkeypatch: pytest.MonkeyPatch, place: Path, version: str, **origin: object) -> None:
    """Make a version appear to be installed in a place; `origin` is pip's record of where it came from (PEP 610)."""
    record = json.dumps({"url": "https://example.org", **origin}) if origin else None
    found = SimpleNamespace(version=version, read_text=lambda name: record)
    monkeypatch.setattr(extras, "distribution", lambda name: found)
    monkeypatch.setattr(mqproto, "__file__", str(place / "mqproto" / "__init__.py"))


def test_a_build_names_its_commit_if_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vcs_info = {"vcs": "git", "commit_id": "71819341" * 5}
    known: list[tuple[str, dict[str, object], str]] = [
        ("0.6.0", {}, "0.6.0"),
        ("0.6.0", {"dir_info": {}}, "0.6.0"),
        ("0.6.0", {"vcs_info": vcs_info}, "0.6.0+g71819341"),
        ("0.6.0+g01234567", {"vcs_info": vcs_info}, "0.6.0+g01234567"),
    ]
    for version, origin, said in known:
        installed(monkeypatch, tmp_path, version, **origin)
        assert build.__wrapped__() == said


def test_a_checkout_names_the_commit_that_it_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        me = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        return subprocess.check_output(["git", "-C", tmp_path, *me, *arguments], text=True).strip()

    installed(monkeypatch, tmp_path, "0.6.0", dir_info={"editable": True})
    git("init", "--quiet")
    for text in ("first", "second"):
        (tmp_path / "file").write_text(text)
        git("add", "file")
        git("commit", "--quiet", "--message", text)
        commit = git("rev-parse", "--short=8", "HEAD")
        assert build.__wrapped__() == f"0.6.0+g{commit}"
    (tmp_path / "file").write_text("changed")
    assert build.__wrapped__() == f"0.6.0+g{commit}.dirty"
    monkeypatch.setenv("PATH", "")
    assert build.__wrapped__() == "0.6.0"
