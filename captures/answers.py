"""Keeps account of how a peer answers the messages that are sent to it.

The answers are session, order, final and administration acknowledgments. Captured and live conversations are accounted
for by the same rules, so that they can be compared. The account does not depend on how acknowledgments are batched, or
on when they arrive.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mqproto.base.configuration import Settings
from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import InFlight, Session
from mqproto.turn.effects import MessageRow
from mqproto.wire import (
    NULL_GUID,
    EstablishConnection,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    Packet,
    TxSequenceId,
    UserMessage,
    acknowledgment_in,
    message_identifier,
)

Identity: TypeAlias = tuple[Guid, int]
"""Identifies a message by its first queue manager and its MessageID.  [MS-MQMQ] 2.2.18.1.3"""
Place: TypeAlias = tuple[TxSequenceId, int]
"""Identifies a transactional message by its sequence, and by its number in that sequence. [MS-MQMQ] 2.2.20.5"""

NACK: Final = 0x8000
"""The bit that is set in the class of every negative acknowledgment.  [MS-MQMQ] 2.2.18.1.6"""
SOMEBODY: Final = Guid(b"\xff" * 16)
BEGINNING: Final = Moment(uptime_ms=0, utc_s=0)


def identity_of(message: UserMessage) -> Identity:
    """Return a message's identity, which stays the same when the message is sent again."""
    return message.user.source_queue_manager, message.user.message_id


def place_of(message: UserMessage) -> Place | None:
    """Return a message's place in its sequence; None if it is not transactional."""
    header = message.transaction
    return None if header is None else (header.tx_sequence_id, header.tx_sequence_number)


ANSWERS: Final = frozenset(MessageClass) - {MessageClass.NORMAL, MessageClass.REPORT}
"""The classes of the messages with which queue managers answer: OrderAcks, FinalAcks and administration
acknowledgments.
"""


def is_answer(message: UserMessage) -> bool:
    """Whether a queue manager made a message to report what became of another message.  [MS-MQMQ] 2.2.18.1.6"""
    return message.properties.message_class in ANSWERS


def class_name(message_class: int) -> str:
    """Return the name that the specification gives to a class, or the class's number if it has no name."""
    try:
        return MessageClass(message_class).name
    except ValueError:
        return f"class {message_class:#06x}"


@dataclass(slots=True)
class Fate:
    """The answers to one message so far.

    acknowledged: whether the neighbour has received the message and, if it is recoverable, has saved it. [MS-MQQB]
        3.1.1.6.1
    ordered: whether the message is covered by an OrderAck, or by a positive FinalAck for it or for a later message.
        [MS-MQQB] 3.1.1.6.2, 3.1.5.7
    final: the class of the message's FinalAck; None if it has none.
    administration: the classes of the message's administration acknowledgments.
    """

    acknowledged: bool = False
    ordered: bool = False
    final: int | None = None
    administration: frozenset[int] = frozenset()

    def lacks(self, other: Fate) -> bool:
        """Whether the other fate has a kind of answer that this one lacks."""
        return (
            (other.acknowledged and not self.acknowledged)
            or (other.ordered and not self.ordered)
            or (other.final is not None and self.final is None)
            or not other.administration <= self.administration
        )

    def differences(self, captured: Fate) -> Iterator[str]:
        """Yield, in words, each difference between this fate and the captured one.

        A positive answer that the capture lacks is not a difference: the capture may have ended before that answer
        arrived.
        """
        if captured.acknowledged and not self.acknowledged:
            yield "no session acknowledgment, the capture has one"
        if captured.ordered and not self.ordered:
            yield "no OrderAck, the capture has one"
        if self.final != captured.final:
            if self.final is None:
                assert captured.final is not None
                yield f"no FinalAck, the capture has {class_name(captured.final)}"
            elif captured.final is not None:
                yield f"FinalAck {class_name(self.final)}, the capture has {class_name(captured.final)}"
            elif self.final & NACK:
                yield f"FinalAck {class_name(self.final)}, the capture has none"
        for missing in sorted(captured.administration - self.administration):
            yield f"no administration acknowledgment {class_name(missing)}, the capture has one"
        for extra in sorted(self.administration - captured.administration):
            if extra & NACK:
                yield f"administration acknowledgment {class_name(extra)}, the capture has none"


