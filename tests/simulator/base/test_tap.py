"""Nodes record what they send and receive; the records of both ends agree, and tcpdump agrees with them."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.files.append import GrowingFile
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import PacketReader, SeenPacket, read_packets
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.base.tap import Tap
from mqproto.simulator.node.node import run_node
from mqproto.simulator.rig.supervisor import capture_of, supervised
from mqproto.simulator.topology import load
from mqproto.wire import Ping, UserMessage, ping_packet
from tests.examples import a_ping
from tests.programs import needs
from tests.simulator.running import Log, running
from tests.simulator.sniffed import exchange, sniffing, three_hosts, until_all_is_acknowledged

Ends: TypeAlias = tuple[Endpoint, Endpoint]


def by_stream(paths: Iterable[Path]) -> dict[Ends, list[bytes]]:
    """Return the packets in captures, in order, keyed by sender and receiver."""
    streams: dict[Ends, list[bytes]] = defaultdict(list)
    for path in paths:
        for packet in read_packets(path):
            streams[packet.source, packet.destination].append(packet.data)
    return streams


def by_stream_of(packets: Iterable[SeenPacket], host: str) -> dict[Ends, list[SeenPacket]]:
    """Return the packets that one host sent or received, in order, keyed by sender and receiver."""
    streams: dict[Ends, list[SeenPacket]] = defaultdict(list)
    for packet in packets:
        if host in (packet.source.host, packet.destination.host):
            streams[packet.source, packet.destination].append(packet)
    return streams


@pytest.mark.usefixtures("forked_programs")
@needs("tcpdump")
async def test_our_recording_and_that_of_tcpdump_decode_to_the_same_packets(tmp_path: Path) -> None:
    topology = three_hosts()
    capture, sniffed = tmp_path / "run.pcapng", tmp_path / "sniffed.pcap"
    async with (
        sniffing(sniffed, topology, "tcpdump"),
        supervised(topology, tmp_path, capture=capture) as nodes,
    ):
        await exchange(topology, tmp_path, 40)
        await until_all_is_acknowledged(topology, tmp_path)
        settled_ns = time.time_ns()
        for name in nodes.topology.nodes:
            await nodes.stop(name)
    theirs = list(read_packets(sniffed))
    for name, node in topology.nodes.items():
        ours = by_stream([capture_of(capture, name)])
        seen = by_stream_of(theirs, node.host)
        assert len(ours) == len(seen) >= 2
        for ends, packets in seen.items():
            # What comes to a node that stops may never be read by it; our own acknowledgments may be late like that.
            read = ours[ends]
            assert [packet.data for packet in packets[: len(read)]] == read
            assert all(packet.time_ns >= settled_ns for packet in packets[len(read) :])


@pytest.mark.usefixtures("forked_programs")
async def test_both_ends_of_a_connection_record_the_same_whatever_is_killed(tmp_path: Path) -> None:
    """The file of a killed node has all of its turns, except perhaps the last; it continues when the node is back."""
    topology = three_hosts()
    capture = tmp_path / "run.pcapng"
    async with supervised(topology, tmp_path, capture=capture) as nodes:
        await exchange(topology, tmp_path, 10)
        await nodes.kill("intermediate")
        await nodes.start("intermediate")
        await exchange(topology, tmp_path, 10)
    paths = {name: capture_of(capture, name) for name in topology.nodes}
    middle = by_stream([paths["intermediate"]])
    outer = by_stream([paths["sender"], paths["destination"]])
    # Who is killed or stopped may leave unread what somebody else has sent, even all that a connection brought.
    killed = topology.nodes["intermediate"].host
    assert all(source.host != killed for source, _ in set(outer) - set(middle))
    assert all(source.host == killed for source, _ in set(middle) - set(outer))
    assert len(set(outer) & set(middle)) >= 8  # both ways at both of its links, before the kill and after it
    for ends in set(outer) & set(middle):
        shared = min(len(outer[ends]), len(middle[ends]))
        assert outer[ends][:shared] == middle[ends][:shared]
    assert sum(isinstance(packet.packet, UserMessage) for packet in read_packets(paths["destination"])) >= 20
    for path in paths.values():
        reader = PacketReader(read_capture(path))
        assert all(packet.fault is None for packet in reader)
        assert reader.totals.missing_bytes == reader.totals.retransmission_count == 0
        assert sum(reader.totals.other_frames.values()) == 0
    frames = sorted(
        (frame for path in paths.values() for frame in read_capture(path)), key=lambda frame: frame.time_ns
    )
    merged = tmp_path / "merged.pcapng"
    with merged.open("wb") as file, PcapngWriter(file) as writer:
        for frame in frames:
            writer.write(frame)
    reader = PacketReader(read_capture(merged))
    seen = list(reader)
    assert len(seen) == sum(len(list(read_packets(path))) for path in paths.values())
    assert {packet.interface.name for packet in seen} == set(paths)
    assert (
        reader.totals.missing_bytes == reader.totals.retransmission_count == reader.totals.conflict_count == 0
    )


@pytest.mark.usefixtures("forked_programs")
@needs("tshark")
async def test_tshark_finds_nothing_wrong_with_what_a_node_has_recorded(tmp_path: Path) -> None:
    topology = three_hosts()
    nodes = {
        name: replace(node, settings=replace(node.settings, require_pings=True))
        for name, node in topology.nodes.items()
    }
    topology = replace(topology, nodes=nodes)
    capture = tmp_path / "run.pcapng"
    async with supervised(topology, tmp_path, capture=capture):
        await exchange(topology, tmp_path, 5)
    check_with_tshark(capture_of(capture, "intermediate"))


def check_with_tshark(path: Path) -> None:
    bad = "tcp.analysis.flags || tcp.checksum.status == 0 || udp.checksum.status == 0 || ip.checksum.status == 0"
    checked = [part for name in ("ip", "tcp", "udp") for part in ("-o", f"{name}.check_checksum:TRUE")]
    command = ["tshark", "-n", "-r", str(path), *checked]
    assert subprocess.run([*command, "-Y", bad], capture_output=True, text=True, check=True).stdout == ""
    shown = ["-T", "fields", "-e", "frame.interface_name", "-e", "udp.length"]
    rows = subprocess.run([*command, *shown], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {row.split("\t")[0] for row in rows} == {"intermediate"}
    pings = [row for row in rows if row.split("\t")[1]]
    assert len(pings) >= 4  # there and back, at both of its links


async def test_a_full_disk_stops_the_recording_with_a_line_in_the_log_and_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = load("three-node").with_free_ports()
    capture, log = tmp_path / "full.pcapng", Log()
    write = os.write
    free_bytes = 3_000

    def scarce(descriptor: int, data: bytes) -> int:
        nonlocal free_bytes
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(capture):
            return write(descriptor, data)
        if not free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = data[:free_bytes]
        free_bytes -= len(data)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", scarce)
    async with (
        running(topology, "intermediate", tmp_path),
        running(topology, "destination", tmp_path),
        running(topology, "sender", tmp_path, log, capture=capture),
    ):
        await exchange(topology, tmp_path, 20)
    [line] = log.lines("capture-incomplete")
    assert (line["file"], line["reason"]) == (str(capture), "No space left on device")
    assert 0 < capture.stat().st_size <= 3_000
    assert len(list(read_capture(capture))) > 0


async def test_a_capture_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("Dear diary", "utf-8")
    topology = load("pair").with_free_ports()
    with pytest.raises(UsageError, match=r"diary\.txt is not a pcapng, and is left alone"):
        await run_node(topology, "sender", tmp_path, log=Log(), capture=diary)
    assert diary.read_text("utf-8") == "Dear diary"
    with pytest.raises(
        UsageError, match=r"nowhere/run\.pcapng cannot be written \(No such file or directory\)"
    ):
        await run_node(topology, "sender", tmp_path, log=Log(), capture=tmp_path / "nowhere" / "run.pcapng")


def a_tap(path: Path) -> tuple[Tap, Callable[[], None]]:
    """Return a tap at the client's end of a connection, and a function that ends the recording."""
    file = GrowingFile(path)
    recorder = Recorder(file)
    tap = Tap(recorder.connection(Endpoint("127.0.0.1", 40_001), Endpoint("127.0.0.2", 1801)), Side.CLIENT)

    def end() -> None:
        recorder.close()
        file.close()

    return tap, end


def test_what_cannot_have_happened_any_more_is_left_out(tmp_path: Path) -> None:
    tap, end = a_tap(tmp_path / "one.pcapng")
    tap.received(b"")
    tap.received(b"")
    tap.received(b"after its end")
    tap.sent(b"an answer")
    tap.broken()
    tap.broken()
    tap.sent(b"too late")
    tap.finished()
    end()
    frames = list(read_capture(tmp_path / "one.pcapng"))
    assert len(frames) == 3 + 2 + 2 + 1
    assert not any(b"late" in frame.data or b"after" in frame.data for frame in frames)


def test_pings_are_read_back_from_a_recording(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "pings.pcapng")
    recorder = Recorder(file, interface="sender")
    recorder.datagram(
        Endpoint("127.0.0.1", 40_001), Endpoint("127.0.0.2", 3_527), ping_packet.encode(a_ping())
    )
    recorder.close()
    [packet] = read_packets(tmp_path / "pings.pcapng")
    assert isinstance(packet.packet, Ping)
    assert packet.packet == a_ping()
    assert packet.interface.name == "sender"
