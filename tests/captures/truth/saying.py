"""What `decode` and `analyse` say about frames, in their own words: packets, findings, and outcomes of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqproto.captures.decode import Analyst, Finding, Follower, History, Severity, Sight
from mqproto.captures.decode.ways import Ways
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.merging import merged, series_of
from mqproto.captures.packets import PacketReader, Totals
from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.report.counts.messages import Sought
from mqproto.captures.pipeline.report.gather import find
from mqproto.captures.pipeline.report.summary import story_as_json
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.tables.tables import Tables

RANGE_BYTES = 1 << 16


@dataclass
class Decoded:
    """The results of `mqproto decode`: the packets with their findings, the findings at the end, and the totals."""

    sights: list[Sight]
    last: list[Finding]
    totals: Totals
    lacking: Ways

    @property
    def findings(self) -> list[Finding]:
        """All findings: those about packets, and those at the end."""
        return [finding for sight in self.sights for finding in sight.findings] + self.last

    @property
    def faults(self) -> list[Finding]:
        """The findings that are accusations."""
        return [finding for finding in self.findings if finding.severity is Severity.FAULT]

    def follow(self, targets: Iterable[str]) -> dict[str, History]:
        """Return what --follow says about messages; those that it does not find are left out."""
        found = {}
        for target in targets:
            follower = Follower(target, Analyst().names)
            for sight in self.sights:
                follower.take(sight)
            follower.settle(self.lacking)
            for history in follower.histories.values():
                found[target] = history
        return found


def decoded(files: Sequence[Sequence[Frame]]) -> Decoded:
    """Return what `mqproto decode` says about files with these frames."""
    reader = PacketReader(frame._replace(number=number) for number, frame in enumerate(in_order(files), 1))
    analyst = Analyst()
    sights = [analyst.take(packet) for packet in reader]
    lossless, found = reader.totals.is_complete, reader.translations.found
    conflicts = reader.totals.conflicts
    last = list(analyst.finish(lossless=lossless, ends=reader.ends, translations=found, conflicts=conflicts))
    return Decoded(sights, last, reader.totals, analyst.lacking)


class Series(list[list[Frame]]):
    """The files of one sniffer that began a new file from time to time.

    They may be in any order; their names show the right one.
    """


def names_of(files: Sequence[Sequence[Frame]]) -> list[str]:
    """Return names for files. In a series, a name shows the file's first frame; otherwise, it shows the file's
    place.
    """
    if isinstance(files, Series):
        return [f"run_{file[0].number:05d}_20261122083000.pcapng" for file in files]
    return [f"{place}.pcapng" for place in range(len(files))]


def in_pieces(frames: Sequence[Frame], count: int) -> Series:
    """Return a capture as a series of files."""
    size = -(-len(frames) // count)
    return Series([list(frames[at : at + size]) for at in range(0, len(frames), size)])


def is_one_sniffers(series: Series) -> bool:
    """Whether all files have the same interfaces, in the same order, and begin one after another.

    The files of one sniffer do. A clock that is put back by an hour changes the order of the files.
    """
    orders = [tuple(dict.fromkeys(frame.interface.number for frame in file)) for file in series]
    begun_ns = [file[0].time_ns for file in series]
    return len(set(orders)) <= 1 and begun_ns == sorted(begun_ns)


def in_order(files: Sequence[Sequence[Frame]]) -> list[Frame]:
    """Return the frames of all files, with their numbers, in the order in which `decode` shows them.

    The interfaces of a file are in the order of their first frames. For the two halves of a TAP, the clock of the first
    half is used.
    """
    if len(files) == 1:
        places: dict[int, int] = {}
        return [
            frame._replace(
                interface=frame.interface._replace(
                    number=places.setdefault(frame.interface.number, len(places))
                )
            )
            for frame in files[0]
        ]
    numbered = [iter([frame._replace(comment=str(frame.number)) for frame in file]) for file in files]
    captures = [frames for _, frames in series_of(zip(names_of(files), numbered, strict=True))]
    return [frame._replace(number=int(frame.comment)) for frame in merged(captures)]


@dataclass
class Tabled:
    """What the tables say.

    histories: the history of each message, keyed by message.
    findings: how often each finding occurs, keyed by severity, code, frame and text.
    series: the number of captures that the files are taken to be.
    stories: the sentences of each message's story, the verdict first, keyed by message.
    """

    histories: dict[str, dict[str, Any]]
    findings: Counter[tuple[str, str, int | None, str]]
    series: int = 1
    stories: dict[str, list[str]] = field(default_factory=dict)

    @property
    def outcomes(self) -> dict[str, str]:
        """Return each message's outcome."""
        return {message: row["outcome"] for message, row in self.histories.items()}


def written(path: Path, frames: Iterable[Frame]) -> Path:
    """Write a capture file with these frames."""
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for frame in frames:
            writer.write(frame._replace(number=0, offset=0, comment=""))
    return path


def tabled(
    folder: Path, captures: Sequence[Sequence[Frame]], *, runs: int = 1, stories: bool = True
) -> Tabled:
    """Return what `mqproto analyse` says about files that contain these frames.

    Args:
        folder: a folder for all files; it must not exist yet.
        captures: the frames of each file.
        runs: the number of runs, each of which adds a file; more than one only for a single capture.
    """
    folder.mkdir()
    tables = Tables(folder / "tables")
    if runs > 1:
        captures = in_pieces(captures[0], runs)
    paths = [
        str(written(folder / name, each)) for name, each in zip(names_of(captures), captures, strict=True)
    ]
    for some in [[path] for path in paths] if runs > 1 else [paths]:
        analyse(some, tables, LocalEngine(), Wanted(range_bytes=RANGE_BYTES))
    histories = tables.read("histories").to_pylist()
    findings = Counter(
        (row["severity"], row["code"], None if runs > 1 else row["frame"], row["text"])
        for row in tables.read("findings").to_pylist()
    )
    series = len(tables.read("captures").column("series").unique())
    said = Tabled({row["message"]: row for row in histories}, findings, series)
    if stories:
        for row, story in find(tables, Sought(), len(histories)):
            found = story_as_json({}, story)
            said.stories[row["message"]] = [found["verdict"], *(step["what"] for step in found["steps"])]
    return said
