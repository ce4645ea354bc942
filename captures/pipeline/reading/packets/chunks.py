"""The bytes of many streams in order, with columns that show which frame brought them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mqproto.captures.net.direction import Chunk
from mqproto.captures.net.heads import chain_in, head_in
from mqproto.captures.pipeline.source.octets import Octets, gathered
from mqproto.captures.pipeline.source.records import Data, Integers
from mqproto.captures.pipeline.source.segments import Segments


class Piece(NamedTuple):
    """A chunk, and when it became readable.

    readable: the number of the frame that made the chunk readable. It is higher than the number of any frame if the
        chunk became readable only because the capture ended.
    order: the place of the chunk among the pieces that this frame makes readable between the same two ends; below 0 if
        the frame ends the connection between them.
    """

    readable: int
    order: int
    chunk: Chunk


@dataclass(slots=True)
class Chunks:
    """Chunks of streams, with a row for each; those of one stream are adjacent and in order.

    readable, order: as in a Piece.
    frame, time_ns, offset, missing, cut, ahead: as in a mqproto.captures.net.direction.Chunk.
    start, size: the place and the size of the chunk's bytes in `data`, where the bytes are in the order of the rows. No
        chunk is empty.
    """

    readable: Integers
    order: Integers
    frame: Integers
    time_ns: Integers
    offset: Integers
    missing: Integers
    cut: Integers
    ahead: npt.NDArray[np.bool_]
    size: Integers
    source: Octets
    at: Integers
    start: Integers = field(init=False)
    _data: Octets | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.start = starts_of(self.size)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_laid_down(self) -> bool:
        """Whether `data` has been asked for."""
        return self._data is not None

    @property
    def data(self) -> Octets:
        """The bytes of all chunks, one after another. They are copied on first use."""
        if self._data is None:
            self._data = gathered(self.source, self.at, self.size)
        return self._data

    def may_begin(self, row: int) -> bool:
        """Whether a packet may begin inside a chunk.

        Either the packet must extend beyond the chunk, or other packets must follow it without a break to the end of
        the chunk.
        """
        at = int(self.at[row])
        data = self.source[at : at + int(self.size[row])].tobytes()
        return head_in(data)[0] is not None or chain_in(data) is not None

    def piece(self, row: int) -> Piece:
        """Return one row as a Piece."""
        at = int(self.at[row])
        chunk = Chunk(
            int(self.time_ns[row]),
            self.source[at : at + int(self.size[row])].tobytes(),
            int(self.missing[row]),
            int(self.frame[row]),
            int(self.offset[row]),
            bool(self.ahead[row]),
            int(self.cut[row]),
        )
        return Piece(int(self.readable[row]), int(self.order[row]), chunk)


def from_pieces(pieces: Sequence[Piece]) -> Chunks:
    """Return chunks that were read one by one."""
    columns = np.array(
        [
            (readable, order, frame, time_ns, offset, missing, cut, ahead, len(data))
            for readable, order, (time_ns, data, missing, frame, offset, ahead, cut) in pieces
        ],
        dtype=np.int64,
    ).reshape(-1, 9)
    readable, order, frame, time_ns, offset, missing, cut, ahead, size = columns.T
    data = np.frombuffer(b"".join(piece.chunk.data for piece in pieces), dtype=np.uint8)
    is_ahead, at = ahead.astype(np.bool_), starts_of(size)
    return Chunks(readable, order, frame, time_ns, offset, missing, cut, is_ahead, size, data, at)


def from_segments(segments: Segments, data: Data, rows: Integers, *, ahead: bool = False) -> Chunks:
    """Return the payloads of segments that came in order and uncut, each as a chunk.

    Args:
        rows: rows of `segments`, in the order in which their bytes should be.
        ahead: the value of `ahead` for all of these chunks, as in mqproto.captures.net.direction.Chunk.
    """
    number = segments.frame[rows]
    size, at, source = segments.size[rows], segments.start[rows], np.frombuffer(data, np.uint8)
    if (at < 0).any():
        source, at = np.frombuffer(segments.payloads(data, rows).buffers()[2], np.uint8), starts_of(size)
    return Chunks(
        readable=number,
        order=np.zeros(len(rows), dtype=np.int64),
        frame=number,
        time_ns=segments.time_ns[rows],
        offset=segments.offset[rows],
        missing=np.zeros(len(rows), dtype=np.int64),
        cut=np.zeros(len(rows), dtype=np.int64),
        ahead=np.full(len(rows), ahead),
        size=size,
        source=source,
        at=at,
    )


def joined(parts: Iterable[Chunks]) -> Chunks:
    """Return the rows of all parts, one part after another."""
    some = [part for part in parts if len(part)] or [from_pieces([])]
    if len(some) == 1:
        return some[0]
    size = np.concatenate([part.size for part in some])
    return Chunks(
        readable=np.concatenate([part.readable for part in some]),
        order=np.concatenate([part.order for part in some]),
        frame=np.concatenate([part.frame for part in some]),
        time_ns=np.concatenate([part.time_ns for part in some]),
        offset=np.concatenate([part.offset for part in some]),
        missing=np.concatenate([part.missing for part in some]),
        cut=np.concatenate([part.cut for part in some]),
        ahead=np.concatenate([part.ahead for part in some]),
        size=size,
        source=np.concatenate([part.data for part in some]),
        at=starts_of(size),
    )


def starts_of(size: Integers) -> Integers:
    """Return where each of some adjacent items begins, given their sizes."""
    return np.cumsum(size) - size
