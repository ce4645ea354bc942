"""Archives of classes: made once, whole or not at all, only for whom they fit, and never in the way."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.java import Java, find_java
from mqproto.captures.pipeline.engines.sharing import ABANDONED_S, KEPT, Sharing, cache_folder, share_classes


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A Spark, as far as archives go."""
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
    """The package's, which has no archive of its own classes."""
    folder = tmp_path_factory.mktemp("java")
    return find_java(folder, {"PATH": str(folder)})


@pytest.fixture
def other_java(tmp_path: Path) -> Java:
    """One that comes with an archive of its own classes; it is not started."""
    for file in ("java/bin/java", "java/lib/server/classes.jsa", "java/lib/server/libjvm.so"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return Java(tmp_path / "java", tmp_path / "java/bin/java", "21.0.8")


def start(java: Java, sharing: Sharing) -> None:
    """Start this Java, and have it end."""
    subprocess.run(
        sharing.command([str(java.binary), *sharing.options, "-version"]), check=True, capture_output=True
    )


def ended(sharing: Sharing) -> None:
    """What comes of a session whose Java has written its archive."""
    subprocess.run(sharing.command(["touch", str(sharing.fresh)]), check=True)


@pytest.mark.long
def test_the_first_java_writes_an_archive_and_the_next_one_finds_it(
    java: Java, spark_home: Path, cache: Path
) -> None:
    first = share_classes(java, spark_home, cache)
    start(java, first)
    assert first.archive is not None
    assert first.archive.exists()
    second = share_classes(java, spark_home, cache)
    assert second.fresh is None
    assert str(first.archive) in second.options[-1]
    start(java, second)
    # Java does not say whether it used the archive, unless it is told to go without nothing else.
    strictly = [option for option in second.options if option != "-Xshare:auto"]
    start(java, replace(second, options=("-Xshare:on", *strictly)))


@pytest.mark.long
def test_java_starts_with_an_archive_that_is_damaged(java: Java, spark_home: Path, cache: Path) -> None:
    first = share_classes(java, spark_home, cache)
    ended(first)
    sharing = share_classes(java, spark_home, cache)
    assert sharing.fresh is None
    start(java, sharing)


def test_of_two_that_start_at_once_each_writes_its_own_and_one_stays(
    other_java: Java, spark_home: Path, cache: Path
) -> None:
    first, second = (share_classes(other_java, spark_home, cache) for _ in range(2))
    assert first.fresh != second.fresh
    ended(first)
    ended(second)
    assert [first.archive] == [second.archive] == list(cache.iterdir())


def test_what_a_killed_java_has_written_is_not_kept(other_java: Java, spark_home: Path, cache: Path) -> None:
    sharing = share_classes(other_java, spark_home, cache)
    assert sharing.fresh is not None
    sharing.fresh.write_bytes(b"half of it")
    sharing.discard()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("echo half of it >$0; exit 3", 3)])
def test_of_a_java_that_wrote_none_or_failed_nothing_is_kept(
    other_java: Java, spark_home: Path, cache: Path, script: str, status: int
) -> None:
    sharing = share_classes(other_java, spark_home, cache)
    done = subprocess.run(sharing.command(["sh", "-c", script, str(sharing.fresh)]), check=False)
    assert done.returncode == status
    assert list(cache.iterdir()) == []


def test_another_release_or_another_spark_has_another_archive(
    other_java: Java, spark_home: Path, cache: Path
) -> None:
    ended(share_classes(other_java, spark_home, cache))
    assert share_classes(other_java, spark_home, cache).fresh is None
    assert share_classes(replace(other_java, release="21.0.9"), spark_home, cache).fresh is not None
    os.utime(spark_home / "jars", (1, 1))
    assert share_classes(other_java, spark_home, cache).fresh is not None


def test_as_many_are_kept_as_have_been_used_last(other_java: Java, spark_home: Path, cache: Path) -> None:
    made = []
    for number in range(KEPT + 1):
        sharing = share_classes(replace(other_java, release=f"21.0.{number}"), spark_home, cache)
        ended(sharing)
        assert sharing.archive is not None
        made.append(sharing.archive)
        # The first has been used since, all others long ago.
        os.utime(sharing.archive, None if number == 0 else (number, number))
    share_classes(other_java, spark_home, cache)
    assert set(cache.iterdir()) == {made[0], *made[2:]}


def test_what_nobody_has_finished_goes_after_an_hour(other_java: Java, spark_home: Path, cache: Path) -> None:
    old, new = (share_classes(other_java, spark_home, cache).fresh for _ in range(2))
    assert old is not None
    assert new is not None
    old.touch()
    new.touch()
    os.utime(old, (old.stat().st_mtime - ABANDONED_S - 1,) * 2)
    share_classes(other_java, spark_home, cache)
    assert list(cache.iterdir()) == [new]


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
