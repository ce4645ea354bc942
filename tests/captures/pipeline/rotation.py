"""Helpers that write rotating captures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from mqproto.captures import spoil
from mqproto.captures.files.frame import NANOSECONDS, Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from tests.bench.bulk import write_capture

FRAMES_PER_FILE = 120


def in_files(folder: Path, frames: Sequence[Frame], cuts: Sequence[int]) -> list[Path]:
    """Write a rotating capture, which is a series of files. Return the files' paths."""
    edges = [0, *sorted(cut % (len(frames) + 1) for cut in cuts), len(frames)]
    paths = []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        path = folder / f"run_{number:05d}_20261122083000.pcapng"
        with path.open("wb") as file, PcapngWriter(file) as capture:
            for frame in frames[start:end]:
                capture.write(frame)
        paths.append(path)
    return paths


def rotation(folder: Path, count: int) -> list[Path]:
    """Write a capture as `count` files of one minute each. It has late, repeated and lost frames."""
    folder.mkdir()
    whole = folder / "whole.pcapng"
    write_capture(whole, count * FRAMES_PER_FILE, connections=5)
    spoilt = spoil.lost(spoil.repeated(spoil.delayed(read_capture(whole), 3), 2), 0.5)
    frames = [frame._replace(number=0, offset=0) for frame in spoilt]
    whole.unlink()
    size, began_ns = -(-len(frames) // count), frames[0].time_ns
    paths = []
    for number in range(count):
        begins = datetime(2026, 11, 22, 8, 30) + timedelta(minutes=number)
        path = folder / f"run_{number:05d}_{begins:%Y%m%d%H%M%S}.pcapng"
        with path.open("wb") as file, PcapngWriter(file) as capture:
            for at, frame in enumerate(frames[size * number : size * (number + 1)], size * number):
                capture.write(frame._replace(time_ns=began_ns + at * 60 * NANOSECONDS // size))
        paths.append(path)
    return paths
