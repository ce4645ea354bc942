"""Transactional sequences from end to end.

These are the numbers on each hop, the gaps, and the messages that OrderAcks covered. The rules are in
`mqproto.captures.decode.sequences`. All packets of a sequence come to the same stage, in the order of row_id.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.facts import Acknowledgment, Hop, InOrder, NumberedMessage
from mqproto.captures.decode.ranges import BoundedRanges
from mqproto.captures.decode.sequences import (
    NUMBER_LIMIT,
    SEQUENCE_LIMIT,
    Gap,
    Sequence,
    SequenceChecker,
    SequenceView,
    shown,
)
from mqproto.captures.decode.sight import Kind
from mqproto.captures.decode.ways import SECOND_NS, Ways
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.facts import (
    ACKNOWLEDGMENT_COLUMNS,
    Losses,
    acknowledgments,
    numbered_messages,
)
from mqproto.captures.pipeline.stages.schema import (
    BEGUN,
    CONFIRMATIONS,
    COVERED,
    ENDINGS,
    FINDINGS,
    GAPS,
    ORDER_ACKS,
    PASSED,
    SEQUENCE_HOPS,
    SEQUENCES,
    finding_row,
)
from mqproto.captures.pipeline.stages.sequences.sequence_counts import OrderRow, SequenceCount
from mqproto.captures.pipeline.stages.sequences.stretches import Piece, pieces
from mqproto.captures.pipeline.tables.lists import (
    Batches,
    batch_of,
    batches_of,
    guid_of,
    identifier_of,
    integers,
    key_of,
    key_text,
    message_of,
    values,
)
from mqproto.wire import guid_text

COLUMNS: Final = (*ACKNOWLEDGMENT_COLUMNS, "file", "frame", "file_offset")
"""The columns that `keyed` takes from packets joined with their relations."""
WITHOUT_TIME: Final = itemgetter(0, 1)
"""Returns the number and the MessageID of a proved message without its time of arrival."""
KEY: Final = ("series", "identifier")
"""The key of the rows of `keyed`: those with the same values in these columns come to the same stage."""
ORDER: Final = ("series", "row_id")
NUMBERS: Final = (
    *("number", "sequence_number", "message_id", "time_ns", "sent_time_s"),
    *("interface", "connection", "row_id", "frame", "file_offset"),
)
SCHEMAS: Final = {
    "findings": FINDINGS,
    "endings": ENDINGS,
    "sequences": SEQUENCES,
    "sequence_hops": SEQUENCE_HOPS,
    "gaps": GAPS,
    "order_acks": ORDER_ACKS,
    "confirmations": CONFIRMATIONS,
}
REMEMBERED_LIMIT: Final = 2 * NUMBER_LIMIT
"""The number of messages to remember. Batches are sorted by sequence, so some messages are forgotten later than in
`mqproto.captures.decode`. No message is forgotten sooner, because a batch has at most NUMBER_LIMIT rows.
"""
ORDER_ACK: Final = str(Kind.ORDER_ACK)
GAP_LIMIT: Final = 64
"""The maximum number of gaps before an acknowledged number that are listed."""
RANK: Final = 2_000_000
"""The rank of findings about sequences, which come after those about journeys."""

Row = tuple[Any, ...]


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return transactional messages, OrderAcks and FinalAcks, with the TxSequenceID in the column `identifier`."""
    identifiers = pc.coalesce(batch.column("sequence"), batch.column("ack_sequence"))
    with_identifiers = batch.append_column("identifier", identifiers)
    found: pa.RecordBatch = with_identifiers.filter(pc.is_valid(identifiers))
    return found


