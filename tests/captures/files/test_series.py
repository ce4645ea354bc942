"""The files that one sniffer wrote in succession are recognized as such."""

from __future__ import annotations

import pytest

from mqproto.captures.files.series import series_name


@pytest.mark.parametrize(
    "names",
    [
        # dumpcap -b, in both orders
        ["net_00001_20261122083000.pcapng", "net_00002_20261122084000.pcapng"],
        ["net_20261122083000_00001.pcapng", "net_20261122084000_00002.pcapng"],
        # tcpdump -C, and with -W
        ["net.pcap", "net.pcap1", "net.pcap2", "net.pcap10"],
        ["net.pcap00", "net.pcap01"],
        # tcpdump -G with several formats
        ["net-2026-11-22_08:30:00.pcap", "net-2026-11-22_09:30:00.pcap"],
        ["net.2026-11-22T083000Z.pcap", "net.2026-11-22T093000Z.pcap"],
        ["net-20261122.pcap", "net-20261123.pcap"],
        ["net-1795336200.pcap", "net-1795339800.pcap"],
        ["20261122083000.pcap", "20261122084000.pcap"],
        # and what packs them when they are full
        ["net_00001_20261122083000.pcapng.gz", "net_00002_20261122084000.pcapng.zst"],
    ],
)
def test_what_rotating_sniffers_write_is_one_series(names: list[str]) -> None:
    assert len({series_name(f"folder/{name}") for name in names}) == 1


@pytest.mark.parametrize(
    "names",
    [
        ["node-1.pcap", "node-2.pcap"],
        ["10.0.0.1.pcap", "10.0.0.2.pcap"],
        ["net.pcap", "net.pcapng"],
        ["here/net.pcap1", "there/net.pcap2"],
        ["one_00001_20261122083000.pcapng", "two_00002_20261122084000.pcapng"],
    ],
)
def test_captures_of_several_places_are_not(names: list[str]) -> None:
    assert len({series_name(name) for name in names}) == len(names)
