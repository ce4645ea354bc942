"""Decides which messages are over, so that later runs can leave out their rows.

A message is *decided* when it has arrived at its destination, its sessions can report nothing more about it, and, if
transactional, it has been confirmed. After that, only copies of packets already seen can follow. An undecided message
may still be on its way, or wait in a queue manager whose neighbour is offline.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.facts import MAY_BE_TRANSACTIONAL
from mqproto.captures.pipeline.stages.messages.straight import NULL_TEXT
from mqproto.captures.pipeline.tables.lists import integers

WAITS: Final = "waits"
"""The column that says whether a packet's relation to its session may still change."""


class Watermark(NamedTuple):
    """The limits that decide whether a message is over.

    quiet_ns: a decided message is over if it was last seen before this time.
    silent_ns: any other message is over if it was last seen before this time.
    """

    quiet_ns: int
    silent_ns: int


def settled(rows: pa.RecordBatch, watermark: Watermark, open_subjects: pa.Array, row_limit: int) -> Mask:
    """Return, for each row, whether its message is over.

    Args:
        rows: the rows of `subjects.keyed`, with WAITS, together with those of CONFIRMATIONS and of remembered messages;
            the rows of one message follow one another.
        open_subjects: the messages that are not over, whatever the rows say.
        row_limit: the maximum number of rows of open messages. If there are more, the messages that have been silent
            longest are over.
    """
    count = rows.num_rows
    if not count:
        return np.zeros(0, dtype=bool)
    subject = pc.fill_null(rows.column("subject"), "")
    changed = pc.not_equal(subject.slice(1), subject.slice(0, count - 1)).to_numpy(zero_copy_only=False)
    first = np.flatnonzero(np.append(True, changed))
    sizes = np.diff(first, append=count)

    def some(mask: Mask) -> Mask:
        found: Mask = np.logical_or.reduceat(mask, first)
        return found

    about = rows.column("about").to_numpy(zero_copy_only=False)
    last_ns = np.maximum.reduceat(integers(rows, "time_ns"), first)
    waits = pc.fill_null(rows.column(WAITS), False).to_numpy(zero_copy_only=False)
    destination = rows.column("destination_manager")
    towards = pc.if_else(pc.equal(destination, NULL_TEXT), rows.column("to_key"), destination)
    has_come = pc.fill_null(pc.equal(rows.column("to_key"), towards), False).to_numpy(zero_copy_only=False)
    transactional = pc.is_in(rows.column("delivery"), pa.array(MAY_BE_TRANSACTIONAL))
    unconfirmed = ~about & transactional.to_numpy(zero_copy_only=False)

    decided = ~some(waits) & some(~about & has_come) & (~some(unconfirmed) | some(about))
    is_over = (last_ns < watermark.silent_ns) | (decided & (last_ns < watermark.quiet_ns))
    held = pc.is_in(subject.take(pa.array(first)), open_subjects).to_numpy(zero_copy_only=False)
    is_over &= ~held
    is_over |= ~held & _too_many(is_over, last_ns, sizes, row_limit)
    return np.repeat(is_over, sizes)


def _too_many(is_over: Mask, last_ns: Integers, sizes: Integers, row_limit: int) -> Mask:
    """Return the messages to give up if open messages have too many rows: those silent for longest."""
    newest = np.argsort(-last_ns, kind="stable")
    rows = np.cumsum(np.where(is_over, 0, sizes)[newest])
    found = np.zeros(len(sizes), dtype=bool)
    found[newest[rows > row_limit]] = True
    return found
