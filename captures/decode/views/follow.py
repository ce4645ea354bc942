"""Follows one message across all hops: each crossing with its delay and acknowledgments, and the outcome."""

from __future__ import annotations

import re
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mqproto.base.ranges import Ranges
from mqproto.captures.decode.facts import MessageKey
from mqproto.captures.decode.journeys import RECONNECTED, UNTIL_ACKNOWLEDGED, UNTOLD, message_key
from mqproto.captures.decode.names import Names, printable
from mqproto.captures.decode.ranges import BoundedRanges
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.selection import MessageNamed
from mqproto.captures.decode.sequences import SEQUENCE_LIMIT, SequenceKey, shown
from mqproto.captures.decode.sight import MESSAGES, Kind, Sight
from mqproto.captures.decode.views.line import CLASS_NAMES
from mqproto.captures.decode.ways import NEVER, PASSED_OVER, Copy, Told, Ways, is_overtaken, tells_order
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    TxSequenceId,
    UserHeader,
    UserMessage,
    announced_sizes,
    message_identifier,
)

NANOSECONDS: Final = 1_000_000_000
MESSAGE_LIMIT: Final = 100
"""The largest number of messages that are followed if several share the wanted label or ordinal."""
EVENT_LIMIT: Final = 10_000
ORDER_ACK_LIMIT: Final = 16
"""The largest number of OrderAcks of one sequence that are remembered for messages that come later in the capture."""
ACKNOWLEDGED: Final = re.compile(r"(?:OrderAck of all up to|FinalAck of number) (\d+)")


class FollowedEvent(NamedTuple):
    """An event in the history of the message, or an acknowledgment of the message."""

    time_ns: int
    packet: int
    source: str
    destination: str
    text: str


