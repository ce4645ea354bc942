"""Offloading and late SYNs change the form of frames, but not the bytes that were sent."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import SYN, Endpoint
from mqproto.captures.spoil import coalesced, late_syns, placed, segmented
from tests.captures.frames import decode_frame
from tests.captures.pipeline.worlds import CLIENT, SERVER, conversations
from tests.captures.whole import reassemble

talks = conversations(CLIENT, SERVER, True).map(
    lambda frames: [Frame(number * 1_000, data, number=number) for number, data in enumerate(frames, 1)]
)


def said(frames: list[Frame]) -> list[tuple[str, bytes, Ending]]:
    return [(str(stream), stream.data, stream.ending) for stream in reassemble(frames)]


@given(talks, st.integers(1, 200), st.sampled_from([0, 50, 100]), st.integers(0, 5))
def test_what_was_said_does_not_depend_on_offloading(
    frames: list[Frame], size_bytes: int, percent: int, seed: int
) -> None:
    joined = list(coalesced(frames, percent, seed))
    assert len(joined) <= len(frames)
    assert said(joined) == said(frames)
    pieces = list(segmented(joined, size_bytes))
    assert said(pieces) == said(frames)
    places = [placed(frame) for frame in pieces]
    assert all(place is not None and place.end - place.payload <= size_bytes for place in places)


def test_a_segment_that_never_crosses_a_wire_is_longer_than_ip_can_say() -> None:
    talk = TcpConversation(Endpoint("127.0.0.1", 50_000), Endpoint("127.0.0.2", 1801))
    opening = talk.open()
    data = b"".join(number.to_bytes(4, "big") for number in range(40_000))
    frames = [Frame(number, each) for number, each in enumerate([*opening, *talk.send(Side.CLIENT, data)])]
    joined = list(coalesced(frames, 100))
    longest = max(joined, key=lambda frame: len(frame.data))
    assert len(longest.data) > 65_535 + 14
    assert longest.data[16:18] == bytes(2)
    assert said(joined) == said(frames)
    assert said(list(segmented(joined, 1_448))) == said(frames)
    short = list(coalesced(frames, 100, limit_bytes=70_000))
    assert max(len(frame.data) for frame in short) <= 70_000


@given(talks, st.integers(0, 5))
def test_a_late_syn_comes_behind_a_few_of_its_connection(frames: list[Frame], seed: int) -> None:
    late = list(late_syns(frames, 100, seed))
    assert Counter(frame.data for frame in late) == Counter(frame.data for frame in frames)
    assert [frame.time_ns for frame in late] == sorted(frame.time_ns for frame in late)
    for frame in late:
        segment = decode_frame(frame.data)
        assert segment is not None
        if segment.flags & SYN and frame.comment:
            before = late.index(frame) - (frame.number - 1)
            assert 0 <= before <= 3
    assert list(late_syns(frames, 0, seed)) == frames
