"""Much of what is small: connections, handshakes, packets, acknowledgments, Pings; and little, very slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    ConnectionParameters,
    Guid,
    Ping,
    TxSequenceId,
    encode_packet,
    encode_ping,
    final_ack,
    order_ack,
    session_ack,
)
from mqproto.wire.acknowledgment import ORDER_QUEUE
from mqproto.wire.classes import MessageClass
from mqproto.wire.layouts.acknowledgment import FinalAckBody, OrderAckBody
from mqproto.wire.layouts.session import SessionHeader
from simulator.fuzz.tactics.cases import Act
from simulator.fuzz.tactics.talk import (
    IDENTITY,
    NUMBER,
    SENT_S,
    Talk,
    a_message,
    connection_request,
    message_of,
    transaction,
    transactional,
)

HALF_OPEN: Final = 60
PARTS: Final = (bytes(70_000), bytes(700_000))
"""Of a packet that never ends."""
STORM: Final = 40
"""Connections of one case that come and go."""
BURST: Final = 500
"""Small packets in one piece."""
HOLDS: Final = 4
"""For how many looks at others a slow one stays as it is."""


def half_open(talk: Talk) -> str:
    """Connections that say nothing, or a part of EstablishConnection, and stay."""
    request = connection_request()
    for connection in range(HALF_OPEN):
        size = talk.dice.choice((0, 1, 15, 16, 300, len(request) - 1))
        talk.say(request[:size], f"{size} bytes of EstablishConnection", connection)
    talk.hold(HOLDS)
    return f"{HALF_OPEN} connections"


def unfinished_packets(talk: Talk) -> str:
    """Connections with a part of a packet of 4 MiB each, in a session or before one."""
    head = message_of(talk.target.queues[0], "express")
    begun = head[:8] + MAXIMUM_PACKET_SIZE.to_bytes(4, "little") + head[12:]
    part = talk.dice.choice(PARTS)
    early = talk.dice.random() < 0.5
    for connection in range(HALF_OPEN):
        if not early:
            talk.greet(connection, glued=True)
        talk.say(begun, "the beginning of a packet of 4 MiB", connection)
        talk.say(part, f"{len(part):,} bytes of it", connection)
    talk.hold(HOLDS)
    return f"{HALF_OPEN} times {len(part):,} bytes {'before' if early else 'in'} a session"


def many_sessions(talk: Talk) -> str:
    """As many open sessions as one host can have, and more."""
    for connection in range(HALF_OPEN):
        talk.request(connection, client=Guid(talk.dice.randbytes(16)))
        talk.propose(connection)
    talk.hold(HOLDS)
    return f"{HALF_OPEN} sessions"


def slow_head(talk: Talk) -> str:
    """A byte of a packet's head, and a while later the next."""
    data = message_of(talk.target.queues[0], "express")
    early = talk.dice.random() < 0.5
    if not early:
        talk.greet()
    for at in range(12):
        talk.say(data[at : at + 1], f"byte {at}")
        talk.hold()
    return f"12 bytes {'before' if early else 'in'} a session"


def slow_body(talk: Talk) -> str:
    """A message of 4 MiB in a session, a little at a time."""
    head = message_of(talk.target.queues[0], "express")
    data = head[:8] + MAXIMUM_PACKET_SIZE.to_bytes(4, "little") + head[12:]
    talk.greet()
    talk.say(data, "the head of a packet of 4 MiB")
    for _ in range(12):
        talk.say(bytes(1_000), "1,000 bytes of its body")
        talk.hold()
    return "13 pieces"


def reconnections(talk: Talk) -> str:
    """Connections that open and are reset at once."""
    for connection in range(STORM):
        talk.say(b"", "nothing", connection)
        talk.act(Act.RESET, connection)
    talk.hold()
    return f"{STORM} connections"


def handshakes(talk: Talk) -> str:
    """Sessions that open and close at once, each of another queue manager."""
    for connection in range(STORM):
        talk.request(connection, client=Guid(talk.dice.randbytes(16)))
        talk.propose(connection)
        talk.act(Act.CLOSE, connection)
    talk.hold()
    return f"{STORM} handshakes"


