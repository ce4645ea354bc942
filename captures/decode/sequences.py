"""Transactional sequences end to end: gaps on each hop, OrderAcks, FinalAcks.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6

An OrderAck for what its sender cannot have had is a breach, but a capture may lack the hop that brought it. It is held
to be one where the capture shows the message stop before that sender, or the only way there is the one it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from captures.decode.facts import Acknowledgment, Hop, InOrder, MessageKey, NodeKey, NumberedMessage
from captures.decode.findings import Finding, Severity
from captures.decode.journeys import ago
from captures.decode.ranges import BoundedRanges, first_missing
from captures.decode.sight import Acknowledged
from mqproto.wire import NULL_GUID, Guid, QueueName, TxSequenceId, guid_text

SEQUENCE_LIMIT: Final = 4_096
"""How many sequences are remembered; the one that was silent longest is forgotten first."""
NUMBER_LIMIT: Final = 65_536
"""Of how many messages, over all sequences, the packets are remembered until they are acknowledged."""
GAP_LIMIT: Final = 1_000
"""How many gaps of one sequence on one hop are remembered."""
HOP_LIMIT: Final = 64
"""A sequence that crosses more hops than this is judged no more."""
CLAIM_LIMIT: Final = 100
FAULT, NOTE = Severity.FAULT, Severity.NOTE

SequenceKey: TypeAlias = tuple[Guid, TxSequenceId]
"""The source queue manager, and the identifier that it gave."""


class Gap(NamedTuple):
    """Numbers that are missing on a hop, and the packet that showed it."""

    first: int
    last: int
    packet: int
    time_ns: int


@dataclass(slots=True, eq=False)
class HopProgress:
    """What of one sequence crossed one hop.

    base: the numbers up to it came before the capture did.
    covered: numbers that crossed, and those that PreviousTxSequenceNumber says no message has.
    lossy: whether the capture lacks bytes of a connection that they came by.
    """

    base: int
    covered: BoundedRanges = field(default_factory=BoundedRanges)
    gaps: list[Gap] = field(default_factory=list)
    lossy: bool = False


class Claim(NamedTuple):
    """An OrderAck or FinalAck that the capture has not borne out yet."""

    packet: int
    acker: NodeKey
    number: int
    message_id: int | None


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of one source queue manager.

    towards: QueueManagerAddress and the destination queue. One identifier that is used for two queues is judged
        no more.
    accused: the acknowledgment that was last found to be wrong.
    packets: by number, the last packet that carried the message, and its MessageID; as far as it is remembered.
    """

    key: SequenceKey
    towards: tuple[Guid, QueueName]
    ambiguous: bool = False
    hops: dict[Hop, HopProgress] = field(default_factory=dict)
    order_acked: int = 0
    order_ack_packet: int = 0
    order_ack_id: int = 0
    order_ack_ended: Acknowledged | None = None
    claims: list[Claim] = field(default_factory=list)
    accused: MessageKey | None = None
    packets: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def origin(self) -> Guid:
        """The queue manager that numbers the messages."""
        return self.key[0]

    def claim(self, claim: Claim) -> None:
        """Remember what has not been borne out, but not more than is bearable."""
        if len(self.claims) < CLAIM_LIMIT:
            self.claims.append(claim)

    def give_up(self) -> None:
        """From here on nobody can say what belongs to it."""
        self.ambiguous = True
        self.hops.clear()
        self.claims.clear()


@dataclass(slots=True, eq=False)
class SequenceView:
    """What a packet is to its sequence.

    sequence: None where the capture has no message of it, or nobody can say which it is.
    opened: the gap that it shows. filled: those of which nothing is missing any more.
    counts: whether it is an OrderAck that was the newest when it was first seen, or a positive FinalAck, and rightly
        made: either says that all up to its number have come.
    ended: the packets of the messages that an acknowledgment is about; of an OrderAck those that it newly covers.
    """

    sequence: Sequence | None = None
    opened: Gap | None = None
    filled: list[Gap] = field(default_factory=list)
    counts: bool = False
    ended: Acknowledged | None = None
    findings: list[Finding] = field(default_factory=list)


