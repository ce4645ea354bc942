"""Reads the packets of a capture in order, and reports the kind of each packet, what it acknowledges, and its
faults.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.captures.decode.digest import digest_of
from mqproto.captures.decode.facts import (
    NOT_KNOWN,
    NOT_SAID,
    Acknowledgment,
    Crossing,
    MessageKey,
    NodeKey,
    NumberedMessage,
    SessionFacts,
)
from mqproto.captures.decode.findings import Finding, Severity, of_damaged
from mqproto.captures.decode.journeys import JourneyChecker, message_key
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sequences import SequenceChecker
from mqproto.captures.decode.sessions.checker import SessionChecker, SessionView
from mqproto.captures.decode.sessions.connections import Connections, Origins
from mqproto.captures.decode.sessions.half import Sent, last_loss
from mqproto.captures.decode.sight import Acknowledged, Kind, Learnt, Sight, guids_of, sight_of, tls_record
from mqproto.captures.decode.ways import WayBook, Ways
from mqproto.captures.packets import PacketReader, SeenPacket, StreamEnd, Sum
from mqproto.captures.translation import Translation, said_of
from mqproto.wire import (
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    Ping,
    TransactionHeader,
    UserHeader,
    UserMessage,
    inspect_packet,
    message_identifier,
)
from mqproto.wire.layouts.base import INFINITE, base_header
from mqproto.wire.lenient import remarks

NO_PACKET: Final = -1
_LIMIT: Final = struct.Struct(base_header.struct_format("time_to_reach_queue_s"))


class Analyst:
    """Turns packets into sights, in one pass and in bounded memory.

    Args:
        names: the names of queue managers and queues.
    """

    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self._connections = Connections(self.names)
        self._sessions = SessionChecker(self._connections)
        self._origins = Origins()
        self._journeys = JourneyChecker(resolve=self._origins.resolve_hop)
        self._sequences = SequenceChecker()
        self._ways = WayBook()
        self.lacking = Ways()
        self._reader: PacketReader | None = None

    def take(self, seen: SeenPacket) -> Sight:
        """Take the next packet of the capture; findings may be about earlier packets."""
        sight = sight_of(seen)
        if seen.is_ping:
            sight.source, sight.destination = map(self.names.endpoint, (seen.source, seen.destination))
            sight.hop = (sight.source, sight.destination)
        else:
            facts = session_facts(sight)
            view = self._sessions.take(facts)
            sending = self._ways.take(facts, view)
            _add_session(sight, view)
            self._identify(sight, tells=view.tells)
            if sight.user is not None and view.sent is not None:
                sight.findings += self._journeys.take(crossing_of(sight, sight.user, view.sent))
                if sight.message is not None:
                    holes = [hole.packet for hole in sending.holes]
                    self._take_message(sight, sight.message, last_loss(holes, seen.number))
        sight.findings += own_findings(seen)
        self._reader = seen.reader
        sight.findings = [self._believed(found, found.packet) for found in sight.findings]
        return sight

    def _believed(self, found: Finding, packet: int) -> Finding:
        """Return a finding; replace a fault with a note if a frame on which the fault rests is damaged.

        Args:
            packet: the number of the packet that the finding is about; 0 for bytes before the first packet.
        """
        is_damaged = self._reader and any(map(self._reader.is_damaged, (packet, *found.others)))
        return of_damaged(found) if is_damaged and found.severity is Severity.FAULT else found

    def finish(
        self,
        *,
        lossless: bool = True,
        ends: Mapping[StreamEnd, Sum] | None = None,
        translations: Iterable[Translation] = (),
        conflicts: Iterable[tuple[str, str]] = (),
    ) -> Iterator[Finding]:
        """Return the findings that are certain only at the end of the capture.

        Args:
            lossless: whether each gap of the capture is followed by a packet. If not, the last packets may be missing.
                Findings that such missing packets may explain are then left out, or are only notes.
            ends: how much each side of a connection sent in total, from PacketReader.ends.
            translations: the connections whose addresses were translated, from PacketReader.translations.
            conflicts: the frames that contradict one another, from PacketReader.totals.
        """
        for text in said_of(translations):
            yield Finding(Severity.NOTE, "address-translation", 0, text)
        for code, text in conflicts:
            yield Finding(Severity.NOTE, code, 0, text)
        for end, of in (ends or {}).items():
            self._ways.end(*end, of.sent_bytes, of.came_bytes)
        self.lacking = ways = self._ways.ways(self._origins, lossless=lossless)
        for found in (*self._journeys.finish(ways), *self._sequences.finish(ways)):
            yield self._believed(found, found.packet or NO_PACKET)

    def label(self, key: NodeKey) -> str:
        """Return the name of the queue manager at one end of a hop."""
        return self._connections.label(key)

    def _identify(self, sight: Sight, *, tells: bool) -> None:
        """Identify the queue managers at the ends of a packet's hop if no handshake has identified them.

        Args:
            tells: whether the packet itself identifies them.
        """
        seen, user = sight.seen, sight.user
        news = False
        if user is not None:
            if not user.hop_count:
                news = self._origins.learn(seen.source, user.source_queue_manager)
        elif tells:
            for end, key in zip((seen.source, seen.destination), sight.hop, strict=True):
                news |= not isinstance(key, str) and self._origins.learn(end, Guid(key), told=True)
        if news:
            self._sequences.rename(self._origins.resolve_hop)
        if isinstance(sight.hop[0], str) or isinstance(sight.hop[1], str):
            sight.hop = self._origins.resolve_hop(sight.hop)

    def _take_message(self, sight: Sight, message: UserMessage, lost: int | None) -> None:
        body, transaction = sight.acknowledgment, message.transaction
        if transaction is not None:
            view = self._sequences.take_message(numbered_message(sight, message, transaction, lost))
        elif isinstance(body, OrderAckBody):
            view = self._sequences.take_order_ack(acknowledgment_of(sight, message, body))
        elif isinstance(body, FinalAckBody):
            about = (body.source_guid, body.message_id)
            view = self._sequences.take_final_ack(acknowledgment_of(sight, message, body), about)
        else:
            if sight.kind is Kind.ADMIN_ACK:
                sight.ended = self._journeys.packets_of(subject_of(message))
            return
        sight.ended = view.ended
        sight.findings += view.findings


def session_facts(sight: Sight) -> SessionFacts:
    """Return the fields of a packet that the rules of a session need."""
    seen, packet, user = sight.seen, sight.seen.packet, sight.user
    facts = SessionFacts(
        seen.number,
        seen.time_ns,
        seen.connection,
        seen.interface.number,
        seen.source,
        seen.destination,
        sight.kind,
        seen.missing_bytes,
        seen.skipped_bytes,
        None if user is None else user.recoverable,
        sight.session,
        None,
        None,
        False,
        None,
        0,
        seen.position,
        seen.size_bytes,
        seen.ahead,
        seen.cut_bytes,
        seen.snapped_bytes,
        seen.opened,
    )
    if isinstance(packet, EstablishConnection):
        client, server = guids_of(seen, packet)
        return facts._replace(client=client, server=server, refused=packet.refused)
    if isinstance(packet, ConnectionParameters):
        timeouts_ms = (packet.recoverable_ack_timeout_ms, packet.ack_timeout_ms)
        return facts._replace(refused=packet.refused, timeouts_ms=timeouts_ms, window=packet.window_size)
    return facts


def crossing_of(sight: Sight, user: UserHeader, sent: Sent) -> Crossing:
    """Return the fields of a UserMessage that are needed to follow it from hop to hop.

    The capture must have at least the UserHeader of the message.
    """
    seen = sight.seen
    transaction = None if sight.message is None else sight.message.transaction
    security = None if sight.message is None else sight.message.security
    previous_number = None if sight.transactional is not None else NOT_SAID
    if sight.transactional:
        previous_number = NOT_KNOWN if transaction is None else transaction.previous_tx_sequence_number
    (limit_s,) = _LIMIT.unpack_from(seen.data)
    return Crossing(
        (user.source_queue_manager, user.message_id),
        sight.hop,
        seen.number,
        seen.interface.number,
        seen.connection,
        seen.time_ns,
        user.hop_count,
        user.recoverable,
        previous_number,
        None if seen.cut_bytes else digest_of(seen.data),
        security is not None and bool(security.body_encrypted),
        user.sent_time_s,
        None if sight.transactional is not False or limit_s == INFINITE else user.sent_time_s + limit_s,
        sent,
        user.queue_manager_address,
        seen.size_bytes,
        seen.frame,
        sight.from_client,
    )


def numbered_message(
    sight: Sight, message: UserMessage, transaction: TransactionHeader, lost: int | None
) -> NumberedMessage:
    """Return the fields of a transactional message that the rules of sequences need."""
    user = message.user
    return NumberedMessage(
        message_key(message),
        sight.hop,
        sight.seen.number,
        sight.seen.time_ns,
        lost,
        (user.queue_manager_address, user.destination_queue),
        transaction.tx_sequence_id,
        transaction.tx_sequence_number,
        transaction.previous_tx_sequence_number,
        sight.seen.interface.number,
        sight.seen.connection,
        user.sent_time_s,
    )


def acknowledgment_of(
    sight: Sight, message: UserMessage, body: OrderAckBody | FinalAckBody
) -> Acknowledgment:
    """Return the fields of an OrderAck or a FinalAck that the rules of sequences need."""
    return Acknowledgment(
        message_key(message),
        sight.hop,
        sight.seen.number,
        message.user.queue_manager_address,
        body.tx_sequence_id,
        body.tx_sequence_number,
        body.tx_previous_sequence_number,
        message.properties.message_class == MessageClass.ACK_RECEIVE,
        sight.seen.time_ns,
        sight.seen.interface.number,
        sight.seen.connection,
        sight.seen.ahead,
    )


def subject_of(message: UserMessage) -> MessageKey:
    """Return the message that an administration acknowledgment is about.  [MS-MQMQ] 2.2.18.1.6"""
    about = message_identifier.decode(message.properties.correlation_id)
    return about.queue_manager_guid, about.ordinal


def _add_session(sight: Sight, view: SessionView) -> None:
    sight.source, sight.destination, sight.hop = view.half.label, view.other.label, view.half.hop
    sight.from_client, sight.answers = view.half is view.connection.client, view.answers
    sight.findings += view.findings
    if view.sent is not None:
        sight.count, sight.recoverable_count = view.sent.count, view.sent.recoverable_count
    if view.received:
        sight.received = Acknowledged([sent.packet for sent in view.received])
    for sent in view.learnt:
        if sent.acknowledged_by is not None and sent.acknowledged_ns is not None:
            is_saved = sent.saved_by == sent.acknowledged_by
            learnt = Learnt(sent.packet, sent.acknowledged_by, sent.acknowledged_ns, is_saved)
            sight.learnt.append(learnt)
    if view.saved:
        sight.saved = Acknowledged([sent.packet for sent in view.saved])


def own_findings(seen: SeenPacket) -> Iterable[Finding]:
    """Return the findings, both faults and oddities, that a single packet reveals by itself."""
    if seen.packet is None:
        record = tls_record(seen)
        if seen.cut_bytes:
            return
        if record is None:
            yield from malformed(seen)
        else:
            text = f"TLS ({record}): the connection is encrypted, and what it carries cannot be read"
            yield Finding(Severity.NOTE, "encrypted", seen.number, text)
    elif not isinstance(seen.packet, Ping):
        for remark in remarks(seen.packet):
            text = f"{remark.field} {remark.text}"
            yield Finding(Severity.NOTE, "odd-field", seen.number, text, remark.section)


def malformed(seen: SeenPacket) -> Iterable[Finding]:
    """Return the findings about bytes that do not form a packet."""
    fault = seen.fault
    assert fault is not None
    faults = [fault]
    if seen.framed and not seen.is_ping:
        faults = [each for each in inspect_packet(seen.data).findings if isinstance(each, WireFormatError)]
    for each in faults:
        yield Finding(Severity.FAULT, "malformed", seen.number, _one_line(str(each)))


def sights(packets: Iterable[SeenPacket], analyst: Analyst) -> Iterator[Sight]:
    """Yield a sight for each packet."""
    return map(analyst.take, packets)


def _one_line(text: str) -> str:
    return " ".join(text.split())
