"""Finds where the messages of sequences followed one another, so that many can be taken at once.

Sequences are judged separately, so a batch may be sorted by sequence. Between two acknowledgments of a sequence, its
hops are judged separately, too. If a stretch of messages is in order on each hop, only its first and last messages need
to be examined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.lists import codes, integers

LEAST: Final = 16
"""The minimum number of messages for which a stretch is worth taking at once."""
OF_SEQUENCE: Final = ("source_manager", "destination_manager", "queue")
OF_HOP: Final = ("from_key", "to_key", "interface")


class Piece(NamedTuple):
    """Some rows of a batch, given by their numbers.

    hops: the rows of each hop if this is a stretch in order; otherwise empty.
    """

    rows: Integers
    hops: tuple[Integers, ...]


def pieces(batch: pa.RecordBatch) -> Iterator[Piece]:
    """Yield pieces that together have all rows of a batch of `sequences.keyed`.

    Rows with the same TxSequenceID keep their order.
    """
    if not batch.num_rows:
        return
    sequence = codes(batch, ("series", "identifier"))
    is_ack = pc.is_null(batch.column("sequence")).to_numpy(zero_copy_only=False)
    order = np.argsort(sequence, kind="stable")
    # An acknowledgment is a stretch of its own.
    begins = np.diff(sequence[order], prepend=-1) != 0
    begins |= is_ack[order]
    begins[1:] |= is_ack[order[:-1]]
    stretch = np.empty_like(order)
    stretch[order] = np.cumsum(begins) - 1

    of = codes(batch, OF_SEQUENCE)
    hop = codes(batch, OF_HOP)
    by_hop = np.lexsort((hop, stretch))
    stretch, of, hop = stretch[by_hop], of[by_hop], hop[by_hop]
    number, previous = (integers(batch, name)[by_hop] for name in ("sequence_number", "previous_number"))
    goes_on = stretch[1:] == stretch[:-1]
    on_hop = goes_on & (hop[1:] == hop[:-1])
    odd = is_ack[by_hop] | (previous != number - 1)
    odd[1:] |= (on_hop & (number[1:] != number[:-1] + 1)) | (goes_on & (of[1:] != of[:-1]))
    in_order = np.diff(np.flatnonzero(begins), append=len(order)) >= LEAST
    in_order[stretch[odd]] = False

    bounds = np.append(np.flatnonzero(begins), len(order))
    starts = np.flatnonzero(np.append(True, ~on_hop))
    # What is not in order goes together, up to the next stretch that is.
    firsts = np.flatnonzero(in_order | np.append(True, in_order[:-1]))
    for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(in_order)], strict=True):
        low, high = bounds[first], bounds[last]
        if in_order[first]:
            inner = starts[slice(*np.searchsorted(starts, (low + 1, high)))] - low
            yield Piece(order[low:high], tuple(np.split(by_hop[low:high], inner)))
        else:
            yield Piece(order[low:high], ())
