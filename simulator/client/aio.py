r"""The client for programs that use asyncio.

Each method does the same as the method of `Client` with that name.

async with connect("three-node", "destination") as client:
    async with client.transaction("orders", limit=10) as messages:
        ...   # committed at the end, rolled back on an exception

Any number of tasks may use one client. When a task is cancelled, its request ends before the task continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqproto.simulator.client import client as trio_client
from mqproto.simulator.client.client import Client, Taken
from mqproto.simulator.client.portal import THREAD, Held, PortalClient
from mqproto.simulator.node.received import MessageId

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def _held(portal: BlockingPortal, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    held = Held(portal, manager)
    value = await portal.call_async(held.enter)
    try:
        yield value
    except BaseException as failure:
        if not await portal.call_async(held.leave, failure):
            raise
    else:
        await portal.call_async(held.leave, None)


def _asynchronous(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncioClient, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def call(self: AsyncioClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._portal.call_async(partial(method, self._open(), *args, **kwargs))

    return call


class AsyncioClient(PortalClient):
    """A connection to one node; `connect` makes it."""

    @asynccontextmanager
    async def transaction(
        self,
        queue: str,
        limit: int = 1,
        timeout_s: float | None = None,
        *,
        chosen: Iterable[MessageId] | None = None,
        fence: int = 0,
    ) -> AsyncIterator[Taken]:
        """Do the same as `Client.transaction`."""
        block = self._open().transaction(queue, limit, timeout_s, chosen=chosen, fence=fence)
        async with _held(self._portal, block) as taken:
            yield taken

    send = _asynchronous(Client.send)
    send_many = _asynchronous(Client.send_many)
    send_together = _asynchronous(Client.send_together)
    submit = _asynchronous(Client.submit)
    receive = _asynchronous(Client.receive)
    peek = _asynchronous(Client.peek)
    queues = _asynchronous(Client.queues)
    declared = _asynchronous(Client.declared)
    make = _asynchronous(Client.make)
    change = _asynchronous(Client.change)
    delete = _asynchronous(Client.delete)
    purge = _asynchronous(Client.purge)
    send_back = _asynchronous(Client.send_back)
    scrub = _asynchronous(Client.scrub)
    explain = _asynchronous(Client.explain)
    pause = _asynchronous(Client.pause)
    resume = _asynchronous(Client.resume)
    peers = _asynchronous(Client.peers)
    peer = _asynchronous(Client.peer)
    block = _asynchronous(Client.block)
    unblock = _asynchronous(Client.unblock)
    read_keys = _asynchronous(Client.read_keys)
    lost = _asynchronous(Client.lost)


def _connecting(
    connecting: Callable[P, AbstractAsyncContextManager[Client]],
) -> Callable[P, AbstractAsyncContextManager[AsyncioClient]]:
    @wraps(connecting)
    @asynccontextmanager
    async def connect(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[AsyncioClient]:
        with start_blocking_portal("trio", name=THREAD) as portal:
            async with _held(portal, connecting(*args, **kwargs)) as client:
                outside = AsyncioClient(portal, client)
                try:
                    yield outside
                finally:
                    outside.is_closed = True

    return connect


connect = _connecting(trio_client.connect)
"""Yield a client of one node, as `mqproto.simulator.client.connect` does.

A separate thread talks to the node.
"""
