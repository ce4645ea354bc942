"""The samples, frame by frame."""

from __future__ import annotations

from captures.files.pcap import read_capture
from tests.conformance import ROOT

SAMPLES = ROOT / "captures" / "samples"
FRAMES = {path.stem: list(read_capture(path)) for path in sorted(SAMPLES.glob("*.pcapng"))}
SHORT = [name for name, frames in FRAMES.items() if len(frames) < 150]
