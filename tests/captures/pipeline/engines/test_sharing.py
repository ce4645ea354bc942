"""Archives of classes: each is made once, is used only by the Java that it fits, and never causes a failure."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.java import Java, find_java
from mqproto.captures.pipeline.engines.sharing import KEPT, Sharing, cache_folder, share_classes


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """The parts of a Spark installation that archives need."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The user's cache folder."""
    folder = cache_folder({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Java:
    """The package's Java, which has no archive of its own classes."""
    folder = tmp_path_factory.mktemp("java")
    return find_java(folder, {"PATH": str(folder)})


@pytest.fixture
def other_java(tmp_path: Path) -> Java:
    """A Java that comes with an archive of its own classes; it is not started."""
    for file in ("java/bin/java", "java/lib/server/classes.jsa", "java/lib/server/libjvm.so"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return Java(tmp_path / "java", tmp_path / "java/bin/java", "21.0.8")


def start(java: Java, sharing: Sharing, *options: str) -> None:
    """Start this Java, and let it end."""
    command = [str(java.binary), *sharing.options, *options, "-version"]
    subprocess.run(command, check=True, capture_output=True)


def ended(sharing: Sharing) -> Path:
    """Return the archive that a session leaves behind once its Java has written it."""
    assert sharing.archive is not None
    sharing.archive.touch()
    return sharing.archive


@pytest.mark.long
def test_the_first_java_writes_an_archive_and_the_next_one_finds_it(
    java: Java, spark_home: Path, cache: Path
) -> None:
    first = share_classes(java, spark_home, cache)
    assert first.is_new
    start(java, first)
    second = share_classes(java, spark_home, cache)
    assert not second.is_new
    assert str(first.archive) in second.options[-1]
    start(java, second)
    # Java does not say whether it used the archive, unless it is told to go without nothing else.
    strictly = tuple(each for each in second.options if not each.startswith(("-Xshare", "-XX:+Auto")))
    start(java, replace(second, options=strictly), "-Xshare:on")


@pytest.mark.long
@pytest.mark.parametrize("kept", [0, 60_000])
def test_java_starts_with_an_archive_that_is_damaged_and_writes_it_anew(
    java: Java, spark_home: Path, cache: Path, kept: int
) -> None:
    sharing = share_classes(java, spark_home, cache)
    start(java, sharing)
    assert sharing.archive is not None
    whole_bytes = sharing.archive.stat().st_size
    sharing.archive.chmod(0o600)
    os.truncate(sharing.archive, kept)
    start(java, share_classes(java, spark_home, cache))
    assert sharing.archive.stat().st_size == whole_bytes


def test_an_archive_with_which_java_did_not_start_is_not_kept(
    other_java: Java, spark_home: Path, cache: Path
) -> None:
    sharing = share_classes(other_java, spark_home, cache)
    sharing.discard()
    ended(sharing)
    sharing.discard()
    assert list(cache.iterdir()) == []


def test_a_java_that_keeps_none_by_itself_has_none(other_java: Java, spark_home: Path, cache: Path) -> None:
    assert share_classes(replace(other_java, release="17.0.15"), spark_home, cache) == Sharing()


def test_another_release_or_another_spark_has_another_archive(
    other_java: Java, spark_home: Path, cache: Path, tmp_path: Path
) -> None:
    ended(share_classes(other_java, spark_home, cache))
    assert not share_classes(other_java, spark_home, cache).is_new
    assert share_classes(replace(other_java, release="21.0.9"), spark_home, cache).is_new
    assert share_classes(other_java, tmp_path, cache).is_new
    os.utime(other_java.binary, (1, 1))
    assert share_classes(other_java, spark_home, cache).is_new


def test_as_many_are_kept_as_have_been_used_last(other_java: Java, spark_home: Path, cache: Path) -> None:
    made = []
    for number in range(KEPT + 1):
        sharing = share_classes(replace(other_java, release=f"21.0.{number}"), spark_home, cache)
        made.append(ended(sharing))
        # The first has been used since, all others long ago.
        os.utime(made[-1], None if number == 0 else (number, number))
    share_classes(other_java, spark_home, cache)
    assert set(cache.iterdir()) == {made[0], *made[2:]}


def test_one_that_is_not_to_be_made_is_still_used(other_java: Java, spark_home: Path, cache: Path) -> None:
    assert share_classes(other_java, spark_home, cache, make=False) == Sharing()
    ended(share_classes(other_java, spark_home, cache))
    assert share_classes(other_java, spark_home, cache, make=False).options != ()


def test_without_a_folder_there_is_none(other_java: Java, spark_home: Path, tmp_path: Path) -> None:
    assert share_classes(other_java, spark_home, None) == Sharing()
    assert share_classes(other_java, spark_home, tmp_path / "a b") == Sharing()
    assert share_classes(other_java, spark_home, tmp_path / "no:where") == Sharing()


def test_the_cache_is_the_users_own_folder_and_nobody_elses(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert cache_folder({"HOME": str(home)}) is None
    assert cache_folder({}) is None
    home.mkdir()
    assert cache_folder({"HOME": str(home)}) == home / ".cache" / "mqproto"
    assert cache_folder({"HOME": "", "XDG_CACHE_HOME": os.devnull}) is None
    (home / ".cache" / "mqproto").chmod(0o777)
    assert cache_folder({"HOME": str(home)}) is None
