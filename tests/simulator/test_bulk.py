"""Captures for benchmarks: as large as was asked for, and by the book, so that what is measured is the usual case."""

from __future__ import annotations

from pathlib import Path

from captures.decode import Analyst
from captures.packets import PacketReader
from captures.pcap import read_capture
from simulator.bulk import write_capture


def test_a_capture_in_bulk_is_by_the_book(tmp_path: Path) -> None:
    path = tmp_path / "bulk.pcapng"
    written = write_capture(path, 2_000, connections=5)
    reader = PacketReader(read_capture(path))
    analyst = Analyst()

    findings = [finding for packet in reader for finding in analyst.take(packet).findings]
    findings += analyst.finish(lossless=True)

    assert findings == []
    assert reader.totals.packets == written >= 2_000
    assert reader.totals.connections == 5
    assert reader.totals.packet_bytes == reader.totals.stream_bytes


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_capture(one, 500, connections=2)
    write_capture(two, 500, connections=2)
    assert one.read_bytes() == two.read_bytes()
