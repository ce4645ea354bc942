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
"""The largest number of hops of a sequence; beyond it, the sequence is no longer judged."""
CLAIM_LIMIT: Final = 100
"""The largest number of seemingly wrong acknowledgments that are remembered for one sequence."""
SAID_LIMIT: Final = 16
"""How many of the latest OrderAcks of one sequence are compared with one another."""
PASSED_LIMIT: Final = 256
"""The largest number of messages of one sequence that are remembered because they skipped lower numbers."""
WRITTEN_LIMIT: Final = 64
"""The largest number of SentTimes that are remembered for one sequence, each with the number of the first message that
was written at that time.
"""

SequenceKey: TypeAlias = tuple[Guid, TxSequenceId]
"""Identifies a sequence by its source queue manager and the identifier that this queue manager assigned."""


@dataclass(slots=True)
class Claim:
    """An OrderAck or FinalAck for messages that, as far as the capture shows, had not reached its sender.

    missing: numbers that had not arrived when the acknowledgment was sent, each with the other queue managers that had
        received it by then. For an OrderAck, these are the lowest missing number, the lowest missing number that no
        earlier OrderAck covers, and the acknowledged number if it is missing. For a FinalAck, only the acknowledged
        number is considered. Empty if the capture had not yet shown a hop to the sender; the hops that are known at the
        end then decide.
    message_id: the message that a FinalAck names.
    is_behind: whether the capture shows the acknowledgment before messages that crossed earlier. It is then unknown
        which queue managers the missing numbers had reached by then.
    """

    ack: Acknowledgment
    missing: dict[int, set[NodeKey]]
    message_id: int | None
    is_behind: bool = False


class Said(NamedTuple):
    """An OrderAck, for comparison with others from the same sender.

    own_id: its MessageID, which is higher in later OrderAcks.
    """

    acker: Guid
    own_id: int
    number: int
    packet: int


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of one source queue manager.

    towards: QueueManagerAddress and the destination queue; None as long as only acknowledgments have been seen. A
        sequence whose identifier is used for two queues is no longer judged.
    unknown: the findings, keyed by code, that are reported if the capture turns out to have no message of the sequence.
    early, early_finals: the last OrderAcks and the first positive FinalAcks that the capture shows before the first
        message of the sequence.
    order_acked, order_ack_packet, order_ack_id, order_ack_ended: values of the newest OrderAck that counts.
    said: OrderAcks in the order in which they were made.
    passed: for each message that skipped numbers, keyed by its own number: the lowest predecessor that a copy of it
        names.
    written: pairs of SentTime and number: all messages from this number on were written at that time or later.
    is_ahead: whether a SentTime was later than the time of capture, so that no SentTime here proves anything.
    suspicions: faults, unless the identifier turns out to be used for two queues. They are keyed by code and
        acknowledgment, so that each is reported once for all hops that the acknowledgment crosses.
    packets: the last packet that carried a message, and the message's MessageID, for messages that are still
        remembered; keyed by the message's number.
    """

    key: SequenceKey
    towards: tuple[Guid, QueueName] | None = None
    ambiguous: bool = False
    hops: dict[Hop, HopProgress] = field(default_factory=dict)
    unknown: dict[str, Finding] = field(default_factory=dict)
    early: list[Acknowledgment] = field(default_factory=list)
    early_finals: dict[MessageKey, Acknowledgment] = field(default_factory=dict)
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
        """Whether an acknowledgment comes from somewhere other than the messages' destination.  [MS-MQQB] 3.1.1.6.2

        A direct format name does not identify the destination.
        """
        return (
            self.towards is not None and not self.ambiguous and self.towards[0] not in (ack.key[0], NULL_GUID)
        )

    def suspect(self, finding: Finding, key: MessageKey) -> None:
        """Remember a fault of an acknowledgment, but only once, however many hops the acknowledgment crosses."""
        if len(self.suspicions) < CLAIM_LIMIT:
            self.suspicions.setdefault((finding.code, key), finding)

    def claim(self, claim: Claim) -> None:
        """Remember an unproven claim, unless the limit is reached."""
        if len(self.claims) < CLAIM_LIMIT:
            self.claims.append(claim)

    def pass_over(self, previous: int, number: int) -> None:
        """Record that a message, or its FinalAck, names a predecessor lower than the number right below its own."""
        self.passed[number] = min(previous, self.passed.get(number, previous))
        if len(self.passed) > PASSED_LIMIT:
            del self.passed[next(iter(self.passed))]

    def is_passed(self, number: int, acknowledged: int) -> bool:
        """Whether an acknowledgment says nothing about a lower number, because a message has skipped that number."""
        return any(previous < number < by <= acknowledged for by, previous in self.passed.items())

    def give_up(self) -> None:
        """Stop judging the sequence, because it is unknown which packets belong to it."""
        self.ambiguous = True
        self.hops.clear()
        self.claims.clear()
        self.suspicions.clear()
        self.early.clear()

    def write(self, number: int, sent_s: int, seen_ns: int) -> None:
        """Record when a message of the sequence was written, by the clock of its source.

        Messages are numbered in the order in which they are written, so all higher numbers were written later.
        """
        if sent_s > seen_ns // SECOND_NS + 1:
            self.is_ahead = True
        elif len(self.written) < WRITTEN_LIMIT and (
            not self.written or (self.written[-1][0] < sent_s and self.written[-1][1] < number)
        ):
            self.written.append((sent_s, number))

    def explain(self, message: NumberedMessage) -> None:
        """Take a message that crosses a hop, and check whether it explains claims.

        A number that seemed to be missing may have crossed before the acknowledgment, although the capture shows it
        later. On the same connection, that is possible only if the acknowledgment is `ahead`. On two connections, a
        single capture point shows the order of events unless they are very close in time; two capture points do not
        show the order. If the number reached the acknowledgment's sender in time, the claim's next missing number takes
        its place.
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
        """Find the next missing number of a claim whose sender has received everything up to `above`."""
        ack = claim.ack
        into = (progress.covered for (_, to), progress in self.hops.items() if to == ack.key[0])
        number = first_missing(into, above, ack.sequence_number)
        if number is not None:
            claim.missing.setdefault(number, self.reached(number, ack))
            claim.is_behind = True

    def reached(self, number: int, ack: Acknowledgment) -> set[NodeKey]:
        """Return the queue managers, other than the sender of an acknowledgment, that have received a number."""
        others = ((to, progress) for (_, to), progress in self.hops.items() if to != ack.key[0])
        return {to for to, progress in others if number in progress.covered}

    def is_explained_by(self, first_ns: int, interfaces: list[int]) -> bool:
        """Whether messages that were seen from this time on, at these interfaces, may explain any claim."""
        return any(
            any(each != claim.ack.interface for each in interfaces)
            or claim.ack.ahead
            or first_ns <= claim.ack.time_ns + SLACK_NS
            for claim in self.claims
            if claim.missing
        )
