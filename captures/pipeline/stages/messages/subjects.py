"""Orders packets by the messages that they carry, and by the messages that they are about."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sight import Kind
from mqproto.captures.pipeline.stages.facts import CROSSING_COLUMNS
from mqproto.captures.pipeline.tables.lists import mapped, subject_of

NAMING: Final = ("message", "correlation", "ack_message")
COLUMNS: Final = (*CROSSING_COLUMNS, "kind", *NAMING)
"""The columns that `keyed` takes from packets that are joined with their relations."""
KEYED: Final = ("subject", "about")
"""The columns that `keyed` puts in place of NAMING."""
KEY: Final = ("subject",)
"""The key of the rows of `keyed`: those with the same value in this column come to the same stage, sorted by ORDER."""
ORDER: Final = (*KEY, "series", "row_id", "about")


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the UserMessages among packets, with two columns by which they find their stage.

    subject: the message, as in `mqproto.captures.decode.row.PacketRow.message`. A FinalAck or an
        administration acknowledgment has two rows: one for itself, and one for the message that it is about.
    about: whether this is the row for the message that the packet is about.
    """
    messages = batch.filter(pc.is_valid(batch.column("message")))
    kinds = messages.column("kind")
    administrative = messages.filter(pc.equal(kinds, str(Kind.ADMIN_ACK)))
    final = messages.filter(
        pc.and_(pc.equal(kinds, str(Kind.FINAL_ACK)), pc.is_valid(messages.column("ack_message")))
    )
    carried = _with(messages, messages.column("message"), about=False)
    subjects = pa.array(mapped(administrative, "correlation", _subject), pa.string())
    about = [
        _with(administrative, subjects, about=True),
        _with(final, final.column("ack_message"), about=True),
    ]
    every: list[pa.RecordBatch] = [carried, *(part for part in about if part.num_rows)]
    return every[0] if len(every) == 1 else pa.concat_batches(every)


def _with(batch: pa.RecordBatch, subjects: pa.Array, *, about: bool) -> pa.RecordBatch:
    flags = pa.repeat(pa.scalar(about), batch.num_rows)
    return batch.drop_columns(list(NAMING)).append_column("subject", subjects).append_column("about", flags)


def _subject(correlation: str) -> str:
    return identifier_text(*subject_of(correlation))
