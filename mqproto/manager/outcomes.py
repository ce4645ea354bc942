"""The consequences of a message's end: acknowledgments, dead letters and journals.

Every ending, wherever it happened, passes through here once. The rules are distributed over [MS-MQQB] 3.1.5.5.4,
3.1.5.7, 3.1.5.8.2, 3.1.5.8.8, 3.1.5.8.10, 3.1.7.1.2 and 3.1.7.2:

- the sender's administration queue is told, if the message asks for that;
- the sender's queue manager gets a FinalAck for a transactional message, if it asks for one or if
  the end is a refusal;
- a failed message with JN set is kept in a dead-letter queue, with the class of its failure. A
  transactional message is kept at its source, any other message at the queue manager where it
  ended. A message that the next hop refuses is kept at this queue manager, even without JN. Our own
  messages go to the queue that their application has chosen, if that queue has room;
- a message with JP set that arrived is kept in its source's journal. With `expire_sent = figures`,
  a message that expired at its source is also kept in the journal, unless it is a dead letter;
- a message that an application received from a queue with a journal is kept in that journal.

The dead letter of a message in doubt is remembered, because its destination may still report the outcome (doubts.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from mqproto.base.errors import FormatNameError
from mqproto.base.moment import Moment
from mqproto.formatname.wire import admin_from_wire, destination_from_wire
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.messages.destinations import Destination, destination_of
from mqproto.messages.drafts import LABEL_LIMIT, is_letter, path_name_in
from mqproto.queues.localqueue import LocalQueue, SystemQueue
from mqproto.queues.rules.consequences import CONSEQUENCES, DISREGARDED, IN_QUEUE_BIT, FinalAckRule, end_of
from mqproto.routing import Routes
from mqproto.transfer.doubts import Doubts
from mqproto.transfer.incoming import make_final_ack
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk
from mqproto.turn.effects import HurtPacket, Note
from mqproto.turn.endings import Ending, Place, ReplyTo
from mqproto.turn.guard import in_clear, is_encrypted, is_unsealed
from mqproto.turn.posted import PostedMessages
from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    DebugHeader,
    Guid,
    MessageClass,
    PrivateQueueFormatName,
    QueueName,
    UserMessage,
    decode_message,
    encode_packet,
    guid_text,
    user_message,
    with_message_class,
)
from mqproto.wire.glance import correlation_id_of
from mqproto.wire.layouts.base import DEFAULT_PRIORITY
from mqproto.wire.layouts.user import PRIVATE_ON_DESTINATION
from mqproto.wire.messages import asks_final_ack

DELIVERED: Final = frozenset({MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE})
EXPIRED: Final = frozenset({MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_RECEIVE_TIMEOUT})
TEXT: Final = 31
"""The body type of a text in UTF-16: VT_LPWSTR."""
LONGER_NAMES_BYTES: Final = 256
"""The maximum number of bytes by which an administration acknowledgment may be longer than the message whose body it
repeats.
"""


class Outcomes:
    """Handles the consequences of endings, and sends the messages that a queue manager writes itself."""

    def __init__(
        self,
        desk: Desk,
        sequences: IncomingSequences,
        routes: Routes,
        outbound: Outbound,
        queues: LocalQueues,
        doubts: Doubts,
        posted: PostedMessages,
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._outbound = outbound
        self._queues = queues
        self._doubts = doubts
        self._posted = posted
        self._sequences = sequences
        self.expired_count = 0
        self.damaged_count = 0
        """The number of messages that were found damaged in the store."""

    def follow(self, endings: Iterable[Ending], now: Moment) -> None:
        """Handle the consequences of each ending."""
        for ending in endings:
            packet = decode_message(ending.packet)
            self._follow(ending, packet, now)

    def _follow(self, ending: Ending, message: UserMessage, now: Moment) -> None:
        message_class, user = ending.message_class, message.user
        is_ours = user.source_queue_manager == self._desk.identity
        if ending.is_copy and is_ours:
            # It came back. The original, which waits for its OrderAck, decides what becomes of it.
            self._desk.waypoints.ended(ending.packet, message_class)
            return
        if is_ours and ending.place is Place.IN_QUEUE and is_letter(ending.packet):
            # Its message ended before, so only an entry in the queue's journal is possible.
            if message_class == MessageClass.ACK_RECEIVE:
                self._journal(ending, message)
            return
        consequence = CONSEQUENCES[end_of(message_class), is_ours, message.transaction is not None]
        if self._is_strangers(message) or isinstance(ending.packet, HurtPacket):
            consequence = consequence._replace(
                kept=None
            )  # Nothing is kept for strangers, and nothing of a damaged message.
        if ending.place is Place.ON_THE_WAY:
            self._desk.waypoints.ended(ending.packet, message_class)
        if wants_administration(message, message_class):
            self._acknowledge(ending, message, now)
        if ending.place is not Place.ELSEWHERE:
            self.expired_count += message_class in EXPIRED
            if consequence.final_ack is FinalAckRule.ALWAYS or (
                consequence.final_ack is FinalAckRule.IF_ASKED and asks_final_ack(message)
            ):
                self._send_final_ack(ending, message, now)
        if message_class == MessageClass.ACK_RECEIVE:
            self._journal(ending, message)
        if consequence.kept is SystemQueue.JOURNAL:
            if user.journal_positive:
                self._keep(self._queues.named(consequence.kept), ending.packet, message, message_class)
        elif ending.is_set_aside or (consequence.kept is not None and user.journal_negative):
            letter = with_message_class(ending.packet, message_class)
            queue = self._chosen(message, len(letter)) if is_ours else None
            if queue is None:
                queue = self._queues.named(consequence.kept or SystemQueue.DEADXACT)
            if self._keep(queue, letter, message, message_class) and ending.in_doubt:
                self._doubts.add(message, queue, now)
        elif self._is_journaled(ending, message):
            self._keep(self._queues.named(SystemQueue.JOURNAL), ending.packet, message, message_class)

    def _is_journaled(self, ending: Ending, message: UserMessage) -> bool:
        """Return whether an expired message of ours is copied to the journal, as in the figures.

        That is so if it asks for a journal but not for a dead letter.  3.1.1.1.1.3, .5, .7
        """
        return (
            self._desk.settings.follows_figures
            and ending.place is Place.ON_THE_WAY
            and ending.message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT
            and message.user.source_queue_manager == self._desk.identity
            and message.user.journal_positive
        )

    def _journal(self, ending: Ending, message: UserMessage) -> None:
        """If the queue has a journal, add to the journal a message that an application has received."""
        journal = self._queues.journal_of(ending.queue)
        if journal is not None:
            self._keep(journal, ending.packet, message, ending.message_class)

    def _chosen(self, message: UserMessage, size_bytes: int) -> LocalQueue | None:
        """Return the ApplicationDeadletterQueue that a message names.  [MS-MQDMPR] 3.1.1.12

        Return None if none was chosen, or if it cannot take this letter, which then goes to the system's queue.
        """
        path_name = path_name_in(message.trailing)
        if not path_name:
            return None
        queue = self._queues.for_letters(path_name, transactional=message.transaction is not None)
        if queue is not None and queue.has_room(size_bytes):
            return queue
        facts: dict[str, str | int] = {"queue": path_name, "message_id": message.user.message_id}
        reason = "there is no such queue any more" if queue is None else "it is full"
        self._desk.notes.append(Note("letter-goes-to-the-systems-queue", {**facts, "reason": reason}))
        return None

    def _is_strangers(self, message: UserMessage) -> bool:
        """Whether the queue manager that sent a message is undeclared."""
        source = message.user.source_queue_manager
        return source != self._desk.identity and source not in self._routes.peers

    def _keep(self, queue: LocalQueue, packet: bytes, message: UserMessage, message_class: int) -> bool:
        """Put a message into a journal or a dead-letter queue if it has room. Return whether it was kept."""
        if is_unsealed(message, self._desk.identity):
            packet = encode_packet(in_clear(decode_message(packet)))
        if not queue.has_room(len(packet)):
            facts: dict[str, str | int] = {"queue": queue.name, "message_id": message.user.message_id}
            self._desk.notes.append(Note("no-room-to-keep", facts))
            self._desk.waypoints.not_kept(packet, queue.name)
            return False
        self._desk.waypoints.kept(packet, queue.name, message_class)
        lane, user = queue.lane(message.base.priority), message.user
        queue.insert(lane.rows([packet], [user.message_id], recoverable=user.recoverable), is_kept=True)
        self._queues.stir(queue)
        return True

    def tell_of_damage(
        self,
        ending: Ending,
        letters: SystemQueue,
        source: Guid | None,
        name: str,
        *,
        in_doubt: bool,
        now: Moment,
    ) -> None:
        """Keep a dead letter about a lost message. It is addressed to its own queue, so it is never sent.

        Args:
            source: the sender of the lost message, or None. With a sender, the letter gets the lost message's
                identifier; without one, it gets a new identifier.
        """
        assert isinstance(ending.packet, HurtPacket)
        number = (
            self._outbound.numbers.next_message_id() if source is None else ending.packet.message_id % 2**32
        )
        message = user_message(
            source=source or self._desk.identity,
            destination_manager=self._desk.identity,
            destination=f"OS:.\\{letters}",
            message_id=number,
            sent_time_s=now.utc_s,
            label=f"damaged on disk: message {ending.packet.message_id} of {name}"[:LABEL_LIMIT],
            body=(
                f"The store had message {ending.packet.message_id} of {name} not as it was written."
                f"{' It may have arrived before.' * in_doubt} The table quarantine of the store has what was there."
            ).encode("utf-16-le"),
            body_type=TEXT,
            recoverable=True,
            message_class=ending.message_class,
        )
        self._keep(self._queues.named(letters), encode_packet(message), message, ending.message_class)

    def _send_final_ack(self, ending: Ending, message: UserMessage, now: Moment) -> None:
        """Tell the sender's queue manager how its transactional message ended.  3.1.7.2.2, 3.1.7.17"""
        reply_to = ending.reply_to or self._reply_to(ending.queue, message)
        message_id = self._outbound.numbers.next_message_id()
        ack = make_final_ack(message, ending.message_class, reply_to, self._desk.identity, message_id, now)
        self._outbound.acknowledge(ack, reply_to)

    def _reply_to(self, queue: int, message: UserMessage) -> ReplyTo:
        """Return where to send acknowledgments of a message that was in a local queue or on its way."""
        source, header = message.user.source_queue_manager, message.transaction
        assert header is not None, "what is answered so is transactional"
        sequence = self._sequences.find(source, queue, message.user.destination_queue, header)
        sequence = sequence or self._sequences.of(source, queue)
        return sequence.reply_to if sequence else ReplyTo(source, None)

    # Messages that a queue manager writes itself

    def _acknowledge(self, ending: Ending, message: UserMessage, now: Moment) -> None:
        """Send an administration acknowledgment.  3.1.7.15"""
        user, properties = message.user, message.properties
        try:
            name = admin_from_wire(
                user.admin_type, user.admin_queue, user.source_queue_manager, user.queue_manager_address
            )
        except FormatNameError:
            name = None
        destination = destination_of(name, self._routes, self._desk.identity) if name is not None else None
        if destination is None or not self._is_told(ending, message, destination):
            return
        if destination.manager == self._desk.identity and self._posted.is_address(destination.queue):
            self._posted.ended(
                user.source_queue_manager, user.message_id, ending.message_class, now.utc_s, now
            )
            return
        way = None
        if self._is_strangers(message):
            way = self._way_of_answer(user.source_queue_manager, destination, message.base.priority)
            if way is None:
                return
        whole = repeats_body(ending, message)
        self._post(
            destination,
            now,
            way=way,
            message_class=ending.message_class,
            recoverable=user.recoverable,
            priority=message.base.priority,
            correlation_id=correlation_id_of(user.source_queue_manager, user.message_id),
            response_queue=_queue_of(message),
            application_tag=properties.application_tag,
            label=properties.label or "",
            body=properties.message_body if whole else b"",
            body_type=properties.body_type if whole else 0,
        )

    def _is_told(self, ending: Ending, message: UserMessage, destination: Destination) -> bool:
        """Return whether we send the administration acknowledgment.

        The queue manager where a message ended sends it, with one exception: by default, a destination sends none for a
        message that it disregards. If that message was ours, its FinalAck tells us of its end. Then we send the
        acknowledgment, but only to an administration queue of our own. 3.1.7.15, 5.1
        """
        stays_here = self._desk.identity == message.user.source_queue_manager == destination.manager
        insecure, sent = ending.message_class in DISREGARDED, self._desk.settings.send_insecure_nacks
        if ending.place is Place.ELSEWHERE:
            return insecure and stays_here and not sent
        return not insecure or sent or stays_here

    def _way_of_answer(self, stranger: Guid, destination: Destination, priority: int) -> OutgoingQueue | None:
        """Return the queue for a message that a stranger asks us to send; None if that is not allowed.

        The stranger may ask for messages to itself, on its own session, and for messages to a host that it is allowed
        to name.
        """
        host = destination.host
        if destination.manager == stranger or (host is not None and self._outbound.is_met_at(stranger, host)):
            way = self._outbound.answers_to(stranger, priority)
            if way is not None:
                return way
        elif host is not None and destination.manager is None and self._outbound.may_answer(host):
            return self._outbound.towards(destination, priority)
        facts: dict[str, str | int] = {"source": guid_text(stranger), "queue": destination.name}
        self._desk.notes.append(Note("stranger-not-answered", facts))
        return None

    def report(self, debug: DebugHeader, label: str, body: str, now: Moment) -> None:
        """Send a report message to the queue that a DebugHeader names.  3.1.5.8.9, 3.1.7.1.7"""
        manager = self._routes.publics.get(debug.queue_identifier) if debug.queue_identifier else None
        if manager is None:
            return
        assert debug.queue_identifier is not None
        destination = Destination(
            f"PUBLIC={guid_text(debug.queue_identifier)}", manager, debug.queue_identifier
        )
        self._post(
            destination,
            now,
            message_class=MessageClass.REPORT,
            recoverable=False,
            label=label,
            body=body.encode("utf-16-le"),
        )

    def _post(
        self,
        destination: Destination | None,
        now: Moment,
        *,
        message_class: int,
        recoverable: bool,
        body: bytes,
        label: str,
        priority: int = DEFAULT_PRIORITY,
        correlation_id: bytes = bytes(20),
        response_queue: QueueName = None,
        application_tag: int = 0,
        body_type: int = 0,
        way: OutgoingQueue | None = None,
    ) -> None:
        """Send a message that is not transactional; drop it if there is no way to its destination.

        way: the queue that the message joins, if it is not the destination's queue.
        """
        if destination is None:
            return
        message_id = self._outbound.numbers.next_message_id()
        message = user_message(
            source=self._desk.identity,
            destination_manager=destination.address,
            destination=destination.queue,
            message_id=message_id,
            sent_time_s=now.utc_s,
            body=body,
            label=label,
            recoverable=recoverable,
            priority=priority,
            message_class=message_class,
            correlation_id=correlation_id,
            response_queue=response_queue,
            application_tag=application_tag,
            body_type=body_type,
        )
        packet = encode_packet(message)
        self._desk.waypoints.accepted([packet], destination.name)
        if destination.manager == self._desk.identity:
            queue = self._queues.addressed(destination.queue)
            if queue is not None and not queue.declaration.transactional and queue.has_room(len(packet)):
                queue.insert(queue.lane(priority).rows([packet], [message_id], recoverable=recoverable))
                self._queues.stir(queue)
            return
        if way is None and (destination.host is not None or self._outbound.leads_to(destination.address)):
            way = self._outbound.towards(destination, priority)
        if way is not None:
            self._outbound.put(way, way.rows([packet], [message_id], recoverable=recoverable))


