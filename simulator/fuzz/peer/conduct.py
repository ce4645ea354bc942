"""The judge of one connection: it knows the peer's duties and rights as the acceptor of [MS-MQQB] 3.1.5.

`said` takes our bytes, and `heard` takes the peer's, both as they come. A peer may close a connection at any time. It
is a fault not to close it where the specification demands that. The judge uses mqproto's codec, but not its sessions.
It is a second implementation of the specification, so that it also finds faults of our sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from mqproto.base.errors import WireFormatError
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    Guid,
    PacketBuffer,
    SessionAck,
    SessionHeader,
    UserMessage,
    decode_packet,
    guid_text,
)

HALF: Final = 0x8000
"""Half of the range of 16-bit numbers, which wrap around. A number that seems to be this far ahead, or further, is
behind.
"""


class PeerFailure(StrEnum):
    """The ways in which a peer fails."""

    HANGS = "hangs"
    CRASHES = "crashes"
    WRONG = "answers wrongly"
    STARVES = "stops serving others"
    GROWS = "grows"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a peer.

    rule: the rule that the peer broke, without numbers that vary from case to case; findings are grouped by it.
    detail: what was seen.
    """

    oracle: PeerFailure
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.rule}" + (f": {self.detail}" if self.detail else "")


class Stage(Enum):
    """The state of a session, as the peer must see it once it has read our packets.

    REFUSED means that the peer or we refused the session, or that the peer should have refused it. CLOSED means that
    the peer has to close the connection.
    """

    WAITING_EC_MSG = "before EstablishConnection"
    WAITING_CP_MSG = "before ConnectionParameters"
    OPEN = "in an open session"
    REFUSED = "after a refusal"
    CLOSED = "after a fault"


