"""All queues of a queue manager from which applications receive.

They include journals and dead-letter queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from mqproto.base.durations import Durations
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.queues.consumers import AGE_BOUNDS_S, count_ages
from mqproto.queues.declarations import Declarations
from mqproto.queues.lanes import Lane
from mqproto.queues.localqueue import JOURNAL_SUFFIX, LocalQueue, QueueDeclaration, SystemQueue
from mqproto.turn.desk import Desk
from mqproto.turn.effects import QueueKind, StoredQueue, StoredState
from mqproto.wire import Guid, MessageClass, QueueName
from mqproto.wire.glance import TRANSACTIONAL
from mqproto.wire.shapes import Run

GONE: Final = 1_000
"""The maximum number of deleted queues that keep their place in the store, because messages may still come for them."""


class LocalQueues:
    """All local queues of a queue manager, by every name that a packet or an application uses for them."""

    def __init__(
        self,
        desk: Desk,
        declarations: Iterable[QueueDeclaration],
        next_queue: Callable[[], int],
        state: StoredState,
    ) -> None:
        self.publics: dict[Guid, Guid] = {}
        """The queue managers that host public queues or connect foreign systems, keyed by the GUID of the queue or
        system.
        """
        self.ages = Durations(AGE_BOUNDS_S)
        """The ages of messages when they arrived in queues, according to their senders' clocks."""
        self._desk = desk
        self._next_queue = next_queue
        self._by_name: dict[str, LocalQueue] = {}
        self._by_wire_name: dict[QueueName, LocalQueue] = {}
        self._by_guid: dict[tuple[QueueName, bool], LocalQueue] = {}
        """The queues, keyed by GUID and by whether the message is transactional; the latter selects one of the two
        queues of a foreign system.
        """
        self._journals: dict[int, LocalQueue] = {}
        self._gone: dict[str, LocalQueue] = {}
        """The deleted queues, the oldest deletion first. If a queue is created again, its senders' numbers continue."""
        self.stirred: dict[LocalQueue, None] = {}
        self._stored: dict[str, list[StoredQueue]] = {}
        for stored in state.queues:
            if stored.kind is QueueKind.LOCAL:
                self._stored.setdefault(stored.name, []).append(stored)
        self._spellings = {name.lower(): name for name in self._stored}
        """The stored names, keyed by their lower-case forms."""
        self._declarations = Declarations(desk, declarations, state, next_queue)
        for declaration in self._declarations.current.values():
            self._host(declaration)
        for system in SystemQueue:
            self._declare(QueueDeclaration(system.value, 0, quota_bytes=desk.settings.journal_quota_bytes))
        for deleted in self._declarations.deleted.values():
            for name in (deleted, deleted + JOURNAL_SUFFIX):
                if name in self._stored:
                    self._set_aside(self._opened(QueueDeclaration(name, 0)))

    def _host(self, declaration: QueueDeclaration) -> None:
        """Host a queue from now on, under all its names."""
        queue = self._declare(declaration)
        self._by_wire_name[declaration.identifier] = queue
        self._by_wire_name[declaration.name.lower()] = queue
        for guid in declaration.guids:
            self._by_guid[guid] = queue
            self.publics[guid[0]] = self._desk.identity
        self._set_journal(queue)

    def _set_journal(self, queue: LocalQueue) -> None:
        """Give a queue its declared journal, or remove its journal if none is declared."""
        declaration = queue.declaration
        journal = self._journals.get(queue.queue)
        if not declaration.journal:
            if journal is not None:
                self._remove_journal(queue)
            return
        wanted = QueueDeclaration(
            declaration.name + JOURNAL_SUFFIX, 0, quota_bytes=declaration.journal_quota_bytes
        )
        if journal is None:
            self._journals[queue.queue] = self._declare(wanted)
        else:
            journal.declaration = wanted

    def _remove_journal(self, queue: LocalQueue) -> int:
        journal = self._journals.pop(queue.queue, None)
        if journal is None:
            return 0
        del self._by_name[journal.name.lower()]
        return self._set_aside(journal)

    def _declare(self, declaration: QueueDeclaration) -> LocalQueue:
        queue = self._opened(declaration)
        queue.lane(0).register(self._desk.writes)
        self._by_name[declaration.name.lower()] = queue
        self.stirred[queue] = None  # A first page is read, so a peek sees stored messages.
        return queue

    def _opened(self, declaration: QueueDeclaration) -> LocalQueue:
        """Open a stored or a new queue. A queue that was deleted gets its earlier numbers back."""
        queue = self._gone.pop(declaration.name.lower(), None)
        if queue is None and len(self._gone) >= GONE:
            queue = self._forgotten()
        if queue is not None:
            queue.become(declaration)
            return queue
        name = declaration.name
        spelling = name if name in self._stored else self._spellings.get(name.lower(), name)
        stored = self._stored.pop(spelling, ())
        queue = LocalQueue(self._desk, declaration, self._next_queue, stored)
        if spelling != name:
            queue.respell()
        return queue

    def _forgotten(self) -> LocalQueue | None:
        """Forget and return the empty queue that was deleted longest ago, so that another can take its place."""
        found = next((key for key, queue in self._gone.items() if not queue.count), None)
        if found is None:
            return None
        self._declarations.forget(found)
        return self._gone.pop(found)

    def _set_aside(self, queue: LocalQueue) -> int:
        """Take a queue out of use, and begin to delete its messages. Return the number of these messages."""
        queue.purging.begin(queue.lanes, MessageClass.NACK_Q_DELETED)
        self._gone[queue.name.lower()] = queue
        self.stir(queue)
        return queue.count

    def __iter__(self) -> Iterator[LocalQueue]:
        return chain(self._by_name.values(), self._gone.values())

    def named(self, name: str) -> LocalQueue:
        """Return the queue with this name.

        Raises:
            UsageError: there is no such queue; the text lists those that exist.
        """
        queue = self._by_name.get(name.lower())
        if queue is None:
            known = ", ".join(queue.name for queue in self._by_name.values())
            raise UsageError(f"no queue {name} here; there are: {known}")
        return queue

    def journal_of(self, number: int) -> LocalQueue | None:
        """Return the journal of the queue with this number in the store; None if it has none."""
        return self._journals.get(number)

    def addressed(self, destination: QueueName, *, transactional: bool = False) -> LocalQueue | None:
        """Return the queue that a UserHeader names.  3.1.5.8.5

        transactional: whether the message is transactional. If a foreign system has only one connector queue, it is
            returned in either case, and the queue itself refuses messages of the other kind.
        """
        name = local_name(destination)
        return (
            self._by_wire_name.get(name)
            or self._by_guid.get((name, transactional))
            or self._by_guid.get((name, not transactional))
        )

    def of_run(self, run: Run) -> LocalQueue | None:
        """Return the queue that the messages of a run are for."""
        transactional = bool(run.shape.flags & TRANSACTIONAL)
        return self.addressed(run.facts.destination_queue, transactional=transactional)

    def for_letters(self, path_name: str, *, transactional: bool) -> LocalQueue | None:
        """Return the queue that an application has chosen for its dead letters.

        Return None if that queue no longer exists, or if it does not take messages of this kind.

        transactional: whether the dead letter is transactional.
        """
        queue = self.addressed(path_name)
        return queue if queue is not None and queue.declaration.transactional == transactional else None

    def deleted(self, destination: QueueName) -> int | None:
        """Return the number of the deleted queue that a transactional message's UserHeader names.

        Return None if it names none. A queue that was deleted before the node started is known only by its name.
        """
        name = local_name(destination)
        if not name:
            return None
        for queue in self._gone.values():
            declaration = queue.declaration
            if (
                name in (declaration.name.lower(), declaration.identifier)
                or (name, True) in declaration.guids
            ):
                return queue.queue
        return None

    # Operators

    @property
    def declared(self) -> list[QueueDeclaration]:
        """The existing queues, except journals and system queues."""
        return list(self._declarations.current.values())

    @property
    def gone(self) -> list[LocalQueue]:
        """The deleted queues; some may have messages that have not left yet."""
        return list(self._gone.values())

    def make(self, declaration: QueueDeclaration) -> QueueDeclaration:
        """Create a queue permanently.  [MS-MQDMPR] 3.1.7.1.3

        Returns:
            The given declaration with the new queue's identifier.

        Raises:
            UsageError: another queue has that name or GUID, or messages of a deleted one are still leaving.
        """
        name = declaration.name
        other = self._by_name.get(name.lower())
        for guid in declaration.guids:
            other = other or self._by_guid.get(guid)
        if other is not None:
            what = "name" if other.name.lower() == name.lower() else "GUID"
            raise UsageError(
                f"{other.name} has this {what} already: choose another, or delete {other.name} first"
            )
        leaving = sum(
            queue.count
            for each in (name, name + JOURNAL_SUFFIX)
            if (queue := self._gone.get(each.lower())) is not None
        )
        if leaving:
            raise UsageError(
                f"{leaving:,} messages of the queue {name} that was deleted are still to leave: try again in a moment"
            )
        made = self._declarations.make(declaration)
        self._host(made)
        return made

    def change(self, declaration: QueueDeclaration) -> None:
        """Change a queue's properties permanently, except its names and its kind.  [MS-MQDMPR] 3.1.1.2

        Raises:
            UsageError: the queue does not exist, or would lose a journal that is not empty.
        """
        queue = self.named(declaration.name)
        was = queue.declaration
        assert (was.identifier, was.transactional, was.public, was.connector) == (
            declaration.identifier,
            declaration.transactional,
            declaration.public,
            declaration.connector,
        ), f"queue {declaration.name} is to be another"
        journal = self._journals.get(queue.queue)
        if journal is not None and not declaration.journal and (journal.count or journal.consumers):
            raise UsageError(f"{journal.name} is not empty: receive what is there, or purge it, first")
        self._declarations.change(declaration)
        queue.declaration = declaration
        self._set_journal(queue)

    def delete(self, queue: LocalQueue) -> int:
        """Delete a queue and its journal permanently.  [MS-MQDMPR] 3.1.7.1.4

        Their messages end, and the senders are told. Return the number of these messages.

        Raises:
            UsageError: it is a system queue, or an application is using it.
        """
        if queue.is_system:
            raise UsageError(f"{queue.name} belongs to the system and cannot be deleted; purge it")
        for used in (queue, self._journals.get(queue.queue)):
            if used is not None and used.consumers:
                raise UsageError(f"an application receives from {used.name}: stop it first")
        self._declarations.delete(queue.declaration)
        del self._by_name[queue.name.lower()]
        self._by_wire_name = {name: other for name, other in self._by_wire_name.items() if other is not queue}
        for guid, transactional in queue.declaration.guids:
            del self._by_guid[guid, transactional]
            if (guid, not transactional) not in self._by_guid:
                del self.publics[guid]
        return self._set_aside(queue) + self._remove_journal(queue)

    def is_gone(self, queue: LocalQueue) -> bool:
        """Whether a queue was deleted and its last message has left."""
        return not queue.count and self._by_name.get(queue.name.lower()) is not queue

    def of_lane(self, number: int) -> tuple[LocalQueue, Lane] | None:
        """Return the queue that has the lane with this number in the store, and that lane; None if there is none."""
        for queue in self:
            for lane in queue.lanes:
                if lane.queue == number:
                    return queue, lane
        return None

    def numbered(self, number: int) -> LocalQueue:
        """Return the queue whose first lane has this number in the store."""
        return next(queue for queue in self if queue.queue == number)

    def stir(self, queue: LocalQueue) -> None:
        """Mark a queue, because something has happened to it that must be handled in this turn."""
        self.stirred[queue] = None

    def take_stirred(self, now: Moment) -> list[LocalQueue]:
        """Return the queues that were marked with `stir`; their new messages count as having arrived now."""
        stirred, self.stirred = self.stirred, {}
        for queue in stirred:
            if fresh := queue.take_fresh(now):
                count_ages(fresh, now, self.ages)
        return list(stirred)


def local_name(destination: QueueName) -> QueueName:
    """Return the part of a name in a packet that identifies the queue on its host."""
    if isinstance(destination, str):
        return destination.partition("\\")[2].lower().removeprefix("private$\\")
    return destination
