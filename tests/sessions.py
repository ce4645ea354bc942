"""Sessions in any state, without a queue manager around them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.session import InFlight, Session, SessionState
from mqproto.turn.effects import MessageRow
from mqproto.wire import (
    Guid,
    Packet,
    SessionAck,
    SessionHeader,
    decode_packet,
    encode_packet,
    user_message,
)
from mqproto.wire.shapes import Run
from tests.pair import guid_of

US, THEM, OTHER = guid_of("us"), guid_of("them"), guid_of("other")
NOW = Moment(uptime_ms=5_000, utc_s=1_700_000_000)
SETTINGS = Settings()


def later(milliseconds: int) -> Moment:
    """Return the moment this many milliseconds after NOW."""
    return Moment(NOW.uptime_ms + milliseconds, NOW.utc_s + milliseconds // 1_000)


def a_session(
    state: SessionState = SessionState.OPEN,
    *,
    initiator: bool = True,
    remote_qm: Guid | None = THEM,
    direct: bool = False,
    settings: Settings = SETTINGS,
    received_window_size: int = 64,
) -> Session:
    """Return a session with its own timers; it starts in `state`, as if packets had brought it there."""
    session = Session(
        7,
        initiator=initiator,
        local_qm=US,
        remote_qm=remote_qm,
        remote_address="10.0.0.7",
        direct=direct,
        settings=settings,
        timers=Timers(),
    )
    session.data.state = state
    session.data.received_window_size = received_window_size
    return session


def receive(session: Session, packet: Packet | bytes, now: Moment = NOW) -> int:
    """Make one packet arrive; return the number of UserMessages that the session found in it."""
    data = packet if isinstance(packet, bytes) else encode_packet(packet)
    return len(packets_of(session.receive(data, now)))


def packets_of(runs: Iterable[Run]) -> list[bytes]:
    """Return the packets of the UserMessages that a session found, in order."""
    return [packet for run in runs for packet in run.packets]


def sent(session: Session) -> list[Packet]:
    """Return, as packets, the bytes that the session wants to write."""
    return [decode_packet(chunk) for chunk in session.take_outbox()]


def acks_of(packets: Iterable[Packet]) -> list[SessionHeader]:
    """Return the SessionHeaders in some packets, whether they are in a SessionAck or on a message."""
    headers = [p.session for p in packets if hasattr(p, "session")]
    return [header for header in headers if header is not None]


def a_packet(number: int = 1, *, recoverable: bool = True, body: bytes = b"x") -> bytes:
    """Return a UserMessage as bytes on the wire."""
    return encode_packet(
        user_message(
            source=THEM,
            destination_manager=US,
            destination=16,
            message_id=number,
            sent_time_s=NOW.utc_s,
            body=body,
            recoverable=recoverable,
        )
    )


EXPRESS, RECOVERABLE = a_packet(recoverable=False), a_packet(recoverable=True)


def an_entry(number: int = 1, *, recoverable: bool = True, origin: Hashable = "queue") -> InFlight:
    """Return a message that is about to be sent."""
    return InFlight(origin, MessageRow(number, (EXPRESS, RECOVERABLE)[recoverable], 0, False), recoverable)


def send(session: Session, count: int, *, recoverable: bool = True, now: Moment = NOW) -> list[InFlight]:
    """Send messages with positions that start at 1."""
    entries = [an_entry(number, recoverable=recoverable) for number in range(1, count + 1)]
    session.send(entries, now)
    return entries


def an_ack(
    received: int,
    *,
    base: int = 0,
    flags: int = 0,
    user: int = 0,
    recoverable: int = 0,
    window: int = 64,
) -> SessionAck:
    """Return a SessionAck: the neighbour has `received` messages, and has saved those that `flags` marks from
    `base` on.
    """
    return SessionAck(
        session=SessionHeader(
            ack_sequence_number=received & 0xFFFF,
            recoverable_msg_ack_seq_number=base & 0xFFFF,
            recoverable_msg_ack_flags=flags,
            user_msg_sequence_number=user & 0xFFFF,
            recoverable_msg_seq_number=recoverable & 0xFFFF,
            window_size=window,
        )
    )
