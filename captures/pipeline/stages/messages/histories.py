"""The outcome of each message: its route from hop to hop, its acknowledgments, and where it is now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.sight import MESSAGES, Kind
from mqproto.captures.decode.ways import (
    EVER,
    NEVER,
    PASSED_OVER,
    SECOND_NS,
    Copy,
    Lack,
    Told,
    Ways,
    written_ns,
)
from mqproto.captures.pipeline.source.octets import Mask
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.stages.messages.grouping import (
    Event,
    Messages,
    about_packets,
    rows_about,
)
from mqproto.captures.pipeline.stages.messages.offsets import Ahead
from mqproto.captures.pipeline.stages.messages.straight import (
    NULL_TEXT,
    Straight,
    clock_offsets_ns,
    least,
    uncertainties_ns,
    uncertainty_ns,
)
from mqproto.captures.pipeline.stages.schema import (
    COVERED,
    HISTORIES,
    HOPS,
    INTEGER,
    PASSED,
    SCHEMAS,
    SHORT,
    TEXT,
    TOLD,
)
from mqproto.captures.pipeline.tables.lists import (
    GUID_CHARACTERS,
    Batches,
    integers,
    joined,
    key_of,
    mapped_texts,
)
from mqproto.wire import MessageClass

FOLLOWED: Final = {*map(str, MESSAGES), str(Kind.REPORT)}
"""The kinds of messages that have a history. Acknowledgments are messages, too, but belong to others' histories."""
ORDER_ACK, FINAL_ACK, ADMIN_ACK = str(Kind.ORDER_ACK), str(Kind.FINAL_ACK), str(Kind.ADMIN_ACK)
CUT: Final = str(Kind.CUT)
NEGATIVE: Final = 0x8000
EXPIRED: Final = {MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_RECEIVE_TIMEOUT}

SESSION_HEADER_BYTES: Final = 16

Row = tuple[Any, ...]


class Outcome(StrEnum):
    """The outcome of a message, as far as captures show it."""

    CONFIRMED = "confirmed"
    """The message arrived at its destination, and the destination confirmed this to the source."""
    REACHED = "reached"
    """The message arrived at its destination, but no acknowledgment was due, or the captures do not show one."""
    ACKNOWLEDGED = "acknowledged"
    """The destination acknowledged the message, but the captures do not show its arrival."""
    EXPIRED = "expired"
    REFUSED = "refused"
    """The message got negative acknowledgments other than for expiry; `final_class` and `administration` have their
    classes.
    """
    IN_FLIGHT = "in flight"
    """The message did not arrive by any route that the captures show, and there are no losses on these routes."""
    NOT_KNOWN = "not known"
    """The captures cannot tell whether the message arrived; `reason` says why.

    If it did arrive, `reason` says why they cannot tell whether it was acknowledged.
    """


NOBODY_KNOWN: Final = "it is not known who is at its end"


class _Hop(NamedTuple):
    """One hop of a message.

    first: the first packet that carried it across this hop.
    """

    first: Event
    first_ns: int
    last_ns: int
    acknowledged_ns: int | None
    numbered: bool
    copies: int
    places: int


class _Said(NamedTuple):
    """The acknowledgments of a message, each with the time at which it was first seen.

    The earliest come first.

    order_acked_ns: the time at which an OrderAck for it was first seen, if possible at the message's source.
    at_source: whether that OrderAck was seen at the message's source.
    covered_ns: the time at which a positive FinalAck of a later message of the same sequence was seen.
    final, administration: the FinalAcks and the administration acknowledgments, one of each class.
    """

    order_acked_ns: int | None
    at_source: bool | None
    covered_ns: int | None
    final: list[tuple[int, Event]]
    administration: list[tuple[int, Event]]