class Fault(NamedTuple):
    """A breach of the protocol that is certain, whatever else the capture shows.

    `message`: the number of the message concerned, if any.
    """

    message: int | None
    text: str


@dataclass(slots=True)
class _Sequence:
    """The messages of one sequence, sorted by their numbers in it.

    passed: how many of these messages have been covered by acknowledgments.
    """

    places: list[tuple[int, int]] = field(default_factory=list)
    passed: int = 0


class Answers:
    """The account of one conversation: its messages, numbered from 0, and the answers to each.

    First introduce every message with `expect`, then report what happened, in the order in which it happened.
    """

    def __init__(self) -> None:
        self.fates: list[Fate] = []
        self.faults: list[Fault] = []
        """The faults, each listed once, however often it was committed."""
        self.sent_count = 0
        self.order_ack_count = 0
        self.final_ack_count = 0
        self.administration_count = 0
        self._known_faults: set[Fault] = set()
        self._sent: list[bool] = []
        self._by_identity: dict[Identity, int] = {}
        self._sequences: dict[TxSequenceId, dict[Guid, _Sequence]] = {}
        """Sequences, keyed by identifier and then by sending queue manager: two queue managers may use the same
        identifier.
        """

    def expect(self, identity: Identity, place: Place | None) -> int:
        """Introduce a message that is to be sent, and return its number in this account.

        The same identity always has the same number.
        """
        number = self._by_identity.setdefault(identity, len(self.fates))
        if number == len(self.fates):
            self.fates.append(Fate())
            self._sent.append(False)
            if place is not None:
                sequence = self._sequences.setdefault(place[0], {}).setdefault(identity[0], _Sequence())
                insort(sequence.places, (place[1], number))
        return number

    def number_of(self, identity: Identity) -> int | None:
        """Return the number of a message, or None if the message was not introduced."""
        return self._by_identity.get(identity)

    def was_sent(self, number: int) -> bool:
        """Whether a message has been sent."""
        return self._sent[number]

    def blame(self, message: int | None, text: str) -> None:
        """Record that the peer did something that no peer may do."""
        fault = Fault(message, text)
        if fault not in self._known_faults:
            self._known_faults.add(fault)
            self.faults.append(fault)

    # What happens, in its order

    def sent(self, number: int) -> None:
        """Record that a message was sent, for the first time or again."""
        self.sent_count += not self._sent[number]
        self._sent[number] = True

    def acknowledged(self, number: int) -> None:
        """Record that the session's acknowledgment of a message is complete."""
        self.fates[number].acknowledged = True

    def heard(self, message: UserMessage) -> list[int]:
        """Take a message from the peer; record it if it is an acknowledgment.

        Return the numbers of the messages that it covers.
        """
        acknowledgment = acknowledgment_in(message)
        if isinstance(acknowledgment, OrderAckBody):
            return self._order_ack(acknowledgment, message.user.queue_manager_address)
        if isinstance(acknowledgment, FinalAckBody):
            return self._final_ack(acknowledgment, message.properties.message_class)
        if message.properties.message_class:
            return self._administration(message)
        return []

    def _order_ack(self, body: OrderAckBody, sender: Guid) -> list[int]:
        """Take an OrderAck, which says that everything up to a number has arrived in order.  [MS-MQQB] 2.2.4.1,
        3.1.5.6
        """
        identifier, number = body.tx_sequence_id, body.tx_sequence_number
        named = self._sequences.get(identifier)
        if named is None and number == 0 and identifier.time_stamp == 0 and len(self._sequences) == 1:
            # The number is in TxSequenceID, as in the example of 3.1.1.6.2.
            [named], number = self._sequences.values(), identifier.ordinal
        found = [each for source, each in (named or {}).items() if sender in (source, NULL_GUID)]
        if len(found) != 1:
            return []
        self.order_ack_count += 1
        return self._pass(found[0], number, "OrderAck")

    def _pass(self, sequence: _Sequence, through: int, kind: str) -> list[int]:
        """Record that an acknowledgment covers all numbers of a sequence up to `through`.

        Return the numbers of the messages that it newly covers.
        """
        spoken_of = []
        while sequence.passed < len(sequence.places) and sequence.places[sequence.passed][0] <= through:
            place, number = sequence.places[sequence.passed]
            sequence.passed += 1
            spoken_of.append(number)
            self.fates[number].ordered = self._sent[number]
            if not self._sent[number]:
                self.blame(number, f"{kind} of number {through} before number {place} was sent")
        last, number = sequence.places[-1]
        if through > last:
            self.blame(number, f"{kind} of a number above {last}, the last of its sequence")
        return spoken_of

    def _final_ack(self, body: FinalAckBody, message_class: int) -> list[int]:
        """Take a FinalAck, which says that a message was received, or refused for good.  [MS-MQQB] 2.2.5.1, 3.1.5.7"""
        number = self._by_identity.get((body.source_guid, body.message_id))
        if number is None:
            return []
        self.final_ack_count += 1
        if self.fates[number].final is None:  # The first of several counts.
            self.fates[number].final = message_class
        if not self._sent[number]:
            self.blame(number, f"FinalAck {class_name(message_class)} before it was sent")
        sequence = self._sequences.get(body.tx_sequence_id, {}).get(body.source_guid)
        if sequence is None or message_class != MessageClass.ACK_RECEIVE:
            return [number]
        return [number, *self._pass(sequence, body.tx_sequence_number, "FinalAck")]

    def _administration(self, message: UserMessage) -> list[int]:
        """Take an administration acknowledgment, whose CorrelationID names the message that it is about. [MS-MQQB]
        3.1.7.15
        """
        named = message_identifier.decode(message.properties.correlation_id)
        number = self._by_identity.get((named.queue_manager_guid, named.ordinal))
        if number is None:
            return []
        self.administration_count += 1
        self.fates[number].administration |= {message.properties.message_class}
        return [number]


