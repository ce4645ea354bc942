"""Each way in which a message that was answered 200 can end is named by an audit; what nobody has is found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
import trio

from mqproto.edge.exactlyonce import Attempt
from simulator.base.log import node_log
from simulator.client import Client, Reject, connect
from simulator.edges.audit.ends import NOT_OVER, End
from simulator.edges.history.history import DocumentHistory, open_history
from simulator.edges.trigger.callee import Answer, Call
from simulator.edges.trigger.detection import Detection
from simulator.edges.trigger.retries import Retries
from simulator.edges.trigger.trigger import Policy, Trigger
from simulator.topology import Topology, parse, places
from tests.simulator.gateways import gateway
from tests.simulator.running import running, until
from tests.simulator.typed import COMMAND

SOON: Final = Retries(interval_s=0.01, factor=1, attempts=2)


class Says:
    """A consumer that always says the same; None never answers."""

    def __init__(self, answer: Attempt | None) -> None:
        self._answer = answer
        self.called = trio.Event()

    async def call(self, call: Call) -> Answer:
        self.called.set()
        if self._answer is None:
            await trio.sleep_forever()
        return Answer(self._answer, "its reason")


class System:
    """Two nodes and a gateway to the first, `near`; the queues are at `far`."""

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        near: Client,
        far: Client,
        history: DocumentHistory,
        nursery: trio.Nursery,
    ) -> None:
        self.folder = folder
        self.topology = topology
        self.near = near
        self.far = far
        self.history = history
        self.producer: httpx.AsyncClient
        self.nursery = nursery
        self.told: dict[tuple[str, str], list[str]] = {}
        """The answers 200, by queue and id."""

    async def post(
        self, key: str, queue: str, body: bytes = b"x", headers: dict[str, str] | None = None
    ) -> None:
        named = {"Idempotency-Key": key} if key else {}
        answer = await self.producer.post(
            f"/queues/{queue}/messages", content=body, headers=named | (headers or {})
        )
        assert answer.status_code == 200, answer.text
        self.told.setdefault((rf"far\{queue}", key), []).append(answer.json()["id"])

    async def all_are_confirmed(self) -> bool:
        return not await self.near.peek("gateway-confirmations")

    async def arrived(self, queue: str) -> None:
        await until(partial(self.far.peek, queue))

    async def state(self, key: str, queue: str) -> str:
        return str((await self.producer.get(f"/queues/{queue}/messages/{key}")).json()["state"])

    async def until_state(self, state: str, key: str, queue: str) -> None:
        async def is_so() -> bool:
            return await self.state(key, queue) == state

        await until(is_so)

    @asynccontextmanager
    async def trigger(
        self, queue: str, says: Attempt | None, *, errors: str = "errors", recorded: bool = True
    ) -> AsyncIterator[Says]:
        """A trigger with its log beside the stores, as a process would have it."""
        consumer = Says(says)
        detection = Detection(rf"far\{queue}", "far trigger", self.history if recorded else None)
        policy = Policy(error_queue=errors, in_doubt_queue="doubts" if errors else "", retries=SOON)
        with (self.folder / "far-trigger.log").open("a") as log, trio.CancelScope() as scope:
            trigger = Trigger(
                partial(connect, self.topology, "far", self.folder),
                queue,
                consumer,
                detection,
                policy,
                node_log(log, "far trigger"),
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trigger.run)
                yield consumer
                trigger.stop()
            scope.cancel()


# The ways


async def received(system: System, queue: str) -> None:
    await system.post("received", queue)
    await system.far.receive(queue)


async def received_in_a_transaction(system: System, queue: str) -> None:
    await system.post("received-in-a-transaction", queue)
    async with system.far.transaction(queue):
        pass


async def received_without_an_id(system: System, queue: str) -> None:
    await system.post("", queue)
    await system.far.receive(queue)


async def received_from_a_plain_queue(system: System, queue: str) -> None:
    await system.post("received-from-a-plain-queue", queue)
    await system.far.receive(queue)


async def waits(system: System, queue: str) -> None:
    await system.post("waits", queue)
    await system.arrived(queue)


async def waits_without_an_id(system: System, queue: str) -> None:
    await system.post("", queue)
    await system.arrived(queue)


async def rolled_back(system: System, queue: str) -> None:
    await system.post("rolled-back", queue)
    with pytest.raises(ZeroDivisionError):
        async with system.far.transaction(queue):
            raise ZeroDivisionError


async def rejected(system: System, queue: str) -> None:
    await system.post("rejected", queue)
    async with system.far.transaction(queue):
        raise Reject


async def purged(system: System, queue: str) -> None:
    await system.post("purged", queue)
    await system.arrived(queue)
    await system.far.purge(queue)


async def purged_from_a_plain_queue(system: System, queue: str) -> None:
    await system.post("purged-from-a-plain-queue", queue)
    await system.arrived(queue)
    await system.far.purge(queue)


async def its_queue_deleted(system: System, queue: str) -> None:
    await system.post("its-queue-deleted", queue)
    await system.arrived(queue)
    await system.far.delete(queue)


async def queue_full(system: System, queue: str) -> None:
    for key in ("filling-1", "filling-2", "queue-full"):
        await system.post(key, queue, bytes(30_000))
    await system.until_state("dead-letter", "queue-full", queue)


async def paused(system: System, queue: str) -> None:
    """Nothing more leaves for it; there is a way only when something was sent."""
    await system.post(f"before-{queue}", queue)
    await system.far.receive(queue)
    await system.near.pause(rf"far\{queue}")


async def on_its_way(system: System, queue: str) -> None:
    await paused(system, queue)
    await system.post("on-its-way", queue)


async def deleted_on_its_way(system: System, queue: str) -> None:
    await paused(system, queue)
    await system.post("deleted-on-its-way", queue)
    await system.near.purge(rf"far\{queue}")


async def too_late_for_its_queue(system: System, queue: str) -> None:
    await paused(system, queue)
    await system.post("too-late-for-its-queue", queue, headers={"MQ-Time-To-Reach-Queue": "1"})


async def too_late_to_be_received(system: System, queue: str) -> None:
    await system.post("too-late-to-be-received", queue, headers={"MQ-Time-To-Be-Received": "1"})
    await system.arrived(queue)


async def a_letter_returned(system: System, queue: str) -> None:
    await rejected_as(system, queue, "a-letter-returned")
    [letter] = [one for one in await system.near.peek("deadxact", 100) if one.body == b"a-letter-returned"]
    await system.near.send_back("deadxact", [letter.id])
    await system.far.receive(queue)


async def rejected_as(system: System, queue: str, key: str) -> None:
    await system.post(key, queue, key.encode())
    async with system.far.transaction(queue):
        raise Reject
    await system.until_state("dead-letter", key, queue)


async def a_letter_that_waits_again(system: System, queue: str) -> None:
    await rejected_as(system, queue, "a-letter-that-waits-again")
    [letter] = [
        one for one in await system.near.peek("deadxact", 100) if one.body == b"a-letter-that-waits-again"
    ]
    await system.near.send_back("deadxact", [letter.id])
    await system.arrived(queue)


async def processed(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.SUCCEEDED):
        await system.post("processed", queue)
        await system.until_state("processed", "processed", queue)


async def processed_without_a_history(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.SUCCEEDED, recorded=False):
        await system.post("processed-without-a-history", queue)
        await system.until_state("received", "processed-without-a-history", queue)


async def refused_by_its_consumer(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.FAILED_FOR_GOOD):
        await system.post("refused-by-its-consumer", queue)
        await system.until_state("failed", "refused-by-its-consumer", queue)


async def attempted_too_often(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.FAILED_FOR_NOW):
        await system.post("attempted-too-often", queue)
        await system.until_state("failed", "attempted-too-often", queue)


async def refused_without_an_error_queue(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.FAILED_FOR_GOOD, errors=""):
        await system.post("refused-without-an-error-queue", queue)
        await system.until_state("dead-letter", "refused-without-an-error-queue", queue)


async def in_doubt(system: System, queue: str) -> None:
    await system.history.begin(rf"trigger/far\{queue}", "in-doubt", "one that was killed")
    async with system.trigger(queue, Attempt.SUCCEEDED):
        await system.post("in-doubt", queue)
        await system.until_state("in-doubt", "in-doubt", queue)


async def failed_and_taken(system: System, queue: str) -> None:
    async with system.trigger(queue, Attempt.FAILED_FOR_GOOD, errors="resolved"):
        await system.post("failed-and-taken", queue)
        await system.until_state("failed", "failed-and-taken", queue)
    await system.far.receive("resolved")


async def being_processed(system: System, queue: str) -> None:
    async def hold(*, task_status: trio.TaskStatus[None]) -> None:
        async with system.trigger(queue, None) as consumer:
            await consumer.called.wait()
            task_status.started()
            await trio.sleep_forever()

    await system.post("being-processed", queue)
    await system.nursery.start(hold)


async def processed_with_an_extension(system: System, queue: str) -> None:
    """There the producer's id is not in the message."""
    async with system.trigger(queue, Attempt.SUCCEEDED):
        headers = {"MQ-Extension": "ZXh0ZW5zaW9u"}
        await system.post("processed-with-an-extension", queue, headers=headers)
        await system.until_state("processed", "processed-with-an-extension", queue)


