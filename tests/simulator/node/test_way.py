"""docs/why/way.md: the stations that it names exist, and a message passes them in the order given there."""

from __future__ import annotations

import re
import sys
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from mqproto.simulator.client import Client, connect
from mqproto.simulator.topology import Topology
from tests.conformance import ROOT
from tests.simulator.running import running, until, until_sent

PAGE: Final = ROOT / "docs" / "why" / "way.md"
STATION: Final = re.compile(r"^(\w+) \| \[`([\w.]+)`\]\((\S+)\) \|", re.M)
NAMED: Final = re.compile(r'class="name"[^>]*>([^<]+)<')
ORDERS: Final = r"destination\private$\orders"


BODY: Final = bytes(4_096)


async def is_awaited(consumer: Client) -> bool:
    return any(queue.consumers for queue in (await consumer.queues()).local)


async def receive(consumer: Client) -> None:
    assert [message.body for message in await consumer.receive("orders")] == [BODY]


async def test_a_message_passes_the_stations_of_its_page_in_this_order(
    topology: Topology, tmp_path: Path, idle_clock: Any
) -> None:
    rows = STATION.findall(PAGE.read_text("utf-8"))
    stations = [(process, str((PAGE.parent / link).resolve()), name) for process, name, link in rows]
    assert {process for process, *_ in stations} == {"client", *topology.nodes}
    at = ContextVar("at", default="client")
    passed: list[tuple[str, str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname in names:
            passed.append((at.get(), str(Path(code.co_filename).resolve()), code.co_qualname))

    names = {name for *_, name in stations}
    async with AsyncExitStack() as stack:
        for name in topology.nodes:
            at.set(name)
            await stack.enter_async_context(running(topology, name, tmp_path))
        at.set("client")
        sender, consumer = [
            await stack.enter_async_context(connect(topology, name, tmp_path))
            for name in ("sender", "destination")
        ]
        before = sys.getprofile()
        for profile in (before, note):  # The first message finds no sessions.
            sys.setprofile(profile)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive, consumer)
                await until(partial(is_awaited, consumer))
                await sender.send(ORDERS, BODY, transactional=True)
            await until_sent(sender)
        sys.setprofile(before)
    following = iter(passed)
    assert [station for station in stations if station not in following] == []


def test_the_picture_has_the_stations_of_the_page() -> None:
    names = [name for _, name, _ in STATION.findall(PAGE.read_text("utf-8"))]
    assert NAMED.findall((PAGE.parent / "way.svg").read_text("utf-8")) == names
