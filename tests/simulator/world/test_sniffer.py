"""A sniffer's view of a world: everything that left its sender, with its time, and nothing else."""

from __future__ import annotations

import errno
import io
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mqproto.captures.files.pcap import read_frames
from mqproto.captures.packets import PacketReader, SeenPacket
from mqproto.simulator.world import Cable, Fault, draw, simulate
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.network.links import End
from mqproto.simulator.world.network.sniffer import Sniffer
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.run import run
from mqproto.simulator.world.scenarios.scenario import START_UTC_S
from mqproto.simulator.world.world import World
from mqproto.wire import UserMessage, encode_packet
from mqproto.wire.layouts.ping import Ping
from tests.programs import needs
from tests.simulator.world.worlds import a_burst, a_chain

NS = 1_000_000_000
SEEDS = (0, 2, 3, 5, 6, 7)


def sniffed(seed: int) -> bytes:
    file = io.BytesIO()
    assert simulate(draw(seed), capture=file).breach is None
    return file.getvalue()


def packets_in(capture: bytes) -> list[SeenPacket]:
    return list(PacketReader(read_frames(io.BytesIO(capture))))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_goes_the_same_way_whether_it_is_watched_or_not(seed: int) -> None:
    watched = simulate(draw(seed), traced=True, capture=io.BytesIO())
    alone = simulate(draw(seed), traced=True)
    assert watched.trace.digest() == alone.trace.digest()
    assert watched == alone
    assert watched.tally == alone.tally


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_sniffer_shows_is_what_left_the_nodes(seed: int) -> None:
    """Each packet that a core sent is in the capture, whole and in order, and no others except strangers'.

    Impostors and packets to them are not seen. Each connection is whole, and every byte of it is accounted for.
    """
    file = io.BytesIO()
    world = World(draw(seed), capture=file)
    left: Counter[bytes] = Counter()
    sound = world.oracle.leaves

    def leaves(node: WatchedNode, end: End, glimpses: list[Glimpse]) -> None:
        if end.talk is not None:
            left.update(glimpse.packet for glimpse in glimpses)
        sound(node, end, glimpses)

    world.oracle.leaves = leaves  # type: ignore[method-assign]
    assert run(world).breach is None
    stranger = f"127.0.0.{len(world.scenario.nodes) + 1}"
    reader = PacketReader(read_frames(io.BytesIO(file.getvalue())))
    seen = [packet for packet in reader if not packet.is_ping and packet.source.host != stranger]
    assert Counter(packet.data for packet in seen) == left
    assert all(packet.fault is None for packet in seen)
    totals = reader.totals
    assert totals.missing_bytes == totals.retransmission_count == totals.early_count == 0
    assert totals.conflict_count == sum(totals.other_frames.values()) == 0


def test_a_packet_is_seen_when_it_leaves_and_its_acknowledgment_when_it_has_arrived() -> None:
    file = io.BytesIO()
    scenario = a_chain(
        a_burst(source="a", target="b", at_ms=100, kind="express"),
        nodes=("a", "b"),
        links=(Cable(one="a", other="b", latency_ms=40),),
    )
    assert simulate(scenario, capture=file).breach is None
    times = [
        (frame.time_ns - START_UTC_S * NS) // 1_000_000 for frame in read_frames(io.BytesIO(file.getvalue()))
    ]
    # SYN, SYN and ACK, ACK; then each packet, and 40 ms after it what acknowledges it.
    assert times[:6] == [100, 140, 180, 180, 220, 220]
    first = packets_in(file.getvalue())[0]
    assert first.time_ns == first.began_ns == START_UTC_S * NS + 180_000_000
    assert (str(first.source), str(first.destination)) == ("127.0.0.1:49152", "127.0.0.2:1801")


