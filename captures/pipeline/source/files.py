"""What a job reads: capture files, the series they form, and the ranges that they are read in.

Which files are a series is said by their names (mqproto.captures.files.series). A user who knows better says which
files belong together.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
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
from mqproto.captures.files.pcapng import PcapngReader, Section
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
"""By how many samples a file is known, and by its size: they are spread evenly from its first to its last byte."""
UNPACKED_PIECE_BYTES: Final = 1 << 20

CAPTURE_NAME: Final = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.(gz|zst))?$", re.IGNORECASE)
"""Names that only captures have: in a folder, such a file is refused if it is none, and others are passed over."""


class Origin(NamedTuple):
    """A file before it was packed: its path, when its first frame was caught, and its size modulo 2**32."""

    path: str
    first_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """What a task has to know of a capture to read some of it.

    size_bytes: of the file as it lies there; what is added later is not read.
    form: "pcap" or "pcapng", of what is packed too.
    packing: "", "gzip" or "zstd".
    fingerprint: 32 hexadecimal digits that name the file by its content.
    section: what is known at `start`: of pcap all there is, of pcapng the byte order.
    start: where the first record or block stands, in the unpacked file.
    first_ns: when its first frame was caught; None if it has none.
    unpacked_bytes: `size_bytes`; of what is packed what it says that it unpacks to, modulo 2**32, None if it does not.
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
        """By what a capture is known that somebody packed after it was read; None if that cannot be said."""
        if self.first_ns is None or self.unpacked_bytes is None:
            return None
        name = unpacked_name(self.path) if self.packing else self.path
        return Origin(name, self.first_ns, self.unpacked_bytes % 2**32)

    @property
    def where(self) -> str:
        """The file as errors name it."""
        return f"{self.path} (unpacked)" if self.packing else self.path


@dataclass(frozen=True, slots=True)
class Series:
    """The files of one capture, in its order."""

    name: str
    files: tuple[CaptureFile, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found at the paths of a job.

    refused: files that cannot be opened, or of which not one frame can be read before something is wrong.
    repeated: files whose content another one has too, each with that one, which is read.
    passed_over: files in folders that neither begin nor are named as captures.
    """

    series: tuple[Series, ...]
    refused: tuple[CaptureError, ...] = ()
    repeated: tuple[tuple[str, str], ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def files(self) -> Iterator[CaptureFile]:
        """All that are read."""
        return (file for series in self.series for file in series.files)


class Range(NamedTuple):
    """The records of a capture that begin from `low` on and before `high`.

    high: of the last range where the file ends; of what is packed, beyond any end.
    section: what is known at `low`, if a record is known to begin there. None: the first one is looked for.
    """

    file: CaptureFile
    low: int
    high: int
    section: Section | None


class Mapped(NamedTuple):
    """A capture as a task reads it.

    data: the file; of what is packed, all that it unpacks to.
    damage: what ended the unpacking before the end.
    until: up to where its bytes are there; what lies behind that, in an object that was fetched in part, is zeros.
    """

    data: mmap.mmap
    damage: CaptureError | None
    until: int


def inventory(paths: Iterable[str]) -> Inventory:
    """The captures at `paths`: files, and all that lie in folders and the folders in those.

    Their paths are made absolute, as those who read them work in other folders, and at other times.
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
    """What is to be known of one capture.

    Raises:
        CaptureError: it is none, or not one frame can be read before something is wrong.
        OSError: it cannot be opened or read.
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


def frames_in(path: str) -> Iterator[Frame]:
    """Every frame of a file or an object, one by one.

    Raises:
        CaptureError: at the first damage; the frames before it have been yielded.
        OSError: it cannot be opened or read.
    """
    with opened(path) as source:
        for frame in read_frames(source.file, path):
            yield frame if abs(frame.time_ns) < TIME_LIMIT_NS else frame._replace(time_ns=0)


def continued(file: CaptureFile) -> dict[int, Interface]:
    """By their numbers, interfaces that go on from an earlier section of a pcapng; all its frames are read for it."""
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
    """The frames of a series as far as its files can be read: what is wrong with one is told where it is read."""
    for file in files:
        with suppress(CaptureError, OSError):
            yield from frames_in(file.path)


def is_changed(file: CaptureFile) -> bool:
    """Whether there is something else now where it was, or nothing."""
    try:
        return look_at(file.path).fingerprint != file.fingerprint
    except (OSError, CaptureError):
        return True


def ranges(file: CaptureFile, range_bytes: int = RANGE_BYTES) -> list[Range]:
    """A capture cut into ranges of one size, at most `range_bytes`, so that all tasks take as long.

    What is packed can only be read from its beginning, and is one.
    """
    if file.packing:
        return [Range(file, file.start, sys.maxsize, file.section)]
    size_bytes = file.size_bytes - file.start
    count = max(1, math.ceil(size_bytes / range_bytes))
    cuts = [*range(file.start, file.size_bytes, max(1, math.ceil(size_bytes / count))), file.size_bytes]
    return [
        Range(file, low, high, file.section if low == file.start else None) for low, high in pairwise(cuts)
    ]


@contextmanager
def mapped(file: CaptureFile, low: int = 0, high: int = sys.maxsize) -> Iterator[Mapped]:
    """A capture in memory as far as it is looked at; what is packed is unpacked to a file that is gone afterwards.

    The mapping ends with the last array that looks into it; closing it before would be an error.

    Args:
        low, high: what is looked at; of an object nothing else is fetched, unless it is packed.

    Raises:
        CaptureError: the file is shorter than it was.
        OSError: it cannot be opened or read, or the disk has no room for what it unpacks to.
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
    """The files of a series by their first frames, and by their names where these are of one time."""
    return tuple(sorted(files, key=lambda file: order_in_series(file.path, file.first_ns)))


def captures_at(folder: str) -> Iterator[str]:
    """The files in a folder, and in the folders in it, that are captures by their names or by how they begin."""
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
    """Everything that can be unpacked, written to `target`; and what is wrong behind it."""
    damage = None
    with unpacked(source, path) as (plain, _):
        try:
            # read1 gives what there is before it meets damage; read would lose it.
            while piece := plain.read1(UNPACKED_PIECE_BYTES):
                target.write(piece)
        except CaptureError as error:
            damage = error
    target.flush()
    return damage
