"""The lists of producers, consumers and operators, which are compared with an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from mqproto.edge.custody import End, end_of
from mqproto.simulator.edges.operators.reading import Answered
from mqproto.simulator.rig.verdict import Found, RunOracle


class Holder(StrEnum):
    """The parties whose lists may have a message."""

    CONSUMER = "the consumer"
    PROGRAM = "a program that receives"
    OPERATOR = "an operator who took it by hand"
    SETTLED = "an operator who settled it"
    PRODUCER = "the producer, whose own queue was told"


HOLDERS: Final[Mapping[End, Holder]] = {
    End.PROCESSED: Holder.CONSUMER,
    End.RECEIVED: Holder.PROGRAM,
    End.COPY_TAKEN: Holder.OPERATOR,
    End.LETTER_TAKEN: Holder.OPERATOR,
    End.RESOLVED: Holder.SETTLED,
    End.ERASED: Holder.SETTLED,
    End.HEARD_ELSEWHERE: Holder.PRODUCER,
}
"""The party that must have listed a message, keyed by how the message ended. After any other end, the system has the
message, and nobody lists it.
"""


class Sent(NamedTuple):
    """A message that was answered with 200.

    way: the name of the way in which the message is to end (ways.py). A message that is sent only to prepare for
        another one has a different name.
    text: the beginning of the message's body, which is different for each message.
    """

    way: str
    queue: str
    key: str
    text: str


@dataclass
class Lists:
    """The records that senders and receivers keep, each independently.

    answered: the messages for which the producer got the answer 200, keyed by the identifier in the answer.
    has: the holder of each message, keyed by the message's text. A message keeps its text in all events, but not its
        identifier.
    twice: the messages that reached two holders, described in words.
    """

    answered: dict[str, Sent] = field(default_factory=dict)
    has: dict[str, Holder] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)

    def found(self) -> Found:
        """Return the messages that reached two holders, and those that nobody sent."""
        sent = {one.text for one in self.answered.values()}
        altered = [
            f"{holder} has {text!r}, which nobody sent"
            for text, holder in self.has.items()
            if text not in sent
        ]
        return {RunOracle.DOUBLED: self.twice, RunOracle.ALTERED: altered}

    def differences(self, audited: Answered) -> Iterator[str]:
        """Yield the differences between an audit and the lists; each line has the identifier of the message
        concerned.
        """
        for message in sorted({*self.answered} - {*audited}):
            yield f"{message} ({self.answered[message].way}) was answered 200, and the audit does not know it"
        for message, known in audited.items():
            sent = self.answered.get(message)
            if sent is None:
                yield f"{message} is known to the audit, and was never answered 200"
                continue
            end = end_of(known)
            if (known.queue, known.key) != (sent.queue, sent.key):
                said = f"{known.key!r} for {known.queue}"
                yield f"{message} ({sent.way}) was {sent.key!r} for {sent.queue}, and not {said}"
            if end is End.UNACCOUNTED:
                yield f"{message} ({sent.way}) is {end}"
            elif (has := self.has.get(sent.text)) is not HOLDERS.get(end):
                yield f"{message} ({sent.way}) is {end}, and {has or 'nobody'} says to have it"
