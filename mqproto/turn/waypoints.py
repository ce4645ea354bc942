"""Waypoints: the steps of each message, as notes with its identifier, the place and the time.

The parts of a queue manager report each step in the life of a message to a `Waypoints`, which records nothing by
default. With the setting `waypoints` it is a `WaypointNotes`, and each step becomes a `Note` in the batch to which it
belongs. So a line of the log is written only after the step is on disk. A follower of traces decides which messages
belong to a trace, and gets notes only about these.

OrderAcks and FinalAcks are not messages of applications: they appear as steps of the messages that they acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from mqproto.base.words import Word
from mqproto.turn.effects import MessageRow, Note, Trace
from mqproto.wire import MessageClass, TxSequenceId, acknowledgment_in, decode_message
from mqproto.wire.glance import acknowledges, identifier_of, place_in_sequence
from mqproto.wire.guid import Guid, guid_text

REMEMBERED: Final = 100_000
"""The maximum number of sent messages without an OrderAck that are remembered by their numbers.

Each takes about 100 bytes.
"""


class Waypoint(Word):
    """All waypoints: the name that each has in notes, and what it means."""

    ACCEPTED = (
        "accepted",
        "an application handed it in, or the queue manager wrote it: from now on it answers for it",
    )
    STORED = "stored", "it is on this queue manager's disk"
    SENT = "sent", "it left for the next hop"
    RESENT = "resent", "no OrderAck came in time: it left for the next hop once more"
    SESSION_ACKNOWLEDGED = "session-acknowledged", "the next hop has it, on its disk unless it is express"
    ORDER_ACKNOWLEDGED = "order-acknowledged", "its destination has it and all before it: an OrderAck came"
    FINAL_ACKNOWLEDGED = "final-acknowledged", "its destination says how it ended: a FinalAck came"
    ARRIVED = "arrived", "it came from a neighbour"
    TURNED_AWAY = "turned-away", "there was no room for it: the session was closed, the neighbour keeps it"
    DUPLICATE_DROPPED = "duplicate-dropped", "it came before, and was dropped"
    FORWARDED = "forwarded", "it is for another queue manager, and waits for the next hop"
    HELD = "held", "it came early, and waits behind a gap in its sequence"
    DROPPED = "dropped", "it came early, and too much waits behind the gap: its sender keeps it"
    REFUSED = "refused", "it ended here, before its queue; the class says why"
    QUEUED = "queued", "it is in the queue that it was for"
    DELIVERED = "delivered", "an application was given it"
    COMMITTED = "committed", "the application has received it for good"
    ROLLED_BACK = "rolled-back", "the application gave it back, or went away: it is where it was in the queue"
    REJECTED = "rejected", "the application refused it for good"
    EXPIRED = "expired", "its time was over"
    PURGED = "purged", "an operator deleted it, or its queue"
    RECALLED = (
        "recalled",
        "its destination has said what became of it: its dead letter, in doubt, left the queue",
    )
    DEAD_LETTERED = "dead-lettered", "it was put into a dead-letter queue; the class says why"
    JOURNALED = "journaled", "a copy was put into a journal"
    NOT_KEPT = "not-kept", "the journal or dead-letter queue had no room for it"


_AT_REST: Final = frozenset({Waypoint.DELIVERED, Waypoint.EXPIRED, Waypoint.PURGED})
_KEPT: Final = _AT_REST | {Waypoint.RECALLED}
_TOLD: Final = frozenset(
    {Waypoint.SESSION_ACKNOWLEDGED, Waypoint.ORDER_ACKNOWLEDGED, Waypoint.FINAL_ACKNOWLEDGED}
)
_AWAY: Final = frozenset(
    {
        Waypoint.SENT,
        Waypoint.RESENT,
        Waypoint.SESSION_ACKNOWLEDGED,
        Waypoint.ORDER_ACKNOWLEDGED,
        Waypoint.FINAL_ACKNOWLEDGED,
        Waypoint.EXPIRED,
        Waypoint.PURGED,
    }
)

NEXT_WAYPOINTS: Final[Mapping[Waypoint, frozenset[Waypoint]]] = {
    Waypoint.ACCEPTED: frozenset({Waypoint.SENT, Waypoint.QUEUED, Waypoint.EXPIRED, Waypoint.PURGED}),
    Waypoint.SENT: _AWAY,
    Waypoint.RESENT: _AWAY,
    Waypoint.SESSION_ACKNOWLEDGED: _AWAY,
    Waypoint.ORDER_ACKNOWLEDGED: _AWAY,
    Waypoint.FINAL_ACKNOWLEDGED: _AWAY,
    Waypoint.ARRIVED: frozenset(
        {Waypoint.FORWARDED, Waypoint.QUEUED, Waypoint.HELD, Waypoint.REFUSED, Waypoint.EXPIRED}
    ),
    Waypoint.FORWARDED: _AWAY,
    Waypoint.HELD: frozenset({Waypoint.QUEUED, Waypoint.REFUSED, Waypoint.EXPIRED}),
    Waypoint.QUEUED: _AT_REST,
    Waypoint.DELIVERED: frozenset({Waypoint.COMMITTED, Waypoint.ROLLED_BACK, Waypoint.REJECTED, *_AT_REST}),
    Waypoint.ROLLED_BACK: _AT_REST,
    # A message that was deleted after it was sent, or has expired, may have arrived: later answers tell.
    Waypoint.PURGED: _TOLD,
    Waypoint.EXPIRED: _TOLD,
    Waypoint.DEAD_LETTERED: _KEPT,
    Waypoint.RECALLED: frozenset({Waypoint.DEAD_LETTERED}),
    Waypoint.JOURNALED: _AT_REST,
}
"""For each waypoint at one queue manager, those that may follow it. None may follow an unlisted one.

