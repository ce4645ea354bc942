"""Follows each message from hop to hop to find out whether it was changed, and whether and why it crossed a hop twice.

A message is identified by its first queue manager and its ordinal ([MS-MQMQ] 2.2.18.1.3). [MS-MQQB] 3.1.1.6.2

A capture may show events on two connections in the wrong order. So a message that leaves a queue manager is compared
with all copies that reached the queue manager, whether the capture shows them earlier or later. The copy that is most
favorable to the queue manager counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqproto.captures.decode.facts import NOT_SAID, Crossing, Hop, MessageKey, NodeKey
from mqproto.captures.decode.findings import Finding, Severity
from mqproto.captures.decode.sight import Acknowledged
from mqproto.captures.decode.ways import SECOND_NS, SLACK_NS, Ways, is_overtaken, tells_order, written_ns
from mqproto.wire import UserMessage
from mqproto.wire.buffer import SESSION_HEADER_SIZE

FAULT, NOTE = Severity.FAULT, Severity.NOTE

REMEMBERED_LIMIT: Final = 100_000
"""The largest number of crossings that are remembered; they take about 50 MB.

Beyond this limit, the messages that were first seen longest ago are forgotten.
"""
CROSSING_LIMIT: Final = 16
"""The largest number of forms of one message that are remembered, each with its first and last crossing.

A message with this many forms is not judged.
"""
WAITING_LIMIT: Final = 1_000
"""The largest number of crossings of one message that may wait to be judged.

They wait until the queue managers at both ends of their hops are known.
"""
SUSPECT_LIMIT: Final = 16_000
"""The largest number of crossings that are remembered to the end of the capture, for messages that an intermediate
seems to have changed.
"""
NO_REASON: Final = "the capture does not show why"
UNTIL_ACKNOWLEDGED: Final = "its source sends it until its OrderAck comes"
RECONNECTED: Final = "its sender has another connection by now"
UNTOLD: Final = "the capture does not tell which was first"


def message_key(message: UserMessage) -> MessageKey:
    """Return the key that identifies a message."""
    return message.user.source_queue_manager, message.user.message_id


@dataclass(slots=True, eq=False)
class Form:
    """Identical copies of one message on one hop, as one interface saw them: the copy that was read first, and the copy
    that crossed last."""

    first: Crossing
    last: Crossing


@dataclass(slots=True, eq=False)
class Journey:
    """The crossings of one message.

    forms: the copies that are judged.
    waiting: the first copy whose hop has an unknown end, and all copies after it. They are judged when a later copy
        arrives and the ends of all their hops are known, or at the end of the capture.
    """

    forms: list[Form] = field(default_factory=list)
    waiting: list[Crossing] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of crossings that are remembered."""
        return len(self.forms) + len(self.waiting)