def acknowledgment_storm(talk: Talk) -> str:
    """SessionAcks that acknowledge nothing, by the hundred.  [MS-MQQB] 3.1.5.5"""
    talk.greet()
    talk.say(encode_packet(session_ack(SessionHeader())) * BURST, f"{BURST} SessionAcks")
    talk.last_word()
    return f"{BURST} SessionAcks"


def far_acknowledgments(talk: Talk) -> str:
    """SessionAcks for recoverable messages at the far end of the numbers.  [MS-MQQB] 3.1.5.5.3"""
    talk.greet()
    numbers = [talk.dice.choice((1, 0x7FFF, 0x8000, 0xFFFF)) for _ in range(64)]
    packets = [
        encode_packet(
            session_ack(
                SessionHeader(recoverable_msg_ack_seq_number=number, recoverable_msg_ack_flags=0xFFFFFFFF)
            )
        )
        for number in numbers
    ]
    talk.say(b"".join(packets), f"{len(packets)} SessionAcks")
    talk.wait()
    return f"{len(packets)} SessionAcks, the first of {numbers[0]}"


def odd_parameters(talk: Talk) -> str:
    """ConnectionParameters at the ends of what they may say, then messages.  [MS-MQQB] 2.2.2.1"""
    window = talk.dice.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF))
    ack_ms, recoverable_ms = talk.dice.choice((20_000, 120_000)), talk.dice.choice((500, 120_000))
    packet = ConnectionParameters(
        recoverable_ack_timeout_ms=recoverable_ms, ack_timeout_ms=ack_ms, window_size=window
    )
    talk.request()
    talk.wait()
    talk.say(encode_packet(packet), "ConnectionParameters")
    talk.wait()
    talk.burst([message_of(talk.target.queues[0], "recoverable")] * 100, "recoverable messages")
    talk.wait()
    return f"window {window}, {recoverable_ms} and {ack_ms} ms"


def pings(talk: Talk) -> str:
    """Pings, each of another queue manager; many such cases come from many ports.  [MS-MQQB] 2.2.7"""
    for _ in range(BURST):
        ping = Ping(cookie=talk.dice.getrandbits(32), qm_guid=Guid(talk.dice.randbytes(16)))
        talk.act(Act.DATAGRAM, data=encode_ping(ping))
    talk.say(b"", "nothing")
    talk.wait()
    return f"{BURST} Pings"


def many_small(talk: Talk) -> str:
    """Small messages that are accepted, at full speed."""
    kind = talk.dice.choice(("express", "recoverable"))
    talk.greet(glued=True)
    talk.burst([message_of(talk.target.queues[0], kind)] * BURST, f"{kind} messages")
    talk.wait()
    return f"{BURST} {kind} messages"


def many_refused(talk: Talk) -> str:
    """Small messages that are refused, at full speed: their queue is closed, or not there."""
    kind = talk.dice.choice(("for a private queue by number", "for a queue that is not there"))
    talk.greet(glued=True)
    talk.burst([message_of(talk.target.queues[0], kind)] * BURST, kind)
    talk.wait()
    return f"{BURST} {kind}"


def many_queues(talk: Talk) -> str:
    """Messages to queues that are not there, each of another name."""
    queue = talk.target.queues[0]
    talk.greet(glued=True)
    packets = [
        encode_packet(a_message(f"{queue}-{talk.dice.randrange(10**9)}", recoverable=True)) for _ in range(50)
    ]
    talk.burst(packets, "messages to other queues")
    talk.wait()
    return "50 queues"


def same_again(talk: Talk) -> str:
    """One recoverable message, by the hundred.  [MS-MQQB] 3.1.5.8.1"""
    talk.greet(glued=True)
    packet = message_of(talk.target.queues[0], "recoverable").replace(NUMBER.to_bytes(4, "little"), b"same")
    talk.burst([packet] * BURST, "times the same message")
    talk.wait()
    return f"{BURST} times"


