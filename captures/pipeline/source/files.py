"""The inputs of a job: capture files, and the series they form.

File names tell which files form a series (mqproto.captures.files.series). Users who know better can name the files that
belong together.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.files.pcap import (
    FILE_HEADER_BYTES,
    GZIP,
    MAGICS,
    PCAPNG,
    ZSTANDARD,
    packed_size,
    read_frames,
    read_head,
    read_records,
    unpacked,
)
from mqproto.captures.files.pcapng import Dropped, PcapngReader, Section
from mqproto.captures.files.series import order_in_series, series_name, unpacked_name
from mqproto.captures.pipeline.source.records import TIME_LIMIT_NS, within
from mqproto.captures.pipeline.source.storage import (
    Opened,
    absolute,
    files_at,
    is_remote,
    is_same,
    memory_of,
    opened,
    pieces,
)

RANGE_BYTES: Final = 64 << 20
SAMPLE_BYTES: Final = 64 << 10
SAMPLE_COUNT: Final = 64
"""How many samples, together with the size of a file, identify the file.

The samples are spread evenly from the file's first byte to its last.
"""
UNPACKED_PIECE_BYTES: Final = 1 << 20

CAPTURE_NAME: Final = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.(gz|zst))?$", re.IGNORECASE)
"""Matches names that only captures have. In a folder, a file with such a name is refused if it is not a capture; other
files that are not captures are ignored.
"""


class Origin(NamedTuple):
    """The identity of a file before it was packed.

    It consists of the file's path, the time of its first frame, and its size modulo 2**32.
    """

    path: str
    first_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """The facts that a task needs to read a part of a capture.

    size_bytes: the size of the stored file; bytes added later are not read.
    form: "pcap" or "pcapng", even if the file is packed.
    packing: "", "gzip" or "zstd".
    fingerprint: 32 hexadecimal digits that identify the file by its content.
    section: the state at `start`: complete for pcap, only the byte order for pcapng.
    start: the place of the first record or block in the unpacked file.
    first_ns: the time of the first frame; None if there is none.
    unpacked_bytes: equal to `size_bytes` if the file is not packed; otherwise the unpacked size, modulo 2**32, that it
        states, or None if it states none.
    """

    path: str
    size_bytes: int
    form: str
    packing: str
    fingerprint: str
    section: Section
    start: int
    first_ns: int | None
    unpacked_bytes: int | None = None

    @property
    def origin(self) -> Origin | None:
        """The identity by which a capture is recognized if it is packed after it was read; None if unknown."""
        if self.first_ns is None or self.unpacked_bytes is None:
            return None
        name = unpacked_name(self.path) if self.packing else self.path
        return Origin(name, self.first_ns, self.unpacked_bytes % 2**32)

    @property
    def where(self) -> str:
        """The file's name as shown in errors."""
        return f"{self.path} (unpacked)" if self.packing else self.path


