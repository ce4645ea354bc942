"""Where frames are caught: each half of a TAP sees one direction of a connection, and each host sees all of its own
frames.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from mqproto.captures.files.frame import ETHERNET, Frame
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.spoil import at_hosts, bonded, halved, relinked, skewed, translated
from tests.captures.frames import decode_frame

ENDS = [Endpoint(f"127.0.0.{number}", 1801) for number in (1, 2, 3)]


def traffic() -> list[Frame]:
    """Return the traffic of three hosts: connections in both directions between neighbouring ones, and one within a
    host.
    """
    frames = []
    for number, (one, other) in enumerate([(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]):
        talk = TcpConversation(Endpoint(ENDS[one].host, 50_000 + number), ENDS[other])
        frames += [*talk.open(), *talk.send(Side.CLIENT, b"x"), *talk.send(Side.SERVER, b"y")]
    return [Frame(number * 1_000_000, data) for number, data in enumerate([*frames, bytes(60)])]


def test_each_half_of_a_tap_has_one_way_of_every_connection() -> None:
    frames = list(halved(traffic()))
    assert [
        frame._replace(interface=each.interface) for frame, each in zip(frames, traffic(), strict=True)
    ] == (traffic())
    ways: dict[tuple[Endpoint, Endpoint], set[int]] = {}
    for frame in frames:
        if segment := decode_frame(frame.data):
            ways.setdefault((segment.source, segment.destination), set()).add(frame.interface.number)
    for ends, numbers in ways.items():
        assert len(numbers) == 1
        assert numbers != ways[ends[::-1]]
    # All from one host to another are at one place, whoever opened the connection.
    hosts = {
        (source.host, to.host): numbers for (source, to), numbers in ways.items() if source.host != to.host
    }
    assert all(
        numbers == hosts[source.host, to.host]
        for (source, to), numbers in ways.items()
        if source.host != to.host
    )
    linked = list(relinked(frames, "cooked"))
    assert {frame.interface.number for frame in linked} == {0, 1}
    assert ETHERNET not in {frame.link_type for frame in linked}


def test_each_host_has_all_frames_that_it_sends_and_gets() -> None:
    frames = list(at_hosts(traffic()))
    seen = Counter(frame.data for frame in frames)
    for frame in traffic():
        if segment := decode_frame(frame.data):
            assert seen[frame.data] == len({segment.source.host, segment.destination.host})
    assert len({frame.interface.number for frame in frames}) == 3


def test_the_interfaces_of_a_bond_take_turns() -> None:
    taken = Counter(frame.interface.number for frame in bonded(traffic(), 1))
    assert min(taken[0], taken[1]) > 5
    ways: dict[tuple[Endpoint, Endpoint], set[int]] = {}
    for frame in bonded(traffic(), 1, by_connection=True):
        if segment := decode_frame(frame.data):
            ways.setdefault((segment.source, segment.destination), set()).add(frame.interface.number)
    assert {len(numbers) for numbers in ways.values()} == {1}
    assert set.union(*ways.values()) == {0, 1}


def test_a_host_that_translates_has_each_segment_twice_the_second_time_as_its_own_clients() -> None:
    frames = list(translated(traffic(), 20_000))
    segments = [segment for frame in frames if (segment := decode_frame(frame.data))]
    whole = [segment for frame in traffic() if (segment := decode_frame(frame.data))]
    assert len(frames) == 2 * len(whole) + 1
    own = [
        segment for segment in segments if "198.51.100.1" in (segment.source.host, segment.destination.host)
    ]
    assert [segment[2:] for segment in own] == [segment[2:] for segment in whole]
    assert len({segment.source for segment in own if segment.source.host == "198.51.100.1"}) == 5
    assert frames == sorted(frames, key=lambda frame: frame.time_ns)
    # What goes out is the client's first, and what comes in the host's.
    assert all(
        ("198.51.100.1" in (one.source.host, one.destination.host)) == (one.source.port == 1801)
        for one in segments[::2]
    )
    sides = {frame.interface.number for frame in translated(traffic(), 20_000, apart=True)}
    assert sides == {0, 1}


@given(st.integers(-(10**10), 10**10), st.integers(-500, 500))
def test_a_clock_is_ahead_and_gains(offset_ns: int, drift_ppm: int) -> None:
    frames = [frame._replace(time_ns=frame.time_ns + 10**12) for frame in halved(traffic())]
    wrong = list(skewed(frames, offset_ns, drift_ppm, {1}))
    first_ns = next(frame.time_ns for frame in frames if frame.interface.number == 1)
    for right, frame in zip(frames, wrong, strict=True):
        gained_ns = offset_ns + (right.time_ns - first_ns) * drift_ppm // 10**6
        expected_ns = right.time_ns + gained_ns * (right.interface.number == 1)
        assert abs(frame.time_ns - expected_ns) <= 1
    assert list(skewed(frames, 0)) == frames
