"""The gateway's rules, as in "Message Producer Rules", "OSB Rules" and "Eliminating Duplicates on OSB".

A seed determines the world here: an in-memory node, history and producers, each of which may fail at any step, on a
clock that jumps. `test_run.py` tests the same with processes, sockets and disks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import trio
from trio._core import _run
from trio.testing import MockClock

from mqproto.base.errors import FormatNameError, MqprotoError, QuotaExceeded, UsageError
from mqproto.edge.exactlyonce import ENTRY_AFTER, Attempt, Entry
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.client import InDoubt, MessageId, NodeUnreachable
from mqproto.simulator.edges.gateway.gateway import (
    Accepted,
    Gateway,
    GatewayQueue,
    PostedMessage,
    Ticket,
    queue_named,
    queues_of,
    scope_of,
)
from mqproto.simulator.edges.gateway.refusals import MEANINGS, Code, Refusal
from mqproto.simulator.edges.history.history import HistoryError, Hook, Record
from mqproto.simulator.edges.history.outbox import State
from mqproto.simulator.topology import load
from mqproto.wire import Guid
from tests.simulator.running import Log

ORDERS = GatewayQueue(r"destination\orders", True)
MANAGER = Guid(bytes(range(16)))


def a_message(
    key: str = "order-1", body: bytes = b"three pieces", queue: GatewayQueue = ORDERS
) -> PostedMessage:
    return PostedMessage(queue, key, "text/plain", Draft(body=body, label="a label", transactional=True))


class Dice:
    """Chooses failures and durations at random."""

    def __init__(self, seed: int | None = None) -> None:
        self.random = chance(seed, "gateway") if seed is not None else random.Random(0)
        self.chance = 0.0 if seed is None else self.random.choice([0.02, 0.1, 0.3])

    def fails(self) -> bool:
        return self.random.random() < self.chance

    def a_while_s(self) -> float:
        return self.random.choice([0, 0.001, 0.01, 0.1, 1]) if self.chance else 0


class Storage:
    """An in-memory document history; as with a database, an error does not say whether the operation happened."""

    knows_earlier, origin = False, "life 2 1"

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.records: dict[tuple[str, str], Record] = {}
        self.armed: list[Hook] = []
        self.ended: list[str] = []
        """The messages whose end was seen before they were known to be accepted."""
        self.is_away = False

    async def begin(self, scope: str, key: str, owner: str) -> Record:
        await self._before()
        found = self.records.get((scope, key), Record(Entry.ABSENT, "", 0, b""))
        self.records.setdefault((scope, key), Record(Entry.STARTED, owner, 1, b""))
        await self._after()
        return found

    async def finish(
        self, scope: str, key: str, attempt: Attempt, outcome: bytes = b"", *, patient: bool = False
    ) -> None:
        await self._before()
        if self.entry(key) is not Entry.COMPLETED:
            self.records.pop((scope, key), None)
            if (entry := ENTRY_AFTER[attempt]) is not Entry.ABSENT:
                self.records[scope, key] = Record(entry, "", 1, outcome)
        await self._after()

    async def look(self, scope: str, key: str) -> Record:
        await self._before()
        return self.records.get((scope, key), Record(Entry.ABSENT, "", 0, b""))

    async def tell(self, hook: Hook) -> None:
        await self._before()
        self.armed.append(hook)
        await self._after()

    async def started_by(self, scope: str, owner: str) -> list[str]:
        await self._before()
        return [
            key
            for (place, key), record in self.records.items()
            if (place, record.owner, record.entry) == (scope, owner, Entry.STARTED)
        ]

    def entry(self, key: str) -> Entry:
        """Return the history's entry for a message to `orders`."""
        record = self.records.get((scope_of(ORDERS.name), key))
        return Entry.ABSENT if record is None else record.entry

    async def _before(self) -> None:
        await trio.sleep(self.dice.a_while_s())
        if self.is_away or self.dice.fails():
            raise HistoryError("the database cannot be reached: start it")

    async def _after(self) -> None:
        if self.dice.fails():
            raise HistoryError("the connection to the database broke")
        await trio.sleep(self.dice.a_while_s())


