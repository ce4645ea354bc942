"""Finds the place of a message at its queue manager, to explain why it has not arrived.

A queue manager has only its next messages in memory. So its shell reads the store itself, and this module explains the
place of each stored message. Express messages that are only in memory are listed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mqproto.base.errors import WireFormatError
from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.manager.parts import Parts
from mqproto.manager.status import destination_name
from mqproto.messages.drafts import REFUSAL, path_name_in
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import LocalQueue
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.effects import message_key
from mqproto.wire import decode_message
from mqproto.wire.glance import head_of, reach_deadline_s, receive_deadline_s
from mqproto.wire.guid import guid_text
from mqproto.wire.messages import asks_final_ack


class Spot(StrEnum):
    """The places where a message may be."""

    UNSENT = "unsent"
    """In an outgoing queue, to be sent, or to be sent again because the connection broke. It is sent alone if the next
    hop may refuse it.
    """
    IN_FLIGHT = "in flight"
    """Sent, but not acknowledged by the next hop."""
    AWAITING_ORDER_ACK = "awaiting OrderAck"
    """Transactional: the next hop has acknowledged it, but the destination has not."""
    AWAITING_FINAL_ACK = "awaiting FinalAck"
    """Transactional: the destination has it, but has not said whether an application received it."""
    HELD = "held"
    """At its destination, held after a gap."""
    IN_QUEUE = "in queue"
    """In a queue of this node, a journal or a dead-letter queue."""
    UNSETTLED = "unsettled"
    """In a queue of this node, but a consumer has received it and has not settled it."""


class Found(NamedTuple):
    """One message, and where it is.

    queue: the name of its local queue, even if it is only held for that queue; or the name of its outgoing queue.
    key: its key in the store, by which the messages of one priority are ordered.
    in_doubt: whether it is a dead letter whose message may have arrived.
    """

    spot: Spot
    queue: str
    key: int
    packet: bytes
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """A message, and where it is, in plain values.

    source, ordinal: its identifier.
    destination: the format name to which it was sent.
    number: its TxSequenceNumber; 0 if it is not transactional.
    message_class: for a dead letter, the reason for its failure.
    sent_s: the time, UTC, at which it was first sent.
    reach_by_s: the last second, UTC, in which it may still reach its queue.
    receive_by_s: the last second, UTC, in which it may still be received.
    copies: the number of copies that were found in its queue; each resend adds one.
    in_doubt: for a dead letter, whether it was sent and may have arrived, because its destination has not answered.
    dead_letter_queue: the path name of the queue that its application has chosen for its dead letter; empty if it chose
        none.
    is_readable: whether its packet can be decoded; if not, the fields from `destination` on are not filled in.
    """

    spot: Spot
    queue: str
    source: str
    ordinal: int
    destination: str = ""
    label: str = ""
    body_bytes: int = 0
    priority: int = 0
    transactional: bool = False
    number: int = 0
    message_class: int = 0
    sent_s: int = 0
    reach_by_s: int | None = None
    receive_by_s: int | None = None
    copies: int = 1
    in_doubt: bool = False
    dead_letter_queue: str = ""
    is_readable: bool = True

    @property
    def is_letter(self) -> bool:
        """Whether it is a dead letter whose application chose a queue for it.

        Unless it is in the system's dead-letter queue, it is in the chosen queue.
        """
        return bool(self.dead_letter_queue) and bool(self.message_class & REFUSAL)


def describe_message(found: Found) -> MessageStatus:
    """Return the description of a message, given its packet."""
    queue = shown(found.queue, TEXT_LIMIT)
    try:
        message = decode_message(found.packet)
    except WireFormatError:
        head = head_of(found.packet)
        source = guid_text(head.source_queue_manager)
        return MessageStatus(found.spot, queue, source, head.message_id, is_readable=False)
    user, properties, transaction = message.user, message.properties, message.transaction
    return MessageStatus(
        spot=found.spot,
        queue=queue,
        source=guid_text(user.source_queue_manager),
        ordinal=user.message_id,
        destination=destination_name(user.destination_queue, user.queue_manager_address),
        label=properties.label or "",
        body_bytes=len(properties.message_body),
        priority=message.base.priority,
        transactional=transaction is not None,
        number=transaction.tx_sequence_number if transaction is not None else 0,
        message_class=properties.message_class,
        sent_s=user.sent_time_s,
        reach_by_s=reach_deadline_s(found.packet),
        receive_by_s=receive_deadline_s(found.packet),
        in_doubt=found.in_doubt,
        dead_letter_queue=path_name_in(message.trailing),
    )


class Whereabouts:
    """Tells where messages are at this moment. Nothing changes."""

    def __init__(self, parts: Parts) -> None:
        self._in_flight = parts.neighbours.in_flight()
        self._outbound = parts.outbound
        self._queues = parts.queues
        self._doubts = parts.doubts
        self._incoming = parts.incoming
        self._writes = parts.desk.writes

    def numbers_of(self, name: str) -> list[int]:
        """Return the numbers by which the store knows the queues with a given name.

        For a local queue, these are the numbers of its lanes, followed by the numbers of the queues that keep its held
        messages. Otherwise, they are the numbers of all outgoing queues with that name, followed by the numbers of the
        queues for messages that await a FinalAck. In both cases, the queues come in order of priority, the highest
        first.
        """
        local = next((queue for queue in self._queues if queue.name == name), None)
        if local is not None:
            sequences = self._incoming
            held = [one.held_queue for one in sequences if one.queue == local.queue and one.held_count]
            return [lane.queue for lane in local.lanes] + held
        outgoing = sorted(self._outbound.named(name), key=lambda queue: -queue.priority)
        finals = [queue.final_queue for queue in outgoing if isinstance(queue, OutgoingSequence)]
        return [queue.queue for queue in outgoing] + [number for number in finals if number]

    def stored(self, key: int, packet: bytes) -> Found | None:
        """Return the place of a stored message.

        Return None if the message is about to be removed, or is an acknowledgment for us.
        """
        number = key // message_key(1, 0)
        position = key - message_key(number, 0)
        outgoing = self._outbound.queue(number)
        if outgoing is not None:
            spot = None if self._writes.removes(key) else self._outgoing_spot(outgoing, position, packet)
            return None if spot is None else Found(spot, outgoing.name, key, packet)
        local = self._queues.of_lane(number)
        if local is not None:
            queue, lane = local
            spot = self._local_spot(queue, lane, position)
            in_doubt = self._doubts.of_letter(number, position) is not None
            return None if spot is None else Found(spot, queue.name, key, packet, in_doubt)
        for sequence in self._incoming:
            if sequence.held_queue == number:
                names = {queue.queue: queue.name for queue in self._queues}
                return Found(Spot.HELD, names.get(sequence.queue, ""), key, packet)
        for outgoing in self._outbound:
            if isinstance(outgoing, OutgoingSequence) and outgoing.final_queue == number:
                return Found(Spot.AWAITING_FINAL_ACK, outgoing.name, key, packet)
        return None

    def _outgoing_spot(self, queue: OutgoingQueue, position: int, packet: bytes) -> Spot | None:
        if isinstance(queue, OutgoingSequence):
            return _sequence_spot(queue, position, packet)
        if _waits(queue, position) or position in queue.withheld:
            return Spot.UNSENT
        sent = self._in_flight.get(queue, ())
        return Spot.IN_FLIGHT if any(entry.position == position for entry in sent) else None

    def _local_spot(self, queue: LocalQueue, lane: Lane, position: int) -> Spot | None:
        if _waits(lane, position):
            return Spot.IN_QUEUE
        key = lane.key(position)
        return Spot.UNSETTLED if any(one.key == key for one in queue.consumers.handed) else None

    def unstored(self) -> Iterator[Found]:
        """Yield the express messages that are only in memory."""
        for queue in self._queues:
            for lane in queue.lanes:
                for message in lane.window:
                    if not message.stored:
                        yield Found(Spot.IN_QUEUE, queue.name, message.key, message.packet)
            for message in queue.consumers.handed:
                if not message.stored:
                    yield Found(Spot.UNSETTLED, queue.name, message.key, message.packet)
        for outgoing in self._outbound:
            for message in outgoing.window:
                if not message.stored:
                    yield Found(Spot.UNSENT, outgoing.name, message.key, message.packet)
            for entry in self._in_flight.get(outgoing, ()):
                if not entry.message.stored:
                    spot = Spot.UNSENT if entry.position in outgoing.withheld else Spot.IN_FLIGHT
                    yield Found(spot, outgoing.name, entry.message.key, entry.packet)


def _sequence_spot(queue: OutgoingSequence, position: int, packet: bytes) -> Spot | None:
    if position <= queue.cursors.acknowledged:
        # The next commit removes it, or moves it to those that wait for their FinalAck.
        try:
            is_asked_for = asks_final_ack(decode_message(packet))
        except WireFormatError:
            is_asked_for = False
        return Spot.AWAITING_FINAL_ACK if is_asked_for else None
    if not queue.numbering.is_kept(position):
        return None
    if position > queue.numbering.sent_through:
        return Spot.UNSENT
    if position <= queue.cursors.saved_through:
        return Spot.AWAITING_ORDER_ACK
    return Spot.UNSENT if position in queue.withheld else Spot.IN_FLIGHT


def _waits(lane: Lane, position: int) -> bool:
    """Whether a stored message waits in a lane, in memory or on disk.

    If not, it was handed out or sent, and may return there.
    """
    window = lane.window
    return position > window.read_through or any(message.position == position for message in window)
