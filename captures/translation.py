"""Recognizes connections that appear again on the other side of address translation.

This happens if a host is captured on both sides of the translation. `tcpdump -i any` on a host with containers shows
each segment at up to four interfaces, and after the translation it has other addresses or ports. If these counted as
two connections, everything would appear to be sent twice.

A device that translates addresses does not change TCP's numbers or the payload. Connections choose their numbers at
random. So two segments between different endpoints with the same sequence and acknowledgment numbers, flags and payload
are the same segment. For each connection, several of the first segments with payload are compared, because a capture
may lack some. If two of them differ at the same place, the connections are separate.

A copy counts as the connection that was seen first. If the copy began at most AHEAD_COUNT frames ago, all of it counts
so; otherwise, only its part in the last AHEAD_COUNT frames does. Frames wait that long before they are read. Earlier
frames have been read already, and the capture may have had only one of the two connections until then. The copy's
segments are repetitions, or another interface's view.

A mirror of a line with tunnels may show packets outside the tunnels as well; these copies are found in the same way.
Tunnels with different numbers belong to different tenants, whatever they carry. But if one answers the other's SYN,
each direction has its own tunnel.

A proxy, which forwards the bytes on its own connection, has its own numbers, and does not count here.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mqproto.captures.net.direction import OPENING_LIMIT_BYTES
from mqproto.captures.net.recent import AHEAD_COUNT, signed
from mqproto.captures.net.streams import CONNECTION_LIMIT, MSMQ_PORT
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Endpoint, Segment

COMPARED_COUNT: Final = 8
"""The number of segments with payload, from the beginning of each connection, that are compared."""
PROOF_BYTES: Final = 16
"""The minimum payload of a segment that is compared."""
REMEMBERED_COUNT: Final = 8_192
"""The number of segments of other connections that are kept for comparison."""
CHANGES_KEPT: Final = 3
"""The number of earlier changes to remember for frames that have yet to be read."""
APART_NS: Final = 10_000_000_000
"""The greatest time, in nanoseconds, between two copies of a segment.