def wants_administration(message: UserMessage, message_class: int) -> bool:
    """Whether a message asks for an administration acknowledgment of this class.  3.1.5.8.10, 3.1.7.2.1"""
    properties = message.properties
    if not properties.flags:
        return False
    if message_class == MessageClass.ACK_REACH_QUEUE:
        return properties.acknowledge_arrival
    if message_class == MessageClass.ACK_RECEIVE:
        return properties.acknowledge_receipt
    return properties.report_no_receipt if message_class & IN_QUEUE_BIT else properties.report_no_arrival


def repeats_body(ending: Ending, message: UserMessage) -> bool:
    """Return whether an administration acknowledgment repeats the message's body.

    The acknowledgment of a refusal repeats the body if it is not encrypted, and if the acknowledgment fits into a
    packet. It may be longer than the message, because queue numbers in the message may become names.  3.1.7.15

    A body that was or would be encrypted on its way is stored unencrypted in its queue, so it is never sent back.
    """
    if (
        isinstance(ending.packet, HurtPacket)
        or ending.message_class in DELIVERED
        or message.properties.privacy_level
        or is_encrypted(message)
    ):
        return False
    return len(ending.packet) <= MAXIMUM_PACKET_SIZE - LONGER_NAMES_BYTES


def _queue_of(message: UserMessage) -> QueueName:
    """Return the queue of a message in the form in which response queues are given."""
    user = message.user
    if user.destination_type == PRIVATE_ON_DESTINATION:
        assert isinstance(user.destination_queue, int)
        return PrivateQueueFormatName(user.queue_manager_address, user.destination_queue)
    return user.destination_queue


