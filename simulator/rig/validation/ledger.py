"""Compares an audit with the records that producers, a consumer and error queues have about messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqproto.edge.custody import IN_DOUBT, End
from mqproto.simulator.client import ReceivedMessage
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.rig.load.posting import Handover, Outgoing
from mqproto.simulator.rig.verdict import Found, RunOracle, by_oracle

UNKNOWN_QUEUE: Final = "unknown-queue"
LOOKED: Final = (
    RunOracle.LOST,
    RunOracle.DOUBLED,
    RunOracle.REORDERED,
    RunOracle.ALTERED,
    RunOracle.GROUPS,
    RunOracle.AUDIT,
)


class Failed(NamedTuple):
    """A message that its trigger has given up.

    key: the producer's id or, if there is none, the message's identifier.
    failure, reason: the kind of the failure, and the reason for it.
    """

    key: str
    body: bytes
    failure: str
    reason: str

    @classmethod
    def of(cls, copy: ReceivedMessage) -> Failed:
        """Return the message that the trigger has given up, from its copy in an error queue."""
        note = FailureNote.of(copy.extension) or FailureNote(failure="")
        key = Envelope.of(copy.extension).producer_key or note.message
        return cls(key, copy.body, note.failure, note.reason)

    @property
    def end(self) -> End:
        """The end of the message, in the words of an audit."""
        return End.IN_IN_DOUBT_QUEUE if self.failure == IN_DOUBT else End.IN_ERROR_QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLedger:
    """All records about the messages of a run.

    messages: all messages that the producers had to send; those of each producer are in order.
    processed: the bodies, keyed by the messages' keys, in the order in which the consumer processed the messages.
    audited: the end of each message that was answered with 200, keyed by the message's identifier, according to
        `mqproto audit` before the error queue is emptied.
    letters: the dead letters at the first node; None if no message may become one.
    is_heard: whether a gateway has answered, so that an audit knows about the messages.
    is_honest: whether the consumer has processed exactly the messages that it has accepted.
    """

    messages: list[Outgoing]
    handover: Handover
    processed: dict[str, bytes]
    failed: list[Failed]
    audited: dict[str, End]
    letters: set[str] | None = None
    is_heard: bool = True
    is_honest: bool = True

    def found(self) -> Found:
        """Return the broken promises."""
        return by_oracle(LOOKED, self._found())

    def _found(self) -> Iterator[tuple[RunOracle, str]]:
        for wrong in self.handover.wrong:
            yield RunOracle.DOUBLED, wrong
        given_up = Counter(failed.key for failed in self.failed)
        for key in sorted(key for key, count in given_up.items() if count > 1):
            yield RunOracle.DOUBLED, f"{key} is in the error queue {given_up[key]} times"
        for message in self.messages:
            if self.letters is None or message.key not in self.handover.accepted:
                yield from self._found_of(message, set(given_up))
        for key in {*self.processed, *given_up} - {message.key for message in self.messages}:
            yield RunOracle.ALTERED, f"{key!r} was never handed in, and came out"
        yield from self._out_of_order()
        if self.is_heard:
            audited = self._audited_otherwise() if self.letters is None else self._unaccounted(self.letters)
            yield from ((RunOracle.AUDIT, text) for text in audited)
        for message_id in self.audited.keys() - set(self.handover.accepted.values()):
            yield RunOracle.AUDIT, f"{message_id} was never answered 200, and the audit has it"

    def _found_of(self, message: Outgoing, given_up: set[str]) -> Iterator[tuple[RunOracle, str]]:
        key = message.key
        ends = (key in self.processed) + (key in given_up)
        if key in self.handover.accepted:
            if not ends:
                yield RunOracle.LOST, f"{key} was accepted, and is lost"
            elif ends > 1 and self.is_honest:
                yield RunOracle.DOUBLED, f"{key} was processed, and is in the error queue"
        elif key in self.handover.refused:
            if self.handover.refused[key] != UNKNOWN_QUEUE or message.queue == "orders":
                yield RunOracle.LOST, f"{key} was refused: {self.handover.refused[key]}"
            if ends:
                yield RunOracle.ALTERED, f"{key} was refused, and came out"
        else:
            yield RunOracle.LOST, f"{key} never had an answer that was final"
        if self.processed.get(key, message.body) != message.body:
            yield RunOracle.ALTERED, f"{key} came out with another body"

    def _audited_otherwise(self) -> Iterator[str]:
        """Yield differences between the audit and the records of the producers, the consumer and the error queue."""
        ends = {failed.key: failed.end for failed in self.failed} | dict.fromkeys(
            self.processed, End.PROCESSED
        )
        for key, message in self.handover.accepted.items():
            end = self.audited.get(message, End.UNACCOUNTED)
            if end is not ends.get(key, end):
                yield f"{key} is {ends[key]}, and the audit says {end}"

    def _unaccounted(self, letters: set[str]) -> Iterator[str]:
        """Yield accepted messages that are not where the audit says, or that have not ended."""
        given_up = {failed.key for failed in self.failed}
        for key, message in self.handover.accepted.items():
            end = self.audited.get(message, End.UNACCOUNTED)
            is_there = {
                End.PROCESSED: key in self.processed,
                End.IN_ERROR_QUEUE: key in given_up,
                End.DEAD_LETTER: message in letters,
                End.LETTER_IN_DOUBT: message in letters,
            }
            if not is_there.get(end, False):
                yield f"{key} is {end}, as the audit says"

    def _out_of_order(self) -> Iterator[tuple[RunOracle, str]]:
        """Yield messages that were processed before earlier messages of their group, or of the queue if they have no
        group.
        """
        places = {key: place for place, key in enumerate(self.processed)}
        last: dict[int, tuple[int, str]] = {}
        for message in self.messages:
            place = places.get(message.key)
            if place is None:
                continue
            before, key = last.get(message.group, (-1, ""))
            if place < before:
                oracle = RunOracle.GROUPS if message.group else RunOracle.REORDERED
                yield oracle, f"{message.key} was processed before {key}"
            last[message.group] = max((place, message.key), (before, key))