class HistoryStage:
    """A stage of `grouping.MessageStages` for rows of `subjects.keyed` and CONFIRMATIONS.

    It returns the tables in SCHEMAS.

    Args:
        label: returns the label of a queue manager, given its key; `directory.labels` makes this function.
        ways: returns the losses in the captures of a series.
        ahead: how far the clocks of capture points are ahead, from `clocks.ahead`.
    """

    def __init__(
        self,
        label: Callable[[str], str],
        ways: Callable[[str], Ways],
        ahead: Mapping[tuple[str, int], Ahead] | None = None,
    ) -> None:
        self._label = label
        self._ways = ways
        self._ahead = ahead or {}
        self._out: dict[str, list[Row]] = defaultdict(list)

    def take(self, messages: Messages) -> Batches:
        """Take the next messages."""
        for events, is_complete in messages.odd:
            self._close(events, is_complete=is_complete)
        rows, straight = messages.rows, messages.straight
        doubtful = self._doubtful(straight, rows)
        for events in messages.one_by_one(doubtful):
            self._close(events, is_complete=True)
        straight = straight.only(~doubtful)
        for end in ("from", "to"):
            rows = rows.append_column(f"{end}_label", mapped_texts(rows.column(f"{end}_key"), self._label))
        batches: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for name, found in self._out.items():
            batches[name].append(rows_about(SCHEMAS[name], TOLD[name], found, rows))
        self._out.clear()
        if len(straight):
            for name, batch in self._straight(straight, rows).items():
                batches[name].append(batch)
        return joined(batches)

    def _straight(self, every: Straight, rows: pa.RecordBatch) -> Batches:
        """Return rows for messages that crossed each hop once, arrived, and got no answers except OrderAcks."""
        kinds = rows.column("kind").take(pa.array(every.crossings[every.first]))
        followed = pc.is_in(kinds, pa.array(FOLLOWED)).to_numpy(zero_copy_only=False)
        messages = every.only(followed)
        count = len(messages)
        time_ns = integers(rows, "time_ns") - clock_offsets_ns(rows, self._ahead)
        at, first = messages.crossings, messages.first
        hop_ns = time_ns[at]
        first_ns = np.minimum.reduceat(hop_ns, first) if count else hop_ns
        arrived_ns = hop_ns[messages.arrival]
        said_ns = time_ns[messages.acks]
        home_ns, not_home = least(count, messages.acked[messages.at_source], said_ns[messages.at_source])
        acked_ns, not_acked = least(count, messages.acked, said_ns)
        ends = np.append(first, len(at))
        outcomes = pa.array([Outcome.CONFIRMED, Outcome.REACHED], TEXT)
        nothing = pa.array(np.zeros(count + 1), pa.int32())
        histories = {
            "first_ns": pa.array(first_ns),
            "last_ns": pa.array(np.maximum.reduceat(hop_ns, first) if count else hop_ns),
            "route": _routes(messages, rows),
            "hops": pa.array(messages.hops, SHORT),
            "hop_ns": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(hop_ns)),
            "resends": pa.repeat(pa.scalar(0, INTEGER), count),
            "arrived_ns": pa.array(arrived_ns),
            "latency_ns": pa.array(arrived_ns - first_ns),
            "latency_uncertainty_ns": uncertainties_ns(rows, self._ahead, at[first], at[messages.arrival]),
            "order_acked_ns": pa.array(np.where(not_home, acked_ns, home_ns), mask=not_acked),
            "order_ack_at_source": pa.array(~not_home, mask=not_acked),
            "covered_ns": pa.nulls(count, INTEGER),
            "final_class": pa.nulls(count, TEXT),
            "final_ns": pa.nulls(count, INTEGER),
            "administration": pa.ListArray.from_arrays(nothing, pa.array([], TEXT)),
            "administration_ns": pa.ListArray.from_arrays(nothing, pa.array([], INTEGER)),
            "outcome": outcomes.take(pa.array(not_acked.astype(np.int8))),
            "reason": pa.nulls(count, TEXT),
            "whereabouts": rows.column("to_label").take(pa.array(at[messages.arrival])),
            "complete": pa.repeat(pa.scalar(True), count),
        }
        return {
            "hops": about_packets(HOPS, self._crossed(messages, rows, hop_ns), at, rows),
            "histories": about_packets(HISTORIES, histories, at[first], rows),
        }

    def _crossed(self, messages: Straight, rows: pa.RecordBatch, hop_ns: Integers) -> dict[str, pa.Array]:
        """Return the columns that describe the hops of messages that crossed each hop once.

        Args:
            hop_ns: the time of each crossing.
        """
        at = messages.crossings
        ahead_ns = pa.array(clock_offsets_ns(rows, self._ahead, "acknowledged_ns"))
        answered_ns = pc.subtract(rows.column("acknowledged_ns"), ahead_ns)
        position = np.arange(len(at)) - messages.first[messages.message]
        return {
            "position": pa.array(position + 1, SHORT),
            "first_ns": pa.array(hop_ns),
            "last_ns": pa.array(hop_ns),
            "waited_ns": pa.array(np.diff(hop_ns, prepend=0), mask=position == 0),
            "waited_uncertainty_ns": pc.if_else(
                pa.array(position == 0),
                pa.scalar(None, INTEGER),
                uncertainties_ns(rows, self._ahead, at[np.maximum(np.arange(len(at)) - 1, 0)], at),
            ),
            "acknowledged_ns": answered_ns.take(pa.array(at)),
            "numbered": pc.is_valid(rows.column("session_number").take(pa.array(at))),
            "copies": pa.repeat(pa.scalar(1, INTEGER), len(at)),
            "places": pa.repeat(pa.scalar(1, SHORT), len(at)),
        }

    def _doubtful(self, every: Straight, rows: pa.RecordBatch) -> Mask:
        """Return, for each message, whether it must be examined one by one.

        That is so if later messages may have passed it over; see `Ways.may_be_passed`.
        """
        doubtful = np.zeros(len(every), dtype=bool)
        sent, number = every.crossings[every.first], integers(rows, "sequence_number")
        said = np.zeros(len(every), dtype=bool)
        said[every.acked] = True
        said[every.acked[number[every.acks] == number[sent[every.acked]]]] = False
        interface, time_ns = (integers(rows, name) for name in ("interface", "time_ns"))
        told_ns = np.full(len(every), EVER)
        is_near = interface[every.acks] == interface[sent[every.acked]]
        np.maximum.at(told_ns, every.acked, np.where(is_near, time_ns[every.acks], NEVER))
        places = [rows.column(name) for name in ("series", "from_key")]
        for sender in product(*(column.drop_null().unique().to_pylist() for column in places)):
            if not (spans := self._ways(sender[0]).passing(key_of(sender[1]), is_new=True)):
                continue
            is_of = pc.fill_null(pc.and_(*map(pc.equal, places, sender)), False).to_numpy(
                zero_copy_only=False
            )
            at = np.flatnonzero(said & is_of[sent])
            for span in spans:
                doubtful[at] |= (span.since_ns <= told_ns[at]) & (span.until_ns > time_ns[sent[at]])
        return doubtful

    def _time_ns(self, event: Event, time_ns: int) -> int:
        """Convert the time of an event to the reference clock."""
        known = self._ahead.get(event.place) if self._ahead else None
        return time_ns if known is None else time_ns - known.of(time_ns)

    def _close(self, events: Sequence[Event], *, is_complete: bool) -> None:
        """Judge one message, given all its events."""
        carriers = [event for event in events if not event.about]
        # A packet that is cut before it says what it is has what others say of the same message.
        told = next((event for event in carriers if event.kind != CUT), None)
        if told is None or told.kind not in FOLLOWED:
            return
        hops = self._hops(carriers)
        first = hops[0].first
        destination = first.destination_manager
        if destination == NULL_TEXT:
            destination = first.to_key  # A direct name goes straight to its host.
        hop_ns, last_ns, resends, arrived_ns, uncertainty = [], hops[0].last_ns, 0, None, None
        for hop in hops:
            hop_ns.append(hop.first_ns)
            resends += hop.copies - 1
            if hop.last_ns > last_ns:
                last_ns = hop.last_ns
            if hop.first.to_key == destination and (arrived_ns is None or hop.first_ns < arrived_ns):
                arrived_ns = hop.first_ns
                uncertainty = uncertainty_ns(self._ahead, first.place, hop.first.place)
        first_ns = min(hop_ns)
        about = [event for event in events if event.about]
        if passed := [event for event in about if event.kind == PASSED]:
            about = [event for event in about if not self._is_withdrawn(event, passed)]
        if is_doubted := self._may_be_passed(about, told.sequence_number, carriers):
            about = [event for event in about if event.kind not in (ORDER_ACK, COVERED)]
        said = self._said(first, about)
        reason = None if arrived_ns is not None else self._why_unknown(hops)
        outcome = self._outcome(said, reason, arrived=arrived_ns is not None)
        if outcome is Outcome.REACHED and is_doubted:
            reason = PASSED_OVER
        elif outcome is not Outcome.NOT_KNOWN:
            reason = None
        self._out["hops"] += self._hop_rows(hops)
        self._out["histories"].append(
            (
                told.at if first.kind == CUT else first.at,
                first_ns,
                last_ns,
                list(map(self._label, _route(hops))),
                len(hops),
                hop_ns,
                resends,
                arrived_ns,
                None if arrived_ns is None else arrived_ns - first_ns,
                uncertainty,
                said.order_acked_ns,
                said.at_source,
                said.covered_ns,
                said.final[0][1].class_name if said.final else None,
                said.final[0][0] if said.final else None,
                [event.class_name for _, event in said.administration],
                [time_ns for time_ns, _ in said.administration],
                outcome,
                reason,
                self._whereabouts(hops, destination, arrived=arrived_ns is not None),
                is_complete,
            )
        )

    def _hops(self, carriers: list[Event]) -> list[_Hop]:
        """Return the hops in the order in which the message crossed them."""
        by_hop: dict[tuple[str, str], list[Event]] = {}
        for event in carriers:
            by_hop.setdefault((event.from_key, event.to_key), []).append(event)
        hops = [self._hop(crossed) for crossed in by_hop.values()]
        hops.sort(key=lambda hop: (hop.first.hop_count, hop.first_ns))
        return hops

    def _hop(self, crossed: list[Event]) -> _Hop:
        timed = sorted(((self._time_ns(event, event.time_ns), event) for event in crossed), key=_by_time)
        places = Counter(event.place for event in crossed)
        answers_ns = [
            self._time_ns(event, event.acknowledged_ns)
            for event in crossed
            if event.acknowledged_ns is not None
        ]
        (first_ns, first), (last_ns, _) = timed[0], timed[-1]
        return _Hop(
            first,
            first_ns,
            last_ns,
            min(answers_ns, default=None),
            all(event.session_number is not None for event in crossed),
            max(places.values()),
            len(places),
        )

    def _said(self, first: Event, about: list[Event]) -> _Said:
        """Return the acknowledgments of a message, grouped by kind."""
        timed = [
            (self._time_ns(event, event.time_ns), event) for event in about if not _is_foreign(event, first)
        ]
        timed.sort(key=_by_time)
        order_acks = [each for each in timed if each[1].kind == ORDER_ACK]
        home = [each for each in order_acks if each[1].to_key == first.source_manager]
        order_acked_ns = (home or order_acks)[0][0] if order_acks else None
        at_source = bool(home) if order_acks else None
        covered_ns = next((time_ns for time_ns, event in timed if event.kind == COVERED), None)
        final = _once(each for each in timed if each[1].kind == FINAL_ACK)
        administration = _once(each for each in timed if each[1].kind == ADMIN_ACK)
        return _Said(order_acked_ns, at_source, covered_ns, final, administration)

    def _is_withdrawn(self, event: Event, passed: list[Event]) -> bool:
        """Whether an acknowledgment of a later number comes after messages that passed this one over."""
        return event.kind in (ORDER_ACK, COVERED, PASSED) and any(
            (each.sequence_number or 0) <= (event.sequence_number or 0)
            and self._time_ns(each, each.time_ns) <= self._time_ns(event, event.time_ns)
            for each in passed
        )

    def _may_be_passed(self, about: list[Event], number: int | None, carriers: list[Event]) -> bool:
        """Return whether the message may have been passed over.

        That is so if each OrderAck of its sequence may confirm only later messages that passed over this one.
        """
        orders = [event for event in about if event.kind in (ORDER_ACK, COVERED)]
        if any(event.sequence_number == number for event in orders):
            return False
        answers = [event for event in about if event.kind in (FINAL_ACK, ADMIN_ACK)]
        refused_ns = min((each.time_ns for each in answers if each.message_class & NEGATIVE), default=NEVER)
        copies: dict[str, list[Copy]] = defaultdict(list)
        for event in carriers:
            hop = key_of(event.from_key), key_of(event.to_key)
            copy = Copy(hop, event.interface, event.time_ns, event.connection or 0)
            copies[event.series].append(copy)
        return bool(orders) and all(
            self._ways(event.series).may_be_passed(
                copies[event.series], _told_by(event), ended=_ended(event, number or 0, refused_ns)
            )
            for event in orders
        )

    def _outcome(self, said: _Said, reason: str | None, *, arrived: bool) -> Outcome:
        answers = said.final + said.administration
        if answers:
            refusals = [event.message_class for _, event in answers if event.message_class & NEGATIVE]
            if refusals:
                return Outcome.EXPIRED if EXPIRED.intersection(refusals) else Outcome.REFUSED
        if answers or said.order_acked_ns is not None or said.covered_ns is not None:
            return Outcome.CONFIRMED if arrived else Outcome.ACKNOWLEDGED
        if arrived:
            return Outcome.REACHED
        return Outcome.IN_FLIGHT if reason is None else Outcome.NOT_KNOWN

    def _why_unknown(self, hops: list[_Hop]) -> str | None:
        """Return why a message whose arrival was not seen may have arrived anyway.

        Return None if the captures would show its arrival. Each queue manager that held the message may have sent it
        on, if the captures lack some of that queue manager's packets. It may have held the message since the message
        was written, which is earlier than the captures show. If a connection is older than the captures, messages
        written before the captures began may already have crossed it. A loss counts only if it has room for the
        message. A SessionHeader may add to the message's size on one hop but not on another.
        """
        if any(len(hop.first.to_key) != GUID_CHARACTERS for hop in hops):
            return NOBODY_KNOWN
        size_bytes = max(hop.first.size_bytes for hop in hops) - SESSION_HEADER_BYTES
        for hop in hops:
            event = hop.first
            ways = self._ways(event.series)
            sent_s = event.sent_time_s or 0
            since_ns = EVER if sent_s > event.time_ns // SECOND_NS + 1 else written_ns(sent_s)
            for key in (event.from_key, event.to_key):
                if (lack := ways.onward(key_of(key), since_ns, size_bytes)) is not None:
                    return str(lack)
            if ways.began_late and not ways.is_written_since(
                event.interface, event.sent_time_s or 0, event.time_ns
            ):
                return str(Lack.BEGAN)
        return None

    def _hop_rows(self, hops: list[_Hop]) -> Iterator[Row]:
        came: dict[str, _Hop] = {}
        for position, hop in enumerate(hops, 1):
            since = came.get(hop.first.from_key)
            came.setdefault(hop.first.to_key, hop)
            waited = uncertainty = None
            if since is not None:
                waited = hop.first_ns - since.first_ns
                uncertainty = uncertainty_ns(self._ahead, since.first.place, hop.first.place)
            yield (
                hop.first.at,
                position,
                hop.first_ns,
                hop.last_ns,
                waited,
                uncertainty,
                hop.acknowledged_ns,
                hop.numbered,
                hop.copies,
                hop.places,
            )

    def _whereabouts(self, hops: list[_Hop], destination: str, *, arrived: bool) -> str:
        if arrived:
            return self._label(destination)
        last = hops[-1]
        if last.acknowledged_ns is not None:
            return self._label(last.first.to_key)
        return f"{self._label(last.first.from_key)} > {self._label(last.first.to_key)}"