# Report messages, which tell a trace queue where a message has been.  1.3.6

# The names are those of the ABNF; strftime would use the locale's.
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Tracing:
    """Writes a report for each traced message that arrives or leaves."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def received(self, message: UserMessage, now: Moment, *, passes_on: bool) -> None:
        """Report a message that has arrived, with a hop more if it goes on.  3.1.5.8.2, 3.1.5.8.9"""
        if message.base.trace and message.debug is not None:
            body = _element("MESSAGE ID", f"{message.user.message_id:08X}")
            body += _element("TARGET QUEUE", _target(message))
            self._outcomes.report(message.debug, report_label(message, now, passes_on), body, now)

    def sent(self, sent: list[tuple[bytes, str]], now: Moment) -> None:
        """Report messages that were sent, each with the address that it went to, and empty the list.  3.1.7.1.7"""
        for packet, host in sent:
            message = decode_message(packet)
            assert message.debug is not None, "no packet has TR set and no DebugHeader"
            body = _element("MESSAGE ID", f"{message.user.message_id:08X}")
            body += _element("TARGET QUEUE", _target(message))
            body += _element("NEXT HOP", host) + _element("HOP COUNT", f"{message.user.hop_count:02X} ")
            self._outcomes.report(message.debug, report_label(message, now), body, now)
        sent.clear()


def report_label(message: UserMessage, now: Moment, more_hops: int = 0) -> str:
    """Return the label of a report: source, message, hops and time.

    An example is `1B6A:00000007:00 received by GUID at 02:15:09 AM Sun,Nov 22 26`.
    """
    source = guid_text(message.user.source_queue_manager).upper()
    at = datetime.fromtimestamp(now.utc_s, UTC)
    half = "AM" if at.hour < 12 else "PM"
    date = f"{DAYS[at.weekday()]},{MONTHS[at.month - 1]} {at.day:02} {at.year % 100:02}"
    number = f"{source[:4]}:{message.user.message_id:08X}:{message.user.hop_count + more_hops:02X}"
    return f"{number} received by {source} at {at:%H:%M:%S} {half} {date}"


def _element(name: str, value: str) -> str:
    return f"<{name}>{value}</{name}>\r\n"


def _target(message: UserMessage) -> str:
    user = message.user
    try:
        name = destination_from_wire(
            user.destination_type, user.destination_queue, user.queue_manager_address
        )
    except FormatNameError:
        return ""
    return "" if name is None else str(name)
