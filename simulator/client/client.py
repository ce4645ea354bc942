r"""Send messages to a node on this machine, and receive messages from it.

async with connect("three-node", "sender") as client:
    await client.send(r"destination\private$\orders", b"one", transactional=True)

async with connect("three-node", "destination") as client:
    async with client.transaction("orders", limit=10) as messages:
        ...   # committed at the end, rolled back on an exception

A request that changes something is carried out once, even if the node dies; with a journal, even if the client dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, TypedDict, Unpack

import msgspec
import trio

from mqproto.base.errors import FormatNameError, MqprotoError, UsageError
from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.messages.drafts import Draft
from mqproto.neighbours.peerstatus import MetStatus
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client.exchange import PATIENCE_S, Exchange, PendingRequest
from mqproto.simulator.client.journal import Journal, opened
from mqproto.simulator.client.nodeline import NodeUnreachable
from mqproto.simulator.node import control
from mqproto.simulator.node.control import Explanation, InDoubt, Operation, RolledBack, Settlement
from mqproto.simulator.node.received import MessageId, ReceivedMessage, received
from mqproto.simulator.topology import DeclaredQueue, Topology, load, places
from mqproto.wire import Guid

SETTLE_TIMEOUT_S: Final = 5.0
"""The number of seconds that a cancelled task waits to learn what the node did with its messages."""
PART_BYTES: Final = 4 * 2**20
"""The approximate size, in bytes, of a request that carries one part of a long list of messages."""
PARTS_AHEAD: Final = 4
"""The number of parts of a list that may be sent before their answers arrive."""
UNSENT_LIMIT_BYTES: Final = 2 * PART_BYTES


class Reject(Exception):  # noqa: N818
    """Raise this in the block of a `Client.transaction` to refuse its messages for good.

    The block ends there.
    """


class DraftOptions(TypedDict, total=False):
    """The fields of `Draft` other than body and label; here, a queue may be given by any kind of name."""

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
    sender_id: str
    privacy_level: int
    encryption_algorithm: int
    signer: str
    hash_algorithm: int
    dead_letter_queue: str


class ChangedOptions(TypedDict, total=False):
    """The properties of a queue that can be changed; see `control.QueueWish`."""

    quota_kb: int | None
    journal: bool | None
    journal_quota_kb: int | None
    strangers: bool | None
    authenticated: bool | None
    privacy: str | None
    weak_ciphers: list[str] | None
    senders: list[str] | None


class MadeOptions(ChangedOptions, total=False):
    """The properties that a queue can be made with."""

    transactional: bool | None
    public: bytes | None


@asynccontextmanager
async def connect(
    topology: Topology | Path | str,
    name: str = "",
    directory: Path | None = None,
    *,
    journal: Path | None = None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Client]:
    """Yield a client of one node of a topology.

    It reconnects if the node goes away briefly, and each request is carried out once.

    Args:
        topology: a topology, or a value of `--topology`: a shipped topology, a .toml file, or a single node.
        name: the node's name; not needed for a single node.
        directory: the directory of the node's store, if it is not the usual one.
        journal: a file for requests, which are then carried out once even if this process dies. The next process with
            the same journal first learns their outcomes. See `Client.journal`.
        patience_s: how long the node may be away before requests fail.

    Raises:
        NodeUnreachable: the node is not running, or does not answer.
        TopologyError: there is no such topology or node.
        StoreError: the journal cannot be opened.
        UsageError: the journal is for another node, the node speaks another version, or no node is named.
    """
    if not isinstance(topology, Topology):
        topology = load(str(topology), directory)
    if not name and len(topology.nodes) > 1:
        raise UsageError(f"{topology.name} has several nodes; name one: {', '.join(topology.nodes)}")
    node = topology.node_named(name or next(iter(topology.nodes)))
    place = directory or places.default_directory(topology)
    path = places.client_socket(place, node.name)
    stores = None if places.is_for_readers(place, node.name) else directory
    command = places.start_command(topology, node.name, stores)
    async with connect_to(
        path,
        command,
        node.name,
        journal=journal,
        patience_s=patience_s,
        again=places.again(topology, stores),
    ) as client:
        yield client


@asynccontextmanager
async def connect_to(
    path: Path,
    command: str = "`mqproto node NAME`",
    name: str = "",
    *,
    journal: Path | None = None,
    patience_s: float = PATIENCE_S,
    again: str = "",
) -> AsyncIterator[Client]:
    """Yield a client of the node whose socket is at a path.

    Args:
        command: the command that starts the node, to be shown in the error if the node is not running.
        name: the node's name in errors; by default the path of its socket.
        journal, patience_s: as for `connect`, which also lists the errors.
        again: see `Client.again`.
    """
    failure: BaseException | None = None
    with opened(journal) if journal else nullcontext() as kept:
        exchange = Exchange(path, name or str(path), kept, patience_s)
        async with trio.open_nursery() as nursery:
            # An error in the caller's block leaves as itself, not in the nursery's exception group.
            try:
                await exchange.open(nursery, command)
                nursery.start_soon(exchange.run)
                await exchange.recovered()
                yield Client(exchange, kept, again)
            except BaseException as error:
                failure = error
            exchange.close()
    if failure is not None:
        raise failure


class Taken(list[ReceivedMessage]):
    """The messages received in a transaction, and the messages to send if it commits."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease.messages)
        self.drafts: list[tuple[str, Draft]] = []
        self.sent: list[MessageId] = []
        """The identifiers of the messages sent with the commit, in order; empty before the commit.

        Each copy has its own identifier.
        """
        self._lease = lease
        self.is_over = False
        """Whether the block has ended."""

    @property
    def is_held(self) -> bool:
        """Whether the transaction can still commit. If its connection broke, its messages are back in their queue."""
        return self._lease.is_held

    def send(self, destination: str, draft: Draft) -> None:
        """Send a transactional message together with the commit: either both happen, or neither does.

        Raises:
            UsageError: the transaction received nothing, or is over.
        """
        if not self or self.is_over:
            raise UsageError("the transaction received nothing, or is over: send by itself")
        _check(draft)
        self.drafts.append((destination, draft))

    def reply(
        self, message: ReceivedMessage, body: bytes, label: str = "", **options: Unpack[DraftOptions]
    ) -> None:
        """Answer a message together with the commit.

        The answer goes to the queue that the message names, and has the message's correlation id.

        Args:
            options: see `mqproto.messages.drafts.Draft`.

        Raises:
            UsageError: the message names no queue for an answer.
        """
        if not message.response_queue:
            raise UsageError(f"message {message.id} names no queue for an answer (ResponseQueue)")
        correlated: DraftOptions = {"transactional": True, "correlation_id": message.id.correlation_id}
        self.send(message.response_queue, Draft(body=body, label=label, **correlated | options))


