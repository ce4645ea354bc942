"""Which message a trigger attempts next, and when it leases another: in order within each group, groups side by side.

A queue hands out its first message that nobody has leased. A message that was rolled back is the first again, so what
was behind it waits for it; if the queue then hands out another one, it is gone. What is decided and on its way out of
the queue is waited for no more: the next of its group is leased by then. No sockets, no clock: time is an
argument, and the owner of a schedule says what happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from math import inf
from typing import Final, Generic, TypeVar

from mqproto.simulator.edges.options import LEASE_LIMIT

LEASED_LIMIT_BYTES: Final = 64 * 2**20
"""How many bytes the leased messages may have before no further one is leased."""

Message = TypeVar("Message", bound=Hashable)


class _State(Enum):
    HELD = auto()
    """Leased; it waits for its turn, or until it is due."""
    RUNNING = auto()
    """Leased, and being attempted."""
    LEAVING = auto()
    """Leased, and decided: it leaves the queue, and whatever comes of that it is not attempted again."""
    AWAY = auto()
    """Back in the queue, where it stays the first of its group."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[Message]):
    message: Message
    group: Hashable
    place: int
    priority: int
    size_bytes: int
    state: _State = _State.HELD
    due_s: float = -inf
    expected: bool = False
    """It was in the queue when the lease was asked for that is outstanding."""
    probes: int = 0
    """How often it was attempted while the queue is held."""


