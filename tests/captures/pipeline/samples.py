"""The samples, frame by frame."""

from __future__ import annotations

import re
from pathlib import Path

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
FRAMES = {path.stem: list(read_capture(path)) for path in sorted(SAMPLES.glob("*.pcapng"))}
SHORT = [name for name, frames in FRAMES.items() if len(frames) < 150]

BEGIN_NS = 1_700_000_000 * 10**9
HOUR_NS = 3_600 * 10**9


def elsewhere(name: str, folder: Path, system: int = 1) -> Path:
    """Write a sample as if it came from another system that ran at the same time. Return the file's path."""
    path = folder / f"{name}-elsewhere.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as capture:
        for frame in FRAMES[name]:
            capture.write(renamed(frame, system))
    return path


def in_one_laboratory(name: str) -> list[Frame]:
    """Return a sample as if all samples were runs in one laboratory.

    They then have the same queue managers, but different messages.
    """
    return [
        frame._replace(
            data=re.sub(rb"[0-9]+_([a-z]+)\.*", lambda own: own[1].ljust(len(own[0]), b"."), frame.data),
            time_ns=BEGIN_NS + (frame.time_ns - BEGIN_NS) % HOUR_NS,
        )
        for frame in FRAMES[name]
    ]


def another_run(name: str, folder: Path) -> Path:
    """Write a sample to a file, as one run in the laboratory that all samples share. Return the file's path."""
    path = folder / f"{name}.pcapng"
    with path.open("wb") as file, PcapngWriter(file) as capture:
        for frame in in_one_laboratory(name):
            capture.write(frame._replace(number=0, offset=0))
    return path


def renamed(frame: Frame, system: int = 1) -> Frame:
    """Rename queue managers and their addresses.

    GUIDs contain the names as letters. Each system has new GUIDs, in which these letters are replaced by other capital
    letters.
    """
    capitals = bytes((place + system - 1) % 26 + ord("A") for place in range(26))
    names = bytes.maketrans(bytes(range(ord("a"), ord("z") + 1)), capitals)
    data = re.sub(rb"[a-z]+(?=\.{3,})|(?<=[0-9]_)[a-z]+", lambda found: found[0].translate(names), frame.data)
    # Not flags of acknowledgments: those end in a zero.
    data = re.sub(rb"\x7f\0\0(?=[\x01-\xff])", bytes((127, 0, 8 + system)), data)
    return frame._replace(data=data, number=0, offset=0)
