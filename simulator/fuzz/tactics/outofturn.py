"""Packets out of turn: at the wrong time, too many, too few, in bits; and the table of all tactics.

Each tactic says its part of a case, and returns what exactly was drawn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from mqproto.transfer.acknowledgments import ORDER_QUEUE
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    Guid,
    MessageClass,
    OrderAckBody,
    Ping,
    TxSequenceId,
    encode_packet,
    encode_ping,
    final_ack,
    order_ack,
)
from mqproto.wire.layouts.base import MAXIMUM_PACKET_SIZE, base_header
from simulator.fuzz.mutations import mutate
from simulator.fuzz.tactics.burdens import BURDENS
from simulator.fuzz.tactics.cases import Act
from simulator.fuzz.tactics.floods import FLOODS
from simulator.fuzz.tactics.forgeries import FORGERIES
from simulator.fuzz.tactics.talk import (
    IDENTITY,
    MESSAGES,
    NUMBER,
    SENT_S,
    SEQUENCE,
    WINDOW,
    Talk,
    message_of,
    transaction,
    transactional,
)

CROWD: Final = 24
"""Connections at once in one case."""
_number = struct.Struct("<I")
SAYINGS: Final = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: queue\r\n\r\n",
    "TLS": bytes.fromhex("160301006e0100006a0303") + bytes(100),
    "zeros": bytes(600),
    "ones": b"\xff" * 600,
    "the signature alone": b"LIOR" * 150,
}
ODD_NUMBERS: Final = (1, 2, WINDOW, WINDOW + 1, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF)
FAR_NUMBERS: Final = (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def second_request(talk: Talk) -> str:
    """EstablishConnection once more, in a session or before it is one.  [MS-MQQB] 3.1.5.3"""
    early = talk.dice.random() < 0.5
    if early:
        talk.request()
    else:
        talk.greet()
    talk.request()
    talk.wait()
    return "before ConnectionParameters" if early else "in an open session"


def second_proposal(talk: Talk) -> str:
    """ConnectionParameters once more, or before EstablishConnection.  [MS-MQQB] 3.1.5.4"""
    early = talk.dice.random() < 0.5
    if not early:
        talk.greet()
    talk.propose()
    talk.wait()
    return "before EstablishConnection" if early else "in an open session"


def message_too_early(talk: Talk) -> str:
    """A UserMessage before there is a session.  [MS-MQQB] 3.1.5.8"""
    kind = talk.dice.choice(list(MESSAGES))
    after_request = talk.dice.random() < 0.5
    if after_request:
        talk.request()
        talk.wait()
    talk.message(kind)
    talk.wait()
    return f"{kind} {'before ConnectionParameters' if after_request else 'before EstablishConnection'}"


def acknowledgment_too_early(talk: Talk) -> str:
    """A SessionAck before there is a session.  [MS-MQQB] 3.1.5.5"""
    after_request = talk.dice.random() < 0.5
    if after_request:
        talk.request()
        talk.wait()
    talk.acknowledge()
    talk.wait()
    return "before ConnectionParameters" if after_request else "before EstablishConnection"


def acknowledgment_of_nothing(talk: Talk) -> str:
    """SessionAcks for what was never sent, and back again.  [MS-MQQB] 3.1.5.5.1, 3.1.5.5.3"""
    talk.greet()
    numbers = [talk.dice.choice(ODD_NUMBERS) for _ in range(talk.dice.randint(1, 3))]
    for number in numbers:
        if talk.dice.random() < 0.5:
            talk.acknowledge(ack_sequence_number=number)
        else:
            flags = talk.dice.choice((1, 0x80000000, 0xFFFFFFFF))
            talk.acknowledge(recoverable_msg_ack_seq_number=number, recoverable_msg_ack_flags=flags)
    talk.last_word()
    return f"numbers {', '.join(map(str, numbers))}"


def wrong_counts(talk: Talk) -> str:
    """SessionAcks that count our messages wrongly.  [MS-MQQB] 3.1.5.5.5"""
    talk.greet()
    for _ in range(talk.dice.randint(0, 3)):
        talk.message("recoverable")
    sent, recoverable = talk.counts()
    off = talk.dice.choice((-1, 1, *ODD_NUMBERS))
    if talk.dice.random() < 0.5:
        talk.acknowledge(user_msg_sequence_number=sent + off & 0xFFFF)
    else:
        talk.acknowledge(recoverable_msg_seq_number=recoverable + off & 0xFFFF)
    talk.wait()
    return f"off by {off}"


def acknowledgment_of_a_sequence(talk: Talk) -> str:
    """OrderAcks and FinalAcks for sequences and messages that the peer never sent.  [MS-MQQB] 3.1.5.6, 3.1.5.7

    By KB 830639 an OrderAck for an unknown sequence once corrupted the list of pending messages.
    """
    talk.greet()
    said = []
    for _ in range(talk.dice.randint(1, 4)):
        time_stamp, ordinal = talk.dice.choice(((SENT_S, NUMBER), (0, 0), (0, 1), (2**32 - 1, 2**32 - 1)))
        number, previous = talk.dice.choice(FAR_NUMBERS), talk.dice.choice(FAR_NUMBERS)
        identifier = TxSequenceId(time_stamp=time_stamp, ordinal=ordinal)
        to_peer = talk.dice.random() < 0.5
        common: dict[str, Any] = {
            "source": talk.dice.choice((IDENTITY, talk.target.server)),
            "destination_manager": talk.target.server if to_peer else NULL_GUID,
            "destination": ORDER_QUEUE,
            "message_id": NUMBER,
            "sent_time_s": SENT_S,
        }
        if talk.dice.random() < 0.5:
            packet = order_ack(**common, body=OrderAckBody(identifier, number, previous))
            said.append(f"OrderAck of {number}")
        else:
            message_class = talk.dice.choice([each for each in MessageClass if each >= 0x4000])
            source = talk.dice.choice((IDENTITY, talk.target.server, NULL_GUID))
            message_id = talk.dice.choice(FAR_NUMBERS)
            body = FinalAckBody(identifier, number, previous, source, message_id)
            packet = final_ack(**common, message_class=message_class, body=body)
            said.append(f"{message_class.name} of {number}")
        talk.tell(encode_packet(packet), said[-1])
    talk.last_word()
    return ", ".join(said)


def sequence_with_gaps(talk: Talk) -> str:
    """Transactional messages out of order, from the middle, twice, in sequences that are over.  [MS-MQQB] 3.1.5.8.6"""
    talk.greet()
    queue = talk.dice.choice(talk.target.queues)
    said = []
    for _ in range(talk.dice.randint(1, 8)):
        number = talk.dice.choice((1, 2, 3, 4, 5, 9, 2**31, 2**32 - 1))
        previous = talk.dice.choice(
            (0, number - 1, number - 1, number, min(number + 1, 2**32 - 2), number // 2)
        )
        time_stamp = talk.dice.choice((SENT_S, SENT_S, SENT_S, SENT_S, 0, 2**32 - 1))
        place = transaction(number, min(previous, 2**32 - 2), ordinal=SEQUENCE, time_stamp=time_stamp)
        said.append(f"{place.tx_sequence_number} after {place.previous_tx_sequence_number}")
        talk.tell(encode_packet(transactional(queue, place)), said[-1])
    talk.last_word()
    return ", ".join(said)


def same_message_twice(talk: Talk) -> str:
    """A message with the identity of one that came before.  [MS-MQQB] 3.1.5.8.1"""
    kind = talk.dice.choice(list(MESSAGES))
    packet = message_of(talk.target.queues[0], kind)
    packet = packet.replace(_number.pack(NUMBER), _number.pack(SEQUENCE))
    talk.greet()
    for _ in range(talk.dice.randint(2, 5)):
        talk.tell(packet, kind)
    talk.last_word()
    return kind


def beyond_the_window(talk: Talk) -> str:
    """More messages than may be unacknowledged, without a pause.  [MS-MQQB] 3.1.7.1"""
    kind = talk.dice.choice(("express", "recoverable", "transactional"))
    talk.greet()
    for _ in range(WINDOW + 6):
        talk.message(kind)
    talk.last_word()
    return f"{WINDOW + 6} {kind}"


def cut_short(talk: Talk) -> str:
    """Half a packet, then silence; meanwhile others are served."""
    kind = talk.dice.choice(("EstablishConnection", *MESSAGES))
    if kind == "EstablishConnection":
        talk.request()
    else:
        talk.greet()
        talk.message(kind)
    step = talk.steps.pop()
    while step.act is not Act.SEND:
        step = talk.steps.pop()
    size = talk.dice.randrange(1, len(step.data))
    talk.say(step.data[:size], f"{size} bytes of {step.note}")
    talk.act(Act.WATCH)
    return f"{kind} after {size} of {len(step.data)} bytes"


def large_and_absent(talk: Talk) -> str:
    """Packets of 4 MiB are announced on many connections, and nothing comes; meanwhile others are served."""
    size = talk.dice.choice((MAXIMUM_PACKET_SIZE, MAXIMUM_PACKET_SIZE + 1, 2**31, 2**32 - 1))
    packet = message_of(talk.target.queues[0], "express")
    at = base_header.offset_of("packet_size")
    head = packet[:at] + _number.pack(size) + packet[at + 4 : base_header.sizeof()]
    count = talk.dice.randint(1, CROWD)
    for connection in range(count):
        talk.greet(connection, glued=True)
        talk.say(head, f"the head of a packet of {size:#x} bytes", connection)
    talk.act(Act.WATCH)
    return f"{size:#x} bytes, {count} times"


def many_connections(talk: Talk) -> str:
    """Many connections that get stuck at various places; meanwhile others are served."""
    count = talk.dice.randint(CROWD // 2, CROWD)
    for connection in range(count):
        match talk.dice.randrange(4):
            case 0:
                talk.say(b"", "nothing", connection)
            case 1:
                talk.request(connection)
            case 2:
                talk.greet(connection, glued=True)
            case _:
                talk.request(connection)
                step = talk.steps.pop()
                talk.say(
                    step.data[: talk.dice.randrange(1, 572)], "a part of EstablishConnection", connection
                )
    talk.act(Act.WATCH)
    return f"{count} connections"


def byte_by_byte(talk: Talk) -> str:
    """A valid conversation in pieces of a byte or a few."""
    piece_bytes = talk.dice.choice((1, 1, 2, 3, 15, 17))
    talk.greet()
    kind = talk.dice.choice(list(MESSAGES))
    talk.message(kind)
    talk.last_word()
    talk.in_pieces(piece_bytes)
    return f"{kind} in pieces of {piece_bytes}"


def glued_together(talk: Talk) -> str:
    """A whole conversation in one piece."""
    talk.glue()
    talk.greet(glued=True)
    count = talk.dice.randint(1, 20)
    for _ in range(count):
        talk.message(talk.dice.choice(list(MESSAGES)), queue=talk.dice.randrange(2))
    talk.last_word()
    return f"{count + 3} packets"


def half_closed(talk: Talk) -> str:
    """We close our half at some place, or all of it, or break it off."""
    act = talk.dice.choice((Act.FINISH, Act.CLOSE, Act.RESET))
    stage = talk.dice.randrange(4)
    if stage == 1:
        talk.request()
    elif stage > 1:
        talk.greet(glued=True)
    if stage == 3:
        for _ in range(talk.dice.randint(1, 5)):
            talk.message(talk.dice.choice(list(MESSAGES)))
    if not talk.steps:
        talk.say(b"", "nothing")
    talk.act(act)
    talk.act(Act.WATCH)
    return f"{act} after {len(talk.steps) - 2} steps"


def wrong_identity(talk: Talk) -> str:
    """A request in the peer's own name, in nobody's, or to somebody else.  [MS-MQQB] 3.1.5.3.1"""
    somebody = Guid(talk.dice.randbytes(16))
    name = talk.dice.choice(("in the peer's own name", "in nobody's name", "to somebody else"))
    match name:
        case "in the peer's own name":
            talk.request(client=talk.target.server)
        case "in nobody's name":
            talk.request(client=NULL_GUID)
        case _:
            talk.request(server=somebody)
    talk.wait()
    return name


def another_protocol(talk: Talk) -> str:
    """What is no MSMQ, at once or in an open session."""
    name = talk.dice.choice(list(SAYINGS))
    in_session = talk.dice.random() < 0.5
    if in_session:
        talk.greet()
    talk.say(SAYINGS[name], name)
    talk.wait()
    return f"{name} {'in an open session' if in_session else 'at once'}"


def malformed_pings(talk: Talk) -> str:
    """Datagrams to the ping port: Pings, nearly Pings, and others.  [MS-MQQB] 2.2.7"""
    ping = encode_ping(Ping(cookie=talk.dice.randrange(2**32), qm_guid=IDENTITY))
    for _ in range(talk.dice.randint(1, 32)):
        match talk.dice.randrange(4):
            case 0:
                data = ping
            case 1:
                data = ping[: talk.dice.randrange(24)]
            case 2:
                data = ping + talk.dice.randbytes(talk.dice.choice((1, 8, 1_000)))
            case _:
                data = mutate(ping, talk.dice).data
        talk.act(Act.DATAGRAM, data=data)
    talk.greet()
    talk.last_word()
    return f"{sum(step.act is Act.DATAGRAM for step in talk.steps)} datagrams"


OUT_OF_TURN: Final[dict[str, Callable[[Talk], str]]] = {
    "a second EstablishConnection": second_request,
    "ConnectionParameters out of turn": second_proposal,
    "a UserMessage too early": message_too_early,
    "a SessionAck too early": acknowledgment_too_early,
    "a SessionAck of what was not sent": acknowledgment_of_nothing,
    "wrong session counts": wrong_counts,
    "an OrderAck or FinalAck of what was not sent": acknowledgment_of_a_sequence,
    "a sequence with gaps": sequence_with_gaps,
    "the same message twice": same_message_twice,
    "more than the window": beyond_the_window,
    "a packet cut short": cut_short,
    "a large packet announced": large_and_absent,
    "many connections": many_connections,
    "a few bytes at a time": byte_by_byte,
    "packets glued together": glued_together,
    "a connection closed": half_closed,
    "a wrong identity": wrong_identity,
    "another protocol": another_protocol,
    "malformed pings": malformed_pings,
}
"""By kind of case, who says it."""
STRANGERS: Final = FLOODS | FORGERIES | BURDENS
"""Those that are much, large, slow or in another's name: what a stranger does who wants a peer to serve nobody."""
TACTICS: Final = OUT_OF_TURN | STRANGERS
