"""Packets in others' names, and packets from strangers who only want to send. How they are transported does not matter
here.

None of these packets changes what queue managers have promised each other. A speaker knows or guesses what can be
forged. guesses.py has a speaker for live peers, and world/faults/impostors.py has one that knows everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL
from mqproto.simulator.fuzz.tactics.packets import WINDOW, LastSent, a_message, acknowledgment, transaction
from mqproto.wire import Guid, MessageClass, Packet, SessionAck, SessionHeader, UserMessage

FORGED: Final = b"forged"
"""The body of messages that no application may ever receive."""
MADE_UP: Final = "made-up-host"
FAR: Final = 0x7FFFFFFF
"""A number higher than any number that a sender has reached."""


@dataclass(frozen=True, kw_only=True)
class Speaker(ABC):
    """The speaker of forgeries, and its target.

    caller: the speaker's own queue manager.
    name: the queue manager in whose name it speaks.
    target: the queue manager that it called.
    notes: a queue of the target.
    orders: the queues of the target that take transactions.
    lives_s: the TimeToBeReceived of messages, in seconds.
    own_body: the body of messages in the speaker's own name.
    body: the body of messages in the name of `name`.
    many: how many messages the speaker sends in the name of `name`.
    """

    caller: Guid
    name: Guid
    target: Guid
    sent_s: int
    notes: int | str
    orders: tuple[int | str, ...]
    lives_s: int
    own_body: bytes = FORGED
    body: bytes = FORGED
    many: int = 20

    def number(self, place: int) -> int:
        """Return one of the speaker's own MessageIDs. `place` says which one."""
        return place

    def end(self) -> MessageClass:
        """Return the class of a forged FinalAck."""
        return MessageClass.ACK_RECEIVE

    @abstractmethod
    def next_number(self) -> int:
        """Return the MessageID that `name` will use next."""

    @abstractmethod
    def sent(self, manager: Guid) -> Iterable[LastSent]:
        """Return the last message that a queue manager sent in each of its sequences."""

    def message(self, source: Guid, queue: int | str, message_id: int, **changes: Any) -> UserMessage:
        """Return a message to a queue of the target, with some properties changed."""
        arguments: dict[str, Any] = {
            "source": source,
            "destination_manager": self.target,
            "message_id": message_id,
            "sent_time_s": self.sent_s,
            "body": FORGED,
            "label": "",
            "time_to_be_received_s": self.lives_s,
        }
        return a_message(queue, **arguments | changes)

    def acknowledges(self, sent: LastSent, message_class: MessageClass | None = None) -> UserMessage:
        """Return an OrderAck from `name`, or a FinalAck of this class if one is given."""
        return acknowledgment(sent, self.name, self.target, self.sent_s, self.number(1), message_class)


def says_nothing(speaker: Speaker) -> Iterable[Packet]:
    """Send nothing."""
    return ()


def stays_awake(speaker: Speaker) -> Iterable[Packet]:
    """Send an acknowledgment of nothing, to keep the session alive."""
    yield SessionAck(session=SessionHeader(window_size=WINDOW))


def uses_up_numbers(speaker: Speaker) -> Iterable[Packet]:
    """Send, to the order queues, messages that would make all genuine orders look old.  [MS-MQQB] 3.1.5.8.6"""
    for queue in speaker.orders:
        place = transaction(ordinal=FAR, time_stamp=FAR)
        yield speaker.message(speaker.name, queue, speaker.number(1), transaction=place)


def uses_up_identifiers(speaker: Speaker) -> Iterable[Packet]:
    """Send messages with the identifiers that the genuine sender will use next.  [MS-MQQB] 3.1.5.8.1

    A queue that is open to strangers cannot tell whether a presented GUID belongs to somebody else.
    """
    first = speaker.next_number()
    for number in range(speaker.many):
        message_id = first + number & 0xFFFFFFFF
        yield speaker.message(speaker.name, speaker.notes, message_id, body=speaker.body, recoverable=True)


def forges_a_message(speaker: Speaker) -> Iterable[Packet]:
    """Send a message under a name other than the one presented."""
    yield speaker.message(speaker.name, speaker.notes, speaker.number(1), recoverable=True)


def confirms_orders(speaker: Speaker) -> Iterable[Packet]:
    """Send OrderAcks for everything that the target sent to anybody.  [MS-MQQB] 3.1.5.6"""
    for sent in speaker.sent(speaker.target):
        yield speaker.acknowledges(sent)


def confirms_receipt(speaker: Speaker) -> Iterable[Packet]:
    """Send FinalAcks for everything that the target sent.  [MS-MQQB] 3.1.5.7"""
    for sent in speaker.sent(speaker.target):
        yield speaker.acknowledges(sent, speaker.end())


def says_that_it_went_too_far(speaker: Speaker) -> Iterable[Packet]:
    """For each of the target's last messages, send the FinalAck that any queue manager on the route may send."""
    for sent in speaker.sent(speaker.target):
        yield speaker.acknowledges(sent, MessageClass.NACK_HOP_COUNT_EXCEEDED)


def confirms_through(speaker: Speaker) -> Iterable[Packet]:
    """Send OrderAcks in the target's own name, addressed to a queue manager that sends to the target. The target is
    asked to pass them on."""
    for sent in speaker.sent(speaker.name):
        yield acknowledgment(sent, speaker.target, speaker.name, speaker.sent_s, speaker.number(1))


def visits(speaker: Speaker) -> Iterable[Packet]:
    """Send messages in the speaker's own name: a note, and two orders to each order queue.

    The note asks for an acknowledgment of its arrival, to be sent to an unknown host. The first order begins a
    sequence, and the second one leaves a gap in that sequence.
    """
    answer = {"admin_queue": rf"OS:{MADE_UP}\private$\replies", "acknowledgments": ACKNOWLEDGE_ARRIVAL}
    yield speaker.message(
        speaker.caller, speaker.notes, speaker.number(1), body=speaker.own_body, recoverable=True, **answer
    )
    for number, previous in ((1, 0), (3, 2)):
        place = transaction(number, previous, ordinal=1, time_stamp=1)
        for queue in speaker.orders:
            yield speaker.message(
                speaker.caller, queue, speaker.number(1 + number), body=speaker.own_body, transaction=place
            )


def sends_through(speaker: Speaker) -> Iterable[Packet]:
    """Send a message that the target is asked to pass on.  [MS-MQQB] 3.1.5.8.2"""
    yield speaker.message(
        speaker.caller, 17, speaker.number(9), recoverable=True, destination_manager=speaker.name
    )
