"""The same line again and again: it is counted, and told at growing intervals with how often it came.

A neighbour that is down is called five times a second, and each call fails in the same way. Whoever can have us write a
line can have us write many that differ a little: beyond some of them all are counted as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

FIRST_S: Final = 60.0
"""How long after the first line the next one comes that says how often it came meanwhile; then twice as long."""
LONGEST_S: Final = 3_600.0
QUIET_S: Final = 60.0
"""What has not come for so long is over: it is told at once if it comes again."""
LIMIT: Final = 1_000
"""How many kinds of lines are watched."""
KINDS_OF_PEER: Final = 16
KINDS: Final = 128
"""How many lines of one name differ, of one peer and of all: of one more it is only counted how often such came. Those
of known peers have places beyond that."""
PASSING: Final = "session"
"""A fact that is another one each time."""
SECTION: Final = "section"
"""A fact that lines which are counted as one have in common: a rule of the specification, of which there are few."""

Line = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class Series:
    """A line that came more than once, or may.

    peer: whom all of these lines are about; nothing if it is about no peer, or about several.
    is_mixed: whether the lines differ in their facts.
    count: how often it came since it was told.
    """

    name: str
    facts: Mapping[str, Any]
    told_s: float
    last_s: float
    peer: str
    is_mixed: bool = False
    pause_s: float = FIRST_S
    count: int = 0

    def line(self) -> Line:
        """How often it came since it was told, and over how many seconds."""
        mixed = {"facts": "those of the last"} if self.is_mixed else {}
        times = {"repeated": self.count, "for_s": round(self.last_s - self.told_s)}
        return self.name, {**self.facts, **mixed, **times}

    def told(self, now_s: float) -> None:
        """Count from the beginning."""
        self.told_s, self.count = now_s, 0


Key = tuple[str, frozenset[tuple[str, Any]]]


class Repeats:
    """Turns lines that come into lines to write. A line about a message is always written.

    Args:
        is_known: whether a host is one whose lines are not to be lost among those of any others.
    """

    def __init__(self, is_known: Callable[[str], bool] = lambda host: False) -> None:
        self._is_known = is_known
        self._series: dict[Key, Series] = {}
        self._kinds: Counter[tuple[str, str]] = Counter()
        """How many series there are, by name and peer, and by name with an empty peer."""
        self._looked_s = 0.0

    def lines(self, name: str, facts: Mapping[str, Any], now_s: float) -> Iterator[Line]:
        """What to write now that this line comes."""
        if "message" in facts:
            yield name, facts
            return
        yield from self._over(now_s)
        peer = _peer(facts)
        key, whose, is_mixed = self._key(name, peer, facts)
        series = self._series.get(key)
        if series is None:
            yield from self._of_peer(peer, now_s)
            yield name, facts
            if len(self._series) >= LIMIT:
                yield from self._end(next(iter(self._series)))
            series = self._series[key] = Series(name, facts, now_s, now_s, whose, is_mixed)
            self._kinds.update({(name, series.peer), (name, "")})
            return
        series.facts, series.last_s = facts, now_s
        series.count += 1
        if now_s - series.told_s >= series.pause_s:
            yield series.line()
            series.told(now_s)
            series.pause_s = min(2 * series.pause_s, LONGEST_S)

    def _key(self, name: str, peer: str, facts: Mapping[str, Any]) -> tuple[Key, str, bool]:
        """Under what a line is counted, whom all such are about, and whether they have other facts."""
        key = name, frozenset((fact, value) for fact, value in facts.items() if fact != PASSING)
        if key in self._series or not peer:
            return key, peer, False
        section = {(SECTION, facts[SECTION])} if SECTION in facts else set()
        if self._kinds[name, ""] >= KINDS and not self._is_known(peer):
            return (name, frozenset(section)), "", True
        if self._kinds[name, peer] >= KINDS_OF_PEER:
            return (name, frozenset({("peer", peer), *section})), peer, True
        return key, peer, False

    def rest(self) -> Iterator[Line]:
        """What was counted and not told, at the end."""
        for key in list(self._series):
            yield from self._end(key)

    def _over(self, now_s: float) -> Iterator[Line]:
        # A look every second costs little, and a line that comes after the quiet is told at once.
        if now_s - self._looked_s < 1:
            return
        self._looked_s = now_s
        for key in [key for key, series in self._series.items() if now_s - series.last_s > QUIET_S]:
            yield from self._end(key)

    def _of_peer(self, peer: str, now_s: float) -> Iterator[Line]:
        """Something new about a peer: what came before it is told before it."""
        if not peer:
            return
        for series in self._series.values():
            other = series.peer
            # One line has the port, another has not.
            if series.count and other and (peer.startswith(other) or other.startswith(peer)):
                yield series.line()
                series.told(now_s)

    def _end(self, key: Key) -> Iterator[Line]:
        series = self._series.pop(key)
        for kind in {(series.name, series.peer), (series.name, "")}:
            self._kinds[kind] -= 1
        if series.count:
            yield series.line()


def _peer(facts: Mapping[str, Any]) -> str:
    """Whom a line is about: a host, or a host and a port; else the queue manager that sent something, or nothing."""
    return str(facts.get("peer") or facts.get("source", ""))
