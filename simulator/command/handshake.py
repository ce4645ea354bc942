"""Judges how an unknown host answers a connection request.

`Handshake` takes the bytes as they arrive; it has no socket.

It begins a session with any peer, as for a direct format name ([MS-MQQB] 3.1.5.2.3), and stops before messages could be
sent. It never keeps more of the peer's bytes than one packet of a handshake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.base.errors import WireFormatError
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    EstablishConnection,
    Guid,
    Packet,
    PacketBuffer,
    UnwelcomeError,
    Welcome,
    decode_packet,
    encode_packet,
    establish_connection,
    guid_text,
)

ANSWER: Final = Welcome.of(EstablishConnection)
PARAMETERS: Final = Welcome.of(ConnectionParameters)
SHOWN_BYTES: Final = 24
SIGNATURE: Final = slice(4, 8), b"LIOR"
"""The position of the signature in each packet, and the signature itself.  [MS-MQMQ] 2.2.19.1"""


class Outcome(StrEnum):
    """The result of a connection request over TCP, or of a ping."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    INVALID = "invalid"
    """The peer's data begins like a packet of MSMQ, but is not an answer."""
    FOREIGN = "foreign"
    """The peer's data is not a packet of MSMQ."""
    CLOSED = "closed"
    SILENT = "silent"
    UNREACHABLE = "unreachable"

    @property
    def is_msmq(self) -> bool:
        """Whether only MSMQ gives such an answer."""
        return self in (Outcome.ACCEPTED, Outcome.REFUSED)


@dataclass(slots=True)
class HandshakeFinding:
    """What a handshake has found. Fields that the peer did not reveal are None.

    detail: the outcome in words.
    remarks: the ways in which an answer differs from the specification.
    """

    outcome: Outcome = Outcome.SILENT
    detail: str = ""
    connect_ms: float | None = None
    round_trip_ms: float | None = None
    manager: Guid | None = None
    operating_system: int | None = None
    window_size: int | None = None
    ack_timeout_ms: int | None = None
    recoverable_ack_timeout_ms: int | None = None
    remarks: list[str] = field(default_factory=list)


class Handshake:
    """One conversation, from our request to the peer's ConnectionParameters.

    Args:
        client: the queue manager that we claim to be.
        now_s: the current time, on any clock that does not go back.
    """

    def __init__(self, client: Guid, now_s: float) -> None:
        self.finding = HandshakeFinding()
        self.is_over = False
        self._client = client
        self._began_s = now_s
        self._buffer = PacketBuffer()
        self._head = b""
        self._time_stamp_ms = int(now_s * 1_000) % 2**32
        self.request = encode_packet(
            establish_connection(
                client=client, server=NULL_GUID, time_stamp_ms=self._time_stamp_ms, ping=True
            )
        )

    def receive(self, data: bytes, now_s: float) -> bytes:
        """Take bytes from the peer; return the bytes to reply with."""
        if len(self._head) < SHOWN_BYTES:
            self._head = (self._head + data)[:SHOWN_BYTES]
        try:
            packets = self._buffer.feed(data, ANSWER if self.finding.manager is None else PARAMETERS)
            if packets:
                return self._take(decode_packet(packets[0]), now_s)
        except UnwelcomeError as error:
            self._judge(f"{error.kind.__name__} is not what comes here")
        except WireFormatError as error:
            self._judge(str(error))
        return b""

    def ended(self, outcome: Outcome, detail: str) -> None:
        """Record that the peer has closed the connection, or that the time is up.

        Args:
            outcome: the result if the peer has sent nothing.
            detail: the result in words. It becomes a remark if the peer has answered, but has sent no
                ConnectionParameters.
        """
        if self.is_over:
            return
        if self._head and self.finding.manager is None:
            self._judge("its packet breaks off")
        elif self.finding.manager is None:
            self._end(outcome, detail)
        else:
            self._remark(f"no ConnectionParameters came: it {detail}")

    def _take(self, packet: Packet, now_s: float) -> bytes:
        if isinstance(packet, EstablishConnection):
            return self._take_answer(packet, now_s)
        assert isinstance(packet, ConnectionParameters), "nothing else is welcome"
        if packet.refused:
            self._end(Outcome.REFUSED, "MSMQ, refuses us a session in its ConnectionParameters")
            return b""
        self.finding.window_size = packet.window_size
        self.finding.ack_timeout_ms = packet.ack_timeout_ms
        self.finding.recoverable_ack_timeout_ms = packet.recoverable_ack_timeout_ms
        self.is_over = True
        return b""

    def _take_answer(self, answer: EstablishConnection, now_s: float) -> bytes:
        if answer.client_guid != self._client:
            self._judge(
                f"it answers queue manager {guid_text(answer.client_guid)}, and that is not who asked"
            )
            return b""
        finding = self.finding
        finding.round_trip_ms = 1_000 * (now_s - self._began_s)
        finding.manager = answer.server_guid
        finding.operating_system = answer.operating_system
        if answer.server_guid == NULL_GUID:
            finding.remarks.append("it presents the null GUID")
        if answer.time_stamp_ms != self._time_stamp_ms:
            finding.remarks.append("it does not repeat our TimeStamp")
        if answer.refused:
            self._end(Outcome.REFUSED, "MSMQ, refuses us a session")
            return b""
        finding.outcome, finding.detail = Outcome.ACCEPTED, "MSMQ, accepts a session"
        settings = Settings()
        return encode_packet(
            ConnectionParameters(
                recoverable_ack_timeout_ms=500,
                ack_timeout_ms=settings.ack_wait_timeout_ms,
                window_size=settings.window_size,
            )
        )

    def _judge(self, reason: str) -> None:
        """Judge a peer that sent unexpected data or ended too early."""
        place, signature = SIGNATURE
        if self.finding.manager is not None:
            self._remark(f"no ConnectionParameters came: {reason}")
        elif self._head[place] == signature:
            self._end(Outcome.INVALID, f"begins like MSMQ, and gives no answer: {reason}")
        else:
            self._end(Outcome.FOREIGN, f"not MSMQ: it says {shown(self._head)}")

    def _remark(self, text: str) -> None:
        self.finding.remarks.append(text)
        self.is_over = True

    def _end(self, outcome: Outcome, detail: str) -> None:
        self.finding.outcome, self.finding.detail = outcome, detail
        self.is_over = True


def shown(data: bytes) -> str:
    """Return bytes in hex and as text, with a dot for each byte that is not a printable character."""
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{data.hex(' ')}  {text}"
