r"""The client for programs with plain threads. Every method does what its namesake of `Client` does, and blocks.

with connect("three-node", "destination") as client, client.transaction("orders", limit=10) as messages:
    ...   # committed at the end, rolled back on an exception

Any number of threads may use one client.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqproto.base.errors import UsageError
from mqproto.wire import Guid
from simulator.client import client as trio_client
from simulator.client.client import Client, Reject, Taken
from simulator.client.exchange import PATIENCE_S, NodeUnreachable
from simulator.client.journal import Journal
from simulator.client.portal import Held
from simulator.node.control import InDoubt, RolledBack
from simulator.node.received import MessageId, ReceivedMessage
from simulator.topology import Topology

__all__ = [
    "BlockingClient",
    "InDoubt",
    "MessageId",
    "NodeUnreachable",
    "ReceivedMessage",
    "Reject",
    "RolledBack",
    "Taken",
    "UsageError",
    "connect",
]
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def connect(
    topology: Topology | str,
    name: str = "",
    directory: Path | None = None,
    *,
    journal: Path | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[BlockingClient]:
    """A client of one node, as `simulator.client.connect` has it; a thread of its own speaks to the node.

    Args:
        topology, name, directory, journal, patience_s: as there, which says what is raised as well.
    """
    with start_blocking_portal("trio", name=f"client of {name or topology}") as portal:
        connecting = trio_client.connect(topology, name, directory, journal=journal, patience_s=patience_s)
        with held(portal, connecting) as client:
            yield BlockingClient(portal, client)


@contextmanager
def held(portal: BlockingPortal, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """A context manager of trio's that is entered and left in the portal."""
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
    answer: Future[T] = portal.start_task_soon(function)
    try:
        return answer.result()
    except BaseException:
        answer.cancel()  # Only Ctrl-C comes before it is done.
        raise


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _called(self._portal, partial(method, self._client, *args, **kwargs))

    return call


class BlockingClient:
    """A connection to one node; `connect` makes it."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client

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
        """What was asked for with a tag, and what came of it, in this process and in those before it."""
        return self._client.journal

    @contextmanager
    def transaction(self, queue: str, limit: int = 1, timeout_s: float | None = None) -> Iterator[Taken]:
        """As `Client.transaction`."""
        with held(self._portal, self._client.transaction(queue, limit, timeout_s)) as taken:
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
    explain = _blocking(Client.explain)
    pause = _blocking(Client.pause)
    resume = _blocking(Client.resume)