@dataclass
class Node:
    """An in-memory node, which remembers the messages that it has accepted from its gateway."""

    dice: Dice
    arrived: list[str] = field(default_factory=list)
    """The bodies of accepted messages, in order."""
    kept: dict[Ticket, MessageId] = field(default_factory=dict)
    doubts: list[Ticket] = field(default_factory=list)
    """Messages that an earlier run of the gateway submitted, and that the node has forgotten."""
    failure: Exception | None = None
    """The error with which every submission ends."""
    lost: trio.Event = field(default_factory=trio.Event)
    """An event that is set once the connection has broken."""
    is_away: bool = False
    """Whether the node stays away until `Gateway.recover` has been told which messages have ended."""

    async def submit(self, ticket: Ticket, draft: Draft) -> MessageId:
        if self.is_away or isinstance(self.failure, NodeUnreachable):
            raise self.failure or NodeUnreachable("the node is not running")
        await self._on_its_way()
        if isinstance(self.failure, UsageError | FormatNameError):
            raise self.failure
        if self.dice.fails():
            raise QuotaExceeded("it is full")
        self.arrived.append(draft.body.decode())
        identifier = MessageId(MANAGER, len(self.arrived))
        if ticket.key:
            self.kept[ticket] = identifier
        await self._on_its_way()
        if isinstance(self.failure, InDoubt):
            raise self.failure
        return identifier

    async def _on_its_way(self) -> None:
        """Carry a request or an answer; if the connection breaks, everything that is under way fails at once."""
        if self.dice.fails():
            self.is_away = True
            self.lost.set()
        with trio.move_on_after(self.dice.a_while_s()):
            await self.lost.wait()
        if self.lost.is_set():
            raise InDoubt("the connection broke")

    def forget(self, ticket: Ticket) -> None:
        self.kept.pop(ticket, None)
        self.doubts = [one for one in self.doubts if one != ticket]

    def ended(self) -> list[tuple[Ticket, MessageId | MqprotoError]]:
        """Report, on a new connection, how messages ended: those under way that have not arrived by now never will."""
        self.lost = trio.Event()
        return [*((ticket, InDoubt("too old")) for ticket in self.doubts), *self.kept.items()]


@asynccontextmanager
async def a_gateway(
    node: Node, storage: Storage, log: Log | None = None, owner: str = "gateway-1", limit: int = 100
) -> AsyncIterator[Gateway]:
    """Start a gateway; at the end of the block it dies, even if something is under way."""

    async def on_end(message: str) -> None:
        storage.ended.append(message)

    async with trio.open_nursery() as nursery:
        hands: tuple[Any, Any] = node, storage
        gateway = Gateway(*hands, owner, node_log(log or Log(), owner), nursery, limit=limit, on_end=on_end)
        yield gateway
        nursery.cancel_scope.cancel()


async def handed_in(gateway: Gateway, handed: PostedMessage) -> Accepted | Code:
    """Hand a message in; return its outcome."""
    try:
        return await gateway.accept(handed, ExitStack())
    except Refusal as refusal:
        return refusal.code


@pytest.fixture
def node() -> Node:
    return Node(Dice())


@pytest.fixture
def storage() -> Storage:
    return Storage(Dice())


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


# Message Producer Rules


async def test_200_only_after_the_message_is_persisted(node: Node, storage: Storage) -> None:
    """From "Message Producer Rules": "The message is accepted for the delivery and persisted"."""
    log = Log()
    async with a_gateway(node, storage, log) as gateway:
        accepted = await handed_in(gateway, a_message())
        assert node.arrived == ["three pieces"]
        [kept] = node.kept.values()
        assert accepted == Accepted(str(kept), duplicate=False)
        await gateway.idle()
        assert storage.entry("order-1") is Entry.COMPLETED
        assert not node.kept
    [line] = log.lines("accepted")
    assert (line["message"], line["queue"], line["key"]) == (accepted.id, ORDERS.name, "order-1")


