"""Traffic for users to watch: numbered messages from one node to another, which checks their order.

The traffic has its own queue, so it does not affect other messages. The queue remains for the next run. Messages that
an earlier run left in the queue, or on their way to it, have that run's number and are dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.program.output import only_one
from mqproto.simulator.client import Client, NodeUnreachable, RolledBack, connect
from mqproto.simulator.topology.places import Place
from mqproto.wire.guid import guid_text

QUEUE: Final = "console-traffic"
MOST_PER_S: Final = 500
TICK_S: Final = 0.1
PATIENCE_S: Final = 3_600.0
"""The number of seconds for which a node may be down.

A request to it is carried out once, when the node is back.
"""
LOOK_S: Final = 0.5
"""The number of seconds between the consumer's checks of whether to end, and between attempts to reach a node."""
LIMIT: Final = 100


class Count(msgspec.Struct):
    """The progress of the traffic.

    wrong: the number of messages that arrived before one with a lower number.
    twice: the number of repeated arrivals; a message that arrives three times counts as two.
    failure: the reason why the traffic ended before it was stopped; empty if it did not.
    """

    frm: str
    to: str
    rate: int
    running: bool = True
    sent: int = 0
    received: int = 0
    last: int = 0
    wrong: int = 0
    twice: int = 0
    failure: str = ""


class NumbersSeen:
    """Takes in the numbers of the messages that arrive, and updates the counts."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._early: set[int] = set()

    def take(self, number: int) -> None:
        """Record one more message."""
        count = self._count
        if number <= count.last or number in self._early:
            count.twice += 1
            return
        count.received += 1
        if number != count.last + 1:
            count.wrong += 1
            self._early.add(number)
            return
        count.last = number
        while count.last + 1 in self._early:
            count.last += 1
            self._early.remove(count.last)


class ConsoleTraffic:
    """The console's traffic: one sender and one consumer at a time."""

    def __init__(self, place: Callable[[], Place], log: FilteringBoundLogger) -> None:
        self._place = place
        self._log = log
        self._wanted = trio.Event()
        self._done = trio.Event()
        self._count: Count | None = None

    def facts(self) -> dict[str, Any] | None:
        """Return the progress of the traffic; None if there has been none yet."""
        return None if self._count is None else msgspec.to_builtins(self._count)

    def start(self, ends: tuple[str, str], rate: int) -> None:
        """Begin to send messages.

        Args:
            ends: the names of the node that sends and the node that receives.
            rate: the number of messages per second.

        Raises:
            UsageError: there is already traffic, or the nodes or the rate are not valid.
        """
        topology = self._place().topology
        if self._count is not None and not self._done.is_set():
            raise UsageError("there is traffic already: stop it first")
        frm, to = (topology.node_named(name).name for name in ends)
        if frm == to or not 0 < rate <= MOST_PER_S:
            raise UsageError(f"choose two nodes, and up to {MOST_PER_S} messages a second")
        self._done = trio.Event()
        self._count = Count(frm, to, rate)
        self._wanted.set()

    def stop(self) -> None:
        """Stop sending, and end the traffic once everything has been received."""
        if self._count is not None:
            self._count.running = False

    async def run(self) -> None:
        """Run the traffic until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            assert self._count is not None
            try:
                await self._carry(self._count)
            except Exception as error:  # What it is for ends, and not what it runs beside.
                self._count.failure = f"{type(error).__name__}: {only_one(error)}"
                self._log.error("traffic-failed", reason=self._count.failure, exc_info=True)
            finally:
                self._count.running = False
                self._done.set()

    async def _carry(self, count: Count) -> None:
        found: list[str] = []
        time = secrets.token_hex(4)
        await self._with(count.to, lambda client: _have_queue(client, found))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._with, count.frm, lambda client: _send(client, found[0], time, count))
            await self._with(count.to, lambda client: _receive(client, time, count))
            nursery.cancel_scope.cancel()

    async def _with(self, name: str, task: Callable[[Client], Awaitable[None]]) -> None:
        """Run a task with a client of a node, as soon as the node is running."""
        while True:
            place = self._place()
            try:
                async with connect(place.topology, name, place.directory, patience_s=PATIENCE_S) as client:
                    await task(client)
                    return
            except NodeUnreachable:
                await trio.sleep(LOOK_S)


async def _have_queue(client: Client, found: list[str]) -> None:
    """Make sure that the queue exists; append its format name, which is valid on every node, to `found`."""
    known = {queue.name: queue for queue in await client.declared()}
    queue = known.get(QUEUE) or await client.make(QUEUE, transactional=True)
    found.append(f"PRIVATE={guid_text(client.manager)}\\{queue.identifier:08x}")


async def _send(client: Client, queue: str, time: str, count: Count) -> None:
    owed = 0.0
    while count.running:
        owed += count.rate * TICK_S
        some = min(int(owed), LIMIT)
        owed -= some
        if some:
            numbers = range(count.sent + 1, count.sent + some + 1)
            drafts = [
                Draft(body=f"{time} {number}".encode(), label=f"{number}", transactional=True)
                for number in numbers
            ]
            await client.send_many(queue, drafts)
            count.sent += some
        await trio.sleep(TICK_S)


async def _receive(client: Client, time: str, count: Count) -> None:
    seen = NumbersSeen(count)
    while count.running or count.received < count.sent:
        with suppress(RolledBack):
            async with client.transaction(QUEUE, LIMIT, LOOK_S) as messages:
                bodies = [message.body.decode("latin-1").partition(" ") for message in messages]
            for when, _, number in bodies:
                if when == time:
                    seen.take(int(number))
