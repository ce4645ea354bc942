"""Forgeries as cases for a live peer. A stranger can only guess what the peer has sent.

If we do not know any queue manager that the peer knows, we invent one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mqproto.simulator.fuzz.tactics.forgeries import (
    FAR,
    Speaker,
    confirms_orders,
    confirms_receipt,
    forges_a_message,
    sends_through,
    uses_up_identifiers,
    uses_up_numbers,
)
from mqproto.simulator.fuzz.tactics.packets import (
    IDENTITY,
    LIVES_S,
    NUMBER,
    SENT_S,
    LastSent,
    a_message,
    transaction,
)
from mqproto.simulator.fuzz.tactics.talk import BURST, Tactic, Talk, described
from mqproto.wire import Guid, MessageClass, Packet, TxSequenceId, encode_packet
from mqproto.wire.messages import ORDER_QUEUE

NUMBERS: Final = range(16, 24)
"""The numbers that a queue manager gives to its first few private queues."""
FAR_NUMBERS: Final = (0, 1, 2, FAR, FAR + 1, 0xFFFFFFFE, 0xFFFFFFFF)
STAMPS: Final = (SENT_S, SENT_S, 0, FAR, 0xFFFFFFFF)
"""The times at which a sequence may have begun. Some senders put a message's number into the Ordinal, and 0 into the
time (3.1.1.6.2).
"""
ORDINALS: Final = (*range(33), NUMBER, 1_000, FAR, 0xFFFFFFFF)


ENDS: Final = [each for each in MessageClass if each >= 0x4000]


@dataclass(frozen=True, kw_only=True)
class Guessing(Speaker):
    """A speaker in the name of a queue manager that the peer knows. The speaker knows nothing else."""

    talk: Talk

    def number(self, place: int) -> int:
        return NUMBER

    def next_number(self) -> int:
        return self.talk.dice.choice((1, self.talk.dice.getrandbits(32)))

    def end(self) -> MessageClass:
        return self.talk.dice.choice(ENDS)

    def sent(self, manager: Guid) -> Iterable[LastSent]:
        """Return guesses. According to KB 830639, an OrderAck for an unknown sequence once corrupted the pending
        messages.
        """
        choice = self.talk.dice.choice
        for _ in range(self.talk.count(1, 4, many=32)):
            identifier = TxSequenceId(time_stamp=choice(STAMPS), ordinal=choice(ORDINALS))
            yield LastSent(identifier, choice(FAR_NUMBERS), choice(FAR_NUMBERS), choice(FAR_NUMBERS))


def speaker_of(talk: Talk, name: Guid) -> Guessing:
    """Return a speaker that speaks in this name and guesses the rest."""
    return Guessing(
        caller=IDENTITY,
        name=name,
        target=talk.target.server,
        sent_s=SENT_S,
        notes=talk.target.queues[0],
        orders=(*NUMBERS, *talk.target.queues),
        lives_s=LIVES_S,
        many=BURST,
        talk=talk,
    )


def _greet_as(talk: Talk, manager: Guid, connection: int = 0) -> None:
    """Do the handshake in a queue manager's name."""
    talk.request(connection, client=manager)
    talk.wait(connection)
    talk.propose(connection)
    talk.wait(connection)


def _says(
    act: Callable[[Speaker], Iterable[Packet]],
    talk: Talk,
    *,
    claims: bool | None = False,
    times: int = 1,
    by_itself: bool = False,
) -> str:
    """Perform an act in a session, in our own name or in the speaker's name.

    Args:
        claims: whether to present the speaker's name; at random if None.
        times: how many times to send the packets of the act, if the case sends a lot.
        by_itself: whether the speaker's name is that of the peer itself.
    """
    name = talk.target.server if by_itself else talk.somebody()
    claimed = talk.chance() if claims is None else claims
    if claimed:
        _greet_as(talk, name)
    else:
        talk.greet()
    packets = [encode_packet(packet) for packet in act(speaker_of(talk, name))]
    if talk.is_much:
        talk.burst(packets * times, "packets in another's name")
    else:
        for packet in packets:
            talk.tell(packet, "in another's name", plain=True)
    talk.wait()
    return f"{len(packets) * times} packets over a session in {'that' if claimed else 'its own'} name"


def _claimed_session(talk: Talk) -> str:
    """A session, in a known queue manager's name, that takes waiting messages and makes the peer forget them."""
    said = _says(confirms_orders, talk, claims=True)
    talk.acknowledge()
    talk.hold(2)
    return said


def _claimed_and_idle(talk: Talk) -> str:
    """Sessions in known queue managers' names, which are kept alive by SessionAcks that acknowledge nothing."""
    managers = talk.target.known or (talk.stranger(),)
    for connection, manager in enumerate(managers):
        _greet_as(talk, manager, connection)
    for _ in range(5):
        for connection in range(len(managers)):
            talk.acknowledge(connection)
        talk.hold()
    return f"{len(managers)} sessions"


def acknowledges_a_sequence(talk: Talk) -> str:
    """OrderAcks or FinalAcks for sequences and messages that the peer may have sent."""
    return _says(talk.dice.choice((confirms_orders, confirms_receipt)), talk)


def _forged_sources(talk: Talk) -> str:
    """Small transactional messages, each from a different queue manager that the peer does not know."""
    packet = encode_packet(a_message(talk.target.queues[-1], transaction=transaction()))
    return talk.flood((packet.replace(IDENTITY, talk.stranger()) for _ in range(BURST)), "forged sources")


def _to_nobody(talk: Talk) -> str:
    """Small express messages for queue managers that do not exist."""
    packets = [encode_packet(a_message(17, destination_manager=talk.stranger())) for _ in range(100)]
    return talk.flood(packets, "messages for queue managers that are not there")


def _no_order_queue(talk: Talk) -> str:
    """Messages to the order queue that acknowledge nothing.  [MS-MQQB] 2.2.4"""
    label, manager = "QM Ordering Ack", talk.target.server
    message = a_message(ORDER_QUEUE, destination_manager=manager, label=label, body=bytes(36))
    return talk.flood([encode_packet(message)] * BURST, "messages to the order queue")


FORGERIES: Final[dict[str, Tactic]] = {
    "forged sources": _forged_sources,
    "a sequence beyond a neighbour's": described(
        "Transactional messages in a known sender's name, in a sequence beyond all of its own.  [MS-MQQB] 3.1.5.8.6",
        partial(_says, uses_up_numbers, claims=None),
    ),
    "messages in a neighbour's name": described(
        "Messages with the source and the next numbers of a known sender.  [MS-MQQB] 3.1.5.8.1",
        partial(_says, uses_up_identifiers, claims=True),
    ),
    "a session in a neighbour's name": _claimed_session,
    "idle sessions in neighbours' names": _claimed_and_idle,
    "messages in the peer's own name": described(
        "Messages from the peer itself, as if they had come back to it.",
        partial(_says, forges_a_message, times=20, by_itself=True),
    ),
    "messages to be passed on": described(
        "Messages for other queue managers that the peer knows, which it may not pass on for us.  [MS-MQQB] 3.1.5.8.2",
        partial(_says, sends_through, times=BURST),
    ),
    "messages for nobody": _to_nobody,
    "messages to the order queue": _no_order_queue,
}
"""The tactics, keyed by the kind of case."""