@pytest.mark.parametrize("failure", [UsageError("no"), FormatNameError("no")])
async def test_a_business_error_is_for_good(node: Node, storage: Storage, failure: Exception) -> None:
    """From "Message Producer Rules": "The message is considered invalid and is NOT accepted for delivery"."""
    node.failure = failure
    async with a_gateway(node, storage) as gateway:
        assert await handed_in(gateway, a_message()) is Code.INVALID
    assert MEANINGS[Code.INVALID].retry_after_s is None
    assert not node.arrived
    assert storage.entry("order-1") is Entry.ABSENT


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NodeUnreachable("the node is gone"), Code.NODE_UNAVAILABLE),
        (QuotaExceeded("the queue is full"), Code.QUEUE_FULL),
    ],
)
async def test_after_a_system_error_the_producer_may_retry(
    node: Node, storage: Storage, failure: Exception, code: Code
) -> None:
    """From "Message Producer Rules": "may or may not be accepted for delivery yet. The producer may retry"."""
    node.failure = failure
    async with a_gateway(node, storage) as gateway:
        assert await handed_in(gateway, a_message()) is code
        assert MEANINGS[code].retry_after_s is not None
        node.failure = None
        assert await handed_in(gateway, a_message()) == Accepted(str(MessageId(MANAGER, 1)), duplicate=False)


def test_every_code_is_a_business_error_or_may_be_retried() -> None:
    """From "Message Producer Rules": the status distinguishes the two.

    A time after which to retry is given only for errors that may be retried.
    """
    assert set(MEANINGS) == set(Code)
    for meaning in MEANINGS.values():
        assert (meaning.retry_after_s is not None) == (meaning.status in (409, 429) or meaning.status >= 500)


# OSB Rules


async def test_what_was_accepted_when_the_gateway_died_is_finished_by_its_next_life(
    node: Node, storage: Storage, autojump_clock: MockClock
) -> None:
    """From "OSB Rules": "any eventually recoverable error MUST NOT prevent the message from the delivery"."""
    storage.is_away = False
    async with a_gateway(node, storage) as gateway:
        node.failure = InDoubt("the connection broke")
        asked = replace(a_message(), callback="http://shop.example/ends")
        assert await handed_in(gateway, asked) is Code.IN_DOUBT
        assert await handed_in(gateway, a_message()) is Code.IN_PROGRESS
        assert storage.armed == []
    node.failure = None
    async with a_gateway(node, storage) as gateway:
        await gateway.recover(node.ended())
        await gateway.clear([ORDERS])
        assert await handed_in(gateway, a_message()) == Accepted(str(MessageId(MANAGER, 1)), duplicate=True)
    assert node.arrived == ["three pieces"]
    assert not node.kept
    about = b'["destination\\\\orders","order-1","order-1"]'
    name = f"{MessageId(MANAGER, 1)}/ended"
    assert storage.armed == [Hook(name, "gateway-1", "http://shop.example/ends", about, state=State.ARMED)]


async def test_whether_a_message_has_ended_is_seen_once_it_is_known_who_waits_for_that(
    node: Node, storage: Storage
) -> None:
    async with a_gateway(node, storage) as gateway:
        await handed_in(gateway, replace(a_message(), callback="http://shop.example/ends"))
        await gateway.idle()
    assert storage.ended == [str(MessageId(MANAGER, 1))]


async def test_what_was_begun_and_never_handed_to_the_node_is_new_in_the_next_life(
    node: Node, storage: Storage
) -> None:
    """From "OSB Rules": a gateway may crash between the check and the queue."""
    await storage.begin(scope_of(ORDERS.name), "order-1", "gateway-1")
    await storage.begin(scope_of(ORDERS.name), "order-2", "gateway-2")
    async with a_gateway(node, storage) as gateway:
        await gateway.recover(node.ended())
        await gateway.clear([ORDERS])
        assert storage.entry("order-1") is Entry.ABSENT
        assert storage.entry("order-2") is Entry.STARTED
        assert await handed_in(gateway, a_message("order-1")) == Accepted(str(MessageId(MANAGER, 1)), False)
        assert await handed_in(gateway, a_message("order-2")) is Code.IN_PROGRESS


