"""The way to a host that cannot be called: over a session that the queue manager opens which calls from there.

[MS-MQQB] 3.1.5.2, 3.1.5.8.5

A direct format name says where to call, and no more. Nobody answers a call behind a NAT, or behind a firewall that lets
only out. What is for such a name may leave where the name leads: to the address that was called in vain, over a session
that came from there. So it does when one queue manager alone was met at that address, and has only ever called; where
several were, nobody could tell whom the name means.

This lasts while that one has a session, or nothing waits. Else the host is called again, after IN_VAIN_INTERVALS.
"""

from __future__ import annotations

from typing import Final

from mqproto.base.moment import Moment
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.refusals import Refusals
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.transfer.sequence import OutgoingSequence

IN_VAIN_INTERVALS: Final = 60
"""After how many intervals of the Session Retry Connect Timer a host is called again from which somebody calls."""


class Detours:
    """Whose queues leave over whose sessions."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._instead: dict[Neighbour, Neighbour] = {}
        """By the neighbour that is called in vain, the one that calls."""
        self._home: dict[int, Neighbour] = {}
        """By queue, the neighbour that its name means."""

    def instead_of(self, neighbour: Neighbour) -> Neighbour | None:
        """The one that calls, if this one is called in vain."""
        return self._instead.get(neighbour)

    def home_of(self, queue: OutgoingQueue) -> Neighbour | None:
        """The neighbour that a queue's name means, if it leaves over sessions of another."""
        return self._home.get(queue.queue)

    def through(self, neighbour: Neighbour) -> list[Neighbour]:
        """Those whose queues leave over this one's sessions."""
        return [home for home, instead in self._instead.items() if instead is neighbour]

    def begin(self, home: Neighbour, instead: Neighbour, now: Moment) -> list[OutgoingQueue]:
        """From now on the queues of one leave over sessions of the other; those."""
        self._instead[home] = instead
        moved = home.queues
        for queue in moved:
            self._move(queue, home, instead)
            self._home[queue.queue] = home
            if instead.connected and isinstance(queue, OutgoingSequence):
                queue.connected(now)
        return moved

    def end(self, home: Neighbour) -> tuple[Neighbour, list[OutgoingQueue]]:
        """They leave over its own sessions again; over whose they did, and those."""
        instead = self._instead.pop(home)
        moved = [queue for queue in instead.queues if self._home.get(queue.queue) is home]
        for queue in moved:
            self._move(queue, instead, home)
            del self._home[queue.queue]
            if isinstance(queue, OutgoingSequence):
                queue.disconnected()
        return instead, moved

    def join(self, queue: OutgoingQueue, neighbour: Neighbour) -> Neighbour:
        """A queue's way leads over this one; over whose sessions it leaves."""
        instead = self._instead.get(neighbour)
        if instead is None:
            return neighbour
        self._home[queue.queue] = neighbour
        return instead

    def forget(self, queue: OutgoingQueue) -> None:
        """A queue is for somebody else from now on."""
        self._home.pop(queue.queue, None)

    def _move(self, queue: OutgoingQueue, here: Neighbour, there: Neighbour) -> None:
        """What a neighbour may have refused is not held against it at another."""
        self._refusals.let_go(here, queue)
        here.remove(queue)
        there.add(queue)
