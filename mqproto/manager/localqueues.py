"""All queues of a queue manager that applications receive from, journals and dead-letter queues among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from mqproto.base.errors import UsageError
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import JOURNAL_SUFFIX, LocalQueue, QueueDeclaration, SystemQueue
from mqproto.turn.desk import Desk
from mqproto.turn.effects import QueueKind, StoredQueue, StoredState
from mqproto.wire import MessageClass, QueueName


class LocalQueues:
    """All queues of a queue manager, by every name that a packet or an application has for them."""

    def __init__(
        self,
        desk: Desk,
        declarations: Iterable[QueueDeclaration],
        next_queue: Callable[[], int],
        state: StoredState,
    ) -> None:
        self._settings = desk.settings
        self._writes = desk.writes
        self._next_queue = next_queue
        self._waypoints = desk.waypoints
        self._by_name: dict[str, LocalQueue] = {}
        self._by_wire_name: dict[QueueName, LocalQueue] = {}
        self._journals: dict[int, LocalQueue] = {}
        self._deleted: list[LocalQueue] = []
        self._stirred: dict[LocalQueue, None] = {}
        self._stored: dict[str, list[StoredQueue]] = {}
        for stored in state.queues:
            if stored.kind is QueueKind.LOCAL:
                self._stored.setdefault(stored.name, []).append(stored)
        for declaration in declarations:
            queue = self._declare(declaration)
            self._by_wire_name[declaration.identifier] = queue
            self._by_wire_name[declaration.name.lower()] = queue
            if declaration.public is not None:
                self._by_wire_name[declaration.public] = queue
            if declaration.journal:
                name = declaration.name + JOURNAL_SUFFIX
                journal = QueueDeclaration(name, 0, quota_bytes=declaration.journal_quota_bytes)
                self._journals[queue.queue] = self._declare(journal)
        for name in SystemQueue:
            self._declare(QueueDeclaration(name.value, 0, quota_bytes=desk.settings.journal_quota_bytes))

    def _declare(self, declaration: QueueDeclaration) -> LocalQueue:
        queue = LocalQueue(
            declaration,
            self._settings,
            self._next_queue,
            self._stored.get(declaration.name, ()),
            self._waypoints,
        )
        queue.lane(0).register(self._writes)
        self._by_name[declaration.name.lower()] = queue
        self._stirred[queue] = None  # A first page is read, so that a peek sees what the store has.
        return queue

    def __iter__(self) -> Iterator[LocalQueue]:
        return chain(self._by_name.values(), self._deleted)

    def named(self, name: str) -> LocalQueue:
        """A queue by its name.

        Raises:
            UsageError: there is none; the text lists those that there are.
        """
        queue = self._by_name.get(name.lower())
        if queue is None:
            known = ", ".join(queue.name for queue in self._by_name.values())
            raise UsageError(f"no queue {name} here; there are: {known}")
        return queue

    def journal_of(self, number: int) -> LocalQueue | None:
        """The journal of the queue with this number in the store, if it has one."""
        return self._journals.get(number)

    def addressed(self, destination: QueueName) -> LocalQueue | None:
        """The queue that a UserHeader names.  3.1.5.8.5"""
        if isinstance(destination, str):
            destination = destination.partition("\\")[2].lower().removeprefix("private$\\")
        return self._by_wire_name.get(destination)

    def delete(self, queue: LocalQueue) -> None:
        """A queue is here no more; its messages end, and those who send to it are told so.  [MS-MQDMPR] 3.1.7.1.4

        Raises:
            UsageError: it is the system's, or an application uses it.
        """
        if queue.is_system:
            raise UsageError(f"{queue.name} belongs to the system and cannot be deleted; purge it")
        if queue.is_in_use:
            raise UsageError(f"an application receives from {queue.name}: stop it first")
        del self._by_name[queue.name.lower()]
        self._by_wire_name = {name: other for name, other in self._by_wire_name.items() if other is not queue}
        queue.purge(MessageClass.NACK_Q_DELETED)
        self._deleted = [other for other in self._deleted if other.count] + [queue]
        self.stir(queue)

    def is_gone(self, queue: LocalQueue) -> bool:
        """Whether a queue was deleted, and its last message has left."""
        return queue in self._deleted and not queue.count

    def of_lane(self, number: int) -> tuple[LocalQueue, Lane] | None:
        """The queue with a lane of this number in the store, and that lane."""
        for queue in self:
            for lane in queue.lanes:
                if lane.queue == number:
                    return queue, lane
        return None

    def stir(self, queue: LocalQueue) -> None:
        """Something happened to a queue: it is looked at in this turn."""
        self._stirred[queue] = None

    def take_stirred(self) -> list[LocalQueue]:
        """The queues to look at."""
        stirred, self._stirred = self._stirred, {}
        return list(stirred)