A resend makes copies, and an intermediate queue manager may have several of them at once. After a crash, a message may
be given to an application, or be sent, once more. A copy in a journal or a dead-letter queue has a path of its own.
"""

BEGINNINGS: Final = frozenset(
    {Waypoint.ACCEPTED, Waypoint.ARRIVED, Waypoint.DEAD_LETTERED, Waypoint.JOURNALED, Waypoint.NOT_KEPT}
)
"""The waypoints with which a path may begin."""
STORED_AFTER: Final = frozenset(
    {
        Waypoint.ACCEPTED,
        Waypoint.FORWARDED,
        Waypoint.HELD,
        Waypoint.QUEUED,
        Waypoint.DEAD_LETTERED,
        Waypoint.JOURNALED,
    }
)
"""The waypoints that `stored` may follow. After `stored`, the path continues as if it were not there."""
DROPS: Final = frozenset({Waypoint.TURNED_AWAY, Waypoint.DUPLICATE_DROPPED, Waypoint.DROPPED})
"""The waypoints of a message that arrived but is not taken. Its path then continues as if it had not arrived."""


def missing_before(path: Iterable[Waypoint]) -> list[int]:
    """Return where the path of a message at one queue manager shows that lines are missing.

    Returns:
        The indexes before which a line is missing; an empty list if the path is complete.
    """
    missing = []
    state: Waypoint | None = None
    before_arrival: Waypoint | None = None
    previous: Waypoint | None = None
    for place, waypoint in enumerate(path):
        if waypoint is Waypoint.STORED:
            legal = previous in STORED_AFTER
        elif waypoint in DROPS:
            legal = previous is Waypoint.ARRIVED
            state = before_arrival
        elif waypoint is Waypoint.ARRIVED:
            legal = state is not Waypoint.ARRIVED
            state, before_arrival = waypoint, state
        else:
            legal = waypoint in (BEGINNINGS if state is None else NEXT_WAYPOINTS.get(state, ()))
            state = waypoint
        if not legal:
            missing.append(place)
        previous = waypoint
    return missing


CLASSES: Final[Mapping[int, Waypoint]] = {
    MessageClass.ACK_RECEIVE: Waypoint.COMMITTED,
    MessageClass.NACK_RECEIVE_REJECTED: Waypoint.REJECTED,
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: Waypoint.EXPIRED,
    MessageClass.NACK_RECEIVE_TIMEOUT: Waypoint.EXPIRED,
    MessageClass.NACK_DELETED: Waypoint.PURGED,
    MessageClass.NACK_Q_PURGED: Waypoint.PURGED,
    MessageClass.NACK_Q_DELETED: Waypoint.PURGED,
}
"""The waypoint with which a message ends, keyed by message class. Any other class means a refusal."""


class SessionHop(Protocol):
    """The session on which a message comes or leaves."""

    @property
    def key(self) -> int:
        """The session's number."""

    @property
    def remote_qm(self) -> Guid | None:
        """Return the neighbour's queue manager; None before it is known."""

    @property
    def remote_address(self) -> str:
        """The neighbour's host."""


