from __future__ import annotations

import pytest

from tests.simulator.filetrace import (
    Created,
    Flushed,
    Removed,
    Renamed,
    Said,
    Step,
    Truncated,
    Written,
    steps_in,
)

FOLDER = "/f"


def in_hex(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def line(text: str) -> str:
    """Return a line of a trace; the parts between ' are texts, and the parts between < and > are paths."""
    parts = text.split("'")
    parts[1::2] = [f'"{in_hex(part)}"' for part in parts[1::2]]
    pieces = "".join(parts).replace(">", "<").split("<")
    pieces[1::2] = [f"<{in_hex(piece)}>" for piece in pieces[1::2]]
    return f"17 {''.join(pieces)}\n"


def steps(*texts: str, there: tuple[str, ...] = ()) -> list[Step]:
    return list(steps_in(map(line, texts), FOLDER, there))


def test_each_change_and_each_flush_is_read_in_order() -> None:
    assert steps(
        "openat(AT_FDCWD</>, '/f/a', O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3</f/a>",
        "pwrite64(3</f/a>, 'hello', 5, 4096) = 5",
        "fdatasync(3</f/a>) = 0",
        "openat(AT_FDCWD</>, '/f', O_RDONLY|O_CLOEXEC) = 4</f>",
        "fsync(4</f>) = 0",
        "write(1<pipe:[7]>, 'done\n', 5) = 5",
        "ftruncate(3</f/a>, 7) = 0",
        "rename('/f/a', '/f/b') = 0",
        "fallocate(3</f/b>, 0, 0, 4096) = 0",
        "unlink('/f/b') = 0",
    ) == [
        Created("a"),
        Written("a", 4096, b"hello"),
        Flushed("a"),
        Flushed(""),
        Said("done\n"),
        Truncated("a", 7),
        Renamed("a", "b"),
        Truncated("b", 4096),
        Removed("b"),
    ]


def test_a_file_is_created_once_and_again_after_it_was_removed() -> None:
    opened, removed = "openat(AT_FDCWD</>, '/f/a', O_RDWR|O_CREAT, 0644) = 3</f/a>", "unlink('/f/a') = 0"
    assert steps(opened, opened, removed, opened) == [Created("a"), Removed("a"), Created("a")]
    assert steps(opened, removed, there=("a",)) == [Removed("a")]


@pytest.mark.parametrize(
    "text",
    [
        "openat(AT_FDCWD</>, '/elsewhere/a', O_RDWR|O_CREAT, 0644) = 3</elsewhere/a>",
        "pwrite64(3</elsewhere/a>, 'hello', 5, 0) = 5",
        "openat(AT_FDCWD</>, '/f/a', O_RDONLY|O_CREAT) = -1 ENOENT (No such file or directory)",
        "pwrite64(3</f/a-shm>, 'x', 1, 4095) = 1",
        "mmap(NULL, 32768, PROT_READ|PROT_WRITE, MAP_SHARED, 7</f/a-shm>, 0) = 0x7f33cdf8f000",
        "mmap(NULL, 32768, PROT_READ, MAP_SHARED, 7</f/a>, 0) = 0x7f33cdf8f000",
    ],
)
def test_what_happens_elsewhere_fails_or_need_not_last_is_left_out(text: str) -> None:
    assert steps(text) == []


def test_of_a_write_only_what_was_taken_counts() -> None:
    assert steps("pwrite64(3</f/a>, 'hello', 5, 10) = 3") == [Written("a", 10, b"hel")]


@pytest.mark.parametrize(
    "text",
    [
        "openat(AT_FDCWD</>, '/f/a', O_RDWR|O_CREAT|O_TRUNC, 0644) = 3</f/a>",
        "renameat2(AT_FDCWD</>, '/f/a', AT_FDCWD</>, '/f/b', RENAME_NOREPLACE) = 0",
        "write(3</f/a>, 'hello', 5) = 5",
        "fallocate(3</f/a>, FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE, 0, 4096) = 0",
        "mmap(NULL, 32768, PROT_READ|PROT_WRITE, MAP_SHARED, 7</f/a>, 0) = 0x7f33cdf8f000",
        "sync() = 0",
        "pwrite64(3</f/a>, 'hello', 5, 10 <unfinished ...>",
    ],
)
def test_a_change_that_is_not_known_is_not_passed_over(text: str) -> None:
    with pytest.raises(ValueError, match=r"not known|O_TRUNC|through memory|no line"):
        steps(text)


def test_a_call_that_is_told_in_two_lines_is_one() -> None:
    whole = line("openat(AT_FDCWD</>, '/f/a', O_RDWR|O_CREAT, 0644) = 3</f/a>").removeprefix("17 ")
    begun, ended = whole.split(")")
    trace = [
        f"17 {begun} <unfinished ...>\n",
        "9  --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---\n",
        f"17 <... openat resumed>){ended}",
    ]
    assert list(steps_in(trace, FOLDER)) == [Created("a")]
