"""Tactics with packets that come at the wrong time, too often, or in pieces; and the table of all tactics.

Some tactics have two forms: a small one, to see what the peer answers, and a very large one, to see whom the peer still
serves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from mqproto.neighbours.door import HALF_OPEN_OF_HOST, SESSIONS_OF_STRANGER_HOST
from mqproto.simulator.fuzz.mutations import mutate
from mqproto.simulator.fuzz.tactics.burdens import BURDENS, nearly_whole
from mqproto.simulator.fuzz.tactics.cases import Act
from mqproto.simulator.fuzz.tactics.floods import FLOODS
from mqproto.simulator.fuzz.tactics.guesses import FORGERIES, acknowledges_a_sequence
from mqproto.simulator.fuzz.tactics.packets import (
    IDENTITY,
    MESSAGES,
    NUMBER_MARK,
    PRESENTED,
    SAYINGS,
    SENT_S,
    SEQUENCE,
    SEQUENCE_MARK,
    WINDOW,
    WORD,
    a_message,
    connection_request,
    message_of,
    transaction,
)
from mqproto.simulator.fuzz.tactics.talk import BURST, Tactic, Talk, described
from mqproto.wire import MAXIMUM_PACKET_SIZE, NULL_GUID, Guid, Ping, SessionAck, encode_packet, ping_packet

ODD_NUMBERS: Final = (1, 2, WINDOW, WINDOW + 1, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF)
HALF_OPEN: Final = 60
PARTS: Final = (bytes(70_000), bytes(700_000))
"""The possible continuations of a packet that is never finished."""
SIZES: Final = (MAXIMUM_PACKET_SIZE, MAXIMUM_PACKET_SIZE + 1, 2**31, 2**32 - 1)
HOLDS: Final = 4
"""How many times the large form of a tactic checks whether others are served.

