"""The valid conversation that a case begins from: packets of every kind, and the counts that tie them together.

Packets are made once, with marks in them where each case has its own values, and the marks are filled in for each
case: so a mutation is drawn from a plan that is made once for each packet, and hundreds of cases are made in a second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from mqproto.transfer.acknowledgments import ORDER_QUEUE
from mqproto.turn.guard import CIPHERS
from mqproto.wire import (
    NULL_GUID,
    FinalAckBody,
    FormatNameList,
    Guid,
    MessageClass,
    MqfAddressHeader,
    MqfFormatNameElement,
    MultiQueueFormatHeader,
    OrderAckBody,
    PrivateQueueFormatName,
    SecurityHeader,
    SessionHeader,
    SimpleBlob,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    connection_parameters,
    encode_key_blob,
    encode_packet,
    establish_connection,
    final_ack,
    order_ack,
    session_ack,
    user_message,
    with_session_header,
)
from mqproto.wire.glance import is_recoverable
from simulator.base.randomness import chance
from simulator.fuzz.mutations import mutate
from simulator.fuzz.tactics.cases import Act, Case, Step

WINDOW: Final = 64
LIVES_S: Final = 300
"""TimeToBeReceived of what we send, so that a peer's queues do not fill for ever."""
IDENTITY_COUNT: Final = 256
"""How many queue managers we are in turn: a peer remembers each, and the sequences that it began."""

# Marks: bytes that stand in no packet by chance.
IDENTITY: Final = Guid(bytes.fromhex("6d71fa2257e94c0e9b1df0a5c3d82e41"))
PRESENTED: Final = Guid(bytes.fromhex("6d71fa2257e94c0e9b1df0a5c3d82e42"))
SENT_S: Final = 0xE1A3_57F2
NUMBER: Final = 0xD7B4_96C1
"""A number of each packet's own."""
SEQUENCE: Final = 0xD7B4_96C2
"""A number that all packets of a case have in common."""
_word = struct.Struct("<I")
_SENT_MARK, _NUMBER_MARK, _SEQUENCE_MARK = map(_word.pack, (SENT_S, NUMBER, SEQUENCE))
NUMBERS_EACH: Final = 128
"""How many numbers a case has."""

RECOVERABLE_ACK_MS: Final = 500
ACK_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Target:
    """Whom the cases are for.

    queues: direct names of the queues that messages go to, without `DIRECT=`.
    server: the peer's queue manager; NULL_GUID while it is not known.
    presented: the queue manager that we say we are; None for a stranger, a new one each time.
    sent_s: what messages say of the time; it also makes who we are, new at each time.
    known: queue managers that the peer knows, itself not among them.
    """

    queues: tuple[str, ...]
    server: Guid = NULL_GUID
    presented: Guid | None = None
    sent_s: int = 0
    known: tuple[Guid, ...] = ()


def identity_of(target: Target, seed: int, name: str) -> Guid:
    """A queue manager that we are: another one each time, as a peer knows the messages of the last by their numbers."""
    return Guid(chance(seed, "identity", f"{target.sent_s}", name).randbytes(16))


