"""For each frame, the columns have the values that the readers of single frames give."""

from __future__ import annotations

import io
import random
import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.tcp import Endpoint, Segment
from mqproto.captures.packets import UDP, SeenPacket, Totals, content_of
from mqproto.captures.pipeline.source.files import look_at, mapped
from mqproto.captures.pipeline.source.scan import readings
from mqproto.captures.pipeline.source.segments import Segments, segments
from tests.captures.tunnels import TUNNELS, ethernet, ip, udp, wrapped
from tests.conformance import ROOT

SAMPLES = sorted((ROOT / "captures" / "samples").glob("*.pcapng"))

PORTS = [1801, 3527, 49152, 49153]
HOSTS_4 = [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 0])]
HOSTS_6 = [bytes(15) + b"\1", bytes(15) + b"\2", bytes(14) + b"\1\0"]


class Dice(random.Random):
    def often(self, usual: int, *other: int) -> int:
        """Return the usual value three times out of four."""
        return usual if self.random() < 0.75 else self.choice(other)

    def bytes_to(self, most: int) -> bytes:
        return self.randbytes(self.randint(0, most))


def tcp_segment(dice: Dice) -> bytes:
    options = bytes(4 * dice.often(0, *range(1, 11)))
    words = dice.often(5 + len(options) // 4, 0, 4, 5, 6, 15)
    numbers = (dice.choice(PORTS), dice.choice(PORTS), dice.getrandbits(32), dice.getrandbits(32))
    head = (*numbers, words << 4 | dice.getrandbits(4), dice.getrandbits(8), 100, 0, 0)
    return struct.pack("!HHIIBBHHH", *head) + options + dice.bytes_to(30)


def udp_datagram(dice: Dice) -> bytes:
    payload = dice.bytes_to(30)
    size = dice.often(8 + len(payload), 0, 7, 8, 12, 0xFFFF)
    return struct.pack("!HHHH", dice.choice(PORTS), dice.choice(PORTS), size, 0) + payload


def carried(dice: Dice) -> tuple[int, bytes]:
    """Return the number of a protocol, and the bytes that IP carries for it."""
    kind = dice.random()
    if kind < 0.1:
        return dice.getrandbits(8), dice.bytes_to(30)
    return (6, tcp_segment(dice)) if kind < 0.8 else (17, udp_datagram(dice))


def ip_4(dice: Dice) -> bytes:
    protocol, content = carried(dice)
    options = bytes(4 * dice.often(0, *range(1, 11)))
    words = dice.often(5 + len(options) // 4, 0, 4, 5, 6, 15)
    size = dice.often(20 + len(options) + len(content), 0, dice.randint(0, 120))
    fragment = dice.often(0x4000, 0x2000, 1, 2, 0x2001, 0x8000)
    head = (4 << 4 | words, 0, size, 7, fragment, 64, protocol, 0)
    hosts = dice.choice(HOSTS_4) + dice.choice(HOSTS_4)
    return struct.pack("!BBHHHBBH", *head) + hosts + options + content


def ip_6(dice: Dice) -> bytes:
    protocol, content = carried(dice)
    for _ in range(dice.often(0, 1, 2)):
        content = bytes([protocol, dice.often(0, 1, 2, 3)]) + bytes(6) + content
        protocol = dice.choice([0, 43, 44, 51, 60])
    size = dice.often(len(content), 0, dice.randint(0, 120))
    hosts = dice.choice(HOSTS_6) + dice.choice(HOSTS_6)
    return struct.pack("!IHBB", 6 << 28, size, protocol, 64) + hosts + content


def fragments_4(dice: Dice) -> list[bytes]:
    """Return a whole packet as two fragments, in either order."""
    content = tcp_segment(dice)
    cut = dice.randint(0, len(content) // 8) * 8
    identification = dice.getrandbits(16)
    pieces = [
        struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(piece), identification, fragment, 64, 6, 0)
        + HOSTS_4[0]
        + HOSTS_4[1]
        + piece
        for fragment, piece in ((0x2000, content[:cut]), (cut // 8, content[cut:]))
    ]
    dice.shuffle(pieces)
    return pieces


def link(dice: Dice) -> tuple[int, bytes]:
    """Return a link type, and the header that frames of this type have."""
    ether_type = struct.pack("!H", dice.often(0x0800, 0x86DD, 0x0806, 0x8100))
    tags = b"\x81\x00\x00\x05" * dice.often(0, 1, 2, 3, 4, 5, 6)
    return dice.choice(
        [
            (1, bytes(12) + ether_type),
            (1, bytes(12) + tags + ether_type),
            (113, bytes(14) + tags + ether_type),
            (276, ether_type + bytes(18)),
            (276, b"\x81\x00" + bytes(18) + b"\x00\x05" + ether_type),
            (0, struct.pack("<I", 2)),
            (108, struct.pack(">I", 24)),
            (0, struct.pack("<I", 7)),
            (101, b""),
            (127, b""),
        ]
    )


NAMES = sorted(TUNNELS)


def a_few_frames(seed: int) -> list[Frame]:
    """Return one frame, or many alike, or the fragments of a packet."""
    dice = Dice(seed)
    kind = dice.random()
    packets = (
        fragments_4(dice)
        if kind < 0.1
        else [ip_4(dice) if kind < 0.7 else ip_6(dice) if kind < 0.95 else dice.bytes_to(30)]
    )
    frames = []
    for packet in packets:
        link_type, head = link(dice)
        data = head + packet + bytes(dice.often(0, 1, 6, 20))
        if link_type == 1:
            data = TUNNELS[dice.choice(NAMES)](data) if dice.random() < 0.25 else data
        caught = dice.often(len(data), dice.randint(0, len(data)))
        time_ns = dice.often(1_700_000_000_000_000_000, 0, 5)
        interface = Interface(link_type=link_type, name=f"link {link_type}")
        frames.append(Frame(time_ns, data[:caught], "", len(data) - caught, interface))
    return frames * dice.often(1, 2, 50)


many_frames = st.lists(st.integers(0, 2**32 - 1).map(a_few_frames), max_size=15).map(
    lambda parts: [frame for part in parts for frame in part]
)


class Row(NamedTuple):
    number: int
    time_ns: int
    offset: int
    interface: Interface
    segment: tuple[Endpoint, Endpoint, int, int, int, bytes, int]


class Account(NamedTuple):
    """Everything that is found in the frames of a capture."""

    rows: list[Row]
    pings: list[tuple[object, ...]]
    frame_count: int
    other_frames: Counter[str]
    cut_frames: int
    untimed_frames: int
    first_ns: int | None
    last_ns: int | None
    fragments: tuple[int, int]


def ping_row(ping: SeenPacket) -> tuple[object, ...]:
    return tuple(getattr(ping, name) for name in SeenPacket.__slots__ if not name.startswith("_"))


def one_by_one(path: Path) -> Account:
    """Return what readers of single frames find."""
    ip, totals = IpReader(), Totals()
    rows: list[Row] = []
    pings: list[tuple[object, ...]] = []
    for frame in read_capture(path):
        totals.frames += 1
        totals.cut_frames += frame.missing_bytes > 0
        totals.untimed_frames += frame.time_ns == 0
        if frame.time_ns:
            totals.first_ns = (
                frame.time_ns if totals.first_ns is None else min(totals.first_ns, frame.time_ns)
            )
            totals.last_ns = max(totals.last_ns or 0, frame.time_ns)
        content = content_of(frame, ip)
        if isinstance(content, Segment):
            source, destination, sequence, acknowledgment, flags, *_, payload, cut_bytes = content
            whole = (source, destination, sequence, acknowledgment, flags, payload, cut_bytes)
            rows.append(Row(frame.number, frame.time_ns, frame.offset, frame.interface, whole))
        elif isinstance(content, SeenPacket):
            pings.append(ping_row(content))
        else:
            totals.other_frames[content] += 1
    return Account(
        rows,
        pings,
        totals.frames,
        totals.other_frames,
        totals.cut_frames,
        totals.untimed_frames,
        totals.first_ns,
        totals.last_ns,
        (ip.waiting_count, ip.given_up_count),
    )


def rows_of(found: Segments, first_number: int, data: bytes) -> list[Row]:
    return [
        Row(
            first_number + int(found.frame[row]),
            int(found.time_ns[row]),
            int(found.offset[row]),
            found.interfaces[int(found.interface[row])],
            (
                found.ends[found.source[row]],
                found.ends[found.destination[row]],
                int(found.sequence[row]),
                int(found.acknowledgment[row]),
                int(found.flags[row]),
                found.payload(data, row),
                int(found.cut[row]),
            ),
        )
        for row in range(len(found))
    ]


def in_columns(path: Path, range_bytes: int) -> Account:
    """Return what the columns have for the same file, read in ranges."""
    file = look_at(str(path))
    whole = Account([], [], 0, Counter(), 0, 0, None, None, (0, 0))
    ip = IpReader()
    for reading in readings(file, range_bytes):
        with mapped(file) as source:
            found = segments(reading, source.data, ip)
            assert found.frame_count == len(found) + len(found.pings) + found.other_frames.total()
            assert len({*found.ends}) == len(found.ends)
            assert [*found.frame] == sorted({*found.frame})
            known_ns = [ns for ns in (whole.first_ns, found.first_ns) if ns is not None]
            whole = Account(
                whole.rows + rows_of(found, reading.first_number, source.data[:]),
                whole.pings + [ping_row(ping) for ping in found.pings],
                whole.frame_count + found.frame_count,
                whole.other_frames + found.other_frames,
                whole.cut_frames + found.cut_frames,
                whole.untimed_frames + found.untimed_frames,
                min(known_ns, default=None),
                max((ns for ns in (whole.last_ns, found.last_ns) if ns is not None), default=None),
                (ip.waiting_count, ip.given_up_count),
            )
    return whole


def written(frames: list[Frame]) -> bytes:
    file = io.BytesIO()
    with PcapngWriter(file) as writer:
        for frame in frames:
            writer.write(frame)
    return file.getvalue()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a file that is overwritten by each example."""
    return tmp_path_factory.mktemp("segments") / "capture"


@given(frames=many_frames, range_bytes=st.sampled_from([700, 5000, 1 << 20]))
def test_columns_and_single_readers_agree_on_every_frame(
    frames: list[Frame], range_bytes: int, path: Path
) -> None:
    path.write_bytes(written(frames))
    assert in_columns(path, range_bytes) == one_by_one(path)


def test_they_agree_on_tunnels_and_on_what_is_not_read(path: Path) -> None:
    frames = [frame for wrap in TUNNELS.values() for frame in wrapped(wrap)]
    frames += [Frame(1, data) for data in (ip(50, bytes(40)), ip(1), ethernet(0x0806), udp(53, bytes(9)))]
    path.write_bytes(written(frames))
    account = one_by_one(path)
    assert in_columns(path, 50_000) == account
    assert sorted(account.other_frames) == ["ARP", "ESP, which is not read", "ICMP", UDP]


def test_payloads_of_whole_packets_stay_where_they_are() -> None:
    file = look_at(str(SAMPLES[0]))
    (reading,) = readings(file)
    with mapped(file) as source:
        found = segments(reading, source.data)
    assert len(found) > 10
    assert found.odd_payloads == {}
    assert (found.start > found.offset).all()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_they_agree_on_the_samples(sample: Path) -> None:
    assert in_columns(sample, 4096) == one_by_one(sample)
