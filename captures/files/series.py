"""Files that one sniffer wrote one after the other, known by their names.

A sniffer that runs for days begins a new file when one is large or old enough, and connections go on from one file into
the next. Such files are a *series*. They lie in one folder, and their names differ only in what these tools put in:

- dumpcap, tshark and editcap, a number and a time: `name_00001_20261122083000.pcapng`, or the time first;
- tcpdump -C, with or without -W, a number behind everything: `name.pcap`, `name.pcap1`, `name.pcap02`;
- tcpdump -G, whatever strftime writes of date and time: `name-2026-11-22_08:30:00.pcap`, `name-1795336200.pcap`.

A plain number in a name (`node-1.pcap`) may as well tell places apart, where the same packets were caught twice.
The order within a series is that of the first frames, then that of the numbers in the names.
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
    """The path of a file without what the tools listed above put into the names of a series."""
    folder, name = os.path.split(path)
    name = unpacked_name(name)
    counted = _COUNTED.match(name)
    stem, suffix = os.path.splitext(counted["name"] if counted else name)
    rotated = _ROTATED.match(stem)
    return os.path.join(folder, (rotated["name"] if rotated else stem) + suffix)


def unpacked_name(path: str) -> str:
    """What a file was called before gzip or zstd packed it."""
    return _PACKED.sub("", path)


def order_in_series(path: str, first_ns: int | None) -> tuple[bool, int, list[tuple[int, str]]]:
    """By what the files of a series are put in order. Files without a frame come last, where they break no connection.

    Args:
        first_ns: the time of its first frame.
    """
    parts = re.findall(r"\d+|\D+", os.path.basename(path))
    name = [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
    return first_ns is None, first_ns or 0, name