@dataclass(slots=True)
class History:
    """Everything that the capture shows about one message.

    sequence: the message's sequence and its number there, if the message is transactional.
    crossings: the packets that carried the message.
    arrived_ns: when the message first crossed to its destination, if its address identifies the destination.
    order_acks: when an OrderAck that covers the message first reached the source, keyed by the OrderAck's number. None
        if the OrderAck was not seen to reach the source, or was seen before the message.
    finals: the same for positive FinalAcks of later numbers in the sequence, which also show that the message arrived.
    passed_by: the lowest number of a message that skipped this one. Acknowledgments of that number or of later ones
        prove nothing about this message.
    told: the acknowledgments for the message's sequence.
    is_doubted: whether acknowledgments of later numbers prove nothing about this message.
    ended: the class of the FinalAck or administration acknowledgment that reached the source; if none did, the class of
        the one that crossed last.
    """

    key: MessageKey
    heading: str
    origin: Guid
    towards: Guid
    sequence: tuple[SequenceKey, int] | None
    events: list[FollowedEvent] = field(default_factory=list)
    crossings: dict[int, Copy] = field(default_factory=dict)
    arrived_ns: int | None = None
    order_acks: dict[int, int | None] = field(default_factory=dict)
    finals: dict[int, int | None] = field(default_factory=dict)
    passed_by: int = 1 << 32
    told: list[Told] = field(default_factory=list)
    is_doubted: bool = False
    ended: str = ""
    ended_ns: int | None = None

    @property
    def began_ns(self) -> int:
        """Return when the message was first seen.

        Packets may be out of order if the reader had to wait for bytes.
        """
        return min(event.time_ns for event in self.events)

    @property
    def order_acked_ns(self) -> int | None:
        """The time at which an OrderAck for the message first reached its source."""
        return self._first_ns(self.order_acks)

    @property
    def covered_ns(self) -> int | None:
        """The time at which a positive FinalAck of a later number first reached the message's source."""
        return self._first_ns(self.finals)

    def _first_ns(self, told: dict[int, int | None]) -> int | None:
        times_ns = (time_ns for number, time_ns in told.items() if self.is_told_by(number))
        return min((each for each in times_ns if each is not None), default=None)

    def is_told_by(self, number: int) -> bool:
        """Whether the acknowledgment of a number in the message's sequence shows that the message arrived. [MS-MQQB]
        3.1.5.8.6
        """
        own = 0 if self.sequence is None else self.sequence[1]
        return number == own or own < number < self.passed_by

    def pass_over(self, sequence: SequenceKey, previous: int, number: int) -> None:
        """Record that the message `number` of a sequence names `previous` as its predecessor."""
        key, own = self.sequence or (None, 0)
        if sequence == key and previous < own < number < self.passed_by:
            self.passed_by = number
            numbers = [(each, ACKNOWLEDGED.match(each.text)) for each in self.events]
            self.events = [each for each, found in numbers if found is None or self.is_told_by(int(found[1]))]

    def settle(self, ways: Ways, seen: Ranges, ended: Ranges) -> None:
        """Drop acknowledgments of later numbers if none of them proves anything; see `Ways.may_be_passed`.

        Args:
            seen, ended: the numbers of the message's sequence that were seen, and those that had a FinalAck.
        """
        if self.sequence is None:
            return
        key, own = self.sequence
        refused_ns = (self.ended_ns or 0) if self.ended.startswith("NACK") else NEVER
        told = [each for each in self.told if self.is_told_by(each.sequence_number)]

        def is_doubted(each: Told) -> bool:
            new, number = seen.after(own), each.sequence_number
            known = ended.count_through(new - 1) - ended.count_through(own)
            count = new - own - known - (each.time_ns > refused_ns) if new <= number else None
            return number > own and ways.may_be_passed(self.crossings.values(), each, ended=count)

        if told and all(map(is_doubted, told)):
            self.is_doubted = True
            self.pass_over(key, own - 1, own + 1)

    def verdict(self) -> str:
        """Return the outcome of the message, as far as the capture shows."""
        began_ns, parts = self.began_ns, []
        points = {each.interface for each in self.crossings.values()}
        if len(points) > 1:  # Times of another point may be earlier, by its own clock.
            every = self.crossings.values()
            left = [each for each in every if each.hop[0] == self.origin] or every
            began_ns = min(each.time_ns for each in left)
        if self.arrived_ns is not None:
            after = f" after {_seconds(self.arrived_ns - began_ns)}"
            parts.append("reached its destination" + after * (len(points) == 1 or self.arrived_ns > began_ns))
        else:
            last = [event for event in self.events if event.packet in self.crossings][-1]
            parts.append(f"last seen on its way to {last.destination}")
        if self.order_acked_ns is not None:
            parts.append(f"OrderAck back after {_seconds(self.order_acked_ns - began_ns)}")
        elif self.covered_ns is not None:
            parts.append(f"FinalAck of a later number back after {_seconds(self.covered_ns - began_ns)}")
        elif any(map(self.is_told_by, self.order_acks)):
            parts.append("an OrderAck for it was seen")
        elif self.sequence is not None and self.ended_ns is None:
            doubt = f"whether it was acknowledged is not known: {PASSED_OVER}"
            parts.append(doubt if self.is_doubted else "no OrderAck was seen to come back")
        if self.ended_ns is not None:
            parts.append(f"{self.ended} after {_seconds(self.ended_ns - began_ns)}")
        if len(points) > 1:
            parts.append(f"times are by the clocks of {len(points)} capture points, which may differ")
        return "; ".join(parts)

    def lines(self) -> Iterator[str]:
        """Yield lines for people to read: a heading, a line for each event, and the verdict.

        The line of an event has the seconds since the message was first seen, the packet, the hop, and what happened.
        """
        yield self.heading
        began_ns = self.began_ns
        wide = max(len(f"{event.source} > {event.destination}") for event in self.events)
        for event in self.events:
            after_s = (event.time_ns - began_ns) / NANOSECONDS
            hop = f"{event.source} > {event.destination}"
            yield f"{after_s:>12.6f}  {'#' + str(event.packet):>8}  {hop:<{wide}}  {event.text}"
        yield f"  {self.verdict()}"

    def as_json(self) -> dict[str, Any]:
        """Return the history as JSON for programs."""
        return {
            "message": identifier_text(*self.key),
            "sequence": None if self.sequence is None else shown(self.sequence[0][1]),
            "sequence_number": None if self.sequence is None else self.sequence[1],
            "events": [event._asdict() for event in self.events],
            "arrived_ns": self.arrived_ns,
            "order_acked_ns": self.order_acked_ns,
            "covered_ns": self.covered_ns,
            "ended": self.ended or None,
            "ended_ns": self.ended_ns,
            "verdict": self.verdict(),
        }


