r"""The client for programs with plain threads.

Each method blocks, and does the same as the method of `Client` with that name.

with connect("three-node", "destination") as client, client.transaction("orders", limit=10) as messages:
    ...   # committed at the end, rolled back on an exception

Any number of threads may use one client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqproto.simulator.client import client as trio_client
from mqproto.simulator.client.client import Client, Taken
from mqproto.simulator.client.portal import THREAD, Held, PortalClient
from mqproto.simulator.node.received import MessageId

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def held(portal: BlockingPortal, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter a trio context manager in the portal, and leave it there at the end of the block."""
    inside = Held(portal, manager)
    value = _called(portal, inside.enter)
    try:
        yield value
    except BaseException as failure:
        if not _called(portal, partial(inside.leave, failure)):
            raise
    else:
        _called(portal, partial(inside.leave, None))


def _called(portal: BlockingPortal, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call a function in the portal, and return its result.

    Ctrl-C ends the call in the portal, even if it comes while the call is being handed over.
    """
    scope = trio.CancelScope()

    async def call() -> T:
        with scope:
            return await function()
        raise trio.BrokenResourceError("it was given up, and nobody hears of it")

    try:
        answer: Future[T] = portal.start_task_soon(call)
        return answer.result()
    except BaseException:
        portal.start_task_soon(scope.cancel)  # Only Ctrl-C can end the wait early.
        raise


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _called(self._portal, partial(method, self._open(), *args, **kwargs))

    return call


class BlockingClient(PortalClient):
    """A connection to one node; `connect` makes it."""

    @contextmanager
    def transaction(
        self,
        queue: str,
        limit: int = 1,
        timeout_s: float | None = None,
        *,
        chosen: Iterable[MessageId] | None = None,
        fence: int = 0,
    ) -> Iterator[Taken]:
        """Do the same as `Client.transaction`."""
        block = self._open().transaction(queue, limit, timeout_s, chosen=chosen, fence=fence)
        with held(self._portal, block) as taken:
            yield taken

    send = _blocking(Client.send)
    send_many = _blocking(Client.send_many)
    send_together = _blocking(Client.send_together)
    submit = _blocking(Client.submit)
    receive = _blocking(Client.receive)
    peek = _blocking(Client.peek)
    queues = _blocking(Client.queues)
    declared = _blocking(Client.declared)
    make = _blocking(Client.make)
    change = _blocking(Client.change)
    delete = _blocking(Client.delete)
    purge = _blocking(Client.purge)
    send_back = _blocking(Client.send_back)
    scrub = _blocking(Client.scrub)
    explain = _blocking(Client.explain)
    pause = _blocking(Client.pause)
    resume = _blocking(Client.resume)
    peers = _blocking(Client.peers)
    peer = _blocking(Client.peer)
    block = _blocking(Client.block)
    unblock = _blocking(Client.unblock)
    read_keys = _blocking(Client.read_keys)
    lost = _blocking(Client.lost)


def _connecting(
    connecting: Callable[P, AbstractAsyncContextManager[Client]],
) -> Callable[P, AbstractContextManager[BlockingClient]]:
    @wraps(connecting)
    @contextmanager
    def connect(*args: P.args, **kwargs: P.kwargs) -> Iterator[BlockingClient]:
        with (
            start_blocking_portal("trio", name=THREAD) as portal,
            held(portal, connecting(*args, **kwargs)) as client,
        ):
            outside = BlockingClient(portal, client)
            try:
                yield outside
            finally:
                outside.is_closed = True

    return connect


connect = _connecting(trio_client.connect)
"""Yield a client of one node, as `mqproto.simulator.client.connect` does.

A separate thread talks to the node.
"""