class Schedule(Generic[Message]):
    """The messages that a trigger has leased, or has given back and will meet again.

    Args:
        parallel: how many are attempted at once, each of another group.
        leases: how many are leased at once: those that are attempted or leave, and those that wait behind one of their
            group, or for a place among those that are attempted.
        ahead: how many of the latter, of groups of which none is attempted.
        in_order: whether all are of one group. Then nothing is leased while a message that was rolled back is not yet
            due.
    """

    def __init__(
        self, parallel: int, leases: int = LEASE_LIMIT, *, ahead: int = 0, in_order: bool = False
    ) -> None:
        assert 1 <= parallel <= leases <= LEASE_LIMIT
        self._parallel = parallel
        self._limit = leases
        self._ahead = ahead
        self._in_order = in_order or leases == 1
        self._groups: dict[Hashable, list[_Entry[Message]]] = {}
        self._entries: dict[Message, _Entry[Message]] = {}
        self._places = count()
        self._asking = False
        self._held_until_s: float | None = None

    # What is to be done

    def wants_lease(self, now_s: float) -> bool:
        """Whether another message is to be asked for: somebody could attempt it, if it is of a group that is free."""
        leased = [entry for entry in self._entries.values() if entry.state is not _State.AWAY]
        running = sum(entry.state is _State.RUNNING for entry in leased)
        if self._held_until_s is not None:
            return self._held_until_s <= now_s and not self._asking and self._wants_probe(leased)
        return (
            not self._asking
            and len(leased) < self._limit
            and self._is_short(running, now_s)
            and sum(entry.size_bytes for entry in leased) < LEASED_LIMIT_BYTES
            and not (self._in_order and any(entry.due_s > now_s for entry in self._entries.values()))
        )

    def _is_short(self, running: int, now_s: float) -> bool:
        """Whether there are fewer that can be attempted than there are to be. In order, the next ones always can."""
        return self._in_order or running + len(self._ready(now_s)) < self._parallel + self._ahead

    @property
    def running(self) -> int:
        """How many are attempted now."""
        return sum(entry.state is _State.RUNNING for entry in self._entries.values())

    def start(self, now_s: float) -> list[Message]:
        """The messages whose turn it is; they are attempted from now on."""
        running = self.running
        if self._held_until_s is None:
            chosen = self._ready(now_s)[: self._parallel - running]
        else:
            probe = self._probe()
            is_due = self._held_until_s <= now_s and not running
            chosen = [probe] if is_due and probe and probe.state is _State.HELD else []
        for entry in chosen:
            entry.state = _State.RUNNING
            entry.probes += self._held_until_s is not None
        return [entry.message for entry in chosen]

    def next_s(self, now_s: float) -> float:
        """When there is something to do although nothing happens; infinity for never."""
        if self._held_until_s is not None:
            return self._held_until_s if self._held_until_s > now_s else inf
        return min((entry.due_s for entry in self._entries.values() if entry.due_s > now_s), default=inf)

    def _ready(self, now_s: float) -> list[_Entry[Message]]:
        """The first of each group if it is leased, waits and is due; in the order of the queue."""
        ready = [entry for entry in self._firsts() if entry.state is _State.HELD and entry.due_s <= now_s]
        return sorted(ready, key=lambda entry: entry.place)

    def _firsts(self) -> Iterator[_Entry[Message]]:
        """Of each group the one that is attempted, or else the first that does not leave."""
        for line in self._groups.values():
            staying = [entry for entry in line if entry.state is not _State.LEAVING]
            running = (entry for entry in staying if entry.state is _State.RUNNING)
            if staying:
                yield next(running, staying[0])

    def _probe(self) -> _Entry[Message] | None:
        """Of a queue that is held, what is attempted next: the first of each group in turn, as one of them may be what
        fails."""
        return min(self._firsts(), key=lambda entry: (entry.probes, entry.place), default=None)

    def _wants_probe(self, leased: list[_Entry[Message]]) -> bool:
        """Whether another message is to be asked for while the queue is held, and the pause is over."""
        probe = self._probe()
        if len(leased) >= self._limit:
            return False
        if probe is None or probe.state is _State.AWAY:
            return True
        if self._in_order:
            return False
        # All groups that are there have had their turn: another one may be behind them.
        return probe.probes > 0 and sum(entry.size_bytes for entry in leased) < LEASED_LIMIT_BYTES

    # What happened

    def hold(self, until_s: float) -> None:
        """The queue is held: from then on one message is attempted, whenever it was due, and none beside it."""
        self._held_until_s = until_s

    def go_on(self) -> None:
        """It is held no more."""
        self._held_until_s = None
        for entry in self._entries.values():
            entry.probes = 0

    def asked(self) -> None:
        """A lease is asked for; there is one such question at a time."""
        assert not self._asking
        self._asking = True
        for entry in self._entries.values():
            entry.expected = entry.state is _State.AWAY

    def leased(self, message: Message, group: Hashable, *, priority: int = 0, size_bytes: int = 0) -> None:
        """The answer is a message.

        priority: the queue hands out higher ones first.
        """
        self._asking = False
        entry = self._entries.get(message)
        if entry is not None:
            assert entry.state is _State.AWAY, "a message is leased once at a time"
            entry.state = _State.HELD
            return
        self._drop_expected(at_least=priority)
        entry = _Entry(message, group, next(self._places), priority, size_bytes)
        self._entries[message] = entry
        self._groups.setdefault(group, []).append(entry)

    def nothing_there(self) -> None:
        """The answer is that there is no message, so what was given back has been taken by somebody else."""
        self._asking = False
        self._drop_expected(at_least=0)

    def not_answered(self) -> None:
        """The connection broke first, or the question was taken back."""
        self._asking = False

    def decided(self, message: Message) -> None:
        """Note that a message will leave the queue, so later messages may continue."""
        self._entries[message].state = _State.LEAVING

    def given_back(self, message: Message, due_s: float = -inf) -> None:
        """Note that a message was returned, or may have been.

        due_s: not to be attempted again before.
        """
        entry = self._entries[message]
        entry.state, entry.due_s, entry.expected = _State.AWAY, due_s, False
        if self._held_until_s is not None:
            self._held_until_s = max(self._held_until_s, due_s)

    def settled(self, message: Message) -> None:
        """Note that a message has left the queue."""
        self._forget(self._entries[message])

    def _drop_expected(self, at_least: int) -> None:
        """These would have been handed out first."""
        for entry in [*self._entries.values()]:
            if entry.expected and entry.priority >= at_least:
                self._forget(entry)

    def _forget(self, entry: _Entry[Message]) -> None:
        del self._entries[entry.message]
        line = self._groups[entry.group]
        line.remove(entry)
        if not line:
            del self._groups[entry.group]
