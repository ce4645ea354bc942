"""An application that sends, and knows whether its queue manager has accepted each message, whatever breaks.

The client asks again when a node comes back, and each request is carried out once. If the node stays away for too long,
it is unknown whether a request was carried out. Such a request is not repeated, and each of its messages may arrive
once or not at all. Messages that could not be handed over are handed over when the node is back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Any, Final

import trio

from mqproto.messages.drafts import Draft
from mqproto.simulator.client import Client, InDoubt, MessageId, NodeUnreachable
from mqproto.simulator.rig.load.consumer import RECONNECT_S
from mqproto.simulator.rig.load.workload import Item, Workload, as_batches
from mqproto.simulator.rig.proof import Sent, digest_of
from mqproto.simulator.security.keyfiles import SIGNING
from mqproto.turn.guard import STRONG

BEAT_S: Final = 0.02
"""The interval, in seconds, at which due messages are handed over."""
FINAL_ACK_EVERY: Final = 10
"""One transactional message in this many asks for an acknowledgment of its receipt, a FinalAck."""


class Producer:
    """Sends a workload to one queue, spread evenly over a period.

    Args:
        connect: opens a connection to the sending node.
        queue: the destination.
        transactional: whether messages must arrive exactly once and in order; if not, they are recoverable, and must
            not be lost.
        protected: whether each message is encrypted, and signed by the node.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        queue: str,
        workload: Workload,
        *,
        transactional: bool = True,
        protected: bool = False,
    ) -> None:
        self.sent: list[Sent] = []
        """The messages that were handed over, in order, including those in doubt."""
        self.sent_bytes = 0
        self._connect = connect
        self._queue = queue
        self.is_transactional = transactional
        self._protection: dict[str, Any] = {"privacy_level": STRONG, "signer": SIGNING} if protected else {}
        self._count = workload.count
        self._items = workload.items()
        self._due: list[Item] = []
        self._is_stopped = False

    async def run(self, span_s: float) -> None:
        """Send the workload, within `span_s` if the node is up. Connect again whenever the node is gone."""
        start_s = trio.current_time()
        await self.keep_up(lambda: int(self._count * (trio.current_time() - start_s) / span_s) + 1)

    async def keep_up(self, due: Callable[[], int]) -> None:
        """Send until the whole workload is sent. Connect again whenever the node is gone.

        Args:
            due: returns the number of messages that should have been sent by now.
        """
        while not self._is_done:
            try:
                async with self._connect() as client:
                    while not self._is_done:
                        await self._send_due(client, min(self._count, due()))
                        await trio.sleep(BEAT_S)
            except NodeUnreachable:
                await trio.sleep(RECONNECT_S)

    def stop(self) -> None:
        """Hand over no more messages; `run` then ends after the answer to the last request."""
        self._is_stopped = True

    @property
    def _is_done(self) -> bool:
        return self._is_stopped or len(self.sent) >= self._count

    @property
    def has_due(self) -> bool:
        """Whether messages are waiting to be handed over."""
        return bool(self._due)

    async def _send_due(self, client: Client, due: int) -> None:
        """Hand over messages until this many are sent.

        Raises:
            NodeUnreachable: the node is gone; messages that were not handed over are still due.
        """
        self._due += islice(self._items, max(0, due - len(self.sent) - len(self._due)))
        drafts = [self._draft(place, item) for place, item in enumerate(self._due, len(self.sent))]
        for batch in as_batches(drafts):  # One request each, which is accepted wholly or not at all.
            if self._is_stopped:
                return
            await self._send(client, batch)
            del self._due[: len(batch)]

    async def _send(self, client: Client, drafts: list[Draft]) -> None:
        at_s = trio.current_time()
        identifiers: list[MessageId] | list[None]
        try:
            identifiers = await client.send_many(self._queue, drafts)
        except InDoubt:
            identifiers = [None] * len(drafts)
        for identifier, draft in zip(identifiers, drafts, strict=True):
            self.sent.append(Sent(identifier, digest_of(draft.label, draft.body), at_s))
            self.sent_bytes += len(draft.body)

    def _draft(self, place: int, item: Item) -> Draft:
        return Draft(
            body=item.body,
            label=item.label,
            transactional=self.is_transactional,
            recoverable=not self.is_transactional,
            final_ack=self.is_transactional and place % FINAL_ACK_EVERY == 0,
            **self._protection,
        )


async def produce(producers: Sequence[Producer], span_s: float, patience_s: float) -> bool:
    """Let producers send evenly over `span_s`.

    On a slow machine, messages that are still unsent `patience_s` later are dropped.

    Returns:
        False if, after `span_s`, no message was accepted for a whole `patience_s` although the
        producers were not done; otherwise True.
    """
    idle = False

    async def see_to_the_end(scope: trio.CancelScope) -> None:
        nonlocal idle
        await trio.sleep(span_s)
        while not idle:
            before = [len(producer.sent) for producer in producers]
            await trio.sleep(patience_s)
            idle = before == [len(producer.sent) for producer in producers]
            for producer in producers:
                producer.stop()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(see_to_the_end, nursery.cancel_scope)
        async with trio.open_nursery() as producing:
            for producer in producers:
                producing.start_soon(producer.run, span_s)
        nursery.cancel_scope.cancel()
    return not idle
