"""Strategies for whole sessions: handshakes, all kinds of messages in both directions, and acknowledgments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from mqproto.testing.headers import U32, queue_managers, texts
from mqproto.testing.packets import mutated, packets
from mqproto.wire import (
    NULL_GUID,
    ConnectionParameters,
    FinalAck,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAck,
    OrderAckBody,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    user_message,
)
from mqproto.wire.messages import ORDER_QUEUE

SENT_S: Final = 1_700_000_000


class Turn(NamedTuple):
    """One packet of a conversation, and whether the session's initiator sends it."""

    initiator: bool
    data: bytes


@dataclass(slots=True)
class _ConversationSide:
    """One of the two sides of a session, with the counts for its SessionHeaders.  [MS-MQQB] 3.1.1.6.1"""

    guid: Guid
    window: int
    sent: int = 0
    recoverable_sent: int = 0
    unacknowledged: int = 0
    saved: int = 0
    """How many of this side's recoverable messages the other side has flagged as saved."""
    transactional: list[int] = field(default_factory=list)
    """The message identifiers of the side's sequence, in order."""

    @property
    def sequence(self) -> TxSequenceId:
        return TxSequenceId(time_stamp=SENT_S, ordinal=self.guid[0])


@st.composite
def conversations(draw: st.DrawFn, *, longest: int = 20) -> list[Turn]:
    """Draw a faultless session from its first packet on: each packet arrives before the next one is sent.

    Both sides keep to the windows, and the counts are right. A side may acknowledge some or all of the messages that it
    has received, in a packet of its own or in a header of a message. OrderAcks and FinalAcks answer transactional
    messages; each sequence begins with 1.

    Args:
        longest: the maximum number of packets after the handshake.
    """
    first, second = draw(st.lists(queue_managers(), min_size=2, max_size=2, unique=True))
    windows = draw(st.tuples(*[st.sampled_from([1, 2, 64, 0xFFFF])] * 2))
    sides = _ConversationSide(first, windows[0]), _ConversationSide(second, windows[1])
    turns = draw(_handshakes(*sides))
    for _ in range(draw(st.integers(0, longest))):
        initiator = draw(st.booleans())
        one, other = sides if initiator else sides[::-1]
        kinds = ["session ack"]
        if one.unacknowledged < min(one.window, other.window):
            kinds += ["express", "recoverable", "transactional"]
            if other.transactional:
                kinds += ["order ack", "final ack"]
        kind = draw(st.sampled_from(kinds))
        if kind == "session ack":
            turns.append(
                Turn(initiator, encode_packet(SessionAck(session=draw(_session_headers(one, other)))))
            )
            continue
        message = draw(_messages(kind, one, other))
        one.sent += 1
        one.unacknowledged += 1
        one.recoverable_sent += message.user.recoverable
        if draw(st.booleans()):
            message.base.session_header = True
            message.session = draw(_session_headers(one, other))
        turns.append(Turn(initiator, encode_packet(message)))
    return turns


@st.composite
def _handshakes(draw: st.DrawFn, initiator: _ConversationSide, acceptor: _ConversationSide) -> list[Turn]:
    """Draw the four packets that open a session.  [MS-MQQB] 3.1.5.3, 3.1.5.4"""
    time_stamp_ms, ping = draw(U32), draw(st.booleans())
    server = draw(st.sampled_from([acceptor.guid, NULL_GUID]))
    recoverable_ms, ack_ms = draw(st.integers(500, 120_000)), draw(st.integers(20_000, 120_000))

    def establish(server: Guid) -> bytes:
        return encode_packet(
            establish_connection(client=initiator.guid, server=server, time_stamp_ms=time_stamp_ms, ping=ping)
        )

    def parameters(window_size: int) -> bytes:
        return encode_packet(
            ConnectionParameters(
                recoverable_ack_timeout_ms=recoverable_ms, ack_timeout_ms=ack_ms, window_size=window_size
            )
        )

    return [
        Turn(True, establish(server)),
        Turn(False, establish(acceptor.guid)),
        Turn(True, parameters(initiator.window)),
        Turn(False, parameters(acceptor.window)),
    ]


@st.composite
def _session_headers(draw: st.DrawFn, one: _ConversationSide, other: _ConversationSide) -> SessionHeader:
    """Draw a possible SessionHeader from `one` about messages of `other`.

    It says that some of these were received, and that some of the recoverable ones were saved.
    """
    received = draw(st.integers(0, other.unacknowledged))
    other.unacknowledged -= received
    saved = draw(st.integers(0, min(other.recoverable_sent - other.saved, 32)))
    header = SessionHeader(
        ack_sequence_number=other.sent - other.unacknowledged,
        recoverable_msg_ack_seq_number=other.saved + 1 if saved else 0,
        recoverable_msg_ack_flags=(1 << saved) - 1,
        user_msg_sequence_number=one.sent,
        recoverable_msg_seq_number=one.recoverable_sent,
        window_size=one.window,
    )
    other.saved += saved
    return header


@st.composite
def _messages(draw: st.DrawFn, kind: str, one: _ConversationSide, other: _ConversationSide) -> UserMessage:
    """Draw a message from `one`, without a SessionHeader."""
    message_id = one.sent + 1
    if kind in ("order ack", "final ack"):
        number = draw(st.integers(1, len(other.transactional)))
        about: dict[str, Any] = {
            "source": one.guid,
            "destination_manager": other.guid,
            "destination": ORDER_QUEUE,
            "message_id": message_id,
            "sent_time_s": SENT_S,
        }
        if kind == "order ack":
            return OrderAck(**about, body=OrderAckBody(other.sequence, number, number - 1)).message()
        body = FinalAckBody(other.sequence, number, number - 1, other.guid, other.transactional[number - 1])
        return FinalAck(**about, message_class=MessageClass.ACK_RECEIVE, body=body).message()
    transaction = None
    if kind == "transactional":
        number = len(one.transactional) + 1
        transaction = TransactionHeader(0, one.sequence, number, number - 1)
        transaction.first = transaction.last = True
        transaction.final_ack = draw(st.booleans())
        one.transactional.append(message_id)
    return user_message(
        source=one.guid,
        destination_manager=other.guid,
        destination=draw(st.integers(16, 20)),
        message_id=message_id,
        sent_time_s=SENT_S,
        body=draw(st.binary(max_size=20)),
        label=draw(texts(6)),
        recoverable=kind == "recoverable",
        transaction=transaction,
    )


@st.composite
def nearly_valid_conversations(draw: st.DrawFn, *, longest: int = 20) -> list[Turn]:
    """Draw a conversation with one fault.

    A packet is mutated, lost, duplicated, late or inserted, or comes from the wrong side.
    """
    turns = draw(conversations(longest=longest))
    at = draw(st.integers(0, len(turns) - 1))
    turn = turns[at]
    match draw(st.sampled_from(["mutated", "lost", "doubled", "late", "put in", "other side"])):
        case "mutated":
            turns[at] = Turn(turn.initiator, draw(mutated(turn.data)))
        case "lost":
            del turns[at]
        case "doubled":
            turns.insert(at, turn)
        case "late":
            turns.insert(draw(st.integers(at, len(turns) - 1)), turns.pop(at))
        case "put in":
            turns.insert(at, Turn(draw(st.booleans()), draw(packets().map(encode_packet))))
        case _:
            turns[at] = Turn(not turn.initiator, turn.data)
    return turns