class Sent(Protocol):
    """A message that leaves on a session, for the first time or again."""

    @property
    def packet(self) -> bytes:
        """The packet as it is sent."""

    @property
    def resent(self) -> bool:
        """Whether the message is resent because no OrderAck came in time."""


class Waypoints:
    """Receives every step, and records none."""

    def accepted(self, packets: Iterable[bytes], destination: str) -> None:
        """Record that messages were sent here, to the queue with that format name."""

    def stored(self, rows: Iterable[MessageRow], queue: str) -> None:
        """Record that messages join a queue on disk."""

    def sent(self, entries: Iterable[Sent], session: SessionHop) -> None:
        """Record that messages leave."""

    def session_acknowledged(self, entries: Iterable[Sent], session: SessionHop) -> None:
        """Record that the next hop has acknowledged messages.  3.1.5.5"""

    def order_acknowledged(self, identifier: TxSequenceId, first: int, last: int) -> None:
        """Record that our messages with the numbers `first` to `last` of a sequence have arrived.  3.1.5.6

        Both numbers are included.
        """

    def final_acknowledged(
        self, identifier: TxSequenceId, number: int, message_id: int, message_class: int
    ) -> None:
        """Record that one of our messages was received, or refused for good.  3.1.5.7"""

    def arrived(self, packets: Iterable[bytes], session: SessionHop) -> None:
        """Record that messages have arrived."""

    def turned_away(self, packet: bytes, reason: str) -> None:
        """Record that a message is not taken."""

    def duplicate_dropped(self, packet: bytes) -> None:
        """Record that a message is a duplicate, and is dropped."""

    def forwarded(self, packets: Iterable[bytes], queue: str) -> None:
        """Record that others' messages join an outgoing queue."""

    def held(self, packet: bytes, queue: str) -> None:
        """Record that a message is early for its queue, and is held."""

    def dropped(self, packet: bytes, queue: str) -> None:
        """Record that a message is early and is dropped, because there is no room after the gap."""

    def queued(self, packets: Iterable[bytes], queue: str) -> None:
        """Record that messages join a local queue."""

    def kept(self, packet: bytes, queue: str, message_class: int) -> None:
        """Record that a message joins a journal, or a dead-letter queue if its class is a refusal."""

    def not_kept(self, packet: bytes, queue: str) -> None:
        """Record that a journal or dead-letter queue has no room for a message."""

    def recalled(self, packet: bytes, queue: str, message_class: int) -> None:
        """Record that a dead letter leaves its queue, because the destination has reported the outcome.

        Until then, the outcome was in doubt.
        """

    def delivered(self, messages: Iterable[MessageRow], queue: str, consumer: int) -> None:
        """Record that messages are handed to a consumer."""

    def rolled_back(self, packets: Iterable[bytes], queue: str, consumer: int) -> None:
        """Record that messages return from a consumer."""

    def ended(self, packet: bytes, message_class: int, queue: str = "") -> None:
        """Record that a message finally leaves this queue manager.

        queue: the queue that it was in, if any.
        """


OFF: Final = Waypoints()


Follow = Callable[[bytes], Trace | None]
"""Returns the trace of the message in a packet if it is followed; otherwise None. Called at each step."""


def nobody(packet: bytes) -> None:
    """Follow nothing."""