The clocks of their capture points may differ by seconds.
"""

Way: TypeAlias = tuple[Endpoint, Endpoint]
"""A source and a destination."""


class TellingSegment(NamedTuple):
    """A segment that may show that its connection is a translated one.

    number: the number of its frame.
    size_bytes: the size of its whole payload.
    kept_bytes: the size of the captured part of the payload.
    content: a checksum of the captured part; 0 if that part is shorter than PROOF_BYTES.
    """

    number: int
    time_ns: int
    source: Endpoint
    destination: Endpoint
    sequence: int
    acknowledgment: int
    flags: int
    size_bytes: int
    kept_bytes: int
    content: int

    @classmethod
    def of(cls, segment: Segment, number: int, time_ns: int) -> TellingSegment:
        """Return the TellingSegment for a decoded segment."""
        payload = segment.payload
        return cls(
            number,
            time_ns,
            segment.source,
            segment.destination,
            segment.sequence_number,
            segment.acknowledgment_number,
            segment.flags,
            len(payload) + segment.cut_bytes,
            len(payload),
            zlib.crc32(payload) if len(payload) >= PROOF_BYTES else 0,
        )


class Translation(NamedTuple):
    """A connection that counts as another connection.

    number: the number of the first frame for which this holds.
    way: the endpoints of the connection.
    shown: the endpoints that replace them; None if from here on the connection counts as itself again.
    initial: the sequence number with which the connection's client began, if it was seen.
    """

    number: int
    way: Way
    shown: Way | None
    initial: int | None = None


@dataclass(slots=True, eq=False)
class _Pair:
    """Two endpoints that talk to each other, and everything that is known about their connection.

    since: the number of the frame with which the connection began.
    left: the number of segments that are still to be compared.
    changes: the last changes, each with its first frame and, for each endpoint, the endpoint that replaces it from that
        frame on.
    leads: whether other connections count as this one.
    initial: the client's initial sequence number.
    first: for each sender, the sequence number of its first segment that was seen.
    said: for each sender and sequence number, the contents of the first segments with payload, including copies of
        damaged segments.
    """

    since: int
    left: int = COMPARED_COUNT
    changes: list[tuple[int, dict[Endpoint, Endpoint]]] = field(default_factory=list)
    leads: bool = False
    initial: int | None = None
    first: dict[Endpoint, int] = field(default_factory=dict)
    said: dict[tuple[Endpoint, int], set[tuple[int, ...]]] = field(default_factory=dict)

    @property
    def shown(self) -> dict[Endpoint, Endpoint]:
        """For each endpoint, the endpoint that replaces it; empty if the connection counts as itself."""
        return self.changes[-1][1] if self.changes else {}

    def take_for(self, shown: dict[Endpoint, Endpoint], number: int) -> None:
        """Make the connection count as another one, starting with this frame."""
        self.changes = [*self.changes[-CHANGES_KEPT:], (number, shown)]

    def contradicts(self, other: _Pair, shown: Mapping[Endpoint, Endpoint]) -> bool:
        """Return whether the other connection has different contents at the same place.

        This can happen because a generated capture may begin all its connections with the same number, and repeat some
        packets.
        """
        return any(
            contents.isdisjoint(other.said.get((shown[sender], sequence), contents))
            for (sender, sequence), contents in self.said.items()
        )

    def is_begun_anew(self, sender: Endpoint, sequence: int) -> bool:
        """Return whether a SYN begins another connection; false if it is only late."""
        if self.initial is not None:
            return sequence != self.initial
        first = self.first.get(sender)
        return first is not None and not 0 <= signed(first - sequence) <= OPENING_LIMIT_BYTES


class Translations:
    """Takes the segments of a capture in order, and finds connections that are translations of others.

    Args:
        known: the translations that were found in an earlier part of the capture.

    Attributes:
        found: the translations found since then.
    """

    def __init__(self, known: Iterable[Translation] = ()) -> None:
        self.found: list[Translation] = []
        self._pairs: OrderedDict[Way, _Pair] = OrderedDict()
        self._early: OrderedDict[tuple[int, ...], tuple[Way, int]] = OrderedDict()
        self._asked: OrderedDict[tuple[_Addresses, int], Way] = OrderedDict()
        for each in known:
            pair = self._pair(each.way, each.number)
            pair.left, pair.initial = 0, each.initial
            shown = {} if each.shown is None else dict(zip(each.way, each.shown, strict=True))
            pair.take_for(shown, each.number)

    def meet(self, segment: Segment, number: int, time_ns: int) -> None:
        """Take a segment.

        It may be read after later segments that have shown its connection to be a translated one.
        """
        pair = self._pairs.get((segment.source, segment.destination))
        if pair is None or (pair.left and segment.payload) or segment.flags & SYN:
            self.take(TellingSegment.of(segment, number, time_ns))

    def translated(self, segment: Segment, number: int) -> Segment:
        """Return a segment with the endpoints of the connection that it counts as."""
        source, destination = way = segment.source, segment.destination
        pair = self._pairs.get(way)
        for since, shown in reversed(pair.changes) if pair is not None else ():
            if since <= number:
                ends = shown.get(source, source), shown.get(destination, destination)
                return segment._replace(source=ends[0], destination=ends[1])
        return segment

    def take(self, early: TellingSegment) -> None:
        """Compare a segment with segments of other connections.

        Call this for the first segment between two endpoints, for early segments with payload, and for each SYN.
        """
        way = (early.source, early.destination)
        pair = self._pair(way, early.number)
        if early.flags & SYN and not early.flags & ACK:
            if pair.is_begun_anew(early.source, early.sequence):
                if pair.shown:
                    self.found.append(Translation(early.number, way, None, early.sequence))
                    pair.take_for({}, early.number)
                pair.since, pair.left, pair.leads = early.number, COMPARED_COUNT, False
                pair.first, pair.said = {}, {}
            pair.initial = early.sequence
        if early.flags & SYN and "%" in early.source.host:
            self._compare_opening(early, way, pair)
        pair.first.setdefault(early.source, early.sequence)
        if early.kept_bytes >= PROOF_BYTES and pair.left:
            pair.left -= 1
            self._compare(early, way, pair)

    def _compare_opening(self, early: TellingSegment, way: Way, pair: _Pair) -> None:
        """Join the directions of a connection that have separate tunnels.

        The answer to a SYN belongs to the SYN's connection.
        """
        if not early.flags & ACK:
            self._asked[_addresses(way), (early.sequence + 1) % 2**32] = way
            if len(self._asked) > REMEMBERED_COUNT:
                self._asked.popitem(last=False)
            return
        asked = self._asked.get((_addresses(way[::-1]), early.acknowledgment))
        if asked not in (None, way[::-1]) and pair.initial is None and not (pair.shown or pair.leads):
            self._show(early, way, pair, asked[::-1])

    def _compare(self, early: TellingSegment, way: Way, pair: _Pair) -> None:
        flags = early.flags & (SYN | FIN | RST | ACK)
        content = (early.size_bytes, early.kept_bytes, early.content)
        key = (early.sequence, early.acknowledgment, flags, *content)
        pair.said.setdefault((early.source, early.sequence), set()).add(content)
        known = self._early.pop(key, None)
        self._early[key] = (way, early.time_ns)
        if len(self._early) > REMEMBERED_COUNT:
            self._early.popitem(last=False)
        if known is None or pair.shown or pair.leads or abs(known[1] - early.time_ns) > APART_NS:
            return
        if _may_be(way, known[0]):
            self._show(early, way, pair, known[0])

    def _show(self, early: TellingSegment, way: Way, pair: _Pair, shown: Way) -> None:
        """Make a connection count as another one; if that one already counts as a third, make it count as the third.

        Nothing changes if the contents of the two connections contradict each other.
        """
        other = self._pairs.get(shown)
        if other is None or other is pair:
            return
        if other.shown:
            shown = (other.shown[shown[0]], other.shown[shown[1]])
            other = self._pairs.get(shown)
        as_shown = dict(zip(way, shown, strict=True))
        if other is not None and other is not pair and not pair.contradicts(other, as_shown):
            other.leads = True
            number = max(pair.since, early.number - AHEAD_COUNT)
            pair.take_for(as_shown, number)
            self.found.append(Translation(number, way, shown, pair.initial))

    def _pair(self, way: Way, number: int) -> _Pair:
        pair = self._pairs.get(way)
        if pair is None:
            pair = self._pairs[way] = self._pairs[way[::-1]] = _Pair(number)
            while len(self._pairs) > 2 * CONNECTION_LIMIT:
                oldest, _ = self._pairs.popitem(last=False)
                self._pairs.pop(oldest[::-1], None)
        return pair


class Between(NamedTuple):
    """The hosts of a connection, and the hosts of the connection that it counts as.

    hosts: the hosts of the first connection.
    shown: the hosts that replace them, in the same order.
    """

    hosts: tuple[str, str]
    shown: tuple[str, str]


class Crossings(dict[Between, tuple[Translation, int]]):
    """Translated connections, grouped by their hosts.

    Each group has its first connection and the number of its connections.
    """

    def add(self, found: Iterable[Translation]) -> None:
        """Add connections."""
        for each in found:
            if each.shown is None:
                continue
            between = _between(each.way, each.shown)
            first, count = self.get(between, (each, 0))
            self[between] = first, count + 1

    def texts(self) -> Iterator[str]:
        """Yield texts to report about the translated connections."""
        for between, (first, count) in self.items():
            yield _text(first, count, between)


def _may_be(way: Way, shown: Way) -> bool:
    """Return whether one of two connections may be a translation of the other.

    Another port of the same client means another connection, because nobody translates an address into itself. But a
    service's port may be translated on its own host.
    """
    if way[0] == way[1] or shown[0] == shown[1] or _are_tenants(way[0].host, shown[0].host):
        return False
    others = [(one, other) for one, other in zip(way, shown, strict=True) if one != other]
    is_redirected = any(MSMQ_PORT in (one.port, other.port) for one, other in others)
    return is_redirected or any(one.host != other.host for one, other in others)


def _are_tenants(one: str, other: str) -> bool:
    """Whether two addresses are in tunnels of different owners, and neither tunnel is inside the other.

    Mirrors do not count as tunnels.
    """
    few, many = sorted((_tenants(one), _tenants(other)), key=len)
    return many[len(many) - len(few) :] != few


def _tenants(host: str) -> list[str]:
    zone = host.partition("%")[2]
    return [each for each in zone.split(".") if each and not each.startswith("erspan")]


_Addresses: TypeAlias = tuple[tuple[str, int], ...]


def _addresses(way: Way) -> _Addresses:
    """Return the addresses and ports of both endpoints without their tunnels."""
    return tuple((end.host.partition("%")[0], end.port) for end in way)


def said_of(found: Iterable[Translation]) -> list[str]:
    """Return findings about translated connections."""
    crossings = Crossings()
    crossings.add(found)
    return list(crossings.texts())


def _between(way: Way, shown: Way) -> Between:
    one, other = sorted((end.host, as_end.host) for end, as_end in zip(way, shown, strict=True))
    return Between((one[0], other[0]), (one[1], other[1]))


def _text(first: Translation, count: int, between: Between) -> str:
    assert first.shown is not None
    (source, destination), (shown_source, shown_destination) = first.way, first.shown
    is_same = _addresses(first.way) == _addresses(first.shown)
    where = "in another tunnel or in none" if is_same else "seen once more behind address translation"
    text = (
        f"the connection {source} > {destination} is {shown_source} > {shown_destination}, {where}, and is judged as "
        "that"
    )
    if count > 1:
        hosts, shown = " and ".join(between.hosts), " and ".join(between.shown)
        are = "is" if count == 2 else "are"
        text += f"; so {are} {count - 1:,} more of {hosts}, which {are} of {shown}"
    return text
