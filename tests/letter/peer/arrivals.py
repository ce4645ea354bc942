"""How the peer treats arriving messages and acknowledges them.  [MS-MQQB] 3.1.5.8, 3.1.7.15, 3.1.7.17"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final
from uuid import UUID

from .packets import (
    NA,
    NO_SEQUENCE,
    NR,
    NULL,
    ORDER_QUEUE,
    ORDER_QUEUE_NAME,
    ORDERING,
    PA,
    PR,
    Class,
    OrderBody,
    UserMessage,
)
from .protection import RefusedError
from .queues import Incoming, Queue
from .session import Session, State

if TYPE_CHECKING:
    from .peer import Peer

HALF_HOUR: Final = 1800
FINAL_CLASSES: Final = {
    Class.ACK_RECEIVE,
    Class.NACK_NOT_TRANSACTIONAL_Q,
    Class.NACK_BAD_DST_Q,
    Class.NACK_ACCESS_DENIED,
    Class.NACK_BAD_ENCRYPTION,
    Class.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    Class.NACK_BAD_SIGNATURE,
    Class.NACK_Q_EXCEED_QUOTA,
    Class.NACK_Q_DELETED,
    Class.NACK_Q_PURGED,
    Class.NACK_RECEIVE_TIMEOUT,
}
"""The classes of FinalAcks in [MS-MQQB] 2.2.5; the table of 3.1.7.17 has more."""
INSECURE: Final = {
    Class.NACK_BAD_DST_Q,
    Class.NACK_BAD_ENCRYPTION,
    Class.NACK_BAD_SIGNATURE,
    Class.NACK_ACCESS_DENIED,
    Class.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
}
"""The classes that are sent to administration queues only with SendInsecureNacks.  [MS-MQQB] 3.1.7.15"""


class Arrivals:
    """The receiving half of a queue manager."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.switches = peer, peer.switches
        self.history: dict[tuple[UUID, int], float] = {}
        """MessageIDHistoryTable: the time at which each message was last seen."""
        self.incoming: dict[tuple[UUID, str], Incoming] = {}
        """Sequences, keyed by source and by the name under which the queue is addressed, ignoring case."""

    def take(self, session: Session, message: UserMessage) -> None:
        """Take a message by following the steps of 3.1.5.8, in their order."""
        message.neighbour, message.neighbour_address = session.remote, session.address
        if self._unwelcome(session, message):
            session.close("nobody may bring this, or nothing has room here")
            return
        duplicate = message.transaction is None and self._seen(message)
        if duplicate and self.switches.duplicate_uncounted:
            return
        session.count(message)
        if message.session:
            session.take_header(message.session)
        if duplicate or session.state is not State.OPEN:
            return
        if message.orders and self._for_order_queue(message):
            final = message.message_class != Class.ORDER_ACK
            self.peer.take_order(message.message_class, self.peer.codec.read_order(message.body, final))
        elif message.address not in (NULL, self.peer.guid):
            session.close("this peer passes nothing on")
        elif self._in_order(message):
            self.deliver(message)

    def _unwelcome(self, session: Session, message: UserMessage) -> bool:
        """Return whether the neighbour is not allowed to send a message on, or the queue manager is full.

        [MS-MQQB] 3.1.5.8, 3.1.5.8.8
        """
        known = {session.remote} | self.peer.routers.get(session.remote, set())
        if message.source not in known and not self.switches.take_from_anybody:
            return True
        return self.peer.room <= 0 and (not message.orders or self.switches.full_refuses_acks)

    def _seen(self, message: UserMessage) -> bool:
        """Return whether a message was seen before, and note that it was seen.  [MS-MQQB] 3.1.5.8.1, 3.1.6.7"""
        now = self.peer.now()
        if self.switches.history_half_hour:
            self.history = {key: seen for key, seen in self.history.items() if seen >= now - HALF_HOUR}
        key = (NULL if self.switches.duplicate_by_ordinal else message.source, message.message_id)
        seen = key in self.history
        self.history[key] = now
        return seen

    def _for_order_queue(self, message: UserMessage) -> bool:
        kind, _, rest = message.destination.partition("=")
        if kind == "DIRECT":
            return rest.upper().endswith(ORDER_QUEUE_NAME.upper())
        return int(rest.partition("\\")[2], 16) == ORDER_QUEUE

    def _in_order(self, message: UserMessage) -> bool:
        """Return whether a transactional message comes next; true of any other message.  [MS-MQQB] 3.1.5.8.6"""
        it = message.transaction
        if it is None:
            return True
        incoming = self.incoming.setdefault((message.source, message.destination.casefold()), Incoming())
        incoming.message = message
        now, timers = self.peer.now(), self.peer.timers
        if incoming.order_ack_at == inf or now - incoming.order_ack_sent < timers.order_ack_longest:
            incoming.order_ack_at = now + timers.order_ack
        comes_next = incoming.comes_next(it)
        refused = comes_next and self._refusal(message)
        if (comes_next and not (refused and self.switches.refused_holds)) or (
            not comes_next and self.switches.rejected_advances
        ):
            incoming.advance(it)
        return comes_next

    def _refusal(self, message: UserMessage) -> int:
        """Return the class that says why a message cannot be kept; 0 if it can.  [MS-MQQB] 3.1.5.8.2, 3.1.7.1.2,
        3.1.5.8.8
        """
        queue = self.peer.find(message.destination)
        if queue is None:
            return Class.NACK_BAD_DST_Q
        if message.transaction and not queue.transactional:
            return Class.NACK_NOT_TRANSACTIONAL_Q
        if queue.transactional and not message.transaction:
            return Class.NACK_NOT_TRANSACTIONAL_MSG
        if message.judged is None:
            message.judged = self._judge(message)
        if message.judged:
            return message.judged
        if self.peer.departures.expires(message) < self.peer.utc():
            return Class.NACK_REACH_QUEUE_TIMEOUT
        return Class.NACK_Q_EXCEED_QUOTA if len(queue.messages) >= queue.quota else 0

    def _judge(self, message: UserMessage) -> int:
        """Decrypt and authenticate a message; return 0 or a class.

        This is done only once for each message, because an RC4 key stream may continue from one message to the next.
        [MS-MQQB] 3.1.5.8.3
        """
        try:
            self.peer.protection.judge(message)
        except RefusedError as error:
            self.peer.refusals.append((message.label, error.message_class, str(error)))
            return error.message_class
        return 0

    def deliver(self, message: UserMessage) -> None:
        """Put a message into its queue, or report why this is impossible.  [MS-MQQB] 3.1.5.8.8, 3.1.5.8.10"""
        refused, queue = self._refusal(message), self.peer.find(message.destination)
        if refused or queue is None:
            asked = NA | NR if self.switches.nr_tells_unreached else NA
            self.tell(message, refused, asked)
            self.final_ack(message, refused)
            if refused == Class.NACK_Q_EXCEED_QUOTA and message.dead_letter and not message.transaction:
                self.peer.dead_letters.append(message)
            return
        queue.messages.append(message)
        self.peer.room -= 1
        self.peer.wake()
        if message.address != NULL or not self.switches.direct_arrival_untold:
            self.tell(message, Class.ACK_REACH_QUEUE, PA)

    def leave(self, queue: Queue, message: UserMessage, message_class: int) -> None:
        """Let a message leave its queue because it was received or rejected, or is too old.  [MS-MQQB] 3.1.7.2"""
        queue.messages.remove(message)
        self.tell(message, message_class, PR if message_class == Class.ACK_RECEIVE else NR)
        if message.transaction and (message.journal or message.dead_letter or message.transaction.final_ack):
            self.final_ack(message, message_class)
        self.peer.wake()

    def expire(self, utc: float) -> float:
        """Remove messages that are too old to be received; return when the next one will be too old. [MS-MQDMPR]
        3.1.7.2.7
        """
        following = inf
        for queue in self.peer.queues:
            for message in list(queue.messages):
                if message.transaction and self.switches.transactional_stays:
                    continue
                end = message.sent_time + message.time_to_be_received
                if end < utc:
                    self.leave(queue, message, Class.NACK_RECEIVE_TIMEOUT)
                elif message.time_to_be_received != 0xFFFFFFFF:
                    following = min(following, end + 1)
        return following

    # -- what is said -----------------------------------------------------------------------------------------------

    def tell(self, message: UserMessage, message_class: int, asked: int) -> None:
        """Send an administration acknowledgment if the message asked for one of the kinds `asked`.  [MS-MQQB]
        3.1.7.15
        """
        if not message.admin or not message.acknowledge & asked:
            return
        if message_class in INSECURE and not self.peer.insecure_nacks:
            return
        bare = self.switches.admin_ack_bare
        positive = message_class in (Class.ACK_REACH_QUEUE, Class.ACK_RECEIVE)
        self.peer.send(
            message.admin,
            b"" if positive else message.body,
            message_class=message_class,
            label="" if bare else message.label,
            tag=0 if bare else message.tag,
            priority=3 if bare else message.priority,
            recoverable=message.recoverable,
            response=message.destination,
            correlation=self.peer.codec.guid(message.source) + message.message_id.to_bytes(4, "little"),
        )

    def final_ack(self, message: UserMessage, message_class: int) -> None:
        """Report how a transactional message ended.  [MS-MQQB] 2.2.5, 3.1.7.17"""
        it = message.transaction
        if it is None or (self.switches.final_ack_few_classes and message_class not in FINAL_CLASSES):
            return
        body = OrderBody(it.sequence, it.number, it.previous, message.source, message.message_id)
        self._order(message, message_class, body, recoverable=True)

    def order_acks(self, now: float) -> float:
        """Send the OrderAcks that are due; return when the next one is due.  [MS-MQQB] 3.1.6.9, 2.2.4, 3.1.7.17"""
        for incoming in self.incoming.values():
            if incoming.order_ack_at > now or incoming.message is None:
                continue
            incoming.order_ack_at, incoming.order_ack_sent = inf, now
            number, sequence = incoming.number, incoming.identifier
            if sequence == NO_SEQUENCE:
                if self.switches.no_order_ack_of_none or incoming.message.transaction is None:
                    continue
                sequence = incoming.message.transaction.sequence
            if self.switches.order_ack_own_sequence:
                sequence = self.peer.departures.own_sequence(incoming.message.neighbour)
            if self.switches.order_ack_number_in_id:
                sequence = sequence._replace(time_stamp=0, ordinal=number)
            body = OrderBody(sequence, number, max(number - 1, 0))
            self._order(
                incoming.message, Class.ORDER_ACK, body, recoverable=self.switches.order_ack_recoverable
            )
        return min((incoming.order_ack_at for incoming in self.incoming.values()), default=inf)

    def forget_order_acks(self, session: Session) -> None:
        """Stop the OrderAck timers of a closed session; the next resend asks for the OrderAcks again. [MS-MQQB]
        3.1.6.9
        """
        for incoming in self.incoming.values():
            if incoming.message and incoming.message.neighbour == session.remote:
                incoming.order_ack_at = inf

    def _order(self, message: UserMessage, message_class: int, body: OrderBody, *, recoverable: bool) -> None:
        """Send an acknowledgment to the order queue of the message's sender.  [MS-MQQB] 2.2.4, 3.1.7.17"""
        guid = message.neighbour if self.switches.order_ack_to_neighbour else message.source
        name = f"PRIVATE={guid}\\{ORDER_QUEUE:08x}"
        if self.switches.order_ack_by_direct_name and message.address == NULL:
            name = f"DIRECT=TCP:{message.neighbour_address}\\{ORDER_QUEUE_NAME}"
        self.peer.send(
            name,
            self.peer.codec.pack_order(body, final=message_class != Class.ORDER_ACK),
            message_class=message_class,
            label=ORDERING,
            priority=3 if self.switches.order_ack_priority else 0,
            recoverable=recoverable,
        )
