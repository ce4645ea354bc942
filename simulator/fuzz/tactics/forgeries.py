"""What is said in the name of others: of queue managers that the peer knows, or of nobody.

Where no queue manager is known that the peer knows, it is one that is made up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.wire import Guid, TxSequenceId, encode_packet, order_ack
from mqproto.wire.acknowledgment import ORDER_QUEUE
from mqproto.wire.layouts.acknowledgment import OrderAckBody
from simulator.fuzz.tactics.cases import Act
from simulator.fuzz.tactics.talk import (
    IDENTITY,
    NUMBER,
    SENT_S,
    Talk,
    a_message,
    message_of,
    transaction,
    transactional,
)

MANY: Final = 500
"""Small packets in one piece."""
FAR: Final = 0x7FFFFFFF
"""A number beyond all that a sender has come to."""
NUMBERS: Final = range(16, 24)
"""Of private queues, as a queue manager numbers its first ones."""


def _somebody(talk: Talk) -> Guid:
    """A queue manager that the peer knows."""
    return talk.dice.choice(talk.target.known or (Guid(talk.dice.randbytes(16)),))


def _greet_as(talk: Talk, manager: Guid, connection: int = 0) -> None:
    """The handshake in somebody's name."""
    talk.request(connection, client=manager)
    talk.wait(connection)
    talk.propose(connection)
    talk.wait(connection)


def forged_sources(talk: Talk) -> str:
    """Small transactional messages, each from another queue manager that nobody has heard of."""
    packet = encode_packet(transactional(talk.target.queues[-1], transaction()))
    talk.greet(glued=True)
    talk.burst((packet.replace(IDENTITY, talk.dice.randbytes(16)) for _ in range(MANY)), "forged sources")
    talk.wait()
    return f"{MANY} sources"


def far_sequence(talk: Talk) -> str:
    """A transactional message in a known sender's name, in a sequence beyond all of its own.  [MS-MQQB] 3.1.5.8.6"""
    source = _somebody(talk)
    place = transaction(1, 0, ordinal=talk.dice.getrandbits(32), time_stamp=FAR)
    by_number = [
        a_message(number, destination_manager=talk.target.server, transaction=place) for number in NUMBERS
    ]
    by_name = [transactional(queue, place) for queue in talk.target.queues]
    packets = [encode_packet(message).replace(IDENTITY, source) for message in (*by_number, *by_name)]
    own_session = talk.dice.random() < 0.5
    if own_session:
        _greet_as(talk, source)
    else:
        talk.greet()
    talk.burst(packets, f"messages with TxSequenceID {FAR:#x}")
    talk.wait()
    return f"over a session in {'that' if own_session else 'its own'} name"


def others_messages(talk: Talk) -> str:
    """Express messages with the source and the next numbers of a known sender.  [MS-MQQB] 3.1.5.8.1"""
    source = _somebody(talk)
    first = talk.dice.choice((1, talk.dice.getrandbits(32)))
    packet = message_of(talk.target.queues[0], "express").replace(IDENTITY, source)
    mark = NUMBER.to_bytes(4, "little")
    _greet_as(talk, source)
    talk.burst(
        (packet.replace(mark, (first + index & 0xFFFFFFFF).to_bytes(4, "little")) for index in range(MANY)),
        "messages in another's name",
    )
    talk.wait()
    return f"{MANY} messages from number {first} on"


def claimed_session(talk: Talk) -> str:
    """A session in a known queue manager's name that takes what waits for it, and has the peer forget it."""
    manager = _somebody(talk)
    _greet_as(talk, manager)
    # A sender may put the number into the ordinal, with zeros for the rest: that needs no knowledge of a sequence.
    bodies = [
        *(OrderAckBody(TxSequenceId(ordinal=number), 0, 0) for number in (1, 1_000, FAR)),
        *(OrderAckBody(TxSequenceId(time_stamp=stamp, ordinal=1), 0xFFFFFFFF, 0) for stamp in (SENT_S, FAR)),
    ]
    packets = [
        encode_packet(
            order_ack(
                source=manager,
                destination_manager=talk.target.server,
                destination=ORDER_QUEUE,
                message_id=NUMBER,
                sent_time_s=SENT_S,
                body=body,
            )
        )
        for body in bodies
    ]
    talk.acknowledge()
    talk.burst(packets, "OrderAcks")
    talk.hold(2)
    return "and OrderAcks of all"


def claimed_and_idle(talk: Talk) -> str:
    """Sessions in known queue managers' names that acknowledge nothing, and live on by empty SessionAcks."""
    managers = talk.target.known or (_somebody(talk),)
    for connection, manager in enumerate(managers):
        _greet_as(talk, manager, connection)
    for _ in range(5):
        for connection in range(len(managers)):
            talk.acknowledge(connection)
        talk.hold()
    return f"{len(managers)} sessions"


def claims(talk: Talk) -> str:
    """EstablishConnections in the names of known queue managers, again and again."""
    for connection in range(20):
        talk.request(connection, client=_somebody(talk), server=talk.target.server)
        talk.propose(connection)
    talk.hold()
    for connection in range(20):
        talk.act(Act.CLOSE, connection)
    talk.hold()
    return "20 claims"


def own_name(talk: Talk) -> str:
    """Messages from the peer itself, as if they had come back to it."""
    packet = message_of(talk.target.queues[0], "recoverable").replace(IDENTITY, talk.target.server)
    talk.greet()
    talk.burst([packet] * 20, "messages in the peer's own name")
    talk.wait()
    return "20 messages"


def to_be_forwarded(talk: Talk) -> str:
    """Messages for other queue managers that the peer knows, which it may not pass on for us.  [MS-MQQB] 3.1.5.8.2"""
    manager = _somebody(talk)
    transactions = talk.dice.random() < 0.5
    packet = encode_packet(
        a_message(
            17,
            destination_manager=manager,
            recoverable=True,
            transaction=transaction() if transactions else None,
        )
    )
    talk.greet()
    talk.burst([packet] * MANY, "messages for somebody else")
    talk.wait()
    return f"{MANY} {'transactional' if transactions else 'recoverable'} messages"


def to_nobody(talk: Talk) -> str:
    """Small express messages for queue managers that are made up."""
    talk.greet()
    packets = [
        encode_packet(a_message(17, destination_manager=Guid(talk.dice.randbytes(16)))) for _ in range(100)
    ]
    talk.burst(packets, "messages for queue managers that are not there")
    talk.wait()
    return f"{len(packets)} queue managers"


def no_order_queue(talk: Talk) -> str:
    """Messages to the order queue that acknowledge nothing.  [MS-MQQB] 2.2.4"""
    talk.greet()
    packet = encode_packet(
        a_message(
            ORDER_QUEUE, destination_manager=talk.target.server, label="QM Ordering Ack", body=bytes(36)
        )
    )
    talk.burst([packet] * MANY, "messages to the order queue")
    talk.wait()
    return f"{MANY} messages"


FORGERIES: Final[dict[str, Callable[[Talk], str]]] = {
    "forged sources": forged_sources,
    "a sequence beyond a neighbour's": far_sequence,
    "messages in a neighbour's name": others_messages,
    "a session in a neighbour's name": claimed_session,
    "idle sessions in neighbours' names": claimed_and_idle,
    "claims again and again": claims,
    "messages in the peer's own name": own_name,
    "messages to be passed on": to_be_forwarded,
    "messages for nobody": to_nobody,
    "messages to the order queue": no_order_queue,
}
"""By kind of case, who says it."""