def many_gaps(talk: Talk) -> str:
    """A sequence in which every second message is missing.  [MS-MQQB] 3.1.5.8.6"""
    talk.greet(glued=True)
    ordinal = talk.dice.getrandbits(32)
    numbers = range(1, 200, 2)
    packets = [
        encode_packet(transactional(talk.target.queues[-1], transaction(number, number - 1, ordinal=ordinal)))
        for number in numbers
    ]
    talk.burst(packets, "messages with gaps between them")
    talk.wait()
    return f"{len(packets)} messages"


def many_sequences(talk: Talk) -> str:
    """Transactional messages that begin a sequence each: the queue's name is spelt in another way each time."""
    talk.greet(glued=True)
    head, _, queue = talk.target.queues[-1].rpartition("\\")
    packets = []
    for _ in range(100):
        spelt = "".join(talk.dice.choice((letter.lower(), letter.upper())) for letter in f"{head}\\{queue}")
        place = transaction(1, 0, ordinal=talk.dice.getrandbits(32))
        packets.append(encode_packet(transactional(spelt.replace("tcp:", "TCP:"), place)))
    talk.burst(packets, "first messages of sequences")
    talk.wait()
    return f"{len(packets)} sequences"


def order_acks(talk: Talk) -> str:
    """OrderAcks for sequences that the peer may have, over a stranger's session.  [MS-MQQB] 3.1.5.6"""
    talk.greet(glued=True)
    packets = [
        encode_packet(
            order_ack(
                source=talk.dice.choice((IDENTITY, *talk.target.known)),
                destination_manager=talk.target.server,
                destination=ORDER_QUEUE,
                message_id=NUMBER,
                sent_time_s=SENT_S,
                body=OrderAckBody(
                    TxSequenceId(time_stamp=talk.target.sent_s, ordinal=ordinal), 0xFFFFFFFF, 0
                ),
            )
        )
        for ordinal in range(1, 33)
    ]
    talk.burst(packets, "OrderAcks")
    talk.wait()
    return f"{len(packets)} OrderAcks"


def final_acks(talk: Talk) -> str:
    """FinalAcks for messages that the peer may have sent, over a stranger's session.  [MS-MQQB] 3.1.5.7"""
    talk.greet(glued=True)
    packets = []
    for ordinal in range(1, 33):
        message_class = talk.dice.choice([each for each in MessageClass if each >= 0x4000])
        body = FinalAckBody(
            TxSequenceId(time_stamp=talk.target.sent_s, ordinal=ordinal),
            0x7FFFFFFF,
            0,
            talk.target.server,
            ordinal,
        )
        packet = final_ack(
            source=talk.dice.choice((IDENTITY, *talk.target.known)),
            destination_manager=talk.target.server,
            destination=ORDER_QUEUE,
            message_id=NUMBER,
            sent_time_s=SENT_S,
            message_class=message_class,
            body=body,
        )
        packets.append(encode_packet(packet))
    talk.burst(packets, "FinalAcks")
    talk.wait()
    return f"{len(packets)} FinalAcks"


FLOODS: Final[dict[str, Callable[[Talk], str]]] = {
    "half-open connections": half_open,
    "unfinished packets": unfinished_packets,
    "many sessions": many_sessions,
    "a head byte by byte": slow_head,
    "a body little by little": slow_body,
    "reconnections": reconnections,
    "handshakes": handshakes,
    "a storm of SessionAcks": acknowledgment_storm,
    "SessionAcks of far numbers": far_acknowledgments,
    "odd ConnectionParameters": odd_parameters,
    "Pings": pings,
    "many small messages": many_small,
    "many refused messages": many_refused,
    "many queues that are not there": many_queues,
    "one message again and again": same_again,
    "many gaps": many_gaps,
    "many sequences": many_sequences,
    "forged OrderAcks": order_acks,
    "forged FinalAcks": final_acks,
}
"""By kind of case, who says it."""
