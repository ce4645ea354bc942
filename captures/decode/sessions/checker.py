"""Checks sessions: handshake, counts, windows and acknowledgments.

[MS-MQQB] 3.1.1.6.1, 3.1.5.3 to 3.1.5.5

A capture may lack packets that the two ends received. So each rule states what it needs from the capture, and reports
nothing if the capture lacks that. What is reported as a fault would be a fault in any traffic that fits the capture.

Packets of a connection come in causal order: each packet comes before all packets whose senders may have received it. A
packet for which this is not certain is `ahead`: its sender may already have received packets from the other end that
the capture shows only later, if at all. It still comes after the earlier packets of its own sender.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mqproto.captures.decode.facts import SessionFacts
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.sessions.connections import Connection, Connections, Stage
from mqproto.captures.decode.sessions.half import (
    HALF_CIRCLE,
    MAY_FOLLOW,
    Half,
    Sent,
    Step,
    ahead,
    at_or_before,
)
from mqproto.captures.decode.sight import Kind
from mqproto.wire import (
    NULL_GUID,
    Guid,
    SessionHeader,
    connection_parameters_packet,
    establish_connection_packet,
    guid_text,
)
from mqproto.wire.layouts.base import SMALLEST_USER_MESSAGE

FAULT, NOTE = Severity.FAULT, Severity.NOTE
OPEN = Stage.OPEN

STEPS: Final = {
    Kind.ESTABLISH_CONNECTION: Step.INTRODUCED,
    Kind.CONNECTION_PARAMETERS: Step.ADJUSTED,
}
SECTIONS: Final = {
    Kind.ESTABLISH_CONNECTION: "[MS-MQQB] 3.1.5.3",
    Kind.CONNECTION_PARAMETERS: "[MS-MQQB] 3.1.5.4",
    Kind.SESSION_ACK: "[MS-MQQB] 3.1.5.5",
}
STATES: Final = {
    Stage.NOTHING: "nobody has asked for a session",
    Stage.ASKED: "the request for a session has no answer yet",
    Stage.GRANTED: "the session has no parameters yet",
    Stage.PROPOSED: "the session's parameters have no answer yet",
    Stage.OPEN: "the session is open",
    Stage.REFUSED: "the session was refused",
}
HANDSHAKE_BYTES: Final = establish_connection_packet.sizeof() + connection_parameters_packet.sizeof()
BEHIND: Final = {
    Step.INTRODUCED: "it comes right behind an EstablishConnection of the same end",
    Step.ADJUSTED: "it comes right behind a ConnectionParameters of the same end",
    Step.TALKING: "the same end has used the session as open",
}


@dataclass(slots=True, eq=False)
class SessionView:
    """How a packet relates to its session.

    half, other: the end that sent the packet, and the end that it went to.
    answers: whether the packet answers the packet of the same kind that came from the other end in the handshake.
    tells: whether the packet identifies both ends, even if the capture lacks the request that it answers.
    sent: the session's record of a UserMessage, which is not acknowledged yet; None for other packets.
    received, saved: the messages that the packet's SessionHeader newly acknowledges as received, and as saved.
    learnt: messages from `half` that earlier SessionHeaders from `other` had acknowledged; only this packet reveals
        that.
    answered: the messages in `received`, `saved` and `learnt`.
    hidden_bytes: how many bytes the capture lacks right before the packet; 0 if no message fits into them.
    is_counted: whether the packet's SessionHeader shows that the capture has all recoverable messages that this end has
        sent since its last SessionHeader.
    """

    connection: Connection
    half: Half
    other: Half
    answers: bool = False
    tells: bool = False
    sent: Sent | None = None
    received: Sequence[Sent] = ()
    saved: Sequence[Sent] = ()
    learnt: Sequence[Sent] = ()
    answered: list[Sent] = field(default_factory=list)
    hidden_bytes: int = 0
    is_counted: bool = False
    findings: list[Finding] = field(default_factory=list)


class SessionChecker:
    """Follows every session of a capture. The number of connections is bounded, and so is the state of each."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def take(self, facts: SessionFacts) -> SessionView:
        """Take the next packet of a connection."""
        kind = facts.kind
        connection = self._connections.find(facts)
        tells = not connection.told and self._connections.hear(connection, facts)
        half, other = connection.halves(facts.source)
        view = SessionView(connection, half, other, tells=tells)
        self._follow_stream(facts, view)
        before, half.step = half.step, STEPS.get(kind, Step.TALKING)
        if facts.recoverable is not None:
            if connection.by_port:
                self._say_port(facts, view)
            self._take_turn(facts, view, before)
            self._count(facts, facts.recoverable, view)
        elif kind is Kind.ESTABLISH_CONNECTION:
            self._take_connection(facts, view, before)
        elif kind is Kind.CONNECTION_PARAMETERS:
            self._take_parameters(facts, view, before)
        elif kind is Kind.SESSION_ACK:
            self._take_turn(facts, view, before)
        elif kind is Kind.CUT:
            self._lose(view, min(1, facts.size_bytes // SMALLEST_USER_MESSAGE))
        else:
            self._lose(view, None)
            if kind is Kind.ENCRYPTED:
                connection.stage = Stage.ENCRYPTED
        if facts.header is not None:
            self._take_session_header(facts, facts.header, view)
        elif facts.cut_bytes and facts.recoverable is not None:
            other.miss_answers()  # Its SessionHeader is behind its body.
        return view

    def _follow_stream(self, facts: SessionFacts, view: SessionView) -> None:
        """Check whether this packet directly follows the last one of its half; if not, record what the gap may hide."""
        half = view.half
        if facts.missing_bytes or facts.skipped_bytes:
            what = f"{facts.missing_bytes:,} bytes before it are not in the capture"
            if facts.skipped_bytes:
                what = f"{facts.skipped_bytes:,} bytes before it belong to no packet" + (
                    f", {facts.missing_bytes:,} are not in the capture" if facts.missing_bytes else ""
                )
            view.findings.append(Finding(NOTE, "missing-bytes", facts.number, what))
            # Of a packet that has a hole, the rest is not among these, but it counts in positions.
            hole_bytes = max(facts.position - half.end, facts.missing_bytes + facts.skipped_bytes)
            is_first = not half.end and facts.opened is not None
            if is_first or half.step is Step.INTRODUCED:
                # Its part of the handshake comes before all messages of it.
                hole_bytes = 0 if facts.kind in STEPS else hole_bytes - HANDSHAKE_BYTES * is_first
            hidden = max(0, hole_bytes // SMALLEST_USER_MESSAGE)
            view.hidden_bytes = hole_bytes if hidden else 0
            self._lose(view, hidden)
        half.end = facts.position + facts.size_bytes

    def _say_port(self, facts: SessionFacts, view: SessionView) -> None:
        """Add a note if only a port shows which end opened the connection, and so which queue manager is at which
        end.
        """
        view.connection.by_port = False
        if isinstance(view.half.key, str) or isinstance(view.other.key, str):
            called = view.connection.server.endpoint
            text = f"nothing here tells who called; by its port {called} is taken to have been called"
            view.findings.append(Finding(NOTE, "caller-by-port", facts.number, text))

    def _lose(self, view: SessionView, hidden: int | None) -> None:
        """Record that the capture lacks some bytes that this end sent, which hold at most `hidden` messages."""
        view.half.lose(hidden)
        view.other.miss_answers()
        view.connection.lose_track()

    # The handshake

    def _take_connection(self, facts: SessionFacts, view: SessionView, before: Step) -> None:
        """Take an EstablishConnection packet: a request or an answer.  3.1.5.3

        These packets alone identify the two ends, whatever the state of their session.
        """
        connection, half, stage = view.connection, view.half, view.connection.stage
        client, server = facts.client or NULL_GUID, facts.server or NULL_GUID
        asks = half is connection.client
        view.answers = not asks
        if self._is_in_turn(facts, view, before, stage is (Stage.NOTHING if asks else Stage.ASKED)):
            half.begin()
            if facts.client is None or facts.server is None:
                connection.lose_track()
            elif asks and stage is Stage.NOTHING:
                connection.stage = Stage.ASKED
                connection.request = facts.number
            elif stage is Stage.ASKED:
                connection.stage = Stage.REFUSED if facts.refused else Stage.GRANTED
                self._take_answer(facts, client, server, view)
            elif not asks and facts.refused and stage is Stage.UNKNOWN:
                self._take_answer(facts, client, server, view)
        if not asks and not facts.refused:
            conflict = self._connections.confirm(connection, client, server)
            view.tells |= conflict is not None
            if conflict:
                view.findings.append(Finding(NOTE, "identity-conflict", facts.number, conflict))
        elif asks and (facts.missing_bytes or facts.skipped_bytes or not connection.asked) and facts.client:
            self._connections.introduce(connection, client, server)

    def _take_answer(self, facts: SessionFacts, client: Guid, server: Guid, view: SessionView) -> None:
        """Check that an answer names the two queue managers of the request.  3.1.5.3.1

        A fault is reported only if the capture has the request and everything that both ends sent after it. A refusal
        needs no other evidence.
        """
        connection, number = view.connection, facts.number
        asked, wanted = connection.client_guid, connection.server_guid
        if facts.refused:
            text = "the acceptor wants no session; it may know this GUID at another address, or have too many"
            if server not in (wanted, NULL_GUID) and wanted != NULL_GUID:
                text += f": it is {guid_text(server)}, asked was for {guid_text(wanted)}"
            view.findings.append(Finding(NOTE, "refused", number, text, "[MS-MQQB] 3.1.5.3.1"))
        elif not facts.ahead and (client != asked or (wanted != NULL_GUID and server != wanted)):
            text = (
                f"it is from {guid_text(server)} to {guid_text(client)}; the request, #{connection.request}, was "
                f"from {guid_text(asked)} to {guid_text(wanted)}"
            )
            others = (connection.request,)
            view.findings.append(Finding(FAULT, "wrong-answer", number, text, "[MS-MQQB] 3.1.5.3.1", others))

    def _take_parameters(self, facts: SessionFacts, view: SessionView, before: Step) -> None:
        """Take a ConnectionParameters packet: a proposal or an answer.  3.1.5.4"""
        connection, half, stage = view.connection, view.half, view.connection.stage
        half.window = max(half.window, facts.window, 1)
        half.offered = True
        proposes = half is connection.client
        is_in_turn = self._is_in_turn(
            facts, view, before, stage is (Stage.GRANTED if proposes else Stage.PROPOSED)
        )
        if proposes and not facts.refused and (is_in_turn or not connection.proposal):
            connection.timeouts_ms, connection.proposal = facts.timeouts_ms, facts.number
        if not is_in_turn:
            return
        if before is Step.UNKNOWN and not half.sent:
            half.begin()  # No message comes before it, whatever is missing there.
        if stage > Stage.REFUSED:
            if not proposes and not facts.refused and view.other.step is Step.ADJUSTED:
                self._compare_timeouts(facts, view)
            return
        view.answers = not proposes
        if facts.refused:
            connection.stage = Stage.REFUSED
            text = f"the {'acceptor' if view.answers else 'initiator'} wants no session after all"
            view.findings.append(Finding(NOTE, "refused", facts.number, text, "[MS-MQQB] 2.2.1"))
        elif proposes:
            connection.stage = Stage.PROPOSED
        else:
            connection.stage = Stage.OPEN
            self._compare_timeouts(facts, view)

    def _compare_timeouts(self, facts: SessionFacts, view: SessionView) -> None:
        """Check that the acceptor's answer repeats the timeouts that were proposed.  3.1.5.4.1

        A fault is reported only if the capture has the proposal and everything that its sender sent after it. Earlier
        packets of the other end do not matter.
        """
        proposed, adopted = view.connection.timeouts_ms, facts.timeouts_ms
        if facts.ahead or proposed is None or adopted is None or proposed == adopted:
            return
        text = (
            f"its timeouts are {adopted[0]:,} and {adopted[1]:,} ms; #{view.connection.proposal} proposed "
            f"{proposed[0]:,} and {proposed[1]:,} ms"
        )
        others = (view.connection.proposal,)
        view.findings.append(
            Finding(FAULT, "wrong-parameters", facts.number, text, "[MS-MQQB] 3.1.5.4.1", others)
        )

    def _take_turn(self, facts: SessionFacts, view: SessionView, before: Step) -> None:
        """Check that a UserMessage or SessionAck comes only after the session is open.  3.1.5.5, 3.1.5.8"""
        stage = view.connection.stage
        if before is not Step.TALKING or (stage is not OPEN and stage is not Stage.UNKNOWN):
            self._is_in_turn(facts, view, before, stage is OPEN)

    def _is_in_turn(self, facts: SessionFacts, view: SessionView, before: Step, fits: bool) -> bool:
        """Return whether a packet may come here, as far as the capture shows.

        If it may not, its receiver closes the session. A fault is certain in two cases. Either the packet may never
        follow the previous packet of the same end, and nothing is missing between the two. Or the capture has
        everything that both ends have sent from the beginning, and the packet is not `ahead`, so that no unseen answer
        can have allowed it. As long as an end has no packets, its beginning is unknown.

        Args:
            before: the previous packet of the same end.
            fits: whether the handshake expects the packet here.
        """
        half, connection, stage = view.half, view.connection, view.connection.stage
        follows = half.step in MAY_FOLLOW[before]
        if follows and (fits or stage > Stage.REFUSED):
            return True
        connection.lose_track()
        if follows and (facts.ahead or Step.UNKNOWN in (before, view.other.step)):
            return False
        half.step = Step.UNKNOWN  # What comes next is not wrong for that as well.
        state = BEHIND[before] if facts.ahead or stage > Stage.REFUSED else STATES[stage]
        section = SECTIONS.get(facts.kind, "[MS-MQQB] 3.1.5.8")
        text = f"{facts.kind}, though {state}"
        view.findings.append(Finding(FAULT, "out-of-turn", facts.number, text, section))
        return False

    # Messages and their acknowledgments

    def _count(self, facts: SessionFacts, recoverable: bool, view: SessionView) -> None:
        """Number a UserMessage, and check that it stays within the window.  3.1.1.3.1

        The check needs a lower limit for how many messages were sent before this one. It also needs the last
        acknowledgment of these messages, with nothing missing from the other end since that acknowledgment. Finally, it
        needs the ConnectionParameters of both ends, because no later window is larger than theirs.
        """
        half, other = view.half, view.other
        view.sent = half.count(facts.number, recoverable=recoverable)
        if half.sent is None or half.acknowledged is None or half.stale or facts.ahead:
            return
        window = max(half.window, other.window)
        waiting = ahead(half.sent, half.acknowledged)
        if not (half.offered and other.offered and window < waiting < HALF_CIRCLE):
            half.over = False
        elif not half.over:
            half.over = True
            text = f"{waiting:,} messages are not acknowledged; the window is {window:,}"
            finding = Finding(FAULT, "window-exceeded", facts.number, text, "[MS-MQQB] 3.1.1.3.1")
            view.findings.append(finding)

    def _take_session_header(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> None:
        """Take a session acknowledgment, alone or with a message.  3.1.5.5"""
        half, other = view.half, view.other
        half.window = max(half.window, header.window_size)
        if self._take_acknowledgment(facts, header, view):
            view.answered += view.received
        if header.recoverable_msg_ack_flags and self._take_saved(facts, header, view):
            view.answered += view.saved
        if other.adrift:
            other.hear(facts)
        self._compare_counts(facts, header, view)

    def _compare_counts(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> None:
        """Check UserMsgSequenceNumber and RecoverableMsgSeqNumber, the sender's counts of the messages it sent.
        3.1.5.5.5

        This needs the counts at the beginning, or in an earlier header of the same end. It also needs everything that
        this end has sent since then, or how much of it is missing.
        """
        half = view.half
        counted = (header.user_msg_sequence_number, header.recoverable_msg_seq_number)
        is_right = half.could_have_sent(*counted)
        if not is_right:
            text = (
                f"it says that {counted[0]:,} messages were sent, {counted[1]:,} of them recoverable; counted are "
                f"{_shown(half.sent, half.most)} and {_shown(half.recoverable_sent, half.most_recoverable)}"
            )
            finding = Finding(FAULT, "wrong-count", facts.number, text, "[MS-MQQB] 3.1.5.5.5")
            view.findings.append(finding)
        elif half.sent is not None:
            view.is_counted = counted[1] == half.recoverable_sent
        view.learnt = half.settle(*counted, numbered=is_right)
        view.answered += view.learnt

    def _take_acknowledgment(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> bool:
        """Check that AckSequenceNumber neither goes backwards nor covers unsent messages.  3.1.5.5.1

        To find that it goes backwards, this needs an earlier AckSequenceNumber of the same end, with nothing missing
        from that end since then; otherwise the earlier one may belong to another session. To find that it covers unsent
        messages, this needs a packet that is not `ahead`, and an upper limit for how many messages the other end has
        sent.
        """
        number, acknowledged, other = facts.number, header.ack_sequence_number, view.other
        before, is_near = other.acknowledged, self._is_near(view)
        if before is not None and is_near and not at_or_before(before, acknowledged):
            if facts.ahead and other.stale:
                other.acknowledged = None
                return False
            text = f"it acknowledges message {acknowledged:,}, after one that acknowledged {before:,}"
            view.findings.append(Finding(FAULT, "ack-backwards", number, text, "[MS-MQQB] 3.1.5.5.1"))
            return False
        if other.sent is not None and is_near and not facts.ahead:
            if not at_or_before(acknowledged, other.most):
                text = f"it acknowledges message {acknowledged:,}; {_last(other.sent, other.most)}"
                finding = Finding(FAULT, "ack-beyond-sent", number, text, "[MS-MQQB] 3.1.5.5.1")
                view.findings.append(finding)
                return False
            if not at_or_before(acknowledged, other.sent):
                other.sent = acknowledged  # So many there were at least.
        other.acknowledged = acknowledged
        other.stale = other.torn = False
        view.received = other.received(facts)
        return True

    def _is_near(self, view: SessionView) -> bool:
        """Whether 16 bits are enough to show which of two counts is higher, because few messages wait.

        A window of 1 proves nothing, because both ends use it to announce a paused queue.  3.1.7.13
        """
        other = view.other
        if other.sent is not None and other.acknowledged is not None:
            return ahead(other.most, other.acknowledged) < HALF_CIRCLE
        return 1 < max(view.half.window, other.window) < HALF_CIRCLE

    def _take_saved(self, facts: SessionFacts, header: SessionHeader, view: SessionView) -> bool:
        """Check RecoverableMsgAckFlags: only messages that were sent can be saved.  3.1.5.5.3

        To find that unsent messages are acknowledged, this needs a packet that is not `ahead`, and an upper limit for
        how many recoverable messages the other end has sent.
        """
        base, flags, other = (
            header.recoverable_msg_ack_seq_number,
            header.recoverable_msg_ack_flags,
            view.other,
        )
        last = (base + flags.bit_length() - 1) & 0xFFFF
        if other.sent is not None and not facts.ahead and not at_or_before(last, other.most_recoverable):
            sent = _last(other.recoverable_sent, other.most_recoverable)
            text = f"it says that recoverable message {last:,} is saved; {sent}"
            finding = Finding(FAULT, "saved-beyond-sent", facts.number, text, "[MS-MQQB] 3.1.5.5.3")
            view.findings.append(finding)
            return False
        view.saved = other.saved(facts)
        return True


def _shown(least: int | None, most: int) -> str:
    """Return a count in words, as a range if only its limits are known."""
    return f"{most:,}" if least in (None, most) else f"{least:,} to {most:,}"


def _last(least: int, most: int) -> str:
    """Return, in words, the number of the last message that was sent, or the highest number that it can have."""
    return f"the last one sent was {most:,}" + ("" if least == most else " at most")
