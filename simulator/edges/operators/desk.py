"""What an operator does about messages that have failed.

The document history is put right first, and a message leaves its queue afterwards. If one of them dies in between,
nothing is lost or processed twice: the same is done once more.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from itertools import groupby
from typing import Final

import msgspec
import trio

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.client import Client, MessageId, RolledBack, connect
from mqproto.simulator.edges.gateway.confirmations import ENDS, RESOLVED, Confirmation
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.operators.deeds import Deed, facts_of, note_down
from mqproto.simulator.edges.operators.failures import Failure, lies_as
from mqproto.simulator.edges.trigger.errorcopy import original_of
from mqproto.simulator.node.control import BATCH_LIMIT
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place

TOGETHER: Final = 50
"""How many messages leave a queue in one transaction at most; it takes a few megabytes of them."""
TOGETHER_BYTES: Final = 2**20
READ_S: Final = 0.02
"""How long to wait before a node is looked at again that reads messages from its disk."""
RESOLVED_BY: Final = "resolved by an operator"
"""How the outcome begins that the history has of what was settled by hand."""


async def retry(place: Place, history: str, failures: Iterable[Failure]) -> int:
    """Send messages where they were once more, in their order; how many went.

    Each is new to its trigger, under the key that it had: its producer's id, or its first identifier.

    Args:
        history: the URL of the document history; empty for the file beside the stores.

    Raises:
        UsageError: one of them has left its queue meanwhile, or cannot be sent; those before it went.
        HistoryError: the history cannot be had.
        NodeUnreachable, RolledBack, InDoubt: the node went away; what has not gone is where it was.
    """

    async def again(client: Client, documents: DocumentHistory | None, some: list[Failure]) -> int:
        letters = [failure for failure in some if failure.is_letter]
        copies = [failure for failure in some if not failure.is_letter]
        count = await client.send_back(letters[0].where, lies_as(letters)) if letters else 0
        if not copies:
            return count
        facts = facts_of(copies)
        note_down(place.directory, Deed.RETRIED, facts)
        if documents is not None:
            for failure in copies:
                await documents.reopen(*failure.called)
        try:
            async with client.transaction(copies[0].where, chosen=lies_as(copies)) as taken:
                for failure, message in zip(copies, taken, strict=True):
                    assert message.id == failure.lies_as, "both are in the order of the queue"
                    taken.send(place.name_at(client.node, failure.queue), original_of(message))
        except (UsageError, FormatNameError, RolledBack):
            note_down(place.directory, Deed.NOT_RETRIED, facts)
            raise
        names = zip(facts, taken.sent, strict=True)
        note_down(place.directory, Deed.SENT_AGAIN, ({**one, "again": str(name)} for one, name in names))
        return count + len(copies)

    return await _for_each_part(place, history, failures, again)


async def resolve(place: Place, history: str, failures: Iterable[Failure], note: str) -> int:
    """Take messages out of their queues for good, as somebody has seen to them; how many.

    Args:
        history: as for `retry`.
        note: what was done, for those who ask later.

    Raises:
        As for `retry`.
    """
    said = f"{RESOLVED_BY}: {note}" if note else RESOLVED_BY

    async def for_good(client: Client, documents: DocumentHistory | None, some: list[Failure]) -> int:
        note_down(place.directory, Deed.RESOLVED, facts_of(some), note)
        if documents is not None:
            settled = msgspec.json.encode(Confirmation(RESOLVED, int(time.time())))
            for failure in some:
                scope, key = (ENDS, failure.id) if failure.is_letter else failure.called
                kept = settled if failure.is_letter else said.encode()
                await documents.finish(scope, key, Attempt.SUCCEEDED, kept)
        return await _out(client, documents, some)

    return await _for_each_part(place, history, failures, for_good)


async def take_out(place: Place, failures: Iterable[Failure]) -> int:
    """Take messages out of their queues for good; how many.

    Raises:
        As for `retry`.
    """
    return await _for_each_part(place, "", failures, _out)


async def _out(client: Client, _: DocumentHistory | None, some: list[Failure]) -> int:
    async with client.transaction(some[0].where, chosen=lies_as(some)):
        return len(some)


async def _for_each_part(
    place: Place,
    history: str,
    failures: Iterable[Failure],
    act: Callable[[Client, DocumentHistory | None, list[Failure]], Awaitable[int]],
) -> int:
    """Do something with what goes in one transaction each, in the order of their queues; the sum of what it gives."""
    count = 0
    ordered = sorted(failures, key=lambda failure: (failure.node, failure.where))
    url = places.history_there(place.directory, history)
    async with open_history(url) if url else nullcontext() as documents:
        for (node, where), run in groupby(ordered, key=lambda failure: (failure.node, failure.where)):
            async with (
                connect(place.topology, node, place.directory) as client,
                in_parts(client, where, list(run)) as following,
            ):
                while some := await following():
                    count += await act(client, documents, some)
    return count


class _PutBackError(Exception):
    """Ends the transactions of what was only in the way."""


@asynccontextmanager
async def in_parts(
    client: Client, where: str, failures: list[Failure]
) -> AsyncIterator[Callable[[], Awaitable[list[Failure]]]]:
    """The messages that go next in one transaction, each time that it is called; none when all have gone.

    Only what is in its node's memory can be chosen. So messages before them that are not meant are received in
    transactions, that the node reads on, and are back in their places at the end.
    """
    left = list(failures)

    async def following() -> list[Failure]:
        while left:
            there = {message.id for message in await client.peek(where, BATCH_LIMIT)}
            if some := _together(left, there):
                del left[: len(some)]
                return some
            if in_the_way := there - set(lies_as(left)):
                await held.enter_async_context(client.transaction(where, chosen=in_the_way))
                continue
            [status] = [queue for queue in (await client.queues()).local if queue.name == where]
            if there or status.waiting == status.unsettled:
                raise UsageError(f"{where} has no message {left[0].lies_as}: somebody has it, or it has left")
            await trio.sleep(READ_S)  # The node is reading.
        return []

    with suppress(_PutBackError):
        async with AsyncExitStack() as held:
            yield following
            raise _PutBackError


def _together(left: list[Failure], there: Collection[MessageId]) -> list[Failure]:
    """The first of them, as far as they are there and not too large together."""
    some: list[Failure] = []
    size_bytes = 0
    for failure in left[:TOGETHER]:
        size_bytes += failure.packet_bytes
        if failure.lies_as not in there or (some and size_bytes > TOGETHER_BYTES):
            break
        some.append(failure)
    return some
