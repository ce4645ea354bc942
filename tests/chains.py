"""A chain of three queue managers in memory that run turn by turn, for tests that measure the cost of a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.base.configuration import Settings
from mqproto.messages.drafts import Draft
from mqproto.turn.effects import Delivery
from tests.pair import Net, Node, at, queue

SENDER, INTERMEDIATE, DESTINATION = NAMES = ("sender", "intermediate", "destination")
WINDOW: Final = 64
FIRST_QUEUE: Final = 16
"""The identifier of the first queue; the other queues have the identifiers that follow it."""
CONSUMER: Final = 1
AT_ONCE: Final = 1_000
ORDER_ACK_MS: Final = Settings().order_ack_timeout_ms
APART_MS: Final = 5
"""The time between messages in milliseconds; it amounts to 200 messages a second."""


class Chain(Net):
    """A sender, an intermediate and a destination, each with an in-memory disk, and a consumer that commits.

    There may be further neighbours and further queues of the destination; they are idle, but each has had a message.
    Time passes only in `wait`.
    """

    def __init__(self, *, neighbours: int = 0, queues: int = 1) -> None:
        super().__init__()
        # Pages are short, so that a few messages tell what reading them costs.
        settings = Settings(resident_messages=WINDOW)
        hosted = (queue(f"queue {number}", FIRST_QUEUE + number) for number in range(queues))
        self.add(SENDER, settings=settings)
        self.add(INTERMEDIATE, settings=settings)
        self.add(DESTINATION, *hosted, settings=settings)
        for here, there, via in (
            (SENDER, DESTINATION, INTERMEDIATE),
            (SENDER, INTERMEDIATE, INTERMEDIATE),
            (INTERMEDIATE, DESTINATION, DESTINATION),
            (INTERMEDIATE, SENDER, SENDER),
            (DESTINATION, SENDER, INTERMEDIATE),
            (DESTINATION, INTERMEDIATE, INTERMEDIATE),
        ):
            self.route(here, there, via)
        for number in range(neighbours):
            name = f"neighbour {number}"
            self.add(name)
            self.route(name, DESTINATION, DESTINATION)
            self.route(DESTINATION, name, name)
        self.start()
        self.delivered = 0
        self.consuming = False
        for number in range(neighbours):
            self.enqueue(1, f"neighbour {number}")
        for number in range(1, queues):
            self.enqueue(1, to=number)
        self.run()
        self.consume()
        self.pass_on(4 * WINDOW)

    def enqueue(self, count: int, node: str = SENDER, to: int = 0) -> None:
        """Have an application send messages to a queue of the destination, each in a separate transaction."""
        message = (
            at(DESTINATION, FIRST_QUEUE + to),
            Draft(body=bytes(1_024), label="order 4711", transactional=True),
        )
        for first in range(0, count, AT_ONCE):
            self.nodes[node].up.enqueue([message] * min(AT_ONCE, count - first), self.now, together=False)
            self.turn(node)

    def consume(self) -> None:
        """Make the consumer take and commit every message that arrives from now on."""
        self.consuming = True
        self.nodes[DESTINATION].up.consume(CONSUMER, "queue 0", WINDOW, transactional=True)

    def stop_consuming(self) -> None:
        """Let messages stay in the queue from now on."""
        self.consuming = False
        self.nodes[DESTINATION].up.abandon(CONSUMER, "queue 0", self.now)

    def deliver(self, node: Node, delivery: Delivery) -> None:
        self.delivered += len(delivery.messages)
        node.up.settle(CONSUMER, "queue 0", self.now, commit=True)
        if self.consuming:
            node.up.consume(CONSUMER, "queue 0", WINDOW, transactional=True)

    def pass_on(self, count: int) -> None:
        """Pass messages from the sender to the destination, one window at a time, and their acknowledgments back."""
        for _ in range(0, count, WINDOW):
            self.enqueue(WINDOW)
            self.turns(lambda busy: not busy)
            self.wait()

    def pass_on_alone(self, count: int) -> None:
        """Pass messages one by one: each is consumed, and no work is left, some time before the next one is sent."""
        for _ in range(count):
            self.enqueue(1)
            self.turns(lambda busy: not busy)
            self.wait(APART_MS)
        self.wait()

    def drain(self, count: int) -> None:
        """Take turns until `count` more messages are consumed."""
        for goal in range(self.delivered + WINDOW, self.delivered + count + 1, WINDOW):
            self.turns(lambda busy, goal=goal: self.delivered >= goal)  # type: ignore[misc]
            self.wait()

    def wait(self, for_ms: int = ORDER_ACK_MS) -> None:
        """Let time pass: by default, as long as an OrderAck is delayed."""
        self._advance(self.now.uptime_ms + for_ms)
        for name in NAMES:
            self.nodes[name].up.tick(self.now)

    def turns(self, done: Callable[[bool], bool], limit: int = 1_000) -> None:
        """Let each of the three nodes carry out one batch, again and again until `done`; no other node has a turn."""
        for _ in range(limit):
            busy = [self.turn(name) for name in NAMES]
            if done(any(busy)):
                return
        raise AssertionError(f"not done after {limit} turns")

    def part(self) -> None:
        """Make the sender lose the connection to its neighbour."""
        self.blocked.add(frozenset((SENDER, INTERMEDIATE)))
        self.cut(SENDER, INTERMEDIATE)
        self.run()

    def reunite(self) -> None:
        """Let the sender reach its neighbour again; nothing has been sent yet."""
        self.blocked.clear()
        self._advance(self.now.uptime_ms + 10_000)
        self.nodes[SENDER].up.tick(self.now)
