"""What crossed a hop twice and why, and whether intermediates passed on what came.

The rules are `captures.decode.journeys`'. All packets with one message come to one stage, and so does what says that it
has ended.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from captures.decode.journeys import JourneyChecker
from captures.decode.row import identifier_text
from captures.decode.sight import Kind
from captures.pipeline.stages.facts import CROSSING_COLUMNS, Losses, crossings
from captures.pipeline.stages.findings import finding_row
from captures.pipeline.stages.rows import Batches, batches_of, mapped, message_of, subject_of, values
from captures.pipeline.stages.schema import ENDINGS, FINDINGS

COLUMNS: Final = (*CROSSING_COLUMNS, "kind", "message", "correlation", "ack_message")
"""What `keyed` takes: of packets, joined with their relations."""
KEYED: Final = ("subject", "about")
"""What it adds to them."""
KEY: Final = ("subject",)
"""Rows of `keyed` that are alike in this come to one stage, and there in this order."""
ORDER: Final = (*KEY, "series", "row_id", "about")
SCHEMAS: Final = {"findings": FINDINGS, "endings": ENDINGS}
RANK: Final = 1_000_000
"""Findings about journeys come after those about the session."""


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


class JourneyStage:
    """Rows of `keyed` in; out come tables by SCHEMAS.

    Args:
        losses: what the capture lacks of connections, by `facts.losses_of`.
    """

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._checkers: dict[str, JourneyChecker] = defaultdict(JourneyChecker)

    def take(self, batch: pa.RecordBatch) -> Batches:
        """The next rows."""
        found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        rows = zip(
            values(batch, "series"),
            values(batch, "row_id"),
            values(batch, "about"),
            values(batch, "subject"),
            values(batch, "kind"),
            crossings(batch, self._losses),
            strict=True,
        )
        for series, row_id, about, subject, kind, crossing in rows:
            checker = self._checkers[series]
            if not about:
                for rank, finding in enumerate(checker.take(crossing)):
                    found["findings"].append(finding_row(series, row_id, RANK + rank, finding))
            elif kind == Kind.ADMIN_ACK and (ended := checker.packets_of(message_of(subject))) is not None:
                packets = ended.packets
                found["endings"].append((series, row_id, [packets[0], packets[-1]], len(packets)))
        return batches_of(SCHEMAS, found)
