"""Packets by the messages that they carry, and by those that they are about."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from captures.decode.row import identifier_text
from captures.decode.sight import Kind
from captures.pipeline.stages.facts import CROSSING_COLUMNS
from captures.pipeline.stages.rows import mapped, subject_of

COLUMNS: Final = (*CROSSING_COLUMNS, "kind", "message", "correlation", "ack_message")
"""What `keyed` takes: of packets, joined with their relations."""
KEYED: Final = ("subject", "about")
"""What it adds to them."""
KEY: Final = ("subject",)
"""Rows of `keyed` that are alike in this come to one stage, and there in this order."""
ORDER: Final = (*KEY, "series", "row_id", "about")


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The UserMessages among packets, with two columns more, by which they find their stage.

    subject: the message, as `captures.decode.row.PacketRow.message` has it. A FinalAck or an administration
        acknowledgment comes twice: for itself, and for the message that it is about.
    about: whether it comes for the message that it is about.
    """
    messages = batch.filter(pc.is_valid(batch.column("message")))
    messages = _with(messages, messages.column("message"), about=False)
    kinds = messages.column("kind")
    administrative = messages.filter(pc.equal(kinds, str(Kind.ADMIN_ACK)))
    final = messages.filter(
        pc.and_(pc.equal(kinds, str(Kind.FINAL_ACK)), pc.is_valid(messages.column("ack_message")))
    )
    subjects = pa.array(mapped(administrative, "correlation", _subject), pa.string())
    parts = [
        messages,
        _with(administrative, subjects, about=True),
        _with(final, final.column("ack_message"), about=True),
    ]
    every: pa.RecordBatch = pa.concat_batches([part for part in parts if part.num_rows] or [messages])
    return every


def _with(batch: pa.RecordBatch, subjects: pa.Array, *, about: bool) -> pa.RecordBatch:
    flags = pa.array([about] * batch.num_rows, pa.bool_())
    kept = batch.drop_columns([name for name in KEYED if name in batch.schema.names])
    return kept.append_column("subject", subjects).append_column("about", flags)


def _subject(correlation: str) -> str:
    return identifier_text(*subject_of(correlation))
