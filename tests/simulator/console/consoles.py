"""Consoles that run in this process, for tests, and the events that a page gets from one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from mqproto.simulator.base.log import LogLines
from mqproto.simulator.console.serving import serve_console
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.places import Place
from tests.simulator.gateways import NOBODY
from tests.simulator.running import Log


@asynccontextmanager
async def console(
    topology: Topology, directory: Path, log: LogLines | None = None, tokens: Path | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a console on a free port; yield a client that has its token."""
    serve = partial(serve_console, Place(topology, directory), log or Log(), ("127.0.0.1", 0), tokens)
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(serve)
        base, _, token = address.partition("#token=")
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60, verify=NOBODY) as client:
            yield client
        nursery.cancel_scope.cancel()


Next = Callable[[], Awaitable[tuple[str, Any]]]
EVENT: Final = re.compile(rb"event: (\w+)\ndata: (.*)\n\n")


@asynccontextmanager
async def told(client: httpx.AsyncClient, **headers: str) -> AsyncIterator[Next]:
    """Yield a function that returns the next event for a page. Each event comes in a separate chunk."""
    lines = {
        "Host": client.base_url.netloc.decode(),
        "Authorization": client.headers["Authorization"],
    } | headers
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    rest = b""
    async with await trio.open_tcp_stream(client.base_url.host, client.base_url.port or 80) as stream:
        await stream.send_all(f"GET /events HTTP/1.1\r\n{head}\r\n".encode())

        async def following() -> tuple[str, Any]:
            nonlocal rest
            while (found := EVENT.search(rest)) is None:
                part = await stream.receive_some()
                assert part, rest
                rest += part
            rest = rest[found.end() :]
            return found[1].decode(), json.loads(found[2])

        yield following
