"""Judges whether an acknowledgment can be right.

An acknowledgment is wrong if its sender does not have the messages that it acknowledges, or had already acknowledged
more.

An OrderAck for a message that its sender cannot have received is a breach. It is reported only if the message was
written after the capture began, was not seen to arrive, and cannot have crossed in a gap of the capture. It is a fault
only if the capture also shows one of two things. Either the message stopped before it reached the sender, or its source
did not send it along the only way to the sender.  [MS-MQQB] 3.1.1.6.2

Packets that explain part of a claim may come after it in the capture, because the reader waited for missing bytes. The
rest of the claim is still judged, but becomes a note.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from mqproto.captures.decode.facts import Acknowledgment, NodeKey
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.ranges import first_missing
from mqproto.captures.decode.sequences.progress import shown
from mqproto.captures.decode.sequences.sequence import SAID_LIMIT, Claim, Said, Sequence
from mqproto.captures.decode.ways import EVER, SECOND_NS, SLACK_NS, SMALLEST_NUMBERED, Span, Ways, written_ns
from mqproto.wire import guid_text

FAULT, NOTE = Severity.FAULT, Severity.NOTE
_HALF: Final = 1 << 31
LIFE_IDS: Final = 1 << 24
"""The MessageIDs of two OrderAcks show their order only if they differ by less than this.

