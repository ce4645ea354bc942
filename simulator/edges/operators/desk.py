"""Operators' actions on failed messages.

The document history is updated before a message leaves its queue. If a program dies in between, no message is lost or
processed twice, and the command can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from itertools import groupby
from typing import Final

import msgspec
import trio

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.edge.custody import IN_DOUBT, RESOLVED, RESOLVED_BY, Deed, State
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.client import Client, MessageId, RolledBack, connect, oversee
from mqproto.simulator.edges.history.history import DocumentHistory, open_history
from mqproto.simulator.edges.operators.deeds import facts_of, note_down, returned
from mqproto.simulator.edges.operators.failures import FailedMessage, FailureFilter, lies_as
from mqproto.simulator.edges.operators.reading import failed_in
from mqproto.simulator.edges.trail import BEFORE, ENDS, LIVES, Confirmation, Life
from mqproto.simulator.edges.trigger.errorcopy import original_of
from mqproto.simulator.node.control import BATCH_LIMIT
from mqproto.simulator.topology import places
from mqproto.simulator.topology.places import Place

TOGETHER: Final = 50
"""The maximum number of messages that leave a queue in one transaction.

A transaction also has a limit of a few megabytes.
"""
TOGETHER_BYTES: Final = 2**20
READ_S: Final = 0.02
"""The number of seconds until a node that reads messages from its disk is asked again."""


async def retry(place: Place, history: str, failures: Iterable[FailedMessage]) -> int:
    """Send messages to their queues again, in order; return their number.

    Each message counts as new for its trigger, but keeps its key: its producer's id, or its first identifier. The
    history keeps the outcome of its earlier life.

    Args:
        history: the URL of the document history; empty for the file in the folder of the stores.

    Raises:
        UsageError: a message has left its queue in the meantime, or cannot be sent; the messages before it were sent.
        HistoryError: the history is not available.
        NodeUnreachable, RolledBack, InDoubt: the node went away; unsent messages are still in their queues.
    """

    async def again(client: Client, documents: DocumentHistory | None, some: list[FailedMessage]) -> int:
        letters = [failure for failure in some if failure.is_letter]
        copies = [failure for failure in some if not failure.is_letter]
        facts = facts_of(copies)
        if copies:
            note_down(place.directory, Deed.RETRIED, facts)
        if documents is not None:
            for failure in some:
                await _is_over(documents, failure)
                await documents.reopen(*failure.called)
        count = await client.send_back(letters[0].where, lies_as(letters)) if letters else 0
        if documents is not None and letters:
            called = returned(place.directory)
            for failure in letters:
                await _is_over(documents, failure, called.get(failure.id, ""))
        if not copies:
            return count
        try:
            async with client.transaction(copies[0].where, chosen=lies_as(copies)) as taken:
                for failure, message in zip(copies, taken, strict=True):
                    assert message.id == failure.lies_as, "both are in the order of the queue"
                    taken.send(place.name_at(client.node, failure.queue), original_of(message))
        except (UsageError, FormatNameError, RolledBack):
            note_down(place.directory, Deed.NOT_RETRIED, facts)
            raise
        if documents is not None:
            for failure, name in zip(copies, taken.sent, strict=True):
                await _is_over(documents, failure, str(name))
        names = zip(facts, taken.sent, strict=True)
        note_down(place.directory, Deed.SENT_AGAIN, ({**one, "again": str(name)} for one, name in names))
        return count + len(copies)

    return await _for_each_part(place, history, failures, again)


async def _is_over(documents: DocumentHistory, failure: FailedMessage, again: str = "") -> None:
    """Store the outcome of a message's life, which is about to end or, if `again` is given, has ended.

    If `again` is given, the gateway that has a URL for the message's end finds the message by its next life, too.

    Args:
        again: the new identifier of the message; empty if it is not known yet.
    """
    state = State.DEAD_LETTER if failure.is_letter else State.FAILED
    if failure.failure == IN_DOUBT:
        state = State.IN_DOUBT
    life = Life(state, failure.attempts, failure.reason, again)
    attempt = Attempt.SUCCEEDED if again else Attempt.FAILED_FOR_GOOD
    await documents.finish(LIVES, failure.id, attempt, msgspec.json.encode(life))
    if again:
        await documents.finish(BEFORE, again, Attempt.SUCCEEDED, failure.id.encode())


async def send_back(
    place: Place, node: str | None, queue: str, identifiers: Sequence[str]
) -> tuple[int, int]:
    """Do the same as `oversee.send_back`, and store the outcomes of the dead letters' lives.

    They are stored in the default history.

    Raises:
        As for `oversee.send_back`, and:
        HistoryError: the history is not available; nothing was sent.
        StoreError: a store cannot be read; nothing was sent.
    """
    if not (url := places.history_there(place.directory, "")):
        return await oversee.send_back(place, node, queue, identifiers)
    async with open_history(url) as documents:
        before, _ = await trio.to_thread.run_sync(failed_in, place, FailureFilter())
        done = await oversee.send_back(place, node, queue, identifiers)
        again = returned(place.directory)
        for failure in before:
            if failure.is_letter and failure.id in again:
                await _is_over(documents, failure, again[failure.id])
        return done


async def resolve(place: Place, history: str, failures: Iterable[FailedMessage], note: str) -> int:
    """Remove from their queues the messages that an operator has dealt with; return their number.

    Args:
        history: as for `retry`.
        note: what the operator has done, for those who ask later.

    Raises:
        As for `retry`.
    """
    said = f"{RESOLVED_BY}: {note}" if note else RESOLVED_BY

    async def for_good(client: Client, documents: DocumentHistory | None, some: list[FailedMessage]) -> int:
        note_down(place.directory, Deed.RESOLVED, facts_of(some), note)
        if documents is not None:
            settled = msgspec.json.encode(Confirmation(RESOLVED, int(time.time())))
            for failure in some:
                if failure.is_letter:
                    await documents.finish(ENDS, failure.id, Attempt.SUCCEEDED, settled)
                if not failure.is_letter or failure.failure == IN_DOUBT:
                    await documents.finish(*failure.called, Attempt.SUCCEEDED, said.encode())
        return await _out(client, documents, some)

    return await _for_each_part(place, history, failures, for_good)


async def take_out(place: Place, failures: Iterable[FailedMessage]) -> int:
    """Remove messages from their queues; return their number.

    Raises:
        As for `retry`.
    """
    return await _for_each_part(place, "", failures, _out)


async def _out(client: Client, _: DocumentHistory | None, some: list[FailedMessage]) -> int:
    async with client.transaction(some[0].where, chosen=lies_as(some)):
        return len(some)


async def _for_each_part(
    place: Place,
    history: str,
    failures: Iterable[FailedMessage],
    act: Callable[[Client, DocumentHistory | None, list[FailedMessage]], Awaitable[int]],
) -> int:
    """Call a function with groups of failures, each of one queue and small enough for one transaction.

    Return the sum of the function's results.
    """
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
    """Raised to roll back the transactions of messages that were only in the way, so that they return to their
    queue.
    """


@asynccontextmanager
async def in_parts(
    client: Client, where: str, failures: list[FailedMessage]
) -> AsyncIterator[Callable[[], Awaitable[list[FailedMessage]]]]:
    """Yield a function that returns the messages for the next transaction, or none after the last.

    Only messages in the node's memory can be chosen. So other messages before them are received in transactions, which
    makes the node read further messages, and are returned to the queue at the end.
    """
    left = list(failures)

    async def following() -> list[FailedMessage]:
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


def _together(left: list[FailedMessage], there: Collection[MessageId]) -> list[FailedMessage]:
    """Return the first messages, as many as may leave in one transaction.

    Stop before a message that is not in `there`, the messages in memory.
    """
    some: list[FailedMessage] = []
    size_bytes = 0
    for failure in left[:TOGETHER]:
        size_bytes += failure.packet_bytes
        if failure.lies_as not in there or (some and size_bytes > TOGETHER_BYTES):
            break
        some.append(failure)
    return some
