"""Is a session by the book? Handshake, counts, windows, acknowledgments.  [MS-MQQB] 3.1.1.6.1, 3.1.5.3 to 3.1.5.5

A capture may lack segments that the two ends had. Whatever the other direction could explain is therefore kept as a
suspicion until that direction shows its next packet: if nothing is missing before it, the suspicion was right.
"""

from __future__ import annotations

from collections.abc import Iterator

from captures.decode.connections import (
    MSMQ_PORT,
    Connection,
    Connections,
    Half,
    Stage,
    ahead,
    at_or_before,
)
from captures.decode.findings import Finding, Severity
from captures.decode.sight import Acknowledged, Kind, Sight
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    SessionHeader,
    UserMessage,
    guid_text,
)

FAULT, NOTE = Severity.FAULT, Severity.NOTE
OPEN = Stage.OPEN


class SessionChecker:
    """Follows every session of a capture. State is bounded for each connection, and so is the number of these."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def take(self, sight: Sight) -> Half:
        """Look at the next packet of a connection: names, counts and findings go into its sight.

        Returns:
            The half that sent it.
        """
        seen = sight.seen
        begins = sight.kind is Kind.ESTABLISH_CONNECTION and seen.source.port != MSMQ_PORT
        connection = self._connections.find(seen, begins=begins)
        half, other = connection.halves(seen.source)
        self._follow_stream(sight, connection, half, other)
        packet = seen.packet
        if type(packet) is UserMessage:
            self._take_turn(sight, connection, half)
            self._count(sight, packet, half, other)
        elif type(packet) is EstablishConnection:
            self._take_connection(sight, packet, connection, half)
        elif type(packet) is ConnectionParameters:
            self._take_parameters(sight, packet, connection, half)
        elif sight.kind is Kind.SESSION_ACK:
            self._take_turn(sight, connection, half)
        else:
            half.forget_counts()
        if sight.session is not None:
            self._take_session_header(sight, sight.session, half, other)
        sight.source, sight.destination = half.label, other.label
        sight.hop = half.hop
        return half

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

    def _follow_stream(self, sight: Sight, connection: Connection, half: Half, other: Half) -> None:
        """Whether this packet follows upon the last one of its half decides what was suspected meanwhile."""
        seen = sight.seen
        half.seen = True
        if seen.missing_bytes or seen.skipped_bytes:
            what = f"{seen.missing_bytes:,} bytes before it are not in the capture"
            if seen.skipped_bytes:
                what = f"{seen.skipped_bytes:,} bytes before it belong to no packet" + (
                    f", {seen.missing_bytes:,} are not in the capture" if seen.missing_bytes else ""
                )
            sight.findings.append(Finding(NOTE, "missing-bytes", seen.number, what))
            half.lossy = True
            half.suspicions.clear()
            half.forget_counts()
            other.acknowledged = None
            connection.lose_track()
        elif half.suspicions:
            sight.findings += half.suspicions
            half.suspicions.clear()

    # The handshake

    def _take_connection(
        self, sight: Sight, packet: EstablishConnection, connection: Connection, half: Half
    ) -> None:
        """An EstablishConnection packet asks or answers.  3.1.5.3"""
        stage = connection.stage
        if stage is Stage.UNKNOWN:
            return
        if half is connection.client and stage is Stage.NOTHING:
            connection.stage = Stage.ASKED
            self._connections.introduce(connection, packet.client_guid, packet.server_guid)
            for each in (connection.client, connection.server):
                each.sent = each.recoverable_sent = each.acknowledged = 0
            return
        if half is connection.server and stage is Stage.ASKED:
            sight.answers = True
            self._take_answer(sight, packet, connection)
            return
        self._out_of_turn(sight, connection, half)

    def _take_answer(self, sight: Sight, packet: EstablishConnection, connection: Connection) -> None:
        number = sight.seen.number
        connection.stage = Stage.REFUSED if packet.refused else Stage.GRANTED
        asked, wanted = connection.client_guid, connection.server_guid
        if packet.refused:
            text = "the acceptor wants no session"
            if packet.server_guid not in (wanted, NULL_GUID) and wanted != NULL_GUID:
                text += f": it is {guid_text(packet.server_guid)}, asked was for {guid_text(wanted)}"
            sight.findings.append(Finding(NOTE, "refused", number, text, "[MS-MQQB] 3.1.5.3.1"))
            return
        if packet.client_guid != asked or (wanted != NULL_GUID and packet.server_guid != wanted):
            text = (
                f"it is from {guid_text(packet.server_guid)} to {guid_text(packet.client_guid)}; the request was "
                f"from {guid_text(asked)} to {guid_text(wanted)}"
            )
            sight.findings.append(Finding(FAULT, "wrong-answer", number, text, "[MS-MQQB] 3.1.5.3.1"))
            return
        self._connections.confirm(connection, packet.server_guid)

    def _take_parameters(
        self, sight: Sight, packet: ConnectionParameters, connection: Connection, half: Half
    ) -> None:
        """A ConnectionParameters packet proposes or answers.  3.1.5.4"""
        half.window = max(half.window, packet.window_size, 1)
        stage = connection.stage
        if stage is Stage.UNKNOWN:
            return
        if half is connection.client and stage is Stage.GRANTED:
            connection.stage = Stage.PROPOSED
        elif half is connection.server and stage is Stage.PROPOSED:
            sight.answers = True
            connection.stage = Stage.OPEN
        else:
            self._out_of_turn(sight, connection, half)

    def _take_turn(self, sight: Sight, connection: Connection, half: Half) -> None:
        """UserMessages and SessionAcks are welcome once the session is open.  3.1.5.5, 3.1.5.8"""
        if connection.stage is not OPEN and connection.stage is not Stage.UNKNOWN:
            self._out_of_turn(sight, connection, half)

    def _out_of_turn(self, sight: Sight, connection: Connection, half: Half) -> None:
        """A packet that its receiver closes the session for; unless it had answers that the capture lacks."""
        section = {
            Kind.ESTABLISH_CONNECTION: "[MS-MQQB] 3.1.5.3",
            Kind.CONNECTION_PARAMETERS: "[MS-MQQB] 3.1.5.4",
            Kind.SESSION_ACK: "[MS-MQQB] 3.1.5.5",
        }.get(sight.kind, "[MS-MQQB] 3.1.5.8")
        state = {
            Stage.NOTHING: "nobody has asked for a session",
            Stage.ASKED: "the request for a session has no answer yet",
            Stage.GRANTED: "the session has no parameters yet",
            Stage.PROPOSED: "the session's parameters have no answer yet",
            Stage.OPEN: "the session is open",
            Stage.REFUSED: "the session was refused",
        }[connection.stage]
        finding = Finding(FAULT, "out-of-turn", sight.seen.number, f"{sight.kind}, though {state}", section)
        _, other = connection.halves(half.endpoint)
        other.suspect(finding)
        connection.lose_track()

    # Messages and their acknowledgments

    def _count(self, sight: Sight, message: UserMessage, half: Half, other: Half) -> None:
        """A UserMessage has the next number of its session.  [MS-MQMQ] 2.2.20.4"""
        if half.sent is None:
            return
        number = sight.seen.number
        half.sent = sight.count = (half.sent + 1) & 0xFFFF
        half.unacknowledged.append((half.sent, number))
        if message.user.recoverable and half.recoverable_sent is not None:
            half.recoverable_sent = sight.recoverable_count = (half.recoverable_sent + 1) & 0xFFFF
            half.unsaved.append((half.recoverable_sent, number))
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

    def _take_session_header(self, sight: Sight, header: SessionHeader, half: Half, other: Half) -> None:
        """A session acknowledgment, alone or riding on a message.  3.1.5.5"""
        half.window = max(half.window, header.window_size)
        self._take_acknowledgment(sight, header, other)
        if header.recoverable_msg_ack_flags:
            self._take_saved(sight, header, other)
        counted = (header.user_msg_sequence_number, header.recoverable_msg_seq_number)
        if half.sent is not None and counted != (half.sent, half.recoverable_sent):
            text = (
                f"it says that {counted[0]:,} messages were sent, {counted[1]:,} of them recoverable; the capture has "
                f"{half.sent:,} and {half.recoverable_sent:,}"
            )
            finding = Finding(FAULT, "wrong-count", sight.seen.number, text, "[MS-MQQB] 3.1.5.5.5")
            sight.findings.append(finding)
            half.forget_counts()
        half.sent, half.recoverable_sent = counted

    def _take_acknowledgment(self, sight: Sight, header: SessionHeader, other: Half) -> None:
        """AckSequenceNumber: all up to it have been received.  3.1.5.5.1"""
        number, acknowledged = sight.seen.number, header.ack_sequence_number
        if other.acknowledged is not None and not at_or_before(other.acknowledged, acknowledged):
            text = f"it acknowledges message {acknowledged:,}, after one that acknowledged {other.acknowledged:,}"
            sight.findings.append(Finding(FAULT, "ack-backwards", number, text, "[MS-MQQB] 3.1.5.5.1"))
            return
        if other.sent is not None and not at_or_before(acknowledged, other.sent):
            text = f"it acknowledges message {acknowledged:,}; the last one sent was {other.sent:,}"
            finding = Finding(FAULT, "ack-beyond-sent", number, text, "[MS-MQQB] 3.1.5.5.1")
            other.suspect(finding)
            return
        other.acknowledged = acknowledged
        packets = []
        while other.unacknowledged and at_or_before(other.unacknowledged[0][0], acknowledged):
            packets.append(other.unacknowledged.popleft()[1])
        if packets:
            sight.received = Acknowledged(packets)

    def _take_saved(self, sight: Sight, header: SessionHeader, other: Half) -> None:
        """Bit k: recoverable message RecoverableMsgAckSeqNumber + k is saved; so are all before bit 0.  3.1.5.5.3"""
        base, flags = header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags
        last = (base + flags.bit_length() - 1) & 0xFFFF
        if other.recoverable_sent is not None and not at_or_before(last, other.recoverable_sent):
            text = (
                f"it says that recoverable message {last:,} is saved; the last one sent was "
                f"{other.recoverable_sent:,}"
            )
            finding = Finding(FAULT, "saved-beyond-sent", sight.seen.number, text, "[MS-MQQB] 3.1.5.5.3")
            other.suspect(finding)
            return
        packets = []
        kept = []
        while other.unsaved and at_or_before(other.unsaved[0][0], last):
            entry = other.unsaved.popleft()
            place = ahead(entry[0], base)
            if place >= 0x8000 or flags >> place & 1:
                packets.append(entry[1])
            else:
                kept.append(entry)
        other.unsaved.extendleft(reversed(kept))
        if packets:
            sight.saved = Acknowledged(packets)