def test_a_world_may_begin_at_another_time_and_goes_the_same_way() -> None:
    later_s = 7_200
    file, later = io.BytesIO(), io.BytesIO()
    scenario = a_chain(a_burst(kind="transactional", count=3))
    assert simulate(scenario, capture=file).breach is None
    assert simulate(replace(scenario, begins_utc_s=START_UTC_S + later_s), capture=later).breach is None
    times, later_times = (
        [frame.time_ns for frame in read_frames(io.BytesIO(each.getvalue()))] for each in (file, later)
    )
    assert later_times == [time_ns + later_s * NS for time_ns in times]
    [sent_s, later_sent_s] = (
        next(
            seen.packet.user.sent_time_s
            for seen in packets_in(each.getvalue())
            if isinstance(seen.packet, UserMessage)
        )
        for each in (file, later)
    )
    assert later_sent_s == sent_s + later_s


def test_what_left_its_sender_is_seen_though_the_connection_broke_before_it_arrived() -> None:
    file = io.BytesIO()
    scenario = a_chain(
        a_burst(source="a", target="b", at_ms=10, kind="transactional"),
        a_burst(source="a", target="b", at_ms=1_000, kind="transactional", label="cut off"),
        nodes=("a", "b"),
        links=(Cable(one="a", other="b", latency_ms=50),),
        faults=(Fault(at_ms=1_020, kind="reset", where="a-b"),),
    )
    assert simulate(scenario, capture=file).breach is None
    frames = list(read_frames(io.BytesIO(file.getvalue())))
    assert [frame.comment for frame in frames if frame.comment] == ["the link was cut"] * 2
    shown = [
        (packet.connection, packet.time_ns)
        for packet in packets_in(file.getvalue())
        if "cut off".encode("utf-16-le") in packet.data
    ]
    assert [connection for connection, _ in shown] == [0, 1]
    assert shown[0][1] == START_UTC_S * NS + 1_000_000_000


def test_pings_are_seen_there_and_back() -> None:
    file = io.BytesIO()
    scenario = a_chain(a_burst(source="a", target="b"), askers=("a", "b"))
    assert simulate(scenario, capture=file).breach is None
    pings = [packet.packet for packet in packets_in(file.getvalue()) if packet.is_ping]
    assert len(pings) >= 2
    assert all(isinstance(ping, Ping) for ping in pings)


def test_frames_are_no_longer_than_asked_for() -> None:
    file = io.BytesIO()
    world = a_chain(a_burst(source="a", target="b", size_bytes=5_000))
    assert simulate(world, capture=file, segment_bytes=1_460).breach is None
    assert max(len(frame.data) for frame in read_frames(io.BytesIO(file.getvalue()))) == 1_460 + 54
    bodies = [packet.packet for packet in packets_in(file.getvalue()) if len(packet.data) > 5_000]
    assert len(bodies) == 1
    assert bodies[0] is not None
    assert not isinstance(bodies[0], Ping)
    assert len(encode_packet(bodies[0])) > 5_000


class Full(io.BytesIO):
    """A file on a disk that is full after some frames."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() > 2_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_told_when_the_world_is_over() -> None:
    with pytest.raises(OSError, match="No space left"):
        simulate(a_chain(), capture=Full())


def test_ports_begin_anew_when_all_have_been_used() -> None:
    world = World(a_chain())
    sniffer = Sniffer(io.BytesIO(), ("a", "b"), world.events)
    ports = {sniffer.pings("a", "b", b"").port for _ in range(16_384)}
    assert min(ports) == 49_152
    assert max(ports) == 65_535
    assert sniffer.pings("a", "b", b"").port == 49_152


@needs("tshark")
def test_tshark_has_nothing_to_complain_of(tmp_path: Path) -> None:
    """The worlds include some with every kind of broken link."""
    for seed in SEEDS:
        path = tmp_path / f"{seed}.pcapng"
        path.write_bytes(sniffed(seed))
        bad = "tcp.analysis.flags || tcp.checksum.status == 0 || udp.checksum.status == 0 || ip.checksum.status == 0"
        checked = [part for name in ("ip", "tcp", "udp") for part in ("-o", f"{name}.check_checksum:TRUE")]
        command = ["tshark", "-n", "-r", str(path), *checked, "-Y", bad]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
