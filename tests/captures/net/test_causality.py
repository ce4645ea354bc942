"""Both sides of a connection: acknowledgments come after the bytes that they acknowledge.

Nothing waits for bytes that will not come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.net import causality, direction
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.direction import Arrival
from mqproto.captures.net.streams import Reassembler
from mqproto.captures.net.tcp import ACK, PSH, Endpoint, Segment, encode_frame
from tests.captures.frames import decode_frame

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)


def said(*sayings: tuple[Side, bytes]) -> list[bytes]:
    """Return a handshake, and then one segment for each thing that a side says.

    After the handshake, every segment has data.
    """
    talk = TcpConversation(CLIENT, SERVER)
    opening = talk.open()
    frames = [talk.send(side, data)[0] for side, data in sayings]
    return opening + frames


def arrivals(frames: Iterable[bytes]) -> Iterator[Arrival]:
    """Yield the chunks that can be read, in order."""
    reassembler = Reassembler()
    for number, frame in enumerate(frames, 1):
        segment = decode_frame(frame)
        assert segment is not None
        yield from reassembler.feed(Frame(0, frame, number=number), segment)
    yield from reassembler.finish()


def told(frames: Iterable[bytes]) -> list[str]:
    """Return the bytes of each chunk, with a mark if it is ahead."""
    chunks = [chunk for _, chunk in arrivals(frames) if chunk is not None]
    return [chunk.data.decode() + " ahead" * chunk.ahead for chunk in chunks]


def lettered(sides: Sequence[Side]) -> list[tuple[Side, bytes]]:
    return [(side, b"%02d" % number) for number, side in enumerate(sides)]


SIDES = st.lists(st.sampled_from(Side), min_size=1, max_size=12)


@given(SIDES, st.data())
def test_whatever_the_order_of_frames_what_acknowledges_bytes_comes_behind_them(
    sides: list[Side], data: st.DataObject
) -> None:
    frames = said(*lettered(sides))
    found = told([*frames[:3], *data.draw(st.permutations(frames[3:]))])
    assert sorted(found) == sorted(told(frames))
    # Where the other side speaks, it has heard all that was said before.
    for number, side in enumerate(sides):
        before = {f"{one:02d}" for one in range(number) if sides[one] is not side}
        assert before <= set(found[: found.index(f"{number:02d}")])


def test_frames_of_the_handshake_may_come_last() -> None:
    frames = said((Side.CLIENT, b"ask"), (Side.SERVER, b"answer"))
    for swapped in (frames[2::-1] + frames[3:], [frames[3], *frames[:3], frames[4]]):
        reassembler = Reassembler()
        found = []
        for number, frame in enumerate(swapped, 1):
            segment = decode_frame(frame)
            assert segment is not None
            found += reassembler.feed(Frame(0, frame, number=number), segment)
        assert [chunk.data for _, chunk in found if chunk is not None] == [b"ask", b"answer"]
        assert reassembler.connection_count == 1


@pytest.mark.parametrize(("size_bytes", "count"), [(1, 1), (1 << 15, 1), (1 << 17, 2)])
def test_a_syn_that_comes_late_is_that_of_a_stream_of_which_little_is_lost_before(
    size_bytes: int, count: int
) -> None:
    talk = TcpConversation(CLIENT, SERVER)
    syn, answer, acknowledgment = talk.open()
    talk.send(Side.SERVER, bytes(size_bytes))
    data, _ = talk.send(Side.SERVER, b"next")
    found = list(arrivals([acknowledgment, data, answer, data, syn]))
    assert [chunk.data for _, chunk in found if chunk is not None] == [b"next"]
    assert len({stream.connection for stream, _ in found}) == count
    assert not found[0].stream.from_start


def test_what_an_acknowledgment_stood_behind_may_come_behind_a_syn() -> None:
    talk = TcpConversation(CLIENT, SERVER)
    syn, answer, _ = talk.open()
    data, _ = talk.send(Side.SERVER, b"answer")
    _, bare = talk.send(Side.CLIENT, b"ask")
    found = list(arrivals([bare, answer, syn, data]))
    assert [(stream.connection, chunk.data) for stream, chunk in found if chunk is not None] == [
        (0, b"answer")
    ]
    assert found[0].stream.from_start


def test_what_the_capture_lacks_is_given_up_after_some_segments() -> None:
    """What the capture lacks is given up after some segments.

    The answer to the lost bytes waits for them, and so do the bytes after the loss.
    """
    many = [(Side.CLIENT, b"%02d" % number) for number in range(causality.PATIENCE_COUNT + 3)]
    frames = said((Side.CLIENT, b"lost"), (Side.SERVER, b"answer"), *many)
    del frames[3]
    assert told(frames)[:2] == ["answer ahead", "00"]


def test_what_tells_of_the_loss_comes_before_what_acknowledges_it() -> None:
    frames = said((Side.CLIENT, b"lost"), (Side.CLIENT, b"next"), (Side.SERVER, b"both"))
    found = [chunk for _, chunk in arrivals([*frames[:3], *frames[4:]]) if chunk is not None]
    assert [(chunk.data, chunk.missing_bytes, chunk.ahead) for chunk in found] == [
        (b"next", 4, False),
        (b"both", 0, False),
    ]


def test_nothing_waits_long_for_a_side_that_is_not_in_the_capture() -> None:
    sayings = [(side, b"%03d" % number) for number in range(400) for side in (Side.CLIENT, Side.SERVER)]
    frames = [frame for frame in said(*sayings) if (one := decode_frame(frame)) and one.source == SERVER]
    reassembler = Reassembler()
    most = 0
    found: list[Arrival] = []
    for number, frame in enumerate(frames, 1):
        segment = decode_frame(frame)
        assert segment is not None
        found += reassembler.feed(Frame(0, frame, number=number), segment)
        most = max(most, number - 1 - len(found))
    assert len(found) == 400
    assert most <= causality.PATIENCE_COUNT
    assert all(chunk is not None and chunk.ahead for _, chunk in found)
    client, server = (stream for stream, chunk in reassembler.finish() if chunk is None)
    assert (client.missing_bytes, server.missing_bytes) == (1_200, 0)


def test_a_copy_that_was_sent_again_does_not_wait_for_what_acknowledged_the_first() -> None:
    """A copy that was sent again does not wait for the data that acknowledged the first copy.

    The first copy of the question is not in the capture. The second copy was sent after the answer had arrived.
    """
    frames = said((Side.CLIENT, b"ask"), (Side.SERVER, b"answer"))
    copy = encode_frame(Segment(CLIENT, SERVER, 1, 7, ACK | PSH, 0xFFFF, b"", b"ask"), 9)
    assert told([*frames[:3], frames[4], copy]) == ["ask ahead", "answer"]


def test_a_side_that_ends_acknowledged_beyond_what_was_read_lacks_these_bytes() -> None:
    talk = TcpConversation(CLIENT, SERVER)
    opening = talk.open()
    sent, acknowledgment = talk.send(Side.CLIENT, b"lost")
    streams = [stream for stream, chunk in arrivals([*opening, acknowledgment]) if chunk is None]
    assert [(stream.gap_count, stream.missing_bytes) for stream in streams] == [(1, 4), (0, 0)]
    finish = talk.finish(Side.CLIENT)
    streams = [
        stream for stream, chunk in arrivals([*opening, sent, acknowledgment, finish[1]]) if chunk is None
    ]
    assert [stream.missing_bytes for stream in streams] == [0, 0]


@pytest.mark.parametrize("lost", [False, True])
def test_a_reset_tells_what_its_side_has_sent_and_what_the_other_can_have_had(lost: bool) -> None:
    talk = TcpConversation(CLIENT, SERVER)
    opening = talk.open()
    asked, answered = talk.send(Side.CLIENT, b"ask"), talk.send(Side.SERVER, b"answer")
    reset = talk.reset(Side.SERVER)
    late = talk.reset(Side.CLIENT)
    frames = [*opening, *asked, *([] if lost else answered), *reset]
    client, server = (stream for stream, chunk in arrivals(frames) if chunk is None)
    assert (client.sent_bytes, client.came_bytes) == (None, 3)
    assert (server.sent_bytes, server.came_bytes) == (6, 6)
    client, server = (stream for stream, chunk in arrivals([*frames, *late]) if chunk is None)
    assert (client.sent_bytes, client.came_bytes, server.sent_bytes) == (3, 3, 6)
    client, server = (stream for stream, chunk in arrivals([*opening, *asked]) if chunk is None)
    assert (client.sent_bytes, client.came_bytes, server.sent_bytes) == (None, None, None)


@given(SIDES, st.data())
def test_whatever_is_lost_the_rest_is_read_once_and_in_bounds(sides: list[Side], data: st.DataObject) -> None:
    syn, *frames = said(*lettered(sides))
    kept = [syn, *data.draw(st.lists(st.sampled_from(frames), max_size=2 * len(frames)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(causality, "PATIENCE_COUNT", data.draw(st.integers(0, 3)))
        patch.setattr(causality, "WAITING_LIMIT_COUNT", data.draw(st.integers(0, 3)))
        patch.setattr(direction, "LATER_COUNT", data.draw(st.integers(0, 3)))
        found = [text.removesuffix(" ahead") for text in told(kept)]
    assert len(found) == len(set(found))
