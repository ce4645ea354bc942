"""Finds where and when a capture has gaps between queue managers, which may hide messages.

A rule that relies on an event not having happened asks this module whether the capture would show the event. The answer
covers only the paths between queue managers that appear in the capture; nothing can be known about a path that does not
appear at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from mqproto.captures.decode.facts import Acknowledgment, Crossing, Hop, NodeKey, SessionFacts
from mqproto.captures.decode.sessions.checker import SessionView
from mqproto.captures.decode.sessions.connections import CONNECTION_LIMIT, Connection, Origins
from mqproto.captures.decode.sessions.half import LOSS_LIMIT
from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.tcp import Endpoint
from mqproto.wire.layouts.base import SMALLEST_USER_MESSAGE
from mqproto.wire.layouts.transaction import transaction_header

SECOND_NS: Final = 1_000_000_000
SLACK_NS: Final = SECOND_NS
"""If two events are further apart in time than this, in nanoseconds, a capture shows them in the order in which they
happened.

This holds for events on two connections at one capture point.
"""
EVER, NEVER = -(1 << 63), (1 << 63) - 1
"""Two times: one before all others, and one after all others, in nanoseconds."""
ENDLESS: Final = NEVER
"""A size in bytes that is larger than any message."""
SPAN_LIMIT: Final = 256
"""The largest number of gaps of one queue manager that are kept separate.

