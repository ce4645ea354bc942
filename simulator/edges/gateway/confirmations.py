r"""Records in the document history what happens to messages after the answer 200.

Each message from a gateway asks for a dead letter, and for acknowledgments that say whether it was received or cannot
be received. These confirmations arrive in the gateway's own queue on its node, and are recorded in the history before
they leave that queue:

    scope `ends`, key `GUID\ordinal`    completed: it was received; failed: it is a dead letter, whose class says why

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
"""The classes of the confirmations that say that a message has ended."""
CONFIRMATIONS: Final = "-confirmations"
"""The end of the name of each queue for confirmations."""
FULL_RECEIVE: Final = ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL | REPORT_NO_RECEIPT
LIMIT: Final = 100
"""The maximum number of confirmations that are taken at once."""
COMPANY_S: Final = 0.05
"""How many seconds to wait for further confirmations, so that many share two flushes: the history's and the node's."""
AGAIN_S: Final = 1.0
"""The number of seconds until an unavailable queue or history is tried again."""


class ConfirmationReader:
    """Takes the confirmations of one gateway.

    Args:
        queue: the name of the queue for confirmations, which is made if it is missing.
        fullness: notified of each confirmation.
        on_end: reports the end of a message to those who wait for it, once the history has recorded it; may raise
            HistoryError.
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
        """The number of messages that have ended, keyed by message class."""
        self._fullness = fullness or FullQueues()
        self._log = log
        self._on_end = on_end

    @property
    def path(self) -> str:
        """Return the queue's name on the gateway's node."""
        return rf".\private$\{self.queue}"

    async def prepare(self, client: Client) -> None:
        """Make the queue if it is missing, and record in the history, for triggers, which gateway owns it.

        Raises:
            UsageError: there is a queue of this name that cannot be used.
            HistoryError: the history cannot be written.
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
        """Take confirmations until the connection to the node is lost."""
        is_well = True
        while True:
            try:
                if not is_well:
                    await self.prepare(client)  # An operator may have deleted the queue.
                    is_well = True
                async with client.transaction(self.queue, limit=LIMIT) as messages:
                    await self._keep(messages)
                self._note(messages)
                if len(messages) < LIMIT:
                    await trio.sleep(COMPANY_S)
            except NodeUnreachable:
                return
            except (RolledBack, InDoubt):
                continue  # They are there still, or the history has them.
            except (HistoryError, StoreError, UsageError) as error:
                self._log.warning("unconfirmed", reason=str(error))
                await trio.sleep(AGAIN_S)
                is_well = False

    async def _keep(self, messages: Sequence[ReceivedMessage]) -> None:
        """Record all these confirmations in the history, and then report the ends of the messages.

        Raises:
            HistoryError: the history is not available.
        """
        ended: list[tuple[str, Attempt, bytes]] = []
        for message in filter(is_confirmation, messages):
            attempt = Attempt.SUCCEEDED if message.message_class == RECEIVED else Attempt.FAILED_FOR_GOOD
            kept = Confirmation(message.message_class, message.record.user.sent_time_s)
            ended.append((str(message.correlation), attempt, msgspec.json.encode(kept)))
        await self._history.finish_all(ENDS, ended)
        if self._on_end is None:
            return
        trouble = ""
        try:
            async with trio.open_nursery() as nursery:
                for name in {name for name, _, _ in ended}:
                    nursery.start_soon(self._on_end, name)
        except* HistoryError as errors:
            trouble = str(errors.exceptions[0])
        if trouble:
            raise HistoryError(trouble)

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
    """Return whether the message was written by a queue manager, not by an application."""
    return message.correlation is not None and message.message_class.startswith(("ACK_", "NACK_"))
