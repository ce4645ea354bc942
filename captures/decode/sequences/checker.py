"""Follows every sequence of a capture, and relates messages and acknowledgments to their sequences.

A capture may show events on two connections in the wrong order. So a fault is reported only at the end of the capture,
when everything that may explain an acknowledgment is known.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqproto.captures.decode.facts import Acknowledgment, Hop, InOrder, MessageKey, NodeKey, NumberedMessage
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.sequences.claims import claim_of, compare, is_newer, judged, suspect_elsewhere
from mqproto.captures.decode.sequences.progress import Gap, HighMark, HopProgress, shown
from mqproto.captures.decode.sequences.sequence import CLAIM_LIMIT, HOP_LIMIT, SAID_LIMIT, Sequence
from mqproto.captures.decode.sight import Acknowledged
from mqproto.captures.decode.ways import SECOND_NS, Ways
from mqproto.wire import NULL_GUID, Guid, TxSequenceId

SEQUENCE_LIMIT: Final = 4_096
"""The largest number of sequences that are remembered.

The sequence that has been silent for the longest time is forgotten first.
"""
NUMBER_LIMIT: Final = 65_536
"""The largest number of messages, over all sequences, whose packets are remembered until they are acknowledged."""
FAULT, NOTE = Severity.FAULT, Severity.NOTE


@dataclass(slots=True, eq=False)
class SequenceView:
    """How a packet relates to its sequence.

    sequence: the packet's sequence; None if it cannot be identified. The capture may have no message of this sequence,
        or none yet.
    is_new: whether the packet is a message whose number had not been seen before.
    opened: the gap that the packet reveals.
    filled: the gaps that the packet closes.
    counts: whether the packet is a valid positive FinalAck, or a valid OrderAck that was the newest when it was first
        seen. Either confirms that all messages up to its number have arrived.
    ended: the packets of the messages that an acknowledgment is about; for an OrderAck, only of those that no earlier
        OrderAck covers.
    """

    sequence: Sequence | None = None
    is_new: bool = False
    opened: Gap | None = None
    filled: list[Gap] = field(default_factory=list)
    counts: bool = False
    ended: Acknowledged | None = None
    findings: list[Finding] = field(default_factory=list)


class SequenceChecker:
    """Follows every sequence of a capture, in bounded memory.

    Args:
        limit: the largest number of messages whose packets are remembered.
    """

    def __init__(self, limit: int = NUMBER_LIMIT) -> None:
        self._limit = limit
        self._sequences: OrderedDict[tuple[Guid, int, int], Sequence] = OrderedDict()
        self._remembered: deque[tuple[Sequence, int]] = deque()
        self._to_nobody: list[Acknowledgment] = []  # OrderAcks for a queue manager that is not known so far

    def take_message(self, message: NumberedMessage) -> SequenceView:
        """Take a transactional message that crosses a hop."""
        identifier = message.identifier
        source, message_id = message.key
        sequence = self._sequence(source, identifier)
        if sequence.towards is None:
            self._begin(sequence, message)
        elif sequence.towards != message.towards:
            sequence.give_up()
        number, previous = message.sequence_number, message.previous_number
        hop = sequence.hops.get(message.hop)
        if hop is None:
            if len(sequence.hops) >= HOP_LIMIT:
                sequence.give_up()
            hop = sequence.hops[message.hop] = HopProgress(min(previous, number - 1))
        view = SequenceView(sequence)
        if sequence.claims:
            sequence.explain(message)
        if not sequence.ambiguous:
            view.opened, view.filled, view.findings = hop.advance(message)
        sequence.write(number, message.sent_s, message.time_ns)
        if previous < number - 1:
            sequence.pass_over(previous, number)
        known = sequence.packets.get(number)
        if known is None:
            view.is_new = True
            self._remembered.append((sequence, number))
            self._forget()
        elif known[1] != message_id and not sequence.ambiguous:
            text = f"it is number {number:,} of sequence {shown(identifier)}; #{known[0]} is another message with it"
            section = "[MS-MQMQ] 2.2.20.5"
            view.findings.append(Finding(FAULT, "number-reused", message.number, text, section, (known[0],)))
        sequence.packets[number] = (message.number, message_id)
        return view

    def take_in_order(self, messages: InOrder) -> Sequence | None:
        """Take many messages at once, if none of them would cause a finding.

        Returns:
            The messages' sequence. None if nothing was done; the caller must then take them one by one.
        """
        identifier = messages.identifier
        key = (messages.source, identifier.time_stamp, identifier.ordinal)
        sequence = self._sequences.get(key)
        if sequence is None or sequence.ambiguous or sequence.towards != messages.towards:
            return None
        if sequence.claims and sequence.is_explained_by(messages.first_ns, messages.interfaces):
            return None
        hops: dict[Hop, HopProgress] = {}
        for hop, first, _ in messages.hops:
            progress = sequence.hops.get(hop)
            if progress is None or max(progress.covered.highest, progress.base) != first - 1 or hop in hops:
                return None
            hops[hop] = progress
        if messages.numbers[0] <= sequence.order_acked and messages.numbers[0] not in sequence.packets:
            return None
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
        for (hop, first, last), (packet, connection), interface in zip(
            messages.hops, messages.last, messages.interfaces, strict=True
        ):
            hops[hop].covered.add(first, last)
            hops[hop].marks.append(HighMark(last, packet, messages.first_ns, (connection, interface)))
        sequence.is_ahead = sequence.is_ahead or messages.is_ahead
        sequence.write(messages.numbers[0], messages.sent_s, messages.sent_s * SECOND_NS)
        known.update(packets)
        self._remembered.extend((sequence, number) for number in packets if number not in again)
        self._forget()
        return sequence

    def take_order_ack(self, ack: Acknowledgment) -> SequenceView:
        """Take an OrderAck that crosses a hop; find and check the messages that it covers. [MS-MQQB] 2.2.4.1,
        3.1.5.6
        """
        if ack.sequence_number == 0:
            # The number may stand in TxSequenceID; which sequence is meant only its sender knows.
            return SequenceView()
        origin = _origin(ack)
        if origin is None:
            self._to_nobody.append(ack)
            del self._to_nobody[:-CLAIM_LIMIT]
            return SequenceView()
        sequence = self._sequence(origin, ack.identifier)
        if sequence.towards is None:
            self._hear(sequence, ack, "order-ack-unknown", "[MS-MQQB] 2.2.4")
            sequence.early.append(ack)
            del sequence.early[:-SAID_LIMIT]
            return SequenceView(sequence)
        view = SequenceView(sequence)
        is_foreign = sequence.is_from_elsewhere(ack)
        if sequence.order_ack_packet and ack.key[1] == sequence.order_ack_id and not is_foreign:
            # It is the same OrderAck, one hop further.
            view.ended, view.counts = sequence.order_ack_ended, True
            return view
        said = sequence.order_acked
        if self._counts(sequence, ack):
            view.counts, view.ended = True, sequence.order_ack_ended
        if not is_foreign:
            self._claim(sequence, ack, said=said)
        return view

    def take_final_ack(self, ack: Acknowledgment, about: MessageKey) -> SequenceView:
        """Take a FinalAck that crosses a hop; it names a message and that message's number in the sequence. [MS-MQQB]
        2.2.5.1

        A positive FinalAck also covers all earlier messages, as an OrderAck would, because messages are received in
        order. A negative one is only about its own message.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6
        """
        packet, number = ack.number, ack.sequence_number
        sequence = self._sequence(about[0], ack.identifier)
        view = SequenceView(sequence)
        if ack.previous_number < number - 1:
            sequence.pass_over(ack.previous_number, number)
        if sequence.towards is None:
            self._hear(sequence, ack, "final-ack-unknown", "[MS-MQQB] 2.2.5")
            if ack.positive and len(sequence.early_finals) < SAID_LIMIT:
                sequence.early_finals.setdefault(ack.key, ack)
            return view
        if ack.positive and sequence.is_from_elsewhere(ack):
            suspect_elsewhere(sequence, ack)
            return view
        known = sequence.packets.get(number)
        view.counts = ack.positive and not sequence.ambiguous and (known is None or known[1] == about[1])
        if known is not None and known[1] == about[1]:
            view.ended = Acknowledged([known[0]])
        elif sequence.ambiguous:
            return view
        elif known is not None:
            text = (
                f"it is for number {number:,} of sequence {shown(ack.identifier)} and "
                f"message {about[1]:,}; #{known[0]} with that number is message {known[1]:,}"
            )
            finding = Finding(FAULT, "final-ack-mismatch", packet, text, "[MS-MQQB] 2.2.5.1", (known[0],))
            sequence.suspect(finding, ack.key)
        else:
            self._claim(sequence, ack, message_id=about[1])
        return view

    def _claim(
        self, sequence: Sequence, ack: Acknowledgment, *, message_id: int | None = None, said: int = 0
    ) -> None:
        """Remember an acknowledgment that the capture does not confirm, but only once, however many hops it crosses."""
        is_known = sequence.ambiguous or any(claim.ack.key == ack.key for claim in sequence.claims)
        if not is_known and (claim := claim_of(sequence, ack, message_id=message_id, said=said)) is not None:
            sequence.claim(claim)

    def rename(self, resolve: Callable[[Hop], Hop]) -> None:
        """Rename the hops that lead to or from an address, now that the queue manager there may be known.

        OrderAcks for that queue manager are taken now.
        """
        for sequence in self._sequences.values():
            if any(isinstance(end, str) for hop in sequence.hops for end in hop):
                hops, sequence.hops = sequence.hops, {}
                for hop, progress in hops.items():
                    known = sequence.hops.setdefault(resolve(hop), progress)
                    if known is not progress:
                        known.add_all(progress)
        acks, self._to_nobody = self._to_nobody, []
        for ack in acks:
            self.take_order_ack(ack._replace(hop=resolve(ack.hop)))

    def finish(self, ways: Ways) -> Iterator[Finding]:
        """Yield the findings that nothing in the capture has explained.

        Args:
            ways: what is known about the gaps in the capture.
        """
        for sequence in self._sequences.values():
            if sequence.towards is None:
                yield from sequence.unknown.values()
                continue
            yield from sequence.suspicions.values()
            for claim in sequence.claims:
                if (finding := judged(sequence, claim, ways)) is not None:
                    yield finding

    def _sequence(self, origin: Guid, identifier: TxSequenceId) -> Sequence:
        key = (origin, identifier.time_stamp, identifier.ordinal)
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = Sequence((origin, identifier))
            if len(self._sequences) > SEQUENCE_LIMIT:
                _, forgotten = self._sequences.popitem(last=False)
                forgotten.give_up()
                forgotten.packets.clear()
        else:
            self._sequences.move_to_end(key)
        return sequence

    def _begin(self, sequence: Sequence, message: NumberedMessage) -> None:
        """Begin a sequence with its first message, and judge the acknowledgments that came before that message."""
        sequence.towards = message.towards
        early, sequence.early = sequence.early, []
        for ack in early:
            self._counts(sequence, ack)
        for ack in filter(sequence.is_from_elsewhere, sequence.early_finals.values()):
            suspect_elsewhere(sequence, ack)
        sequence.early_finals.clear()

    def _hear(self, sequence: Sequence, ack: Acknowledgment, code: str, section: str) -> None:
        """Take an acknowledgment for a sequence whose messages the capture has not shown so far."""
        if ack.key[0] == ack.hop[0]:
            text = f"it is of sequence {shown(ack.identifier)}, of which the capture has no message"
            sequence.unknown.setdefault(code, Finding(NOTE, code, ack.number, text, section))

    def _counts(self, sequence: Sequence, ack: Acknowledgment) -> bool:
        """Return whether an OrderAck is valid and newer than the earlier ones; if it is, remember it as the newest."""
        if sequence.is_from_elsewhere(ack):
            suspect_elsewhere(sequence, ack)
            return False
        compare(sequence, ack)
        _, own_id = ack.key
        number = ack.sequence_number
        if sequence.order_ack_packet and not is_newer(own_id, sequence.order_ack_id):
            return False
        if number < sequence.order_acked:
            return False
        sequence.order_ack_ended = _packets_between(sequence, number)
        sequence.order_acked, sequence.order_ack_packet = number, ack.number
        sequence.order_ack_id = own_id
        return True

    def _forget(self) -> None:
        """Forget the packets of all messages except the latest ones."""
        while len(self._remembered) > self._limit:
            earlier, forgotten = self._remembered.popleft()
            earlier.packets.pop(forgotten, None)


def _origin(ack: Acknowledgment) -> Guid | None:
    """Return the queue manager that numbered the messages of an OrderAck; None if it is unknown.

    The OrderAck is sent to that queue manager. If the OrderAck has a direct format name, which identifies no queue
    manager but leads straight to its host, the queue manager at the end of the hop is returned.
    """
    if ack.towards != NULL_GUID:
        return ack.towards
    end: NodeKey = ack.hop[1]
    return None if isinstance(end, str) else Guid(end)


def _packets_between(sequence: Sequence, through: int) -> Acknowledged | None:
    """Return the remembered packets of the messages that follow the last OrderAck, up to the number `through`."""
    known, above = sequence.packets, sequence.order_acked
    if through - above > len(known):
        found = sorted(number for number in known if above < number <= through)
    else:
        found = [number for number in range(above + 1, through + 1) if number in known]
    return Acknowledged([known[number][0] for number in found]) if found else None