Meanwhile, all connections stay as they are.
"""
HELD: Final = "all that may be held"
TAKEN: Final = ("express", "recoverable", "transactional")
REFUSED: Final = ("for a private queue by number", "for a queue that is not there")


def _early(talk: Talk, say: Callable[[], None]) -> str:
    """Say something before there is a session."""
    asked = talk.chance()
    if asked:
        talk.request()
        talk.wait()
    say()
    talk.wait()
    return f"before {'ConnectionParameters' if asked else 'EstablishConnection'}"


def _message_too_early(talk: Talk) -> str:
    """A UserMessage before there is a session.  [MS-MQQB] 3.1.5.8"""
    kind = talk.dice.choice(list(MESSAGES))
    return f"{kind} {_early(talk, partial(talk.message, kind))}"


def _second_request(talk: Talk) -> str:
    """A second EstablishConnection, in a session or before there is one.  [MS-MQQB] 3.1.5.3"""
    early = talk.chance()
    if early:
        talk.request()
    else:
        talk.greet()
    talk.request()
    talk.wait()
    return "before ConnectionParameters" if early else "in an open session"


def _second_proposal(talk: Talk) -> str:
    """A second ConnectionParameters, or one before EstablishConnection.  [MS-MQQB] 3.1.5.4"""
    early = talk.chance()
    if not early:
        talk.greet()
    talk.propose()
    talk.wait()
    return "before EstablishConnection" if early else "in an open session"


def _acknowledges_nothing(talk: Talk) -> str:
    """SessionAcks for messages that were never sent, or with numbers that go backward.  [MS-MQQB] 3.1.5.5.1,
    3.1.5.5.3
    """
    talk.greet()
    packets = []
    for _ in range(talk.count(1, 3, many=64)):
        number = talk.dice.choice(ODD_NUMBERS)
        if talk.chance():
            header = talk.header(ack_sequence_number=number)
        else:
            flags = talk.dice.choice((1, 0x80000000, 0xFFFFFFFF))
            header = talk.header(recoverable_msg_ack_seq_number=number, recoverable_msg_ack_flags=flags)
        packets.append(encode_packet(SessionAck(session=header)))
    for data in [b"".join(packets)] if talk.is_much else packets:
        talk.say(data, "SessionAck")
    talk.last_word()
    return f"{len(packets)} times"


def _wrong_counts(talk: Talk) -> str:
    """SessionAcks that count our messages wrongly.  [MS-MQQB] 3.1.5.5.5"""
    talk.greet()
    for _ in range(talk.dice.randint(0, 3)):
        talk.message("recoverable")
    sent, recoverable = talk.counts()
    off = talk.dice.choice((-1, 1, *ODD_NUMBERS))
    if talk.chance():
        talk.acknowledge(user_msg_sequence_number=sent + off & 0xFFFF)
    else:
        talk.acknowledge(recoverable_msg_seq_number=recoverable + off & 0xFFFF)
    talk.wait()
    return f"off by {off}"


def _sequence_with_gaps(talk: Talk) -> str:
    """Transactional messages that are out of order, repeated, from ended sequences, or have gaps between them."""
    queue = talk.dice.choice(talk.target.queues)
    if talk.is_much:
        places = [transaction(number, number - 1, ordinal=SEQUENCE) for number in range(1, 200, 2)]
        packets = [encode_packet(a_message(queue, transaction=place)) for place in places]
        return talk.flood(packets, "messages with gaps between them")
    talk.greet()
    said = []
    for _ in range(talk.dice.randint(1, 8)):
        number = talk.dice.choice((1, 2, 3, 4, 5, 9, 2**31, 2**32 - 1))
        previous = talk.dice.choice(
            (0, number - 1, number - 1, number, min(number + 1, 2**32 - 2), number // 2)
        )
        time_stamp = talk.dice.choice((SENT_S, SENT_S, SENT_S, SENT_S, 0, 2**32 - 1))
        place = transaction(number, min(previous, 2**32 - 2), ordinal=SEQUENCE, time_stamp=time_stamp)
        said.append(f"{place.tx_sequence_number} after {place.previous_tx_sequence_number}")
        talk.tell(encode_packet(a_message(queue, transaction=place)), said[-1])
    talk.last_word()
    return ", ".join(said)


def _messages(talk: Talk, kind: str, packet: bytes, least: int, most: int) -> str:
    """Send a message many times, in one burst if the case sends a lot."""
    count = talk.count(least, most, many=BURST)
    if talk.is_much:
        return talk.flood([packet] * count, kind)
    talk.greet()
    for _ in range(count):
        talk.tell(packet, kind)
    talk.last_word()
    return f"{count} {kind}"


def _beyond_the_window(talk: Talk) -> str:
    """More messages than may be unacknowledged, sent without a pause.  [MS-MQQB] 3.1.7.1"""
    kind = talk.dice.choice((*TAKEN, *REFUSED) if talk.is_much else TAKEN)
    packet = message_of(talk.target.queues[-1 if kind == "transactional" else 0], kind)
    return _messages(talk, kind, packet, WINDOW + 6, WINDOW + 6)


def _same_again(talk: Talk) -> str:
    """A message with the identifier of an earlier one.  [MS-MQQB] 3.1.5.8.1"""
    kind = talk.dice.choice(list(MESSAGES))
    packet = message_of(talk.queue, kind).replace(NUMBER_MARK, SEQUENCE_MARK)
    return _messages(talk, kind, packet, 2, 5)


def _cut_short(talk: Talk) -> str:
    """Half a packet, followed by silence. Meanwhile, others must be served."""
    kind = talk.dice.choice(("EstablishConnection", *MESSAGES))
    if kind == "EstablishConnection":
        talk.request()
    else:
        talk.greet()
        talk.message(kind)
    step = talk.steps.pop()
    size = talk.dice.randrange(1, len(step.data))
    talk.say(step.data[:size], f"{size} bytes of {step.note}")
    talk.hold()
    return f"{kind} after {size} of {len(step.data)} bytes"


def _announced(talk: Talk) -> str:
    """Connections that announce a packet of 4 MiB or more, and then send only part of it, or nothing."""
    size, early = MAXIMUM_PACKET_SIZE if talk.is_much else talk.dice.choice(SIZES), talk.chance()
    part = talk.dice.choice(PARTS) if talk.is_much else b""
    packet = message_of(talk.queue, "express")
    head = packet[:8] + WORD.pack(size) + packet[12 : None if part else 16]
    count = talk.count(1, 24, many=HALF_OPEN)
    for connection in range(count):
        if not early:
            talk.greet(connection, glued=True)
        talk.say(head, f"the beginning of a packet of {size:#x} bytes", connection)
        if part:
            talk.say(part, f"{len(part):,} bytes of it", connection)
    talk.hold(HOLDS if talk.is_much else 1)
    return f"{size:#x} bytes, {count} times"


def _held(talk: Talk) -> str:
    """As many connections as one stranger may have, some with a session and most of a 4 MiB packet."""
    sessions = talk.count(1, 2, many=SESSIONS_OF_STRANGER_HOST)
    head, rest = nearly_whole(talk.queue)
    for connection in range(sessions):
        talk.greet(connection, glued=True)
        talk.say(head, "the headers of a message", connection)
        talk.say(rest, f"{len(rest):,} bytes of its body, and not the last", connection)
    others, request = talk.count(1, 2, many=HALF_OPEN_OF_HOST), connection_request()[:-1]
    for connection in range(sessions, sessions + others):
        talk.say(request, "EstablishConnection without its last byte", connection)
    talk.hold(HOLDS if talk.is_much else 1)
    return f"{sessions} sessions, {others} connections"


def _half_open(talk: Talk) -> str:
    """Connections that stay open after sending nothing, part of EstablishConnection, or a whole handshake."""
    count, request = talk.count(12, 24, many=HALF_OPEN), connection_request()
    for connection in range(count):
        size = talk.dice.choice((0, 1, 15, 16, 300, len(request) - 1, len(request), None))
        if size is None:
            talk.greet(connection, glued=True)
        else:
            talk.say(request[:size], f"{size} bytes of EstablishConnection", connection)
    talk.hold(HOLDS if talk.is_much else 1)
    return f"{count} connections"


def _byte_by_byte(talk: Talk) -> str:
    """A valid conversation, in pieces of one byte or a few bytes."""
    piece_bytes = talk.dice.choice((1, 1, 2, 3, 15, 17))
    talk.greet()
    kind = talk.dice.choice(list(MESSAGES))
    talk.message(kind)
    talk.last_word()
    talk.in_pieces(piece_bytes)
    return f"{kind} in pieces of {piece_bytes}"


def _glued_together(talk: Talk) -> str:
    """A whole conversation in one piece."""
    talk.glue()
    talk.greet(glued=True)
    count = talk.dice.randint(1, 20)
    for _ in range(count):
        talk.message(talk.dice.choice(list(MESSAGES)), queue=talk.dice.randrange(2))
    talk.last_word()
    return f"{count + 3} packets"


def _half_closed(talk: Talk) -> str:
    """Connections that are opened, and then closed, half closed or reset."""
    act, count = talk.dice.choice((Act.FINISH, Act.CLOSE, Act.RESET)), talk.count(1, 1, many=40)
    for connection in range(count):
        stage = talk.dice.randrange(4)
        if not stage:
            talk.say(b"", "nothing", connection)
        else:
            talk.request(connection, client=talk.stranger())
        if stage > 1:
            talk.propose(connection)
        for _ in range(talk.dice.randint(1, 5) if stage == 3 else 0):
            talk.message(talk.dice.choice(list(MESSAGES)), connection)
        talk.act(act, connection)
    talk.hold()
    return f"{act} of {count} after {len(talk.steps) - 2} steps"


def _wrong_identity(talk: Talk) -> str:
    """A connection request in the peer's own name, in no name, or to another queue manager.  [MS-MQQB] 3.1.5.3.1"""
    names: dict[str, tuple[Guid, Guid]] = {
        "in the peer's own name": (NULL_GUID, talk.target.server),
        "in nobody's name": (NULL_GUID, NULL_GUID),
        "to somebody else": (talk.stranger(), PRESENTED),
    }
    name = talk.dice.choice(list(names))
    server, client = names[name]
    talk.request(server=server, client=client)
    talk.wait()
    return name