class Follower:
    """Collects the histories of the messages that were asked for.

    Args:
        target: GUID\\ordinal, an ordinal alone, or a label.
        names: the names of queue managers and queues.

    Raises:
        UsageError: the target cannot name a message.
    """

    def __init__(self, target: str, names: Names) -> None:
        self._wanted = MessageNamed(target)
        self._names = names
        self.histories: dict[MessageKey, History] = {}
        self._order_acked: OrderedDict[tuple[Guid, Guid, TxSequenceId], deque[Told]] = OrderedDict()
        self._seen: OrderedDict[SequenceKey | None, Ranges] = OrderedDict()
        self._ended: OrderedDict[SequenceKey | None, Ranges] = OrderedDict()
        self._passings: deque[tuple[SequenceKey, int, int]] = deque(maxlen=SEQUENCE_LIMIT)
        self.left_out_count = 0

    def take(self, sight: Sight) -> None:
        """Take a packet; record it if it concerns one of the messages."""
        message = sight.message
        if message is not None:
            if sight.kind in MESSAGES or sight.kind is Kind.REPORT:
                self._take_message(sight, message)
            else:
                self._take_acknowledgment(sight, message)
        elif sight.beginning is not None:
            user = sight.beginning
            history = self.histories.get((user.source_queue_manager, user.message_id))
            if history is not None:
                _cross(history, sight, user)
        if self.histories and (sight.received is not None or sight.saved is not None):
            self._take_session(sight)
        if self.histories and sight.learnt:
            self._take_learnt(sight)

    def settle(self, ways: Ways) -> None:
        """Complete the histories at the end of the capture, when it is known what the capture lacks."""
        for history in self.histories.values():
            key = history.sequence and history.sequence[0]
            history.settle(ways, self._seen.get(key, Ranges()), self._ended.get(key, Ranges()))

    def _take_message(self, sight: Sight, message: UserMessage) -> None:
        key, transaction = message_key(message), message.transaction
        if transaction:
            sequence, number = (key[0], transaction.tx_sequence_id), transaction.tx_sequence_number
            _count(self._seen, sequence, number)
            self._pass_over(sequence, transaction.previous_tx_sequence_number, number)
        history = self.histories.get(key)
        if history is None:
            if not self._wanted.fits(key, message.properties.label):
                return
            if len(self.histories) >= MESSAGE_LIMIT:
                self.left_out_count += 1
                return
            history = self.histories[key] = self._begin(key, message, sight)
        _cross(history, sight, message.user)

    def _pass_over(self, sequence: SequenceKey, previous: int, number: int) -> None:
        if previous < number - 1:
            self._passings.append((sequence, previous, number))
            for each in self.histories.values():
                each.pass_over(sequence, previous, number)

    def _begin(self, key: MessageKey, message: UserMessage, sight: Sight) -> History:
        transaction, user = message.transaction, message.user
        sequence = None
        words = [f"message {identifier_text(*key)}"]
        if message.properties.label:
            words.append(repr(printable(message.properties.label)))
        size_bytes = len(message.properties.message_body)
        if sight.seen.cut_bytes:
            _, size_bytes = announced_sizes(sight.seen.data)
        words.append(f"{sight.kind.lower()}, {size_bytes:,} bytes of body")
        words.append(f"to {self._names.destination(user)}")
        if transaction is not None:
            sequence = (
                (user.source_queue_manager, transaction.tx_sequence_id),
                transaction.tx_sequence_number,
            )
            words.append(f"number {sequence[1]} of sequence {shown(transaction.tx_sequence_id)}")
        towards = user.queue_manager_address
        if towards == NULL_GUID and isinstance(sight.hop[1], bytes):
            towards = Guid(sight.hop[1])  # A direct name goes straight to its host.
        history = History(key, ", ".join(words), user.source_queue_manager, towards, sequence)
        if sequence is not None:
            (origin, identifier), _ = sequence
            for address in (origin, NULL_GUID):
                for told in self._order_acked.get((towards, address, identifier), ()):
                    if told.sequence_number >= sequence[1]:
                        history.order_acks[told.sequence_number] = None
                        history.told.append(told)
            for passing in self._passings:
                history.pass_over(*passing)
        return history

    def _take_acknowledgment(self, sight: Sight, message: UserMessage) -> None:
        body = sight.acknowledgment
        reached = sight.hop[1]
        if isinstance(body, FinalAckBody):
            sequence = body.source_guid, body.tx_sequence_id
            _count(self._ended, sequence, body.tx_sequence_number)
            # What its message passed over did not come, either.  [MS-MQQB] 2.2.5.1
            self._pass_over(sequence, body.tx_previous_sequence_number, body.tx_sequence_number)
        if isinstance(body, OrderAckBody):
            user = message.user
            named = user.source_queue_manager, user.queue_manager_address, body.tx_sequence_id
            known = self._order_acked.setdefault(named, deque(maxlen=ORDER_ACK_LIMIT))
            known.append(_told(sight, body))
            if len(self._order_acked) > SEQUENCE_LIMIT:
                self._order_acked.popitem(last=False)
        for history in self.histories.values():
            if isinstance(body, OrderAckBody):
                if not _covers(body, message, history, sight.seen.time_ns):
                    continue
                _add(history, sight, f"OrderAck of all up to {body.tx_sequence_number}", body)
                is_home = reached == history.origin
                known_ns = history.order_acks.get(body.tx_sequence_number)
                history.order_acks[body.tx_sequence_number] = sight.seen.time_ns if is_home else known_ns
                continue
            if isinstance(body, FinalAckBody):
                if _passes(body, message, history):
                    text = f"FinalAck of number {body.tx_sequence_number}: all before it came too"
                    _add(history, sight, text, body)
                    if reached == history.origin:
                        history.finals[body.tx_sequence_number] = sight.seen.time_ns
                    continue
                about, what = (body.source_guid, body.message_id), "FinalAck"
                is_positive = message.properties.message_class == MessageClass.ACK_RECEIVE
                if is_positive and not _goes_to_sender(message, history):
                    continue
            else:
                correlated = message_identifier.decode(message.properties.correlation_id)
                about, what = (
                    (correlated.queue_manager_guid, correlated.ordinal),
                    "administration acknowledgment",
                )
            if about == history.key:
                verdict = CLASS_NAMES.get(
                    message.properties.message_class, hex(message.properties.message_class)
                )
                _add(history, sight, f"{what} {verdict}")
                history.ended, history.ended_ns = verdict, sight.seen.time_ns

    def _take_session(self, sight: Sight) -> None:
        for history in self.histories.values():
            told: dict[int, list[str]] = {}
            for what, acknowledged in (("received", sight.received), ("saved", sight.saved)):
                for number in acknowledged.packets if acknowledged is not None else ():
                    if number in history.crossings:
                        told.setdefault(number, []).append(what)
            for number, words in told.items():
                _add(history, sight, f"session acknowledgment: #{number} {', '.join(words)}")

    def _take_learnt(self, sight: Sight) -> None:
        """Insert session acknowledgments that have only now become known, in the order of their packets."""
        for history in self.histories.values():
            for learnt in sight.learnt:
                if learnt.packet in history.crossings and len(history.events) < EVENT_LIMIT:
                    text = f"session acknowledgment: #{learnt.packet} received" + ", saved" * learnt.is_saved
                    event = FollowedEvent(learnt.time_ns, learnt.by, sight.destination, sight.source, text)
                    insort(history.events, event, key=lambda each: each.packet)