async def told_elsewhere(system: System, queue: str) -> None:
    headers = {"MQ-Admin-Queue": r"far%5Ctold"}
    await system.post("told-elsewhere", queue, headers=headers)
    await system.far.receive(queue)
    await system.far.receive("told", 2)


class Way(NamedTuple):
    """How a message ends, who has it then, and why."""

    go: Callable[[System, str], Awaitable[None]]
    end: End
    reason: str = ""


WAYS: Final = (
    Way(received, End.RECEIVED),
    Way(received_in_a_transaction, End.RECEIVED),
    Way(received_without_an_id, End.RECEIVED),
    Way(received_from_a_plain_queue, End.RECEIVED),
    Way(waits, End.IN_ITS_QUEUE),
    Way(waits_without_an_id, End.IN_ITS_QUEUE),
    Way(rolled_back, End.IN_ITS_QUEUE),
    Way(rejected, End.DEAD_LETTER, "NACK_RECEIVE_REJECTED"),
    Way(purged, End.DEAD_LETTER, "NACK_Q_PURGED"),
    Way(purged_from_a_plain_queue, End.DEAD_LETTER, "NACK_Q_PURGED"),
    Way(its_queue_deleted, End.DEAD_LETTER, "NACK_Q_DELETED"),
    Way(queue_full, End.DEAD_LETTER, "NACK_Q_EXCEED_QUOTA"),
    Way(on_its_way, End.ON_ITS_WAY),
    Way(deleted_on_its_way, End.DEAD_LETTER, "NACK_DELETED"),
    Way(too_late_for_its_queue, End.DEAD_LETTER, "NACK_REACH_QUEUE_TIMEOUT"),
    Way(too_late_to_be_received, End.DEAD_LETTER, "NACK_RECEIVE_TIMEOUT"),
    Way(a_letter_returned, End.RECEIVED),
    Way(a_letter_that_waits_again, End.IN_ITS_QUEUE),
    Way(processed, End.PROCESSED),
    Way(processed_without_a_history, End.PROCESSED),
    Way(refused_by_its_consumer, End.IN_ERROR_QUEUE, "business error"),
    Way(attempted_too_often, End.IN_ERROR_QUEUE, "retrieval failure"),
    Way(refused_without_an_error_queue, End.DEAD_LETTER, "NACK_RECEIVE_REJECTED"),
    Way(in_doubt, End.IN_IN_DOUBT_QUEUE),
    Way(failed_and_taken, End.COPY_TAKEN, "ACK_RECEIVE"),
    Way(being_processed, End.BEING_PROCESSED),
    Way(processed_with_an_extension, End.PROCESSED),
    Way(told_elsewhere, End.HEARD_ELSEWHERE),
)
"""How many there are at least, the issue of custody says: 25."""
PLAIN: Final = ("received_from_a_plain_queue", "purged_from_a_plain_queue", "told")