class Client:
    """A connection to one node; `connect` makes it. Several tasks may use it at once.

    Every method may raise NodeUnreachable. If the node objects to the request, a method raises UsageError,
    TopologyError or FormatNameError. Methods that change something raise InDoubt if the node went away and did not come
    back in time. Then it is not known whether the request was carried out. With a journal, the next client learns
    whether it was.
    """

    def __init__(self, exchange: Exchange, journal: Journal | None = None, again: str = "") -> None:
        self.node = exchange.node
        self.manager = Guid(exchange.hello.guid)
        """The node's GUID."""
        self.journal = journal
        """The requests with a `tag` and their outcomes, from this process and earlier ones."""
        self.again = again
        """The options that a suggested command needs to find the node."""
        self._exchange = exchange

    async def lost(self) -> None:
        """Wait until the node has been away for too long. From then on, every request fails."""
        await self._exchange.lost.wait()

    async def send(
        self, destination: str, body: bytes, label: str = "", **options: Unpack[DraftOptions]
    ) -> MessageId:
        """Send one message; when this returns, the node has accepted it and, unless it is express, has it on disk.

        If this is cancelled, it is not known whether the node has accepted the message.

        Args:
            destination: a path name or format name of one queue, such as `destination\\private$\\orders`.
            options: see `mqproto.messages.drafts.Draft`.
        """
        if "," in destination:
            raise UsageError(
                f"{destination} names several queues: send_many gives the identifier of each copy"
            )
        [sent] = await self.send_many(destination, [Draft(body=body, label=label, **options)])
        return sent

    async def send_many(self, destination: str, drafts: Iterable[Draft]) -> list[MessageId]:
        """Send messages in order. Either all of them are transactional, or none is.

        A long list is sent in parts, each of which is accepted completely or not at all. An error says nothing about
        earlier parts. `destination` may name several queues, separated by commas. Each queue then gets a copy of each
        message, with its own identifier. The copies of a message follow each other, in the order of the queues' names.
        """
        waiting: deque[PendingRequest] = deque()
        ordinals: list[int] = []
        for part in as_parts(drafts, destination.count(",") + 1):
            if len(waiting) == PARTS_AHEAD:
                ordinals += (await self._exchange.answer(waiting.popleft())).ordinals
            while self._exchange.line.unsent_bytes > UNSENT_LIMIT_BYTES:
                await self._exchange.line.flushed()
            waiting.append(self._ask_to_send(destination, part))
        for pending in waiting:
            ordinals += (await self._exchange.answer(pending)).ordinals
        return [MessageId(self.manager, ordinal) for ordinal in ordinals]

    async def submit(self, destination: str, drafts: list[Draft], tag: bytes) -> list[MessageId]:
        """Send messages in one request, so that either all are accepted or none is.

        The outcome is kept under the tag, in the journal.

        Raises:
            UsageError: the messages are too many or too large for one request, or there is no journal.
        """
        if self.journal is None:
            raise UsageError("nothing is kept under a tag without a journal: connect with one")
        if len(parts := list(as_parts(drafts, destination.count(",") + 1))) > 1:
            raise UsageError(
                f"{len(drafts)} messages are too large for one request: send {len(parts[0])} at once"
            )
        sent: control.Sent = await self._exchange.answer(self._ask_to_send(destination, drafts, tag))
        return [MessageId(self.manager, ordinal) for ordinal in sent.ordinals]

    def _ask_to_send(self, destination: str, drafts: list[Draft], tag: bytes = b"") -> PendingRequest:
        volatile = not any(draft.transactional or draft.recoverable for draft in drafts)
        if volatile and self.journal is not None:
            raise UsageError(
                "an express message does not outlive its node, so a journal is of no use: make it recoverable"
            )
        wish = control.Send(destination, drafts)
        return self._exchange.request(Operation.SEND, wish, volatile=volatile, tag=tag)

    async def send_together(self, messages: Iterable[tuple[str, Draft]]) -> list[MessageId]:
        """Send messages, each to its own destination, as one transaction: all are accepted, or none is.

        Args:
            messages: at most `control.BATCH_LIMIT` transactional messages, each with its destination.

        Raises:
            UsageError: one of them cannot be sent, or they are too many or too large for one transaction.
        """
        transaction = list(messages)
        copies = [destination.count(",") + 1 for destination, _ in transaction]
        size_bytes = 0
        for copy_count, (_, draft) in zip(copies, transaction, strict=True):
            _check(draft)
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
        self,
        queue: str,
        limit: int = 1,
        timeout_s: float | None = None,
        *,
        tag: Callable[[Sequence[ReceivedMessage]], bytes] | None = None,
    ) -> list[ReceivedMessage]:
        """Take up to `limit` messages as soon as there is one; return none if `timeout_s` passes first.

        From then on the messages belong to the caller; if the caller fails, they are lost. They cannot be lost in this
        way if there is a journal, or with `transaction`.

        Args:
            tag: returns the tag for these messages, which the journal keeps before they leave their queue.
        """
        while True:
            lease = await self.lease(queue, limit, timeout_s)
            if not lease.messages:
                return []
            try:
                await lease.settle(Settlement.COMMIT, tag=tag(lease.messages) if tag else b"")
            except RolledBack:
                continue  # The connection broke in between: the messages are back in their queue.
            except StoreError:
                await lease.roll_back()
                raise
            return lease.messages

    @asynccontextmanager
    async def transaction(
        self,
        queue: str,
        limit: int = 1,
        timeout_s: float | None = None,
        *,
        chosen: Iterable[MessageId] | None = None,
        fence: int = 0,
    ) -> AsyncIterator[Taken]:
        """Receive as `receive` does, and commit at the end of the block; an exception rolls back.

        Messages that were rolled back, or whose client disconnected, return to their places in the queue. `Reject`
        refuses them for good and ends the block. `Taken.send` sends other messages together with the commit.

        Args:
            chosen: the only messages to receive; they come in the order of the queue, and `limit` and `timeout_s` are
                ignored.
            fence: a number that increases with each program that takes over as receiver. The messages that earlier
                receivers hold return to the queue first, and these receivers get no more. Use 0 if receivers have no
                such order.

        Raises:
            RolledBack: the connection broke within the block, or a receiver with a higher fence took over. The messages
                are back in the queue.
            UsageError: the messages to send with the commit cannot be sent; the received ones are back in the queue. Or
                a chosen message is not in the node's memory, or is held by another receiver.
        """
        lease = await self.lease(queue, limit, timeout_s, chosen=chosen, fence=fence)
        taken = Taken(lease)
        try:
            settlement = Settlement.COMMIT
            try:
                yield taken
            except Reject:
                settlement, taken.drafts = Settlement.REJECT, []
            finally:
                taken.is_over = True
            if lease.messages:
                taken.sent = await lease.settle(settlement, taken.drafts)
        except BaseException:
            await lease.roll_back()
            raise

    async def lease(
        self,
        queue: str,
        limit: int = 1,
        timeout_s: float | None = None,
        *,
        chosen: Iterable[MessageId] | None = None,
        fence: int = 0,
    ) -> Lease:
        """Receive as `transaction` does, for a program whose transactions are not blocks of code."""
        names = None if chosen is None else [(bytes(one.manager), one.ordinal) for one in chosen]
        wish = control.Receive(queue, limit, timeout_s, names, fence)
        pending = self._exchange.request(Operation.RECEIVE, wish)
        try:
            await self._exchange.answer(pending)
        except trio.Cancelled:
            # Messages may be on their way already; they go back now, not only when the connection ends.
            with trio.move_on_after(SETTLE_TIMEOUT_S, shield=True), suppress(MqprotoError):
                await self._exchange.ask(Operation.ABANDON, control.Abandon(pending.request))
                await self._exchange.answer(pending)
                await Lease(self._exchange, self.manager, pending).roll_back()
            raise
        return Lease(self._exchange, self.manager, pending)

    async def peek(self, queue: str, limit: int = 1) -> list[ReceivedMessage]:
        """Return the first messages of a queue, or as many of them as the node has in memory.

        They stay in the queue.
        """
        found = await self._exchange.ask(Operation.PEEK, control.Peek(queue, limit))
        return received(found.packets, found.delivery_counts)

    async def queues(self) -> NodeStatus:
        """Return the status of the node and of its queues."""
        status: NodeStatus = await self._exchange.ask(Operation.QUEUES, control.Nothing())
        return status

    # For operators

    async def explain(self, subject: str = "", limit: int = 5) -> Explanation:
        """Explain why something waits: return what the node knows about a queue, a node or a message.

        Args:
            subject: the name of a queue or a node, or a message's identifier; empty for all queues.
            limit: the maximum number of messages to include for each queue; for all queues, it is always 1.
        """
        answer: Explanation = await self._exchange.ask(Operation.EXPLAIN, control.Explain(subject, limit))
        return answer

    async def scrub(self) -> None:
        """Erase all traces of messages that have left the node from the files of its store.

        This takes about as long as a backup of the store. The node continues to work meanwhile.
        """
        await self._exchange.ask(Operation.SCRUB, control.Nothing())

    async def pause(self, queue: str) -> None:
        """Send nothing more to a queue or a node until `resume`, even across restarts."""
        await self._exchange.ask(Operation.HOLD, control.Hold(queue, True))

    async def resume(self, queue: str) -> None:
        """Resume sending to a paused queue or node."""
        await self._exchange.ask(Operation.HOLD, control.Hold(queue, False))

    async def peers(self) -> PeersStatus:
        """Return the peers that are or were connected, as far as the node remembers them, and their activity."""
        status: PeersStatus = await self._exchange.ask(Operation.PEERS, control.Nothing())
        return status

    async def block(self, network: str, *, forced: bool = False) -> control.Blocked:
        """Answer no more connections from an address or a network, even after restarts.

        Args:
            forced: whether to do so even if a node of the topology connects from there. Messages to it are still sent.

        Raises:
            UsageError: it is not a network, a node connects from there, or too many are blocked.
        """
        return await self._block(network, is_blocked=True, forced=forced)

    async def unblock(self, network: str) -> control.Blocked:
        """Answer connections from an address or a network again.

        Raises:
            UsageError: it is not blocked.
        """
        return await self._block(network, is_blocked=False, forced=False)

    async def peer(self, wish: control.PeerFacts) -> MetStatus:
        """Tell the node the new or changed address of an undeclared queue manager, or make the node forget it.

        Raises:
            UsageError, FormatNameError: there is no such queue manager, or the wish is not valid.
        """
        found: MetStatus = await self._exchange.ask(Operation.PEER, wish)
        return found

    async def read_keys(self) -> bool:
        """Make the node read its keys again after they have changed. Return True once that is done.

        Raises:
            UsageError: a key file cannot be used; the node keeps its old keys.
        """
        await self._exchange.ask(Operation.KEYS, control.Nothing())
        return True

    async def _block(self, network: str, *, is_blocked: bool, forced: bool) -> control.Blocked:
        wish = control.Block(network, is_blocked, forced)
        blocked: control.Blocked = await self._exchange.ask(Operation.BLOCK, wish)
        return blocked

    async def purge(self, queue: str) -> int:
        """Delete all messages in a queue of the node, or in its outgoing queue to another node.

        Return how many are deleted. A long queue may take a while to become empty. Dead letters and acknowledgments are
        sent as requested.
        """
        return await self._count(Operation.PURGE, control.OneQueue(queue))

    async def declared(self) -> list[DeclaredQueue]:
        """Return the current queues of the node, except journals and system queues."""
        answer: control.Declared = await self._exchange.ask(Operation.DECLARED, control.Nothing())
        return answer.queues

    async def make(self, queue: str, **properties: Unpack[MadeOptions]) -> DeclaredQueue:
        """Make a queue on the node, and return it. The queue survives restarts.

        Args:
            queue: its name, or a path name such as `.\\private$\\orders`.
            properties: see `control.QueueWish`.

        Raises:
            UsageError: there is already a queue of this name, or the properties are not valid.
        """
        made: DeclaredQueue = await self._exchange.ask(Operation.MAKE, control.QueueWish(queue, **properties))
        return made

    async def change(self, queue: str, **properties: Unpack[ChangedOptions]) -> DeclaredQueue:
        """Change properties of a queue permanently; return the changed queue.

        Raises:
            UsageError: the queue cannot be changed, for example because a journal to be removed is not empty.
        """
        changed: DeclaredQueue = await self._exchange.ask(
            Operation.CHANGE, control.QueueWish(queue, **properties)
        )
        return changed

    async def delete(self, queue: str) -> int:
        """Delete a queue of the node with its messages and its journal.

        Return the number of messages that will be deleted, including those in the journal.

        Raises:
            UsageError: it is a system queue, or an application receives from it.
        """
        return await self._count(Operation.DELETE, control.OneQueue(queue))

    async def send_back(self, queue: str, messages: Iterable[MessageId] | None = None) -> int:
        """Send dead letters, or messages of a journal, to their destinations again, as new messages.

        Args:
            queue: the queue that the messages are in, such as `deadxact`.
            messages: the messages to send; None for all that the node has in memory.

        Returns:
            The number of messages sent. Messages that no longer have a destination are not sent.
        """
        chosen = None if messages is None else [(bytes(one.manager), one.ordinal) for one in messages]
        return await self._count(Operation.SEND_BACK, control.SendBack(queue, chosen))

    async def _count(self, operation: Operation, payload: msgspec.Struct) -> int:
        answer: control.Count = await self._exchange.ask(operation, payload)
        return answer.messages


