"""Segments put in order: many at once wherever that gives the same result as handling them one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.answers import segment_in
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.direction import Direction
from mqproto.captures.net.ip import IpReader
from mqproto.captures.net.streams import Connection
from mqproto.captures.net.tcp import Segment
from mqproto.captures.pipeline.reading.packets import reassembly
from mqproto.captures.pipeline.reading.packets.chunks import Piece
from mqproto.captures.pipeline.reading.packets.reassembly import Pairs, SegmentPart, Smooth, reassemble
from tests.captures.pipeline.split import numbered, ranges
from tests.captures.pipeline.worlds import CLIENT, PACKETS, SERVER, conversations, some_worlds


def pieces_of(part: SegmentPart, pair: int) -> list[tuple[str, list[Piece]]]:
    """Return the chunks of each stream."""
    return [
        (
            f"{stream.connection} {stream.interface.name} {stream}",
            [chunks.piece(row) for row in range(len(chunks))],
        )
        for epoch in reassemble(part, Pairs(part.segments).rows_of(pair), [])
        for stream, chunks in epoch.chunks().items()
    ]


def one_by_one(part: SegmentPart, pair: int) -> list[tuple[str, list[Piece]]]:
    """Return the chunks of each stream, put in order one segment at a time.

    No run of segments counts as long enough to be handled together.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reassembly, "RUN_COUNT", 1 << 30)
        return pieces_of(part, pair)


@pytest.mark.long
@given(some_worlds(), st.integers(1, 4))
def test_runs_are_what_they_are_one_by_one(frames: list[Frame], run_count: int) -> None:
    [part] = ranges(frames)
    for pair in range(Pairs(part.segments).count):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reassembly, "RUN_COUNT", run_count)
            assert sorted(pieces_of(part, pair)) == sorted(one_by_one(part, pair))


@given(conversations(CLIENT, SERVER, begun=True, said=PACKETS))
def test_what_came_in_order_is_smooth(talk: list[bytes]) -> None:
    [part] = ranges(numbered(Frame(0, frame) for frame in talk))
    assert smooth_in(Pairs(part.segments)).is_smooth.tolist() == [True]


def smooth_in(pairs: Pairs) -> Smooth:
    """Return the smooth pairs, given that none is known yet."""
    return Smooth(pairs, np.zeros(pairs.count, np.bool_))


@pytest.mark.long
@given(some_worlds())
def test_smooth_pairs_are_what_they_are_one_by_one(frames: list[Frame]) -> None:
    [part] = ranges(frames)
    pairs = Pairs(part.segments)
    smooth = smooth_in(pairs)
    found: dict[int, Connection] = {}
    for pair in np.flatnonzero(smooth.is_smooth).tolist():
        rows = pairs.rows_of(pair)
        first = int(rows[0])
        number = int(part.segments.frame[first])
        segment = segment_in(frames[number - 1], IpReader())
        assert segment is not None
        found[pair] = Connection(number, segment)
    chunk_counts = {(pair, str(stream)): count for pair, stream, count in smooth.fill(part, found)}
    for pair, connection in found.items():
        [epoch] = reassemble(part, pairs.rows_of(pair), [])
        assert not epoch.connection.waits
        for ours, theirs in zip(connection.streams, epoch.connection.streams, strict=True):
            assert told(ours) == told(theirs)
        counts = {(pair, str(stream)): len(chunks) for stream, chunks in epoch.chunks().items()}
        assert counts == {key: count for key, count in chunk_counts.items() if key[0] == pair}
        for each in (connection, epoch.connection):
            each.settle()
        for ours, theirs in zip(connection.streams, epoch.connection.streams, strict=True):
            assert told(ours) == told(theirs)


def told(stream: object) -> list[object]:
    """Return the values of all fields of a stream, except for its opposite."""
    return [getattr(stream, name) for name in stream.__slots__ if name != "opposite"]  # type: ignore[attr-defined]


def test_around_a_repetition_segments_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = TcpConversation(CLIENT, SERVER)
    opening = talk.open()
    said = [frame for _ in range(200) for frame in talk.send(Side.CLIENT, b"some bytes")]
    frames = [*opening, *said[:100], said[98], *said[100:]]
    taken: list[Segment] = []
    take = Direction.take

    def counted(direction: Direction, segment: Segment, frame: Frame) -> None:
        taken.append(segment)
        take(direction, segment, frame)

    monkeypatch.setattr(Direction, "take", counted)
    [part] = ranges(numbered(Frame(0, frame) for frame in frames))
    [(_, pieces)] = pieces_of(part, 0)
    assert b"".join(piece.chunk.data for piece in pieces) == b"some bytes" * 200
    # The handshake, the first bytes, the repetition, and what comes right behind it.
    assert len(taken) <= 8


def test_what_is_repeated_in_a_run_is_compared_with_what_is_remembered_of_it() -> None:
    talk = TcpConversation(CLIENT, SERVER)
    opening = talk.open()
    said = [frame for number in range(200) for frame in talk.send(Side.CLIENT, b"%05d" % number)]
    other = said[-40][:-1] + b"?"
    [part] = ranges(numbered(Frame(0, frame) for frame in [*opening, *said, other]))
    [epoch] = reassemble(part, Pairs(part.segments).rows_of(0), [])
    assert [stream.conflict_count for stream in epoch.connection.streams] == [1, 0]


def test_pairs_know_their_rows() -> None:
    talks = [TcpConversation(CLIENT._replace(port=40_000 + number), SERVER) for number in range(3)]
    frames = [frame for some in itertools.zip_longest(*(talk.open() for talk in talks)) for frame in some]
    [part] = ranges(numbered(Frame(0, frame) for frame in frames))
    pairs = Pairs(part.segments)
    assert sorted(pairs.rows_of(pair).tolist() for pair in range(pairs.count)) == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5, 8],
    ]
    assert sorted(pairs.edge_rows.tolist()) == [[0, 6], [1, 7], [2, 8]]
