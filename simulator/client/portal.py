"""A thread that runs trio for programs that do not, and context managers that are held open there.

anyio's portal carries calls into the thread, and brings their results back. `Held` is a context manager that is entered
and left from another thread.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar

import trio
from anyio.from_thread import BlockingPortal

from mqproto.base.errors import MqprotoError
from mqproto.simulator.client.client import Client
from mqproto.simulator.client.journal import Journal
from mqproto.simulator.client.nodeline import NodeUnreachable
from mqproto.wire import Guid

T = TypeVar("T")
THREAD: Final = "mqproto client"
"""The name of the thread."""
GONE: Final = "the client was closed within the block: what was not committed goes back to its queue"


class _LeftError(Exception):
    """A block was left by an exception, such as KeyboardInterrupt, that ends only its own thread or task."""


class PortalClient:
    """The base class of the clients for programs without trio. It calls a `Client` through a portal."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client
        self.is_closed = False
        """Whether the block of `connect` has ended."""

    @property
    def node(self) -> str:
        """The node's name."""
        return self._client.node

    @property
    def manager(self) -> Guid:
        """The node's GUID."""
        return self._client.manager

    @property
    def journal(self) -> Journal | None:
        """The requests with a tag and their outcomes, from this process and earlier ones."""
        return self._client.journal

    def _open(self) -> Client:
        if self.is_closed:
            raise NodeUnreachable(f"this client of {self.node} was closed: connect again")
        return self._client


class Held(Generic[T]):
    """A trio context manager that is entered and left by the same task in the portal, as trio requires.

    The portal calls `enter` and `leave` once each.
    """

    def __init__(self, portal: BlockingPortal, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._values: list[T] = []
        self._failure: Exception | None = None
        self._raised: Exception | None = None
        self._entered, self._left, self._ended = trio.Event(), trio.Event(), trio.Event()
        self._scope = trio.CancelScope()
        portal.start_task_soon(self._hold)

    async def _hold(self) -> None:
        try:
            with self._scope:
                async with self._manager as value:
                    self._values.append(value)
                    self._entered.set()
                    await self._left.wait()
                    if self._failure is not None:
                        raise self._failure
        except Exception as error:
            self._raised = error
        except trio.Cancelled:
            self._raised = MqprotoError(GONE)
            raise
        finally:
            self._entered.set()
            self._ended.set()

    async def enter(self) -> T:
        """Enter the context manager; return its value.

        If this call is cancelled, the context manager is not entered.
        """
        await self._until(self._entered)
        if self._values:
            return self._values[0]
        assert self._raised is not None, "it gives something, or raises"
        raise self._raised

    async def leave(self, failure: BaseException | None) -> bool:
        """Leave the context manager just as the caller's block was left. Return whether it suppresses the
        exception.
        """
        self._failure = failure if failure is None or isinstance(failure, Exception) else _LeftError()
        self._left.set()
        await self._until(self._ended)
        if self._raised is not None and self._raised is not self._failure:
            raise self._raised
        return self._raised is None

    async def _until(self, event: trio.Event) -> None:
        try:
            await event.wait()
        except trio.Cancelled:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._ended.wait()
            raise
