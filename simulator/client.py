r"""Send to and receive from a node on this machine.

async with connect(load("three-node"), "sender") as client:
    await client.send(r"destination\private$\orders", b"one", transactional=True)

async with connect(load("three-node"), "destination") as client:
    async with client.transaction("orders", limit=10) as messages:
        ...   # committed at the end, rolled back on an exception
"""

from __future__ import annotations

import shlex
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypedDict, Unpack

import msgspec
import trio

from mqproto.applications import Draft
from mqproto.errors import MqprotoError, UsageError
from mqproto.status import NodeStatus
from mqproto.wire import NULL_GUID, Guid
from simulator import control, places
from simulator.connection import Connection, read_buffer
from simulator.control import Explanation, Operation, Settlement
from simulator.exchange import Exchange, InDoubt, NodeUnreachable, Pending
from simulator.received import MessageId, ReceivedMessage, decoded
from simulator.topology import Topology

__all__ = [
    "Client",
    "DraftOptions",
    "InDoubt",
    "MessageId",
    "NodeUnreachable",
    "ReceivedMessage",
    "Reject",
    "connect",
    "connect_to",
]

CONNECT_TIMEOUT_S: Final = 10.0
BUSY_PAUSE_S: Final = 0.02
SETTLE_TIMEOUT_S: Final = 5.0
"""How long a cancelled task waits for the node to say what became of its messages."""
PART_BYTES: Final = 4 * 2**20
"""About how much of a long list of messages goes into one request."""
PARTS_AHEAD: Final = 4
"""How many parts of a list may be on their way at once."""
UNSENT_LIMIT_BYTES: Final = 2 * PART_BYTES


class Reject(Exception):  # noqa: N818
    """Raised within a `Client.transaction`, it refuses the messages for good; the block ends there."""


class DraftOptions(TypedDict, total=False):
    """What `Draft` has beyond a body and a label; its queues go by any name here."""

    transactional: bool
    recoverable: bool
    priority: int
    extension: bytes
    body_type: int
    application_tag: int
    correlation_id: bytes
    time_to_reach_queue_s: int
    time_to_be_received_s: int
    journal_negative: bool
    journal_positive: bool
    final_ack: bool
    admin_queue: str
    response_queue: str
    acknowledgments: int
    trace_queue: str


@asynccontextmanager
async def connect(topology: Topology, name: str, directory: Path | None = None) -> AsyncIterator[Client]:
    """A client of one node of a topology.

    Args:
        directory: where the node's store lies, if not in the usual place.

    Raises:
        NodeUnreachable: the node does not run.
        TopologyError: there is no such node.
    """
    node = topology.node_named(name)
    path = places.socket_path(directory or places.default_directory(topology), node.name)
    command = f"mqproto node {topology.name} {node.name}"
    if directory is not None and directory != places.default_directory(topology):
        command += f" --directory {shlex.quote(str(directory))}"
    async with connect_to(path, command, node.name) as client:
        yield client


@asynccontextmanager
async def connect_to(
    path: Path, command: str = "mqproto node TOPOLOGY NAME", name: str = ""
) -> AsyncIterator[Client]:
    """A client of the node whose socket lies at a path.

    Args:
        command: what starts the node, for the error if it does not run.
        name: how to call the node in errors; by default by its socket.

    Raises:
        NodeUnreachable: nobody listens there, or nobody answers.
    """
    connected = await _connected(path)
    if connected is None:
        raise NodeUnreachable(f"node {name or path} is not running: start it with `{command}`")
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        exchange = Exchange(Connection(connected, nursery, read_buffer()), name or str(path))
        nursery.start_soon(exchange.listen)
        client = Client(exchange)
        # What goes wrong in the caller's block leaves as itself, not in the nursery's group.
        try:
            with trio.move_on_after(CONNECT_TIMEOUT_S) as patience:
                await client._greet()
            if patience.cancelled_caught:
                raise NodeUnreachable(
                    f"node {client.node} does not answer within {CONNECT_TIMEOUT_S:g} s: it is stopped, or very busy"
                )
            yield client
        except BaseException as error:
            failure = error
        exchange.connection.close()
    if failure is not None:
        raise failure


async def _connected(path: Path) -> socket.socket | None:
    """A socket connected to the node, or None if nobody listens."""
    connecting = socket.socket(socket.AF_UNIX)
    connecting.setblocking(False)
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        while True:
            try:
                connecting.connect(str(path))
            except BlockingIOError:
                await trio.sleep(BUSY_PAUSE_S)  # The backlog is full, and no event tells when it is not.
            except OSError:
                break
            else:
                return connecting
    connecting.close()
    return None


