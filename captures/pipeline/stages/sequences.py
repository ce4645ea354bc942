"""Transactional sequences end to end: what crossed which hop, gaps, OrderAcks and what they covered.

The rules are `captures.decode.sequences`'. All packets of a sequence come to one stage, in the order of row_id.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from captures.decode.facts import Acknowledgment, Hop, MessageKey, NumberedMessage
from captures.decode.ranges import BoundedRanges
from captures.decode.row import identifier_text
from captures.decode.sequences import (
    HOP_LIMIT,
    NUMBER_LIMIT,
    SEQUENCE_LIMIT,
    Gap,
    Sequence,
    SequenceChecker,
    SequenceView,
    shown,
)
from captures.decode.sight import Kind
from captures.pipeline.stages.facts import (
    ACKNOWLEDGMENT_COLUMNS,
    Losses,
    acknowledgments,
    numbered_messages,
)
from captures.pipeline.stages.findings import finding_row
from captures.pipeline.stages.rows import Batches, batches_of, key_text, message_of, values
from captures.pipeline.stages.schema import ENDINGS, FINDINGS
from captures.pipeline.stages.sequence_schema import (
    CONFIRMATIONS,
    GAPS,
    ORDER_ACKS,
    SEQUENCE_HOPS,
    SEQUENCES,
)
from mqproto.wire import guid_text

COLUMNS: Final = (*ACKNOWLEDGMENT_COLUMNS, "file", "frame", "file_offset")
"""What `keyed` takes: of packets, joined with their relations."""
KEY: Final = ("series", "identifier")
"""Rows of `keyed` that are alike in these come to one stage."""
ORDER: Final = ("series", "row_id")
SCHEMAS: Final = {
    "findings": FINDINGS,
    "endings": ENDINGS,
    "sequences": SEQUENCES,
    "sequence_hops": SEQUENCE_HOPS,
    "gaps": GAPS,
    "order_acks": ORDER_ACKS,
    "confirmations": CONFIRMATIONS,
}
ORDER_ACK: Final = str(Kind.ORDER_ACK)
RANK: Final = 2_000_000
"""Findings about sequences come after those about journeys."""

Row = tuple[Any, ...]


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Transactional messages, OrderAcks and FinalAcks, with `identifier`, the TxSequenceID that they are about."""
    identifiers = pc.coalesce(batch.column("sequence"), batch.column("ack_sequence"))
    with_identifiers = batch.append_column("identifier", identifiers)
    found: pa.RecordBatch = with_identifiers.filter(pc.is_valid(identifiers))
    return found


