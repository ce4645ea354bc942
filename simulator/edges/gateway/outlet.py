"""The gateway's end of the connection to its node.

What came of a message is kept by the node, under a ticket and in the transaction that accepts it; so a message costs no
flush here. The node remembers the last 64, and a message gives up its place when the history knows how it ended: until
then those that are 64 behind it wait. The journal has the gateway's name, and what the node has forgotten.
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
"""A node that is gone for longer is refused to producers at once; before, they wait."""
AGAIN_S: Final = 0.25
"""How long to wait before the node is looked for again."""
SEEN_EVERY_S: Final = 1.0
"""How far the journal may be behind the history, whose own time moves as often."""

Ended = list[tuple[Ticket, MessageId | MqprotoError]]


def owner_in(journal: Path) -> str:
    """Names the gateway with this journal, over its restarts, and no other in the world.

    Raises:
        StoreError: it is not available, or another process has it.
    """
    with opened(journal) as found:
        return f"gateway {guid_text(Guid(found.invoker))}"


@asynccontextmanager
async def history_known_to(
    journal: Path, url: str, keep_s: float | None, log: FilteringBoundLogger
) -> AsyncIterator[DocumentHistory]:
    """The document history, as of `open_history`; it is the one that this journal knows, from now on.

    Raises:
        HistoryError: it is not available, or lacks ids of this gateway.
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
    """Hands messages to one node, over one connection after another; a
    `mqproto.simulator.edges.gateway.gateway.Submitter`.

    Args:
        names: what it calls queues.
        journal: names the gateway to the node.
        confirmations: take what becomes of messages later.
        seen: what the journal is to know of the history.
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
        """The tags of tickets that the journal has, and not the node."""
        self.is_connected = False
        """Whether messages can be handed in."""

    async def run(
        self,
        in_question: Callable[[], Awaitable[Iterable[Ticket]]],
        recover: Callable[[Ended], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Stay connected. Starts with the first connection.

        Args:
            in_question: tells which messages the node may have without our knowledge.
            recover: is told what has ended, after each connection and before anything else.
        """
        trouble, has_started = "", False
        while True:
            try:
                tags = [_tag(ticket) for ticket in await in_question()]
                await self._finish_earlier()
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
                    client.journal.scrub()  # An earlier version had bodies in it.
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
        """`Submitter.submit`."""
        if self._client is None or not self.is_connected:
            raise NodeUnreachable(f"node {self._node} is not running, or does not answer: try again later")
        [identifier] = await self._client.submit(self._names.at_node(ticket.queue), [draft], _tag(ticket))
        return identifier

    def forget(self, ticket: Ticket) -> None:
        """`Submitter.forget`. The next connection is not told about it any more."""
        if self._client is None or not ticket.key:
            return
        tag = _tag(ticket)
        if self._client.recall is not None:
            self._client.recall.forget(tag)
        if tag in self._in_journal and self._client.journal is not None:
            self._client.journal.forget([tag])

    async def _finish_earlier(self) -> None:
        """Have the node asked for what a gateway of an earlier version had under way, which its journal has."""
        with opened(self._journal) as journal:
            _, pending = journal.state()
        if pending:
            async with connect(
                self._topology, self._node, self._directory, journal=self._journal, patience_s=PATIENCE_S
            ):
                pass

    async def _keep_seen(self, journal: Journal) -> None:
        kept: HistorySeen | None = None
        while True:
            if (seen := self._seen()) != kept:
                with suppress(StoreError):  # The next message that the node has to be told of says so.
                    await trio.to_thread.run_sync(journal.saw, seen)
                    kept = seen
            await trio.sleep(SEEN_EVERY_S)

    def _ended(self, client: Client) -> Ended:
        """What the journal knows, and what the node remembers."""
        assert client.journal is not None
        assert client.recall is not None
        ended: Ended = []
        self._in_journal.clear()
        for operated in client.journal.operated():
            self._in_journal.add(operated.tag)
            ticket = _ticket(operated.tag)
            try:
                [ordinal] = operated.result().ordinals
            except MqprotoError as error:
                ended.append((ticket, error))
            else:
                ended.append((ticket, MessageId(client.manager, ordinal)))
        return ended + [(_ticket(tag), identifier) for tag, [identifier] in client.recall.accepted]


def _tag(ticket: Ticket) -> bytes:
    """As the node has it. It keeps nothing of a message without an id, as nobody will ask for that."""
    return msgspec.msgpack.encode(ticket) if ticket.key else b""


def _ticket(tag: bytes) -> Ticket:
    return msgspec.msgpack.decode(tag, type=Ticket)
