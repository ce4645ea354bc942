"""The columns say of each frame what the readers of single frames say."""

from __future__ import annotations

import io
import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures.frame import Frame, Interface
from captures.ip import IpReader
from captures.packets import SeenPacket, Totals, content_of
from captures.pcap import read_capture
from captures.pcapng import PcapngWriter
from captures.pipeline.files import look_at, mapped
from captures.pipeline.scan import read_plan
from captures.pipeline.segments import Segments, segments
from captures.tcp import Endpoint, Segment

SAMPLES = sorted(Path("captures/samples").glob("*.pcapng"))

halves = st.integers(0, 0xFFFF)
ports = st.sampled_from([1801, 3527, 49152, 49153])
hosts_4 = st.sampled_from([bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 0])])
hosts_6 = st.sampled_from([bytes(15) + b"\1", bytes(15) + b"\2", bytes(14) + b"\1\0"])
payloads = st.binary(max_size=30)


def often(usual: int, other: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    """The usual value three times out of four."""
    return st.one_of(st.just(usual), st.just(usual), st.just(usual), other)


@st.composite
def tcp_segments(draw: st.DrawFn) -> bytes:
    options = bytes(4 * draw(often(0, st.integers(1, 10))))
    words = draw(often(5 + len(options) // 4, st.integers(0, 15)))
    head = struct.pack(
        "!HHIIBBHHH",
        draw(ports),
        draw(ports),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        words << 4 | draw(st.integers(0, 15)),
        draw(st.integers(0, 255)),
        100,
        0,
        0,
    )
    return head + options + draw(payloads)


@st.composite
def udp_datagrams(draw: st.DrawFn) -> bytes:
    payload = draw(payloads)
    return struct.pack("!HHHH", draw(ports), draw(ports), draw(often(8 + len(payload), halves)), 0) + payload


@st.composite
def contents(draw: st.DrawFn) -> tuple[int, bytes]:
    """What IP carries, and the number of its protocol."""
    kind = draw(st.sampled_from(["tcp", "tcp", "tcp", "udp", "any"]))
    if kind == "any":
        return draw(st.integers(0, 255)), draw(payloads)
    return (6, draw(tcp_segments())) if kind == "tcp" else (17, draw(udp_datagrams()))


@st.composite
def ip_4(draw: st.DrawFn) -> bytes:
    protocol, content = draw(contents())
    options = bytes(4 * draw(often(0, st.integers(1, 10))))
    words = draw(often(5 + len(options) // 4, st.integers(0, 15)))
    size = draw(often(20 + len(options) + len(content), st.just(0) | st.integers(0, 120)))
    fragment = draw(often(0x4000, st.sampled_from([0x2000, 1, 2, 0x2001, 0x8000])))
    head = struct.pack(
        "!BBHHHBBH4s4s", 4 << 4 | words, 0, size, 7, fragment, 64, protocol, 0, draw(hosts_4), draw(hosts_4)
    )
    return head + options + content


@st.composite
def ip_6(draw: st.DrawFn) -> bytes:
    protocol, content = draw(contents())
    for _ in range(draw(often(0, st.integers(1, 2)))):
        number = draw(st.sampled_from([0, 43, 44, 51, 60]))
        content = bytes([protocol, draw(often(0, st.integers(0, 3)))]) + bytes(6) + content
        protocol = number
    size = draw(often(len(content), st.just(0) | st.integers(0, 120)))
    return struct.pack("!IHBB16s16s", 6 << 28, size, protocol, 64, draw(hosts_6), draw(hosts_6)) + content


@st.composite
def fragmented_4(draw: st.DrawFn) -> list[bytes]:
    """A whole packet as fragments, in any order."""
    content = draw(tcp_segments())
    cut = draw(st.integers(0, len(content) // 8)) * 8
    pieces = [(0, content[:cut], True), (cut, content[cut:], False)]
    identification = draw(halves)
    return [
        struct.pack(
            "!BBHHHBBH4s4s",
            0x45,
            0,
            20 + len(piece),
            identification,
            at // 8 | (0x2000 if more else 0),
            64,
            6,
            0,
            bytes([10, 0, 0, 1]),
            bytes([10, 0, 0, 2]),
        )
        + piece
        for at, piece, more in draw(st.permutations(pieces))
    ]


@st.composite
def links(draw: st.DrawFn) -> tuple[int, bytes]:
    """A link type, and the head that it gives a frame."""
    ether_type = struct.pack("!H", draw(often(0x0800, st.sampled_from([0x86DD, 0x0806, 0x8100]))))
    tags = b"".join(
        draw(st.sampled_from([b"\x81\x00\x00\x05", b"\x88\xa8\x00\x05"]))
        for _ in range(draw(often(0, st.integers(1, 6))))
    )
    # A tag's type stands where the EtherType would, so head, tags and type follow one another as they are.
    return draw(
        st.sampled_from(
            [
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
    )


@st.composite
def many_frames(draw: st.DrawFn) -> list[Frame]:
    packets = draw(st.lists(st.one_of(ip_4(), ip_4(), ip_6(), payloads).map(lambda one: [one]), max_size=12))
    packets += draw(st.lists(fragmented_4(), max_size=2))
    frames = []
    for packet in (one for some in draw(st.permutations(packets)) for one in some):
        link_type, head = draw(links())
        data = head + packet + bytes(draw(often(0, st.integers(1, 20))))
        caught = draw(often(len(data), st.integers(0, len(data))))
        frame = Frame(
            time_ns=draw(often(1_700_000_000_000_000_000, st.integers(0, 5))),
            data=data[:caught],
            missing_bytes=len(data) - caught,
            interface=Interface(link_type=link_type, name=f"link {link_type}"),
        )
        frames += [frame] * draw(often(1, st.just(50)))
    return frames


class Row(NamedTuple):
    number: int
    time_ns: int
    offset: int
    interface: Interface
    segment: tuple[Endpoint, Endpoint, int, int, int, bytes]


class Account(NamedTuple):
    """All that comes of a capture's frames."""

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
    """What the readers of single frames say."""
    ip, totals = IpReader(), Totals()
    rows: list[Row] = []
    pings: list[tuple[object, ...]] = []
    for frame in read_capture(path):
        totals.frames += 1
        totals.cut_frames += frame.missing_bytes > 0
        totals.untimed_frames += frame.time_ns == 0
        if frame.time_ns:
            totals.first_ns = min(totals.first_ns or frame.time_ns, frame.time_ns)
            totals.last_ns = max(totals.last_ns or 0, frame.time_ns)
        content = content_of(frame, ip)
        if isinstance(content, Segment):
            source, destination, sequence, acknowledgment, flags, *_, payload = content
            whole = (source, destination, sequence, acknowledgment, flags, payload)
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
            ),
        )
        for row in range(len(found))
    ]


def in_columns(path: Path, range_bytes: int) -> Account:
    """What the columns say of the same file, in ranges."""
    file = look_at(str(path))
    whole = Account([], [], 0, Counter(), 0, 0, None, None, (0, 0))
    ip = IpReader()
    for reading in read_plan(file, range_bytes):
        with mapped(file) as source:
            found = segments(reading, source.data, ip)
            ip = found.ip
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
    """A file that examples overwrite."""
    return tmp_path_factory.mktemp("segments") / "capture"


@given(frames=many_frames(), range_bytes=st.sampled_from([200, 1000, 1 << 20]))
def test_columns_and_single_readers_agree_on_every_frame(
    frames: list[Frame], range_bytes: int, path: Path
) -> None:
    path.write_bytes(written(frames))
    assert in_columns(path, range_bytes) == one_by_one(path)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_they_agree_on_the_samples(sample: Path) -> None:
    assert in_columns(sample, 4096) == one_by_one(sample)
