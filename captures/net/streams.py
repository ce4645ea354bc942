"""TCP reassembly: from segments to the bytes that each side sent.  [RFC 9293] 3.4, 3.10.7.4

A `Connection` has a `Direction` for each side at each interface that saw it. `Reassembler` takes a capture of any size,
and keeps a bounded part of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from captures.files.frame import Frame, Interface
from captures.net.direction import Arrival, Direction, Held, Stream
from captures.net.tcp import ACK, SYN, Endpoint, Segment

MSMQ_PORT: Final = 1801

HELD_LIMIT_BYTES: Final = 64 << 20
"""What may wait or stay in all connections together; beyond it, the one that was silent longest gives its part."""
CONNECTION_LIMIT: Final = 16_384
"""How many connections are followed at a time; then the one that was silent longest is given up."""


Ends = tuple[Endpoint, Endpoint]


def ends_of(one: Endpoint, other: Endpoint) -> Ends:
    """Two ends by which a connection is known whoever sends: the lower one first."""
    return (one, other) if one <= other else (other, one)


class Reassembler:
    """Segments in, as they were captured; bytes in order out.

    A connection is known by its two ends, and each interface that saw it has streams of its own: what was
    captured at two places is counted at each.

    Args:
        connection_limit: how many connections are followed at a time.
    """

    def __init__(self, connection_limit: int = CONNECTION_LIMIT) -> None:
        self.connection_count = 0
        self.given_up_count = 0
        self._limit = connection_limit
        self._connections: OrderedDict[Ends, Connection] = OrderedDict()  # the lower end first
        self._held = Held()

    def feed(self, frame: Frame, segment: Segment) -> list[Arrival]:
        """What one segment lets be read, and the streams that it ends."""
        arrivals: list[Arrival] = []
        ends = ends_of(segment.source, segment.destination)
        connection = self._connections.get(ends)
        if connection is None or connection.is_over_for(frame.interface.number, segment):
            if connection is not None:
                arrivals += connection.settle()
            elif len(self._connections) >= self._limit:
                # More of this one would be taken for a connection of its own.
                self.given_up_count += 1
                _, oldest = self._connections.popitem(last=False)
                arrivals += oldest.settle()
            connection = Connection(self.connection_count, segment, self._held)
            self._connections[ends] = connection
            self.connection_count += 1
        self._connections.move_to_end(ends)

        arrivals += connection.feed(frame, segment)
        while self._held.total_bytes > HELD_LIMIT_BYTES:
            oldest_ends, oldest = next(iter(self._connections.items()))
            arrivals += oldest.let_go()
            self._connections.move_to_end(oldest_ends)
        return arrivals

    def finish(self) -> list[Arrival]:
        """The capture is over: what waits for earlier bytes waits no longer."""
        arrivals = [arrival for connection in self._connections.values() for arrival in connection.settle()]
        self._connections.clear()
        return arrivals


class Connection:
    """Two ends, and what each interface saw of what they sent.

    Args:
        number: what its streams have as `connection`.
        first: the segment that it begins with. Only the answer to a SYN says by itself that its sender did not open
            the connection; else the port does.
        held: what all connections that are read together hold.
    """

    def __init__(self, number: int, first: Segment, held: Held | None = None) -> None:
        answers = first.flags & SYN and first.flags & ACK
        serves = not first.flags & SYN and first.source.port == MSMQ_PORT != first.destination.port
        ends = (first.source, first.destination)
        self.number = number
        self.ends = ends[::-1] if answers or serves else ends
        self._held = held or Held()
        self._directions: dict[tuple[int, Endpoint], Direction] = {}

    def is_over_for(self, interface: int, segment: Segment) -> bool:
        """Whether a segment begins another connection between the same ends."""
        direction = self._directions.get((interface, segment.source))
        if direction is None:
            # At another interface it begins once more, with the number that it had at the first.
            others = [one for (_, source), one in self._directions.items() if source == segment.source]
            return any(one.begins_anew(segment) for one in others)
        return direction.begins_anew(segment)

    def feed(self, frame: Frame, segment: Segment) -> list[Arrival]:
        """What one segment lets be read."""
        direction, answer = self.directions(frame.interface, segment.source, segment.destination)
        direction.take(segment, frame)
        arrivals = direction.arrivals()
        if segment.flags & ACK:
            answer.acknowledged(segment.acknowledgment_number, frame.time_ns)
            arrivals += answer.arrivals()
        return arrivals

    def directions(
        self, interface: Interface, source: Endpoint, destination: Endpoint
    ) -> tuple[Direction, Direction]:
        """The direction from `source`, and the other one. Both begin with the first segment of either."""
        number = interface.number
        if (number, source) not in self._directions:
            for one, other in (self.ends, self.ends[::-1]):
                stream = Stream(self.number, one, other, interface)
                self._directions[number, one] = Direction(stream, self._held)
        return self._directions[number, source], self._directions[number, destination]

    def direction(self, interface: int, source: Endpoint) -> Direction | None:
        """The direction from `source`, if an interface has seen anything of either."""
        return self._directions.get((interface, source))

    def settle(self) -> list[Arrival]:
        """It is over: what waits for earlier bytes waits no longer, and its streams end."""
        return [arrival for direction in self._directions.values() for arrival in direction.settle()]

    def let_go(self) -> list[Arrival]:
        """Hold nothing more."""
        return [arrival for direction in self._directions.values() for arrival in direction.let_go()]

    def is_continued_by(self, later: Connection) -> bool:
        """Whether `later`, which knew nothing of this one, has read what this one would have read in its place.

        That is so where both wait for nothing, each side goes on where it stopped, and nothing that the earlier one
        alone knows was asked for.
        """
        return all(
            key in self._directions and self._directions[key].is_continued_by(direction)
            for key, direction in later._directions.items()
        )

    def go_on_as(self, later: Connection) -> Iterator[tuple[Stream, Stream]]:
        """Stand where `later` does, which continues this one. Its streams are yielded, each behind our own."""
        for key, direction in later._directions.items():
            self._directions[key].go_on_as(direction)
            yield self._directions[key].stream, direction.stream

    @property
    def streams(self) -> list[Stream]:
        """Two for each interface that saw it."""
        return [direction.stream for direction in self._directions.values()]

    @property
    def waits(self) -> bool:
        """Whether bytes wait for those before them."""
        return any(direction.waits for direction in self._directions.values())

    def forget(self) -> None:
        """Keep nothing to compare repetitions with."""
        for direction in self._directions.values():
            direction.forget()

    def take_reached_back(self) -> bool:
        """Whether, since the last call, bytes were repeated of which some may have been read before our time."""
        reached_back = any(direction.reached_back for direction in self._directions.values())
        for direction in self._directions.values():
            direction.reached_back = False
        return reached_back
