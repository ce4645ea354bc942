"""The queues that applications receive from.  [MS-MQDMPR] 3.1.1.2"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqproto.configuration import Settings
from mqproto.effects import ReadPage, StoredQueue, Waiting
from mqproto.errors import UsageError
from mqproto.queues import QueueWindow
from mqproto.wire.guid import Guid


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue that a queue manager hosts.

    identifier: PrivateQueueIdentifier, by which routed messages name it; 1 to 2**32 - 1, and 4 is the order queue's.
    public: its GUID in the directory, if it has one.
    """

    name: str
    identifier: int
    transactional: bool = False
    public: Guid | None = None


@dataclass(slots=True)
class Consumer:
    """One request of an application for messages."""

    consumer: int
    limit: int
    transactional: bool


class LocalQueue:
    """A queue of ours: messages in order, some of them handed out and not yet settled."""

    def __init__(
        self, declaration: QueueDeclaration, queue: int, settings: Settings, stored: StoredQueue | None
    ) -> None:
        self.declaration = declaration
        self.queue = queue
        self.count = stored.message_count if stored else 0
        first, last = (stored.first, stored.last) if stored else (0, 0)
        self.window = QueueWindow(queue, settings, read_through=max(first - 1, 0), last=last)
        self.unsettled: dict[int, list[Waiting]] = {}
        self._waiting: deque[Consumer] = deque()
        self._last = last

    @property
    def name(self) -> str:
        """The queue's name, without a host or `private$`."""
        return self.declaration.name

    def next_position(self) -> int:
        """The position of the message that joins next."""
        self._last += 1
        return self._last

    def append(self, message: Waiting) -> None:
        """A message has reached its destination."""
        self.count += 1
        self.window.append(message)

    def ask(self, consumer: Consumer) -> None:
        """An application asks for messages, now or as soon as there are some.

        Raises:
            UsageError: this consumer asks already or has not settled what it was given, or it asks for nothing.
        """
        if consumer.limit < 1:
            raise UsageError(
                f"consumer {consumer.consumer} asks for {consumer.limit} messages; ask for 1 or more"
            )
        if consumer.consumer in self.unsettled or any(c.consumer == consumer.consumer for c in self._waiting):
            raise UsageError(
                f"consumer {consumer.consumer} must settle queue {self.name} before it asks again"
            )
        self._waiting.append(consumer)

    def hand_out(self) -> Iterator[tuple[Consumer, list[Waiting]]]:
        """Give what is there to those who wait, first come, first served."""
        while self._waiting and self.window:
            consumer = self._waiting.popleft()
            count = min(consumer.limit, len(self.window))
            messages = [self.window.pop() for _ in range(count)]
            if consumer.transactional:
                self.unsettled[consumer.consumer] = messages
            else:
                self.count -= count
            yield consumer, messages

    def commit(self, consumer: int) -> list[Waiting]:
        """The messages are the application's; the caller removes them from the store.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        messages = self._settled(consumer)
        self.count -= len(messages)
        return messages

    def roll_back(self, consumer: int) -> None:
        """The messages go back to where they were.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        self.window.give_back(self._settled(consumer))

    def _settled(self, consumer: int) -> list[Waiting]:
        try:
            return self.unsettled.pop(consumer)
        except KeyError:
            raise UsageError(f"consumer {consumer} has nothing of queue {self.name} to settle") from None

    def abandon(self, consumer: int) -> None:
        """The application is gone: it waits no longer, and what it did not settle is rolled back."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.consumer != consumer)
        if consumer in self.unsettled:
            self.roll_back(consumer)

    def pages(self) -> Iterable[ReadPage]:
        """The pages to read now: none while nobody asks and something is at hand for a peek."""
        if self.window and not self._waiting:
            return ()
        page = self.window.wanted()
        return (page,) if page else ()
