"""Captures for benchmarks: they are as large as requested, and follow the protocol, so the usual case is measured."""

from __future__ import annotations

import random
from itertools import count, pairwise
from pathlib import Path

from mqproto.captures.decode import Analyst
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import Segment, encode_frame
from mqproto.captures.packets import PacketReader, content_of
from tests.bench.bulk import write_capture


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


def test_every_checksum_is_right_also_where_numbers_wrap(tmp_path: Path) -> None:
    path = tmp_path / "wraps.pcapng"
    # The first number that is drawn is that of the first client's stream.
    seed = next(seed for seed in count() if random.Random(seed).getrandbits(32) > 2**32 - 200_000)
    write_capture(path, 600, connections=1, seed=seed)
    ip = IpReader()
    sequences = []
    for frame in read_capture(path):
        segment = content_of(frame, ip)
        assert isinstance(segment, Segment)
        identification = int.from_bytes(frame.data[18:20], "big")
        assert encode_frame(segment, identification) == frame.data
        if segment.destination.port == 1801:
            sequences.append(segment.sequence_number)
    assert any(after < before for before, after in pairwise(sequences))