class _Unconfirmed:
    """Numbers that no OrderAck covers yet, the lowest first; beyond a limit the lowest are given up."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._values: dict[int, tuple[int, int | None]] = {}

    def add(self, number: int, message_id: int, arrived_ns: int | None) -> None:
        known = self._values.get(number)
        if known is None:
            heappush(self._numbers, number)
        elif known[1] is not None:
            arrived_ns = known[1]
        self._values[number] = (message_id, arrived_ns)
        if len(self._numbers) > NUMBER_LIMIT:
            del self._values[heappop(self._numbers)]

    def through(self, number: int) -> Iterator[tuple[int, int, int | None]]:
        """Take those up to a number: each with its MessageID, and when it came to its destination."""
        while self._numbers and self._numbers[0] <= number:
            lowest = heappop(self._numbers)
            yield lowest, *self._values.pop(lowest)


@dataclass(slots=True)
class _HopCount:
    """What crossed one hop at one interface."""

    first_ns: int
    last_ns: int = 0
    received: BoundedRanges = field(default_factory=lambda: BoundedRanges(NUMBER_LIMIT))
    resends: int = 0
    gaps: int = 0


@dataclass(slots=True)
class _Count:
    """What a sequence had.

    place: row_id, file, frame and file_offset of its first packet.
    unseen: numbers that no OrderAck covers yet.
    returning: numbers with their MessageIDs, the lowest first, that one covers that has not reached its source yet.
    """

    sequence: Sequence
    place: Row
    first_ns: int
    queue: str | None
    last_ns: int = 0
    order_acks: int = 0
    positive: int = 0
    negative: int = 0
    last_final: MessageKey | None = None
    unseen: _Unconfirmed = field(default_factory=_Unconfirmed)
    returning: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=NUMBER_LIMIT))
    hops: dict[tuple[Hop, int], _HopCount] = field(default_factory=dict)


class SequenceStage:
    """Rows of `keyed` in; out come tables by SCHEMAS.

    Args:
        losses: what the capture lacks of connections, by `facts.losses_of`.
    """

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._checkers: dict[str, SequenceChecker] = defaultdict(SequenceChecker)
        self._counts: OrderedDict[tuple[str, int], _Count] = OrderedDict()
        self._out: dict[str, list[Row]] = defaultdict(list)

    def take(self, batch: pa.RecordBatch) -> Batches:
        """The next rows."""
        is_message = pc.is_valid(batch.column("sequence"))
        messages = numbered_messages(batch.filter(is_message), self._losses)
        acks = acknowledgments(batch.filter(pc.invert(is_message)))
        rows = zip(
            zip(*(values(batch, name) for name in ("row_id", "file", "frame", "file_offset")), strict=True),
            values(batch, "series"),
            values(batch, "interface"),
            values(batch, "time_ns"),
            values(batch, "queue"),
            values(batch, "sequence"),
            values(batch, "ack_message"),
            strict=True,
        )
        for place, series, interface, time_ns, queue, sequence, about in rows:
            checker = self._checkers[series]
            if sequence is not None:
                message = next(messages)
                view = checker.take_message(message)
                self._add_message(series, place, interface, queue, message, view)
            elif about is not None:
                ack = next(acks)
                view = checker.take_final_ack(ack, message_of(about))
                self._add_final_ack(series, ack, view)
            else:
                ack = next(acks)
                view = checker.take_order_ack(ack)
                self._add_order_ack(series, place[0], interface, time_ns, ack, view)
            for rank, finding in enumerate(view.findings):
                self._out["findings"].append(finding_row(series, place[0], RANK + rank, finding))
            if view.ended is not None:
                packets = view.ended.packets
                self._out["endings"].append((series, place[0], [packets[0], packets[-1]], len(packets)))
        return self._taken()

    def finish(self, lossless: Callable[[str], bool]) -> Batches:
        """What there is to say at the end.

        Args:
            lossless: whether a series has no gap at all; else what it lacks may explain a breach, which is a note then.
        """
        for series, checker in self._checkers.items():
            for rank, finding in enumerate(checker.finish(lossless=lossless(series))):
                self._out["findings"].append(finding_row(series, None, RANK + rank, finding))
        for (series, _), count in self._counts.items():
            self._close(series, count)
        self._checkers.clear()
        self._counts.clear()
        return self._taken()

    def _taken(self) -> Batches:
        batches = batches_of(SCHEMAS, self._out)
        self._out.clear()
        return batches

    def _add_message(
        self,
        series: str,
        place: Row,
        interface: int,
        queue: str | None,
        message: NumberedMessage,
        view: SequenceView,
    ) -> None:
        assert view.sequence is not None
        count = self._count(series, view.sequence, place, queue, message.time_ns)
        number, (_, message_id), hop = message.sequence_number, message.key, message.hop
        if number > view.sequence.order_acked:
            arrived = hop[1] == message.towards[0]
            count.unseen.add(number, message_id, message.time_ns if arrived else None)
        crossed = count.hops.get((hop, interface))
        if crossed is None:
            if len(count.hops) >= HOP_LIMIT:
                return
            crossed = count.hops[hop, interface] = _HopCount(message.time_ns)
        crossed.last_ns = message.time_ns
        if number > crossed.received.highest or number not in crossed.received:
            crossed.received.add(number, number)
        else:
            crossed.resends += 1
        if view.opened is not None:
            crossed.gaps += 1
        for gap in view.filled:
            self._out["gaps"].append(
                (*_gap_row(series, view.sequence, hop, gap), message.number, message.time_ns)
            )

    def _add_order_ack(
        self,
        series: str,
        row_id: int,
        interface: int,
        time_ns: int,
        ack: Acknowledgment,
        view: SequenceView,
    ) -> None:
        sequence = view.sequence
        if sequence is None or not view.counts:
            return
        count = self._counts.get((series, id(sequence)))
        if count is None:
            return
        covered, delay_ns = 0, None
        at_source = ack.hop[1] == sequence.origin
        is_first = sequence.order_ack_packet == ack.number
        confirmed = []
        if is_first:
            count.order_acks += 1
            for number, message_id, arrived_ns in count.unseen.through(ack.sequence_number):
                covered += 1
                delay_ns = None if arrived_ns is None else time_ns - arrived_ns
                confirmed.append(message_id)
                if not at_source:
                    count.returning.append((number, message_id))
        if at_source:
            while count.returning and count.returning[0][0] <= ack.sequence_number:
                confirmed.append(count.returning.popleft()[1])
        origin, hop = sequence.origin, tuple(map(key_text, ack.hop))
        for message_id in confirmed:
            subject = identifier_text(origin, message_id)
            self._out["confirmations"].append(
                (series, row_id, ack.number, interface, time_ns, ORDER_ACK, subject, True, *hop)
            )
        self._out["order_acks"].append(
            (
                series,
                row_id,
                ack.number,
                time_ns,
                guid_text(origin),
                shown(sequence.key[1]),
                ack.sequence_number,
                guid_text(ack.key[0]),
                *hop,
                covered if is_first else None,
                delay_ns,
                at_source,
            )
        )

    def _add_final_ack(self, series: str, ack: Acknowledgment, view: SequenceView) -> None:
        count = self._counts.get((series, id(view.sequence)))
        if count is not None and view.ended is not None and count.last_final != ack.key:
            count.last_final = ack.key
            count.positive += ack.positive
            count.negative += not ack.positive

    def _count(self, series: str, sequence: Sequence, place: Row, queue: str | None, time_ns: int) -> _Count:
        key = (series, id(sequence))
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(sequence, place, time_ns, queue)
            if len(self._counts) > SEQUENCE_LIMIT:
                (oldest, _), forgotten = self._counts.popitem(last=False)
                self._close(oldest, forgotten)
        self._counts.move_to_end(key)
        count.last_ns = time_ns
        return count

    def _close(self, series: str, count: _Count) -> None:
        """Nothing more is to come of a sequence."""
        sequence = count.sequence
        origin, name = guid_text(sequence.origin), shown(sequence.key[1])
        every = BoundedRanges(NUMBER_LIMIT)
        for (hop, interface), crossed in count.hops.items():
            for first, last in crossed.received:
                every.add(first, last)
            progress = sequence.hops.get(hop)
            self._out["sequence_hops"].append(
                (
                    series,
                    origin,
                    name,
                    *map(key_text, hop),
                    interface,
                    crossed.first_ns,
                    crossed.last_ns,
                    next(iter(crossed.received))[0],
                    crossed.received.highest,
                    crossed.received.count_through(crossed.received.highest),
                    crossed.resends,
                    crossed.gaps,
                    0 if progress is None else len(progress.gaps),
                )
            )
        for hop, progress in sequence.hops.items():
            for gap in progress.gaps:
                self._out["gaps"].append((*_gap_row(series, sequence, hop, gap), None, None))
        self._out["sequences"].append(
            (
                series,
                *count.place,
                origin,
                guid_text(sequence.towards[0]),
                count.queue,
                name,
                count.first_ns,
                count.last_ns,
                next(iter(every))[0],
                every.highest,
                every.count_through(every.highest),
                count.order_acks,
                sequence.order_acked if count.order_acks else None,
                count.positive,
                count.negative,
                not sequence.ambiguous,
            )
        )


def _gap_row(series: str, sequence: Sequence, hop: Hop, gap: Gap) -> Row:
    origin, identifier = sequence.key
    return (
        series,
        guid_text(origin),
        shown(identifier),
        *map(key_text, hop),
        gap.first,
        gap.last,
        gap.packet,
        gap.time_ns,
    )