class Talk:
    """Makes the steps of one case, and keeps the counts that a SessionHeader needs.

    Args:
        number: of the case; with the seed it makes everything that is drawn.
        identity: who tells it; one of IDENTITY_COUNT by default.
    """

    def __init__(self, target: Target, seed: int, number: int, identity: Guid | None = None) -> None:
        self.target = target
        self.dice = chance(seed, "case", str(number))
        self.number = number
        self.identity = identity or identity_of(target, seed, f"{number % IDENTITY_COUNT}")
        self.steps: list[Step] = []
        self._counts: dict[int, list[int]] = {}
        self._glued_from: int | None = None

    # What the tactics say

    def request(self, connection: int = 0, *, server: Guid = NULL_GUID, client: Guid = PRESENTED) -> None:
        """EstablishConnection."""
        self.say(connection_request(client, server), "EstablishConnection", connection)

    def propose(self, connection: int = 0) -> None:
        """ConnectionParameters."""
        self.say(proposal(), "ConnectionParameters", connection)

    def greet(self, connection: int = 0, *, glued: bool | None = None) -> None:
        """The whole handshake, one packet after the other or both at once."""
        self.request(connection)
        if not (self.dice.random() < 0.3 if glued is None else glued):
            self.wait(connection)
        self.propose(connection)
        if not (self.dice.random() < 0.3 if glued is None else glued):
            self.wait(connection)

    def message(self, kind: str, connection: int = 0, *, queue: int = 0, plain: bool = False) -> None:
        """A UserMessage of a kind of MESSAGES."""
        name = self.target.queues[queue % len(self.target.queues)]
        self.tell(message_of(name, kind), kind, connection, plain=plain)

    def tell(self, packet: bytes, note: str, connection: int = 0, *, plain: bool = False) -> None:
        """A UserMessage; some bring a SessionHeader along if not `plain`, as any may.  [MS-MQQB] 3.1.5.8.4"""
        counts = self.counts(connection)
        counts[0] += 1
        counts[1] += is_recoverable(packet)
        if not plain and self.dice.random() < 0.15:
            packet, note = with_session_header(packet, self.header(connection)), f"{note}, SessionHeader"
        self.say(packet, note, connection)

    def burst(self, packets: Iterable[bytes], note: str, connection: int = 0) -> None:
        """UserMessages in one piece, each with a number of its own where NUMBER stands; without SessionHeaders."""
        counts = self.counts(connection)
        said = []
        for packet in packets:
            counts[0] += 1
            counts[1] += is_recoverable(packet)
            said.append(packet.replace(_NUMBER_MARK, self.dice.randbytes(_word.size)))
        self.say(b"".join(said), f"{len(said)} {note}", connection)

    def last_word(self, connection: int = 0) -> None:
        """A message that has to be acknowledged soon; if the session lives it is."""
        self.message("recoverable", connection)
        self.wait(connection)

    def acknowledge(self, connection: int = 0, **changes: int) -> None:
        """A SessionAck with the right counts, or with others."""
        self.say(encode_packet(session_ack(self.header(connection, **changes))), "SessionAck", connection)

    def header(self, connection: int = 0, **changes: int) -> SessionHeader:
        """A SessionHeader with the counts of a connection."""
        sent, recoverable = self.counts(connection)
        fields = {
            "user_msg_sequence_number": sent & 0xFFFF,
            "recoverable_msg_seq_number": recoverable & 0xFFFF,
        }
        return SessionHeader(**fields | changes)

    def counts(self, connection: int = 0) -> list[int]:
        """How many messages a connection has carried, and how many recoverable ones."""
        return self._counts.setdefault(connection, [0, 0])

    def say(self, data: bytes, note: str, connection: int = 0, *, piece_bytes: int = 0) -> None:
        """Any bytes."""
        self.steps.append(Step(Act.SEND, connection, data, piece_bytes, note))

    def act(self, act: Act, connection: int = 0, data: bytes = b"") -> None:
        """Any other step."""
        self.steps.append(Step(act, connection, data))

    def hold(self, count: int = 1) -> None:
        """Leave all connections as they are for a while, in which others must be served."""
        for _ in range(count):
            self.act(Act.WATCH)

    def wait(self, connection: int = 0) -> None:
        """Hear what the peer owes."""
        self.act(Act.AWAIT, connection)

    # What becomes of it

    def glue(self) -> None:
        """Send what is said on from here in one piece."""
        self._glued_from = len(self.steps)

    def in_pieces(self, piece_bytes: int) -> None:
        """Send all that was said in pieces of `piece_bytes`."""
        self.steps = [replace(step, piece_bytes=piece_bytes) for step in self.steps]

    def case(self, kind: str, name: str) -> Case:
        """The case, with the marks filled in."""
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
        """Bytes with their marks filled in, for the step at this index."""
        if not data:
            return data
        first = self.number * NUMBERS_EACH + 1
        number = first + index % (NUMBERS_EACH - 1)
        return (
            data.replace(PRESENTED, self.target.presented or self.identity)
            .replace(IDENTITY, self.identity)
            .replace(_SENT_MARK, _word.pack(self.target.sent_s))
            .replace(_NUMBER_MARK, _word.pack(number & 0xFFFFFFFF))
            .replace(_SEQUENCE_MARK, _word.pack(first + NUMBERS_EACH - 1 & 0xFFFFFFFF))
        )

    def mutate(self, index: int) -> tuple[str, str]:
        """Mutate what the step at this index sends; what was done, and to which class it belongs."""
        step = self.steps[index]
        mutant = mutate(step.data, self.dice)
        self.steps[index] = Step(
            Act.SEND, step.connection, mutant.data, 0, f"{step.note}: {mutant.name}", step.data
        )
        return mutant.name, mutant.kind


# Packets


@lru_cache(maxsize=64)
def connection_request(client: Guid = PRESENTED, server: Guid = NULL_GUID) -> bytes:
    """EstablishConnection."""
    return encode_packet(establish_connection(client=client, server=server, time_stamp_ms=1_000))


@lru_cache(maxsize=1)
def proposal() -> bytes:
    """ConnectionParameters."""
    return encode_packet(
        connection_parameters(
            recoverable_ack_timeout_ms=RECOVERABLE_ACK_MS, ack_timeout_ms=ACK_MS, window_size=WINDOW
        )
    )


def a_message(queue: str | int, **changes: Any) -> UserMessage:
    """A message to a queue, some of its properties changed; IDENTITY sends it."""
    arguments: dict[str, Any] = {
        "source": IDENTITY,
        "destination_manager": NULL_GUID,
        "destination": queue,
        "message_id": NUMBER,
        "sent_time_s": SENT_S,
        "body": b"a body of some bytes",
        "label": "fuzz",
        "time_to_be_received_s": LIVES_S,
    }
    return user_message(**arguments | changes)


