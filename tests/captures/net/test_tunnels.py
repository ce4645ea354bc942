"""The contents of a tunnel are read as if there were no tunnel. Tunnels that cannot be read are named."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.net.ip import DAMAGED_IP, FRAGMENT_OF_IP, Datagram, IpReader
from mqproto.captures.net.links import ETHERNET
from mqproto.captures.net.tunnels import LAYERS, MAX_LAYERS, NO_FRAME, TOO_DEEP, Kind, datagram_in
from mqproto.captures.packets import UDP, PacketReader
from mqproto.captures.payload import take_apart
from mqproto.captures.translation import said_of
from tests.captures.frames import fragments_of
from tests.captures.tunnels import (
    SAMPLE,
    TUNNELS,
    ZONED,
    Wrap,
    by_direction,
    ethernet,
    gre,
    ip,
    mpls,
    udp,
    vxlan,
    wrapped,
)

FRAMES = list(read_capture(SAMPLE))
LARGE = max((frame.data for frame in FRAMES), key=len)

Row = tuple[int, str, str, bytes, int]


def said(frames: Iterable[Frame]) -> list[Row]:
    """Return each packet with its frame, the hosts that sent and got it, its bytes, and how much was cut off."""
    return [
        (seen.frame, seen.source.host, seen.destination.host, seen.data, seen.cut_bytes)
        for seen in PacketReader(frames)
    ]


def read(frame: bytes, link_type: int = ETHERNET, ip_reader: IpReader | None = None) -> Datagram | str:
    return datagram_in(link_type, frame, 0, ip_reader or IpReader())


@pytest.mark.parametrize("name", TUNNELS)
def test_packets_in_a_tunnel_are_those_without_it_and_have_its_number(name: str) -> None:
    zone = f"%{ZONED[name][0]}" if name in ZONED else ""
    expected = [
        (number, f"{one}{zone}", f"{other}{zone}", *rest) for number, one, other, *rest in said(FRAMES)
    ]
    assert said(wrapped(TUNNELS[name])) == expected


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (9, b"\xff\x03\x00\x21"),
        (9, b"\x00\x21"),
        (50, b"\xff\x03\x21"),
        (51, b"\x11\x00\x00\x03\x02\x00\x00\x21"),
        (104, b"\x0f\x00\x08\x00"),
        (113, bytes(14) + b"\x00\x04\xaa\xaa\x03\0\0\0\x08\x00"),
        (113, bytes(14) + b"\x88\x64\x11\x00\x00\x03\x02\x00\x00\x21"),
        (219, b"\x00\x00\x11\x40"),
        (276, b"\x88\x47" + bytes(18) + b"\x00\x00\x11\x40"),
        (276, b"\x81\x00" + bytes(18) + b"\x00\x05\x88\x47\x00\x00\x11\x40"),
    ],
)
def test_other_lines_carry_ip_as_well(link_type: int, head: bytes) -> None:
    assert read(head + LARGE[14:], link_type) == read(LARGE)


def test_two_tenants_with_one_address_are_two() -> None:
    frames = [frame._replace(data=vxlan(frame.data, network)) for frame in FRAMES for network in (1, 2)]
    alone, reader = PacketReader(FRAMES), PacketReader(frames)
    expected, packets = [seen.data for seen in alone], list(reader)
    assert reader.totals.connections == 2 * alone.totals.connections
    ones = [seen.data for seen in packets if seen.source.host.endswith("%vxlan1")]
    others = [seen.data for seen in packets if seen.source.host.endswith("%vxlan2")]
    assert ones == others == expected
    assert reader.totals.retransmission_count == 2 * alone.totals.retransmission_count


@pytest.mark.parametrize(
    "wraps",
    [
        (TUNNELS["vxlan"], bytes),
        (TUNNELS["vxlan"], TUNNELS["vxlan in erspan 2"]),
        (TUNNELS["erspan 2"], TUNNELS["gre with a key"]),
    ],
    ids=["tunnel and outside", "tunnel and its mirror", "mirror and tunnel"],
)
def test_what_is_seen_in_a_tunnel_and_outside_is_one(wraps: tuple[Wrap, Wrap]) -> None:
    reader = PacketReader(frame._replace(data=wrap(frame.data)) for frame in FRAMES for wrap in wraps)
    assert [seen.data for seen in reader] == [row[3] for row in said(FRAMES)]
    assert [text.partition(", ")[2] for text in said_of(reader.translations.found)] == [
        "in another tunnel or in none, and is judged as that"
    ] * 2


def test_each_direction_may_have_a_tunnel_of_its_own() -> None:
    reader = PacketReader(by_direction(FRAMES))
    assert [seen.data for seen in reader] == [row[3] for row in said(FRAMES)]
    assert [point.one_sided for point in reader.points.points.found.values()] == [0]


def test_fragments_of_two_tenants_do_not_mix() -> None:
    reader = IpReader()
    other = LARGE[:-4] + b"else"
    pieces = zip(fragments_of(LARGE), fragments_of(other), strict=True)
    found = [read(vxlan(piece, n), ip_reader=reader) for pair in pieces for n, piece in enumerate(pair)]
    assert found[:2] == [FRAGMENT_OF_IP] * 2
    assert [each.payload for each in found[2:] if isinstance(each, Datagram)] == [LARGE[34:], other[34:]]


def test_fragments_outside_and_inside_are_put_together() -> None:
    reader = IpReader()
    inside = [vxlan(piece) for piece in fragments_of(LARGE)]
    found = [read(piece, ip_reader=reader) for frame in inside for piece in fragments_of(frame)]
    assert isinstance(found[-1], Datagram)
    assert found[-1].payload == LARGE[34:]
    assert found[:-1] == [FRAGMENT_OF_IP] * 3


@pytest.mark.parametrize("name", TUNNELS)
def test_what_the_capture_cut_off_is_cut_off_inside(name: str) -> None:
    whole = TUNNELS[name](LARGE)
    for cut in (1, 100, len(LARGE) - 54):
        found = datagram_in(ETHERNET, whole[:-cut], cut, IpReader())
        assert isinstance(found, Datagram)
        assert (found.payload, found.missing_bytes) == (LARGE[34:-cut], cut)


def deep(depth: int) -> bytes:
    frame = LARGE
    for _ in range(depth):
        frame = gre(0x0800, frame[14:])
    return frame


def test_tunnels_in_tunnels_have_a_bound() -> None:
    assert isinstance(read(deep(MAX_LAYERS // 2 - 1)), Datagram)
    assert read(deep(100)) == TOO_DEEP


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (ip(50, bytes(40)), "ESP, which is not read"),
        (ip(47, b"\x40\x00\x08\x00", bytes(40)), "GRE, which is not read"),
        (ip(200, bytes(40)), "IP protocol 200, which is not read"),
        (ip(1, bytes(8)), "ICMP"),
        (ethernet(0x0806, bytes(28)), "ARP"),
        (ethernet(0x88E5, bytes(28)), "MACsec, which is not read"),
        (ethernet(0x1234, bytes(28)), "EtherType 0x1234, which is not read"),
        (ethernet(38, b"\x42\x42\x03", bytes(35)), "STP"),
        (ethernet(38, b"\xf0\xf0\x03", bytes(35)), "LLC 0xf0, which is not read"),
        (ethernet(38, b"\xaa\xaa\x03\0\0\x0c\x20\0", bytes(30)), "CDP"),
        (ethernet(38, b"\xaa\xaa\x03\0\0\x0d\x20\0", bytes(30)), "SNAP 0x00000d2000, which is not read"),
        (ethernet(0x8864, b"\x11\0\0\x03\0\x20\xc0\x21", bytes(30)), "control of PPP"),
        (
            ethernet(0x8864, b"\x11\0\0\x03\0\x20\0\xfd", bytes(30)),
            "PPP, packed or encrypted, which is not read",
        ),
        (ethernet(0x8847, mpls(bytes(4), ethernet(0x0806, bytes(28)))), "ARP"),
        (vxlan(ethernet(0x0806, bytes(28))), "ARP"),
        (vxlan(ip(50, bytes(40))), "ESP, which is not read"),
        (gre(0x0800, b"\x45"), DAMAGED_IP),
        (ip(47, b"\x00"), NO_FRAME),
        (udp(4789, b"\x08"), NO_FRAME),
        (ethernet(0x8847, b"\x00\x00\x10\x40" * 9), NO_FRAME),
    ],
)
def test_what_is_not_read_is_named(frame: bytes, what: str) -> None:
    assert read(frame) == what


@pytest.mark.parametrize("frame", [udp(53, bytes(20)), udp(4789, bytes(60)), udp(6081, b"\xff" * 60)])
def test_datagrams_that_are_no_tunnels_are_datagrams(frame: bytes) -> None:
    reader = PacketReader([Frame(0, frame)])
    assert list(reader) == []
    assert reader.totals.other_frames == {UDP: 1}


@given(
    st.sampled_from(sorted(TUNNELS)),
    st.lists(st.tuples(st.integers(0, 160), st.integers(0, 255)), max_size=6),
    st.integers(1, 700),
)
def test_headers_that_lie_do_no_harm(name: str, changes: list[tuple[int, int]], kept: int) -> None:
    frame = bytearray(TUNNELS[name](LARGE))
    for at, value in changes:
        frame[at % len(frame)] = value
    found = read(bytes(frame[:kept]))
    assert isinstance(found, str) or len(found.payload) <= len(frame)


@given(st.sampled_from(sorted(LAYERS, key=str)), st.binary(max_size=60), st.integers(0, 3000))
@example((Kind.TYPE, 0x8847), bytes(3), 60_000)
@example((Kind.PORT, 37_008), b"\x01\x00\x00\x01\x00", 60_000)
@example((Kind.PORT, 2152), b"\x34\xff" + bytes(9) + b"\x85", 60_000)
@example((Kind.TYPE, 0x8100), b"\x00\x05\x81\x00", 15_000)
def test_any_bytes_behind_any_header_end(layer: tuple[Kind, int], data: bytes, times: int) -> None:
    kind, number = layer
    match kind:
        case Kind.TYPE:
            frame = ethernet(number, data * times)
        case Kind.PORT:
            frame = udp(number, (data * times)[:60_000])
        case Kind.PROTOCOL:
            frame = ip(number, (data * times)[:60_000])
        case _:
            frame = data * times
    assert read(frame, number if kind is Kind.LINK else ETHERNET) is not None


def test_a_frame_that_was_copied_may_be_of_a_tunnel() -> None:
    [part] = take_apart([vxlan(LARGE)]).parts
    assert (part.place(0), bytes(part.data)) == (len(vxlan(LARGE)) - len(LARGE) + 54, LARGE[54:])
