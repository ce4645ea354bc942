"""A process's changes to the files of one folder, as strace saw them: each change and each flush, in order.

An unknown kind of change is an error, so that none is overlooked: otherwise, `traced` would seem to prove more than it
does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import ROOT

CALLS: Final = (
    "?open,?openat,?creat,?write,?writev,?pwrite64,?pwritev,?pwritev2,?truncate,?ftruncate,?fallocate,?fsync,?fdatasync,"
    "?sync_file_range,?sync,?syncfs,?unlink,?unlinkat,?rename,?renameat,?renameat2,?link,?linkat,?symlink,?symlinkat,"
    "?mkdir,?mkdirat,?rmdir,?mmap,?sendfile,?copy_file_range,?splice"
)
"""All system calls that can change or flush a file; not every machine has all of them."""
STRACE: Final = [
    "strace",
    "--follow-forks",
    "--seccomp-bpf",
    "--decode-fds=path",
    "--strings-in-hex=all",
    "--string-limit=16777216",
    f"--trace={CALLS}",
]
LINE: Final = re.compile(r"\d+ +(\w+)\((.*)\) += (?:(-?\d+)|0x[0-9a-f]+)(?:<(\S*)>)?(?: .*)?")
UNFINISHED: Final = " <unfinished ...>"
RESUMED: Final = re.compile(r"\d+ +<\.\.\. \w+ resumed>")
OF_FILE: Final = re.compile(r"(\d+)<(\S*)>(?:, (.*))?")
"""Matches arguments that begin with an open file."""
TEXT: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
NOT_DURABLE: Final = "-shm"
"""The suffix of the index of SQLite's log, which is shared memory and is made again after a power loss."""


@dataclass(frozen=True, slots=True)
class Created:
    """A file was created under a new name; it is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes of a file were written, from this offset on."""

    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file was cut or extended to this size."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Removed:
    """A name was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file was renamed, to a name that no other file had."""

    old: str
    name: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """The content of a file was flushed to disk; or, if the name is empty, the names in the folder were."""

    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """The process printed something."""

    text: str


Step = Created | Written | Truncated | Removed | Renamed | Flushed | Said

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None
    or subprocess.run([*STRACE, "--output=/dev/null", "true"], capture_output=True, check=False).returncode
    != 0,
    reason="strace is not installed or may not trace here: apt-get install strace",
)


def traced(folder: Path, arguments: list[str]) -> list[Step]:
    """Run a Python module; return what it and its children did to the files of a folder."""
    there = {path.name for path in folder.iterdir()}
    trace = folder.parent / f"{folder.name}.trace"
    command = [*STRACE, f"--output={trace}", sys.executable, "-B", "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with trace.open() as lines:
        steps = list(steps_in(lines, str(folder.resolve()), there))
    trace.unlink()
    return steps


def steps_in(lines: Iterable[str], folder: str, there: Iterable[str] = ()) -> Iterator[Step]:
    """Read a trace.

    Args:
        folder: the absolute path of the folder. Events outside it are ignored, except printing.
        there: the names that are in the folder from the start.

    Raises:
        ValueError: a file in the folder was changed in an unknown way.
    """
    hex_folder = "".join(f"\\x{byte:02x}" for byte in folder.encode())
    names = {*there}
    for line in _whole(lines):
        if hex_folder not in line and " write(1<" not in line and " sync" not in line:
            continue
        found = LINE.fullmatch(line)
        if found is None:
            if re.fullmatch(r"\d+ (\+\+\+|---) .*", line):
                continue
            raise ValueError(f"no line of a trace: {_short(line)}")
        call, arguments, result = found[1], found[2], int(found[3] or 0)
        if result < 0:
            continue
        for step in _steps(call, arguments, result, folder, names):
            name = "" if isinstance(step, Said) else step.name
            if name.endswith(NOT_DURABLE):
                continue
            if isinstance(step, Created):
                names.add(name)
            if isinstance(step, Removed):
                names.discard(name)
            if isinstance(step, Renamed):
                names.discard(step.old)
                names.add(name)
            yield step


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Join a call that strace reports in two lines because an event of another process came between them."""
    begun: dict[str, str] = {}
    for line in map(str.rstrip, lines):
        process = line.partition(" ")[0]
        resumed = RESUMED.match(line)
        if line.endswith(UNFINISHED):
            begun[process] = line.removesuffix(UNFINISHED)
        elif resumed is not None:
            yield begun.pop(process) + line[resumed.end() :]
        else:
            yield line


def _steps(call: str, arguments: str, result: int, folder: str, names: set[str]) -> Iterator[Step]:
    def name_of(path: str) -> str:
        """Return a name within the folder; it is empty for the folder itself."""
        if path != folder and not path.startswith(f"{folder}/"):
            raise ValueError(f"{call} of {path} and of something in {folder}")
        return path[len(folder) + 1 :]

    texts = TEXT.findall(arguments)
    of_file = OF_FILE.fullmatch(arguments)
    if call in ("open", "openat"):
        name, flags = name_of(_path(texts[0])), arguments.split('"')[2]
        if "O_TRUNC" in flags:
            raise ValueError(f"{name} is opened with O_TRUNC")
        if "O_CREAT" in flags and name not in names:
            yield Created(name)
    elif call == "write" and arguments.startswith("1<"):
        yield Said(bytes.fromhex(texts[0].replace("\\x", "")).decode())
    elif call in ("pwrite64", "pwritev", "pwritev2") and of_file is not None:
        data = bytes.fromhex("".join(texts).replace("\\x", ""))
        if len(data) < result:
            raise ValueError(f"{result} bytes are written, of which the trace has {len(data)}")
        # Behind the bytes stand how many pieces or bytes they are, the offset, and for pwritev2 a word of flags.
        offset = arguments.rpartition('"')[2].split(", ")[-2 if call == "pwritev2" else -1]
        yield Written(name_of(_path(of_file[2])), int(offset), data[:result])
    elif call == "ftruncate" and of_file is not None:
        yield Truncated(name_of(_path(of_file[2])), int(of_file[3]))
    elif call == "fallocate" and of_file is not None:
        mode, offset_bytes, size_bytes = of_file[3].split(", ")
        if mode != "0" or offset_bytes != "0":
            raise ValueError(f"{call} is not known here: {_short(arguments)}")
        yield Truncated(name_of(_path(of_file[2])), int(size_bytes))  # The file was empty.
    elif call in ("fsync", "fdatasync") and of_file is not None:
        yield Flushed(name_of(_path(of_file[2])))
    elif call == "unlink":
        yield Removed(name_of(_path(texts[0])))
    elif call == "rename":
        old, name = (name_of(_path(text)) for text in texts)
        yield Renamed(old, name)
    elif call == "mmap":
        shared = "PROT_WRITE" in arguments and "MAP_SHARED" in arguments
        mapped = re.search(r"\d+<(\S*)>", arguments)
        if shared and (mapped is None or not _path(mapped[1]).endswith(NOT_DURABLE)):
            raise ValueError(f"a file is written through memory: {_short(arguments)}")
    else:
        raise ValueError(f"{call} is not known here: {_short(arguments)}")


def _path(text: str) -> str:
    return bytes.fromhex(text.replace("\\x", "")).decode()


def _short(text: str) -> str:
    return text if len(text) < 200 else f"{text[:200]}..."
