"""The counts of sequences, and the numbers that are remembered until an OrderAck covers them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from mqproto.captures.decode.facts import Acknowledgment, Hop
from mqproto.captures.decode.ranges import BoundedRanges
from mqproto.captures.decode.sequences import HOP_LIMIT, NUMBER_LIMIT, Sequence
from mqproto.wire import NULL_GUID, Guid

Row: TypeAlias = tuple[Any, ...]


ORDER_ROW_LIMIT: Final = 16
"""The maximum number of OrderAcks that are remembered for messages that the captures show only after them."""
PROVED_LIMIT: Final = 1_024
"""The largest number of proved messages that are remembered for late OrderAcks.

An OrderAck is late if the captures show it after an OrderAck that was made later.
"""

FINAL_LIMIT: Final = 256
"""The maximum number of FinalAcks of one sequence that are remembered."""


class OrderRow(NamedTuple):
    """An OrderAck and its row for CONFIRMATIONS."""

    acker: Guid
    number: int
    at_source: bool
    row: Row


class Unconfirmed:
    """Numbers that no OrderAck covers yet, the lowest first.

    If there are too many, the lowest are discarded.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._highest = 0
        self._values: dict[int, tuple[int, int | None]] = {}

    def add(self, number: int, message_id: int, arrived_ns: int | None) -> None:
        known = self._values.get(number)
        if known is None:
            heappush(self._numbers, number)
            self._highest = max(self._highest, number)
        elif known[1] is not None:
            arrived_ns = known[1]
        self._values[number] = (message_id, arrived_ns)
        self._bound()

    def extend(self, first: int, message_ids: list[int], arrived_ns: Iterable[int | None]) -> None:
        """Add consecutive numbers."""
        numbers = range(first, first + len(message_ids))
        if not numbers:
            return
        if first <= self._highest:
            for number, message_id, each_ns in zip(numbers, message_ids, arrived_ns, strict=False):
                self.add(number, message_id, each_ns)
            return
        # What is higher than all keeps a heap one.
        self._numbers.extend(numbers)
        self._highest = numbers[-1]
        self._values.update(zip(numbers, zip(message_ids, arrived_ns, strict=False), strict=True))
        self._bound()

    def _bound(self) -> None:
        while len(self._numbers) > NUMBER_LIMIT:
            del self._values[heappop(self._numbers)]

    def through(self, number: int) -> list[tuple[int, int, int | None]]:
        """Remove and return the numbers up to `number`, each with its MessageID and time of arrival."""
        if number >= self._highest:
            numbers = sorted(self._numbers)
            self._numbers.clear()
        else:
            numbers = []
            while self._numbers and self._numbers[0] <= number:
                numbers.append(heappop(self._numbers))
        return [(each, *self._values.pop(each)) for each in numbers]


@dataclass(slots=True)
class HopCount:
    """Counts of the messages that crossed one hop, as seen at one interface."""

    first_ns: int
    last_ns: int = 0
    received: BoundedRanges = field(default_factory=lambda: BoundedRanges(NUMBER_LIMIT))
    resends: int = 0
    gaps: int = 0


