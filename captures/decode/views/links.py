"""What a ladder shows besides packets: events of connections, and nodes that have no connection left.

Connections may be cut, refused or closed. That is all that a capture shows about a node: it cannot tell a node that was
killed from one that is slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mqproto.captures.decode.names import printable
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.net.turns import Turn, Turned

LONGEST: int = 80
"""The largest number of characters that are shown of a frame's comment."""


class Happening(NamedTuple):
    """Something that happened to a connection; column `start` is the end that did it.

    directed: whether it is known which end did it.
    leaves: whether column `start` has no connection left.
    is_back: whether the event only marks that the column has a connection again.
    """

    time_ns: int
    start: int
    end: int
    text: str = ""
    is_cut: bool = True
    directed: bool = True
    leaves: bool = False
    is_back: bool = False


def happenings(
    turns: Sequence[Turn],
    ends: Mapping[Endpoint, int],
    wanted: Callable[[Turn], bool],
    last_ns: int | None = None,
    known: Mapping[int, tuple[int, int]] | None = None,
) -> list[Happening]:
    """Return everything that happened to connections, in the order of the capture.

    Args:
        ends: the columns of known addresses. If all known addresses of a host have the same column, its other ports
            belong to that column, too.
        wanted: a function that returns whether to draw a turn.
        last_ns: turns after this time are not drawn.
        known: the columns of connections that have packets. If such a connection has no turn for its beginning, it
            existed before the capture.
    """
    columns = _AddressColumns(ends)
    live: defaultdict[int, set[int]] = defaultdict(set)
    begun = {turn.connection for turn in turns if turn.what is Turned.ANSWERS}
    for connection, pair in (known or {}).items():
        for one in pair if connection not in begun else ():
            live[one].add(connection)
    over: set[int] = set()
    found: list[Happening] = []
    for turn in turns:
        start, end = columns.of(turn.source), columns.of(turn.destination)
        is_drawn = wanted(turn) and (last_ns is None or turn.time_ns <= last_ns)
        if turn.what in (Turned.OPENS, Turned.ANSWERS):
            if turn.what is Turned.ANSWERS:
                for column in (start, end):
                    if column is not None:
                        live[column].add(turn.connection)
            # Who asks again, and is refused, has no connection yet.
            if start is not None and is_drawn and turn.what is Turned.ANSWERS:
                found += [
                    Happening(turn.time_ns, each, each, is_back=True)
                    for each in (start, end)
                    if each is not None
                ]
            continue
        if turn.connection in over and turn.what is not Turned.REFUSES:
            continue
        over.add(turn.connection)
        for column in (start, end):
            if column is not None:
                live[column].discard(turn.connection)
        if not is_drawn or start is None or end is None or start == end:
            continue
        said = printable(turn.comment)[:LONGEST]
        by_itself = not said and not live[start]
        if turn.what is Turned.FINISHES:
            found.append(Happening(turn.time_ns, start, end, "closed", is_cut=False))
        elif turn.what is Turned.REFUSES:
            found.append(Happening(turn.time_ns, start, end, "refused", leaves=by_itself))
        else:
            found.append(
                Happening(turn.time_ns, start, end, said or "reset", directed=not said, leaves=by_itself)
            )
    return found


class _AddressColumns:
    """Finds the column of an address."""

    def __init__(self, ends: Mapping[Endpoint, int]) -> None:
        self._ends = ends
        self._hosts: defaultdict[str, set[int]] = defaultdict(set)
        for end, column in ends.items():
            self._hosts[end.host].add(column)

    def of(self, end: Endpoint) -> int | None:
        """Return the column of an address; None if it is unknown."""
        if end in self._ends:
            return self._ends[end]
        some = self._hosts.get(end.host, set())
        return next(iter(some)) if len(some) == 1 else None
