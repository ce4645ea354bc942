"""Files that one sniffer wrote one after another, recognized by their names.

A sniffer that runs for days begins a new file when one is large or old enough, and connections continue from one
file into the next. Such files are a *series*. They are in one folder, and their names differ only in what tools add:

- dumpcap, tshark and editcap: a number and a time, `name_00001_20261122083000.pcapng`, or the time first;
- tcpdump -C, with or without -W: a number at the end, `name.pcap`, `name.pcap1`, `name.pcap02`;
- tcpdump -G: any date and time from strftime, `name-2026-11-22_08:30:00.pcap`, `name-1795336200.pcap`.

A plain number in a name (`node-1.pcap`) may instead name a place where the same packets were captured again.
The files of a series are ordered by their first frames, then by the numbers in their names.
"""

from __future__ import annotations

import os
import re
from typing import Final

_DATE: Final = r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d"
_TIME: Final = r"[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-6]\d)?"
_STAMP: Final = rf"(?:{_DATE}(?:[-_.T ]?{_TIME})?Z?|1\d{{9}})"
_ROTATED: Final = re.compile(
    rf"^(?P<name>.*?)(?:[-_.]?\d{{5}}[-_.]{_STAMP}|[-_.]?{_STAMP}[-_.]\d{{5}}|[-_.]?{_STAMP})$"
)
_PACKED: Final = re.compile(r"\.(?:gz|zst)$", re.IGNORECASE)
_COUNTED: Final = re.compile(r"^(?P<name>.+\.(?:pcap|pcapng|cap|dmp))\d+$", re.IGNORECASE)


def series_name(path: str) -> str:
    """Return the path of a file without the parts that tools add to the names of a series."""
    folder, name = os.path.split(path)
    name = unpacked_name(name)
    counted = _COUNTED.match(name)
    stem, suffix = os.path.splitext(counted["name"] if counted else name)
    rotated = _ROTATED.match(stem)
    return os.path.join(folder, (rotated["name"] if rotated else stem) + suffix)


def unpacked_name(path: str) -> str:
    """Return the name of a file before gzip or zstd packed it."""
    return _PACKED.sub("", path)


def order_in_series(path: str, first_ns: int | None) -> tuple[bool, int, list[tuple[int, str]]]:
    """Return the sort key for files of a series. Files without a frame come last, where they break no connection.

    Args:
        first_ns: the time of the file's first frame.
    """
    parts = re.findall(r"\d+|\D+", os.path.basename(path))
    name = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return first_ns is None, first_ns or 0, name
