"""A log rotates by size, even if other processes write to it, and no error of a log ends a program."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.logfile import OLDER, LogFile, appended, open_log

WRITES = """
import sys
from pathlib import Path
from mqproto.simulator.base.logfile import LogFile
file = LogFile(Path(sys.argv[1]), limit_bytes=1_000)
for number in range(99):
    file.write(f"line {number}".ljust(99) + chr(10))
print("the last words", file=sys.stderr)
"""


def test_the_log_stays_below_its_limit_and_has_the_newest_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with LogFile(path, limit_bytes=10_000) as file:
        log = node_log(file, "a")
        for number in range(5_000):
            log.info("x", number=number)
    found = sorted(tmp_path.iterdir())
    assert len(found) == 1 + OLDER
    assert all(each.stat().st_size <= 10_000 for each in found)
    assert json.loads(path.read_text().splitlines()[-1])["number"] == 4_999
    lines = "".join(each.read_text() for each in [*found[:0:-1], path]).splitlines()
    numbers = [json.loads(line)["number"] for line in lines]
    assert numbers == list(range(numbers[0], 5_000))


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_log_is_for_its_owner_alone_whatever_it_was_before(tmp_path: Path, umask: int) -> None:
    (old := tmp_path / "old.log").write_text("")
    old.chmod(0o666)
    before = os.umask(umask)
    try:
        for path in (old, tmp_path / "new.log"):
            with LogFile(path, limit_bytes=100) as file:
                for _ in range(9):
                    file.write("x" * 60 + "\n")
    finally:
        os.umask(before)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_a_device_is_no_file_of_ours() -> None:
    """Lines are written to a device, but it does not rotate, and its permissions stay unchanged."""
    ours, theirs = os.openpty()
    try:
        before = os.fstat(theirs).st_mode
        with LogFile(Path(os.ttyname(theirs)), limit_bytes=10) as file:
            file.write("a line of more than ten bytes\n")
            file.write("x\n")
        said = b""
        while not said.endswith(b"bytes\r\nx\r\n"):  # A terminal hands over what it has, if only a part.
            assert said.count(b"\n") < 2, said
            said += os.read(ours, 100)
        assert os.fstat(theirs).st_mode == before
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_the_process_says_on_stderr_goes_to_the_newest_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("ab") as file:
        subprocess.run([sys.executable, "-c", WRITES, str(path)], stderr=file, check=True)
    assert path.read_text().endswith("the last words\n")
    assert "the last words" not in (tmp_path / "a.log.1").read_text()


def test_lines_that_find_no_room_are_counted_and_end_nobody(tmp_path: Path) -> None:
    """A limit on the size of this process's files stands in for a full disk."""
    path = tmp_path / "a.log"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LogFile(path) as file:
        file.write("first\n")
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
        try:
            for _ in range(3):
                file.write("lost\n")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        file.write("last\n")
    first, lost, last = path.read_text().splitlines()
    assert (first, json.loads(lost)["count"], last) == ("first", 3, "last")


def test_a_log_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"a\.log cannot be opened .*: name another file"),
        open_log(tmp_path / "no" / "a.log"),
    ):
        pass


def test_a_log_follows_no_symbolic_link_but_those_of_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "log"
    target.write_text("not a log\n")
    target.chmod(0o644)
    link.symlink_to(target)
    with pytest.raises(UsageError, match="it is a symbolic link, and a log follows none"), open_log(link):
        pass
    with pytest.raises(OSError, match="symbolic link"):
        appended(link)
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("not a log\n", 0o644)
    with target.open("ab") as file, open_log(Path(f"/dev/fd/{file.fileno()}")) as log:
        assert log is not None
        log.write("a line\n")
    assert target.read_text() == "not a log\na line\n"