def _count(known: OrderedDict[SequenceKey | None, Ranges], sequence: SequenceKey, number: int) -> None:
    """Add a number to a sequence; beyond the limit, forget the sequence that came first."""
    known.setdefault(sequence, BoundedRanges()).add(number, number)
    if len(known) > SEQUENCE_LIMIT:
        known.popitem(last=False)


def _cross(history: History, sight: Sight, user: UserHeader) -> None:
    """Record that the message crosses a hop."""
    seen = sight.seen
    crossed = Copy(
        sight.hop, seen.interface.number, seen.time_ns, seen.connection, seen.frame, sight.from_client
    )
    others = [number for number, each in history.crossings.items() if _is_alike(each, crossed)]
    is_first = all(is_overtaken(history.crossings[number], crossed) for number in others)
    hop_count = f", hop count {user.hop_count}" if user.hop_count else ""
    if is_first:
        _send_again(history, crossed, others)
        text = f"sent{hop_count}"
    else:
        found = (each for each in sight.findings if (each.code, each.packet) == ("resend", seen.number))
        why = next((each.text.partition("; ")[2] for each in found), "")
        again = "sent, too" if why == UNTOLD else "sent again"
        text = (f"{again}: {why}" if why else again) + hop_count
    history.crossings[seen.number] = crossed
    if sight.hop[1] == history.towards and (history.arrived_ns is None or (others and is_first)):
        history.arrived_ns = seen.time_ns
    _add(history, sight, text)