class Conduct:
    """Judges both sides of one connection that we opened.

    Args:
        server: the peer's queue manager, if it is known.
    """

    def __init__(self, server: Guid | None = None) -> None:
        self.server = server
        self.stage = Stage.WAITING_EC_MSG
        self.fault: Fault | None = None
        self.answer_count = 0
        """The number of packets that the peer has sent."""
        self.answered_by: Guid | None = None
        """The queue manager that answered us."""
        self._ours = PacketBuffer()
        self._theirs = PacketBuffer()
        self._request: EstablishConnection | None = None
        self._request_answered = False
        self._proposal: ConnectionParameters | None = None
        self._is_open = False
        self._close_reason = ""
        self._close_rule = ""
        self._sent = self._recoverable_sent = self._duplicates = 0
        self._acknowledged = self._saved = 0
        self._received = self._recoverable_received = 0
        self._identities: set[tuple[Guid, int]] = set()
        self._finished = False

    @property
    def is_refused(self) -> bool:
        """Whether the session was refused, or should have been."""
        return self.stage is Stage.REFUSED

    @property
    def is_open(self) -> bool:
        """Whether the peer has sent everything that opens a session."""
        return self._is_open

    @property
    def is_unheard(self) -> bool:
        """Whether the peer has received a correct request for a session but has sent nothing."""
        return self._request is not None and not self.answer_count

    @property
    def owed(self) -> Fault | None:
        """Return the fault to report if the peer never sends the answer that it owes now, or None if it owes
        nothing.
        """
        if self._finished:
            return None
        if self._request is not None and not self._request_answered:
            return _owes("an answer to EstablishConnection (3.1.5.3.1)")
        if self.stage is Stage.REFUSED:
            return None
        if self._proposal is not None and not self._is_open:
            return _owes("an answer to ConnectionParameters (3.1.5.4.1)")
        if self.stage is Stage.CLOSED:
            return Fault(PeerFailure.HANGS, f"it should have closed {self._close_rule}", self._close_reason)
        missing = self._sent - self._duplicates - self._acknowledged & 0xFFFF
        if self._is_open and 0 < missing < HALF:
            detail = f"{self._sent} messages were sent, and {self._acknowledged} acknowledged"
            return _owes("a session acknowledgment (3.1.2.5, 3.1.5.8.7)", detail)
        return None

    def finish(self) -> None:
        """Record that we closed our half of the connection, or all of it, so that nothing is owed any more."""
        self._finished = True

    # What we say

    def said(self, data: bytes) -> None:
        """Process bytes that we sent."""
        try:
            for raw in self._ours.feed(data):
                if self.stage is Stage.CLOSED:
                    return
                self._take_ours(decode_packet(raw))
            if self._ours.fault is not None:
                raise self._ours.fault
        except WireFormatError as error:
            self._must_close(f"after bytes that form no packet, by {error.field} (3.1.5.1.3)", str(error))

    def _take_ours(self, packet: object) -> None:
        if self.stage is Stage.REFUSED:
            return
        match packet:
            case EstablishConnection() if self.stage is Stage.WAITING_EC_MSG:
                self._request = packet
                self.stage = Stage.WAITING_CP_MSG
                if self.server is not None and packet.server_guid not in (self.server, NULL_GUID):
                    self.stage = Stage.REFUSED
            case ConnectionParameters() if self.stage is Stage.WAITING_CP_MSG:
                self._proposal = packet
                self.stage = Stage.REFUSED if packet.refused else Stage.OPEN
            case SessionAck() if self.stage is Stage.OPEN:
                self._take_our_header(packet.session)
            case UserMessage() if self.stage is Stage.OPEN:
                self._take_our_message(packet)
            case _:
                self._must_close(f"on {type(packet).__name__} {self.stage.value} (3.1.5)", "")

    def _take_our_message(self, message: UserMessage) -> None:
        user = message.user
        self._sent = self._sent + 1 & 0xFFFF
        self._recoverable_sent = self._recoverable_sent + user.recoverable & 0xFFFF
        identity = user.source_queue_manager, user.message_id
        if message.transaction is None and identity in self._identities:
            self._duplicates += 1  # By the letter of 3.1.5.8.1 it is not counted; other peers count it.
        self._identities.add(identity)
        if message.session is not None:
            self._take_our_header(message.session)

    def _take_our_header(self, header: SessionHeader) -> None:
        """Process our counts. If they differ from the peer's own counts, the peer must close the session.  3.1.5.5.5"""
        counts = header.user_msg_sequence_number, header.recoverable_msg_seq_number
        if counts != (self._sent, self._recoverable_sent) and not self._duplicates:
            detail = (
                f"we said {counts[0]} and {counts[1]}, and sent {self._sent} and {self._recoverable_sent}"
            )
            self._must_close("on wrong message counts (3.1.5.5.5)", detail)

    def _must_close(self, rule: str, reason: str) -> None:
        """Record that the peer now has to close the connection. Only the first reason is kept."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        self._close_rule, self._close_reason = rule, reason

    # What the peer says

    def heard(self, data: bytes) -> None:
        """Process bytes that the peer sent."""
        if self.fault is not None:
            return
        try:
            for raw in self._theirs.feed(data):
                self.answer_count += 1
                self._take_theirs(decode_packet(raw))
                if self.fault is not None:
                    return
            if self._theirs.fault is not None:
                raise self._theirs.fault
        except WireFormatError as error:
            head = data[:24].hex(" ")
            self._wrong("what it says is not a packet (3.1.5.1.3)", f"{error}; it says {head}")

    def ended(self) -> None:
        """Record that the peer closed the connection in an orderly way. Its last packet must have been complete."""
        if self._theirs.pending_bytes and self.fault is None and self.stage is not Stage.CLOSED:
            self._wrong("its packet breaks off (3.1.5.9)", f"after {self._theirs.pending_bytes} bytes")

    def _take_theirs(self, packet: object) -> None:
        match packet:
            case EstablishConnection():
                self._take_answer(packet)
            case ConnectionParameters():
                self._take_parameters(packet)
            case _ if not self._is_open:
                self._wrong(f"{type(packet).__name__} before the session is open (3.1.5.8)", "")
            case SessionAck():
                self._take_header(packet.session)
            case UserMessage():
                self._received = self._received + 1 & 0xFFFF
                self._recoverable_received = self._recoverable_received + packet.user.recoverable & 0xFFFF
                if packet.session is not None:
                    self._take_header(packet.session)

    def _take_answer(self, answer: EstablishConnection) -> None:
        """Judge the answer to EstablishConnection.  3.1.5.3.1"""
        request = self._request
        if request is None or self._request_answered:
            what = "a second EstablishConnection" if self._request_answered else "an answer to no request"
            self._wrong(f"{what} (3.1.5.3.1)", "")
            return
        self._request_answered = True
        self.answered_by = answer.server_guid
        if answer.client_guid != request.client_guid:
            seen = f"{guid_text(answer.client_guid)} instead of {guid_text(request.client_guid)}"
            self._wrong("another ClientGuid than was asked with (3.1.5.3.1)", seen)
        elif answer.time_stamp_ms != request.time_stamp_ms:
            seen = f"{answer.time_stamp_ms} instead of {request.time_stamp_ms}"
            self._wrong("another TimeStamp than was asked with (3.1.5.3.1)", seen)
        elif self.server is not None and answer.server_guid != self.server:
            seen = f"{guid_text(answer.server_guid)} instead of {guid_text(self.server)}"
            self._wrong("another ServerGuid than before (3.1.5.3.1)", seen)
        elif answer.refused:
            self.stage = Stage.REFUSED
        elif self.stage is Stage.REFUSED:
            self._wrong(
                "a session for a request to another queue manager (3.1.5.3.1)",
                guid_text(request.server_guid),
            )

    def _take_parameters(self, answer: ConnectionParameters) -> None:
        """Judge the answer to ConnectionParameters.  3.1.5.4.1"""
        proposal = self._proposal
        if proposal is None or self._is_open:
            what = "a second ConnectionParameters" if self._is_open else "an answer to no proposal"
            self._wrong(f"{what} (3.1.5.4.1)", "")
            return
        if answer.refused:  # 2.2.1
            self.stage = Stage.REFUSED
            return
        self._is_open = True
        said = answer.recoverable_ack_timeout_ms, answer.ack_timeout_ms
        asked = proposal.recoverable_ack_timeout_ms, proposal.ack_timeout_ms
        if said != asked:
            self._wrong("other timeouts than were proposed (3.1.5.4.1)", f"{said} ms instead of {asked} ms")

    def _take_header(self, header: SessionHeader) -> None:
        """Judge a SessionHeader: it may acknowledge only messages that we sent, and its counts may only grow.
        3.1.5.5
        """
        if (self._sent - header.ack_sequence_number) & 0xFFFF >= HALF:
            seen = f"message {header.ack_sequence_number}, and {self._sent} is the last it can have"
            self._wrong("it acknowledges what it cannot have got (3.1.5.5.1)", seen)
            return
        if (header.ack_sequence_number - self._acknowledged) & 0xFFFF >= HALF:
            seen = f"message {header.ack_sequence_number} after {self._acknowledged}"
            self._wrong("its acknowledgments go backwards (3.1.5.5.1)", seen)
            return
        self._acknowledged = header.ack_sequence_number
        if header.recoverable_msg_ack_flags:
            last = header.recoverable_msg_ack_seq_number + header.recoverable_msg_ack_flags.bit_length() - 1
            if (self._recoverable_sent - last) & 0xFFFF >= HALF:
                seen = f"message {last & 0xFFFF}, and {self._recoverable_sent} is the last it can have"
                self._wrong("it has saved what it cannot have got (3.1.5.5.3)", seen)
                return
        said = header.user_msg_sequence_number, header.recoverable_msg_seq_number
        if said != (self._received, self._recoverable_received):
            seen = (
                f"{said[0]} messages, {said[1]} recoverable; "
                f"{self._received} came, {self._recoverable_received} recoverable"
            )
            self._wrong("it counts its messages wrongly (3.1.5.5.5)", seen)

    def _wrong(self, rule: str, detail: str) -> None:
        self.fault = Fault(PeerFailure.WRONG, rule, detail)


def _owes(what: str, detail: str = "") -> Fault:
    return Fault(PeerFailure.HANGS, f"it owes {what}", detail)
