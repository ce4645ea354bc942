"""The applications that wait for a queue's messages, and the messages that they have not settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from mqproto.base.errors import UsageError
from mqproto.queues.lanes import Lane
from mqproto.turn.effects import UNKNOWN_COUNT, MessageRow, Received
from mqproto.turn.waypoints import Waypoints


@dataclass(slots=True)
class Consumer:
    """One request of an application for messages."""

    consumer: int
    limit: int
    transactional: bool


class Consumers:
    """The waiting consumers of one queue, in order of arrival, and the messages that each was given.

    lanes: the queue's lanes, by their numbers in the store.
    """

    def __init__(self, queue_name: str, waypoints: Waypoints, lanes: Mapping[int, Lane]) -> None:
        self.waiting: deque[Consumer] = deque()
        self.unsettled: dict[int, list[MessageRow]] = {}
        self.given_back: dict[int, int] = {}
        """How often each message in the queue was handed out and given back, by the message's key."""
        self._queue_name = queue_name
        self._waypoints = waypoints
        self._lanes = lanes

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unsettled)

    @property
    def handed(self) -> Iterator[MessageRow]:
        """Return the messages that were handed out and not settled."""
        return chain.from_iterable(self.unsettled.values())

    def ask(self, consumer: Consumer) -> None:
        """Handle an application's request for messages: it gets them now, or as soon as there are some.

        Raises:
            UsageError: this consumer is already asking, has unsettled messages, or asks for less than one message.
        """
        if consumer.limit < 1:
            raise UsageError(
                f"consumer {consumer.consumer} asks for {consumer.limit} messages; ask for 1 or more"
            )
        self.check_settled(
            consumer.consumer, is_asking=consumer.consumer in {one.consumer for one in self.waiting}
        )
        self.waiting.append(consumer)

    def check_settled(self, consumer: int, *, is_asking: bool = False) -> None:
        """Check that a consumer has no unsettled messages, and is not already asking."""
        if is_asking or consumer in self.unsettled:
            raise UsageError(f"consumer {consumer} must settle queue {self._queue_name} before it asks again")

    def give(self, consumer: int, handed: Sequence[MessageRow]) -> list[Received]:
        """Give messages to a consumer. Return them in the form that applications get."""
        received = [self.received(one) for one in handed]
        self._waypoints.delivered(received, self._queue_name, consumer)
        return received

    def received(self, message: MessageRow) -> Received:
        """Return a message in the form that applications get."""
        count = self.given_back.get(message.key, 0) + 1
        if message.position <= self._lanes[message.queue].loaded_through:
            count = UNKNOWN_COUNT
        return Received(message.key, message.packet, count)

    def settled(self, consumer: int) -> list[MessageRow]:
        """Return the messages that a consumer was given; it no longer has them.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        try:
            return self.unsettled.pop(consumer)
        except KeyError:
            raise UsageError(
                f"consumer {consumer} has nothing of queue {self._queue_name} to settle"
            ) from None

    def roll_back(self, consumer: int) -> None:
        """Return a consumer's messages to their places.

        Raises:
            UsageError: nothing was handed out to this consumer.
        """
        by_queue: dict[int, list[MessageRow]] = {}
        handed = self.settled(consumer)
        self._waypoints.rolled_back((one.packet for one in handed), self._queue_name, consumer)
        for one in handed:
            by_queue.setdefault(one.queue, []).append(one)
            self.given_back[one.key] = self.given_back.get(one.key, 0) + 1
        for queue, messages in by_queue.items():
            self._lanes[queue].window.give_back(messages)

    def abandon(self, consumer: int) -> None:
        """Forget an application that is gone, and roll back its unsettled messages."""
        self.waiting = deque(waiting for waiting in self.waiting if waiting.consumer != consumer)
        if consumer in self.unsettled:
            self.roll_back(consumer)

    def take_back(self, key: int) -> MessageRow | None:
        """Take a message back from its consumer; None if no consumer has it."""
        for handed in self.unsettled.values():
            for one in handed:
                if one.key == key:
                    handed.remove(one)
                    return one
        return None
