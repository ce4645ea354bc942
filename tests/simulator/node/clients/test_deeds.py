"""Who changed what: each order has its own log line.

For messages that are sent or taken, one line reports the first operation, and further lines report the counts of later
operations.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import MqprotoError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client, Reject, connect
from mqproto.simulator.node import control
from mqproto.simulator.node.clients.deeds import ClientActivity, Credentials
from mqproto.simulator.topology import Topology, parse
from tests.simulator.running import Log, running

ONE = """
[node.shop]
[node.shop.queue.orders]
transactional = true
[node.shop.queue.notes]
[settings]
waypoints = true
"""
US = Credentials(17, 1000, 100, "ann")


@pytest.fixture
def topology() -> Topology:
    return parse(ONE, "one.toml").with_free_ports()


# What is counted

MOVES = st.lists(
    st.one_of(
        st.none(),  # A minute is over.
        st.tuples(st.sampled_from(["send", "receive"]), st.integers(0, 4), st.integers(0, 500)),
    ),
    max_size=60,
)


@pytest.fixture(scope="module")
def few_kinds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mqproto.simulator.node.clients.deeds.KINDS", 3)
        yield


@pytest.mark.usefixtures("few_kinds")
@given(MOVES)
def test_what_is_told_of_each_queue_is_all_that_was_moved(moves: list[tuple[str, int, int] | None]) -> None:
    log, waiting = Log(), list[ClientActivity]()
    deeds = ClientActivity(node_log(log, "shop"), US, waiting.append)
    moved: Counter[tuple[str, str]] = Counter()
    for move in moves:
        if move is None:
            while waiting:
                waiting.pop().tell()
            continue
        operation, queue, messages = move
        seen = {(line["operation"], line["queue"]) for line in log.lines("operated")}
        deeds.moved(operation, f"q{queue}", messages)
        moved[operation, f"q{queue}"] += messages
        if (operation, f"q{queue}") not in seen:
            assert log.lines("operated")[-1]["messages"] == messages  # The first is told at once.
        assert len(waiting) <= 1
    deeds.tell()
    told: Counter[tuple[str, str]] = Counter()
    for line in log.lines("operated"):
        assert (line["pid"], line["uid"], line["gid"], line["user"]) == US
        told[line["operation"], line["queue"]] += line["messages"]
    assert told == moved


def test_who_is_not_known_is_said_to_be() -> None:
    log = Log()
    ClientActivity(node_log(log, "shop"), None, lambda _: None).did("purge", "orders", messages=3)
    [line] = log.lines("operated")
    assert (line["uid"], line["queue"], line["messages"]) == ("not known", "orders", 3)


def test_a_name_of_any_length_makes_a_line_of_a_bounded_one() -> None:
    log = Log()
    deeds = ClientActivity(node_log(log, "shop"), US, lambda _: None)
    deeds.moved("send", "DIRECT=OS:" + "x" * 10**6, 1)
    assert len(log.getvalue()) < 600


# With a node

ORDERS: dict[str, tuple[Callable[[Client], Awaitable[object]], dict[str, Any]]] = {
    "purge": (lambda client: client.purge("orders"), {"queue": "orders", "messages": 2}),
    "create": (lambda client: client.make("more"), {"queue": "more"}),
    "set": (lambda client: client.change("notes", quota_kb=9), {"queue": "notes"}),
    "delete": (lambda client: client.delete("orders"), {"queue": "orders", "messages": 2}),
    "scrub": (lambda client: client.scrub(), {}),
    "block": (lambda client: client.block("192.0.2.0/24"), {"network": "192.0.2.0/24", "sessions": 0}),
    "peer-add": (
        lambda client: client.peer(control.PeerFacts("office", "192.0.2.1")),
        {"peer": "office", "host": "192.0.2.1"},
    ),
}


@pytest.mark.parametrize("operation", ORDERS)
async def test_an_order_has_a_line_with_who_gave_it(
    topology: Topology, tmp_path: Path, operation: str
) -> None:
    log, (order, facts) = Log(), ORDERS[operation]
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        await client.send_many("orders", [Draft(body=b"x", transactional=True)] * 2)
        await order(client)
        line = log.lines("operated")[-1]
    assert line["operation"] == operation
    assert {name: line.get(name) for name in facts} == facts
    assert (line["pid"], line["uid"], line["gid"]) == (os.getpid(), os.getuid(), os.getgid())


async def test_what_is_sent_and_taken_has_a_line_and_a_sum_at_the_end(
    topology: Topology, tmp_path: Path
) -> None:
    log = Log()
    async with running(topology, "shop", tmp_path, log):
        async with connect(topology, "shop", tmp_path) as client:
            for _ in range(4):
                await client.send_many("notes", [Draft(body=b"x")] * 5)
            assert await client.receive("notes", 3)
            assert await client.receive("notes", 2)
            with pytest.raises(ZeroDivisionError):
                async with client.transaction("notes", 7):
                    raise ZeroDivisionError  # What is given back is as it was.
            async with client.transaction("notes", 4):
                raise Reject("not for us")
            await client.peek("notes", 5)
            first = said(log)
        assert first == [
            ("send", "notes", 5, None),
            ("receive", "notes", 3, None),
            ("reject", "notes", 4, None),
        ]
        async with connect(topology, "shop", tmp_path) as client:
            await client.queues()
            await client.explain("notes", 1)
        assert said(log)[3:] == [("send", "notes", 15, 3), ("receive", "notes", 2, None)]


def said(log: Log) -> list[tuple[str, str, int, int | None]]:
    return [
        (line["operation"], line["queue"], line["messages"], line.get("requests"))
        for line in log.lines("operated")
    ]


async def test_what_is_moved_together_is_told_of_each_queue(topology: Topology, tmp_path: Path) -> None:
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        draft = Draft(body=b"x", transactional=True)
        await client.send_together([("orders", draft), ("orders", draft)])
        async with client.transaction("orders", 2) as taken:
            taken.send("orders", draft)
        await client.send_many(r"notes,DIRECT=OS:192.0.2.1\private$\q", [Draft(body=b"y")] * 2)
        assert [each[:3] for each in said(log)] == [
            ("send", "orders", 2),
            ("receive", "orders", 2),
            (r"send", r"notes,DIRECT=OS:192.0.2.1\private$\q", 4),
        ]
    assert said(log)[-1] == ("send", "orders", 1, None)


async def test_a_sum_is_told_while_the_connection_lasts(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.node.service.TELL_S", 0)
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        for _ in range(3):
            await client.send("notes", b"x")
        while sum(line["messages"] for line in log.lines("operated")) < 3:
            await log.more()


async def test_an_order_that_was_refused_or_repeated_is_no_deed(topology: Topology, tmp_path: Path) -> None:
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        for order in (client.purge("nowhere"), client.send("orders", b"x"), client.unblock("192.0.2.1")):
            with pytest.raises(MqprotoError):
                await order
        assert log.lines("operated") == []


def test_a_request_that_was_not_allowed_is_a_warning() -> None:
    log = Log()
    deeds = ClientActivity(node_log(log, "shop"), US, lambda _: None)
    deeds.was_refused("purge")
    deeds.moved("send", "orders", 1)
    levels = [log.lines(event)[0]["level"] for event in ("not-allowed", "operated")]
    assert levels == ["warning", "info"]


async def test_nothing_happens_before_its_line_is_written(topology: Topology, tmp_path: Path) -> None:
    """The steps of messages are logged once they are on disk, so the user who deletes messages must be named before
    that.
    """
    log = Log()
    async with running(topology, "shop", tmp_path, log), connect(topology, "shop", tmp_path) as client:
        await client.send("orders", b"one", transactional=True)
        await client.purge("orders")
        events = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert events.index("operated") < events.index("stored")
    [purge] = [place for place, line in enumerate(log.getvalue().splitlines()) if '"purge"' in line]
    assert purge < events.index("purged")
