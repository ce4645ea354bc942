"""The conversation of a case, step by step, and the counts that tie its packets together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.mutations import mutate
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step
from mqproto.simulator.fuzz.tactics.packets import (
    IDENTITY,
    MESSAGES,
    NUMBER_MARK,
    PRESENTED,
    SENT_MARK,
    SEQUENCE_MARK,
    WORD,
    connection_request,
    message_of,
    proposal,
)
from mqproto.wire import NULL_GUID, Guid, SessionAck, SessionHeader, encode_packet, with_session_header
from mqproto.wire.glance import is_recoverable

IDENTITY_COUNT: Final = 256
"""The number of queue managers that we claim to be, one after the other. It is limited, because a peer remembers each
of them and its sequences.
"""
NUMBERS_EACH: Final = 128
"""How many message numbers are reserved for each case."""
BURST: Final = 500
"""The number of small packets that are sent in one piece."""


@dataclass(frozen=True, slots=True)
class PeerTarget:
    """The peer for which cases are made.

    queues: direct names, without `DIRECT=`, of the queues to which messages go.
    server: the peer's queue manager; NULL_GUID while it is not known.
    presented: the queue manager that we claim to be; None for a new stranger each time.
    sent_s: the SentTime of messages. Our identities also depend on it, so they change with it.
    known: queue managers that the peer knows, except itself.
    """

    queues: tuple[str, ...]
    server: Guid = NULL_GUID
    presented: Guid | None = None
    sent_s: int = 0
    known: tuple[Guid, ...] = ()


def identity_of(target: PeerTarget, seed: int, name: str) -> Guid:
    """Return the GUID of a queue manager that we claim to be.

    It differs from run to run, because a peer remembers the numbers of old messages.
    """
    return Guid(chance(seed, "identity", f"{target.sent_s}", name).randbytes(16))


class Talk:
    """Makes the steps of one case, and keeps the counts that a SessionHeader needs.

    Args:
        number: the case's number, which, together with the seed, determines all random choices.
        identity: the queue manager that speaks; by default one of IDENTITY_COUNT.

    is_much: whether the case sends a lot, in order to keep the peer from serving others.
    """

    def __init__(self, target: PeerTarget, seed: int, number: int, identity: Guid | None = None) -> None:
        self.target = target
        self.dice = chance(seed, "case", str(number))
        self.number = number
        self.identity = identity or identity_of(target, seed, f"{number % IDENTITY_COUNT}")
        self.is_much = False
        self.steps: list[Step] = []
        self._counts: dict[int, list[int]] = {}
        self._glued_from: int | None = None

    @property
    def queue(self) -> str:
        """The first of the peer's queues."""
        return self.target.queues[0]

    def chance(self) -> bool:
        """Return True or False at random."""
        return self.dice.random() < 0.5

    def stranger(self) -> Guid:
        """Return a queue manager that is unknown to everybody."""
        return Guid(self.dice.randbytes(16))

    def somebody(self) -> Guid:
        """Return a queue manager that the peer knows, if we know one; otherwise a stranger."""
        return self.dice.choice(self.target.known or (self.stranger(),))

    def count(self, least: int, most: int, *, many: int) -> int:
        """Return a random number from `least` to `most`, or `many` if the case sends a lot."""
        return many if self.is_much else self.dice.randint(least, most)

    # What the tactics say

    def request(self, connection: int = 0, *, server: Guid = NULL_GUID, client: Guid = PRESENTED) -> None:
        """Send EstablishConnection."""
        self.say(connection_request(client, server), "EstablishConnection", connection)

    def propose(self, connection: int = 0) -> None:
        """Send ConnectionParameters."""
        self.say(proposal(), "ConnectionParameters", connection)

    def greet(self, connection: int = 0, *, glued: bool | None = None) -> None:
        """Perform the whole handshake, either one packet at a time or with both packets at once."""
        self.request(connection)
        if not (self.dice.random() < 0.3 if glued is None else glued):
            self.wait(connection)
        self.propose(connection)
        if not (self.dice.random() < 0.3 if glued is None else glued):
            self.wait(connection)

    def message(self, kind: str, connection: int = 0, *, queue: int = 0, plain: bool = False) -> None:
        """Send a UserMessage of a kind in MESSAGES."""
        name = self.target.queues[queue % len(self.target.queues)]
        self.tell(message_of(name, kind), kind, connection, plain=plain)

    def tell(self, packet: bytes, note: str, connection: int = 0, *, plain: bool = False) -> None:
        """Send a UserMessage. If `plain` is not set, some messages have a SessionHeader, as any message may.  [MS-MQQB]
        3.1.5.8.4
        """
        counts = self.counts(connection)
        counts[0] += 1
        counts[1] += is_recoverable(packet)
        if not plain and self.dice.random() < 0.15:
            packet, note = with_session_header(packet, self.header(connection)), f"{note}, SessionHeader"
        self.say(packet, note, connection)

    def burst(self, packets: Iterable[bytes], note: str, connection: int = 0) -> None:
        """Send UserMessages in one piece, without SessionHeaders. Each has its own number in place of NUMBER."""
        counts = self.counts(connection)
        said = []
        for packet in packets:
            counts[0] += 1
            counts[1] += is_recoverable(packet)
            said.append(packet.replace(NUMBER_MARK, self.dice.randbytes(WORD.size)))
        self.say(b"".join(said), f"{len(said)} {note}", connection)

    def flood(self, packets: Iterable[bytes], note: str) -> str:
        """Do the handshake, send a burst, and wait for owed answers. Return the number and kind of the packets in
        words.
        """
        self.greet(glued=True)
        self.burst(packets, note)
        self.wait()
        return self.steps[-2].note

    def last_word(self, connection: int = 0) -> None:
        """Send a message that must be acknowledged soon if the session is still alive."""
        self.message("recoverable", connection)
        self.wait(connection)

    def acknowledge(self, connection: int = 0, **changes: int) -> None:
        """Send a SessionAck with the right counts, except where `changes` gives others."""
        self.say(
            encode_packet(SessionAck(session=self.header(connection, **changes))), "SessionAck", connection
        )

    def header(self, connection: int = 0, **changes: int) -> SessionHeader:
        """Return a SessionHeader with the counts of a connection, except where `changes` gives others."""
        sent, recoverable = self.counts(connection)
        fields = {
            "user_msg_sequence_number": sent & 0xFFFF,
            "recoverable_msg_seq_number": recoverable & 0xFFFF,
        }
        return SessionHeader(**fields | changes)

    def counts(self, connection: int = 0) -> list[int]:
        """Return the number of messages that a connection has carried, and how many of them are recoverable."""
        return self._counts.setdefault(connection, [0, 0])

    def say(self, data: bytes, note: str, connection: int = 0, *, piece_bytes: int = 0) -> None:
        """Send any bytes."""
        self.steps.append(Step(Act.SEND, connection, data, piece_bytes, note))

    def act(self, act: Act, connection: int = 0, data: bytes = b"") -> None:
        """Add a step that is not SEND."""
        self.steps.append(Step(act, connection, data))

    def hold(self, count: int = 1) -> None:
        """Leave all connections as they are for a while. Meanwhile, the peer must serve others."""
        for _ in range(count):
            self.act(Act.WATCH)

    def wait(self, connection: int = 0) -> None:
        """Wait for the answers that the peer owes."""
        self.act(Act.AWAIT, connection)

    # Making the case

    def glue(self) -> None:
        """Send everything in one piece from now on."""
        self._glued_from = len(self.steps)

    def in_pieces(self, piece_bytes: int) -> None:
        """Send everything that has been added so far in pieces of `piece_bytes`."""
        self.steps = [replace(step, piece_bytes=piece_bytes) for step in self.steps]

    def case(self, kind: str, name: str) -> Case:
        """Return the case, with the marks filled in."""
        steps = [
            Step(
                step.act,
                step.connection,
                self.filled(step.data, index),
                step.piece_bytes,
                step.note,
                self.filled(step.was, index),
            )
            for index, step in enumerate(self.steps)
        ]
        if self._glued_from is not None:
            glued = [step for step in steps[self._glued_from :] if step.act is Act.SEND]
            others = [step for step in steps[self._glued_from :] if step.act is not Act.SEND]
            data = b"".join(step.data for step in glued)
            note = " and ".join(step.note for step in glued)
            steps[self._glued_from :] = [Step(Act.SEND, glued[0].connection, data, 0, note), *others]
        return Case(kind, name, tuple(steps), self.identity, self.target.sent_s, self.number)

    def filled(self, data: bytes, index: int) -> bytes:
        """Return the data of the step at this index with its marks filled in."""
        if not data:
            return data
        first = self.number * NUMBERS_EACH + 1
        number = first + index % (NUMBERS_EACH - 1)
        return (
            data.replace(PRESENTED, self.target.presented or self.identity)
            .replace(IDENTITY, self.identity)
            .replace(SENT_MARK, WORD.pack(self.target.sent_s))
            .replace(NUMBER_MARK, WORD.pack(number & 0xFFFFFFFF))
            .replace(SEQUENCE_MARK, WORD.pack(first + NUMBERS_EACH - 1 & 0xFFFFFFFF))
        )

    def mutate(self, index: int) -> tuple[str, str]:
        """Mutate the data of the step at this index. Return the mutation in words, and its class."""
        step = self.steps[index]
        mutant = mutate(step.data, self.dice)
        self.steps[index] = Step(
            Act.SEND, step.connection, mutant.data, 0, f"{step.note}: {mutant.name}", step.data
        )
        return mutant.name, mutant.kind


Tactic = Callable[[Talk], str]
"""A function that adds its steps to a talk, and returns its random choices in words.

Its docstring begins with a description of the tactic.
"""


def described(does: str, tell: Tactic) -> Tactic:
    """Give this docstring to a tactic that does not have one; return the tactic."""
    tell.__doc__ = does
    return tell


def whole_conversation(talk: Talk, count: int) -> list[int]:
    """Add a whole conversation, from the handshake to the last word; return the indexes of the steps to mutate."""
    dice = talk.dice
    talk.greet()
    kinds = list(MESSAGES)
    for _ in range(count):
        talk.message(dice.choice(kinds), queue=dice.randrange(len(talk.target.queues)))
        if dice.random() < 0.25:
            talk.acknowledge()
        if dice.random() < 0.25:
            talk.wait()
    places = [index for index, step in enumerate(talk.steps) if step.act is Act.SEND]
    talk.last_word()
    return places