class SequenceChecker:
    """Follows every sequence of a capture, in bounded memory.

    Args:
        limit: of how many messages the packets are remembered.
    """

    def __init__(self, limit: int = NUMBER_LIMIT) -> None:
        self._limit = limit
        self._sequences: OrderedDict[tuple[Guid, int, int], Sequence] = OrderedDict()
        self._by_identifier: dict[TxSequenceId, list[Sequence]] = {}
        self._remembered: deque[tuple[Sequence, int]] = deque()

    def take_message(self, message: NumberedMessage) -> SequenceView:
        """A transactional message crosses a hop."""
        identifier = message.identifier
        (source, message_id), lossy = message.key, message.lossy
        key = (source, identifier.time_stamp, identifier.ordinal)
        sequence = self._sequences.get(key) or self._begin((source, identifier), message.towards)
        self._sequences.move_to_end(key)
        if sequence.towards != message.towards:
            sequence.give_up()
        number, previous = message.sequence_number, message.previous_number
        hop = sequence.hops.get(message.hop)
        if hop is None:
            if len(sequence.hops) >= HOP_LIMIT:
                sequence.give_up()
            hop = sequence.hops[message.hop] = HopProgress(min(previous, number - 1))
        hop.lossy = hop.lossy or lossy
        view = SequenceView(sequence)
        if sequence.claims and not lossy:
            # This hop has shown its next packet, so nothing that came before it is still to come.
            view.findings = self._judged(sequence, message.hop[1])
        if not sequence.ambiguous:
            _advance(message, hop, view)
        known = sequence.packets.get(number)
        if known is None:
            self._remembered.append((sequence, number))
            self._forget()
        elif known[1] != message_id and not sequence.ambiguous:
            text = f"it is number {number:,} of sequence {shown(identifier)}; #{known[0]} is another message with it"
            section = "[MS-MQMQ] 2.2.20.5"
            view.findings.append(Finding(FAULT, "number-reused", message.number, text, section, (known[0],)))
        sequence.packets[number] = (message.number, message_id)
        return view

    def take_in_order(self, messages: InOrder) -> Sequence | None:
        """Many messages at once, as if each had been taken by itself and there were nothing to say of any.

        Returns:
            their sequence; None if they are to be taken one by one, and then nothing has been done.
        """
        identifier = messages.identifier
        key = (messages.source, identifier.time_stamp, identifier.ordinal)
        sequence = self._sequences.get(key)
        if sequence is None or sequence.ambiguous or sequence.claims or sequence.towards != messages.towards:
            return None
        hops: dict[Hop, HopProgress] = {}
        for hop, first, _ in messages.hops:
            progress = sequence.hops.get(hop)
            if progress is None or max(progress.covered.highest, progress.base) != first - 1 or hop in hops:
                return None
            hops[hop] = progress
        known = sequence.packets
        packets = dict(
            zip(messages.numbers, zip(messages.packets, messages.message_ids, strict=True), strict=True)
        )
        again = known.keys() & packets.keys()
        if any(known[number][1] != packets[number][1] for number in again):
            return None
        if len(packets) < len(messages.numbers):
            for number, message_id in zip(messages.numbers, messages.message_ids, strict=True):
                if packets[number][1] != message_id:
                    return None

        self._sequences.move_to_end(key)
        for (hop, first, last), lossy in zip(messages.hops, messages.lossy, strict=True):
            progress = hops[hop]
            progress.covered.add(first, last)
            progress.lossy = progress.lossy or lossy
        known.update(packets)
        self._remembered.extend((sequence, number) for number in packets if number not in again)
        self._forget()
        return sequence

    def _forget(self) -> None:
        """Remember the packets of the last messages only."""
        while len(self._remembered) > self._limit:
            earlier, forgotten = self._remembered.popleft()
            earlier.packets.pop(forgotten, None)

    def take_order_ack(self, ack: Acknowledgment) -> SequenceView:
        """An OrderAck crosses a hop: which messages it is about, and whether it may be.  [MS-MQQB] 2.2.4.1, 3.1.5.6"""
        packet, number = ack.number, ack.sequence_number
        if number == 0:
            # The number may stand in TxSequenceID; which sequence is meant only its sender knows.
            return SequenceView()
        acker, message_id = ack.key
        sequence = self._acknowledged(ack)
        if sequence is None:
            if acker != ack.hop[0]:
                return SequenceView()
            text = f"it is of sequence {shown(ack.identifier)}, of which the capture has no message"
            return SequenceView(
                findings=[Finding(NOTE, "order-ack-unknown", packet, text, "[MS-MQQB] 2.2.4")]
            )
        view = SequenceView(sequence)
        if sequence.order_ack_packet and message_id == sequence.order_ack_id:
            view.ended, view.counts = (
                sequence.order_ack_ended,
                True,
            )  # It is the same OrderAck, one hop further.
            return view
        if foreign := _foreign(sequence, ack):
            view.findings = _accusation(sequence, ack, "foreign-ack", foreign)
            return view
        is_newer = (
            not sequence.order_ack_packet or 0 < (message_id - sequence.order_ack_id) & 0xFFFFFFFF < 2**31
        )
        if not is_newer:
            return view
        if number < sequence.order_acked:
            text = (
                f"it acknowledges number {number:,} of sequence {shown(ack.identifier)}; "
                f"#{sequence.order_ack_packet} had acknowledged {sequence.order_acked:,}"
            )
            others = (sequence.order_ack_packet,)
            view.findings = _accusation(sequence, ack, "order-ack-backwards", text, others)
            return view
        view.counts = True
        view.ended = sequence.order_ack_ended = _packets_between(sequence, number)
        sequence.order_acked, sequence.order_ack_packet = number, packet
        sequence.order_ack_id = message_id
        if not sequence.ambiguous:
            claim = Claim(packet, acker, number, None)
            if self._missing(sequence, claim) is not None:
                sequence.claim(claim)
        return view

    def take_final_ack(self, ack: Acknowledgment, about: MessageKey) -> SequenceView:
        """A FinalAck crosses a hop: it names a number of a sequence, and a message.  [MS-MQQB] 2.2.5.1

        A positive one says of those before it what an OrderAck would, as nothing is received out of turn. A negative
        one tells of its own message alone.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
        """
        packet, identifier, number = ack.number, ack.identifier, ack.sequence_number
        sequence = self._sequences.get((about[0], identifier.time_stamp, identifier.ordinal))
        if sequence is None:
            if ack.key[0] != ack.hop[0]:
                return SequenceView()
            text = f"it is of sequence {shown(identifier)}, of which the capture has no message"
            return SequenceView(
                findings=[Finding(NOTE, "final-ack-unknown", packet, text, "[MS-MQQB] 2.2.5")]
            )
        view = SequenceView(sequence)
        if ack.positive and (foreign := _foreign(sequence, ack)):
            view.findings = _accusation(sequence, ack, "foreign-ack", foreign)
            return view
        known = sequence.packets.get(number)
        view.counts = ack.positive and not sequence.ambiguous and (known is None or known[1] == about[1])
        if known is not None and known[1] == about[1]:
            view.ended = Acknowledged([known[0]])
        elif sequence.ambiguous:
            return view
        elif known is not None:
            text = (
                f"it is for number {number:,} of sequence {shown(identifier)} and "
                f"message {about[1]:,}; #{known[0]} with that number is message {known[1]:,}"
            )
            section = "[MS-MQQB] 2.2.5.1"
            view.findings.append(Finding(FAULT, "final-ack-mismatch", packet, text, section, (known[0],)))
        elif ack.key[0] == ack.hop[0]:
            sequence.claim(Claim(packet, ack.key[0], number, about[1]))
        return view

    def finish(self, *, lossless: bool) -> Iterator[Finding]:
        """What nothing has borne out until the end.

        Args:
            lossless: whether the capture has no gap at all; else what it lacks may explain them, and they are notes.
        """
        for sequence in self._sequences.values():
            for finding in self._judged(sequence, None):
                yield finding if lossless else finding._replace(severity=NOTE)

    def _begin(self, key: SequenceKey, towards: tuple[Guid, QueueName]) -> Sequence:
        origin, identifier = key
        sequence = Sequence(key, towards)
        self._sequences[origin, identifier.time_stamp, identifier.ordinal] = sequence
        self._by_identifier.setdefault(key[1], []).append(sequence)
        if len(self._sequences) > SEQUENCE_LIMIT:
            _, forgotten = self._sequences.popitem(last=False)
            forgotten.give_up()
            forgotten.packets.clear()
            named = self._by_identifier[forgotten.key[1]]
            named.remove(forgotten)
            if not named:
                del self._by_identifier[forgotten.key[1]]
        return sequence

    def _acknowledged(self, ack: Acknowledgment) -> Sequence | None:
        """The sequence that an OrderAck means: of the queue manager that it goes to, or the only one there is.

        A direct name has no queue manager; it goes straight to the host, so the end of its hop is meant.
        """
        address: NodeKey = ack.towards
        named = self._by_identifier.get(ack.identifier, [])
        for origin in (address, ack.hop[1]):
            for sequence in named:
                if sequence.origin == origin:
                    return sequence
        return named[0] if len(named) == 1 and address == NULL_GUID else None

    def _missing(self, sequence: Sequence, claim: Claim) -> int | None:
        """The lowest number that the acker has not had by any hop of the capture; None also if no hop leads there."""
        into = [hop for (_, to), hop in sequence.hops.items() if to == claim.acker]
        if not into:
            return None
        base = max(hop.base for hop in into)
        if claim.message_id is not None:
            base = max(base, claim.number - 1)
        return first_missing((hop.covered for hop in into), base, claim.number)

    def _judged(self, sequence: Sequence, arrived_at: NodeKey | None) -> list[Finding]:
        """Judge the claims of the node that a message has just come to; all at the end of the capture."""
        findings = []
        kept = []
        for claim in sequence.claims:
            if arrived_at is not None and claim.acker != arrived_at:
                kept.append(claim)
                continue
            missing = self._missing(sequence, claim)
            if missing is not None:
                findings.append(self._finding(sequence, claim, missing))
        sequence.claims = kept
        return findings

    def _finding(self, sequence: Sequence, claim: Claim, missing: int) -> Finding:
        hops = sequence.hops
        into = {hop[0]: progress for hop, progress in hops.items() if hop[1] == claim.acker}
        stopped = any(
            missing in progress.covered and to != claim.acker and any(frm == to for frm, _ in hops)
            for (_, to), progress in hops.items()
        )
        never_left = sequence.origin in into and not any(
            missing in progress.covered for progress in hops.values()
        )
        lossy = any(progress.lossy for progress in hops.values())
        severity = FAULT if (stopped or never_left) and not lossy else NOTE
        name = shown(sequence.key[1])
        doubt = "" if severity is FAULT else ", or the capture lacks it"
        if claim.message_id is not None:
            text = f"it is for number {claim.number:,} of sequence {name}, which its sender never had{doubt}"
            return Finding(severity, "final-ack-unknown", claim.packet, text, "[MS-MQQB] 2.2.5")
        text = (
            f"it acknowledges number {claim.number:,} of sequence {name}; number {missing:,} had not come to its "
            f"sender{doubt}"
        )
        return Finding(severity, "order-ack-beyond", claim.packet, text, "[MS-MQQB] 3.1.1.6.2")