@dataclass(frozen=True, slots=True)
class Series:
    """The files of one capture, in order."""

    name: str
    files: tuple[CaptureFile, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files found at the paths of a job.

    refused: the files that cannot be opened, or that are damaged before their first frame.
    repeated: the files with the same content as another, each paired with the one that is read instead.
    passed_over: the files in folders that neither begin like captures nor are named like them.
    """

    series: tuple[Series, ...]
    refused: tuple[CaptureError, ...] = ()
    repeated: tuple[tuple[str, str], ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def files(self) -> Iterator[CaptureFile]:
        """All files that are read."""
        return (file for series in self.series for file in series.files)


class Mapped(NamedTuple):
    """A capture as a task reads it.

    data: the file; for a packed file, its unpacked bytes.
    damage: the fault that ended the unpacking early; None if there was none.
    until: the end of the available bytes. If only part of an object was fetched, zeros follow.
    """

    data: mmap.mmap
    damage: CaptureError | None
    until: int


def inventory(paths: Iterable[str]) -> Inventory:
    """Return the captures at `paths`.

    Each path is a file, or a folder that is searched together with its subfolders. Paths are made absolute, because
    tasks read the files later, in other working directories.
    """
    found: dict[str, CaptureFile] = {}
    refused: list[CaptureError] = []
    repeated: list[tuple[str, str]] = []
    passed_over: list[str] = []
    for path in map(absolute, paths):
        try:
            there = list(files_at(path))
        except OSError as error:
            refused.append(CaptureError(path, 0, error.strerror or str(error)))
            continue
        for one, is_meant in there:
            try:
                if not is_meant and not _looks_like_capture(one):
                    passed_over.append(one)
                    continue
                if (name := one.encode(errors="backslashreplace").decode()) != one:
                    raise CaptureError(name, 0, "its name is not UTF-8, as the tables' texts are: rename it")
                file = look_at(one)
            except CaptureError as error:
                refused.append(error)
                continue
            except OSError as error:
                refused.append(CaptureError(one, 0, error.strerror or str(error)))
                continue
            first = found.setdefault(file.fingerprint, file)
            if first is not file and not is_same(first.path, one):
                repeated.append((one, first.path))
    plain = {file.origin: file for file in found.values() if not file.packing}
    for file in list(found.values()):
        if file.packing and file.origin is not None and file.origin in plain:
            repeated.append((file.path, plain[file.origin].path))
            del found[file.fingerprint]
    groups: dict[str, list[CaptureFile]] = defaultdict(list)
    for file in found.values():
        groups[series_name(file.path)].append(file)
    series = (Series(name, in_order(files)) for name, files in sorted(groups.items()))
    return Inventory(tuple(series), tuple(refused), tuple(repeated), tuple(passed_over))


def look_at(path: str) -> CaptureFile:
    """Return the facts about one capture.

    Raises:
        CaptureError: the file is not a capture, or is damaged before its first frame.
        OSError: the file cannot be opened or read.
    """
    with opened(path) as source:
        file, size_bytes = source
        magic = file.read(4)
        file.seek(0)
        with unpacked(file, path) as (plain, name):
            form = "pcapng" if plain.peek(4)[:4] == PCAPNG else "pcap"
            if form == "pcapng":
                reader = PcapngReader(plain, name)
                first = next(reader.frames(), None)
                section = Section(reader.section.order)
            else:
                section = read_head(plain, name)
                first = next(read_records(plain, section, name), None)
        packing = "gzip" if magic.startswith(GZIP) else "zstd" if magic == ZSTANDARD else ""
        return CaptureFile(
            path=path,
            size_bytes=size_bytes,
            form=form,
            packing=packing,
            fingerprint=_fingerprint(path, source),
            section=section,
            start=0 if form == "pcapng" else FILE_HEADER_BYTES,
            first_ns=within(first.time_ns) if first is not None else None,
            unpacked_bytes=packed_size(file) if packing else size_bytes,
        )


def frames_in(path: str, dropped: Dropped | None = None) -> Iterator[Frame]:
    """Yield the frames of a file or an object, one by one.

    Args:
        dropped: records what the file says about dropped frames, if given.

    Raises:
        CaptureError: the file is damaged; all frames before the damage have been yielded.
        OSError: the file or object cannot be opened or read.
    """
    with opened(path) as source:
        for frame in read_frames(source.file, path, dropped):
            yield frame if abs(frame.time_ns) < TIME_LIMIT_NS else frame._replace(time_ns=0)


def continued(file: CaptureFile) -> dict[int, Interface]:
    """Return, keyed by number, the interfaces that continue those of an earlier section of a pcapng file.

    This reads all its frames.
    """
    found: dict[int, Interface] = {}
    with (
        suppress(CaptureError, OSError),
        opened(file.path) as source,
        unpacked(source.file, file.path) as (plain, name),
    ):
        reader = PcapngReader(plain, name)
        found = reader.continued
        for _ in reader.frames():
            pass
    return found


def readable_frames(files: Iterable[CaptureFile]) -> Iterator[Frame]:
    """Yield the frames of a series as far as its files can be read.

    The readers of these files report any damage.
    """
    for file in files:
        with suppress(CaptureError, OSError):
            yield from frames_in(file.path)


def is_changed(file: CaptureFile) -> bool:
    """Whether the file has changed or is gone."""
    try:
        return look_at(file.path).fingerprint != file.fingerprint
    except (OSError, CaptureError):
        return True


@contextmanager
def mapped(file: CaptureFile, low: int = 0, high: int = sys.maxsize) -> Iterator[Mapped]:
    """Map a capture into memory as far as it is needed; a packed one is unpacked to a temporary file.

    The mapping ends with the last array that uses it; closing it earlier would be an error.

    Args:
        low, high: the range of bytes needed. If an object is not packed, only this range is fetched.

    Raises:
        CaptureError: the file is shorter than it was.
        OSError: it cannot be opened or read, or the disk has no room for the unpacked data.
    """
    with opened(file.path) as source:
        if source.size_bytes < file.size_bytes:
            reason = f"the file had {file.size_bytes} bytes and has {source.size_bytes} now; analyse it again"
            raise CaptureError(file.path, source.size_bytes, reason)
        if not file.packing:
            high = min(high, file.size_bytes) if is_remote(file.path) else file.size_bytes
            yield Mapped(memory_of(file.path, source, file.size_bytes, low, high), None, high)
            return
        with tempfile.TemporaryFile() as target:
            damage = _unpack(source.file, file.path, target)
            data = mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ)
            yield Mapped(data, damage, len(data))


def in_order(files: Iterable[CaptureFile]) -> tuple[CaptureFile, ...]:
    """Return the files of a series in the order of their first frames.

    Files whose first frames have the same time are sorted by name.
    """
    return tuple(sorted(files, key=lambda file: order_in_series(file.path, file.first_ns)))


def captures_at(folder: str) -> Iterator[str]:
    """Yield the files in a folder and its subfolders that are captures by name or by their first bytes."""
    for path, _ in files_at(absolute(folder)):
        with suppress(OSError):  # It may be gone again.
            if _looks_like_capture(path):
                yield path


def _looks_like_capture(path: str) -> bool:
    if CAPTURE_NAME.search(path):
        return True
    try:
        with opened(path) as source:
            begin = source.file.read(4)
    except (CaptureError, FileNotFoundError):
        return False  # Reading a pipe would wait for its writer, and a link may lead nowhere.
    return any(begin.startswith(magic) for magic in MAGICS)


def _fingerprint(path: str, source: Opened) -> str:
    digest = hashlib.blake2b(str(source.size_bytes).encode(), digest_size=16)
    last = max(0, source.size_bytes - SAMPLE_BYTES)
    places = [last * number // (SAMPLE_COUNT - 1) for number in range(SAMPLE_COUNT if last else 1)]
    for piece in pieces(path, source, places, SAMPLE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _unpack(source: BinaryIO, path: str, target: BinaryIO) -> CaptureError | None:
    """Write everything that can be unpacked to `target`.

    Return the damage that ended the unpacking early; None if there was none.
    """
    damage = None
    with unpacked(source, path) as (plain, _):
        try:
            # read1 returns the bytes before any damage; read would lose them.
            while piece := plain.read1(UNPACKED_PIECE_BYTES):
                target.write(piece)
        except CaptureError as error:
            damage = error
    target.flush()
    return damage
