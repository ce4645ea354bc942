"""Decides which message a trigger attempts next, and when it leases another.

The messages of one group are attempted in order; different groups run in parallel.

A queue hands out its first message that is not leased. A message that was rolled back is the first again, so later ones
wait for it. If the queue then hands out a different message, the first one is no longer there. A message whose outcome
is decided, and which is about to leave the queue, delays nothing, because the next message of its group has already
been leased. This module has no sockets and no clock: time is an argument, and the owner of a schedule reports events.
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
"""The total size of leased messages, in bytes, at which no further message is leased."""

Message = TypeVar("Message", bound=Hashable)


class _State(Enum):
    HELD = auto()
    """The message is leased, and waits until its turn has come and it is due."""
    RUNNING = auto()
    """The message is leased, and is being attempted."""
    LEAVING = auto()
    """The message is leased, and its outcome is decided.

    It will leave the queue, and is not attempted again in any case.
    """
    AWAY = auto()
    """The message is back in the queue, where it is still the first of its group."""


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
    """Whether the message was in the queue when the pending lease was requested."""
    probes: int = 0
    """The number of times that the message was attempted while the queue was held."""


class Schedule(Generic[Message]):
    """The messages that a trigger has leased, or has given back and will get again.

    Args:
        parallel: how many messages may be attempted at the same time, each from a different group.
        leases: how many messages may be leased at the same time. They are being attempted, are leaving, or wait for
            their group or for a free place.
        ahead: how many messages from groups in which no message is being attempted may be leased and wait for a free
            place.
        in_order: whether all messages are one group. Then nothing is leased while a message that was rolled back is not
            yet due.
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
        """Return whether to request another lease.

        If so, the message that is leased can be attempted, provided that its group is free.
        """
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
        """Return whether too few messages are ready to be attempted.

        If all messages are one group, return True, because the next one can always be attempted.
        """
        return self._in_order or running + len(self._ready(now_s)) < self._parallel + self._ahead

    @property
    def running(self) -> int:
        """The number of messages that are being attempted."""
        return sum(entry.state is _State.RUNNING for entry in self._entries.values())

    def start(self, now_s: float) -> list[Message]:
        """Return the messages whose turn it is; they count as being attempted from now on."""
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
        """Return the time of the next action if no event comes first; infinity if there is no such time."""
        if self._held_until_s is not None:
            return self._held_until_s if self._held_until_s > now_s else inf
        return min((entry.due_s for entry in self._entries.values() if entry.due_s > now_s), default=inf)

    def _ready(self, now_s: float) -> list[_Entry[Message]]:
        """Return, in queue order, the first message of each group if it is leased, waiting and due."""
        ready = [entry for entry in self._firsts() if entry.state is _State.HELD and entry.due_s <= now_s]
        return sorted(ready, key=lambda entry: entry.place)

    def _firsts(self) -> Iterator[_Entry[Message]]:
        """For each group, yield the message that is being attempted.

        If there is none, yield the group's first message that is not leaving, if there is one.
        """
        for line in self._groups.values():
            staying = [entry for entry in line if entry.state is not _State.LEAVING]
            running = (entry for entry in staying if entry.state is _State.RUNNING)
            if staying:
                yield next(running, staying[0])

    def _probe(self) -> _Entry[Message] | None:
        """Return the message that is attempted next in a held queue; None if there is none.

        The first messages of the groups take turns, because one of them may be the cause.
        """
        return min(self._firsts(), key=lambda entry: (entry.probes, entry.place), default=None)

    def _wants_probe(self, leased: list[_Entry[Message]]) -> bool:
        """Return whether to request another lease while the queue is held, once the pause is over."""
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
        """Hold the queue until this time.

        After that, only one message at a time is attempted, even if it is not due.
        """
        self._held_until_s = until_s

    def go_on(self) -> None:
        """Release the queue."""
        self._held_until_s = None
        for entry in self._entries.values():
            entry.probes = 0

    def asked(self) -> None:
        """Record that a lease was requested. There is only one such request at a time."""
        assert not self._asking
        self._asking = True
        for entry in self._entries.values():
            entry.expected = entry.state is _State.AWAY

    def leased(self, message: Message, group: Hashable, *, priority: int = 0, size_bytes: int = 0) -> None:
        """Record that the request was answered with a message.

        Args:
            group: the message's group.
            priority: the message's priority; the queue hands out messages with a higher priority first.
            size_bytes: the message's size.
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
        """Record that the queue has no message, so somebody else has taken those that were given back."""
        self._asking = False
        self._drop_expected(at_least=0)

    def not_answered(self) -> None:
        """Record that the connection broke before the answer, or that the request was withdrawn."""
        self._asking = False

    def decided(self, message: Message) -> None:
        """Record that a message will leave the queue, so that later messages may continue."""
        self._entries[message].state = _State.LEAVING

    def given_back(self, message: Message, due_s: float = -inf) -> None:
        """Record that a message was, or may have been, given back.

        Args:
            due_s: the earliest time for the next attempt.
        """
        entry = self._entries[message]
        entry.state, entry.due_s, entry.expected = _State.AWAY, due_s, False
        if self._held_until_s is not None:
            self._held_until_s = max(self._held_until_s, due_s)

    def settled(self, message: Message) -> None:
        """Record that a message has left the queue."""
        self._forget(self._entries[message])

    def _drop_expected(self, at_least: int) -> None:
        """Drop messages that the queue would have handed out earlier, and that are therefore gone.

        Args:
            at_least: the minimum priority of such messages.
        """
        for entry in [*self._entries.values()]:
            if entry.expected and entry.priority >= at_least:
                self._forget(entry)

    def _forget(self, entry: _Entry[Message]) -> None:
        del self._entries[entry.message]
        line = self._groups[entry.group]
        line.remove(entry)
        if not line:
            del self._groups[entry.group]
