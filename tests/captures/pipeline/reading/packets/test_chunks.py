"""Bytes are laid down in order, wherever they are in the file."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from hypothesis import given, strategies as st

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.direction import Chunk
from mqproto.captures.net.tcp import ACK, Segment
from mqproto.captures.pipeline.reading.packets.chunks import Chunks, Piece, from_pieces, from_segments, joined
from tests.captures.pipeline.split import segments_of
from tests.captures.pipeline.worlds import CLIENT, SERVER

PAYLOADS = st.lists(st.binary(max_size=12), max_size=12)
PIECES = st.lists(
    st.builds(
        Piece,
        st.integers(1, 99),
        st.integers(-3, 3),
        st.builds(
            Chunk,
            st.integers(0, 2**62),
            st.binary(min_size=1, max_size=9),
            *[st.integers(0, 9)] * 3,
            st.booleans(),
            st.integers(0, 9),
        ),
    ),
    max_size=6,
)


def pieces_of(chunks: Chunks) -> list[Piece]:
    return [chunks.piece(row) for row in range(len(chunks))]


@given(PIECES, PIECES)
def test_pieces_stay_what_they_are(some: list[Piece], more: list[Piece]) -> None:
    assert pieces_of(from_pieces(some)) == some
    assert pieces_of(joined([from_pieces(some), from_pieces(more)])) == some + more
    assert pieces_of(joined([])) == []


@given(PAYLOADS, st.data())
def test_payloads_are_gathered_in_any_order(payloads: list[bytes], data: st.DataObject) -> None:
    frames = [
        Frame(10 * number, b"", number=number, offset=7 * number) for number in range(5, 5 + len(payloads))
    ]
    segments, file, _ = segments_of(
        [
            (frame, Segment(CLIENT, SERVER, 0, 0, ACK, 0, b"", payload))
            for frame, payload in zip(frames, payloads, strict=True)
        ],
        data.draw(st.frozensets(st.integers(5, 17))),
    )
    filled = [row for row, payload in enumerate(payloads) if payload]
    rows = data.draw(st.permutations(filled)) if filled else []
    chunks = from_segments(segments, file, np.array(rows, dtype=np.int64))
    assert pieces_of(chunks) == [
        Piece(row + 5, 0, Chunk(10 * (row + 5), payloads[row], 0, row + 5, 7 * (row + 5))) for row in rows
    ]
    assert chunks.data.tobytes() == b"".join(payloads[row] for row in rows)


def test_a_mapped_file_serves_as_well(tmp_path: Path) -> None:
    segments, file, _ = segments_of(
        [(Frame(0, b"", number=1), Segment(CLIENT, SERVER, 0, 0, ACK, 0, b"", b"mapped"))]
    )
    path = tmp_path / "capture"
    path.write_bytes(file)
    with path.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    chunks = from_segments(segments, mapped, np.array([0]))
    assert pieces_of(chunks)[0].chunk.data == chunks.data.tobytes() == b"mapped"