def _goes_to_sender(message: UserMessage, history: History) -> bool:
    """Whether an acknowledgment comes from the message's destination.  [MS-MQQB] 3.1.1.6.2"""
    return history.towards in (message.user.source_queue_manager, NULL_GUID)


def _covers(body: OrderAckBody, message: UserMessage, history: History, time_ns: int) -> bool:
    """Whether an OrderAck covers a message.

    It must name the sequence and the source of the message, and the message's number or a later one. The first OrderAck
    that reached the source counts, even if it is read after others.
    """
    if history.sequence is None or not _goes_to_sender(message, history):
        return False
    (origin, identifier), _ = history.sequence
    address = message.user.queue_manager_address
    return (
        body.tx_sequence_id == identifier
        and history.is_told_by(body.tx_sequence_number)
        and address in (origin, NULL_GUID)
        and (history.order_acked_ns is None or time_ns < history.order_acked_ns)
    )


def _passes(body: FinalAckBody, message: UserMessage, history: History) -> bool:
    """Whether a positive FinalAck is for a later message of the sequence, and is the first to confirm this message.

    Such a FinalAck covers all earlier messages, as an OrderAck would.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
    """
    if history.sequence is None or history.order_acked_ns is not None or history.covered_ns is not None:
        return False
    (origin, identifier), number = history.sequence
    return (
        message.properties.message_class == MessageClass.ACK_RECEIVE
        and body.source_guid == origin
        and body.tx_sequence_id == identifier
        and body.tx_sequence_number > number
        and history.is_told_by(body.tx_sequence_number)
        and _goes_to_sender(message, history)
    )


def _is_alike(one: Copy, other: Copy) -> bool:
    """Whether two packets crossed the same hop, as one interface saw them."""
    return (one.hop, one.interface) == (other.hop, other.interface)


def _send_again(history: History, first: Copy, packets: list[int]) -> None:
    """Correct the event for a copy that seemed to be the first on its hop, because copy `first` crossed before it."""
    for place, event in enumerate(history.events):
        if event.packet in packets and re.match(r"sent(?! again|, too)", event.text):
            is_told = tells_order(first, history.crossings[event.packet])
            is_own = history.sequence is not None and first.hop[0] == history.origin
            why = UNTIL_ACKNOWLEDGED if is_own else RECONNECTED
            again = f"sent again: {why}" if is_told else f"sent, too: {UNTOLD}"
            text = event.text.replace("sent", again, 1)
            history.events[place] = event._replace(text=text)


def _add(history: History, sight: Sight, text: str, body: OrderAckBody | FinalAckBody | None = None) -> None:
    """Add an event, which may be an acknowledgment of the message's sequence."""
    if len(history.events) < EVENT_LIMIT:
        seen = sight.seen
        history.events.append(FollowedEvent(seen.time_ns, seen.number, sight.source, sight.destination, text))
        if body is not None:
            history.told.append(_told(sight, body))


def _told(sight: Sight, body: OrderAckBody | FinalAckBody) -> Told:
    seen, number = sight.seen, body.tx_sequence_number
    return Told(number, seen.number, seen.time_ns, seen.interface.number, seen.connection, seen.ahead)


def _seconds(duration_ns: int) -> str:
    milliseconds = duration_ns / 1e6
    return f"{milliseconds:.3f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:,.3f} s"
