"""Gateways as processes: even if they are killed, stopped or overloaded, what producers were told remains true."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.processes import memory_of
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES
from mqproto.simulator.edges.gateway.run import check, run_gateway
from mqproto.simulator.edges.options import GatewayOptions
from mqproto.simulator.topology import Topology, parse
from mqproto.simulator.topology.places import Place
from tests.memory import memory_folder
from tests.simulator.consumers import HttpConsumer, listening
from tests.simulator.gateways import NO_ANSWER, GatewayProcess, ask, options_for, received
from tests.simulator.running import running, until

KILLS = int(os.environ.get("MQPROTO_GATEWAY_KILLS", "2"))
"""The number of times a process is killed in one storm."""
MOVED = int(os.environ.get("MQPROTO_GATEWAY_MOVED", "24"))
"""How many messages pass while their history moves."""
AT_ONCE = 32
ORDERS, NOTES = "/queues/orders/messages", "/queues/notes/messages"


# Crashes


class Storm:
    """Producers who retry and go away, while their node with its gateway is killed again and again."""

    def __init__(self, topology: Topology, folder: Path, callback: str, seed: int, keys: int) -> None:
        self.dice = chance(seed, "gateway storm")
        self.gateway = GatewayProcess(options_for(topology, folder, callback=callback))
        self.keys = [f"order-{number}" for number in range(keys)]
        self.told: dict[str, set[str]] = {}
        """The ids in answers with status 200, by key."""
        self.answers: Counter[str] = Counter()
        self.answered = trio.Event()
        self.room = trio.CapacityLimiter(AT_ONCE)

    async def run(self, kills: int) -> None:
        await self.gateway.start()
        async with trio.open_nursery() as nursery:
            for key in self.keys:
                nursery.start_soon(self.produce, key)
            for _ in range(kills):
                await self._some_more_answers(8)
                await self.gateway.kill()
                await self.gateway.start()

    async def produce(self, key: str) -> None:
        """Send a message until the answer says that it is accepted, and then once more."""
        while self.answers[key] < 2:
            async with self.room:
                await self._ask(key)
            await trio.sleep(0.05)

    async def _ask(self, key: str) -> None:
        with suppress(*NO_ANSWER):
            port = self.gateway.port
            if self.dice.random() < 0.2:
                await self._ask_and_go_away(port, key)
                return
            answer = await ask(port, ORDERS, key.encode(), [("Idempotency-Key", key)])
            if answer.status == 200:
                self.told.setdefault(key, set()).add(answer.body["id"])
                self.answers[key] += 1
                self.answered.set()
                return
            assert answer.status >= 500 or answer.body["code"] == "in-progress", answer.body

    async def _ask_and_go_away(self, port: int, key: str) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            head = f"POST {ORDERS} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Length: {len(key)}\r\n\r\n"
            request = (head + key).encode()
            await stream.send_all(request[: self.dice.choice([len(request), len(request) - 1])])

    async def _some_more_answers(self, count: int) -> None:
        """Wait for this many more answers: kills come after answers, not after a time."""
        wanted = min(self._accepted() + count, 2 * len(self.keys))
        while self._accepted() < wanted:
            self.answered = trio.Event()
            await self.answered.wait()

    def _accepted(self) -> int:
        return sum(self.answers[key] for key in self.keys)


@pytest.mark.long
async def test_however_often_the_node_is_killed_each_message_arrives_once(
    topology: Topology, tmp_path: Path
) -> None:
    """Message Producer Rules, OSB Rules, Eliminating Duplicates on OSB: all of them hold at once.

    Programs that wait for the ends of messages hear about each end.
    """
    told = HttpConsumer()
    async with listening(told):
        storm = Storm(topology, tmp_path, told.url, seed=KILLS, keys=12 * KILLS)

        def ends() -> set[tuple[str, str]]:
            return {(end["id"], end["message"]) for end in map(json.loads, told.bodies)}

        async def all_were_told() -> bool:
            return len(ends()) == len(storm.keys)

        try:
            await storm.run(KILLS)
            found = await received(topology, "destination", tmp_path, "orders")
            await until(all_were_told)
        finally:
            await storm.gateway.kill()
    assert ends() == {(message.body.decode(), str(message.id)) for message in found}
    assert {json.loads(body)["state"] for body in told.bodies} == {"received"}
    assert Counter(message.body.decode() for message in found) == dict.fromkeys(storm.keys, 1)
    assert storm.told == {message.body.decode(): {str(message.id)} for message in found}


# Overload

MEMORY_LIMIT_BYTES = 600 * 2**20


@pytest.mark.long
async def test_under_overload_refusals_are_clear_memory_is_bounded_and_nothing_accepted_is_lost(
    topology: Topology,
) -> None:
    """There are 1,000 connections at once: with small bodies, with bodies at the limit and one byte over it, and from
    slow clients.
    """
    told: Counter[tuple[int, str]] = Counter()
    accepted: set[str] = set()
    async with overloaded(topology) as (process, folder):

        async def one(number: int, size_bytes: int) -> None:
            body = f"{number:08}".encode().ljust(size_bytes, b"x")
            answer = await ask(process.port, NOTES, body, [("Idempotency-Key", str(number))])
            told[answer.status, answer.body.get("code", "")] += 1
            if answer.status == 200:
                accepted.add(f"{number:08}")

        async def stuck(request: bytes) -> None:
            async with await trio.open_tcp_stream("127.0.0.1", process.port) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(request)
                await trio.sleep_forever()

        async with trio.open_nursery() as slow:
            for _ in range(50):
                slow.start_soon(stuck, b"POST ")
                slow.start_soon(
                    stuck, f"POST {NOTES} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx".encode()
                )
                slow.start_soon(stuck, 500 * b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
            async with trio.open_nursery() as nursery:
                for number in range(800):
                    nursery.start_soon(one, number, 1_000)
                for number in range(1_000, 1_018):
                    nursery.start_soon(one, number, LIMIT_BYTES)
                    nursery.start_soon(one, 1_000 + number, LIMIT_BYTES + 1)
            slow.cancel_scope.cancel()
        assert process.process is not None
        peak_bytes = memory_of(process.process.pid).peak_bytes
        found = Counter(
            message.body[:8].decode() for message in await received(topology, "destination", folder, "notes")
        )
    assert set(told) <= {(200, ""), (413, "body-too-large"), (503, "overloaded"), (409, "in-progress")}, told
    assert told[413, "body-too-large"] == 18
    assert told[200, ""] >= 800
    assert accepted <= set(found)
    assert set(found.values()) == {1}
    assert peak_bytes is None or peak_bytes < MEMORY_LIMIT_BYTES


@asynccontextmanager
async def overloaded(topology: Topology) -> AsyncIterator[tuple[GatewayProcess, Path]]:
    """Run a node with a gateway in a process, with its store in memory."""
    with memory_folder() as name:
        process = GatewayProcess(options_for(topology, Path(name)))
        try:
            await process.start()
            yield process, Path(name)
        finally:
            await process.kill()


async def test_very_many_connections_are_served_or_told_to_come_back(topology: Topology) -> None:
    """There are 1,300 connections at once: more than are allowed, and more than the doorway can hold. Those that do not
    fit into the doorway are closed.
    """
    told: Counter[int] = Counter()
    async with overloaded(topology) as (process, _):

        async def one() -> None:
            try:
                told[(await ask(process.port, NOTES, b"x")).status] += 1
            except NO_ANSWER:
                told[0] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(1_300):
                nursery.start_soon(one)
        assert (await ask(process.port, NOTES, b"x")).status == 200
    assert set(told) <= {200, 503, 0}
    assert told[200] >= 1_000


# Beginning and end


async def test_at_sigterm_what_is_under_way_is_answered(topology: Topology, tmp_path: Path) -> None:
    process = GatewayProcess(options_for(topology, tmp_path))
    await process.start()
    assert process.process is not None
    async with await trio.open_tcp_stream("127.0.0.1", process.port) as stream:
        await stream.send_all(
            f"POST {ORDERS} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n".encode()
        )
        assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 100 ")
        process.process.send_signal(signal.SIGTERM)
        await stream.send_all(b"x")
        answer = b"".join([part async for part in stream])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert await process.wait() == 0
    async with running(topology, "destination", tmp_path):
        assert len(await received(topology, "destination", tmp_path, "orders")) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"listen": "0.0.0.0:0"}, "0.0.0.0:0 can be reached from outside: `mqproto node`, gateway and"),
        ({"listen": "0.0.0.0", "allow_remote": True}, "type --tokens FILE, which mqproto tokens make writes"),
        ({"listen": "localhost"}, "localhost is not an IP address: type --listen 127.0.0.1:8080"),
        ({"node": "destinatoin"}, "did you mean 'destination'"),
        ({"key_header": "Schlüssel"}, "--key-header 'Schlüssel': a header has letters"),
        ({"forward_headers": ("Cookie",)}, "--forward-header Cookie: it is of one request alone"),
        ({"connections": 10**9}, "raise `ulimit -n`"),
        ({"tokens": Path("nothing")}, "nothing: No such file or directory; name a file with the tokens"),
    ],
)
async def test_what_cannot_be_is_one_line(
    topology: Topology, tmp_path: Path, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(error)) as refused:
        await trio.to_thread.run_sync(check, options_for(topology, tmp_path, **options))
    assert "\n" not in str(refused.value)


def test_a_topologys_unknown_option_is_one_line(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"node.desk.gateway: unknown key 'lisen'; did you mean 'listen'\?$"):
        GatewayOptions.of(Place(topology, tmp_path), "desk", {"lisen": "127.0.0.1:0"})


async def test_a_port_that_is_taken_is_said_to_be(topology: Topology, tmp_path: Path) -> None:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        options = options_for(topology, tmp_path, listen=f"127.0.0.1:{port}")
        async with running(topology, "destination", tmp_path) as node:
            with pytest.raises(
                UsageError, match="is taken by another program; stop it or name another with --l"
            ):
                await run_gateway(options, node)


@pytest.mark.parametrize(
    ("options", "of_other", "stay", "is_refused"),
    [
        ({}, 'listen = "127.0.0.1:0"', False, True),
        ({}, 'listen = "127.0.0.1:0"', True, False),
        ({}, "", False, False),
        ({}, 'history = "sqlite:///x"', False, True),
        ({"history": "sqlite:///x"}, "", False, False),
        ({"history": "sqlite:///x"}, 'history = "sqlite:///x"', False, False),
        ({"history": "sqlite:///x"}, 'history = "sqlite:///y"', False, True),
    ],
)
def test_two_gateways_share_their_ids_or_it_is_said_that_producers_keep_to_one(
    tmp_path: Path, options: dict[str, str], of_other: str, stay: bool, is_refused: bool
) -> None:
    other = f"[node.b.gateway]\n{of_other}\n" if of_other else ""
    topology = parse(f"producers_stay = {str(stay).lower()}\n[node.a]\n[node.b]\n{other}", "x.toml")
    refusal = (
        pytest.raises(UsageError, match="a and b take messages over HTTP") if is_refused else nullcontext()
    )
    with refusal:
        check(options_for(topology, tmp_path, node="a", **options))