Beyond this limit, gaps that are close in time are joined.
"""
SMALLEST_NUMBERED: Final = SMALLEST_USER_MESSAGE + transaction_header.offset_of("connector_qm_guid")
"""The smallest possible size of a transactional message, in bytes."""

SMALLEST_FINAL_ACK: Final = 180
"""A size in bytes that is smaller than that of any FinalAck."""


class Lack(StrEnum):
    """A reason why a capture cannot show whether something crossed."""

    LOST = "frames lost here"
    CUT = "cut by snaplen"
    BEGAN = "the capture has not the beginning of a connection here"
    ONE_WAY = "this direction is not in the capture"


PASSED_OVER: Final = "a later message may have passed it over"
"""The reason why a capture cannot show whether an acknowledgment of a later message covers an earlier one."""


class Copy(NamedTuple):
    """A packet that carried a message.

    The fields say on which hop, when and where the packet was seen, and whether the end that opened the connection sent
    it.
    """

    hop: Hop
    interface: int
    time_ns: int
    connection: int
    frame: int = 0
    from_client: bool = False
    file: str = ""


def is_overtaken(earlier: Crossing | Copy, crossing: Crossing | Copy) -> bool:
    """Whether a crossing happened before one that was read earlier, judged by the clock of the interface that saw both.

    If the clock was set back, the order of frames in the file differs from the order of their times.
    """
    is_back = crossing.frame > earlier.frame and crossing.file == earlier.file
    return crossing.time_ns < earlier.time_ns and not is_back and crossing.connection != earlier.connection


def tells_order(first: Crossing | Copy, later: Crossing | Copy) -> bool:
    """Whether the copy that seems to be the first really is, judged by the connections of both copies.

    A frame that was captured late has a time that is too late. As a rule, the connection that began first carried its
    copy first; if the times contradict that, the order is unknown. If each end opened one of the connections, both may
    have been open at once. Copies that are close in time may then have crossed in any order.
    """
    is_close = abs(later.time_ns - first.time_ns) <= SLACK_NS
    return first.connection <= later.connection and not (is_close and first.from_client != later.from_client)


class Told(NamedTuple):
    """An OrderAck or a positive FinalAck, with the fields of an Acknowledgment."""

    sequence_number: int
    number: int
    time_ns: int
    interface: int
    connection: int
    ahead: bool


class Span(NamedTuple):
    """A time span in which up to `size_bytes` may have crossed unseen, and why.

    sender: the queue manager that would have sent these bytes; None if any queue manager may have.
    came_bytes: how many of these bytes may have reached the other end.
    recoverable_bytes: how many of these bytes may have been recoverable messages.
    place: the connection and the interface that lack the bytes.
    packet: the packet after the missing bytes; NEVER if there is none.
    """

    lack: Lack
    since_ns: int
    until_ns: int
    size_bytes: int = ENDLESS
    sender: NodeKey | None = None
    came_bytes: int = ENDLESS
    recoverable_bytes: int = ENDLESS
    place: tuple[int, int] | None = None
    packet: int = NEVER

    def may_hide(self, size_bytes: int, ack: Acknowledgment | Told | None) -> bool:
        """Whether the span may hide a message of this size.

        If `ack` is given, the message must be recoverable and have come before that acknowledgment. The sender of an
        acknowledgment had received all earlier bytes of its connection, unless the acknowledgment is `ahead`.
        """
        if ack is None:
            return self.size_bytes >= size_bytes
        is_behind = self.place == (ack.connection, ack.interface) and self.packet > ack.number
        return min(self.recoverable_bytes, self.came_bytes) >= size_bytes and (ack.ahead or not is_behind)

    def again_ns(
        self, sent_ns: int, connection: int, interface: int, told: Told, ended_ns: int
    ) -> int | None:
        """Return the time from which the span may hide a message that skipped another; None if it cannot hide such a
        message.

        See `Ways.may_be_passed`.
        """
        until_ns = min(self.until_ns, told.time_ns if interface == told.interface else NEVER)
        at, seen = self.place or (NEVER, interface)
        since_ns = max(self.since_ns, min(sent_ns + SECOND_NS * (at == connection), ended_ns))
        is_there = seen == interface and since_ns <= until_ns and sent_ns < self.until_ns
        return since_ns if is_there and self.may_hide(SMALLEST_NUMBERED, told) else None


class Hole(NamedTuple):
    """Bytes from one end that the capture lacks in one place, and that may have been messages.

    packet: the packet after the missing bytes.
    since_ns, until_ns: when the packets before and after the missing bytes were seen.
    size_bytes: how many bytes are missing.
    recoverable_bytes: how many of these bytes can be recoverable messages.
    """

    packet: int
    since_ns: int
    until_ns: int
    size_bytes: int
    recoverable_bytes: int


class Silence(NamedTuple):
    """One end of a connection that fell silent without the capture showing how the connection ended.

    over_ns: when the last packet of the connection was seen.
    last_ns: when the last packet of this end was seen.
    """

    over_ns: int
    last_ns: int
    sender: NodeKey
    pair: Pair
    place: tuple[int, int] | None = None


Pair: TypeAlias = tuple[NodeKey, NodeKey, int]
"""Two queue managers and an interface, which identify the connections between the two that this interface saw."""


_Timed = TypeVar("_Timed", tuple[int, int], Silence)


@dataclass(slots=True)
class Sending:
    """The bytes that one end of a connection has sent, as far as the capture shows.

    last_ns: when the last packet of this end was seen; None if none was seen.
    holes: missing bytes that may hide packets. The first `settled` of these holes came before the last SessionHeader of
        this end, whose counts include them.
    snapped: whether all missing bytes were cut from frames that the capture has.
    rest_bytes: how many bytes this end sent after its last packet; None if unknown.
    rest_came_bytes: how many of those bytes can have reached the other end; None if unknown.
    over: whether the capture shows the end of this stream, or a reset by the other side.
    """

    last_ns: int | None = None
    holes: list[Hole] = field(default_factory=list)
    snapped: bool = False
    rest_bytes: int | None = None
    rest_came_bytes: int | None = None
    over: bool = False
    settled: int = 0

    def end(self, position: int, sent_bytes: int | None, came_bytes: int | None) -> None:
        """End this side after its last packet, which ends at `position`.

        It has sent `sent_bytes` in total, of which `came_bytes` may have arrived.
        """
        self.over = True
        self.rest_bytes = None if sent_bytes is None else max(0, sent_bytes - position)
        self.rest_came_bytes = None if came_bytes is None else max(0, came_bytes - position)

    def lose(self, since_ns: int, facts: SessionFacts, size_bytes: int) -> None:
        """Record bytes that are missing in one place, before a packet or inside it."""
        hole = Hole(facts.number, since_ns, facts.time_ns, size_bytes, size_bytes)
        snapped = facts.snapped_bytes > 0 and facts.snapped_bytes >= facts.missing_bytes
        self.snapped = snapped and (self.snapped or not self.holes)
        if len(self.holes) >= LOSS_LIMIT:
            last = self.holes.pop()
            size_bytes = min(ENDLESS, last.size_bytes + size_bytes)
            until_ns = max(last.until_ns, facts.time_ns)
            hole = Hole(last.packet, min(last.since_ns, since_ns), until_ns, size_bytes, size_bytes)
        self.holes.append(hole)

    def take(self, facts: SessionFacts, view: SessionView, *, begun: bool) -> None:
        """Take the next packet of this end; a packet that is cut too short to be identified counts as missing.

        Args:
            begun: as in Talk. If the other end's packets show that, this end's first ones may still be missing.
        """
        if begun and self.last_ns is None and not begins(facts):
            self.lose(EVER, facts, ENDLESS)
        if view.hidden_bytes:
            self.lose(EVER if self.last_ns is None else self.last_ns, facts, view.hidden_bytes)
        if facts.kind is Kind.CUT:
            self.lose(facts.time_ns, facts, ENDLESS)
        if facts.header is not None:
            if view.is_counted:
                # A packet that is cut before its number is counted, and still is not known.
                self.holes[self.settled :] = [
                    hole if hole.size_bytes == ENDLESS else hole._replace(recoverable_bytes=0)
                    for hole in self.holes[self.settled :]
                ]
            self.settled = len(self.holes)
        self.last_ns = facts.time_ns


@dataclass(slots=True)
class Talk:
    """One connection as one interface saw it.

    hop: the hop from the connection's client to its server.
    place: the connection and the interface.
    begun: whether the capture covers the connection's session from its beginning; bytes may be missing.
    newest_ns: when the last packet was seen, in the order of packets.
    skew_ns: the longest step back in time from one packet to the next; there are such steps if the halves of a TAP have
        separate clocks. Packets after a gap do not count, because the reader may have held them back.
    """

    hop: Hop
    place: tuple[int, int]
    first_ns: int
    last_ns: int
    begun: bool
    client: Sending = field(default_factory=Sending)
    server: Sending = field(default_factory=Sending)
    newest_ns: int = EVER
    skew_ns: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the capture shows the end of the connection."""
        return self.client.over or self.server.over

    def take(self, facts: SessionFacts) -> None:
        """Take the next packet of the connection."""
        if not facts.missing_bytes:
            self.skew_ns = max(self.skew_ns, self.newest_ns - facts.time_ns)
        self.newest_ns = facts.time_ns
        self.last_ns = max(self.last_ns, facts.time_ns)