class JourneyChecker:
    """Remembers where messages crossed, at most `limit` crossings in all.

    Args:
        resolve: a function that returns a hop with the queue managers at its ends, as far as they are known by then.
    """

    def __init__(self, limit: int = REMEMBERED_LIMIT, resolve: Callable[[Hop], Hop] | None = None) -> None:
        self._limit = limit
        self._resolve = resolve or _as_it_is
        self._count = 0
        self._journeys: OrderedDict[MessageKey, Journey] = OrderedDict()
        self._suspects: list[Journey] = []
        self._suspect_count = 0

    def take(self, crossing: Crossing) -> list[Finding]:
        """Take a UserMessage that crosses a hop, and compare it with its earlier crossings of that hop."""
        findings: list[Finding] = []
        if crossing.expires_s is not None and crossing.time_ns > (crossing.expires_s + 1) * SECOND_NS:
            findings.append(_late(crossing, crossing.expires_s))
        journey = self._journeys.get(crossing.key)
        if journey is None:
            journey = self._journeys[crossing.key] = Journey()
        before = journey.size
        if journey.waiting:
            findings += self._settle(journey)
        if not journey.waiting and _is_known(crossing):
            findings += _cross(journey.forms, crossing)
        elif len(journey.waiting) < WAITING_LIMIT:
            journey.waiting.append(crossing)
        self._make_room(journey.size - before)
        return findings

    def _settle(self, journey: Journey) -> list[Finding]:
        """Judge the waiting copies if the queue managers at the ends of all their hops are known by now."""
        if not _is_known(self._resolved(journey.waiting[0])):
            return []
        waiting = list(map(self._resolved, journey.waiting))
        if not all(map(_is_known, waiting)):
            return []
        journey.waiting.clear()
        return [finding for crossing in waiting for finding in _cross(journey.forms, crossing)]

    def finish(self, ways: Ways) -> Iterator[Finding]:
        """Return the unexplained faults of intermediates; then forget everything.

        Args:
            ways: what is known about the gaps in the capture.
        """
        for journey in (*self._suspects, *self._journeys.values()):
            forms = journey.forms
            for each in forms:
                each.first, each.last = self._resolved(each.first), self._resolved(each.last)
            for crossing in journey.waiting:
                yield from _cross(forms, self._resolved(crossing))
            for left, came in changed(forms):
                if (finding := _judged(left, came, ways)) is not None:
                    yield finding
        self._suspects.clear()
        self._journeys.clear()
        self._count = self._suspect_count = 0

    def _resolved(self, crossing: Crossing) -> Crossing:
        hop = self._resolve(crossing.hop)
        return crossing if hop == crossing.hop else crossing._replace(hop=hop)

    def _make_room(self, count: int) -> None:
        """Add to the number of remembered crossings.

        Beyond the limit, forget the messages that were first seen longest ago.
        """
        self._count += count
        while self._count > self._limit:
            _, forgotten = self._journeys.popitem(last=False)
            self._count -= forgotten.size
            is_suspect = forgotten.waiting or any(changed(forgotten.forms))
            if is_suspect and self._suspect_count + forgotten.size <= SUSPECT_LIMIT:
                self._suspects.append(forgotten)
                self._suspect_count += forgotten.size

    def packets_of(self, key: MessageKey) -> Acknowledged | None:
        """Return the last packet that carried a message; None if the message is not remembered."""
        journey = self._journeys.get(key)
        if journey is None:
            return None
        every = (*(each.last for each in journey.forms), *journey.waiting)
        return Acknowledged([max(each.number for each in every)])


def _cross(forms: list[Form], crossing: Crossing) -> list[Finding]:
    """Add one more copy of a message, and return findings about it."""
    key, hop = crossing.key, crossing.hop
    findings: list[Finding] = []
    here = [each for each in forms if each.last.hop == hop and each.last.interface == crossing.interface]
    if here:
        if key[0] == hop[0] and (other := _other_message(crossing, here)) is not None:
            findings.append(_two_in_one(other, crossing))
        else:
            copies = [copy for each in here for copy in (each.first, each.last)]
            before = [each for each in copies if not is_overtaken(each, crossing)]
            findings.append(_again(max(before or copies, key=_by_number), crossing, forms))
    for each in here:
        if (each.last.digest, each.last.hop_count) == (crossing.digest, crossing.hop_count):
            if not is_overtaken(each.last, crossing):
                each.last = crossing
            return findings
    forms.append(Form(crossing, crossing))
    del forms[:-CROSSING_LIMIT]
    return findings


def changed(forms: list[Form]) -> Iterator[tuple[Crossing, list[Crossing]]]:
    """Yield each crossing that differs from every copy that reached its sender, together with those copies.

    The sender must be a known queue manager other than the message's source. Copies that the capture has only in part
    are not compared.
    """
    if len(forms) < 2 or len(forms) >= CROSSING_LIMIT:
        return
    for form in forms:
        left = form.first
        sender: NodeKey = left.hop[0]
        if isinstance(sender, str) or sender == left.key[0] or left.digest is None:
            continue
        came = [each.first for each in forms if each.first.hop[1] == sender]
        if not came or any(each.digest is None or _may_become(each, left) for each in came):
            continue
        gone = (each.first for each in forms if each.first.hop[0] == sender)
        if any(each.hop[1] != left.hop[1] and each.hop_count + 1 < left.hop_count for each in gone):
            continue  # It may have come back, on a connection that the capture lacks.
        yield left, came