class Lease:
    """Messages that a client holds until it settles them or its connection ends; `Client.lease` makes it.

    Whoever has one must settle it or roll it back.
    """

    def __init__(self, exchange: Exchange, manager: Guid, pending: PendingRequest) -> None:
        handed: control.Messages = pending.outcome()
        self.messages = received(handed.packets, handed.delivery_counts)
        self._exchange = exchange
        self._manager = manager
        self._transaction = handed.transaction
        self._connection = pending.connection
        self._is_open = bool(self.messages)

    @property
    def is_held(self) -> bool:
        """Whether the messages can still be settled. If the connection broke, they are back in their queue."""
        return self._exchange.line.is_on(self._connection)

    async def settle(
        self, settlement: Settlement, drafts: Sequence[tuple[str, Draft]] = (), tag: bytes = b""
    ) -> list[MessageId]:
        """End the transaction; return the identifiers of the messages sent with it.

        Raises:
            RolledBack: the connection broke before.
            UsageError, FormatNameError, StoreError: as for `Client.transaction`. The messages are still held.
        """
        if self._exchange.line.count != self._connection:
            raise RolledBack(
                f"the connection to node {self._exchange.node} broke within the transaction: its messages are where "
                "they were"
            )
        self._is_open = False
        wish = control.Settle(self._transaction, settlement, list(drafts))
        try:
            pending = self._exchange.request(Operation.SETTLE, wish, tag=tag)
            try:
                await pending.answered.wait()
            except trio.Cancelled:
                # It cannot be taken back any more, so try to tell the caller how it ended.
                with trio.move_on_after(SETTLE_TIMEOUT_S, shield=True):
                    await pending.answered.wait()
                if not pending.answered.is_set():
                    self._exchange.forgo(pending)
                    raise
            sent: control.Sent = pending.outcome()
        except (UsageError, FormatNameError, StoreError):
            self._is_open = True
            raise
        return [MessageId(self._manager, ordinal) for ordinal in sent.ordinals]

    async def roll_back(self) -> None:
        """Give the messages back, unless they were settled.

        If this request fails, they return to the queue when the connection ends.
        """
        if self._is_open and not self._exchange.lost.is_set():
            with (
                trio.move_on_after(SETTLE_TIMEOUT_S, shield=True),
                suppress(NodeUnreachable, InDoubt, RolledBack),
            ):
                try:
                    await self.settle(Settlement.ROLL_BACK)
                except StoreError:
                    self._exchange.line.hang_up()


def _check(draft: Draft) -> None:
    if not isinstance(draft.body, (bytes, bytearray, memoryview)):
        raise UsageError(f"the body is a {type(draft.body).__name__}: encode it, because bytes are sent")
    draft.check(names=False)


def as_parts(drafts: Iterable[Draft], copies: int) -> Iterator[list[Draft]]:
    """Yield the drafts in lists. Each list fits into one request, even with `copies` copies of each draft."""
    part: list[Draft] = []
    size_bytes = 0
    for draft in drafts:
        _check(draft)
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