class Ways:
    """Everything known about the connections of one series of captures."""

    def __init__(self) -> None:
        self.began_late = False
        self._skew_ns = 0
        self._began_ns: dict[int, int] = {}
        self._into: defaultdict[NodeKey, list[Span]] = defaultdict(list)
        self._out_of: defaultdict[NodeKey, list[Span]] = defaultdict(list)
        # The times of the first and the last packet of each connection.
        self._talks: defaultdict[Pair, list[tuple[int, int]]] = defaultdict(list)
        self._silent_into: defaultdict[NodeKey, list[Silence]] = defaultdict(list)
        self._silent_out_of: defaultdict[NodeKey, list[Silence]] = defaultdict(list)

    def add(self, talk: Talk, *, lossless: bool = True) -> None:
        """Add a connection.

        Args:
            lossless: whether each gap of the capture is followed by a packet; if not, the connection's last packets may
                be missing.
        """
        self._begin(talk.place[1], talk.first_ns)
        self.began_late |= not talk.begun
        self._skew_ns = max(self._skew_ns, talk.skew_ns)
        one, other = talk.hop
        pair = _pair_of(talk)
        _put_in_order(self._talks[pair], [(talk.first_ns, talk.last_ns)])
        for (sender, receiver), sending in (((one, other), talk.client), ((other, one), talk.server)):
            for span in _spans(talk, sending, sender):
                _put(self._into[receiver], span)
                _put(self._out_of[sender], span)
            if sending.last_ns is not None and not lossless:
                came_bytes = sending.rest_came_bytes
                _put_rest(self._into[receiver], talk, sending, sender, came_bytes)
                _put_rest(self._out_of[sender], talk, sending, sender, sending.rest_bytes, came_bytes)
            if sending.last_ns is not None and not talk.is_over:
                silence = Silence(talk.last_ns, sending.last_ns, sender, pair, talk.place)
                self._fall_silent(self._silent_into[receiver], self._into[receiver], [silence])
                self._fall_silent(self._silent_out_of[sender], self._out_of[sender], [silence])

    def add_all(self, other: Ways) -> None:
        """Add everything that is known about other connections."""
        self.began_late |= other.began_late
        self._skew_ns = max(self._skew_ns, other._skew_ns)
        for interface, first_ns in other._began_ns.items():
            self._begin(interface, first_ns)
        for mine, theirs in ((self._into, other._into), (self._out_of, other._out_of)):
            for node, spans in theirs.items():
                for span in spans:
                    _put(mine[node], span)
        for pair, talks in other._talks.items():
            _put_in_order(self._talks[pair], talks)
        for kept, added, lacking in (
            (self._silent_into, other._silent_into, self._into),
            (self._silent_out_of, other._silent_out_of, self._out_of),
        ):
            for node, silent in added.items():
                self._fall_silent(kept[node], lacking[node], silent)

    def _fall_silent(self, kept: list[Silence], spans: list[Span], more: Iterable[Silence]) -> None:
        """Add ends that fell silent; beyond the limit, turn the earliest into gaps, even if no new connection
        follows.
        """
        for each in _put_in_order(kept, more):
            until_ns = next((span.until_ns for span in self._replaced([each])), NEVER)
            _put(spans, Span(Lack.LOST, each.last_ns, until_ns, sender=each.sender, place=each.place))

    def _replaced(self, silent: Iterable[Silence]) -> Iterator[Span]:
        """Yield a gap for each silent connection that was replaced by another one.

        The gap lasts until the same two queue managers began the next connection. They have one session at a time, so
        the earlier connection was over by then. The capture lacks the end of that connection, and perhaps messages
        before the end. But if a host lost power, nothing may be missing: it sent nothing to end the connection.
        """
        for over_ns, last_ns, sender, pair, at in silent:
            talks = self._talks.get(pair, ())
            place = bisect_right(talks, (over_ns, NEVER))
            if place < len(talks):
                yield Span(Lack.LOST, last_ns, talks[place][0], sender=sender, place=at)

    def suppose(self) -> None:
        """Add gaps for connections that the capture may lack as a whole, once everything is known.

        Where one connection fell silent in a capture that lacks frames, many of them may have been lost. Two other
        queue managers may then have had a connection that the capture does not show, before one that it shows.
        """
        known = chain.from_iterable(self._into.values())
        if not any(each.lack is Lack.LOST and (each.packet < NEVER or not each.place) for each in known):
            return
        lost: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        silent = chain.from_iterable(self._silent_into.values())
        for span in sorted(self._replaced(silent), key=itemgetter(1)):
            times = lost[span.place[1] if span.place else 0]
            before = times.pop() if times and span.since_ns <= times[-1][1] else (span.since_ns, EVER)
            times.append((before[0], max(before[1], span.until_ns)))
        for (one, other, interface), talks in self._talks.items():
            times = lost.get(interface, [])
            for (_, over_ns), (begun_ns, _) in pairwise([(EVER, EVER), *talks] if times else ()):
                first_ns, _ = times[min(bisect_right(times, over_ns, key=itemgetter(1)), len(times) - 1)]
                since_ns, until_ns = max(over_ns, first_ns), min(begun_ns, times[-1][1])
                for ends in ((one, other), (other, one)) if since_ns < until_ns else ():
                    span = Span(Lack.LOST, since_ns, until_ns, sender=ends[0])
                    _put(self._into[ends[1]], span)
                    _put(self._out_of[ends[0]], span)

    def _begin(self, interface: int, first_ns: int) -> None:
        """Record that an interface was active at this time."""
        self._began_ns[interface] = min(first_ns, self._began_ns.get(interface, first_ns))

    def into(
        self,
        node: NodeKey,
        since_ns: int = EVER,
        until_ns: int = NEVER,
        size_bytes: int = 0,
        may_send: Callable[[NodeKey], bool] | None = None,
        ack: Acknowledgment | Told | None = None,
    ) -> list[Span]:
        """Return the gaps in which a message may have reached a queue manager unseen between two times.

        Args:
            size_bytes: the smallest possible size of the message.
            may_send: a function that returns whether a queue manager may have sent the message. It is not asked about
                unknown queue managers, which count as possible senders.
            ack: an acknowledgment before which the message must have come; the message must also be recoverable.
        """
        replaced = self._replaced(self._silent_into.get(node, ()))
        spans: Iterable[Span] = chain(self._into.get(node, ()), replaced)
        if may_send is not None:
            spans = (each for each in spans if not isinstance(each.sender, bytes) or may_send(each.sender))
        return list(self._lacking(spans, since_ns, until_ns, size_bytes, ack))

    def brought(
        self,
        node: NodeKey,
        having: Collection[NodeKey],
        when: tuple[int, int, int],
        ack: Acknowledgment | Told,
        may_leave: Callable[[Span], bool] = lambda span: True,
    ) -> list[Span]:
        """Return the gaps in which a message may have come to a queue manager unseen.

        The message may have come, directly or indirectly, from the queue managers in `having`. A queue manager receives
        a message before passing it on. The order of events on two connections is known unless they are very close in
        time.

        Args:
            having: the queue managers that had the message first.
            when: since_ns, until_ns and size_bytes, as for `into`.
            may_leave: a function that returns whether a queue manager that had the message first may have sent it in a
                given span.
        """
        into = {each: self.into(each, *when, ack=ack) for each in (*self._into, *self._silent_into, node)}
        late_ns = NEVER if len(self._began_ns) > 1 else SLACK_NS + self._apart_ns
        had_ns: dict[NodeKey | None, int] = dict.fromkeys(having, when[0])

        def came_ns(span: Span) -> int | None:
            if not isinstance(span.sender, bytes):
                return span.since_ns
            first_ns = had_ns.get(span.sender)
            is_there = first_ns is not None and (span.sender not in having or may_leave(span))
            if first_ns is None or not is_there or first_ns > span.until_ns + late_ns:
                return None
            return max(first_ns, span.since_ns)

        before: dict[NodeKey | None, int] = {}
        while before != had_ns:
            before = dict(had_ns)
            for each, spans in into.items():
                if every := [came for span in spans if (came := came_ns(span)) is not None]:
                    had_ns[each] = min([*every, had_ns.get(each, NEVER)])
        return [span for span in into[node] if came_ns(span) is not None]

    def out_of(
        self, node: NodeKey, since_ns: int, until_ns: int, size_bytes: int, ack: Acknowledgment
    ) -> list[Span]:
        """Return the gaps in which a queue manager may have sent a message unseen between two times.

        The arguments are as for `into`.
        """
        return list(self._lacking(self._sent_by(node), since_ns, until_ns, size_bytes, ack))

    def _sent_by(self, node: NodeKey) -> Iterator[Span]:
        """Yield the gaps in a queue manager's traffic, and those of addresses that may be this queue manager's."""
        for each in (node, *(other for other in self._out_of if isinstance(other, str))):
            yield from self._out_of.get(each, ())
            yield from self._replaced(self._silent_out_of.get(each, ()))

    def may_be_passed(self, copies: Iterable[Copy], told: Told, *, ended: int | None) -> bool:
        """Whether a later message, which `told` acknowledges, may have skipped this one without the capture showing it.

        If this message is gone, its source resends the later message with another predecessor: on another session, or
        after at least a second without an OrderAck. If a FinalAck ended this message, a new message skips it at once.
        In either case, every interface that saw this message leave must have a gap. There must also be gaps all the way
        to the destination, and on the way of an unseen FinalAck. [MS-MQQB] 3.1.5.7, 3.1.6.5, 3.1.7.1.3

        Args:
            copies: the copies of this message, as they crossed.
            ended: how many FinalAcks must be missing from the capture if a new message skipped this message and all
                others before the new one. None if no message between this one and the acknowledged one is missing.
        """
        last: dict[tuple[NodeKey, int], tuple[int, int]] = {}
        ends: set[NodeKey] = set()
        for (node, end), interface, time_ns, connection, *_ in copies:
            ends.add(end)
            last[node, interface] = max((time_ns, connection), last.get((node, interface), (EVER, 0)))
        senders = {node for node, _ in last}
        first, ends = senders - ends or senders, ends - senders or ends

        def again_ns(place: tuple[NodeKey, int], span: Span) -> int | None:
            return span.again_ns(*last[place], place[1], told, ended_ns[place])

        def may_leave(span: Span) -> bool:
            return any(place[0] == span.sender and again_ns(place, span) is not None for place in last)

        ended_ns: dict[tuple[NodeKey, int], int] = {}
        passing: dict[tuple[NodeKey, int], list[Span]] = {}
        began_ns, needed, several = [], NEVER if ended is None else ended, len(self._began_ns) > 1
        for place, (sent_ns, _) in last.items():
            # The gaps of known size may have no room for all messages that are missing.
            is_new = (
                sum(each.size_bytes for each in self.passing(place[0])) < (ended or 0) * SMALLEST_NUMBERED
            )
            passing[place] = self.passing(place[0], is_new=is_new)
            spans = self.into(place[0], sent_ns, told.time_ns, SMALLEST_FINAL_ACK) if ended else ()
            known = [each for each in spans if is_new or each.size_bytes < ENDLESS]
            since_ns = [EVER if several else each.since_ns for each in known]
            count = sum(each.size_bytes // SMALLEST_FINAL_ACK for each in known)
            ended_ns[place] = max(sent_ns, min(since_ns, default=EVER)) if count >= needed else NEVER
        for place, spans in passing.items():
            if place[0] in first:
                times_ns = (again_ns(place, span) for span in spans)
                began_ns.append(min((each for each in times_ns if each is not None), default=NEVER))
        when = min(began_ns), told.time_ns, SMALLEST_NUMBERED
        return NEVER not in began_ns and any(self.brought(end, first, when, told, may_leave) for end in ends)

    def passing(self, node: NodeKey, *, is_new: bool = False) -> list[Span]:
        """Return the gaps of known size in a queue manager's traffic, and its packets that are cut before they say what
        they are.

        Gaps of unknown size are left out, because they may be empty, unless new messages must have been in one
        (`is_new`).
        """
        return [each for each in self._sent_by(node) if is_new or min(each.size_bytes, each.packet) < ENDLESS]

    def onward(self, node: NodeKey, since_ns: int, size_bytes: int) -> Lack | None:
        """Return why a queue manager may have passed on a message unseen after `since_ns`; None if it cannot have.

        A queue manager that has reset a connection receives nothing more on it.
        """
        replaced = self._replaced(self._silent_out_of.get(node, ()))
        spans = (each for each in self._out_of.get(node, ()) if each.came_bytes >= size_bytes)
        lacking = self._lacking(chain(spans, replaced), since_ns, NEVER, size_bytes)
        return next((span.lack for span in lacking), None)

    def is_over(self, span: Span, packet: int, time_ns: int, place: tuple[int, int]) -> bool:
        """Whether a span had ended before a packet that was seen at this time and place."""
        if span.place == place:
            return span.packet <= packet and span.until_ns <= time_ns
        return len(self._began_ns) == 1 and span.until_ns + SLACK_NS + self._apart_ns < time_ns

    def _lacking(
        self,
        spans: Iterable[Span],
        since_ns: int,
        until_ns: int,
        size_bytes: int,
        ack: Acknowledgment | Told | None = None,
    ) -> Iterator[Span]:
        """Yield the spans that may hide a message of this size between two times.

        Times of different interfaces are not compared.
        """
        several = len(self._began_ns) > 1
        since_ns, until_ns = since_ns - self._apart_ns, until_ns + self._apart_ns
        for span in spans:
            is_then = since_ns <= until_ns and span.since_ns <= until_ns and span.until_ns >= since_ns
            if (several or is_then) and span.may_hide(size_bytes, ack):
                yield span

    def is_written_since(self, interface: int, sent_s: int, seen_ns: int) -> bool:
        """Whether a message was written after the capture began, so that it cannot have crossed earlier.

        Its SentTime comes from another clock, in seconds. A SentTime later than the time of capture proves nothing.
        """
        began_ns = self._began_ns.get(interface)
        if began_ns is None or sent_s > seen_ns // SECOND_NS + 1:
            return False
        return sent_s >= (began_ns + self._apart_ns) // SECOND_NS + self.began_late

    @property
    def _apart_ns(self) -> int:
        """How far apart the clocks of one interface may be, judged by packets that are close together."""
        return 2 * self._skew_ns


def written_ns(sent_s: int) -> int:
    """Return the earliest time at which a message can have been written.

    Its SentTime comes from another clock, in seconds.
    """
    return (sent_s - 1) * SECOND_NS


def begins(facts: SessionFacts) -> bool:
    """Whether a connection's first packet shows that the capture covers its session from the beginning.

    This also holds if the capture shows that bytes before that packet are missing. Messages cross only after a request
    has been answered, and bytes that form no packet do not begin a session.
    """
    lacks_before = facts.missing_bytes > 0 or facts.skipped_bytes > 0
    return lacks_before or facts.kind in (Kind.ESTABLISH_CONNECTION, Kind.MALFORMED)


class WayBook:
    """Records what a capture lacks, packet by packet."""

    def __init__(self) -> None:
        self._talks: OrderedDict[tuple[int, int], tuple[Connection, Talk]] = OrderedDict()
        self._over = Ways()
        self._over_of_lossy = Ways()

    def take(self, facts: SessionFacts, view: SessionView) -> Sending:
        """Take the next packet of a connection, as its session sees it.

        Return what the packet's sender has sent so far.
        """
        connection = view.connection
        key = facts.connection, facts.interface
        known = self._talks.get(key)
        if known is None or known[0] is not connection:
            begun = begins(facts)
            talk = Talk(connection.client.hop, key, facts.time_ns, facts.time_ns, begun)
            if known is not None:
                self._close(*known)
            self._talks[key] = known = connection, talk
            if len(self._talks) > CONNECTION_LIMIT:
                self._close(*self._talks.popitem(last=False)[1])
        talk = known[1]
        talk.take(facts)
        sending = talk.client if view.half is connection.client else talk.server
        sending.take(facts, view, begun=talk.begun)
        return sending

    def end(
        self,
        connection: int,
        interface: int,
        source: Endpoint,
        sent_bytes: int | None,
        came_bytes: int | None,
    ) -> None:
        """End one side of a connection, after all its packets have been taken; see `Sending.end`."""
        known = self._talks.get((connection, interface))
        if known is None:
            return
        of, talk = known
        half, _ = of.halves(source)
        sending = talk.client if half is of.client else talk.server
        sending.end(half.end, sent_bytes, came_bytes)

    def ways(self, origins: Origins, *, lossless: bool = True) -> Ways:
        """Return everything that is known so far.

        Args:
            origins: the queue managers at ends that no handshake has identified.
            lossless: whether each gap of the capture is followed by a packet; if not, the last packets may be missing.
        """
        ways = Ways()
        ways.add_all(self._over if lossless else self._over_of_lossy)
        for connection, talk in self._talks.values():
            talk.hop = origins.resolve_hop(connection.client.hop)
            ways.add(talk, lossless=lossless)
        ways.suppose()
        return ways

    def _close(self, connection: Connection, talk: Talk) -> None:
        """Add a finished connection to both accounts, for a capture that is lossless and for one that is not.

        Only the end of the capture shows which of the two applies.
        """
        talk.hop = connection.client.hop
        self._over.add(talk)
        self._over_of_lossy.add(talk, lossless=False)


def joined(*known: Mapping[str, Ways]) -> dict[str, Ways]:
    """Return everything that is known about several series, keyed by series."""
    found: dict[str, Ways] = {}
    for each in known:
        for series, ways in each.items():
            if series not in found:
                found[series] = Ways()
            found[series].add_all(ways)
    return found


def _pair_of(talk: Talk) -> Pair:
    one, other = sorted(talk.hop, key=repr)
    return one, other, talk.place[1]


def _spans(talk: Talk, sending: Sending, sender: NodeKey) -> Iterable[Span]:
    lack = Lack.CUT if sending.snapped else Lack.LOST
    if sending.last_ns is None:
        yield Span(Lack.ONE_WAY, talk.first_ns if talk.begun else EVER, NEVER, sender=sender)
    elif not talk.begun:
        yield Span(Lack.BEGAN, EVER, talk.first_ns, sender=sender)
    for packet, since_ns, until_ns, size_bytes, recoverable_bytes in sending.holes:
        of = sender, ENDLESS, recoverable_bytes, talk.place, packet
        yield Span(lack, since_ns, until_ns, size_bytes, *of)


def _put_rest(
    spans: list[Span],
    talk: Talk,
    sending: Sending,
    sender: NodeKey,
    rest_bytes: int | None,
    came_bytes: int | None = None,
) -> None:
    """Add the gap after an end's last packet.

    The gap states how much the end may have sent there, and how much of that may have arrived.
    """
    assert sending.last_ns is not None
    if rest_bytes is None or rest_bytes >= SMALLEST_USER_MESSAGE:
        lack = Lack.CUT if sending.snapped else Lack.LOST
        most_bytes, most_came_bytes = (ENDLESS if each is None else each for each in (rest_bytes, came_bytes))
        until_ns = talk.last_ns + SLACK_NS
        of = sender, most_came_bytes, most_bytes, talk.place
        _put(spans, Span(lack, sending.last_ns, until_ns, most_bytes, *of))


def _put_in_order(known: list[_Timed], more: Iterable[_Timed]) -> list[_Timed]:
    """Add times or silences in order; remove and return the earliest ones beyond the limit."""
    known.extend(more)
    known.sort(key=lambda each: each[:2])
    gone = known[:-SPAN_LIMIT]
    del known[:-SPAN_LIMIT]
    return gone


def _put(spans: list[Span], span: Span) -> None:
    """Add a span; if there are too many spans, join them in pairs."""
    spans.append(span)
    if len(spans) > SPAN_LIMIT:
        spans.sort(key=lambda each: each.since_ns)
        spans[:] = map(_both, spans[::2], [*spans[1::2], spans[-1]])


def _both(one: Span, other: Span) -> Span:
    """Return one span that may hide everything that either of two spans may hide."""
    return Span(
        one.lack,
        one.since_ns,
        max(one.until_ns, other.until_ns),
        one.size_bytes + other.size_bytes,
        one.sender if one.sender == other.sender else None,
        one.came_bytes + other.came_bytes,
        one.recoverable_bytes + other.recoverable_bytes,
    )