def _advance(message: NumberedMessage, hop: HopProgress, view: SequenceView) -> None:
    """The next message of a hop: does it open a gap, or fill one?"""
    number, previous = message.sequence_number, message.previous_number
    highest = max(hop.covered.highest, hop.base)
    if previous > highest:
        view.opened = Gap(highest + 1, previous, message.number, message.time_ns)
        hop.gaps.append(view.opened)
        del hop.gaps[:-GAP_LIMIT]
        missing = numbers(highest + 1, previous)
        text = f"{missing} of sequence {shown(message.identifier)} did not cross before {number:,}"
        view.findings.append(Finding(NOTE, "gap", message.number, text, "[MS-MQQB] 3.1.5.8.6"))
    hop.covered.add(min(previous + 1, number), number)
    if hop.gaps and previous < hop.gaps[-1].last:
        _fill(message, hop, view)


def _fill(message: NumberedMessage, hop: HopProgress, view: SequenceView) -> None:
    """A message lies in gaps, or bridges them: those of which nothing is missing any more are filled."""
    begin = bisect_right(hop.gaps, message.previous_number, key=lambda gap: gap.last)
    end = bisect_right(hop.gaps, message.sequence_number, key=lambda gap: gap.first)
    kept = []
    for gap in hop.gaps[begin:end]:
        if hop.covered.after(gap.first - 1) <= gap.last:
            kept.append(gap)
            continue
        text = (
            f"{numbers(gap.first, gap.last)} of sequence {shown(message.identifier)}, missing since "
            f"#{gap.packet}, came within {ago(message.time_ns - gap.time_ns)}"
        )
        view.filled.append(gap)
        view.findings.append(Finding(NOTE, "gap-filled", message.number, text, "", (gap.packet,)))
    hop.gaps[begin:end] = kept