def _may_become(came: Crossing, left: Crossing) -> bool:
    """Whether an intermediate changed nothing but the hop count, to which it must add one. [MS-MQMQ] 2.2.19.2,
    [MS-MQQB] 3.1.1.6.2
    """
    return came.digest == left.digest and came.hop_count + 1 == left.hop_count


def _judged(left: Crossing, came: list[Crossing], ways: Ways) -> Finding | None:
    """Judge a message that left a queue manager and differs from all copies seen to arrive there.

    A copy that the capture lacks may explain the difference. The source may have sent the message again with another
    PreviousTxSequenceNumber ([MS-MQQB] 3.1.7.1.3), or encrypted it again. Or the message may have come by another path,
    with another hop count.

    If the capture shows everything that reached the queue manager since the message was written, no copy is missing,
    and the queue manager is at fault. Otherwise it is at fault only in two cases, which no missing copy could explain.
    Either only the hop count differs, and the message left with a hop count of 0. Or more differs, but the message is
    not encrypted, and a copy arrived with its PreviousTxSequenceNumber.
    """
    number, others = left.number, tuple(each.number for each in came)
    same = [each for each in came if each.digest == left.digest]
    is_bridged = all(each.previous_number != left.previous_number for each in came)
    certain = left.hop_count == 0 if same else not (is_bridged or left.encrypted)
    if not certain and not (
        ways.is_written_since(left.interface, left.sent_s, left.time_ns)
        and not ways.into(
            left.hop[0],
            written_ns(left.sent_s),
            left.time_ns + SLACK_NS,
            left.size_bytes - SESSION_HEADER_SIZE,
            lambda sender: _may_send(sender, left),
        )
    ):
        return None
    if not same:
        text = f"it left different from how it came as #{came[-1].number}, and not in its hop count alone"
        return Finding(FAULT, "altered", number, text, "[MS-MQQB] 3.1.1.6.2", others)
    text = (
        f"it came as #{same[-1].number} with hop count {same[-1].hop_count}, and left with {left.hop_count}"
    )
    return Finding(FAULT, "hop-count", number, text, "[MS-MQMQ] 2.2.19.2", others)


def _may_send(sender: NodeKey, left: Crossing) -> bool:
    """Whether `sender` may have sent a copy whose hop count is one less than that of `left`.

    Only the source of a message sends it with a hop count of 0. A message that returns to its source and leaves again
    has a count of at least 2. The destination of a message does not pass it on. [MS-MQMQ] 2.2.19.2
    """
    is_source = sender == left.key[0]
    if left.hop_count <= 1:
        return is_source and left.hop_count == 1
    return sender != left.towards and not (is_source and left.hop_count == 2)


def _late(crossing: Crossing, expires_s: int) -> Finding:
    """Report a message that was sent after it had expired.

    This is only a note, because the sender's clock may differ from that of the capture.
    """
    text = (
        "by the clock of the capture its time to reach its queue was over "
        f"{ago(crossing.time_ns - expires_s * SECOND_NS)} before"
    )
    return Finding(NOTE, "late", crossing.number, text, "[MS-MQQB] 3.1.7.1.2")


def _other_message(crossing: Crossing, here: list[Form]) -> Crossing | None:
    """Return an earlier message with the same source and identifier that is certainly a different message.

    That is, it cannot be a copy of this message, even if this one was resent. Return None if there is none.
    """
    known = {each.last.digest for each in here}
    if crossing.digest is None or not known.isdisjoint((None, crossing.digest)):
        return None
    others = (
        each.last
        for each in here
        if each.last.previous_number == crossing.previous_number
        # Encrypted anew it has another key, and another body.
        and not (each.last.encrypted and crossing.encrypted)
    )
    return max(others, key=_by_number, default=None)


