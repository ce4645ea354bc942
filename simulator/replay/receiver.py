"""Receives the peer's messages, as a correct destination does.  [MS-MQQB] 3.1.5.8.6, 3.1.6.9, 3.1.7.17

As soon as a message arrives, it counts as received by an application. Nothing is kept, so acknowledged messages are
lost. A replayer acts as a queue manager, but is not one. It does not send administration acknowledgments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.captures.answers import Identity, identity_of, is_answer
from mqproto.transfer.incoming import (
    ArrivalVerdict,
    IncomingSequence,
    make_final_ack,
    make_order_ack,
    reply_to_sender,
)
from mqproto.transfer.spellings import without_case
from mqproto.wire import (
    NULL_GUID,
    Guid,
    MessageClass,
    QueueName,
    UserMessage,
    decode_message,
    encode_packet,
    without_session_header,
)
from mqproto.wire.messages import asks_final_ack


class Receiver:
    """Receives messages, each once and in order, and makes OrderAcks and FinalAcks for them.

    Args:
        timers: OrderAcks are due when Timer.ORDER_ACK_SEND is due; the caller then calls `order_ack_due`.
        next_message_id: returns the MessageID of our next message.

    outgoing: packets to send to the peer.
    """

    def __init__(self, settings: Settings, timers: Timers, next_message_id: Callable[[], int]) -> None:
        self.outgoing: deque[bytes] = deque()
        self.received_count = 0
        self.duplicate_count = 0
        self._settings = settings
        self._timers = timers
        self._next_message_id = next_message_id
        self._sequences: dict[tuple[Guid, QueueName], IncomingSequence] = {}
        self._names: dict[IncomingSequence, Guid] = {}
        self._express: set[Identity] = set()
        self._owed: set[IncomingSequence] = set()

    @property
    def owes_nothing(self) -> bool:
        """Whether every acknowledgment that is due has been handed over."""
        return not self._owed and not self.outgoing

    def arrived(self, message: UserMessage, packet: bytes, own: Guid, host: str, now: Moment) -> None:
        """Process a UserMessage that has arrived.

        Args:
            own: the queue manager that the peer takes us for.
            host: the peer's address, for acknowledgments of messages that were sent by a direct format name.
        """
        if is_answer(message):
            return
        if message.transaction is not None:
            self._arrived_in_sequence(message, without_session_header(packet), own, host, now)
        elif identity_of(message) in self._express:
            self.duplicate_count += 1
        else:
            self._express.add(identity_of(message))
            self.received_count += 1

    def order_ack_due(self, sequence: IncomingSequence, now: Moment) -> None:
        """Make an OrderAck, because the Order Ack Send Timer is due.  [MS-MQQB] 3.1.6.9"""
        sequence.order_ack_sent(now)
        self._owed.discard(sequence)
        if sequence.number:
            place = sequence.identifier, sequence.number
            ack = make_order_ack(
                sequence.reply_to, place, self._names[sequence], self._next_message_id(), now
            )
            self.outgoing.append(encode_packet(ack))

    def _arrived_in_sequence(
        self, message: UserMessage, packet: bytes, own: Guid, host: str, now: Moment
    ) -> None:
        header = message.transaction
        assert header is not None
        sequence = self._sequence(message, own, host, now)
        verdict = sequence.take(header, len(packet))
        if verdict is ArrivalVerdict.ACCEPT:
            self._accept(message, sequence, now)
            released, _ = sequence.release()
            for held in released:
                earlier = decode_message(held.packet)
                self._accept(earlier, sequence, now)
        elif verdict is ArrivalVerdict.HOLD:
            sequence.hold(header, packet)
        else:
            self.duplicate_count += 1
        sequence.schedule_order_ack(now)
        self._owed.add(sequence)

    def _accept(self, message: UserMessage, sequence: IncomingSequence, now: Moment) -> None:
        self.received_count += 1
        if asks_final_ack(message):
            ack = make_final_ack(
                message,
                MessageClass.ACK_RECEIVE,
                sequence.reply_to,
                self._names[sequence],
                self._next_message_id(),
                now,
            )
            self.outgoing.append(encode_packet(ack))

    def _sequence(self, message: UserMessage, own: Guid, host: str, now: Moment) -> IncomingSequence:
        source, name = message.user.source_queue_manager, message.user.destination_queue
        sequence = self._sequences.get((source, without_case(name)))
        if sequence is None:
            sequence = IncomingSequence((source, 0, name), 0, self._settings, self._timers, now)
            self._sequences[source, without_case(name)] = sequence
            # We stand in for all queue managers behind us, and each answers in its own name.
            manager = message.user.queue_manager_address
            self._names[sequence] = own if manager == NULL_GUID else manager
        sequence.reply_to = reply_to_sender(message, host)
        return sequence
