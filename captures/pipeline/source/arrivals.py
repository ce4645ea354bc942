"""Captures that come to folders, and which of them are complete: the input of a Spark stream.

A sniffer begins a new file when one is large or old enough. So a file of a series is complete when there is a later
one. The last one, and a file outside any series, is complete when nothing has been written to it for a while.

The stream's position is a time of the kernel that keeps the files: everything changed by then has been reported.
It stops before a file that is not complete. After a restart Spark asks again for what lies between two such times,
and gets the same, unless a file was changed since: then that file comes again, later.

Options:
    settleSeconds: a file is complete after this many seconds without a write; 60.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqproto.captures.files.frame import NANOSECONDS
from mqproto.captures.files.series import series_name
from mqproto.captures.pipeline.source.files import captures_at

SETTLE_S: Final = 60
QUIET_NS: Final = NANOSECONDS
"""A file that changed less long ago may be joined by another with the same time, because kernels count in ticks."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file as it is now.

    changed_ns: when it was last written or renamed.
    """

    path: str
    changed_ns: int
    is_complete: bool


def arrivals(folders: Iterable[str], now_ns: int, settle_ns: int) -> list[Arrival]:
    """Return all captures in folders and their subfolders, in the order in which they were changed."""
    changed: dict[str, int] = {}
    for folder in folders:
        for path in captures_at(folder):
            try:
                changed[path] = Path(path).stat().st_ctime_ns
            except FileNotFoundError:
                continue  # A ring buffer has come round.
    last: dict[str, int] = {}
    for path, changed_ns in changed.items():
        name = series_name(path)
        last[name] = max(changed_ns, last.get(name, 0))
    found = [
        Arrival(
            path,
            changed_ns,
            now_ns - changed_ns >= (QUIET_NS if changed_ns < last[series_name(path)] else settle_ns),
        )
        for path, changed_ns in changed.items()
    ]
    return sorted(found, key=lambda arrival: (arrival.changed_ns, arrival.path))


def complete_until(found: Sequence[Arrival], start_ns: int) -> int:
    """Return the latest change time up to which all files are complete; `start_ns` if there is none later."""
    until_ns = start_ns
    for arrival in found:
        if not arrival.is_complete:
            # A file that changed at the same time has to wait, too.
            return min(until_ns, max(start_ns, arrival.changed_ns - 1))
        until_ns = max(until_ns, arrival.changed_ns)
    return until_ns