async def test_what_the_node_has_is_accepted_and_the_history_is_told_when_it_can_be(
    node: Node, storage: Storage, autojump_clock: MockClock
) -> None:
    """From "OSB Rules": the history goes away when the message is queued, and comes back after its submission has
    ended.
    """
    log = Log()
    async with a_gateway(node, storage, log) as gateway:
        submit = node.submit

        async def and_then_the_history_goes(ticket: Ticket, draft: Draft) -> MessageId:
            storage.is_away = True
            return await submit(ticket, draft)

        node.submit = and_then_the_history_goes  # type: ignore[method-assign]
        assert await handed_in(gateway, a_message()) == Accepted(str(MessageId(MANAGER, 1)), duplicate=False)
        assert await handed_in(gateway, a_message()) == Accepted(str(MessageId(MANAGER, 1)), duplicate=True)
        await trio.sleep(1)
        assert log.lines("not-finished")
        # Until then the node is not told to forget it, whoever dies.
        assert node.kept
        storage.is_away = False
        await gateway.idle()
        assert storage.entry("order-1") is Entry.COMPLETED
    assert node.arrived == ["three pieces"]


async def test_without_the_history_nothing_is_accepted(node: Node, storage: Storage) -> None:
    """From "OSB Rules": a gateway that cannot recognize duplicates accepts no messages."""
    storage.is_away = True
    async with a_gateway(node, storage) as gateway:
        assert await handed_in(gateway, a_message()) is Code.HISTORY_UNAVAILABLE
    assert not node.arrived


async def test_what_nobody_can_tell_stays_in_doubt_over_restarts(node: Node, storage: Storage) -> None:
    """From "OSB Rules": if the node has forgotten a message, a new start could duplicate it; a person has to look."""
    await storage.begin(scope_of(ORDERS.name), "order-1", "gateway-1")
    node.doubts.append(Ticket(ORDERS.name, "order-1", ""))
    log = Log()
    async with a_gateway(node, storage, log) as gateway:
        await gateway.recover(node.ended())
        await gateway.clear([ORDERS])
        assert await handed_in(gateway, a_message()) is Code.IN_PROGRESS
    assert log.lines("in-doubt")[0]["key"] == "order-1"
    assert node.doubts


# Eliminating Duplicates on OSB


async def test_a_duplicate_is_dropped_right_before_the_queue(node: Node, storage: Storage) -> None:
    """From "Eliminating Duplicates on OSB": "check-and-drop is right before the message is placed into the queue"."""
    log = Log()
    async with a_gateway(node, storage, log) as gateway:
        first = await handed_in(gateway, a_message())
        assert isinstance(first, Accepted)
        assert await handed_in(gateway, a_message()) == Accepted(first.id, duplicate=True)
        assert await handed_in(gateway, a_message("order-2")) == Accepted(str(MessageId(MANAGER, 2)), False)
    assert len(node.arrived) == 2
    [dropped] = log.lines("duplicate-dropped")
    assert (dropped["message"], dropped["key"]) == (first.id, "order-1")


async def test_all_gateways_share_what_they_have_seen(
    node: Node, storage: Storage, autojump_clock: MockClock
) -> None:
    """From "Eliminating Duplicates on OSB": the ids are in a storage that all servers share."""
    finish = storage.finish

    async def later(
        scope: str, key: str, attempt: Attempt, outcome: bytes = b"", *, patient: bool = False
    ) -> None:
        """Report to the history later than to the producer, who may be talking to the other gateway by then."""
        await trio.sleep(0.02)
        await finish(scope, key, attempt, outcome)

    storage.finish = later  # type: ignore[method-assign]
    async with a_gateway(node, storage) as one, a_gateway(Node(Dice()), storage, owner="gateway-2") as other:
        first = await handed_in(one, a_message())
        assert isinstance(first, Accepted)
        assert await handed_in(other, a_message()) == Accepted(first.id, duplicate=True)


