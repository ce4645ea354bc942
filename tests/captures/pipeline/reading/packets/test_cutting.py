"""Packets that are cut from many chunks at once are the same as those that `mqproto.captures.framing` cuts one by
one.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import given, strategies as st

from mqproto.captures.framing import Framed, Framing
from mqproto.captures.net.direction import Chunk, Stream
from mqproto.captures.pipeline.reading.packets.chunks import Chunks, Piece, from_pieces
from mqproto.captures.pipeline.reading.packets.cutting import Heads, Packets, Run, cut
from tests.captures.pipeline.worlds import CLIENT, ELSEWHERE, SAID, SERVER, user_message


class Told(NamedTuple):
    """One stream with its chunks.

    in_step: whether a packet begins with the stream's first byte.
    before: the number of chunks that are taken beforehand.
    """

    stream: Stream
    in_step: bool
    chunks: list[Chunk]
    before: int


@st.composite
def stories(draw: st.DrawFn) -> Told:
    """Draw the bytes of a stream, cut anywhere. In some places, bytes are missing or cut off."""
    said = draw(st.lists(SAID, min_size=1, max_size=6))
    data = b"".join(said)
    borders = set(itertools.accumulate(map(len, said)))
    cuts = draw(st.sets(st.integers(1, len(data)), max_size=6)) | draw(st.sampled_from([set(), borders]))
    gaps = st.sampled_from([0, 0, 0, 0, 1, 40, 120])
    chunks = [
        Chunk(10 * number, data[start:end], draw(gaps), number, 100 * number, draw(st.booleans()), draw(gaps))
        for number, (start, end) in enumerate(itertools.pairwise(sorted({0, len(data), *cuts})), 1)
    ]
    stream = Stream(0, CLIENT, draw(st.sampled_from([SERVER, ELSEWHERE])))
    return Told(stream, draw(st.booleans()), chunks, draw(st.integers(0, len(chunks))))


def rows_of(packets: Packets, place: int) -> list[tuple[object, ...]]:
    """Return the columns of one stream's packets, without their places in memory."""
    return [
        (
            packets.data[packets.start[row] : packets.start[row] + packets.size[row]].tobytes(),
            int(packets.position[row]),
            bool(packets.framed[row]),
            (int(packets.first_frame[row]), int(packets.began_ns[row]), int(packets.offset[row])),
            (int(packets.frame[row]), int(packets.time_ns[row])),
            (int(packets.missing[row]), int(packets.skipped[row]), bool(packets.ahead[row])),
            (int(packets.snapped[row]), int(packets.cut[row])),
        )
        for row in range(len(packets))
        if packets.stream[row] == place
    ]


def row_of(framed: Framed, ahead: bool) -> tuple[object, ...]:
    """Return the columns of one packet. `ahead` says whether its chunk is ahead."""
    began, ended = framed.began, framed.ended
    return (
        framed.data,
        began.position,
        framed.fault is None,
        (began.frame, began.time_ns, began.offset),
        (ended.frame, ended.time_ns),
        (framed.loss.missing_bytes, framed.loss.skipped_bytes, ahead or ended.ahead),
        (framed.loss.snapped_bytes, framed.loss.cut_bytes),
    )


def scattered(pieces: list[Piece], dice: int) -> Chunks:
    """Return a stream's chunks, taken from a file that has them in a different order."""
    chunks = from_pieces(pieces)
    at, file = [0] * len(pieces), b"ahead"
    for row in random.Random(dice).sample(range(len(pieces)), len(pieces)):
        at[row] = len(file)
        file += pieces[row].chunk.data + b"between"
    return replace(chunks, source=np.frombuffer(file, np.uint8), at=np.array(at, np.int64))


def test_so_it_is_where_a_packet_is_proved_in_a_later_chunk() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        data = bytes(4) + b"".join(user_message(4 * dice.randrange(30, 200)) for _ in range(5))
        cuts = sorted(dice.sample(range(1, len(data)), 8))
        chunks = [
            Chunk(
                10 * number,
                data[start:end],
                4 * (not dice.randrange(9)),
                number,
                100 * number,
                number % 2 > 0,
            )
            for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(data)]), 1)
        ]
        told = Told(Stream(0, CLIENT, SERVER), False, chunks, dice.randrange(6))
        assert_one_by_one([told], seed if seed % 2 else None)


@given(st.lists(stories(), max_size=3), st.none() | st.integers(0, 9))
def test_all_at_once_is_one_by_one(told: list[Told], dice: int | None) -> None:
    assert_one_by_one(told, dice)


def assert_one_by_one(told: list[Told], dice: int | None) -> None:
    rows: list[Piece] = []
    runs: list[Run] = []
    expected: list[list[tuple[object, ...]]] = []
    slow: list[Framing] = []
    for stream, in_step, chunks, before in told:
        framing, other = Framing(stream, in_step), Framing(stream, in_step)
        for chunk in chunks[:before]:
            framing.take(chunk)
            other.take(chunk)
        begun = framing.begun
        pieces = [Piece(chunk.frame, 0, chunk) for chunk in chunks[before:]]
        if pieces:
            first = len(rows)
            rows += ([] if begun is None else [Piece(0, 0, begun)]) + pieces
            runs.append(Run(stream, framing, first, len(rows), begun is not None))
            expected.append(
                [row_of(framed, chunk.ahead) for chunk in chunks[before:] for framed in other.take(chunk)]
            )
            slow.append(other)
    table = from_pieces(rows) if dice is None else scattered(rows, dice)
    packets = cut(table, Heads(table), runs)
    assert [rows_of(packets, place) for place in range(len(runs))] == expected
    for run, other in zip(runs, slow, strict=True):
        assert run.framing.end() == other.end()
        assert (run.framing.position, run.framing.begun) == (other.position, other.begun)
        for name in ("missing_bytes", "skipped_bytes", "snapped_bytes"):
            assert getattr(run.framing, name) == getattr(other, name)
