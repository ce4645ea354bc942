"""Finds messages that crossed a hop twice, and intermediates that changed messages on their way.

For the former, it also finds the reason. The rules are those of `mqproto.captures.decode.journeys`. All packets that
carry the same message come to the same stage, and so do the packets that show what became of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.journeys import JourneyChecker
from mqproto.captures.decode.row import TRANSACTIONAL
from mqproto.captures.decode.sight import Kind
from mqproto.captures.decode.ways import SECOND_NS, Ways
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.facts import crossings
from mqproto.captures.pipeline.stages.messages.grouping import Messages
from mqproto.captures.pipeline.stages.schema import ENDINGS, FINDINGS, finding_row
from mqproto.captures.pipeline.tables.lists import Batches, batches_of, integers, message_of, values
from mqproto.wire.layouts.base import INFINITE

SCHEMAS: Final = {"findings": FINDINGS, "endings": ENDINGS}
RANK: Final = 1_000_000
"""The rank of findings about journeys, which come after those about the session."""


class JourneyStage:
    """A stage of `grouping.MessageStages`, for rows of `keyed`; it returns the tables in SCHEMAS.

    Args:
        ways: returns the losses in the captures of a series.
    """

    def __init__(self, ways: Callable[[str], Ways]) -> None:
        self._ways = ways
        self._checkers: dict[str, JourneyChecker] = defaultdict(JourneyChecker)

    def take(self, messages: Messages) -> Batches:
        """Take the next messages. For a straight message, the only possible finding is that it was late."""
        found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        batch = messages.rows.take(pa.array(np.union1d(messages.odd_rows, _late(messages))))
        kinds = batch.column("kind")
        batch = batch.filter(pc.or_(pc.invert(batch.column("about")), pc.equal(kinds, str(Kind.ADMIN_ACK))))
        rows = zip(
            values(batch, "series"),
            values(batch, "row_id"),
            values(batch, "about"),
            values(batch, "subject"),
            crossings(batch),
            strict=True,
        )
        for series, row_id, about, subject, crossing in rows:
            checker = self._checkers[series]
            if not about:
                for rank, finding in enumerate(checker.take(crossing)):
                    found["findings"].append(finding_row(series, row_id, RANK + rank, finding))
            elif (ended := checker.packets_of(message_of(subject))) is not None:
                packets = ended.packets
                found["endings"].append((series, row_id, [packets[0], packets[-1]], len(packets)))
        # These were whole messages, so nothing more is to come that explains what happened to one.
        for series, checker in self._checkers.items():
            for rank, finding in enumerate(checker.finish(self._ways(series))):
                found["findings"].append(finding_row(series, None, RANK + rank, finding))
        return batches_of(SCHEMAS, found)


def _late(messages: Messages) -> Integers:
    """Return those crossings of straight messages that may have been too late.

    By the clock of the capture, they came after the message's TimeToReachQueue had run out.
    """
    every = messages.straight.crossings
    rows = messages.rows.select(("time_ns", "sent_time_s", "time_to_reach_queue_s", "delivery"))
    rows = rows.take(pa.array(every))
    time_ns, sent_s, limit_s = (integers(rows, name) for name in rows.schema.names[:3])
    transactional = pc.equal(rows.column("delivery"), TRANSACTIONAL).to_numpy(zero_copy_only=False)
    late: Integers = every[
        ~transactional & (limit_s != INFINITE) & (time_ns > (sent_s + limit_s) * SECOND_NS)
    ]
    return late
