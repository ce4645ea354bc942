"""The gateway's end of the connection to its node, and the journal beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import FormatNameError, MqprotoError, UsageError
from mqproto.messages.drafts import Draft
from mqproto.wire.guid import Guid, guid_text
from simulator.base.storeerrors import StoreError
from simulator.client import Client, InDoubt, MessageId, NodeUnreachable, connect
from simulator.client.journal import opened
from simulator.edges.gateway.confirmations import Confirmations
from simulator.edges.gateway.gateway import Ticket
from simulator.edges.gateway.names import Names
from simulator.edges.history.history import HistoryError
from simulator.topology.places import Place

PATIENCE_S: Final = 5.0
"""A node that is gone for longer is refused to producers at once; before, they wait."""
AGAIN_S: Final = 0.25
"""How long to wait before the node is looked for again."""
SCRUB_S: Final = 1.0
"""How long the journal may have bodies of messages that the node has, once there is a moment without others."""

Ended = list[tuple[Ticket, MessageId | MqprotoError]]


def owner_in(journal: Path) -> str:
    """Names the gateway with this journal, over its restarts, and no other in the world.

    Raises:
        StoreError: it cannot be had, or another process has it.
    """
    with opened(journal) as found:
        return f"gateway {guid_text(Guid(found.invoker))}"


class Outlet:
    """Hands messages to one node, over one connection after another; a `simulator.edges.gateway.gateway.Submitter`.

    Args:
        names: what it calls queues.
        journal: knows what became of messages whose answers nobody heard.
        confirmations: take what becomes of messages later.
    """

    def __init__(
        self,
        place: Place,
        node: str,
        names: Names,
        journal: Path,
        confirmations: Confirmations,
        log: FilteringBoundLogger,
    ) -> None:
        self._topology = place.topology
        self._directory = place.directory
        self._node = node
        self._names = names
        self._journal = journal
        self._confirmations = confirmations
        self._log = log
        self._client: Client | None = None
        self.is_connected = False
        """Whether messages can be handed in."""

    async def run(
        self,
        recover: Callable[[Ended], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stay connected. Starts with the first connection.

        Args:
            recover: is told what has ended, after each connection and before anything else.
        """
        trouble, has_started = "", False
        while True:
            try:
                async with connect(
                    self._topology, self._node, self._directory, journal=self._journal, patience_s=PATIENCE_S
                ) as client:
                    self._client = client
                    await self._confirmations.prepare(client)
                    await recover(_ended(client))
                    self.is_connected = True
                    self._log.info("connected", to=self._node)
                    trouble = ""
                    if not has_started:
                        has_started = True
                        task_status.started()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._confirmations.take, client)
                        nursery.start_soon(self._scrub, client)
                        await client.lost()
                        nursery.cancel_scope.cancel()
                raise NodeUnreachable(f"node {self._node} is gone")
            except (NodeUnreachable, HistoryError) as error:
                if str(error) != trouble:
                    self._log.warning("waiting", reason=str(error))
                trouble = str(error)
            finally:
                self._client, self.is_connected = None, False
            await trio.sleep(AGAIN_S)

    async def _scrub(self, client: Client) -> None:
        """Have no body in the journal's files for long once the node has it."""
        journal = client.journal
        assert journal is not None
        while True:
            await trio.sleep(SCRUB_S)
            if journal.has_leftovers:
                with suppress(StoreError):  # Whoever hands in the next message is told.
                    await trio.to_thread.run_sync(journal.scrub)

    async def submit(self, ticket: Ticket, draft: Draft) -> MessageId:
        """`Submitter.submit`."""
        if self._client is None or not self.is_connected:
            raise NodeUnreachable(f"node {self._node} is not running, or does not answer: try again later")
        journal = self._client.journal
        assert journal is not None
        try:
            [identifier] = await self._client.submit(self._names.at_node(ticket.queue), [draft], _tag(ticket))
        except (UsageError, FormatNameError, NodeUnreachable) as refused:
            try:
                journal.flush()
            except StoreError:
                raise InDoubt(f"{refused}; and that cannot be written") from None
            raise
        return identifier

    def forget(self, ticket: Ticket) -> None:
        """`Submitter.forget`. Without a connection the journal keeps it until there is one."""
        if self._client is not None and self._client.journal is not None and ticket.key:
            self._client.journal.forget([_tag(ticket)])


def _tag(ticket: Ticket) -> bytes:
    """As the journal has it. It keeps nothing of a message without an id, as nobody will ask for that."""
    return msgspec.msgpack.encode(ticket) if ticket.key else b""


def _ended(client: Client) -> Ended:
    """What the journal knows, in the order in which it was handed in."""
    assert client.journal is not None
    ended: Ended = []
    for operated in client.journal.operated():
        ticket = msgspec.msgpack.decode(operated.tag, type=Ticket)
        try:
            [ordinal] = operated.result().ordinals
        except MqprotoError as error:
            ended.append((ticket, error))
        else:
            ended.append((ticket, MessageId(client.manager, ordinal)))
    return ended