def _another_protocol(talk: Talk) -> str:
    """Bytes that are not MSMQ, at the start of a connection or in an open session."""
    name = talk.dice.choice(list(SAYINGS))
    in_session = talk.chance()
    if in_session:
        talk.greet()
    talk.say(SAYINGS[name], name)
    talk.wait()
    return f"{name} {'in an open session' if in_session else 'at once'}"


def _pings(talk: Talk) -> str:
    """Pings from many queue managers, and datagrams that are almost Pings.  [MS-MQQB] 2.2.7"""
    count = talk.count(1, 32, many=BURST)
    ping = ping_packet.encode(Ping(cookie=talk.dice.getrandbits(32), qm_guid=IDENTITY))
    for _ in range(count):
        if talk.is_much:
            data = ping.replace(IDENTITY, talk.stranger())
        else:
            longer = ping + talk.dice.randbytes(talk.dice.choice((1, 8, 1_000)))
            shorter, mutated = ping[: talk.dice.randrange(24)], mutate(ping, talk.dice).data
            data = talk.dice.choice((ping, shorter, longer, mutated))
        talk.act(Act.DATAGRAM, data=data)
    talk.greet()
    talk.last_word()
    return f"{count} datagrams"


IN_TWO_WAYS: Final[dict[str, Tactic]] = {
    "SessionAcks of what was not sent": _acknowledges_nothing,
    "OrderAcks and FinalAcks of what was not sent": acknowledges_a_sequence,
    "a sequence with gaps": _sequence_with_gaps,
    "the same message again": _same_again,
    "more than the window": _beyond_the_window,
    "unfinished packets": _announced,
    HELD: _held,
    "half-open connections": _half_open,
    "connections closed": _half_closed,
    "Pings": _pings,
}
OUT_OF_TURN: Final[dict[str, Tactic]] = IN_TWO_WAYS | {
    "a second EstablishConnection": _second_request,
    "ConnectionParameters out of turn": _second_proposal,
    "a UserMessage too early": _message_too_early,
    "a SessionAck too early": described(
        "A SessionAck before there is a session.  [MS-MQQB] 3.1.5.5",
        lambda talk: _early(talk, talk.acknowledge),
    ),
    "wrong session counts": _wrong_counts,
    "a packet cut short": _cut_short,
    "a few bytes at a time": _byte_by_byte,
    "packets glued together": _glued_together,
    "a wrong identity": _wrong_identity,
    "another protocol": _another_protocol,
}
"""The tactics, keyed by the kind of case. A tactic with two forms is here in its small form."""
STRANGERS: Final[dict[str, Tactic]] = IN_TWO_WAYS | FLOODS | FORGERIES | BURDENS
"""The tactics of a stranger who wants to keep the peer from serving others. They use many, large or slow packets, or
another's name.
"""
TACTICS: Final[dict[str, Tactic]] = OUT_OF_TURN | STRANGERS