def _two_in_one(earlier: Crossing, crossing: Crossing) -> Finding:
    """Report two messages with the same identifier: a queue manager must give each message a unique one. [MS-MQMQ]
    2.2.19.2
    """
    text = f"#{earlier.number} is another message with the same identifier"
    others = (earlier.number,)
    return Finding(FAULT, "duplicate-identity", crossing.number, text, "[MS-MQMQ] 2.2.19.2", others)


def _again(earlier: Crossing, again: Crossing, forms: Iterable[Form]) -> Finding:
    """Report that a message crossed a hop again.

    Sending it again was needless if the message is not transactional and had been acknowledged. However, if the
    connection was gone, the acknowledgment may never have reached the sender.

    The copy that was read first may be the one that was resent: after a gap in the capture, a packet may be held back
    while later packets are read.
    """
    overtaken = is_overtaken(earlier, again)
    first, later = (again, earlier) if overtaken else (earlier, again)
    others = (first.number,)
    if not tells_order(first, later):
        text = f"it crossed this hop as #{first.number}, too; {UNTOLD}"
        return Finding(NOTE, "resend", later.number, text, "", others)
    before = f", {ago(later.time_ns - first.time_ns)} before" if later.time_ns >= first.time_ns else ""
    text = f"it crossed this hop as #{first.number}{before}"
    fate = first.fate
    answer = (fate.saved_by if first.recoverable else fate.acknowledged_by) if fate.numbered else None
    on_connection = later.previous_number is None and later.connection == first.connection
    if on_connection and _is_before(answer, later):
        assert answer is not None
        what = "saved" if first.recoverable else "received"
        text = f"{text}; #{answer} had said that it was {what}"
        section = "[MS-MQQB] 3.1.5.5.3" if first.recoverable else "[MS-MQQB] 3.1.5.5.2"
        return Finding(NOTE, "resend-without-need", later.number, text, section, (*others, answer))
    why = _why_again(earlier, again, () if overtaken else forms)
    return Finding(NOTE, "resend", later.number, f"{text}; {why}", "", others)


def _why_again(earlier: Crossing, again: Crossing, forms: Iterable[Form]) -> str:
    """Return why a message may have been sent again, as far as the capture shows.

    A message that was not acknowledged on one connection is sent again on the next one. The capture may show its
    acknowledgment only later, because it may show two connections in the wrong order.
    """
    if _is_own(earlier) or _is_own(again):
        return UNTIL_ACKNOWLEDGED
    came = (each.last for each in forms if each.last.hop[1] == again.hop[0] != again.key[0])
    last = max(came, key=_by_number, default=None)
    if last is not None and last.number > earlier.number:
        return f"it had come once more as #{last.number}"
    return NO_REASON if earlier.connection == again.connection else RECONNECTED


def _is_own(crossing: Crossing) -> bool:
    """Whether this is a transactional message that is just leaving its source, as far as the capture shows."""
    return crossing.key[0] == crossing.hop[0] and crossing.previous_number not in (None, NOT_SAID)


def _is_known(crossing: Crossing) -> bool:
    """Whether the queue managers at both ends of a crossing's hop are known."""
    return not any(isinstance(end, str) for end in crossing.hop)


def _as_it_is(hop: Hop) -> Hop:
    return hop


def _by_number(crossing: Crossing) -> int:
    return crossing.number


def _is_before(packet: int | None, crossing: Crossing) -> bool:
    """Whether a packet came no later than a crossing.

    A caller that works with rows may also pass a packet that came later.
    """
    return packet is not None and packet <= crossing.number


def ago(duration_ns: int) -> str:
    """Return a duration in words."""
    seconds = duration_ns / 1e9
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:,.1f} s"
