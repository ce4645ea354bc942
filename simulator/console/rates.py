"""The rates per second at which counts grew over the last few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

SPAN_S: Final = 4.0
"""The number of seconds over which each rate is measured, once a count has been known for that long."""


class Rates:
    """Counts, keyed by name. If a count has decreased, its process was restarted."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, deque[tuple[float, int]]] = {}
        self._named: set[Hashable] = set()

    def of(self, name: Hashable, count: int, now_s: float) -> float:
        """Return how fast a count has recently grown, per second; 0 for a new count."""
        seen = self._seen.setdefault(name, deque())
        self._named.add(name)
        if seen and (count < seen[-1][1] or now_s < seen[-1][0]):
            seen.clear()
        seen.append((now_s, count))
        while len(seen) > 2 and seen[1][0] <= now_s - SPAN_S:
            seen.popleft()
        (from_s, before) = seen[0]
        return (count - before) / (now_s - from_s) if now_s > from_s else 0.0

    def forget_others(self) -> None:
        """Forget the counts that have not been used since the last call of this method."""
        for name in self._seen.keys() - self._named:
            del self._seen[name]
        self._named.clear()
