"""The paths /metrics, /live and /ready, as any program offers them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
import trio
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from trio.testing import MockClock

from mqproto.simulator.base.http.framing import RequestHead
from mqproto.simulator.base.http.monitoring import KEPT_S, LIMITS, SLICE_S, Monitored, Monitoring, served
from mqproto.simulator.base.http.server import Answer, Request
from mqproto.simulator.base.log import node_log
from tests.simulator.base.http.test_server import answer_in
from tests.simulator.running import Log


def request(target: str, method: str = "GET") -> Request:
    async def nothing(_: float) -> bytes:
        return b""

    return Request(RequestHead(method, target, {"host": ["here"]}), nothing)


class Asked:
    """A program that counts how often it is asked for its metrics."""

    def __init__(self, families: int = 1, slice_s: float = SLICE_S) -> None:
        self.count = 0
        self.trouble = ""
        self._families = families
        self.monitoring = Monitoring(Monitored(self._collect, lambda: self.trouble), slice_s)

    def _collect(self) -> Iterator[Metric]:
        self.count += 1
        for number in range(self._families):
            yield GaugeMetricFamily(f"asked_{number}", "How often.", self.count)

    async def get(self, target: str, method: str = "GET") -> Answer:
        return await self.monitoring.answer(request(target, method))


async def test_however_many_ask_it_is_looked_once_a_second(autojump_clock: MockClock) -> None:
    asked, bodies = Asked(), set()
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            bodies.add((await asked.get("/metrics?x=1")).body)

        for _ in range(100):
            nursery.start_soon(ask)
    await trio.sleep(KEPT_S / 2)
    bodies.add((await asked.get("/metrics")).body)
    assert (asked.count, len(bodies)) == (1, 1)
    await trio.sleep(KEPT_S / 2)
    assert b"asked_0 2.0" in (await asked.get("/metrics")).body


async def test_others_have_their_turn_when_a_slice_is_over() -> None:
    asked, turns = Asked(families=50, slice_s=0), 0
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def work() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1

            nursery.start_soon(work)
            await asked.get("/metrics")
            scope.cancel()
    assert turns >= 40


async def test_one_that_is_in_trouble_lives_and_is_not_ready() -> None:
    asked = Asked()
    assert (await asked.get("/ready")).status == 200
    asked.trouble = "its disk is full"
    answer = await asked.get("/ready")
    assert (answer.status, answer.body) == (503, b"its disk is full\n")
    assert (await asked.get("/live")).status == 200
    assert asked.count == 0


@pytest.mark.parametrize(
    ("target", "method", "status"), [("/", "GET", 404), ("/metrics/x", "GET", 404), ("/live", "POST", 405)]
)
async def test_there_is_nothing_else_to_be_had(target: str, method: str, status: int) -> None:
    asked = Asked()
    assert (await asked.get(target, method)).status == status
    assert asked.count == 0


async def test_half_sent_requests_on_every_place_keep_nobody_from_asking_whether_it_lives() -> None:
    server = served(Monitored(list, lambda: ""), node_log(Log(), "test"))
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery, AsyncExitStack() as held:
        await nursery.start(server.run, [listener])
        for _ in range(LIMITS.connections):
            half = await held.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            await half.send_all(b"GET /live HTTP/1.1\r\n")
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await answer_in(stream) == (200, b"live\n")
        server.stop()
