"""The gateway's end of the connection to its node.

The node keeps the outcome of a message under a ticket, in the transaction that accepts it, so no flush is needed here.
It remembers the last 64 tickets. A ticket gives up its place when the history has the outcome. Until then, the message
64 places behind it waits. The journal has the gateway's name, and tickets that the node has forgotten.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import MqprotoError
from mqproto.messages.drafts import Draft
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import Client, MessageId, NodeUnreachable, connect
from mqproto.simulator.client.journal import HistorySeen, Journal, opened
from mqproto.simulator.edges.gateway.confirmations import ConfirmationReader
from mqproto.simulator.edges.gateway.gateway import Ticket
from mqproto.simulator.edges.gateway.names import QueueNames
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError, open_history
from mqproto.simulator.topology.places import Place
from mqproto.wire.guid import Guid, guid_text

PATIENCE_S: Final = 5.0
"""The number of seconds that producers wait while the node is gone; then they are refused at once."""
AGAIN_S: Final = 0.25
"""The number of seconds until the next attempt to connect to the node."""
SEEN_EVERY_S: Final = 1.0
"""The maximum number of seconds by which the journal may lag behind the history.

The history's own time is updated at the same interval.
"""

Ended = list[tuple[Ticket, MessageId | MqprotoError]]


def owner_in(journal: Path) -> str:
    """Return the globally unique name of the gateway that has this journal.

    It stays the same across restarts.

    Raises:
        StoreError: the journal is not available, or another process has it.
    """
    with opened(journal) as found:
        return f"gateway {guid_text(Guid(found.invoker))}"


@asynccontextmanager
async def history_known_to(
    journal: Path, url: str, keep_s: float | None, log: FilteringBoundLogger
) -> AsyncIterator[DocumentHistory]:
    """Yield the document history, as `open_history` does.

    Also record in the journal that the journal belongs to this history.

    Raises:
        HistoryError: the history is not available, or lacks ids of this gateway.
        StoreError: the journal is not available, or another process has it.
    """

    def keep() -> None:
        with opened(journal) as found:
            found.saw(history.seen)

    with opened(journal) as found:
        seen = found.seen
    async with open_history(url, keep_s=keep_s, log=log, seen=seen) as history:
        keep()
        yield history
    keep()


class Outlet:
    """Hands messages to one node, over successive connections.

    It is a `mqproto.simulator.edges.gateway.gateway.Submitter`.

    Args:
        names: returns the node's names for queues.
        journal: the file that names the gateway to the node.
        confirmations: takes the confirmations of messages.
        seen: returns the facts about the history that the journal keeps.
    """

    def __init__(
        self,
        place: Place,
        node: str,
        names: QueueNames,
        journal: Path,
        confirmations: ConfirmationReader,
        log: FilteringBoundLogger,
        seen: Callable[[], HistorySeen],
    ) -> None:
        self._seen = seen
        self._topology = place.topology
        self._directory = place.directory
        self._node = node
        self._names = names
        self._journal = journal
        self._confirmations = confirmations
        self._log = log
        self._client: Client | None = None
        self._in_journal = set[bytes]()
        """The tags of tickets that are in the journal, because the node has forgotten them."""
        self.is_connected = False
        """Whether messages can be handed in."""

    async def run(
        self,
        in_question: Callable[[], Awaitable[Iterable[Ticket]]],
        recover: Callable[[Ended], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stay connected. `task_status` is notified of the first connection.

        Args:
            in_question: returns the tickets of messages that the node may have accepted without our knowledge.
            recover: called with the outcomes after each connection, before anything else happens.
        """
        trouble, has_started = "", False
        while True:
            try:
                tags = [_tag(ticket) for ticket in await in_question()]
                async with connect(
                    self._topology,
                    self._node,
                    self._directory,
                    journal=self._journal,
                    recalls=True,
                    in_question=tags,
                    patience_s=PATIENCE_S,
                ) as client:
                    self._client = client
                    # Before anything is asked for, as that takes a place among those that the node remembers.
                    await recover(self._ended(client))
                    assert client.journal is not None
                    await self._confirmations.prepare(client)
                    self.is_connected = True
                    self._log.info("connected", to=self._node)
                    trouble = ""
                    if not has_started:
                        has_started = True
                        task_status.started()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._confirmations.take, client)
                        nursery.start_soon(self._keep_seen, client.journal)
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

    async def submit(self, ticket: Ticket, draft: Draft) -> MessageId:
        """Do what `Submitter.submit` promises."""
        if self._client is None or not self.is_connected:
            raise NodeUnreachable(f"node {self._node} is not running, or does not answer: try again later")
        [identifier] = await self._client.submit(self._names.at_node(ticket.queue), [draft], _tag(ticket))
        return identifier

    def forget(self, ticket: Ticket) -> None:
        """Do what `Submitter.forget` promises. The next connection no longer reports this ticket."""
        if self._client is None or not ticket.key:
            return
        tag = _tag(ticket)
        if self._client.recall is not None:
            self._client.recall.forget(tag)
        if tag in self._in_journal and self._client.journal is not None:
            self._client.journal.forget([tag])

    async def _keep_seen(self, journal: Journal) -> None:
        kept: HistorySeen | None = None
        while True:
            if (seen := self._seen()) != kept:
                with suppress(StoreError):  # The next message that the node has to be told of says so.
                    await trio.to_thread.run_sync(journal.saw, seen)
                    kept = seen
            await trio.sleep(SEEN_EVERY_S)

    def _ended(self, client: Client) -> Ended:
        """Return the tickets that failed or are in doubt, from the journal, and the accepted ones, from the node's
        memory.
        """
        assert client.journal is not None
        assert client.recall is not None
        ended: Ended = []
        self._in_journal.clear()
        for operated in client.journal.operated():
            self._in_journal.add(operated.tag)
            try:
                operated.result()
            except MqprotoError as error:
                ended.append((_ticket(operated.tag), error))
        return ended + [(_ticket(tag), identifier) for tag, [identifier] in client.recall.accepted]


def _tag(ticket: Ticket) -> bytes:
    """Return a ticket as the node keeps it; empty if its message has no id, as nobody will ask about it."""
    return msgspec.msgpack.encode(ticket) if ticket.key else b""


def _ticket(tag: bytes) -> Ticket:
    return msgspec.msgpack.decode(tag, type=Ticket)
