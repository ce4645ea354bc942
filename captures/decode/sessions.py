"""Is a session by the book? Handshake, counts, windows, acknowledgments.  [MS-MQQB] 3.1.1.6.1, 3.1.5.3 to 3.1.5.5

A capture may lack segments that the two ends had. Whatever the other direction could explain is therefore kept as a
suspicion until that direction shows its next packet: if nothing is missing before it, the suspicion was right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from captures.decode.connections import (
    MSMQ_PORT,
    Connection,
    Connections,
    Half,
    Sent,
    Stage,
    ahead,
    at_or_before,
)
from captures.decode.facts import SessionFacts
from captures.decode.findings import Finding, Severity
from captures.decode.sight import Kind
from mqproto.wire import NULL_GUID, Guid, SessionHeader, guid_text

FAULT, NOTE = Severity.FAULT, Severity.NOTE
OPEN = Stage.OPEN


@dataclass(slots=True, eq=False)
class SessionView:
    """What a packet is to its session.

    half, other: the end that sent it, and the one that it went to.
    answers: whether it answers the packet of its kind that came the other way in the handshake.
    sent: a UserMessage as its session counts it, whose acknowledgment is still to come; None for other packets.
    received, saved: the messages that its SessionHeader newly acknowledges as received, and as saved.
    answered: all messages of which more is known now, or of which it is known that nothing will be said any more.
    """

    connection: Connection
    half: Half
    other: Half
    answers: bool = False
    sent: Sent | None = None
    received: Sequence[Sent] = ()
    saved: Sequence[Sent] = ()
    answered: list[Sent] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class SessionChecker:
    """Follows every session of a capture. State is bounded for each connection, and so is the number of these."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def take(self, facts: SessionFacts) -> SessionView:
        """Look at the next packet of a connection."""
        kind = facts.kind
        begins = kind is Kind.ESTABLISH_CONNECTION and facts.source.port != MSMQ_PORT
        connection = self._connections.find(facts, begins=begins)
        half, other = connection.halves(facts.source)
        view = SessionView(connection, half, other)
        self._follow_stream(facts, view)
        if facts.recoverable is not None:
            self._take_turn(facts, view)
            self._count(facts, facts.recoverable, view)
        elif kind is Kind.ESTABLISH_CONNECTION:
            self._take_connection(facts, view)
        elif kind is Kind.CONNECTION_PARAMETERS:
            self._take_parameters(facts, view)
        elif kind is Kind.SESSION_ACK:
            self._take_turn(facts, view)
        else:
            view.answered += half.forget_counts()
        if facts.header is not None:
            self._take_session_header(facts, facts.header, view)
        return view

    def finish(self, *, lossless: bool) -> Iterator[Finding]:
        """What is still suspected at the end.

        Args:
            lossless: whether the capture has no gap at all; else what it lacks may explain them, and they are notes,
                as they are where it has one direction of a connection only.
        """
        for connection in self._connections.everyone():
            for half in (connection.client, connection.server):
                for finding in half.suspicions:
                    yield finding if lossless and half.seen else finding._replace(severity=NOTE)
                half.suspicions.clear()

    def _follow_stream(self, facts: SessionFacts, view: SessionView) -> None:
        """Whether this packet follows upon the last one of its half decides what was suspected meanwhile."""
        half = view.half
        half.seen = True
        if facts.missing_bytes or facts.skipped_bytes:
            what = f"{facts.missing_bytes:,} bytes before it are not in the capture"
            if facts.skipped_bytes:
                what = f"{facts.skipped_bytes:,} bytes before it belong to no packet" + (
                    f", {facts.missing_bytes:,} are not in the capture" if facts.missing_bytes else ""
                )
            view.findings.append(Finding(NOTE, "missing-bytes", facts.number, what))
            if half.lossy_since is None:
                half.lossy_since = facts.number
            half.suspicions.clear()
            view.answered += half.forget_counts()
            view.other.acknowledged = None
            view.connection.lose_track()
        elif half.suspicions:
            view.findings += half.suspicions
            half.suspicions.clear()

    # The handshake

    def _take_connection(self, facts: SessionFacts, view: SessionView) -> None:
        """An EstablishConnection packet asks or answers.  3.1.5.3"""
        connection, stage = view.connection, view.connection.stage
        client, server = facts.client or NULL_GUID, facts.server or NULL_GUID
        if stage is Stage.UNKNOWN:
            return
        if view.half is connection.client and stage is Stage.NOTHING:
            connection.stage = Stage.ASKED
            self._connections.introduce(connection, client, server)
            for each in (connection.client, connection.server):
                each.sent = each.recoverable_sent = each.acknowledged = 0
            return
        if view.half is connection.server and stage is Stage.ASKED:
            view.answers = True
            connection.stage = Stage.REFUSED if facts.refused else Stage.GRANTED
            self._take_answer(facts, client, server, view)
            return
        self._out_of_turn(facts, view)

    def _take_answer(self, facts: SessionFacts, client: Guid, server: Guid, view: SessionView) -> None:
        connection, number = view.connection, facts.number
        asked, wanted = connection.client_guid, connection.server_guid
        if facts.refused:
            text = "the acceptor wants no session"
            if server not in (wanted, NULL_GUID) and wanted != NULL_GUID:
                text += f": it is {guid_text(server)}, asked was for {guid_text(wanted)}"
            view.findings.append(Finding(NOTE, "refused", number, text, "[MS-MQQB] 3.1.5.3.1"))
            return
        if client != asked or (wanted != NULL_GUID and server != wanted):
            text = (
                f"it is from {guid_text(server)} to {guid_text(client)}; the request was "
                f"from {guid_text(asked)} to {guid_text(wanted)}"
            )
            view.findings.append(Finding(FAULT, "wrong-answer", number, text, "[MS-MQQB] 3.1.5.3.1"))
            return
        self._connections.confirm(connection, server)

    def _take_parameters(self, facts: SessionFacts, view: SessionView) -> None:
        """A ConnectionParameters packet proposes or answers.  3.1.5.4"""
        connection, half = view.connection, view.half
        half.window = max(half.window, facts.window, 1)
        stage = connection.stage
        if stage is Stage.UNKNOWN:
            return
        proposes = half is connection.client and stage is Stage.GRANTED
        view.answers = half is connection.server and stage is Stage.PROPOSED
        if not proposes and not view.answers:
            self._out_of_turn(facts, view)
        elif facts.refused:
            connection.stage = Stage.REFUSED
            text = f"the {'acceptor' if view.answers else 'initiator'} wants no session after all"
            view.findings.append(Finding(NOTE, "refused", facts.number, text, "[MS-MQQB] 2.2.1"))
        elif proposes:
            connection.stage = Stage.PROPOSED
            connection.timeouts_ms = facts.timeouts_ms
        else:
            connection.stage = Stage.OPEN
            self._compare_timeouts(facts, view)

    def _compare_timeouts(self, facts: SessionFacts, view: SessionView) -> None:
        """The acceptor adopts the timeouts that were proposed, and says so.  3.1.5.4.1"""
        proposed, adopted = view.connection.timeouts_ms, facts.timeouts_ms
        if proposed is None or adopted is None or proposed == adopted:
            return
        text = (
            f"its timeouts are {adopted[0]:,} and {adopted[1]:,} ms; proposed were {proposed[0]:,} and "
            f"{proposed[1]:,} ms"
        )
        view.findings.append(Finding(FAULT, "wrong-parameters", facts.number, text, "[MS-MQQB] 3.1.5.4.1"))

    def _take_turn(self, facts: SessionFacts, view: SessionView) -> None:
        """UserMessages and SessionAcks are welcome once the session is open.  3.1.5.5, 3.1.5.8"""
        stage = view.connection.stage
        if stage is not OPEN and stage is not Stage.UNKNOWN:
            self._out_of_turn(facts, view)

    def _out_of_turn(self, facts: SessionFacts, view: SessionView) -> None:
        """A packet that its receiver closes the session for; unless it had answers that the capture lacks."""
        section = {
            Kind.ESTABLISH_CONNECTION: "[MS-MQQB] 3.1.5.3",
            Kind.CONNECTION_PARAMETERS: "[MS-MQQB] 3.1.5.4",
            Kind.SESSION_ACK: "[MS-MQQB] 3.1.5.5",
        }.get(facts.kind, "[MS-MQQB] 3.1.5.8")
        state = {
            Stage.NOTHING: "nobody has asked for a session",
            Stage.ASKED: "the request for a session has no answer yet",
            Stage.GRANTED: "the session has no parameters yet",
            Stage.PROPOSED: "the session's parameters have no answer yet",
            Stage.OPEN: "the session is open",
            Stage.REFUSED: "the session was refused",
        }[view.connection.stage]
        finding = Finding(FAULT, "out-of-turn", facts.number, f"{facts.kind}, though {state}", section)
        view.other.suspect(finding)
        view.connection.lose_track()

    # Messages and their acknowledgments

    def _count(self, facts: SessionFacts, recoverable: bool, view: SessionView) -> None:
        """A UserMessage has the next number of its session.  [MS-MQMQ] 2.2.20.4"""
        half, other, number = view.half, view.other, facts.number
        sent = view.sent = Sent(half, number)
        if half.sent is None:
            return
        half.sent = sent.count = (half.sent + 1) & 0xFFFF
        half.unacknowledged.append(sent)
        if recoverable and half.recoverable_sent is not None:
            half.recoverable_sent = sent.recoverable_count = (half.recoverable_sent + 1) & 0xFFFF
            half.unsaved.append(sent)
        window = max(half.window, other.window)
        if half.acknowledged is None or not window:
            return
        waiting = ahead(half.sent, half.acknowledged)
        if window < waiting < 0x8000:
            text = f"{waiting:,} messages are not acknowledged; the window is {window:,}"
            # The acknowledgments that would explain it travel the other way.
            finding = Finding(FAULT, "window-exceeded", number, text, "[MS-MQQB] 3.1.1.3.1")
            if not other.suspicions or other.suspicions[-1].code != "window-exceeded":
                other.suspect(finding)

    def _take_session_header(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> None:
        """A session acknowledgment, alone or riding on a message.  3.1.5.5"""
        half = view.half
        half.window = max(half.window, header.window_size)
        self._take_acknowledgment(facts, header, view)
        if header.recoverable_msg_ack_flags:
            self._take_saved(facts, header, view)
        counted = (header.user_msg_sequence_number, header.recoverable_msg_seq_number)
        if half.sent is not None and counted != (half.sent, half.recoverable_sent):
            text = (
                f"it says that {counted[0]:,} messages were sent, {counted[1]:,} of them recoverable; the capture has "
                f"{half.sent:,} and {half.recoverable_sent:,}"
            )
            finding = Finding(FAULT, "wrong-count", facts.number, text, "[MS-MQQB] 3.1.5.5.5")
            view.findings.append(finding)
            view.answered += half.forget_counts()
        half.sent, half.recoverable_sent = counted

    def _take_acknowledgment(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> None:
        """AckSequenceNumber: all up to it have been received.  3.1.5.5.1"""
        number, acknowledged, other = facts.number, header.ack_sequence_number, view.other
        if other.acknowledged is not None and not at_or_before(other.acknowledged, acknowledged):
            text = f"it acknowledges message {acknowledged:,}, after one that acknowledged {other.acknowledged:,}"
            view.findings.append(Finding(FAULT, "ack-backwards", number, text, "[MS-MQQB] 3.1.5.5.1"))
            return
        if other.sent is not None and not at_or_before(acknowledged, other.sent):
            text = f"it acknowledges message {acknowledged:,}; the last one sent was {other.sent:,}"
            finding = Finding(FAULT, "ack-beyond-sent", number, text, "[MS-MQQB] 3.1.5.5.1")
            other.suspect(finding)
            return
        other.acknowledged = acknowledged
        view.received = _acknowledged(other.unacknowledged, acknowledged, facts)
        view.answered += view.received
        if other.uncounted:
            view.answered += _acknowledged(other.uncounted, acknowledged, facts)

    def _take_saved(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> None:
        """Bit k: recoverable message RecoverableMsgAckSeqNumber + k is saved; so are all before bit 0.  3.1.5.5.3"""
        base, flags, other = (
            header.recoverable_msg_ack_seq_number,
            header.recoverable_msg_ack_flags,
            view.other,
        )
        last = (base + flags.bit_length() - 1) & 0xFFFF
        if other.recoverable_sent is not None and not at_or_before(last, other.recoverable_sent):
            text = (
                f"it says that recoverable message {last:,} is saved; the last one sent was "
                f"{other.recoverable_sent:,}"
            )
            finding = Finding(FAULT, "saved-beyond-sent", facts.number, text, "[MS-MQQB] 3.1.5.5.3")
            other.suspect(finding)
            return
        kept, saved = [], []
        while other.unsaved:
            count = other.unsaved[0].recoverable_count
            if count is None or not at_or_before(count, last):
                break
            sent = other.unsaved.popleft()
            place = ahead(count, base)
            if place >= 0x8000 or flags >> place & 1:
                sent.saved_by = facts.number
                saved.append(sent)
            else:
                kept.append(sent)
        other.unsaved.extendleft(reversed(kept))
        view.saved = saved
        view.answered += saved


def _acknowledged(waiting: deque[Sent], through: int, facts: SessionFacts) -> list[Sent]:
    """Take those that an acknowledgment covers."""
    covered = []
    while waiting:
        count = waiting[0].count
        if count is None or not at_or_before(count, through):
            break
        sent = waiting.popleft()
        sent.acknowledged_by, sent.acknowledged_ns = facts.number, facts.time_ns
        covered.append(sent)
    return covered