class Client:
    """A connection to one node; `connect` makes it. Several tasks may use it at once.

    Every method may raise NodeUnreachable, and what the node says was wrong with the request: UsageError,
    TopologyError or FormatNameError.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.node = exchange.node
        self.manager = NULL_GUID
        """The node's GUID."""
        self._exchange = exchange

    async def send(
        self, destination: str, body: bytes, label: str = "", **options: Unpack[DraftOptions]
    ) -> MessageId:
        """Send one message; when this returns, the node has accepted it, on disk if it is one that is kept.

        If it is cancelled, the node may have accepted it, or not.

        Args:
            destination: a path name or format name, such as `destination\\private$\\orders`; of one queue.
            options: see `mqproto.applications.Draft`.

        Raises:
            InDoubt: the node may have accepted it, or not.
        """
        if "," in destination:
            raise UsageError(
                f"{destination} names several queues: send_many gives the identifier of each copy"
            )
        [sent] = await self.send_many(destination, [Draft(body=body, label=label, **options)])
        return sent

    async def send_many(self, destination: str, drafts: Iterable[Draft]) -> list[MessageId]:
        """Send messages, in order: all of them transactional or none.

        A long list goes in parts, each accepted wholly or not at all; an error says nothing of parts before it.
        `destination` may name several queues, separated by commas. Each gets a copy of each message with an identifier
        of its own; those of one message stand together, in the order of the names.

        Raises:
            InDoubt: the node may have accepted some or all of them.
        """
        waiting: deque[Pending] = deque()
        ordinals: list[int] = []
        for part in _parts(drafts, destination.count(",") + 1):
            if len(waiting) == PARTS_AHEAD:
                ordinals += (await self._exchange.answer(waiting.popleft())).ordinals
            while self._exchange.connection.unsent_bytes > UNSENT_LIMIT_BYTES:
                await self._exchange.connection.flushed()
            waiting.append(self._exchange.request(Operation.SEND, control.Send(destination, part)))
        for pending in waiting:
            ordinals += (await self._exchange.answer(pending)).ordinals
        return [MessageId(self.manager, ordinal) for ordinal in ordinals]

    async def send_together(self, messages: Iterable[tuple[str, Draft]]) -> list[MessageId]:
        """Send messages, each with its destination, as one transaction: all are accepted or none.

        Args:
            messages: transactional ones, at most `control.BATCH_LIMIT` of them.

        Raises:
            UsageError: one of them cannot be sent, or they are too many or too large for one transaction.
            InDoubt: the node may have accepted all of them, or none.
        """
        transaction = list(messages)
        copies = [destination.count(",") + 1 for destination, _ in transaction]
        size_bytes = 0
        for copy_count, (_, draft) in zip(copies, transaction, strict=True):
            draft.check(names=False)
            size_bytes += copy_count * draft.size_bytes
        if sum(copies) > control.BATCH_LIMIT or size_bytes > PART_BYTES:
            raise UsageError(
                f"{sum(copies):,} messages of {size_bytes:,} bytes are too many or too large for one transaction: "
                f"it takes {control.BATCH_LIMIT}, and {PART_BYTES:,} bytes"
            )
        sent: control.Sent = await self._exchange.ask(
            Operation.SEND_TOGETHER, control.SendTogether(transaction)
        )
        return [MessageId(self.manager, ordinal) for ordinal in sent.ordinals]

    async def receive(
        self, queue: str, limit: int = 1, timeout_s: float | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `limit` messages, as soon as there is one; none if `timeout_s` passes first.

        They are the caller's from then on: if it fails, they are lost. `transaction` has no such gap.

        Raises:
            InDoubt: messages may have been taken that did not arrive here.
        """
        messages = await self._receive(Operation.RECEIVE, control.Receive(queue, limit, timeout_s))
        return decoded(messages.packets)

    @asynccontextmanager
    async def transaction(
        self, queue: str, limit: int = 1, timeout_s: float | None = None
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Receive as `receive` does, and commit at the end of the block; an exception rolls back.

        Messages that were rolled back, or whose client went away, return to where they were. `Reject` refuses them for
        good, and ends there.

        Raises:
            InDoubt: the commit may have been carried out, or not.
        """
        wish = control.Receive(queue, limit, timeout_s)
        messages = await self._receive(Operation.RECEIVE_IN_TRANSACTION, wish)
        try:
            yield decoded(messages.packets)
        except Reject:
            settlement = Settlement.REJECT
        except BaseException:
            await self._roll_back(messages)
            raise
        else:
            settlement = Settlement.COMMIT
        if messages.transaction:
            await self._settle(messages.transaction, settlement)

    async def peek(self, queue: str, limit: int = 1) -> list[ReceivedMessage]:
        """Look at the first messages of a queue, as many as the node has in memory. They stay."""
        found = await self._exchange.ask(Operation.PEEK, control.Peek(queue, limit))
        return decoded(found.packets)

    async def queues(self) -> NodeStatus:
        """What waits where."""
        status: NodeStatus = await self._exchange.ask(Operation.QUEUES, control.Nothing())
        return status

    # For operators

    async def explain(self, subject: str = "", limit: int = 5) -> Explanation:
        """Why something waits: all that the node knows of a queue, of a node that messages go to, or of a message.

        Args:
            subject: a queue's name, a node's, or a message's identifier; empty for all queues.
            limit: how many messages of each queue to tell of.
        """
        answer: Explanation = await self._exchange.ask(Operation.EXPLAIN, control.Explain(subject, limit))
        return answer

    async def pause(self, queue: str) -> None:
        """Send nothing more to a queue, or to a node, until `resume`; it stays so over restarts."""
        await self._exchange.ask(Operation.HOLD, control.Hold(queue, True))

    async def resume(self, queue: str) -> None:
        """Go on sending."""
        await self._exchange.ask(Operation.HOLD, control.Hold(queue, False))

    async def purge(self, queue: str) -> int:
        """Delete all that waits in a queue of the node, or in its outgoing queue to another's; how many messages go.

        It may take a while until a long queue is empty. Dead letters and acknowledgments follow as they were asked for.

        Raises:
            InDoubt: it may have been deleted, or not.
        """
        return await self._count(Operation.PURGE, control.OneQueue(queue))

    async def delete(self, queue: str) -> int:
        """Delete a queue of the node, until the node is started anew, and what is in it; how many messages go.

        Raises:
            UsageError: it is the system's, or an application receives from it.
            InDoubt: it may have been deleted, or not.
        """
        return await self._count(Operation.DELETE, control.OneQueue(queue))

    async def send_back(self, queue: str, messages: Iterable[MessageId] | None = None) -> int:
        """Send dead letters, or messages of a journal, to where they were going once more, as new messages.

        Args:
            queue: such as `deadxact`.
            messages: which; None for all, as far as the node has them in memory.

        Returns:
            How many were sent; the others have no destination any more.

        Raises:
            InDoubt: they may have been sent, or not.
        """
        chosen = None if messages is None else [(bytes(one.manager), one.ordinal) for one in messages]
        return await self._count(Operation.SEND_BACK, control.SendBack(queue, chosen))

    # Requests and answers

    async def _count(self, operation: Operation, payload: msgspec.Struct) -> int:
        answer: control.Count = await self._exchange.ask(operation, payload)
        return answer.messages

    async def _greet(self) -> None:
        hello: control.Hello = await self._exchange.ask(Operation.HELLO, control.Nothing())
        if hello.version != control.VERSION:
            raise UsageError(
                f"node {hello.node} speaks version {hello.version} of this protocol, we speak {control.VERSION}: "
                "start it anew"
            )
        self.node = self._exchange.node = hello.node
        self.manager = Guid(hello.guid)

    async def _receive(self, operation: Operation, wish: control.Receive) -> control.Messages:
        pending = self._exchange.request(operation, wish)
        try:
            await pending.answered.wait()
        except trio.Cancelled:
            # Messages may be on their way already; they must not be lost.
            messages = await self._give_up(pending)
            if messages is None or not messages.packets:
                raise
            if operation is Operation.RECEIVE_IN_TRANSACTION:
                await self._roll_back(messages)
                raise
            return messages
        taken: control.Messages = self._exchange.outcome(
            pending
        )  # No checkpoint: a cancelled one would lose them.
        return taken

    async def _give_up(self, pending: Pending) -> control.Messages | None:
        """Wait no longer; what was received nevertheless, or None if that cannot be had."""
        with trio.move_on_after(SETTLE_TIMEOUT_S, shield=True):
            try:
                await self._exchange.ask(Operation.ABANDON, control.Abandon(pending.number))
                messages: control.Messages = await self._exchange.answer(pending)
            except MqprotoError:
                return None
            return messages
        return None

    async def _settle(self, transaction: int, settlement: Settlement) -> None:
        pending = self._exchange.request(Operation.SETTLE, control.Settle(transaction, settlement))
        try:
            await pending.answered.wait()
        except trio.Cancelled:
            # It cannot be taken back any more; better that the caller knows how it ended.
            with trio.move_on_after(SETTLE_TIMEOUT_S, shield=True):
                await pending.answered.wait()
            if not pending.answered.is_set():
                raise
        self._exchange.outcome(pending)

    async def _roll_back(self, messages: control.Messages) -> None:
        """Give them back; if that cannot be asked for, the end of the connection does it."""
        if messages.transaction and not self._exchange.is_lost:
            with trio.move_on_after(SETTLE_TIMEOUT_S, shield=True), suppress(NodeUnreachable, InDoubt):
                await self._exchange.ask(
                    Operation.SETTLE, control.Settle(messages.transaction, Settlement.ROLL_BACK)
                )


def _parts(drafts: Iterable[Draft], copies: int) -> Iterator[list[Draft]]:
    """Drafts in lists, none of which is more than one request carries with so many copies of each."""
    part: list[Draft] = []
    size_bytes = 0
    for draft in drafts:
        draft.check(names=False)
        draft_bytes = copies * draft.size_bytes
        if part and (
            copies * len(part) + copies > control.BATCH_LIMIT or size_bytes + draft_bytes > PART_BYTES
        ):
            yield part
            part, size_bytes = [], 0
        part.append(draft)
        size_bytes += draft_bytes
    if part:
        yield part