def transaction(
    number: int = 1, previous: int = 0, *, ordinal: int = NUMBER, time_stamp: int = SENT_S
) -> TransactionHeader:
    """A place in a sequence that is the case's own."""
    header = TransactionHeader(
        tx_sequence_id=TxSequenceId(time_stamp=time_stamp, ordinal=ordinal),
        tx_sequence_number=number,
        previous_tx_sequence_number=previous,
    )
    header.first = header.last = True
    return header


def transactional(queue: str, place: TransactionHeader) -> UserMessage:
    """A transactional message with this place in a sequence."""
    return a_message(queue, transaction=place)


def _names(queue: str) -> FormatNameList:
    return FormatNameList(
        [
            MqfFormatNameElement(3, b"", queue),
            MqfFormatNameElement(2, b"", PrivateQueueFormatName(IDENTITY, 17)),
            MqfFormatNameElement(1, b"", IDENTITY),
        ]
    )


def _with_headers(queue: str) -> UserMessage:
    """All that a message may have beside its body."""
    names = MqfAddressHeader(format_name_list=_names(queue))
    message = a_message(
        queue,
        transaction=transaction(),
        admin_queue=PrivateQueueFormatName(IDENTITY, 9),
        response_queue=queue,
        extension=b"extension",
        acknowledgments=0x0F,
        multi_queue_format=MultiQueueFormatHeader(destination=names, administration=names),
    )
    message.user.has_soap = True
    message.soap = SoapHeader(header="<header/>", body="<body/>")
    return message


def _secured(queue: str) -> UserMessage:
    message = a_message(queue, recoverable=True)
    message.user.has_security = True
    message.security = SecurityHeader(sender_id=IDENTITY, signature=b"signed", sender_cert=b"certificate")
    message.security.sender_id_type = 2
    message.security.has_security_data = True
    return message


def _encrypted(queue: str) -> UserMessage:
    """What looks like AES-256 to whoever has keys; nobody has the one that its key is encrypted with."""
    message = a_message(queue, recoverable=True, body=bytes(range(64)))
    message.properties.privacy_level, message.properties.encryption_algorithm = CIPHERS["AES-256"]
    message.user.has_security = True
    key = encode_key_blob(SimpleBlob(encrypted_key=bytes(range(256))))
    message.security = SecurityHeader(encryption_key=key)
    message.security.body_encrypted = message.security.has_security_data = True
    return message


def _order_ack(_: str) -> UserMessage:
    return order_ack(
        source=IDENTITY,
        destination_manager=NULL_GUID,
        destination=ORDER_QUEUE,
        message_id=NUMBER,
        sent_time_s=SENT_S,
        body=OrderAckBody(TxSequenceId(time_stamp=SENT_S, ordinal=NUMBER), 3, 2),
    )


def _final_ack(_: str) -> UserMessage:
    return final_ack(
        source=IDENTITY,
        destination_manager=NULL_GUID,
        destination=ORDER_QUEUE,
        message_id=NUMBER,
        sent_time_s=SENT_S,
        message_class=MessageClass.ACK_RECEIVE,
        body=FinalAckBody(TxSequenceId(time_stamp=SENT_S, ordinal=NUMBER), 3, 2, IDENTITY, 7),
    )


MESSAGES: Final[dict[str, Callable[[str], UserMessage]]] = {
    "express": lambda queue: a_message(queue),
    "recoverable": lambda queue: a_message(queue, recoverable=True),
    "transactional": lambda queue: a_message(queue, transaction=transaction()),
    "with all headers": _with_headers,
    "secured": _secured,
    "encrypted": _encrypted,
    "traced": lambda queue: a_message(queue, trace_queue=IDENTITY),
    "asking for acknowledgments": lambda queue: a_message(
        queue, recoverable=True, acknowledgments=0x0F, admin_queue=queue, journal_negative=True
    ),
    "for a queue that is not there": lambda queue: a_message(queue + "-not-there", recoverable=True),
    "for another queue manager": lambda queue: a_message(
        queue, destination_manager=IDENTITY, destination=17, recoverable=True
    ),
    "for a private queue by number": lambda queue: a_message(queue, destination=17, recoverable=True),
    "an administration acknowledgment": lambda queue: a_message(
        queue, message_class=MessageClass.ACK_REACH_QUEUE, correlation_id=IDENTITY + bytes(4)
    ),
    "OrderAck": _order_ack,
    "FinalAck": _final_ack,
}
"""The kinds of UserMessages, each made for a queue."""


@lru_cache(maxsize=256)
def message_of(queue: str, kind: str) -> bytes:
    """A UserMessage of a kind of MESSAGES, with marks."""
    return encode_packet(MESSAGES[kind](queue))


def whole_conversation(talk: Talk, count: int) -> list[int]:
    """Handshake, messages, acknowledgments and a last word; the indexes of the steps that may be mutated."""
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
