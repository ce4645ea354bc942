"""Finds new captures in folders and determines which are complete, as the input of a Spark stream.

A sniffer begins a new file when the current one is large or old enough. So a file of a series is complete when there is
a later one. The last file of a series, and a file outside any series, is complete when nothing has been written to it
for a while.

A file is identified by the first MiB of its unpacked content and its unpacked size. If more is written to a file that
counted as complete, it counts as another file, and is returned again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqproto.captures.files.frame import NANOSECONDS, CaptureError
from mqproto.captures.files.pcap import unpacked
from mqproto.captures.files.series import order_in_series, series_name
from mqproto.captures.pipeline.source.files import captures_at, look_at
from mqproto.captures.pipeline.source.storage import opened

SETTLE_S: Final = 60
QUIET_NS: Final = NANOSECONDS
"""A file whose last change is more recent than this may change again unnoticed.

The reason is that kernels count time in ticks. The value is in nanoseconds.
"""
HEAD_BYTES: Final = 1 << 20
KEPT: Final = 1 << 16
"""The number of files to remember, so that they are examined again only if they change."""


class Arrival(NamedTuple):
    """The current state of a file.

    content: 16 hexadecimal digits that identify its unpacked content.
    changed_ns: the time at which it was last changed, renamed or moved.
    """

    path: str
    content: str
    changed_ns: int
    is_complete: bool


def arrivals(folders: Iterable[str], now_ns: int, settle_ns: int) -> list[Arrival]:
    """Return all captures in folders and their subfolders, ordered by the time of their last change."""
    changed: dict[str, int] = {}
    contents: dict[str, str] = {}
    series: defaultdict[str, list[tuple[Any, str]]] = defaultdict(list)
    for path in (path for folder in folders for path in captures_at(folder)):
        with suppress(FileNotFoundError):  # A ring buffer has come round.
            now = Path(path).stat()
            contents[path], first_ns = _look(path, now.st_ctime_ns, now.st_size)
            changed[path] = now.st_ctime_ns
            series[series_name(path)].append((order_in_series(path, first_ns), path))
    complete: dict[str, bool] = {}
    for files in series.values():
        later_ns = 0
        for _, path in sorted(files, reverse=True):
            # An earlier file may change later, as when it is packed: that says nothing about this one.
            quiet_ns = QUIET_NS if changed[path] < later_ns else settle_ns
            complete[path] = now_ns - changed[path] >= quiet_ns
            later_ns = max(later_ns, changed[path])
    return [
        Arrival(path, contents[path], changed[path], complete[path])
        for path in sorted(changed, key=lambda path: (changed[path], path))
    ]


@lru_cache(KEPT)
def _look(path: str, _changed_ns: int, _size_bytes: int) -> tuple[str, int | None]:
    """Return the identity of a file's content and the time of its first frame."""
    first_ns, stated, head, count = None, None, b"", 0
    with suppress(CaptureError, PermissionError):
        file = look_at(path)
        first_ns, stated = file.first_ns, file.unpacked_bytes
    with (
        suppress(CaptureError, PermissionError),
        opened(path) as source,
        unpacked(source.file, path) as (plain, _),
    ):
        while piece := plain.read1(HEAD_BYTES):
            head += piece[: HEAD_BYTES - len(head)]
            count += len(piece)
            # Several packed files that were joined state too little.
            if len(head) == HEAD_BYTES and stated is not None and count <= stated:
                count = stated
                break
    return blake2b(head + (count % 2**32).to_bytes(4), digest_size=8).hexdigest(), first_ns