async def test_those_who_come_meanwhile_wait_for_the_first(
    node: Node, storage: Storage, autojump_clock: MockClock
) -> None:
    """From "Eliminating Duplicates on OSB": two instances of one message arrive at the same time."""
    found: list[Accepted | Code] = []
    node.dice = Dice(7)
    node.dice.chance = 1e-9

    async def one(gateway: Gateway) -> None:
        found.append(await handed_in(gateway, a_message()))

    async with a_gateway(node, storage) as gateway, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one, gateway)
    accepted = [each for each in found if isinstance(each, Accepted)]
    assert len(accepted) == 20
    assert sorted(each.duplicate for each in accepted) == [False] + 19 * [True]
    assert len(node.arrived) == 1


@pytest.mark.parametrize("other", ["body", "content_type", "label"])
async def test_an_id_that_was_given_to_another_message_is_refused(
    node: Node, storage: Storage, other: str
) -> None:
    """From "Eliminating Duplicates on OSB": "Every message entering the system must have an unique id"."""
    first = a_message()
    draft = Draft(
        body=b"four" if other == "body" else first.draft.body, label="" if other == "label" else "a label"
    )
    second = PostedMessage(ORDERS, "order-1", "" if other == "content_type" else "text/plain", draft)
    async with a_gateway(node, storage) as gateway:
        for _ in range(2):  # Both at a time, and when the first is known.
            found: list[Accepted | Code] = []

            async def one(handed: PostedMessage, found: list[Accepted | Code] = found) -> None:
                found.append(await handed_in(gateway, handed))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, first)
                nursery.start_soon(one, second)
            assert Code.KEY_REUSED in found
            assert len([each for each in found if isinstance(each, Accepted)]) == 1
    assert len(node.arrived) == 1


async def test_the_same_id_in_another_queue_is_another_message(node: Node, storage: Storage) -> None:
    """From "Eliminating Duplicates on OSB": an id is unique only within the queue where it is used."""
    async with a_gateway(node, storage) as gateway:
        for queue in (ORDERS, GatewayQueue("destination\\notes", False)):
            accepted = await handed_in(gateway, a_message(queue=queue))
            assert isinstance(accepted, Accepted)
            assert not accepted.duplicate


async def test_without_an_id_each_is_a_message_of_its_own(node: Node, storage: Storage) -> None:
    """From "Eliminating Duplicates on OSB": duplicates without an id are not recognized; a message in doubt is reported
    as in doubt.
    """
    async with a_gateway(node, storage) as gateway:
        for _ in range(2):
            assert isinstance(await handed_in(gateway, a_message("")), Accepted)
        node.failure = InDoubt("the connection broke")
        assert await handed_in(gateway, a_message("")) is Code.IN_DOUBT
    assert len(node.arrived) == 3
    assert not storage.records


async def test_there_is_a_limit_to_what_is_under_way(
    node: Node, storage: Storage, autojump_clock: MockClock
) -> None:
    storage.is_away = False
    held = ExitStack()
    given_back: list[int] = []
    held.callback(given_back.append, 1)
    async with a_gateway(node, storage, limit=0) as gateway:
        with pytest.raises(Refusal, match="0 messages are under way"):
            await gateway.accept(a_message(), held)
    assert given_back == [1]


async def test_after_a_bug_a_message_is_in_doubt_until_the_node_tells(node: Node, storage: Storage) -> None:
    """From "OSB Rules": whatever happened between the queue and the answer, the message is neither lost nor doubled."""
    submit = node.submit

    async def broken(ticket: Ticket, draft: Draft) -> MessageId:
        await submit(ticket, draft)
        raise ZeroDivisionError("a bug")

    node.submit = broken  # type: ignore[method-assign]
    log = Log()
    async with a_gateway(node, storage, log) as gateway:
        assert await handed_in(gateway, a_message()) is Code.FAILED
        assert log.lines("failed")[0]["reason"] == "ZeroDivisionError: a bug"
        assert await handed_in(gateway, a_message()) is Code.IN_PROGRESS
        await gateway.recover(node.ended())
        assert await handed_in(gateway, a_message()) == Accepted(str(MessageId(MANAGER, 1)), duplicate=True)
    assert len(node.arrived) == 1


