"""Two triggers for one queue, as processes: the second stands by.

It takes over without calling twice or too early.

"Reliable messaging" means the document "Transactions in OSB. Reliable Messaging". "Duplicate detection" means the
document "Summary of Duplicate Detection Process for JMS Triggers".
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.client import Client
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.topology import places
from tests.simulator.consumers import OK, HttpConsumer, Reply, Seen, listening
from tests.simulator.edges.trigger.test_run import desk, file, running_trigger
from tests.simulator.edges.trigger.test_trigger import send, taken_from
from tests.simulator.forks import Fork
from tests.simulator.running import until

__all__ = ["desk", "file"]
SCOPE: Final = r"trigger/desk\orders"
STRIKES: Final = int(os.environ.get("MQPROTO_STANDBY_STRIKES", "2"))
QUICK: Final = (
    "--lease",
    "0.5",
    "--interval",
    "0.01",
    "--max-delay",
    "0.02",
    "--in-doubt-queue",
    r"desk\doubts",
)


async def stopped(process: Fork, directory: Path) -> None:
    """Stop a process with a signal, but not while it writes: otherwise, it would keep an SQLite file locked until it
    continues.
    """
    while True:
        process.send_signal(signal.SIGSTOP)
        await until(lambda: is_stopped(process))
        try:
            with sqlite3.connect(directory / "history.sqlite", isolation_level=None, timeout=0) as db:
                db.execute("BEGIN IMMEDIATE")
                db.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)


async def is_stopped(process: Fork) -> bool:
    return state_of(process.pid) in "Tt"


def state_of(pid: int) -> str:
    """Return the state of a process, as Linux reports it; on systems that do not report it, the process counts as
    stopped.
    """
    status = Path(f"/proc/{pid}/stat")
    return status.read_text().rpartition(")")[2].split()[0] if status.exists() else "T"


def lines(file: Path, name: str, event: str) -> list[dict[str, object]]:
    """Return the lines of a trigger's log that are about one kind of event."""
    said = (file.parent / f"desk-{name}.log").read_text().splitlines()
    return [line for line in map(json.loads, said) if line["event"] == event]


async def test_a_leader_that_is_stopped_in_the_middle_of_a_call_is_followed_and_its_call_is_in_doubt(
    desk: Client, file: Path
) -> None:
    """Duplicate detection, step 2: a message whose processing started but did not complete is in doubt. The first
    message stays the first.
    """
    consumer = HttpConsumer()
    asked, may_answer, answered = trio.Event(), trio.Event(), trio.Event()

    async def slow_at_first(seen: Seen) -> Reply:
        if seen.body == b"one":
            asked.set()
            await may_answer.wait()
            answered.set()
        return OK

    consumer.answering = slow_at_first
    async with listening(consumer), AsyncExitStack() as running:

        async def started(name: str) -> Fork:
            options = ("--url", consumer.url, *QUICK)
            return await running.enter_async_context(running_trigger(file, *options, name=name))

        async def has_committed(count: int) -> None:
            async def is_so() -> bool:
                return sum(len(lines(file, name, "committed")) for name in ("first", "second")) == count

            await until(is_so)

        first = await started("first")
        second = await started("second")
        [standby] = lines(file, "second", "standby")
        assert standby["leader"] == "desk first"
        sent = await send(desk, b"one", b"two", b"three")
        await asked.wait()
        await stopped(first, file.parent)
        [doubt] = await desk.receive("doubts", timeout_s=60)
        await has_committed(2)
        may_answer.set()
        await answered.wait()
        first.send_signal(signal.SIGCONT)

        async def has_given_way() -> bool:
            return bool(lines(file, "first", "standby"))

        await until(has_given_way)
        assert (doubt.body, str(doubt.correlation)) == (b"one", sent[0])
        before, *after = (int(seen.headers["mq-epoch"]) for seen in consumer.seen)
        assert before == standby["epoch"]
        assert before < after[0] == after[1]
        [unsettled] = lines(file, "first", "unsettled")
        assert unsettled["reason"] == rf"another trigger has taken over desk\orders since epoch {before}"
        async with open_history(places.history_url(file.parent)) as history:
            assert (await history.look(SCOPE, sent[0])).entry is Entry.STARTED
        second.send_signal(signal.SIGKILL)
        await send(desk, b"four")
        await has_committed(3)
        led = [
            int(str(line["epoch"])) for name in ("first", "second") for line in lines(file, name, "leading")
        ]
        assert [*map(sorted(led).index, led)] == [0, 2, 1]
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == 0
        async with open_history(places.history_url(file.parent)) as history:
            assert (await history.who_leads(SCOPE)).name == "", "the next one need not wait"
    assert consumer.bodies == [b"one", b"two", b"three", b"four"]
    assert await taken_from(desk, "orders") == []


def in_their_epoch(calls: list[Seen]) -> list[bytes]:
    """Return the bodies that a consumer accepts if it refuses calls from former leaders, since their calls cannot be
    withdrawn.
    """
    last, taken = 0, []
    for seen in calls:
        epoch = int(seen.headers["mq-epoch"])
        if epoch >= last:
            taken.append(seen.body)
            last = epoch
    return taken


@pytest.mark.parametrize("seed", [1])
async def test_whoever_is_killed_or_stopped_each_message_is_called_once_in_order_or_is_in_doubt(
    desk: Client, file: Path, seed: int
) -> None:
    """`make standby` kills or stops a trigger 200 times; MQPROTO_STANDBY_STRIKES sets this number."""
    dice = random.Random(seed)
    consumer = HttpConsumer()
    reached = trio.Event()

    async def sometimes_late(seen: Seen) -> Reply:
        reached.set()
        if dice.random() < 0.3:
            await trio.sleep(dice.random() / 50)
        return OK

    consumer.answering = sometimes_late
    sent: list[bytes] = []
    names = ("first", "second")
    async with listening(consumer), AsyncExitStack() as running:
        options = ("--url", consumer.url, *QUICK)

        async def started(name: str) -> Fork:
            return await running.enter_async_context(running_trigger(file, *options, name=name))

        processes = {name: await started(name) for name in names}
        history = await running.enter_async_context(open_history(places.history_url(file.parent)))

        async def has_fallen(name: str) -> bool:
            return (await history.who_leads(SCOPE)).name != f"desk {name}"

        for _ in range(STRIKES):
            bodies = [b"%d" % (len(sent) + number) for number in range(20)]
            sent += bodies
            reached = trio.Event()
            await send(desk, *bodies)
            await reached.wait()
            name = dice.choice(names)
            how = dice.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
            if how is signal.SIGSTOP:
                await stopped(processes[name], file.parent)
                if dice.random() < 0.5:
                    await until(partial(has_fallen, name))
                processes[name].send_signal(signal.SIGCONT)
            else:
                processes[name].send_signal(how)
                await processes[name].wait()
                processes[name] = await started(name)

        async def is_empty() -> bool:
            return not [
                queue for queue in (await desk.queues()).local if queue.name == "orders" and queue.waiting
            ]

        await until(is_empty)
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    doubts = [copy.body for copy in await taken_from(desk, "doubts")]
    taken = in_their_epoch(consumer.seen)
    assert len({*consumer.bodies}) == len(consumer.bodies), f"seed {seed}: called twice"
    assert taken == sorted(taken, key=int), f"seed {seed}: out of order"
    assert {*taken, *doubts} == {*sent}
    assert len(doubts) <= STRIKES
