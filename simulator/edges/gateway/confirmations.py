r"""Records what happens to messages after 200: confirmations go to the document history.

Each message that a gateway hands in asks for a dead letter, and for acknowledgments: that it was received, or why it
never will be. They come to a queue of the gateway's own at its node, and go from there into the history before they
leave it:

    scope `ends`, key `GUID\ordinal`    completed: it was received; failed: it is a dead letter, its class says why

[MS-MQMQ] 2.2.18.1.6
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from mqproto.base.errors import UsageError
from mqproto.edge.custody import RECEIVED
from mqproto.edge.exactlyonce import Attempt
from mqproto.formatname import PrivateName
from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, REPORT_NO_ARRIVAL, REPORT_NO_RECEIPT
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client import Client, InDoubt, NodeUnreachable, ReceivedMessage, RolledBack
from mqproto.simulator.edges.gateway.fullness import FullQueues
from mqproto.simulator.edges.history.history import DocumentHistory, HistoryError
from mqproto.simulator.edges.trail import ENDS, OWN_QUEUES, Confirmation
from mqproto.wire import MessageClass

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

CLASSES: Final = (RECEIVED, *(each.name for each in MessageClass if each.name.startswith("NACK_")))
"""With which messages end."""
FULL_RECEIVE: Final = ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL | REPORT_NO_RECEIPT
LIMIT: Final = 100
"""How many are taken at once."""
AGAIN_S: Final = 1.0
"""How long to wait before a queue or a history is tried again that could not be had."""


class ConfirmationReader:
    """Takes the confirmations of one gateway.

    Args:
        queue: the name of the queue that they come to; it is made where it is missing.
        fullness: is told about each.
        on_end: has those told who wait for it, once the history knows; it may raise HistoryError.
    """

    def __init__(
        self,
        queue: str,
        history: DocumentHistory,
        log: FilteringBoundLogger,
        fullness: FullQueues | None = None,
        on_end: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.queue = queue
        self._history = history
        self.ends: Counter[str] = Counter()
        """How many messages have ended with which class."""
        self._fullness = fullness or FullQueues()
        self._log = log
        self._on_end = on_end

    @property
    def path(self) -> str:
        """Return the queue's name at the gateway's node."""
        return rf".\private$\{self.queue}"

    async def prepare(self, client: Client) -> None:
        """See that the queue is there, and that triggers with the same history know whose it is.

        Raises:
            UsageError: there is one of this name that cannot be used.
            HistoryError: the history cannot be told.
        """
        there = {queue.name: queue for queue in await client.declared()}
        queue = there.get(self.queue) or await client.make(self.queue)
        if queue.transactional:
            raise UsageError(
                f"{self.queue} is transactional, and acknowledgments are not: delete the queue, or give the "
                "gateway another --name"
            )
        name = PrivateName(client.manager, queue.identifier)
        await self._history.begin(OWN_QUEUES, str(name), self.queue)

    async def take(self, client: Client) -> None:
        """Take confirmations until the node is gone."""
        while True:
            try:
                async with client.transaction(self.queue, limit=LIMIT) as messages:
                    await self._keep(messages)
                self._note(messages)
            except NodeUnreachable:
                return
            except (RolledBack, InDoubt):
                continue  # They are there still, or the history has them.
            except (HistoryError, StoreError, UsageError) as error:
                self._log.warning("unconfirmed", reason=str(error))
                await trio.sleep(AGAIN_S)
                await self._see_to_the_queue(client)

    async def _see_to_the_queue(self, client: Client) -> None:
        """An operator may have deleted it."""
        try:
            await self.prepare(client)
        except (HistoryError, StoreError, UsageError, NodeUnreachable, InDoubt) as error:
            self._log.warning("unconfirmed", reason=str(error))

    async def _keep(self, messages: Sequence[ReceivedMessage]) -> None:
        """Have all of them in the history."""
        failures: list[HistoryError] = []

        async def keep(message: ReceivedMessage) -> None:
            try:
                await self._finish(message)
            except HistoryError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(keep, message)
        if failures:
            raise failures[0]

    async def _finish(self, message: ReceivedMessage) -> None:
        name = message.correlation
        if name is None or not is_confirmation(message):
            return
        attempt = Attempt.SUCCEEDED if message.message_class == RECEIVED else Attempt.FAILED_FOR_GOOD
        kept = Confirmation(message.message_class, message.record.user.sent_time_s)
        await self._history.finish(ENDS, str(name), attempt, msgspec.json.encode(kept))
        if self._on_end is not None:
            await self._on_end(str(name))

    def _note(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if not is_confirmation(message):
                self._log.warning("no-confirmation", message=str(message.id), reason="somebody has sent it")
                continue
            self.ends[message.message_class] += 1
            self._fullness.ended(str(message.correlation), message.message_class)
            if message.message_class == RECEIVED:
                self._log.info("received", message=str(message.correlation))
            else:
                reason = message.message_class
                self._log.warning("dead-lettered", message=str(message.correlation), reason=reason)


def is_confirmation(message: ReceivedMessage) -> bool:
    """Whether a queue manager wrote it, and not an application."""
    return message.correlation is not None and message.message_class.startswith(("ACK_", "NACK_"))
