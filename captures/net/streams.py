"""TCP reassembly, which turns segments into the bytes that each side sent, in causal order. [RFC 9293] 3.4, 3.10.7.4

A `Connection` has a `View` for each interface that saw it, and a view has a `Sender` for each side. `Reassembler` reads
a capture of any size, and keeps only a limited part of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from mqproto.captures.files.frame import Frame, Interface
from mqproto.captures.net.causality import FAR, View
from mqproto.captures.net.direction import EARLY_LIMIT_BYTES, OPENING_LIMIT_BYTES, Arrival, Stream
from mqproto.captures.net.recent import Caught, Held, signed
from mqproto.captures.net.sender import Sender
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Endpoint, Segment

MSMQ_PORT: Final = 1801
HELD_LIMIT_BYTES: Final = 64 << 20
"""The largest number of bytes that all connections together may hold.

Beyond this limit, the connection that has been silent for the longest time gives up its bytes.
"""
CONNECTION_LIMIT: Final = 16_384
"""The largest number of connections that are followed at a time.

Beyond this limit, the connection that has been silent for the longest time is given up.
"""


OPEN_LIMIT: Final = 4
"""The largest number of connections between the same two ends that are followed at a time."""
SILENT_LIMIT_COUNT: Final = 16_384
"""How many segments of others between its ends a connection may miss before it counts as over."""
Ends = tuple[Endpoint, Endpoint]


def ends_of(one: Endpoint, other: Endpoint) -> Ends:
    """Return the two ends that identify a connection, whoever sends: the lower one first."""
    return (one, other) if one <= other else (other, one)


def beginning_in(caught: Sequence[Caught]) -> int:
    """Return the index of the segment with which the sender of the first segment begins.

    This is 0, or the index of a later segment that the first one overtook. Such a later segment is the side's SYN, a
    bare acknowledgment, or the bytes right before those of the first segment, but no FIN. Other later segments may be
    retransmissions.
    """
    frame, first = caught[0]
    earlier: list[tuple[int, int, Segment]] = []
    for place, (other, segment) in enumerate(caught):
        if (
            segment[:2] != first[:2]
            or other.interface.number != frame.interface.number
            or segment.flags & FIN
        ):
            continue
        distance = signed(first.sequence_number - segment.sequence_number)
        if 0 < distance <= (OPENING_LIMIT_BYTES if segment.flags & SYN else EARLY_LIMIT_BYTES):
            earlier.append((distance, place, segment))
    found = reached = 0
    for distance, place, segment in sorted(earlier):
        size_bytes = len(segment.payload) + segment.cut_bytes
        if segment.flags & SYN:
            return place
        # A segment of one byte, or an empty one a byte before what is due, may be a keep-alive.
        is_said = not size_bytes and distance > 1 and segment.flags & (ACK | RST) == ACK
        if is_said or (size_bytes > 1 and distance - size_bytes <= reached):
            found, reached = place, distance
    return found


class Reassembler:
    """Takes segments as they were captured; returns bytes in order.

    A connection is identified by its two ends. If several are open between them, the numbers of a segment tell to which
    one it belongs: two networks may use the same addresses, and a stray SYN ends nothing. Each interface that saw a
    connection has separate streams: traffic that was captured at two places is counted at each of them.

    Args:
        connection_limit: how many connections are followed at a time.
        apart: as in Connection.
    """

    def __init__(self, connection_limit: int = CONNECTION_LIMIT, *, apart: bool = False) -> None:
        self._apart = apart
        self.connection_count = 0
        self.given_up_count = 0
        self._limit = connection_limit
        self._connections: OrderedDict[Ends, list[Connection]] = OrderedDict()  # the lower end first
        self._held = Held()

    def feed(self, frame: Frame, segment: Segment) -> list[Arrival]:
        """Take one segment; return the chunks that can be read now, and the ends of streams that the segment ends."""
        arrivals: list[Arrival] = []
        ends = ends_of(segment.source, segment.destination)
        known = self._connections.get(ends, [])
        connection, over = choose(known, frame.interface.number, segment)
        arrivals += settled(over)
        if connection is None:
            if ends not in self._connections and len(self._connections) >= self._limit:
                # Later segments of them will count as a new connection.
                _, oldest = self._connections.popitem(last=False)
                self.given_up_count += len(oldest)
                arrivals += settled(oldest)
            connection = Connection(self.connection_count, segment, self._held, apart=self._apart)
            self._connections[ends] = known
            self.connection_count += 1
        self._connections.move_to_end(ends)
        if connection.is_shown_by(segment):
            arrivals += (arrival for other in known for arrival in other.let_go())
        known.append(connection)

        arrivals += connection.feed(frame, segment)
        while self._held.total_bytes > HELD_LIMIT_BYTES:
            oldest_ends, oldest = next(iter(self._connections.items()))
            arrivals += (arrival for each in oldest for arrival in each.let_go())
            self._connections.move_to_end(oldest_ends)
        return arrivals

    def contradict(self, damaged: Frame, whole: Frame, segment: Segment) -> None:
        """Record that another frame, `whole`, contradicts a segment that was fed, and whose bytes are not read."""
        connection = self._connections[ends_of(segment.source, segment.destination)][-1]
        connection.contradict(damaged, whole, segment.source)

    def begins(self, frame: Frame, segment: Segment) -> bool:
        """Whether a segment is the first of its side but has no SYN, and so may have overtaken others."""
        if segment.flags & SYN:
            return False
        known = self._connections.get(ends_of(segment.source, segment.destination), [])
        return all(each.is_new_to(frame.interface.number, segment) for each in known)

    def number_of(self, segment: Segment) -> int:
        """Return the number of the connection that took a segment, if it was the last one fed."""
        return self._connections[ends_of(segment.source, segment.destination)][-1].number

    def finish(self) -> list[Arrival]:
        """End the capture: nothing waits for earlier bytes any longer."""
        arrivals = [arrival for known in self._connections.values() for arrival in settled(known)]
        self._connections.clear()
        return arrivals


def choose(
    known: list[Connection], interface: int, segment: Segment
) -> tuple[Connection | None, list[Connection]]:
    """Remove from the open connections between two ends the one that takes a segment, and those that count as over.

    Args:
        known: the open connections; the one that took the latest segment is the last one.

    Returns:
        The connection that takes the segment, which is None if the segment begins another; and those that are over.
    """
    nearest = known[0] if known else None
    if len(known) > 1:
        nearest = min(reversed(known), key=lambda each: each.distance_to(interface, segment))
    if nearest is not None and nearest.is_over_for(interface, segment):
        nearest = None
    over: list[Connection] = []
    others, known[:] = [each for each in known if each is not nearest], []
    for each in others:
        each.silent_count += 1
        is_one_too_many = nearest is None and (each.is_over or len(others) - len(over) >= OPEN_LIMIT)
        is_over = is_one_too_many or each.silent_count > SILENT_LIMIT_COUNT
        (over if is_over else known).append(each)
    return nearest, over


def settled(known: Iterable[Connection]) -> list[Arrival]:
    """End connections; return what waited in them, and the ends of their streams."""
    return [arrival for each in known for arrival in each.settle()]


class Connection:
    """Two ends, and their bytes as each interface saw them.

    Args:
        number: the number that the connection's streams have as `connection`.
        first: the segment with which the connection begins. A SYN, or the answer to a SYN, shows who opened the
            connection.
        held: counts the bytes held by all connections that are read together.
        apart: whether two interfaces may have captured one direction each.

    Attributes:
        silent_count: how many segments of other connections between its ends came after its latest one.
        is_shown: whether it has had more than SYNs that nobody answers.
        waiting: the segments that wait while only a part of a capture is read, beginning with the first one that may
            have overtaken others.
        passed: those of their frames that are passed over, as in mqproto.captures.net.recent.DamagedCopies.
    """

    def __init__(
        self,
        number: int,
        first: Segment,
        held: Held | None = None,
        *,
        apart: bool = False,
    ) -> None:
        answers = first.flags & SYN and first.flags & ACK
        ends = (first.source, first.destination)
        self.number = number
        self.ends = ends[::-1] if answers else ends
        self._is_opened = bool(first.flags & SYN)
        self._held = held or Held()
        self.apart = apart
        self._views: dict[int, View] = {}
        self.silent_count = 0
        self.is_shown = False
        self.waiting: list[Caught] = []
        self.passed: dict[int, Frame | None] = {}

    def is_new_to(self, interface: int, segment: Segment) -> bool:
        """Whether an interface has seen nothing from the sender of a segment."""
        view = self._views.get(interface)
        return view is None or view.pair(segment.source)[0].due is None

    def is_over_for(self, interface: int, segment: Segment) -> bool:
        """Whether a segment begins another connection between the same ends."""
        # At another interface it begins again, with the same number as at the first.
        view = self._views.get(interface)
        return any(each.is_over_for(segment) for each in ([view] if view else self._views.values()))

    def is_shown_by(self, segment: Segment) -> bool:
        """Whether a segment is the first to show more than a SYN: nothing waits in the other connections any longer."""
        if self.is_shown or segment.flags & (SYN | ACK) == SYN:
            return False
        self.is_shown = True
        return True

    def distance_to(self, interface: int, segment: Segment) -> int:
        """Return how far a segment's numbers are from those that are due here, as in View."""
        view = self._views.get(interface)
        return min(
            (each.distance_to(segment) for each in ([view] if view else self._views.values())), default=FAR
        )

    def feed(self, frame: Frame, segment: Segment) -> list[Arrival]:
        """Take one segment; return the chunks that can be read now."""
        self.silent_count = 0
        return self.view(frame.interface).feed(segment, frame)

    def contradict(self, damaged: Frame, whole: Frame, source: Endpoint) -> None:
        """Record that another frame, `whole`, contradicts a frame from this source whose bytes are not read."""
        stream = self.view(damaged.interface).pair(source)[0].stream
        stream.contradict(*sorted((damaged, whole), key=lambda each: each.number), is_read=False)

    def view(self, interface: Interface) -> View:
        """Return one interface's view of the connection; a new one if the interface has not seen anything yet."""
        number = interface.number
        if number not in self._views:
            one, other = (
                Sender(
                    Stream(self.number, *ends, interface, opened=opened if self._is_opened else None),
                    self._held,
                )
                for ends, opened in ((self.ends, True), (self.ends[::-1], False))
            )
            self._views[number] = View(one, other, apart=self.apart)
        return self._views[number]

    def known_view(self, interface: int) -> View | None:
        """Return the view of an interface; None if the interface has not seen anything."""
        return self._views.get(interface)

    def settle(self) -> list[Arrival]:
        """End the connection: nothing waits any longer, and its streams end."""
        return [arrival for view in self._views.values() for arrival in view.settle()]

    def let_go(self) -> list[Arrival]:
        """Stop waiting for missing bytes; return everything that was held."""
        return [arrival for view in self._views.values() for arrival in view.let_go()]

    def forget(self, before: int) -> None:
        """Compare repetitions only with frames from this number on."""
        for sender in self._senders:
            sender.forget(before)

    @property
    def streams(self) -> list[Stream]:
        """The streams, two for each interface that saw the connection."""
        return [sender.stream for sender in self._senders]

    @property
    def is_over(self) -> bool:
        """Whether an interface has seen the end."""
        return any(view.is_over for view in self._views.values())

    @property
    def waits(self) -> bool:
        """Whether bytes wait for other bytes."""
        return bool(self.waiting) or any(view.waits for view in self._views.values())

    @property
    def _senders(self) -> list[Sender]:
        return [sender for view in self._views.values() for sender in view.senders]
