"""Tests the wheel in empty environments: each extra brings what its commands need, and an error names what is missing.

`python -m tests.wheels` installs the wheel with each extra of CHECKS, two at a time, in the versions of
requirements.lock, and runs its commands. This takes about two minutes, because Spark takes up 450 MB. `python -m
tests.wheels captures` tests only that extra.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance import ROOT

SOURCES: Final = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "mqproto",
    "captures",
    "simulator",
    "pyspark_mqproto",
)
TIMEOUT_S: Final = 300
SHOWN_COUNT: Final = 2_000
"""How many characters of a failed command's output are shown."""


class Check(NamedTuple):
    """A command and its expected result.

    status: the command's exit status.
    says: a text that the output contains; if the command fails, a regular expression that matches its whole error
        output.
    """

    command: str
    status: int
    says: str
    environment: tuple[tuple[str, str], ...] = ()


def lacks(command: str, modules: str, extra: str) -> Check:
    """Return the check of a command whose extra is missing.

    `|` separates modules, any of which may be imported first.
    """
    return Check(command, 2, f"mqproto: ({modules}) is not installed: pip install 'mqproto\\[{extra}\\]'\n")


COLUMNS: Final = "numpy|pyarrow|duckdb"
"""The modules that everything about tables needs; it does not matter which of them is imported first."""
SAMPLE: Final = str(ROOT / "captures" / "samples" / "three-hop.pcapng")
OUTSIDE: Final = str(ROOT / "tests" / "simulator" / "testing" / "test_outside.py")
COMMAND: Final = (
    Check("mqproto --version", 0, "mqproto 0."),
    Check("python -m mqproto --version", 0, "mqproto 0."),
    Check("mqproto -h", 0, "Usage: mqproto "),
    Check("mqproto decode -h", 0, "Usage: mqproto decode "),
    Check("mqproto --show-completion && true", 0, "complete -o default -F _mqproto_completion mqproto"),
    Check(
        "mqproto",
        0,
        "analyse",
        (("_MQPROTO_COMPLETE", "complete_bash"), ("COMP_WORDS", "mqproto an"), ("COMP_CWORD", "1")),
    ),
)
"""Commands that a user of any extra may run. SHELL stays set, because completion depends on the shell."""
DECODE: Final = (
    Check(f"mqproto decode {SAMPLE} --summary --topology three-node", 0, "packets"),
    Check(f"mqproto decode {SAMPLE} --verbose", 0, "base.packet_size"),
    Check("mqproto wireshark", 0, "Proto("),
)
NOT_KEPT: Final = (("XDG_CACHE_HOME", os.devnull),)
"""Environment variables that keep Spark from archiving its classes.

An archive would be useless, because each Spark installation is removed after its checks.
"""
ANALYSE: Final = (
    Check(f"mqproto analyse {SAMPLE} --out tables", 0, "packets", NOT_KEPT),
    Check(f"mqproto analyse {SAMPLE} --out tables", 0, "1 capture in the tables already", NOT_KEPT),
    Check("mqproto report tables", 0, "report.html: open it in a browser"),
    Check(f"mqproto decode {SAMPLE} --tables pool", 0, "packets"),
    Check("mqproto tables pool --sql 'SELECT count(*) FROM packets'", 0, "count_star()"),
)
FOUND: Final = (
    'python -c \'import pyspark_mqproto as found; print(*vars(found).get("__all__", ["nothing"]))\''
)
"""A command that prints what Spark finds when it looks for formats.

Without the extra, Spark finds nothing, and continues.
"""
PAGE: Final = "python -c 'from mqproto.simulator.console.front import page; print(*sorted(page()))'"
"""A command that prints the files of the console's page."""
CHECKS: Final = {
    "": (
        Check(FOUND, 0, "nothing"),
        Check("python -c 'import mqproto; print(mqproto.Session.__name__)'", 0, "Session"),
        lacks("mqproto", "typer", "simulator"),
        lacks("python -m mqproto --help", "typer", "simulator"),
        lacks(f"mqproto decode {SAMPLE}", "typer", "captures"),
        lacks(f"mqproto analyse {SAMPLE} --out tables", "typer", "spark"),
    ),
    "captures": (
        *COMMAND,
        *DECODE,
        lacks("mqproto demo", "trio", "simulator"),
        lacks("mqproto queues", "trio", "simulator"),
        lacks(f"mqproto decode {SAMPLE} --tables tables", COLUMNS, "spark"),
        lacks(f"mqproto analyse {SAMPLE} --out tables", COLUMNS, "spark"),
        lacks("mqproto report .", COLUMNS, "spark"),
        lacks("mqproto tables .", COLUMNS, "spark"),
    ),
    "simulator": (
        *COMMAND,
        *DECODE,
        Check("mqproto demo --count 50", 0, "every message arrived once, in order, as it was sent"),
        Check("mqproto simulate --seeds 2", 0, "2 worlds"),
        Check("mqproto fuzz parser --seconds 1", 0, ""),
        Check(PAGE, 0, "/main.js /map.js /palette.css"),
        lacks("mqproto keys make sender", "cryptography", "security"),
        lacks(f"mqproto analyse {SAMPLE} --out tables", COLUMNS, "spark"),
    ),
    "security": (
        Check(
            "python -c 'from mqproto.security import new_key_pair; print(new_key_pair(512))'",
            0,
            "<key pair of 512",
        ),
        lacks("mqproto keys make sender", "typer", "simulator"),
    ),
    "testing": (
        *COMMAND,
        # Beside the repository, so that no conftest.py of ours is found.
        Check(f"cp {OUTSIDE} . && python -m pytest -q test_outside.py", 0, "1 passed"),
    ),
    "spark": (
        *COMMAND,
        *DECODE,
        *ANALYSE,
        Check(FOUND, 0, "DefaultSource"),
        lacks("mqproto demo", "trio", "simulator"),
    ),
}
"""The checks by extra; without an extra, only construct is installed."""


