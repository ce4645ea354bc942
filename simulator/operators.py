"""What an operator does to the queues of a node: pause, purge, delete, and dead letters sent once more."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mqproto.errors import FormatNameError, UsageError
from mqproto.queuemanager import QueueManager
from mqproto.wire import Guid
from simulator.clock import Clock
from simulator.directory import Directory, known_as
from simulator.received import MessageId, decoded

ALL: Final = 2**40
"""More messages than a queue manager has in memory."""


class Operators:
    """Carries out operators' requests; queues go by any of their names.

    Every method may raise FormatNameError or UsageError: there is no such queue.
    """

    def __init__(self, core: QueueManager, directory: Directory, clock: Clock) -> None:
        self._core = core
        self._directory = directory
        self._clock = clock

    def outgoing(self, text: str) -> list[str]:
        """The outgoing queues that are meant, as the queue manager calls them: at least one."""
        names = [queue.name for queue in self._core.status().outgoing]
        found = self._directory.outgoing_queues(text, names)
        if not found:
            topology = self._directory.topology
            known = ", ".join(sorted({known_as(topology, name) for name in names})) or "none"
            node = self._directory.node.name
            raise UsageError(f"{node} has no outgoing queue to {text}; there are: {known}")
        return found

    def hold(self, text: str, *, on_hold: bool) -> None:
        """Pause outgoing queues, or resume them."""
        for name in self.outgoing(text):
            self._core.hold(name, on_hold=on_hold)

    def purge(self, text: str) -> int:
        """Delete all that is in a queue of this node, or in outgoing ones; how many messages go."""
        try:
            names = [self._directory.local_queue(text)]
        except (UsageError, FormatNameError):
            names = self.outgoing(text)
        now = self._clock.now()
        return sum(self._core.purge(name, now) for name in names)

    def delete(self, text: str) -> int:
        """Delete a queue of this node; how many messages go with it."""
        return self._core.delete(self._directory.local_queue(text))

    def send_back(self, text: str, chosen: Collection[tuple[bytes, int]] | None) -> int:
        """Send messages of a dead-letter queue or a journal once more; how many were sent.

        Args:
            chosen: which, by source and ordinal; None for all that are in memory.

        Raises:
            UsageError: one of them is not there, or the queue is another; nothing was sent.
        """
        queue = self._directory.local_queue(text)
        keys = None
        if chosen is not None:
            kept = self._core.peek(queue, ALL)
            messages = decoded(one.packet for one in kept)
            by_id = {message.id: one.key for message, one in zip(messages, kept, strict=True)}
            for source, ordinal in chosen:
                if (Guid(source), ordinal) not in by_id:
                    raise UsageError(f"{queue} has no message {MessageId(Guid(source), ordinal)}")
            keys = [by_id[MessageId(Guid(source), ordinal)] for source, ordinal in chosen]
        return self._core.send_back(queue, keys, self._clock.now())