@dataclass(slots=True)
class SequenceCount:
    """The counts of a sequence.

    place: row_id, file, frame and file_offset of its first packet; empty while only acknowledgments of it were seen.
    order_rows: the OrderAcks for the highest numbers, and the last ones before each number that passes over others.
    finals: the rows for CONFIRMATIONS of positive FinalAcks, keyed by their numbers, the lowest first. They are the
        highest FinalAck, and the highest one before each number that passes over others.
    unseen: numbers that no OrderAck covers yet.
    returning: numbers, with their MessageIDs, whose OrderAck has not reached the messages' source yet; the lowest come
        first.
    seen, ended: the numbers of all messages, and of those with a FinalAck.
    proved: the last numbers that an OrderAck proved, kept because an OrderAck that was made earlier may come later in
        the captures.
    doubtful: numbers, with their MessageIDs, that the captures show after an OrderAck of a higher number, or that a
        later message passed over. If a message was passed over, an OrderAck does not prove that it arrived. The message
        that passed it over may still be to come in the captures.
    """

    sequence: Sequence
    place: Row = ()
    first_ns: int = 0
    queue: str | None = None
    last_ns: int = 0
    order_acks: int = 0
    positive: int = 0
    negative: int = 0
    order_rows: list[OrderRow] = field(default_factory=list)
    finals: dict[int, Row] = field(default_factory=dict)
    unseen: Unconfirmed = field(default_factory=Unconfirmed)
    returning: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=NUMBER_LIMIT))
    doubtful: dict[int, int] = field(default_factory=dict)
    proved: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=PROVED_LIMIT))
    hops: dict[tuple[Hop, int], HopCount] = field(default_factory=dict)
    seen: BoundedRanges = field(default_factory=lambda: BoundedRanges(NUMBER_LIMIT))
    ended: BoundedRanges = field(default_factory=lambda: BoundedRanges(NUMBER_LIMIT))

    def remember(self, order: OrderRow) -> None:
        """Keep an OrderAck. It counts only if it comes from the messages' destination.

        Of OrderAcks that differ only in `row`, keep the first. Beyond the limit, discard the lowest OrderAck that
        proves no more than the next one. If each proves more, discard the lowest.
        """
        rows, passed = self.order_rows, self.sequence.passed
        for place, each in enumerate(rows):
            if each[:-1] == order[:-1]:
                rows[place] = min(each, order, key=_by_time)
                return
        rows.append(order)
        rows.sort(key=_by_number)
        if len(rows) > ORDER_ROW_LIMIT:
            numbers = enumerate(pairwise(each.number for each in rows))
            idle = (place for place, (low, high) in numbers if not any(low < by <= high for by in passed))
            del rows[next(idle, 0)]

    def hear(self, number: int, row: Row) -> None:
        """Keep a positive FinalAck that is higher than all before it.

        It replaces the highest one so far, unless that one proves something that the new one cannot prove. If there are
        FINAL_LIMIT already, it always replaces the highest.
        """
        highest = max(self.finals, default=0)
        if number > highest:
            if (
                not any(highest < by <= number for by in self.sequence.passed)
                or len(self.finals) >= FINAL_LIMIT
            ):
                self.finals.pop(highest, None)
            self.finals[number] = row

    def confirming(self, number: int) -> list[Row]:
        """Return the OrderAcks that cover a doubtful message; if there are none, the first FinalAck that does.

        At most three OrderAcks are returned: the first for exactly this number, the first that was seen at the
        messages' source, and the first that was seen elsewhere.
        """
        sequence = self.sequence
        assert sequence.towards is not None, "it has a message"
        found: dict[bool | None, Row] = {}
        for each in sorted(self.order_rows, key=_by_time):
            is_told = each.number >= number and not sequence.is_passed(number, each.number)
            if is_told and sequence.towards[0] in (each.acker, NULL_GUID):
                found.setdefault(each.at_source, each.row)
                if each.number == number:
                    found.setdefault(None, each.row)
        if found:
            return list(found.values())
        proving = (each for each in self.finals if each > number and not sequence.is_passed(number, each))
        return [self.finals[each] for each in proving][:1]

    def is_acknowledged(self, number: int) -> bool:
        """Whether an OrderAck of exactly this number is remembered."""
        ackers = (self.sequence.towards or (NULL_GUID,))[0], NULL_GUID
        return any(each.number == number and each.acker in ackers for each in self.order_rows)

    def proved_through(self, number: int, acknowledged: int) -> list[tuple[int, int, int | None]]:
        """Remove and return the numbers up to `number`, whose arrival an acknowledgment proves.

        The acknowledgment is for `number` or for the next number. Numbers that a later message passed over become
        doubtful instead: their receiver may not have accepted them.
        """
        proved, sequence = self.unseen.through(number), self.sequence
        if not sequence.passed:  # As is nearly always so.
            return proved
        taken = []
        for each in proved:
            if sequence.is_passed(each[0], acknowledged):
                self.doubt(*each[:2])
            else:
                taken.append(each)
        return taken

    def proved_before(self, ack: Acknowledgment) -> list[int]:
        """Return the MessageIDs that a late OrderAck proves.

        An OrderAck is late if it appears after one that was made later.
        """
        sequence, number = self.sequence, ack.sequence_number
        if sequence.ambiguous or sequence.towards is None:
            return []
        is_late = any(_by_time(each) > ack.time_ns for each in self.order_rows)
        if not is_late or sequence.towards[0] not in (ack.key[0], NULL_GUID):
            return []
        return [
            message_id
            for each, message_id in self.proved
            if each <= number and not sequence.is_passed(each, number)
        ]

    def doubt(self, number: int, message_id: int) -> None:
        """Record a message that an OrderAck covers, but that may have been passed over."""
        if len(self.doubtful) < NUMBER_LIMIT:
            self.doubtful[number] = message_id

    def crossed(self, hop: Hop, interface: int, time_ns: int) -> HopCount | None:
        """Return the counts of a hop at an interface; if the hop is new there, its counts begin now.

        Return None if there are too many hops.
        """
        found = self.hops.get((hop, interface))
        if found is None and len(self.hops) < HOP_LIMIT:
            found = self.hops[hop, interface] = HopCount(time_ns)
        return found


def _by_time(order: OrderRow) -> int:
    time_ns: int = order.row[4]
    return time_ns


def _by_number(order: OrderRow) -> int:
    return order.number
