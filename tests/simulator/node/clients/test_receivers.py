"""The receivers of a queue: who they are according to the kernel, how long they have been receiving, and what they have
not settled.
"""

from __future__ import annotations

import os
import pwd
import time
from collections import Counter
from pathlib import Path

import trio
from hypothesis import given, strategies as st

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.node.clients.deeds import Credentials
from mqproto.simulator.node.clients.receivers import LISTED, OpenReceive, receivers
from mqproto.simulator.topology import parse
from tests.simulator.running import running

ONE = """
[node.shop]
[node.shop.queue.orders]
[node.shop.queue.notes]
"""
ANN = Credentials(17, 1000, 100, "ann")
US = os.getpid(), os.getuid(), pwd.getpwuid(os.getuid()).pw_name


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]), st.integers(0, 5))))
def test_the_receives_of_one_connection_from_one_queue_are_told_together(
    given_out: list[tuple[int, str, int]],
) -> None:
    receives = [
        OpenReceive(client, ANN, queue, 50 + client, count, 100 + place)
        for place, (client, queue, count) in enumerate(given_out)
    ]
    found, unlisted = receivers(receives)
    sums, first = Counter[tuple[int, str]](), dict[tuple[int, str], int]()
    for place, (client, queue, count) in enumerate(given_out):
        sums[client, queue] += count
        if count:
            first.setdefault((client, queue), 100 + place)
    assert {(one.since_s - 50, one.queue): one.messages for one in found} == sums
    assert {(one.since_s - 50, one.queue): one.given_s for one in found if one.given_s} == first
    assert unlisted == 0
    assert [one.messages for one in found] == sorted((one.messages for one in found), reverse=True)


def test_of_many_those_are_told_that_hold_the_most() -> None:
    found, unlisted = receivers(
        OpenReceive(number, None, "q", number, number % 7, 9) for number in range(3 * LISTED)
    )
    assert (len(found), unlisted) == (LISTED, 2 * LISTED)
    assert min(one.messages for one in found) >= 4
    assert {(one.pid, one.uid, one.user) for one in found} == {(None, None, "")}


async def test_an_operator_sees_who_receives_and_who_holds_what(tmp_path: Path) -> None:
    topology = parse(ONE, "one.toml").with_free_ports()
    began_s = int(time.time())

    async def told(client: Client) -> list[tuple[str, int, bool]]:
        explanation = await client.explain("orders")
        now_s = explanation.status.utc_s
        for one in explanation.receivers:
            assert (one.pid, one.uid, one.user) == US
            assert began_s <= one.since_s <= (one.given_s or now_s) <= now_s
        return [(one.queue, one.messages, one.given_s is None) for one in explanation.receivers]

    async def until(count: int) -> list[tuple[str, int, bool]]:
        while True:
            found = await told(worker)
            if len(found) == count:
                return found
            await trio.sleep(0.01)

    async with (
        running(topology, "shop", tmp_path),
        connect(topology, "shop", tmp_path) as worker,
        connect(topology, "shop", tmp_path) as idle,
        trio.open_nursery() as nursery,
    ):
        await worker.send_many("orders", [Draft(body=b"x")] * 3)
        async with worker.transaction("orders", limit=2), worker.transaction("orders"):
            nursery.start_soon(idle.receive, "orders")
            nursery.start_soon(idle.receive, "notes")
            assert await until(2) == [("orders", 3, False), ("orders", 0, True)]
        assert await until(1) == [("orders", 0, True)]
        nursery.cancel_scope.cancel()
