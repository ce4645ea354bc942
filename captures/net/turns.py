"""The beginnings and ends of connections, found by their SYN, FIN and RST, for pictures of links and nodes."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from mqproto.captures.files.frame import Frame
from mqproto.captures.net.tcp import ACK, FIN, RST, SYN, Endpoint, Segment

TURNS_LIMIT: Final = 100_000
"""The largest number of turns that are kept; a capture may begin and end any number of connections."""
FOLLOWED_LIMIT: Final = 16_384
"""The largest number of connections whose turns are remembered at the same time."""


class Turned(Enum):
    """What an end did to a connection; a refused connection never existed."""

    OPENS = "opens"
    ANSWERS = "answers"
    FINISHES = "finishes"
    RESETS = "resets"
    REFUSES = "refuses"


class Turn(NamedTuple):
    """The first time that one end of a connection did something.

    comment: the comment of the turn's frame; our own captures have one if a link was cut.
    """

    time_ns: int
    connection: int
    source: Endpoint
    destination: Endpoint
    what: Turned
    comment: str = ""


class Turns:
    """Collects turns, each only once, even if several capture points saw it or TCP repeated its segment.

    Attributes:
        found: the turns in the order of the capture.
    """

    def __init__(self) -> None:
        self.found: list[Turn] = []
        self._told: dict[int, set[tuple[Endpoint, Turned]]] = {}

    def take(self, frame: Frame, segment: Segment, connection: int) -> None:
        """Take the next segment."""
        if not segment.flags & (SYN | FIN | RST) or len(self.found) >= TURNS_LIMIT:
            return
        told = self._told.pop(connection, None) or set()
        self._told[connection] = told
        if len(self._told) > FOLLOWED_LIMIT:
            self._told.pop(next(iter(self._told)))
        what = _what(segment, told)
        if (segment.source, what) not in told:
            told.add((segment.source, what))
            ends = segment.source, segment.destination
            self.found.append(Turn(frame.time_ns, connection, *ends, what, frame.comment))


def _what(segment: Segment, told: set[tuple[Endpoint, Turned]]) -> Turned:
    if segment.flags & RST:
        # All that is known about the connection is that the other side asked for it.
        asked = told <= {(segment.destination, Turned.OPENS), (segment.source, Turned.REFUSES)}
        return Turned.REFUSES if told and asked else Turned.RESETS
    if segment.flags & FIN:
        return Turned.FINISHES
    return Turned.ANSWERS if segment.flags & ACK else Turned.OPENS