class Witness:
    """Follows one session through its packets, as seen by the side that sends the messages.

    It knows the session's counts only if it sees the session from the beginning; otherwise it reports nothing.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._position = 0

    @property
    def fault(self) -> str:
        """How the other side broke the rules of a session; empty if it did not."""
        closed = self._session.closed if self._session is not None else None
        return f"{closed.reason}  [MS-MQQB] {closed.section}" if closed is not None else ""

    def said(self, packet: Packet, data: bytes, number: int | None) -> None:
        """Take a packet from our side.

        `number` is the number of the message in the packet; None if it holds no message that was introduced.
        """
        if isinstance(packet, EstablishConnection) and self._session is None:
            self._session = _session(packet, initiator=True)
            self._session.opened(BEGINNING)
        elif isinstance(packet, UserMessage) and self._session is not None and self._session.is_open:
            self._position += 1
            origin: Hashable = number
            entry = InFlight(origin, MessageRow(self._position, data, 0, False), packet.user.recoverable)
            self._session.send([entry], BEGINNING)
            self._session.take_outbox()

    def heard(self, packet: Packet, data: bytes) -> list[int]:
        """Take a packet from the other side.

        Return the numbers of the messages whose acknowledgment is now complete.
        """
        if isinstance(packet, EstablishConnection) and self._session is None:
            self._session = _session(packet, initiator=False)
        if self._session is None or self._session.closed is not None:
            return []
        try:
            self._session.receive(data, BEGINNING)
        except WireFormatError:  # The reader of the capture has reported it.
            return []
        self._session.take_outbox()
        return [entry.origin for entry in self._session.take_completed() if isinstance(entry.origin, int)]


def _session(request: EstablishConnection, *, initiator: bool) -> Session:
    """Return the session that a connection request begins, seen from its initiator or its acceptor."""
    own, other = request.client_guid, request.server_guid
    if not initiator:
        own, other = (request.server_guid if request.server_guid != NULL_GUID else SOMEBODY), own
    return Session(
        0,
        initiator=initiator,
        local_qm=own,
        remote_qm=None if other == NULL_GUID else other,
        remote_address="",
        direct=other == NULL_GUID,
        settings=Settings(),
        timers=Timers(),
    )