def _foreign(sequence: Sequence, ack: Acknowledgment) -> str:
    """What is wrong with an acknowledgment from somebody to whom the messages never went.  [MS-MQQB] 3.1.1.6.2

    A direct name does not tell to whom they went.
    """
    acker, towards = ack.key[0], sequence.towards[0]
    if towards in (acker, NULL_GUID) or sequence.ambiguous:
        return ""
    name = shown(sequence.key[1])
    return f"it is from {guid_text(acker)}; the messages of sequence {name} go to {guid_text(towards)}"


def _accusation(
    sequence: Sequence, ack: Acknowledgment, code: str, text: str, others: tuple[int, ...] = ()
) -> list[Finding]:
    """A fault of an acknowledgment, once for all hops that it crosses."""
    if sequence.accused == ack.key:
        return []
    sequence.accused = ack.key
    return [Finding(FAULT, code, ack.number, text, "[MS-MQQB] 3.1.1.6.2", others)]


def _packets_between(sequence: Sequence, through: int) -> Acknowledged | None:
    """The packets of the numbers beyond the last OrderAck and up to another, as far as they are remembered."""
    known, above = sequence.packets, sequence.order_acked
    if through - above > len(known):
        found = sorted(number for number in known if above < number <= through)
    else:
        found = [number for number in range(above + 1, through + 1) if number in known]
    return Acknowledged([known[number][0] for number in found]) if found else None


def shown(identifier: TxSequenceId) -> str:
    """A TxSequenceID as people can tell it from others: its time stamp, a colon, its ordinal."""
    return f"{identifier.time_stamp}:{identifier.ordinal}"


def numbers(first: int, last: int) -> str:
    """`number 3`, or `numbers 3-7`."""
    return f"number {first:,}" if first == last else f"numbers {first:,}-{last:,}"
