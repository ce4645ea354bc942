"""The way of each message from hop to hop: what crossed twice and why, and whether it came through as it was.

A message is known by its first queue manager and its ordinal ([MS-MQMQ] 2.2.18.1.3).  [MS-MQQB] 3.1.1.6.2
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, TypeAlias

from captures.decode.connections import Half, NodeKey
from captures.decode.digest import digest_of
from captures.decode.findings import Finding, Severity
from captures.decode.sight import Acknowledged, Sight
from mqproto.wire import Guid, UserMessage

REMEMBERED_LIMIT: Final = 100_000
"""So many crossings are remembered, those of the messages that were first seen last; some 50 MB."""
CROSSING_LIMIT: Final = 16
"""So many crossings of one message are remembered, the last of each form on each hop; with more it is not compared."""
NO_REASON: Final = "the capture does not show why"

MessageKey: TypeAlias = tuple[Guid, int]
"""SourceQueueManager and MessageID."""


class Crossing(NamedTuple):
    """One message on one hop.

    interface: where it was seen; one packet that was caught twice is no resend.
    half, session_number: the end of the connection that sent it, and its number on the session, if that is known.
    digest: of all bytes that an intermediate may not change.
    """

    hop: tuple[NodeKey, NodeKey]
    interface: int
    packet: int
    time_ns: int
    half: Half
    connection: int
    session_number: int | None
    hop_count: int
    digest: int


def message_key(message: UserMessage) -> MessageKey:
    """What a message is known by."""
    return message.user.source_queue_manager, message.user.message_id


class JourneyChecker:
    """Remembers where messages crossed, `limit` crossings in all."""

    def __init__(self, limit: int = REMEMBERED_LIMIT) -> None:
        self._limit = limit
        self._count = 0
        self._journeys: OrderedDict[MessageKey, list[Crossing]] = OrderedDict()

    def take(self, sight: Sight, message: UserMessage, half: Half) -> None:
        """A UserMessage crosses a hop: compare it with its earlier crossings."""
        seen = sight.seen
        key = message_key(message)
        crossing = Crossing(
            sight.hop,
            seen.interface.number,
            seen.number,
            seen.time_ns,
            half,
            seen.connection,
            sight.count,
            message.user.hop_count,
            digest_of(seen.data),
        )
        crossings = self._journeys.get(key)
        if crossings is None:
            self._journeys[key] = [crossing]
            self._make_room()
            return
        earlier: Crossing | None = None
        repeated: Crossing | None = None
        came: list[Crossing] = []
        for each in crossings:
            if each.hop[1] == sight.hop[0]:
                came.append(each)
            elif each.hop == sight.hop and each.interface == crossing.interface:
                earlier = each
                if each.digest == crossing.digest:
                    repeated = each
        if earlier is not None:
            text = f"it crossed this hop as #{earlier.packet}, {ago(seen.time_ns - earlier.time_ns)} before"
            why = _why_again(message, earlier, crossing, crossings)
            sight.findings.append(Finding(Severity.NOTE, "resend", seen.number, f"{text}; {why}"))
        if came and key[0] != sight.hop[0] and len(crossings) < CROSSING_LIMIT:
            _compare(sight, crossing, came)
        if repeated is not None:
            crossings.remove(repeated)
            self._count -= 1
        crossings.append(crossing)
        if len(crossings) > CROSSING_LIMIT:
            del crossings[0]
            self._count -= 1
        self._make_room()

    def _make_room(self) -> None:
        """One crossing more is remembered: forget the message that was first seen longest ago, if it is too many."""
        self._count += 1
        while self._count > self._limit:
            _, forgotten = self._journeys.popitem(last=False)
            self._count -= len(forgotten)

    def packets_of(self, key: MessageKey) -> Acknowledged | None:
        """The last packet that carried a message, if it is remembered."""
        crossings = self._journeys.get(key)
        return Acknowledged([crossings[-1].packet]) if crossings else None


def _why_again(message: UserMessage, earlier: Crossing, again: Crossing, crossings: list[Crossing]) -> str:
    """Why a message may have been sent once more, as far as the capture shows it."""
    saved = earlier.half.has_acknowledgment_of(earlier.session_number)
    if earlier.connection != again.connection and not saved:
        return "its connection ended before a session acknowledgment came"
    if message.user.source_queue_manager == again.hop[0]:
        return "its OrderAck had not come" if message.transaction is not None else NO_REASON
    for each in reversed(crossings):
        if each.hop[1] == again.hop[0] and each.packet > earlier.packet:
            return f"it had come once more as #{each.packet}"
    return NO_REASON


def _compare(sight: Sight, left: Crossing, came: list[Crossing]) -> None:
    """An intermediate changes the hop count, by one, and nothing else.  [MS-MQMQ] 2.2.19.2, [MS-MQQB] 3.1.1.6.2"""
    if came[0].digest == left.digest and came[0].hop_count + 1 == left.hop_count:
        return  # Nearly always: it came once, and went on.
    if any(each.half.lossy for each in came):
        return
    same = [each for each in came if each.digest == left.digest]
    number = sight.seen.number
    if not same:
        text = f"it left otherwise than it came as #{came[-1].packet}, and not in its hop count alone"
        sight.findings.append(Finding(Severity.FAULT, "altered", number, text, "[MS-MQQB] 3.1.1.6.2"))
    elif all(each.hop_count + 1 != left.hop_count for each in same):
        text = f"it came as #{same[-1].packet} with hop count {same[-1].hop_count}, and left with {left.hop_count}"
        sight.findings.append(Finding(Severity.FAULT, "hop-count", number, text, "[MS-MQMQ] 2.2.19.2"))


def ago(duration_ns: int) -> str:
    """A duration as people say it."""
    seconds = duration_ns / 1e9
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:,.1f} s"