class SequenceStage:
    """Takes rows of `keyed`, and returns the tables in SCHEMAS."""

    def __init__(self) -> None:
        self._losses: Losses = {}
        self._checkers: dict[str, SequenceChecker] = {}
        self._counts: OrderedDict[tuple[str, Sequence], SequenceCount] = OrderedDict()
        self._confirmed: list[tuple[Row, list[int]]] = []
        self._out: dict[str, list[Row]] = defaultdict(list)

    def know(self, losses: Losses) -> None:
        """Give the stage the losses of connections that are known by now, from `facts.losses_of`."""
        self._losses = losses

    def take(self, batch: pa.RecordBatch) -> Batches:
        """Take the next rows."""
        every = list(pieces(batch))
        odd = [piece.rows for piece in every if not piece.hops]
        one_by_one = self._one_by_one(batch.take(pa.array(np.concatenate(odd)))) if odd else iter(())
        columns = {name: integers(batch, name) for name in NUMBERS}
        for piece in every:
            if not piece.hops:
                for row in islice(one_by_one, len(piece.rows)):
                    self._take(*row)
            elif not self._take_in_order(batch, columns, piece):
                for row in self._one_by_one(batch.take(pa.array(piece.rows))):
                    self._take(*row)
        return self._taken()

    def _one_by_one(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Yield the rows of a batch as arguments for `_take`."""
        is_message = pc.is_valid(batch.column("sequence"))
        messages = numbered_messages(batch.filter(is_message), self._losses)
        acks = acknowledgments(batch.filter(pc.invert(is_message)))
        return zip(
            zip(*(values(batch, name) for name in BEGUN), strict=True),
            values(batch, "series"),
            values(batch, "queue"),
            values(batch, "ack_message"),
            (next(messages if each else acks) for each in is_message.to_pylist()),
            strict=True,
        )

    def _take(
        self,
        place: Row,
        series: str,
        queue: str | None,
        about: str | None,
        fact: NumberedMessage | Acknowledgment,
    ) -> None:
        """Take the next row."""
        checker = self._checker(series)
        if isinstance(fact, NumberedMessage):
            view = checker.take_message(fact)
            self._add_message(series, place, queue, fact, view)
        elif about is not None:
            view = checker.take_final_ack(fact, message_of(about))
            self._add_final_ack(series, place[0], fact, view)
        else:
            view = checker.take_order_ack(fact)
            self._add_order_ack(series, place[0], fact, view)
        for rank, finding in enumerate(view.findings):
            self._out["findings"].append(finding_row(series, place[0], RANK + rank, finding))
        if view.ended is not None:
            packets = view.ended.packets
            self._out["endings"].append((series, place[0], [packets[0], packets[-1]], len(packets)))

    def _checker(self, series: str) -> SequenceChecker:
        checker = self._checkers.get(series)
        if checker is None:
            checker = self._checkers[series] = SequenceChecker(REMEMBERED_LIMIT)
        return checker

    def _take_in_order(self, batch: pa.RecordBatch, columns: dict[str, Integers], piece: Piece) -> bool:
        """Take a stretch of messages that are in order; return False if they have to be taken one by one."""

        def of(name: str, row: int) -> Any:
            return int(columns[name][row]) if name in columns else batch.column(name)[row].as_py()

        rows, begins = piece.rows, int(piece.rows[0])
        series = of("series", begins)
        number = columns["sequence_number"]
        hops = [
            ((key_of(of("from_key", row)), key_of(of("to_key", row))), int(number[row]), int(number[last]))
            for row, last in ((int(some[0]), int(some[-1])) for some in piece.hops)
        ]
        queue, manager = of("queue", begins), guid_of(of("destination_manager", begins))
        time_ns, sent_s = columns["time_ns"], columns["sent_time_s"]
        messages = InOrder(
            guid_of(of("source_manager", begins)),
            identifier_of(of("sequence", begins)),
            (manager, queue),
            hops,
            [of("interface", int(some[0])) for some in piece.hops],
            [(of("number", int(some[-1])), of("connection", int(some[-1]))) for some in piece.hops],
            int(time_ns[rows].min()),
            int(sent_s[begins]),
            bool((sent_s[rows] > time_ns[rows] // SECOND_NS + 1).any()),
            number[rows].tolist(),
            columns["number"][rows].tolist(),
            columns["message_id"][rows].tolist(),
        )
        sequence = self._checker(series).take_in_order(messages)
        if sequence is None:
            return False
        place = tuple(of(name, begins) for name in BEGUN)
        count = self._count(series, sequence, place, queue, int(time_ns[begins]))
        count.last_ns = int(time_ns[rows[-1]])
        for (hop, first, last), some in zip(hops, piece.hops, strict=True):
            count.seen.add(first, last)
            new = some[max(0, sequence.order_acked + 1 - first) :]
            arrived = hop[1] == manager
            arrived_ns = time_ns[new].tolist() if arrived else repeat(None)
            count.unseen.extend(last + 1 - len(new), columns["message_id"][new].tolist(), arrived_ns)
            crossed = count.crossed(hop, of("interface", int(some[0])), int(time_ns[some[0]]))
            if crossed is not None:
                crossed.last_ns = int(time_ns[some[-1]])
                crossed.received.add(first, last)
        return True

    def finish(self, ways: Callable[[str], Ways]) -> Batches:
        """Return the results that are known only at the end.

        Args:
            ways: returns the losses in the captures of a series.
        """
        for series, checker in self._checkers.items():
            for rank, finding in enumerate(checker.finish(ways(series))):
                self._out["findings"].append(finding_row(series, None, RANK + rank, finding))
        for (series, _), count in self._counts.items():
            self._close(series, count)
        self._checkers.clear()
        self._counts.clear()
        return self._taken()

    def _taken(self) -> Batches:
        batches = batches_of(SCHEMAS, self._out)
        self._out.clear()
        if self._confirmed:
            batches["confirmations"] = _confirmations(self._confirmed)
            self._confirmed.clear()
        return batches

    def _add_message(
        self, series: str, place: Row, queue: str | None, message: NumberedMessage, view: SequenceView
    ) -> None:
        assert view.sequence is not None
        count = self._count(series, view.sequence, place, queue, message.time_ns)
        number, (_, message_id), hop = message.sequence_number, message.key, message.hop
        count.seen.add(number, number)
        if number > view.sequence.order_acked:
            arrived = hop[1] == message.towards[0]
            count.unseen.add(number, message_id, message.time_ns if arrived else None)
        elif view.is_new:
            # The captures have its OrderAck before they have it: they began later, or lack its first copies.
            # Unless one is of its own number, it may be passed over by what comes as late: that it came does not say
            # that it was taken.
            if count.is_acknowledged(number):
                self._confirmed += ((row, [message_id]) for row in count.confirming(number))
            else:
                count.doubt(number, message_id)
        self._pass_over(series, place[0], message, count)
        crossed = count.crossed(hop, message.interface, message.time_ns)
        if crossed is None:
            return
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

    def _pass_over(
        self, series: str, row_id: int, fact: NumberedMessage | Acknowledgment, count: SequenceCount
    ) -> None:
        """Withdraw what was confirmed of messages that a message, or the FinalAck of one, passed over.

        Whoever acknowledged that number or a later one had accepted the message of the FinalAck before.
        """
        skipped = range(fact.previous_number + 1, fact.sequence_number)
        if skipped and (passed := [each for at, each in count.proved if at in skipped]):
            time_ns = fact.time_ns if isinstance(fact, NumberedMessage) else 0
            of = series, row_id, fact.number, fact.interface, time_ns, PASSED
            ends = guid_text(count.sequence.origin), True, *map(key_text, fact.hop)
            self._confirmed.append(((*of, *ends, fact.sequence_number, fact.connection, [], 0), passed))

    def _add_order_ack(self, series: str, row_id: int, ack: Acknowledgment, view: SequenceView) -> None:
        sequence = view.sequence
        if sequence is None:
            return
        origin, hop = guid_text(sequence.origin), tuple(map(key_text, ack.hop))
        at_source = ack.hop[1] == sequence.origin
        count = self._counts.get((series, sequence))
        if count is None:
            count = self._counts[series, sequence] = SequenceCount(sequence)
        time_ns = ack.time_ns
        of = series, row_id, ack.number, ack.interface, time_ns, ORDER_ACK, origin, True
        row = (*of, *hop, *_told(ack, count))
        if not sequence.ambiguous:
            count.remember(OrderRow(ack.key[0], ack.sequence_number, at_source, row))
        if not view.counts:
            if confirmed := count.proved_before(ack):
                self._confirmed.append((row, confirmed))
            return
        covered: list[tuple[int, int, int | None]] = []
        is_first = sequence.order_ack_packet == ack.number
        confirmed = []
        if is_first:
            count.order_acks += 1
            covered = count.proved_through(ack.sequence_number, ack.sequence_number)
            confirmed = [message_id for _, message_id, _ in covered]
            count.proved.extend(map(WITHOUT_TIME, covered))
            if not at_source:
                count.returning.extend(map(WITHOUT_TIME, covered))
        if at_source:
            while count.returning and count.returning[0][0] <= ack.sequence_number:
                confirmed.append(count.returning.popleft()[1])
        arrived_ns = covered[-1][2] if covered else None
        if confirmed:
            self._confirmed.append((row, confirmed))
        said = series, row_id, ack.number, time_ns, origin, shown(sequence.key[1]), ack.sequence_number
        count_covered = len(covered) if is_first else None
        later_ns = None if arrived_ns is None else time_ns - arrived_ns
        self._out["order_acks"].append(
            (*said, guid_text(ack.key[0]), *hop, count_covered, later_ns, at_source)
        )

    def _add_final_ack(self, series: str, row_id: int, ack: Acknowledgment, view: SequenceView) -> None:
        if view.sequence is None:
            return
        count = self._counts.get((series, view.sequence))
        if count is None:
            return
        if view.ended is not None and ack.sequence_number not in count.ended:
            count.positive += ack.positive
            count.negative += not ack.positive
        count.ended.add(ack.sequence_number, ack.sequence_number)
        self._pass_over(series, row_id, ack, count)
        if view.counts:
            origin, hop = guid_text(view.sequence.origin), map(key_text, ack.hop)
            of = series, row_id, ack.number, ack.interface, ack.time_ns, COVERED, origin, True
            count.hear(ack.sequence_number, (*of, *hop, *_told(ack, count)))

    def _count(
        self, series: str, sequence: Sequence, place: Row, queue: str | None, time_ns: int
    ) -> SequenceCount:
        key = (series, sequence)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = SequenceCount(sequence)
        if not count.place:
            count.place, count.first_ns, count.queue = place, time_ns, queue
        if len(self._counts) > SEQUENCE_LIMIT:
            (oldest, _), forgotten = self._counts.popitem(last=False)
            self._close(oldest, forgotten)
        self._counts.move_to_end(key)
        count.last_ns = time_ns
        return count

    def _close(self, series: str, count: SequenceCount) -> None:
        """Make the final rows of a sequence."""
        sequence = count.sequence
        if sequence.towards is None or not count.place:
            return
        for number, message_id in count.doubtful.items():
            self._confirmed += ((row, [message_id]) for row in count.confirming(number))
        # What an OrderAck has confirmed by now needs no FinalAck to say so.
        for number, row in count.finals.items():
            covered = [message_id for _, message_id, _ in count.proved_through(number - 1, number)]
            if covered:
                self._confirmed.append((row, covered))
        origin, name = guid_text(sequence.origin), shown(sequence.key[1])
        of = series, origin, name
        for (hop, interface), crossed in count.hops.items():
            progress = sequence.hops.get(hop)
            where = *map(key_text, hop), interface, crossed.first_ns, crossed.last_ns
            counts = crossed.resends, crossed.gaps, 0 if progress is None else len(progress.gaps)
            self._out["sequence_hops"].append((*of, *where, *_extent(crossed.received), *counts))
        for hop, progress in sequence.hops.items():
            for gap in progress.gaps:
                self._out["gaps"].append((*_gap_row(series, sequence, hop, gap), None, None))
        towards, when = guid_text(sequence.towards[0]), (count.first_ns, count.last_ns)
        order_acked = sequence.order_acked if count.order_acks else None
        acks = count.order_acks, order_acked, count.positive, count.negative, not sequence.ambiguous
        self._out["sequences"].append(
            (series, *count.place, origin, towards, count.queue, name, *when, *_extent(count.seen), *acks)
        )


def _confirmations(confirmed: list[tuple[Row, list[int]]]) -> pa.RecordBatch:
    """Return a row for each message that an OrderAck covers.

    Args:
        confirmed: for each OrderAck, its row and the MessageIDs that it covers. In place of the message, the row has
            only the source queue manager.
    """
    rows = batch_of(CONFIRMATIONS, (row for row, _ in confirmed))
    each = np.repeat(np.arange(len(confirmed)), [len(message_ids) for _, message_ids in confirmed])
    rows = rows.take(pa.array(each))
    ordinals = pa.array(list(chain.from_iterable(message_ids for _, message_ids in confirmed))).cast(
        pa.string()
    )
    subjects = pc.binary_join_element_wise(rows.column("subject"), ordinals, "\\")
    return rows.set_column(rows.schema.get_field_index("subject"), CONFIRMATIONS.field("subject"), subjects)


def _told(ack: Acknowledgment, count: SequenceCount) -> tuple[int, int | None, list[int], int]:
    """Return the last columns of a row of CONFIRMATIONS."""
    number, connection = ack.sequence_number, None if ack.ahead else ack.connection
    gaps = deque((first for first, _ in count.seen.gaps(1, number)), GAP_LIMIT)
    return number, connection, list(gaps), count.ended.count_through(number - 1)


def _extent(numbers: BoundedRanges) -> tuple[int, int, int]:
    """Return the lowest number, the highest, and how many there are."""
    return next(iter(numbers))[0], numbers.highest, numbers.count_through(numbers.highest)


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