def _routes(messages: Straight, rows: pa.RecordBatch) -> pa.Array:
    """Return the labels of the queue managers on each message's route.

    The first sender comes first, followed by each receiver.
    """
    at, first = messages.crossings, messages.first
    begins = first + np.arange(len(first))
    place = np.empty(len(at) + len(first), dtype=np.int64)
    place[begins] = at[first]
    place[np.arange(len(at)) + messages.message + 1] = rows.num_rows + at
    labels = pa.concat_arrays([rows.column("from_label"), rows.column("to_label")])
    ends = pa.array(np.append(begins, len(place)), pa.int32())
    return pa.ListArray.from_arrays(ends, labels.take(pa.array(place)).cast(TEXT))


def _ended(event: Event, number: int, refused_ns: int) -> int | None:
    """Return how many FinalAcks the captures must lack if a new message passed over this number.

    Return None if no new message can have passed over it.
    """
    new = next((each for each in event.unseen or () if each > number), 0)
    return max(1, new - number - (event.ended or 0)) - (event.time_ns > refused_ns) if new else None


def _told_by(event: Event) -> Told:
    is_ahead, number = event.connection is None, event.sequence_number or 0
    return Told(number, event.number, event.time_ns, event.interface, event.connection or 0, is_ahead)


def _by_time(timed: tuple[int, Event]) -> int:
    return timed[0]


def _once(timed: Iterable[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """Return the first acknowledgment of each class, because the same acknowledgment crosses several hops."""
    found: dict[int, tuple[int, Event]] = {}
    for time_ns, event in timed:
        found.setdefault(event.message_class, (time_ns, event))
    return list(found.values())


def _is_foreign(final: Event, message: Event) -> bool:
    """Whether `final` is a positive FinalAck from a queue manager other than the message's destination. [MS-MQQB]
    3.1.1.6.2
    """
    if final.kind != FINAL_ACK or final.message_class & NEGATIVE:
        return False
    return message.destination_manager not in (NULL_TEXT, final.source_manager)


def _route(hops: list[_Hop]) -> list[str]:
    """Return the keys of the queue managers in the order of the route.

    If a detour returns to a queue manager, its key appears again.
    """
    route = [hops[0].first.from_key]
    for hop in hops:
        if route[-1] != hop.first.from_key and route[-1].rpartition(":")[0] != hop.first.from_key:
            route.append(hop.first.from_key)  # An end that listens is at the address that connects elsewhere.
        route.append(hop.first.to_key)
    return route