Otherwise, the queue manager's store may have been lost or restored between the two OrderAcks.
"""


def claim_of(
    sequence: Sequence, ack: Acknowledgment, *, message_id: int | None = None, said: int = 0
) -> Claim | None:
    """Return what an acknowledgment claims about numbers that, as far as the capture shows, never reached its sender.

    Return None if there is no such claim.

    Args:
        said: the highest number that earlier OrderAcks had acknowledged.
    """
    acker: NodeKey = ack.key[0]
    hops = sequence.hops
    into = [progress for (_, to), progress in hops.items() if to == acker]
    if not into:
        return Claim(ack, {}, message_id)
    last = ack.sequence_number - 1
    base = max(progress.base for progress in into)
    missing: dict[int, set[NodeKey]] = {}
    for above in (base, max(base, said), last) if message_id is None else (max(base, last),):
        number = first_missing((progress.covered for progress in into), above, ack.sequence_number)
        if number is not None:
            missing[number] = sequence.reached(number, ack)
    return Claim(ack, missing, message_id) if missing else None


def judged(sequence: Sequence, claim: Claim, ways: Ways) -> Finding | None:
    """Judge a claim at the end of the capture.

    The finding is a fault if one of the claim's numbers proves a fault; otherwise, it is a note, or None.
    """
    claim = (claim if claim.missing else claim_of(sequence, claim.ack, message_id=claim.message_id)) or claim
    found = [each for missing in sorted(claim.missing) if (each := _judged(sequence, claim, missing, ways))]
    return next((each for each in found if each.severity is FAULT), found[0] if found else None)


def _judged(sequence: Sequence, claim: Claim, missing: int, ways: Ways) -> Finding | None:
    """Judge a claim by one missing number.

    The message with this number may have arrived unseen, from its source or from another queue manager that had it.
    """
    ack, number, origin = claim.ack, claim.ack.sequence_number, sequence.origin
    acker: NodeKey = ack.key[0]
    sent_s = [
        sent_s
        for sent_s, written in sequence.written
        if written <= missing and ways.is_written_since(ack.interface, sent_s, sent_s * SECOND_NS)
    ]
    if not sent_s or sequence.is_ahead:
        return None
    reached = claim.missing[missing]
    when = max(map(written_ns, sent_s)), ack.time_ns + SLACK_NS, SMALLEST_NUMBERED
    out, into = ways.out_of(origin, *when, ack), ways.brought(acker, (origin, *reached), when, ack)
    room_bytes = sum(span.recoverable_bytes for span in ways.into(acker, EVER, *when[1:], ack=ack))
    may_come = any(_needed_bytes(sequence, acker, missing, span, ways) <= room_bytes for span in into)
    if (may_come and (reached or out)) or _lacks_between(sequence, missing, number):
        return None
    stopped = not reached.isdisjoint({frm for frm, _ in sequence.hops})
    straight = {span.place for span in into} - {None}
    never_left = (
        (origin, acker) in sequence.hops and not reached and straight.issuperset(each.place for each in out)
    )
    severity = FAULT if (stopped or never_left) and not claim.is_behind else NOTE
    name = shown(sequence.key[1])
    doubt = "" if severity is FAULT else ", or the capture lacks it"
    if claim.message_id is not None:
        text = f"it is for number {number:,} of sequence {name}, which its sender never had{doubt}"
        return Finding(severity, "final-ack-unknown", ack.number, text, "[MS-MQQB] 2.2.5")
    text = (
        f"it acknowledges number {number:,} of sequence {name}; number {missing:,} had not come to its "
        f"sender{doubt}"
    )
    return Finding(severity, "order-ack-beyond", ack.number, text, "[MS-MQQB] 3.1.1.6.2")


def _needed_bytes(sequence: Sequence, acker: NodeKey, number: int, span: Span, ways: Ways) -> int:
    """Return how many bytes the capture must lack if message `number` arrived during `span`.

    Messages with lower numbers must have arrived before it, unless the sequence was sent along several paths. In that
    case a message may overtake lower numbers, and the destination holds it until they arrive. [MS-MQQB] 3.1.5.8.6
    """
    if any(len({*ends}) < len(ends) for ends in zip(*sequence.hops, strict=True)):
        return SMALLEST_NUMBERED
    into = (progress.marks for (_, to), progress in sequence.hops.items() if to == acker)
    behind = {
        each.number
        for each in chain.from_iterable(into)
        if each.number < number and ways.is_over(span, each.packet, each.time_ns, each.place)
    }
    return SMALLEST_NUMBERED * (len(behind) + 1)


def _lacks_between(sequence: Sequence, first: int, last: int) -> bool:
    """Whether one of these messages left a queue manager without having been seen to arrive there.

    If so, the capture lacks something. It does not matter at what time the message left: if a file of a series is
    missing, whole connections are missing with it.
    """
    for (_, to), progress in sequence.hops.items():
        onward = (each.covered for (frm, _), each in sequence.hops.items() if frm == to)
        known_through = min(last, progress.covered.highest)
        for begin, end in chain.from_iterable(onward):
            number = progress.covered.after(max(begin, first, progress.base + 1) - 1)
            if number <= min(end, known_through):
                return True
    return False


def suspect_elsewhere(sequence: Sequence, ack: Acknowledgment) -> None:
    """Report an acknowledgment from a queue manager that never received the messages.  [MS-MQQB] 3.1.1.6.2"""
    assert sequence.towards is not None, "it is known to go elsewhere"
    name = shown(sequence.key[1])
    text = (
        f"it is from {guid_text(ack.key[0])}; the messages of sequence {name} go to "
        f"{guid_text(sequence.towards[0])}"
    )
    sequence.suspect(Finding(FAULT, "foreign-ack", ack.number, text, "[MS-MQQB] 3.1.1.6.2"), ack.key)


def compare(sequence: Sequence, ack: Acknowledgment) -> None:
    """Check whether the sender of an OrderAck acknowledged more in an earlier one, or less in a later one. [MS-MQQB]
    3.1.1.6.2

    OrderAcks are compared in the order in which they were made, which their MessageIDs show, whatever their order in
    the capture. A queue manager whose store was lost or put back begins far from its earlier MessageIDs, so MessageIDs
    that are far apart show no order.
    """
    said = Said(*ack.key, ack.sequence_number, ack.number)
    every, place = sequence.said, len(sequence.said)
    while place and is_newer(every[place - 1].own_id, said.own_id):
        place -= 1
    if place and every[place - 1].own_id == said.own_id:
        return  # One hop further.
    earlier = next((each for each in reversed(every[:place]) if _is_comparable(each, said)), None)
    later = next((each for each in every[place:] if _is_comparable(each, said)), None)
    if earlier is not None and said.number < earlier.number:
        _suspect_backwards(sequence, said, earlier)
    elif later is not None and later.number < said.number:
        _suspect_backwards(sequence, later, said)
    every.insert(place, said)
    del every[:-SAID_LIMIT]


def _is_comparable(one: Said, other: Said) -> bool:
    return one.acker == other.acker and (one.own_id - other.own_id + LIFE_IDS) & 0xFFFFFFFF < 2 * LIFE_IDS


def is_newer(one: int, other: int) -> bool:
    """Whether one MessageID was assigned after the other; MessageIDs have 32 bits, and wrap around."""
    return 0 < (one - other) & 0xFFFFFFFF < _HALF


def _suspect_backwards(sequence: Sequence, wrong: Said, before: Said) -> None:
    text = (
        f"it acknowledges number {wrong.number:,} of sequence {shown(sequence.key[1])}; "
        f"#{before.packet} had acknowledged {before.number:,}"
    )
    others = (before.packet,)
    finding = Finding(FAULT, "order-ack-backwards", wrong.packet, text, "[MS-MQQB] 3.1.1.6.2", others)
    sequence.suspect(finding, (wrong.acker, wrong.own_id))