def topology_text() -> str:
    """A queue for each way, and those of the triggers."""
    lines = ["[node.near]", "[node.far]"]
    for name in (*(way.go.__name__ for way in WAYS), "errors", "doubts", "resolved", "told"):
        lines += [f"[node.far.queue.{name}]", f"transactional = {str(name not in PLAIN).lower()}"]
        lines += ["quota_kb = 64"] * (name == "queue_full")
    return "\n".join([*lines, "[[link]]", 'between = ["near", "far"]', ""])


async def audit(folder: Path) -> dict[str, Any]:
    """What the command says."""
    command = [
        *COMMAND,
        "audit",
        "-t",
        str(folder / "two.toml"),
        "--directory",
        str(folder),
        "--json",
        "--each",
    ]
    done = await trio.run_process(command, capture_stdout=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["ends"]["unaccounted for"] else 0)
    return found


async def test_all_ways_are_named_and_what_is_lost_of_each_is_found(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(topology_text(), "utf-8")
    topology = parse(topology_text(), "two.toml")
    async with AsyncExitStack() as held:
        for name in topology.nodes:
            await held.enter_async_context(running(topology, name, tmp_path))
        near, far = [
            await held.enter_async_context(connect(topology, name, tmp_path)) for name in topology.nodes
        ]
        history = await held.enter_async_context(open_history(places.history_url(tmp_path)))
        nursery = await held.enter_async_context(trio.open_nursery())
        system = System(tmp_path, topology, near, far, history, nursery)
        log = held.enter_context((tmp_path / "near-gateway.log").open("w"))
        system.producer = await held.enter_async_context(gateway(topology, tmp_path, log, node="near"))
        for way in WAYS:
            await way.go(system, way.go.__name__)

        for late in (too_late_for_its_queue, too_late_to_be_received):
            await system.until_state("dead-letter", late.__name__.replace("_", "-"), late.__name__)
        await until(system.all_are_confirmed)
        found = await audit(tmp_path)
        told = [message for messages in system.told.values() for message in messages]
        assert sorted(told) == sorted(one["message"] for one in found["messages"])
        assert found["answered"] == sum(found["ends"].values()) == len(told)
        assert ends_by_queue(found) == {way.go.__name__: (way.end, way.reason) for way in WAYS}
        nursery.cancel_scope.cancel()
    # Nobody runs any more. What a store alone had is missed when that is gone, and nothing else is.
    lose_stores(tmp_path)
    found = await audit(tmp_path)
    assert found["not_here"] == ["near", "far"]
    in_stores = {*NOT_OVER, End.DEAD_LETTER, End.IN_ERROR_QUEUE, End.IN_IN_DOUBT_QUEUE}
    assert {queue for queue, (end, _) in ends_by_queue(found).items() if end == End.UNACCOUNTED} == {
        way.go.__name__ for way in WAYS if way.end in in_stores
    }


def lose_stores(folder: Path) -> None:
    for name in ("near", "far"):
        for path in folder.glob(f"{name}.sqlite*"):
            path.unlink()


def ends_by_queue(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Who has the last message for each queue, and why."""
    return {one["queue"].removeprefix("far\\"): (one["end"], one["reason"]) for one in found["messages"]}