THEIRS: Final = {
    "simulator/__init__.py": "X = 1\n",
    "captures/__init__.py": "X = 1\n",
    "conftest.py": "import captures\n",
    "tests/test_theirs.py": (
        "import captures, simulator\n\n\ndef test_theirs():\n    assert simulator.X == captures.X == 1\n"
    ),
    "tests/test_outside.py": Path(OUTSIDE).read_text("utf-8"),
}
"""The files of another project: packages with the same names as ours, and a test that runs queue managers of ours."""
PYTEST: Final = ("pytest -q", "python -m pytest -q", "python -m pytest -q --import-mode=importlib")


def write_theirs(folder: Path) -> None:
    """Write the files of the other project, THEIRS."""
    for name, text in THEIRS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def theirs(extra: str) -> Iterator[Check]:
    """Yield the checks that run pytest in that project when mqproto is installed with an extra."""
    which, says = ("", "2 passed") if extra == "testing" else (" tests/test_theirs.py", "1 passed")
    for command in PYTEST:
        yield Check(f"cd theirs && {command}{which}", 0, says)


class Installed:
    """An environment with the wheel in it.

    Args:
        folder: where it is made, and where commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", str(self._place))

    @property
    def python(self) -> str:
        """The environment's Python."""
        return str(self._place / "bin" / "python")

    @property
    def packages(self) -> Path:
        """The folder of the environment's packages."""
        [found] = self._place.glob("lib/python*/site-packages")
        return found

    def install(self, *arguments: str) -> None:
        """Install with pip. Python compiles modules later, when they are imported."""
        run(
            *(sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile"),
            *("--disable-pip-version-check", *arguments),
        )

    def fault(self, check: Check) -> str | None:
        """Run the command of a check; return what went wrong with it, or None."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {
            "PATH": f"{self._place / 'bin'}{os.pathsep}{os.environ['PATH']}",
            **dict(check.environment),
        }
        done = subprocess.run(
            ["bash", "-c", check.command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        is_said = (
            re.fullmatch(check.says, done.stderr) is not None if check.status else check.says in done.stdout
        )
        if done.returncode == check.status and is_said:
            return None
        return (
            f"`{check.command}` ended with {done.returncode}:\n{(done.stdout + done.stderr)[-SHOWN_COUNT:]}"
        )


def run(*command: str) -> None:
    """Run a step that must not fail; if it does, everything ends, and the step's output is shown.

    Raises:
        RuntimeError: the step failed.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}")


def built(folder: Path) -> Path:
    """Build the wheel of the current sources in a folder, and return its path.

    A build next to the sources would include everything that was built there before.
    """
    sources = folder / "sources"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, sources / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, sources)
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sources)),
    )
    [wheel] = folder.glob("mqproto-*.whl")
    return wheel


def packed(folder: Path) -> Path:
    """Return the unpacked sdist of the current sources; its version names a commit, as with TAG."""
    sources = folder / "sources"
    left = shutil.ignore_patterns(
        ".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "*.egg-info", "build", "dist"
    )
    shutil.copytree(ROOT, sources, symlinks=True, ignore=left)
    tag = "{'--global-option': ['egg_info', '-b+gab1']}"
    build = f"from setuptools.build_meta import build_sdist; build_sdist('..', {tag})"
    subprocess.run([sys.executable, "-c", build], cwd=sources, capture_output=True, check=True)
    [sdist] = folder.glob("mqproto-*.tar.gz")
    with tarfile.open(sdist) as files:
        files.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def faults(wheel: Path, extra: str, folder: Path) -> Iterator[str]:
    """Yield everything that is wrong with the commands of an extra."""
    installed = Installed(folder)
    lock = str(ROOT / "requirements.lock")
    installed.install("--constraint", lock, f"{wheel}[{extra}]" if extra else str(wheel))
    yield from (fault for check in CHECKS[extra] if (fault := installed.fault(check)))
    # Last, as before it is asked what lacks.
    installed.install("--constraint", lock, "pytest")
    write_theirs(folder / "theirs")
    yield from (fault for check in theirs(extra) if (fault := installed.fault(check)))


def asked(wheel: Path, extra: str) -> tuple[str, list[str]]:
    """Test an extra; return a line about it, and everything that is wrong with it."""
    folder = wheel.parent / (extra or "none")
    folder.mkdir()
    began_s = time.monotonic()
    found = [f"with {extra or 'no extra'}, {fault}" for fault in faults(wheel, extra, folder)]
    seconds = time.monotonic() - began_s
    shutil.rmtree(folder)
    count = len([*CHECKS[extra], *theirs(extra)])
    return (
        f"the wheel with {extra or 'no extra'}: {count - len(found)} of {count} commands, {seconds:.0f} s",
        found,
    )


def main(extras: Sequence[str]) -> int:
    """Print a line for each extra; two are tested at once. Return 1 if something is wrong with one of them."""
    status = 0
    with tempfile.TemporaryDirectory(prefix="mqproto-wheel-") as name, ThreadPoolExecutor(2) as pool:
        # The largest is the last: it is begun first.
        waiting = list(extras or CHECKS)[::-1]
        for line, found in pool.map(partial(asked, built(Path(name))), waiting):
            print(line, *found, sep="\n", flush=True)
            status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
