"""Caches for keys and certificates, which are expensive to make and to open.

[MS-MQQB] 3.1.1.3.3, 3.1.1.3.4, 3.1.6.10 to 3.1.6.13

All of the specification's caches follow the same rules: half of the entries are dropped when the cache is full, and a
timer removes entries that are too old. Ages are measured on the clock that never jumps, not by the time of day.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from mqproto.security.algorithms import Provider, SessionKey
from mqproto.wire.guid import Guid

EXTRA_MS: Final = 60_000
"""The time, in milliseconds, from the expiry of the oldest entry to that of the timer.  3.1.6.10"""

N = TypeVar("N")
V = TypeVar("V")


class ReceiveName(NamedTuple):
    """Identifies a session key that came with a message.  3.1.5.8.3"""

    remote: Guid
    provider: str
    algorithm: int
    encrypted: bytes


class SendName(NamedTuple):
    """Identifies a session key that we use for sending.  3.1.7.1.5"""

    remote: Guid
    provider: str
    algorithm: int


@dataclass(frozen=True, slots=True)
class CachedSymmetricKey:
    """A session key, and the SIMPLEBLOB that contains it.  3.1.1.3.3"""

    provider: Provider
    encrypted: bytes
    key: SessionKey


class AgeingCache(Generic[N, V]):
    """A cache of values by name, the oldest first.

    Args:
        size: the maximum number of entries.
        lifetime_ms: how long an entry stays.
    """

    def __init__(self, size: int, lifetime_ms: int) -> None:
        self._size = size
        self._lifetime_ms = lifetime_ms
        self._entries: dict[N, tuple[int, V]] = {}
        self.deadline_ms: int | None = None
        """When to call `clean`; None while the cleanup timer does not run."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: N) -> V | None:
        """Return the value for this name, or None.

        As specified, an expired value is still found until the timer is due.
        """
        found = self._entries.get(name)
        return None if found is None else found[1]

    def has(self, name: N) -> bool:
        """Whether the name has a value."""
        return name in self._entries

    def add(self, name: N, value: V, now_ms: int) -> None:
        """Remember a value. If there is no room, drop the older half of the entries.  3.1.5.8.3, 3.1.7.1.5"""
        self._entries.pop(name, None)
        if len(self._entries) >= self._size:
            for oldest in [*islice(self._entries, max(self._size // 2, 1))]:
                del self._entries[oldest]
        self._entries[name] = now_ms, value
        if self.deadline_ms is None:
            self.deadline_ms = now_ms + self._lifetime_ms

    def clean(self, now_ms: int) -> None:
        """Drop expired entries, because the cleanup timer is due.  3.1.6.10 to 3.1.6.13"""
        while self._entries:
            name, (cached_ms, _) = next(iter(self._entries.items()))
            if cached_ms >= now_ms - self._lifetime_ms:
                self.deadline_ms = cached_ms + self._lifetime_ms + EXTRA_MS
                return
            del self._entries[name]
        self.deadline_ms = None

    def forget(self, remote: Guid) -> None:
        """Drop the entries of a queue manager whose keys have changed."""
        for name in [name for name in self._entries if getattr(name, "remote", None) == remote]:
            del self._entries[name]
