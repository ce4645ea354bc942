"""The way of each message from hop to hop: what crossed twice and why, and whether it came through as it was.

A message is known by its first queue manager and its ordinal ([MS-MQMQ] 2.2.18.1.3).  [MS-MQQB] 3.1.1.6.2
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from captures.decode.facts import Crossing, MessageKey
from captures.decode.findings import Finding, Severity
from captures.decode.sight import Acknowledged
from mqproto.wire import UserMessage

FAULT, NOTE = Severity.FAULT, Severity.NOTE

REMEMBERED_LIMIT: Final = 100_000
"""How many crossings are remembered, those of the messages that were first seen last; some 50 MB."""
CROSSING_LIMIT: Final = 16
"""How many crossings of one message are remembered, the last of each form on each hop; with more it is not compared."""
NO_REASON: Final = "the capture does not show why"
SECOND_NS: Final = 1_000_000_000


def message_key(message: UserMessage) -> MessageKey:
    """What a message is known by."""
    return message.user.source_queue_manager, message.user.message_id


class JourneyChecker:
    """Remembers where messages crossed, `limit` crossings in all."""

    def __init__(self, limit: int = REMEMBERED_LIMIT) -> None:
        self._limit = limit
        self._count = 0
        self._journeys: OrderedDict[MessageKey, list[Crossing]] = OrderedDict()

    def take(self, crossing: Crossing) -> list[Finding]:
        """A UserMessage crosses a hop: compare it with its earlier crossings."""
        key, hop = crossing.key, crossing.hop
        findings: list[Finding] = []
        if crossing.expires_s is not None and crossing.time_ns > (crossing.expires_s + 1) * SECOND_NS:
            findings.append(_late(crossing, crossing.expires_s))
        crossings = self._journeys.get(key)
        if crossings is None:
            self._journeys[key] = [crossing]
            self._make_room()
            return findings
        earlier: Crossing | None = None
        repeated: Crossing | None = None
        came: list[Crossing] = []
        for each in crossings:
            if each.hop[1] == hop[0]:
                came.append(each)
            elif each.hop == hop and each.interface == crossing.interface:
                earlier = each
                if each.digest == crossing.digest:
                    repeated = each
        if earlier is not None:
            if repeated is None and key[0] == hop[0] and earlier.previous_number == crossing.previous_number:
                findings.append(_two_in_one(earlier, crossing))
            else:
                findings.append(_again(earlier, crossing, crossings))
        if came and key[0] != hop[0] and len(crossings) < CROSSING_LIMIT:
            findings += _compare(crossing, came)
        if repeated is not None:
            crossings.remove(repeated)
            self._count -= 1
        crossings.append(crossing)
        if len(crossings) > CROSSING_LIMIT:
            del crossings[0]
            self._count -= 1
        self._make_room()
        return findings

    def _make_room(self) -> None:
        """One crossing more is remembered: forget the message that was first seen longest ago, if it is too many."""
        self._count += 1
        while self._count > self._limit:
            _, forgotten = self._journeys.popitem(last=False)
            self._count -= len(forgotten)

    def packets_of(self, key: MessageKey) -> Acknowledged | None:
        """The last packet that carried a message, if it is remembered."""
        crossings = self._journeys.get(key)
        return Acknowledged([crossings[-1].number]) if crossings else None


def _late(crossing: Crossing, expires_s: int) -> Finding:
    """A sender deletes an expired message and does not send it; but its clock may be another than the capture's."""
    text = f"its time to reach its queue was over {ago(crossing.time_ns - expires_s * SECOND_NS)} before"
    return Finding(NOTE, "late", crossing.number, text, "[MS-MQQB] 3.1.7.1.2")


def _two_in_one(earlier: Crossing, crossing: Crossing) -> Finding:
    """A queue manager gives each message an identifier of its own.  [MS-MQMQ] 2.2.19.2"""
    text = f"#{earlier.number} is another message with the same identifier"
    others = (earlier.number,)
    return Finding(FAULT, "duplicate-identity", crossing.number, text, "[MS-MQMQ] 2.2.19.2", others)


def _again(earlier: Crossing, again: Crossing, crossings: list[Crossing]) -> Finding:
    """A message crosses a hop once more. One that is not transactional is done with once its receiver has answered.

    Its sender may never have had an answer that it had no connection for any more.
    """
    text = f"it crossed this hop as #{earlier.number}, {ago(again.time_ns - earlier.time_ns)} before"
    others = (earlier.number,)
    answer = earlier.fate.saved_by if earlier.recoverable else earlier.fate.acknowledged_by
    on_connection = again.previous_number is None and again.connection == earlier.connection
    if on_connection and _is_before(answer, again):
        assert answer is not None
        what = "saved" if earlier.recoverable else "received"
        text = f"{text}; #{answer} had said that it was {what}"
        section = "[MS-MQQB] 3.1.5.5.3" if earlier.recoverable else "[MS-MQQB] 3.1.5.5.2"
        return Finding(NOTE, "resend-without-need", again.number, text, section, (earlier.number, answer))
    why = _why_again(earlier, again, crossings)
    return Finding(NOTE, "resend", again.number, f"{text}; {why}", "", others)


def _why_again(earlier: Crossing, again: Crossing, crossings: list[Crossing]) -> str:
    """Why a message may have been sent once more, as far as the capture shows it."""
    if earlier.connection != again.connection and not _is_before(earlier.fate.acknowledged_by, again):
        return "its connection ended before a session acknowledgment came"
    if again.key[0] == again.hop[0]:
        return "its OrderAck had not come" if again.previous_number is not None else NO_REASON
    for each in reversed(crossings):
        if each.hop[1] == again.hop[0] and each.number > earlier.number:
            return f"it had come once more as #{each.number}"
    return NO_REASON


def _is_before(packet: int | None, crossing: Crossing) -> bool:
    """Whether something had happened by then: a caller that has rows knows of what came later, too."""
    return packet is not None and packet <= crossing.number


def _compare(left: Crossing, came: list[Crossing]) -> list[Finding]:
    """An intermediate changes the hop count, by one, and nothing else.  [MS-MQMQ] 2.2.19.2, [MS-MQQB] 3.1.1.6.2"""
    if came[0].digest == left.digest and came[0].hop_count + 1 == left.hop_count:
        return []  # Nearly always: it came once, and went on.
    if any(_is_before(each.fate.lossy_since, left) for each in came):
        return []
    same = [each for each in came if each.digest == left.digest]
    number, others = left.number, tuple(each.number for each in came)
    if not same:
        text = f"it left otherwise than it came as #{came[-1].number}, and not in its hop count alone"
        return [Finding(FAULT, "altered", number, text, "[MS-MQQB] 3.1.1.6.2", others)]
    if all(each.hop_count + 1 != left.hop_count for each in same):
        text = f"it came as #{same[-1].number} with hop count {same[-1].hop_count}, and left with {left.hop_count}"
        return [Finding(FAULT, "hop-count", number, text, "[MS-MQMQ] 2.2.19.2", others)]
    return []


def ago(duration_ns: int) -> str:
    """A duration as people say it."""
    seconds = duration_ns / 1e9
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:,.1f} s"