# Queues


def test_a_queue_has_one_name_however_it_is_called() -> None:
    topology = load("three-node")
    names = [
        "orders",
        r"destination\orders",
        r"DESTINATION\private$\Orders",
        r"DIRECT=OS:destination\private$\orders",
    ]
    assert {queue_named(topology, "sender", name) for name in names} == {ORDERS}
    assert ORDERS in queues_of(topology)


@pytest.mark.parametrize(
    "name", ["ordres", "deadxact", r"destination\orders;journal", r"nowhere\orders", "a/b", ""]
)
def test_what_is_no_queue_to_send_to_is_refused(name: str) -> None:
    with pytest.raises((UsageError, FormatNameError)):
        queue_named(load("three-node"), "sender", name)


# A storm


class World:
    """Two gateways that die and come back, with a node each and a shared history, and producers who retry."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.storage = Storage(self.dice)
        self.nodes = [Node(self.dice), Node(self.dice)]
        self.gateways: list[Gateway | None] = [None, None]
        self.ids: dict[str, set[str]] = {}
        """The ids that producers were given for each key."""
        self.calm = False

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(self._live, number)
            async with trio.open_nursery() as producers:
                for key in range(12):
                    for _ in range(self.dice.random.choice([1, 1, 2, 3])):
                        producers.start_soon(self._produce, f"order-{key}")
                await trio.sleep(self.dice.random.choice([5, 60]))
                self.calm, self.dice.chance = True, 0.0
            nursery.cancel_scope.cancel()

    async def _live(self, number: int) -> None:
        node, owner = self.nodes[number], f"gateway-{number}"
        while True:
            async with a_gateway(node, self.storage, owner=owner) as gateway:
                await self._recover(node, gateway)
                await until_it_works(partial(gateway.clear, [ORDERS]))
                self.gateways[number] = gateway
                life_s = float("inf") if self.calm else self.dice.random.expovariate(1 / 10)
                with trio.move_on_after(life_s):
                    while True:
                        await node.lost.wait()
                        await trio.sleep(self.dice.random.random())
                        await self._recover(node, gateway)
                self.gateways[number] = None

    async def _recover(self, node: Node, gateway: Gateway) -> None:
        async def recover() -> None:
            await gateway.recover(node.ended())

        await until_it_works(recover)
        node.is_away = False

    async def _produce(self, key: str) -> None:
        """Send a message until it is accepted, and then once more when the storm is over."""
        accepted = False
        while not (accepted and self.calm):
            gateway = self.dice.random.choice(self.gateways)
            if gateway is not None:
                with trio.move_on_after(self.dice.random.choice([0.001, 0.1, 1, 100])):
                    found = await handed_in(gateway, a_message(key, key.encode()))
                    if isinstance(found, Accepted):
                        self.ids.setdefault(key, set()).add(found.id)
                        accepted = True
                    else:
                        assert MEANINGS[found].retry_after_s is not None, found
            await trio.sleep(0.1 + self.dice.random.random())


async def until_it_works(action: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(HistoryError):
            return await action()
        await trio.sleep(0.1)


@pytest.mark.parametrize("seed", range(20))
def test_after_the_storm_each_message_has_arrived_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From "At Least Once" to "Exactly Once": this holds whatever fails, and however often each message is handed
    in.
    """
    # As in trio's own test_scheduler_determinism.py: the seed decides in which order tasks run, too.
    monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    _run._r.seed(seed)
    world = World(seed)
    trio.run(world.run, clock=MockClock(autojump_threshold=0))
    arrived = Counter(body for node in world.nodes for body in node.arrived)
    assert arrived == {f"order-{key}": 1 for key in range(12)}
    assert {key: len(ids) for key, ids in world.ids.items()} == dict.fromkeys(arrived, 1)
