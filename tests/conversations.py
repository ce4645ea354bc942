"""Captures of conversations that never took place.

The packets of each side, with their times, are written in the form in which a recorder writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import SeenPacket, read_packets
from mqproto.simulator.base.recorder import Recorder
from mqproto.wire import (
    ConnectionParameters,
    FinalAck,
    FinalAckBody,
    Guid,
    MessageClass,
    MessageIdentifier,
    OrderAck,
    OrderAckBody,
    Packet,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    message_identifier,
    user_message,
)

SENDER: Final = Guid(b"sender".ljust(16, b"."))
DESTINATION: Final = Guid(b"destination".ljust(16, b"."))
CLIENT: Final = Endpoint("10.0.0.1", 50_000)
SERVER: Final = Endpoint("10.0.0.2", 1801)
SENT_S: Final = 1_700_000_000
SEQUENCE: Final = TxSequenceId(time_stamp=SENT_S, ordinal=7)
QUEUE: Final = 17
ORDER_QUEUE: Final = 4


class Said(NamedTuple):
    """A packet that one side sends, some time after the packet before it."""

    side: Side
    packet: Packet
    after_s: float = 0.0


def a_message(
    number: int, *, previous: int | None = None, sequence: TxSequenceId = SEQUENCE, **changes: Any
) -> UserMessage:
    """Return the transactional message with this number; its MessageID is the number plus a hundred."""
    transaction = TransactionHeader(
        tx_sequence_id=sequence,
        tx_sequence_number=number,
        previous_tx_sequence_number=number - 1 if previous is None else previous,
    )
    transaction.first = transaction.last = True
    arguments: dict[str, Any] = {
        "source": SENDER,
        "destination_manager": DESTINATION,
        "destination": QUEUE,
        "message_id": 100 + number,
        "sent_time_s": SENT_S,
        "body": b"body %d" % number,
        "label": f"label {number}",
        "transaction": transaction,
    }
    return user_message(**arguments | changes)


def an_order_ack(
    number: int, *, sequence: TxSequenceId = SEQUENCE, source: Guid = DESTINATION, to: Guid = SENDER
) -> UserMessage:
    """Return an OrderAck that says that the destination `source` has all messages up to this number."""
    return OrderAck(
        source=source,
        destination_manager=to,
        destination=ORDER_QUEUE,
        message_id=1_000 + number,
        sent_time_s=SENT_S,
        body=OrderAckBody(sequence, number, max(0, number - 1)),
    ).message()


def a_final_ack(
    number: int,
    message_class: int = MessageClass.ACK_RECEIVE,
    *,
    source: Guid = DESTINATION,
    to: Guid = SENDER,
) -> UserMessage:
    """Return a FinalAck that gives the outcome, at the destination `source`, of the message with this number."""
    return FinalAck(
        source=source,
        destination_manager=to,
        destination=ORDER_QUEUE,
        message_id=2_000 + number,
        sent_time_s=SENT_S,
        message_class=message_class,
        body=FinalAckBody(SEQUENCE, number, number - 1, to, 100 + number),
    ).message()


def an_administration_ack(number: int, message_class: int) -> UserMessage:
    """Return the acknowledgment that the administration queue gets for the message with this number."""
    return user_message(
        source=DESTINATION,
        destination_manager=SENDER,
        destination=18,
        message_id=3_000 + number,
        sent_time_s=SENT_S,
        body=b"",
        message_class=message_class,
        correlation_id=message_identifier.encode(MessageIdentifier(SENDER, 100 + number)),
    )


def handshake(*, client: Guid = SENDER, server: Guid = DESTINATION) -> list[Said]:
    """Return the four packets that open a session."""
    parameters = ConnectionParameters(recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64)
    request = establish_connection(client=client, server=server, time_stamp_ms=0)
    return [
        Said(Side.CLIENT, request),
        Said(Side.SERVER, request),
        Said(Side.CLIENT, parameters),
        Said(Side.SERVER, parameters),
    ]


def acknowledged(side: Side, count: int, sent: int = 0, sent_recoverable: int = 0) -> Said:
    """Return a SessionAck from `side`.

    It says that `side` has received and saved `count` recoverable messages, at most 32, and has sent `sent` messages.
    """
    header = SessionHeader(
        ack_sequence_number=count,
        recoverable_msg_ack_seq_number=1 if count else 0,
        recoverable_msg_ack_flags=(1 << count) - 1,
        user_msg_sequence_number=sent,
        recoverable_msg_seq_number=sent_recoverable,
    )
    return Said(side, SessionAck(session=header))


def exchange(messages: Sequence[UserMessage], answers: Sequence[UserMessage] = ()) -> list[Said]:
    """Return a session in which the client sends messages, and the server acknowledges them and answers."""
    final_count = sum(answer.user.recoverable for answer in answers)
    return [
        *handshake(),
        *(Said(Side.CLIENT, message) for message in messages),
        acknowledged(Side.SERVER, len(messages)),
        *(Said(Side.SERVER, answer) for answer in answers),
        Said(
            Side.CLIENT,
            SessionAck(
                session=SessionHeader(
                    ack_sequence_number=len(answers),
                    recoverable_msg_ack_seq_number=1 if final_count else 0,
                    recoverable_msg_ack_flags=(1 << final_count) - 1,
                    user_msg_sequence_number=len(messages),
                    recoverable_msg_seq_number=len(messages),
                )
            ),
        ),
    ]


def answered(numbers: Sequence[int]) -> list[Said]:
    """Return a session in which messages with these numbers, starting at 1, are sent in the given order and
    acknowledged.
    """
    return exchange([a_message(number) for number in numbers], [an_order_ack(max(numbers))])


def write(path: Path, *talks: Iterable[Said], client: Endpoint = CLIENT, server: Endpoint = SERVER) -> Path:
    """Write a capture with one connection for each talk; the connections follow each other, with 0.1 ms between
    packets.
    """
    now_s = SENT_S * 1.0
    with path.open("wb") as file:
        recorder = Recorder(file, clock=lambda: int(now_s * 1e9))
        for place, talk in enumerate(talks):
            connection = recorder.connection(client._replace(port=client.port + place), server)
            for said in talk:
                now_s += said.after_s + 0.0001
                connection.sent(said.side, encode_packet(said.packet))
            connection.finished(Side.CLIENT)
        recorder.close()
    return path


def seen(path: Path) -> list[SeenPacket]:
    """Return the packets of a capture."""
    return list(read_packets(path))
