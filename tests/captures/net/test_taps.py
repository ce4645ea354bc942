"""Two interfaces, each with one direction of a connection. It is read as one connection, in causal order.

This holds however much the two clocks differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from mqproto.captures.files.frame import CaptureError, Frame, Interface
from mqproto.captures.net import taps
from mqproto.captures.net.conversation import Segments, Side, TcpConversation
from mqproto.captures.net.taps import Half, Taps
from mqproto.captures.net.tcp import ACK, SYN, Endpoint
from mqproto.captures.packets import PacketReader
from mqproto.captures.spoil import bonded, lost
from mqproto.captures.spoil.frames import shortened
from mqproto.wire import ConnectionParameters, encode_packet
from tests.captures.frames import decode_frame
from tests.captures.pipeline.samples import FRAMES

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)
EAST, WEST = Interface(0, name="east"), Interface(1, name="west")
PACKET = encode_packet(
    ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
)


def talked(count: int) -> list[bytes]:
    """Return the frames of two sides that answer each other."""
    talk = TcpConversation(CLIENT, SERVER)
    sides = [Side.CLIENT, Side.SERVER] * count
    return [*talk.open(), *(frame for side in sides for frame in talk.send(side, PACKET))]


def halves(frames: list[bytes], late_ns: int = 0) -> list[Frame]:
    """Return what a TAP captures of these frames, sorted by the timestamps of its two clocks."""
    told = []
    for number, frame in enumerate(frames, 1):
        segment = decode_frame(frame)
        assert segment is not None
        served = segment.source == SERVER
        told.append(Frame(number * 1_000 + served * late_ns, frame, interface=WEST if served else EAST))
    return [
        frame._replace(number=number)
        for number, frame in enumerate(sorted(told, key=lambda frame: frame.time_ns), 1)
    ]


def looked_at(frames: list[Frame]) -> dict[int, Half]:
    found = Taps()
    found.look(iter(frames))
    return found.halves


@pytest.mark.parametrize("late_ns", [0, 40_000, -40_000, 10**9, -(10**9)])
def test_both_halves_are_one_connection_in_causal_order_whatever_their_clocks_say(late_ns: int) -> None:
    frames = talked(100)
    packets = list(PacketReader(halves(frames, late_ns)))
    assert [(packet.interface, packet.connection, packet.ahead) for packet in packets] == [
        (EAST, 0, False)
    ] * 200
    assert [packet.source for packet in packets] == [CLIENT, SERVER] * 100
    if abs(late_ns) >= 40_000:
        # By one clock each answer comes soon after what it is to, and neither long before it.
        assert all(abs(after.time_ns - before.time_ns) <= 2_000 for before, after in pairwise(packets))


@pytest.mark.parametrize("late_ns", [0, 10**9, -(10**9)])
def test_the_clocks_of_cut_frames_are_as_far_apart_as_those_of_whole_ones(late_ns: int) -> None:
    # What has no bytes of its own tells as well, and is not cut: so it is not among them.
    frames = [frame for frame in halves(talked(50), late_ns) if len(frame.data) > 62]
    assert looked_at(list(shortened(frames, 60))) == looked_at(frames) != {}


def test_what_was_caught_whole_at_two_places_is_no_tap() -> None:
    frames = talked(3)[3:]
    both = [Frame(0, frame, interface=place) for frame in frames for place in (EAST, WEST)]
    assert looked_at(both) == {}
    # At the beginning it may look so: each place has caught something else.
    assert looked_at([both[0], both[3], *both]) == {}


@pytest.mark.parametrize("by_connection", [False, True])
@pytest.mark.parametrize("name", ["three-hop", "intermediate-killed", "administration"])
def test_the_interfaces_of_a_bond_are_read_as_one(name: str, by_connection: bool) -> None:
    # Whether a connection's ways go by two interfaces is a matter of chance.
    frames = list(bonded(FRAMES[name], 2, by_connection=by_connection))
    assert set(looked_at(frames)) == {1}
    assert [each.data for each in PacketReader(frames)] == [each.data for each in PacketReader(FRAMES[name])]


def test_what_is_sent_again_may_go_by_the_other_interface() -> None:
    frames = list(bonded([Frame(0, frame) for frame in talked(99)]))
    again = [frame._replace(interface=frames[0].interface) for frame in frames[4:12]]
    assert looked_at([*frames[:12], *again, *frames[12:]]) != {}


@pytest.mark.parametrize("percent", [0, 2, 30, 70])
@pytest.mark.parametrize("late_ns", [1_000, 10**9, 0])
def test_two_places_that_lost_some_are_no_bond(percent: float, late_ns: int) -> None:
    frames = [
        frame for each in (EAST, WEST) for frame in lost(caught_at(each, late_ns), percent, each.number)
    ]
    assert looked_at(sorted(frames, key=lambda frame: frame.time_ns)) == {}


def caught_at(place: Interface, late_ns: int) -> list[Frame]:
    """Return every frame as it was caught at one of two places.

    At the second place, times are `late_ns` later; if that is 0, they are off irregularly.
    """
    return [
        Frame(number * 10**6 + place.number * (late_ns or number % 5 * 400 - 900), frame, interface=place)
        for number, frame in enumerate(talked(299), 1)
    ]


def test_one_interface_is_none_and_soon_known_to_be_none() -> None:
    found = Taps()
    found.look(iter([Frame(0, frame) for frame in talked(299)]))
    assert (found.halves, len(found.looked_at)) == ({}, taps.ALONE_COUNT)


def test_one_direction_alone_is_looked_at_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "FRAME_LIMIT", 5)
    found = Taps()
    one_sided = [frame for frame in halves(talked(9)) if frame.interface == EAST]
    found.look(iter(one_sided))
    assert (found.halves, found.looked_at) == ({}, one_sided[:5])
    assert len(list(PacketReader(one_sided))) == 9


def test_damage_at_the_beginning_is_told_behind_what_came_before_it() -> None:
    def damaged() -> object:
        yield from halves(talked(1))
        raise CaptureError("tap.pcap", 700, "the file ends")

    reader = PacketReader(damaged())  # type: ignore[arg-type]
    packets = iter(reader)
    assert [next(packets).source, next(packets).source] == [CLIENT, SERVER]
    with pytest.raises(CaptureError, match="byte 700"):
        next(packets)


def exchanged(count: int, connections: int, *, bare: bool) -> list[Frame]:
    """Return the frames of some connections. Each has a handshake, and messages in both directions.

    If `bare` is true, each message is acknowledged immediately, without data.
    """
    frames: list[bytes] = []
    for number in range(connections):
        talk = Segments(CLIENT._replace(port=40_001 + number), SERVER)
        for sender, flags in ((Side.CLIENT, SYN), (Side.SERVER, SYN | ACK), (Side.CLIENT, ACK)):
            frames.append(talk.leave(sender, flags))
            talk.arrive(sender.other)
        for sender in (Side.CLIENT, Side.SERVER, *[Side.CLIENT] * count, Side.SERVER):
            frames += talk.leave_data(sender, PACKET)
            talk.arrive(sender.other)
            if bare:
                frames.append(talk.leave(sender.other, ACK))
    return [Frame(number * 1_000, frame, number=number) for number, frame in enumerate(frames, 1)]


def shares(count: int) -> Iterator[list[int]]:
    """Yield ways to divide frames between two interfaces.

    They are strictly alternating, several frames at a time, or random.
    """
    yield [place % 2 for place in range(count)]
    yield [place // 5 % 2 for place in range(count)]
    for seed in range(12):
        chance = Random(seed)
        yield [chance.randrange(2) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("bare", [False, True])
def test_a_bond_lacks_nothing_however_its_interfaces_share_a_short_conversation(
    count: int, connections: int, bare: bool
) -> None:
    frames = exchanged(count, connections, bare=bare)
    whole = [(seen.source, seen.number, seen.ahead) for seen in PacketReader(frames)]
    for share in shares(len(frames)):
        parted = [
            frame._replace(interface=(EAST, WEST)[which]) for frame, which in zip(frames, share, strict=True)
        ]
        reader = PacketReader(parted)
        assert [(seen.source, seen.number, seen.ahead) for seen in reader] == whole
        assert reader.totals.missing_bytes == 0
