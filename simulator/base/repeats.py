"""Counts repeated log lines, and reports the count at growing intervals.

While a neighbour is down, we call it five times a second, and each call fails in the same way. A peer that can make us
write one line can make us write many lines that differ a little. Beyond a limit, all these lines are counted as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

FIRST_S: Final = 60.0
"""How many seconds after the first line the count of repeats may first be reported.

Each later interval is twice as long as the one before, but at most LONGEST_S.
"""
LONGEST_S: Final = 3_600.0
QUIET_S: Final = 60.0
"""How many seconds without a repeat end a series. After that, such a line is again written at once."""
LIMIT: Final = 1_000
"""The maximum number of kinds of lines that are watched."""
KINDS_OF_PEER: Final = 16
KINDS: Final = 128
"""How many different lines with one name are counted separately: per peer (above), and in total.

Further lines share one count. Lines about known peers count towards the total, but only the limit per peer applies to
them. Lines without a peer are not limited.
"""
PASSING: Final = "session"
"""The name of the fact in a log line that is different each time."""
SECTION: Final = "section"
"""The name of a fact that is the same in all lines that share a count: a section of the specification.

Even beyond the limits, lines are counted separately by section, because there are few sections.
"""

Line = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class RepeatedLine:
    """A line that may occur more than once.

    peer: the peer that all these lines are about; empty if there is none, or if there are several.
    is_mixed: whether the lines differ in their facts.
    count: how many times the line has occurred since the last report.
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
        """Return the line, with its count since the last report and the number of seconds that this covers."""
        mixed = {"facts": "those of the last"} if self.is_mixed else {}
        times = {"repeated": self.count, "for_s": round(self.last_s - self.told_s)}
        return self.name, {**self.facts, **mixed, **times}

    def told(self, now_s: float) -> None:
        """Start counting again after a report."""
        self.told_s, self.count = now_s, 0


Key = tuple[str, frozenset[tuple[str, Any]]]


class Repeats:
    """Turns lines that occur into lines to write. A line about a message is always written.

    Args:
        is_known: returns whether lines about a host are always counted separately, no matter how many there are about
            other hosts.
    """

    def __init__(self, is_known: Callable[[str], bool] = lambda host: False) -> None:
        self._is_known = is_known
        self._series: dict[Key, RepeatedLine] = {}
        self._kinds: Counter[tuple[str, str]] = Counter()
        """The number of series for each name and peer. An empty peer stands for all peers together."""
        self._looked_s = 0.0

    def lines(self, name: str, facts: Mapping[str, Any], now_s: float) -> Iterator[Line]:
        """Yield the lines to write when this line occurs."""
        if "message" in facts:
            yield name, facts
            return
        yield from self._over(now_s)
        # The host that a line is about, with or without a port; otherwise, the source queue manager.
        peer = str(facts.get("peer") or facts.get("source", ""))
        key, whose, is_mixed = self._key(name, peer, facts)
        series = self._series.get(key)
        if series is None:
            yield from self._of_peer(peer, now_s)
            yield name, facts
            if len(self._series) >= LIMIT:
                yield from self._end(next(iter(self._series)))
            series = self._series[key] = RepeatedLine(name, facts, now_s, now_s, whose, is_mixed)
            self._kinds.update({(name, series.peer), (name, "")})
            return
        series.facts, series.last_s = facts, now_s
        series.count += 1
        if now_s - series.told_s >= series.pause_s:
            yield series.line()
            series.told(now_s)
            series.pause_s = min(2 * series.pause_s, LONGEST_S)

    def _key(self, name: str, peer: str, facts: Mapping[str, Any]) -> tuple[Key, str, bool]:
        """Return the key by which a line is counted, the peer of all lines with that key, and whether those lines
        differ.
        """
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
        """Yield the counts that have not been reported, because there will be no more lines."""
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
        """Yield the unreported counts about a peer, before anything new about this peer is written."""
        if not peer:
            return
        for series in self._series.values():
            other = series.peer
            # Some lines have the port, others do not.
            if series.count and other and (peer.startswith(other) or other.startswith(peer)):
                yield series.line()
                series.told(now_s)

    def _end(self, key: Key) -> Iterator[Line]:
        series = self._series.pop(key)
        for kind in {(series.name, series.peer), (series.name, "")}:
            self._kinds[kind] -= 1
        if series.count:
            yield series.line()
