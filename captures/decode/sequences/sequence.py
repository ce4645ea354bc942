"""The state of one sequence of one source queue manager."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mqproto.captures.decode.facts import Acknowledgment, Hop, MessageKey, NodeKey, NumberedMessage
from mqproto.captures.decode.findings import Finding
from mqproto.captures.decode.ranges import first_missing
from mqproto.captures.decode.sequences.progress import HopProgress
from mqproto.captures.decode.sight import Acknowledged
from mqproto.captures.decode.ways import SECOND_NS, SLACK_NS
from mqproto.wire import NULL_GUID, Guid, QueueName, TxSequenceId

HOP_LIMIT: Final = 64
"""A sequence that crosses more hops than this is judged no more."""
CLAIM_LIMIT: Final = 100
"""How many acknowledgments of one sequence that seem to be wrong are remembered."""
SAID_LIMIT: Final = 16
"""How many OrderAcks of one sequence are compared with each other, those that were made last."""
PASSED_LIMIT: Final = 256
"""How many messages of one sequence that have passed others over are remembered."""
WRITTEN_LIMIT: Final = 64
"""For how many seconds it is remembered which number was the first that was written in it."""

SequenceKey: TypeAlias = tuple[Guid, TxSequenceId]
"""The source queue manager, and the identifier that it gave."""


@dataclass(slots=True)
class Claim:
    """An OrderAck or a FinalAck for messages that the capture does not show reaching its sender.

    missing: the lowest number that had not come, and the lowest beyond what OrderAcks had said before; of each the
        queue managers beside its sender that it had come to by then. None where no hop had led to its sender yet: of
        those that the capture has in the end it is told then.
    message_id: of a FinalAck, the message that it names.
    is_behind: whether the capture has messages behind it that came before it, so that nobody knows any more to whom
        those that are missing had come by then.
    """

    ack: Acknowledgment
    missing: dict[int, set[NodeKey]]
    message_id: int | None
    is_behind: bool = False


class Said(NamedTuple):
    """An OrderAck, as others of its sender are compared with it.

    own_id: its MessageID, which rises.
    """

    acker: Guid
    own_id: int
    number: int
    packet: int


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of one source queue manager.

    towards: QueueManagerAddress and the destination queue; None while acknowledgments alone have told about it. One
        identifier that is used for two queues is judged no more.
    unknown: what is to be noted if the capture has no message of it until its end, by code.
    early: OrderAcks that the capture has before its first message, the last of them.
    order_acked, order_ack_packet, order_ack_id, order_ack_ended: of the newest OrderAck that counts.
    said: OrderAcks in the order in which they were made.
    passed: by the number of each message that has passed others over, the lowest that it names as the one before it.
    written: pairs of SentTime and number: from this number on, all were written then or later.
    is_ahead: whether a SentTime was beyond the time of the capture, so that none of them says anything.
    suspicions: what is a fault unless the identifier turns out to be that of two queues; by code and acknowledgment, as
        one is accused once for all hops that it crosses.
    packets: by number, the last packet that carried the message, and its MessageID; as far as it is remembered.
    """

    key: SequenceKey
    towards: tuple[Guid, QueueName] | None = None
    ambiguous: bool = False
    hops: dict[Hop, HopProgress] = field(default_factory=dict)
    unknown: dict[str, Finding] = field(default_factory=dict)
    early: list[Acknowledgment] = field(default_factory=list)
    order_acked: int = 0
    order_ack_packet: int = 0
    order_ack_id: int = 0
    order_ack_ended: Acknowledged | None = None
    said: list[Said] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)
    written: list[tuple[int, int]] = field(default_factory=list)
    is_ahead: bool = False
    claims: list[Claim] = field(default_factory=list)
    suspicions: dict[tuple[str, MessageKey], Finding] = field(default_factory=dict)
    packets: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def origin(self) -> Guid:
        """The queue manager that numbers the messages."""
        return self.key[0]

    def is_from_elsewhere(self, ack: Acknowledgment) -> bool:
        """Whether an acknowledgment is by another queue manager than the messages go to.  [MS-MQQB] 3.1.1.6.2

        A direct name does not tell to whom they go.
        """
        return (
            self.towards is not None and not self.ambiguous and self.towards[0] not in (ack.key[0], NULL_GUID)
        )

    def suspect(self, finding: Finding, key: MessageKey) -> None:
        """Remember a fault of an acknowledgment, once for all hops that it crosses."""
        if len(self.suspicions) < CLAIM_LIMIT:
            self.suspicions.setdefault((finding.code, key), finding)

    def claim(self, claim: Claim) -> None:
        """Remember an unproven claim, up to a limit."""
        if len(self.claims) < CLAIM_LIMIT:
            self.claims.append(claim)

    def pass_over(self, previous: int, number: int) -> None:
        """A message of a number names another one before it than the next lower."""
        self.passed[number] = min(previous, self.passed.get(number, previous))
        if len(self.passed) > PASSED_LIMIT:
            del self.passed[next(iter(self.passed))]

    def is_passed(self, number: int, acknowledged: int) -> bool:
        """Whether an acknowledgment says nothing about a lower number, because a message has skipped that number."""
        return any(previous < number < by <= acknowledged for by, previous in self.passed.items())

    def give_up(self) -> None:
        """From now on it is unknown which packets belong to it."""
        self.ambiguous = True
        self.hops.clear()
        self.claims.clear()
        self.suspicions.clear()
        self.early.clear()

    def write(self, number: int, sent_s: int, seen_ns: int) -> None:
        """A message of it was written then, by the clock of its source.

        Numbers are given in the order in which messages are written, so all above it were written later.
        """
        if sent_s > seen_ns // SECOND_NS + 1:
            self.is_ahead = True
        elif len(self.written) < WRITTEN_LIMIT and (
            not self.written or (self.written[-1][0] < sent_s and self.written[-1][1] < number)
        ):
            self.written.append((sent_s, number))

    def explain(self, message: NumberedMessage) -> None:
        """Take a message that crosses a hop: numbers that seemed missing may have been only late.

        On the connection of the acknowledgment what comes behind it was sent behind it, unless it is ahead. Of two
        connections one capture point shows the order but for a moment, and two capture points show none. Then the next
        number is missing.
        """
        kept = []
        for claim in self.claims:
            ack = claim.ack
            in_time = message.interface != ack.interface or (
                ack.ahead
                if message.connection == ack.connection
                else message.time_ns <= ack.time_ns + SLACK_NS
            )
            first = min(message.previous_number + 1, message.sequence_number)
            came = [each for each in claim.missing if in_time and first <= each <= message.sequence_number]
            for number in came:
                if message.hop[1] == ack.key[0]:
                    del claim.missing[number]
                    self._miss(claim, message.sequence_number)
                else:
                    claim.missing[number].add(message.hop[1])
            if claim.missing or not came:
                kept.append(claim)
        self.claims = kept

    def _miss(self, claim: Claim, above: int) -> None:
        """All up to a number has come to whoever claims something: what is missing beyond that."""
        ack = claim.ack
        into = (progress.covered for (_, to), progress in self.hops.items() if to == ack.key[0])
        number = first_missing(into, above, ack.sequence_number)
        if number is not None:
            claim.missing.setdefault(number, self.reached(number, ack))
            claim.is_behind = True

    def reached(self, number: int, ack: Acknowledgment) -> set[NodeKey]:
        """Return who else has received a number, besides the sender of an acknowledgment."""
        others = ((to, progress) for (_, to), progress in self.hops.items() if to != ack.key[0])
        return {to for to, progress in others if number in progress.covered}

    def is_explained_by(self, first_ns: int, interfaces: list[int]) -> bool:
        """Whether messages from then on, at these interfaces, may explain something."""
        return any(
            any(each != claim.ack.interface for each in interfaces)
            or claim.ack.ahead
            or first_ns <= claim.ack.time_ns + SLACK_NS
            for claim in self.claims
            if claim.missing
        )