class WaypointNotes(Waypoints):
    """Makes a note of each step.

    Args:
        identity: the queue manager's GUID, which tells its own messages from others. OrderAcks name its own
            transactional messages by their numbers.
        notes: where the notes are put.
        follow: returns the trace to which a message belongs, if any; the note of a step names the trace.
        everything: whether there are also notes about messages without a trace.
    """

    def __init__(
        self, identity: Guid, notes: list[Note], follow: Follow = nobody, *, everything: bool = True
    ) -> None:
        self._identity = identity
        self._notes = notes
        self._follow = follow
        self._everything = everything
        self._unconfirmed: dict[TxSequenceId, dict[int, tuple[str, Trace | None]]] = {}
        self._unconfirmed_count = 0
        self._followed: dict[int, Trace] = {}
        """The traces of our own sent transactional messages, by MessageID, until their FinalAcks come.

        Some messages get no FinalAck, so at most REMEMBERED traces are kept.
        """

    def _note(
        self,
        waypoint: Waypoint,
        packet: bytes,
        session: SessionHop | None = None,
        is_placed: bool = False,
        message_class: int | None = None,
        /,
        **facts: str | int,
    ) -> None:
        """Make a note of a step if one is wanted. Only then are its facts determined.

        Args:
            session: the session on which the message comes or leaves.
            is_placed: whether to add the message's place in its sequence.
            message_class: the reason, if the step has one.
        """
        trace = self._follow(packet)
        if trace is None and not self._everything:
            return
        if acknowledges(packet):
            message = decode_message(packet)
            if acknowledgment_in(message) is not None:
                return
        said: dict[str, str | int] = {"message": self._name(packet), **facts}
        if message_class is not None:
            said["class"] = class_name(message_class)
        if session is not None:
            said |= _hop(session)
        if is_placed:
            said |= _place(packet)
        self._notes.append(Note(waypoint.value, said, trace))

    def _name(self, packet: bytes) -> str:
        source, ordinal = identifier_of(packet)
        return message_name(source, ordinal)

    def _own_place(self, packet: bytes) -> tuple[TxSequenceId, int] | None:
        """Return the place that a transactional message of our own has in its sequence.

        Return None for any other message.
        """
        return place_in_sequence(packet) if identifier_of(packet)[0] == self._identity else None

    def accepted(self, packets: Iterable[bytes], destination: str) -> None:
        for packet in packets:
            self._note(Waypoint.ACCEPTED, packet, None, True, queue=destination)

    def stored(self, rows: Iterable[MessageRow], queue: str) -> None:
        for row in rows:
            self._note(Waypoint.STORED, row.packet, queue=queue)

    def sent(self, entries: Iterable[Sent], session: SessionHop) -> None:
        for entry in entries:
            trace = self._follow(entry.packet)
            if trace is None and not self._everything:
                continue
            waypoint = Waypoint.RESENT if entry.resent else Waypoint.SENT
            self._note(waypoint, entry.packet, session, True)
            if (place := self._own_place(entry.packet)) is not None:
                self._await_order_ack(*place, self._name(entry.packet), trace)
                if trace is not None:
                    self._await_final_ack(identifier_of(entry.packet)[1], trace)

    def session_acknowledged(self, entries: Iterable[Sent], session: SessionHop) -> None:
        for entry in entries:
            self._note(Waypoint.SESSION_ACKNOWLEDGED, entry.packet, session)

    def order_acknowledged(self, identifier: TxSequenceId, first: int, last: int) -> None:
        unconfirmed = self._unconfirmed.get(identifier, {})
        # There may be four billion numbers, nearly all of them withdrawn, and few messages.
        few = range(first, last + 1) if last - first < len(unconfirmed) else sorted(unconfirmed)
        known = [number for number in few if first <= number <= last and number in unconfirmed]
        for number in known:
            confirmed = self._confirmed(identifier, number)
            assert confirmed is not None
            name, trace = confirmed
            facts: dict[str, str | int] = {"message": name, **_numbered(identifier, number)}
            self._notes.append(Note(Waypoint.ORDER_ACKNOWLEDGED.value, facts, trace))
        if self._everything and len(known) <= last - first:
            # They were sent before a restart, or are too many: only their numbers are known.
            told = {*known}
            low = next(number for number in range(first, last + 1) if number not in told)
            high = next(number for number in range(last, first - 1, -1) if number not in told)
            facts = {**_numbered(identifier, low), "last_number": high}
            self._notes.append(Note(Waypoint.ORDER_ACKNOWLEDGED.value, facts))

    def final_acknowledged(
        self, identifier: TxSequenceId, number: int, message_id: int, message_class: int
    ) -> None:
        if message_class != MessageClass.ACK_RECEIVE:
            self._confirmed(identifier, number)
        trace = self._followed.pop(message_id, None)
        if trace is None and not self._everything:
            return
        facts: dict[str, str | int] = {"message": message_name(self._identity, message_id)}
        facts |= {**_numbered(identifier, number), "class": class_name(message_class)}
        self._notes.append(Note(Waypoint.FINAL_ACKNOWLEDGED.value, facts, trace))

    def _await_order_ack(self, identifier: TxSequenceId, number: int, name: str, trace: Trace | None) -> None:
        if self._unconfirmed_count < REMEMBERED:
            numbers = self._unconfirmed.setdefault(identifier, {})
            self._unconfirmed_count += number not in numbers
            numbers[number] = name, trace

    def _await_final_ack(self, message_id: int, trace: Trace) -> None:
        self._followed[message_id] = trace
        if len(self._followed) > REMEMBERED:
            del self._followed[next(iter(self._followed))]

    def _confirmed(self, identifier: TxSequenceId, number: int) -> tuple[str, Trace | None] | None:
        numbers = self._unconfirmed.get(identifier, {})
        confirmed = numbers.pop(number, None)
        self._unconfirmed_count -= confirmed is not None
        if not numbers:
            self._unconfirmed.pop(identifier, None)
        return confirmed

    def arrived(self, packets: Iterable[bytes], session: SessionHop) -> None:
        for packet in packets:
            self._note(Waypoint.ARRIVED, packet, session, True)

    def turned_away(self, packet: bytes, reason: str) -> None:
        self._note(Waypoint.TURNED_AWAY, packet, reason=reason)

    def duplicate_dropped(self, packet: bytes) -> None:
        self._note(Waypoint.DUPLICATE_DROPPED, packet)

    def forwarded(self, packets: Iterable[bytes], queue: str) -> None:
        for packet in packets:
            self._note(Waypoint.FORWARDED, packet, queue=queue)

    def held(self, packet: bytes, queue: str) -> None:
        self._note(Waypoint.HELD, packet, queue=queue)

    def dropped(self, packet: bytes, queue: str) -> None:
        self._note(Waypoint.DROPPED, packet, queue=queue)

    def queued(self, packets: Iterable[bytes], queue: str) -> None:
        for packet in packets:
            self._note(Waypoint.QUEUED, packet, queue=queue)

    def kept(self, packet: bytes, queue: str, message_class: int) -> None:
        if message_class in (MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE):
            self._note(Waypoint.JOURNALED, packet, queue=queue)
        else:
            self._note(Waypoint.DEAD_LETTERED, packet, None, False, message_class, queue=queue)

    def not_kept(self, packet: bytes, queue: str) -> None:
        self._note(Waypoint.NOT_KEPT, packet, queue=queue)

    def recalled(self, packet: bytes, queue: str, message_class: int) -> None:
        self._note(Waypoint.RECALLED, packet, None, False, message_class, queue=queue)

    def delivered(self, messages: Iterable[MessageRow], queue: str, consumer: int) -> None:
        for message in messages:
            count = message.delivery_count
            self._note(
                Waypoint.DELIVERED, message.packet, queue=queue, consumer=consumer, delivery_count=count
            )

    def rolled_back(self, packets: Iterable[bytes], queue: str, consumer: int) -> None:
        for packet in packets:
            self._note(Waypoint.ROLLED_BACK, packet, queue=queue, consumer=consumer)

    def ended(self, packet: bytes, message_class: int, queue: str = "") -> None:
        if not queue and self._unconfirmed and (place := self._own_place(packet)) is not None:
            self._confirmed(*place)
        facts: dict[str, str | int] = {"queue": queue} if queue else {}
        waypoint = CLASSES.get(message_class, Waypoint.REFUSED)
        self._note(waypoint, packet, None, False, message_class, **facts)


def message_name(source: Guid, ordinal: int) -> str:
    """Return a message's identifier in the form that people write and that `mqproto send` prints."""
    return f"{guid_text(source)}\\{ordinal}"


def class_name(message_class: int) -> str:
    """Return the name of a class, or its number in hexadecimal if it has no name."""
    try:
        return MessageClass(message_class).name
    except ValueError:
        return f"{message_class:#06x}"


def _hop(session: SessionHop) -> dict[str, str | int]:
    """Return facts about the session on which a message comes or leaves, and about the neighbour."""
    facts: dict[str, str | int] = {"session": session.key, "peer": session.remote_address}
    return facts if session.remote_qm is None else {**facts, "manager": guid_text(session.remote_qm)}


def _place(packet: bytes) -> dict[str, str | int]:
    """Return facts about a transactional message's place in its sequence; none for other messages."""
    place = place_in_sequence(packet)
    return {} if place is None else _numbered(*place)


def _numbered(identifier: TxSequenceId, number: int) -> dict[str, str | int]:
    return {"sequence": f"{identifier.time_stamp}/{identifier.ordinal}", "number": number}
