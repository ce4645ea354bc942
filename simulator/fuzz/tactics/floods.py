"""Tactics that send very many small items, all of them valid (sessions, queues, sequences), or that send a few bytes
very slowly.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mqproto.simulator.fuzz.tactics.packets import WORD, a_message, message_of, transaction
from mqproto.simulator.fuzz.tactics.talk import BURST, Tactic, Talk, described
from mqproto.wire import MAXIMUM_PACKET_SIZE, ConnectionParameters, SessionAck, encode_packet

SESSIONS: Final = 60
"""The number of sessions to open, which is more than one host may have."""


def _sessions(talk: Talk, *, count: int, holds: int, known: bool) -> str:
    """Many sessions, each in the name of a different stranger, or in the names of queue managers that the peer
    knows.
    """
    for connection in range(count):
        name = talk.somebody() if known else talk.stranger()
        talk.request(connection, client=name, server=talk.target.server)
        talk.propose(connection)
    talk.hold(holds)
    return f"{count} sessions"


def _slowly(talk: Talk) -> str:
    """The bytes of a packet, one or a few at a time, with a long pause after each piece."""
    packet = message_of(talk.queue, "express")
    head = packet[:8] + WORD.pack(MAXIMUM_PACKET_SIZE) + packet[12:]
    piece_bytes, early = talk.dice.choice((1, 1_000)), talk.chance()
    if not early:
        talk.greet()
    data = head + bytes(12 * piece_bytes)
    at = 0 if piece_bytes == 1 else len(head)
    for stop in range(at + piece_bytes, at + 13 * piece_bytes, piece_bytes):
        talk.say(data[stop - piece_bytes if stop > at + piece_bytes else 0 : stop], f"up to byte {stop}")
        talk.hold()
    return f"{piece_bytes} a time {'before' if early else 'in'} a session"


def _acknowledges(talk: Talk) -> str:
    """Hundreds of SessionAcks that acknowledge nothing.  [MS-MQQB] 3.1.5.5"""
    talk.greet()
    talk.say(encode_packet(SessionAck(session=talk.header())) * BURST, f"{BURST} SessionAcks")
    talk.last_word()
    return f"{BURST} times"


def _odd_parameters(talk: Talk) -> str:
    """ConnectionParameters with extreme values, then messages.  [MS-MQQB] 2.2.2.1"""
    window = talk.dice.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF))
    ack_ms, recoverable_ms = talk.dice.choice((20_000, 120_000)), talk.dice.choice((500, 120_000))
    packet = ConnectionParameters(
        recoverable_ack_timeout_ms=recoverable_ms, ack_timeout_ms=ack_ms, window_size=window
    )
    talk.request()
    talk.wait()
    talk.say(encode_packet(packet), "ConnectionParameters")
    talk.wait()
    talk.burst([message_of(talk.queue, "recoverable")] * 100, "recoverable messages")
    talk.wait()
    return f"window {window}, {recoverable_ms} and {ack_ms} ms"


def _many_queues(talk: Talk) -> str:
    """Messages to queues that do not exist, each with a different name."""
    names = [f"{talk.queue}-{talk.dice.randrange(10**9)}" for _ in range(50)]
    packets = [encode_packet(a_message(name, recoverable=True)) for name in names]
    return talk.flood(packets, "messages to queues that are not there")


def _many_sequences(talk: Talk) -> str:
    """Messages that each begin a sequence, because the queue's name is spelled differently each time."""
    packets = []
    for _ in range(100):
        letters = (talk.dice.choice((letter.lower(), letter.upper())) for letter in talk.target.queues[-1])
        place = transaction(1, 0, ordinal=talk.dice.getrandbits(32))
        queue = "".join(letters)
        packets.append(encode_packet(a_message(queue[:4].upper() + queue[4:], transaction=place)))
    return talk.flood(packets, "first messages of sequences")


FLOODS: Final[dict[str, Tactic]] = {
    "many sessions": described(
        "As many open sessions as one host can have, and more.",
        partial(_sessions, count=SESSIONS, holds=4, known=False),
    ),
    "claims again and again": described(
        "EstablishConnections in the names of known queue managers, again and again.",
        partial(_sessions, count=20, holds=2, known=True),
    ),
    "a packet little by little": _slowly,
    "a storm of SessionAcks": _acknowledges,
    "odd ConnectionParameters": _odd_parameters,
    "many queues that are not there": _many_queues,
    "many sequences": _many_sequences,
}
"""The tactics, keyed by the kind of case."""
