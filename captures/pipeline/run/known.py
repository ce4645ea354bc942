"""Decides which files to read now, given the files that earlier runs have read."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from mqproto.captures.files.frame import CaptureError
from mqproto.captures.net.taps import Half, Taps
from mqproto.captures.pipeline.reading.growth import FORM, Growth
from mqproto.captures.pipeline.reading.halves import Halves
from mqproto.captures.pipeline.source.files import (
    CaptureFile,
    Origin,
    Series,
    in_order,
    is_changed,
    look_at,
    readable_frames,
)
from mqproto.captures.pipeline.stages.tasks.buckets import PacketPart, StreamPart
from mqproto.captures.pipeline.tables.kept import saved
from mqproto.captures.pipeline.tables.parts import Store


@dataclass(slots=True)
class Known:
    """The state of a series in the tables.

    files: the paths of the files, keyed by fingerprint.
    origins: values that identify the files if they have been packed since then.
    packets: the series' parts of the table of packets. For each part, they are its name, its number of rows, and its
        number of packets. The last part is `end`.
    end: the part with rows that only the end of the series reveals; "" if there is none.
    captures: the series' parts of the table of captures.
    streams, open_streams: the series' parts of the table of streams: for streams that are over, and for streams that
        may continue.
    damage: file, offset and reason of each damage.
    form: the form of the saved data; see mqproto.captures.pipeline.reading.growth.
    growth, connections: the files with the Growth and the connections of the series.
    open_pairs: the files with open pairs.
    one_way: whether the first frames have only one direction of each connection.
    halves: if this series joins the two halves of a TAP, the series that are the halves.
    translated: texts about connections that repeat others behind address translation.
    conflicts: findings about frames that contradict one another, each as its code and its text.
    """

    files: dict[str, str] = field(default_factory=dict)
    packets: list[tuple[str, int, int]] = field(default_factory=list)
    end: str = ""
    captures: list[str] = field(default_factory=list)
    is_lossy: bool = False
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    form: int = 0
    growth: str = ""
    connections: str = ""
    open_pairs: list[str] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    open_streams: list[str] = field(default_factory=list)
    one_way: bool = False
    halves: list[str] = field(default_factory=list)
    translated: list[str] = field(default_factory=list)
    conflicts: list[list[str]] = field(default_factory=list)

    @property
    def saved(self) -> set[str]:
        """The names of all parts that are replaced when the series grows."""
        end = [self.end] if self.end else []
        return {self.growth, self.connections, *self.open_pairs, *self.open_streams, *end}

    @property
    def part_names(self) -> set[str]:
        """The names of all parts of the series."""
        return {*self.captures, *self.streams, *self.saved, *(name for name, _, _ in self.packets)}

    def packet_parts(self, series: str, new: Container[str], store: Store) -> Iterator[PacketPart]:
        """Yield the parts of packets in order.

        Args:
            new: the names of the parts that this run has written.
        """
        rows_before = framed_before = 0
        for name, rows, framed in self.packets:
            is_new, is_end = name in new, name == self.end
            path = store.path(name)
            yield PacketPart(path, series, rows, framed, rows_before, framed_before, is_new, is_end)
            rows_before, framed_before = rows_before + rows, framed_before + framed

    def stream_parts(self, series: str, new: Container[str], store: Store) -> Iterator[StreamPart]:
        """Yield the parts of streams; arguments as for `packet_parts`."""
        for names, is_open in ((self.streams, False), (self.open_streams, True)):
            for name in names:
                yield StreamPart(store.path(name), series, name in new, is_open)


class ToRead(NamedTuple):
    """A series with files to read.

    growth: the state of the series after its first files, which are not read again; None if all are read.
    known: the state of the series in the tables; None if the series is new.
    halves: the files of each half, if the series consists of the halves of a TAP; see
        mqproto.captures.pipeline.run.pairing.
    replaces: the series that this one replaces.
    one_way: as in Known.
    """

    series: Series
    growth: Growth | None
    known: Known | None
    halves: Halves | None = None
    replaces: tuple[str, ...] = ()
    one_way: bool = False


def to_read(series: Series, known: Mapping[str, Known], store: Store) -> ToRead:
    """Decide how to read a series with new files.

    New files are read after the files of earlier runs. If their frames are not later, all files are read again. But if
    some of the earlier files no longer exist, the new ones become a separate series, which later files may join. All
    files are also read again if only the new ones reveal a TAP.

    Args:
        store: the store of the tables.
    """
    names: list[str] = []
    name = series.name
    while name in known:
        names.append(name)
        name = f"{series.name} ({len(names) + 1})"
    if not names:
        return ToRead(series, None, None)
    earlier = known[names[-1]]
    is_read = reads([known[each] for each in names])
    new = in_order(file for file in series.files if not is_read(file))
    replaced: set[str] = set()
    if earlier.form == FORM:
        growth = saved(store.path(earlier.growth), Growth)
        # The same file, to which more has been written since.
        begun = {(file.path, file.first_ns): file.fingerprint for file in growth.files}
        replaced = {begun[key] for file in new if (key := (file.path, file.first_ns)) in begun}
        if not replaced and in_order([*growth.files, *new])[: len(growth.files)] == growth.files:
            grown = Series(names[-1], (*growth.files, *new))
            return ToRead(grown, None if _has_other_taps(growth, grown) else growth, earlier)
    files = {file.fingerprint: file for file in new}
    for path in earlier.files.values():
        with suppress(OSError, CaptureError):
            file = look_at(path)
            files[file.fingerprint] = file
    if earlier.files.keys() - replaced <= files.keys():
        return ToRead(Series(names[-1], in_order(files.values())), None, earlier)
    return ToRead(Series(name, new), None, None)


def halves_of(files: Iterable[CaptureFile]) -> dict[int, Half]:
    """Return the interfaces of TAPs, as the first frames of a series show them."""
    taps = Taps()
    taps.look(readable_frames(files))
    return taps.halves


def _has_other_taps(growth: Growth, grown: Series) -> bool:
    """Whether files of earlier runs must now be read with other TAPs, and all of these files still exist."""
    if not growth.range_count or halves_of(grown.files) == growth.halves:
        return False
    return not any(is_changed(file) for file in growth.files)


def reads(entries: Iterable[Known]) -> Callable[[CaptureFile], bool]:
    """Return a function that tells whether these series contain a file.

    Files are compared by content, even if a file was packed later.
    """
    every = list(entries)
    fingerprints = {fingerprint for each in every for fingerprint in each.files}
    origins = {Origin(*origin) for each in every for origin in each.origins}
    return lambda file: file.fingerprint in fingerprints or bool(file.packing and file.origin in origins)
