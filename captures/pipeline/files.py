"""What a job reads: capture files, the series they form, and the ranges that they are read in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from captures.frame import CaptureError
from captures.pcapng import Section

RANGE_BYTES: Final = 64 << 20


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
    """

    path: str
    size_bytes: int
    form: str
    packing: str
    fingerprint: str
    section: Section
    start: int
    first_ns: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """The files of one capture, in its order: a sniffer begins a new file when one is large or old enough."""

    name: str
    files: tuple[CaptureFile, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found at the paths of a job.

    refused: what is no capture or cannot be opened, each with its file, the byte and the reason.
    repeated: files whose content an earlier one has too, each with that one. They are read once.
    """

    series: tuple[Series, ...]
    refused: tuple[CaptureError, ...]
    repeated: tuple[tuple[str, str], ...]


class Range(NamedTuple):
    """The records of a capture that begin from `low` on and before `high`.

    section: what is known at `low`, if a record is known to begin there. None: the first one is looked for.
    """

    file: CaptureFile
    low: int
    high: int
    section: Section | None
