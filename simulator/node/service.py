"""The node's end of the protocol in control.py.

Clients' requests are fed to the core as they come. Each is answered after the commit of its batch, so a client may rely
on an answer that a message is accepted, settled or received.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count, groupby
from operator import itemgetter
from typing import Final

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import FormatNameError, MqprotoError, QuotaExceeded, UsageError
from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft, copies
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.node import control
from mqproto.simulator.node.clients.deeds import TELL_S, ClientActivity, credentials_of
from mqproto.simulator.node.clients.operators import Operators
from mqproto.simulator.node.clients.orders import carry_out
from mqproto.simulator.node.clients.patience import Patience
from mqproto.simulator.node.clients.performers import IDENTITY_BYTES, Performers
from mqproto.simulator.node.clients.readers import LOOKS, called, refusal
from mqproto.simulator.node.clients.receivers import OpenReceive, receivers
from mqproto.simulator.node.connection import Connection
from mqproto.simulator.node.control import ControlError, ControlFrame, FrameBuffer, Operation, Settlement
from mqproto.simulator.node.room import Room, found_for
from mqproto.simulator.node.transport import accept
from mqproto.simulator.node.turns import NO_TURN, Clock, TurnFeed
from mqproto.simulator.security.guarding import NodeGuard
from mqproto.simulator.storage import Store
from mqproto.simulator.topology.directory import NodeDirectory
from mqproto.turn.effects import Delivery, MessageRow, StoredState

CLIENT_LIMIT: Final = 256
"""The maximum number of simultaneous connections. Further connections wait in the kernel's backlog."""
READER_LIMIT: Final = 32
"""The maximum number of simultaneous connections of readers; they never take the place of other clients."""
READERS_ASK: Final = 4
"""The number of questions from readers that are answered at a time. It is limited, because each reads the disk."""
UNREAD_LIMIT_BYTES: Final = 16 * 2**20
"""The number of bytes of answers that a client may leave unread. Beyond it, the node reads nothing more from the client
until the answers have been sent.
"""
COPIES_LIMIT_BYTES: Final = 64 * 2**20
"""The maximum number of bytes that one request may put into several queues, all copies together."""
TIMEOUT_LIMIT_S: Final = 10.0**9
REFUSALS: Final = (UsageError, FormatNameError, control.InDoubt, control.RolledBack)
"""Errors that are reported to the client whose request failed; no part of the request was carried out."""


@dataclass(eq=False, slots=True)
class Consumer:
    """A receive. It waits until it is given messages, and lasts until they are settled.

    number: the number of the receive. It also names the transaction, so it differs in each life of the node.
    fence: the epoch of the receiver; 0 for none.
    count: the number of messages that the receive was given.
    given_s: the time, in UTC, at which it was given them; while it waits, the time at which it began.
    is_patient: whether it may wait for a message that has yet to come.
    """

    number: int
    client: ClientConnection
    request: int
    queue: str
    given: bool = False
    fence: int = 0
    count: int = 0
    given_s: int = 0
    is_patient: bool = False


class ClientService:
    """All clients of one node.

    Args:
        core: carries out the clients' requests.
        directory: resolves the names that the clients use.
        store: has messages that are not in memory, and answers questions about them.
        state: the store's records about invokers of numbered operations.
        buffer: the buffer for reads from the clients' sockets.
        room: knows the room on the disk.
        log: takes lines about each client's changes.
        round_trip_s: returns TCP's round-trip time on a session's connection, or None.
    """

    def __init__(
        self,
        core: QueueManager,
        directory: NodeDirectory,
        store: Store,
        state: StoredState,
        turns: TurnFeed,
        clock: Clock,
        buffer: memoryview,
        room: Room,
        log: FilteringBoundLogger,
        guard: NodeGuard | None = None,
        round_trip_s: Callable[[int], float | None] = lambda session: None,
    ) -> None:
        self.core = core
        self.store = store
        self.directory = directory
        self.operators = Operators(core, directory, store, clock, room, guard, round_trip_s)
        self.turns = turns
        self.clock = clock
        self.consumers: dict[int, Consumer] = {}
        self.performers = Performers(core, state, clock.now())
        self.life = secrets.randbits(31) + 1
        self._buffer = buffer
        self._log = log
        self._numbers = count(self.life << 32)
        self._by_invoker: dict[bytes, ClientConnection] = {}
        self._fences: dict[str, int] = {}
        """The latest epoch of the receivers from each queue since the node's start.

        Receivers from before that hold no messages.
        """
        self._impatient: list[Consumer] = []
        self._answers: list[tuple[ClientConnection, bytes]] = []
        self._emptying: list[tuple[ClientConnection, bytes, str]] = []
        """The clients whose purge is not finished, each with the answer that it gets at the end and the name of the
        queue.
        """
        self._clients: set[ClientConnection] = set()
        self._places = {False: trio.Semaphore(CLIENT_LIMIT), True: trio.Semaphore(READER_LIMIT)}
        """The free places for connections: under True for clients that may only look, and under False for all
        others.
        """
        self._reading = trio.CapacityLimiter(READERS_ASK)
        self._scrubbing = trio.Lock()
        self._accepting = trio.CancelScope()
        self._patience = Patience(self.consumers, lambda number: self.give_up(self.consumers[number]))

    async def run(
        self,
        listener: socket.socket,
        for_readers: socket.socket | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients. After `stop`, serve them until the last client has its answers.

        Args:
            for_readers: the socket for clients that may only look.
        """
        async with trio.open_nursery() as self._clock:
            self._clock.start_soon(self._patience.run)
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                with self._accepting:
                    async with trio.open_nursery() as doors:
                        doors.start_soon(self._admit, listener, False)
                        if for_readers is not None:
                            doors.start_soon(self._admit, for_readers, True)
            self._clock.cancel_scope.cancel()

    async def _admit(self, listener: socket.socket, only_looks: bool) -> None:
        while True:
            await self._places[only_looks].acquire()
            accepted, _ = await accept(listener)
            deeds = ClientActivity(self._log, credentials_of(accepted), self._tell_later)
            connection = Connection(accepted, self._nursery, self._buffer)
            client = ClientConnection(self, connection, deeds, only_looks=only_looks)
            self._clients.add(client)
            self._nursery.start_soon(self._serve, client)

    def _tell_later(self, deeds: ClientActivity) -> None:
        self._clock.start_soon(self._tell, deeds)

    async def _tell(self, deeds: ClientActivity) -> None:
        await trio.sleep(TELL_S)
        deeds.tell()

    def introduce(self, client: ClientConnection, introduction: control.InvokerIntroduction) -> control.Hello:
        """Process a client's introduction. Only an invoker's newest connection counts, so that no request from an older
        connection is carried out later.
        """
        invoker = introduction.invoker
        if invoker and len(invoker) != IDENTITY_BYTES:
            raise UsageError(f"an invoker's name of {len(invoker)} bytes: it has {IDENTITY_BYTES}")
        self._leave(client)
        node = self.directory.node
        hello = control.Hello(control.VERSION, node.name, node.guid, self.life, control.PROFILE)
        if invoker and not client.only_looks:  # A reader invokes nothing, so nothing is remembered.
            if (earlier := self._by_invoker.pop(invoker, None)) is not None:
                earlier.end()
            client.introduction = introduction
            self._by_invoker[invoker] = client
            hello.birth, hello.remembered = self.performers.connected(
                invoker,
                self.clock.now(),
                lasting=introduction.lasting,
                birth=introduction.birth,
                following=introduction.following,
            )
        return hello

    def _leave(self, client: ClientConnection) -> None:
        invoker = client.introduction.invoker
        if self._by_invoker.get(invoker) is client:
            del self._by_invoker[invoker]
            self.performers.gone(invoker, self.clock.now())

    def stop(self) -> None:
        """Accept no more clients and no more requests."""
        self._accepting.cancel()
        for client in self._clients:
            client.listening.cancel()

    async def _serve(self, client: ClientConnection) -> None:
        try:
            with client.listening:
                await client.listen()
            client.abandon()
            await client.connection.finish()
        finally:
            client.deeds.tell()
            client.connection.close()
            self._leave(client)
            self._clients.discard(client)
            self._places[client.only_looks].release()

    def answer(self, client: ClientConnection, frame: bytes) -> None:
        """Send a frame once the next batch is committed."""
        self._answers.append((client, frame))
        self.turns.wake()

    def answer_when_empty(self, client: ClientConnection, frame: bytes, queue: str) -> None:
        """Send a frame once all purged messages are deleted from the disk. The next batch may delete the last of
        them.
        """
        if self.operators.is_emptying(queue):
            self._emptying.append((client, frame, queue))
        else:
            self.answer(client, frame)

    # The loop carries out a batch

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Send the answers to the requests of a committed batch, and the messages that it delivers."""
        answers, self._answers = self._answers, []
        for client, frame in answers:
            client.connection.send(frame)
        emptying, self._emptying = self._emptying, []
        for client, frame, queue in emptying:
            self.answer_when_empty(client, frame, queue)
        now_s = self.clock.now().utc_s
        for delivery in deliveries:
            consumer = self.consumers[delivery.consumer]
            consumer.given, consumer.given_s = True, now_s
            consumer.count = len(delivery.messages)
            consumer.client.connection.send(_messages(consumer.request, consumer.number, delivery.messages))

    def nothing_more(self) -> None:
        """End the receives that do not wait: everything that is available has been delivered."""
        impatient, self._impatient = self._impatient, []
        for consumer in impatient:
            self.give_up(consumer)

    # Operators

    def explain(self, client: ClientConnection, request: int, subject: str, limit: int) -> None:
        """Explain why something is waiting. The answer comes later, because finding out may take a while.

        Raises:
            UsageError: there are too many of these questions on this connection.
        """
        if client.questions >= control.OUTSTANDING_LIMIT:
            raise UsageError(
                f"{control.OUTSTANDING_LIMIT} questions are open on this connection: wait for an answer"
            )
        client.questions += 1
        self._nursery.start_soon(self._explain, client, request, subject, limit)

    async def _explain(self, client: ClientConnection, request: int, subject: str, limit: int) -> None:
        try:
            async with self._reading if client.only_looks else nullcontext():
                explanation = await self.operators.explain(subject, limit)
            queues = {queue.name for queue in explanation.status.local}
            explanation.receivers, explanation.unlisted_receivers = receivers(self._receives(queues))
        except (UsageError, FormatNameError) as error:
            self.answer(client, control.failed(request, error))
        except MqprotoError as error:  # For example an unreadable store: a question does not end a node.
            self.answer(client, control.failed(request, UsageError(f"no answer: {error}")))
        else:
            self.answer(client, control.frame(Operation.DONE, request, explanation))
        finally:
            client.questions -= 1

    def _receives(self, queues: Collection[str]) -> Iterator[OpenReceive]:
        """Yield the receives from these queues that have not ended."""
        for one in self.consumers.values():
            if one.queue in queues:
                client = one.client
                since_s = client.receives_since_s[one.queue]
                yield OpenReceive(id(client), client.deeds.who, one.queue, since_s, one.count, one.given_s)

    def scrub(self, client: ClientConnection, request: int) -> None:
        """Overwrite the deleted messages that are still on disk, which takes a while."""
        self._nursery.start_soon(self._scrub, client, request)

    async def _scrub(self, client: ClientConnection, request: int) -> None:
        try:
            async with self._scrubbing:
                self.store.settle()
                await trio.to_thread.run_sync(self.store.overwrite)
                self.store.overwritten()
        except StoreError as error:
            self.answer(client, control.failed(request, UsageError(f"nothing was overwritten: {error}")))
        else:
            self.answer(client, control.frame(Operation.DONE, request, control.Nothing()))

    # Consumers

    def consume(self, client: ClientConnection, request: int, wish: control.Receive) -> None:
        """Give messages to a client, now or later.

        Raises:
            UsageError, FormatNameError: there is no such queue, or a number exceeds its limit.
            RolledBack: a receiver with a later epoch has taken over.
        """
        _check_limit(wish.limit)
        if wish.timeout_s is not None and not 0 <= wish.timeout_s <= TIMEOUT_LIMIT_S:
            raise UsageError(f"timeout_s is {wish.timeout_s}: must be 0 to {TIMEOUT_LIMIT_S:,.0f}, or None")
        if len(client.consumers) >= control.OUTSTANDING_LIMIT:
            raise UsageError(
                f"{control.OUTSTANDING_LIMIT} transactions are open on this connection: settle some"
            )
        queue = self.directory.local_queue(wish.queue)
        if wish.fence:
            self._fence(queue, wish.fence)
        number = next(self._numbers)
        if wish.chosen is None:
            self.core.consume(number, queue, wish.limit, transactional=True)
        else:
            keys = self.operators.keys_of(queue, wish.chosen)
            chosen = self.core.consume_these(number, queue, keys, self.clock.now())
            self.answer(client, _messages(request, number, chosen))
        now_s = self.clock.now().utc_s
        client.receives_since_s.setdefault(queue, now_s)
        is_given = wish.chosen is not None
        consumer = Consumer(
            number, client, request, queue, is_given, wish.fence, len(wish.chosen or ()), now_s
        )
        consumer.is_patient = not is_given and wish.timeout_s != 0
        self.consumers[number] = consumer
        client.consumers[request] = consumer
        if consumer.given:
            return
        if wish.timeout_s == 0:
            self._impatient.append(consumer)
        elif wish.timeout_s is not None:
            self._patience.expect(number, trio.current_time() + wish.timeout_s)

    def waits(self, client: ClientConnection, request: int) -> bool:
        """Return whether a receive waits for a message that has yet to come. The batch with that message then carries
        out the receive as well.
        """
        consumer = client.consumers.get(request)
        return consumer is not None and consumer.is_patient and self.core.is_empty(consumer.queue)

    def _fence(self, queue: str, epoch: int) -> None:
        """Take back the messages that receivers of earlier epochs hold, so that the queue is in its original order
        again.

        Raises:
            RolledBack: a later epoch has received from the queue.
        """
        last = self._fences.get(queue, 0)
        if epoch < last:
            raise control.RolledBack(f"epoch {last} receives from {queue}: {epoch} gets nothing more")
        self._fences[queue] = epoch
        for consumer in [*self.consumers.values()]:
            if consumer.queue == queue and 0 < consumer.fence < epoch:
                if consumer.given:
                    self.abandon(consumer)
                else:
                    self.give_up(consumer)

    def give_up(self, consumer: Consumer) -> None:
        """End a receive's wait, unless it was given something in the meantime."""
        if not consumer.given and consumer.number in self.consumers:
            self.abandon(consumer)
            self.answer(consumer.client, _messages(consumer.request, 0, []))

    def abandon(self, consumer: Consumer) -> None:
        """End a receive, and return its messages to their queue."""
        self.core.abandon(consumer.number, consumer.queue, self.clock.now())
        self._forget(consumer)
        self.turns.wake()

    def settle(self, consumer: Consumer, settlement: Settlement) -> None:
        """End a receive's transaction in the given way."""
        if settlement is not Settlement.ROLL_BACK:
            done = "reject" if settlement is Settlement.REJECT else "receive"
            consumer.client.deeds.moved(done, consumer.queue, consumer.count)
        if settlement is Settlement.REJECT:
            self.core.reject(consumer.number, consumer.queue)
        else:
            commit = settlement is Settlement.COMMIT
            self.core.settle(consumer.number, consumer.queue, self.clock.now(), commit=commit)
        self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        del self.consumers[consumer.number]
        del consumer.client.consumers[consumer.request]


class ClientConnection:
    """One connection of an application.

    Args:
        deeds: logs what the application changes.
        only_looks: whether the connection came through the socket for readers.
    """

    def __init__(
        self,
        service: ClientService,
        connection: Connection,
        deeds: ClientActivity,
        *,
        only_looks: bool = False,
    ) -> None:
        self.connection = connection
        self.deeds = deeds
        self.only_looks = only_looks
        self.questions = 0
        """The number of the client's questions that have no answer yet."""
        self.consumers: dict[int, Consumer] = {}
        """The client's receives, keyed by the number of the request."""
        self.receives_since_s: dict[str, int] = {}
        """The time, in UTC, at which the client first received from each queue."""
        self.listening = trio.CancelScope()
        self.introduction = control.InvokerIntroduction()
        self._is_over = False
        self._service = service

    async def listen(self) -> None:
        """Process requests until the client goes away or sends something invalid."""
        turns, turn = self._service.turns, NO_TURN
        buffer = FrameBuffer()
        try:
            while True:
                await self.connection.readable()
                await turn.carried_out()
                if self.connection.unsent_bytes > UNREAD_LIMIT_BYTES:
                    await self.connection.flushed()
                await turns.room()
                data = self.connection.read()
                if data is None:
                    continue
                if not data:
                    return
                size_bytes, requests, waiting = len(data), 0, 0
                for request in buffer.feed(data):
                    await turns.room()
                    if self._is_over:
                        return
                    requests += 1
                    waiting += self._take(request)
                    if self.only_looks:
                        # A reader gets one answer at a time from this process, however fast it asks.
                        await turns.fed()
                        await self.connection.flushed()
                if waiting < requests:
                    turn = turns.count(size_bytes=size_bytes)
        except OSError:
            return
        except ControlError as error:
            self._service.answer(self, control.failed(error.request, error))
            await turns.fed()

    def abandon(self) -> None:
        """End the receives of a client that is gone, and roll back the messages that it did not settle."""
        for consumer in list(self.consumers.values()):
            self._service.abandon(consumer)

    def end(self) -> None:
        """Process nothing more from this connection, because the invoker has a newer one."""
        self._is_over = True
        self.abandon()
        self.listening.cancel()

    def _take(self, request: ControlFrame) -> bool:
        """Feed a request to the core; return whether it is a receive that has to wait.

        If so, the node's loop need not carry out anything for the request.
        """
        wish = control.parameters(request)
        try:
            if self.only_looks and request.operation not in LOOKS:
                self.deeds.was_refused(called(request.operation))
                raise refusal(request.operation, self._service.directory.node.name)
            if request.identifier is None:
                result = self._act(request, wish)
                answer = None if result is None else control.done(result)
            else:
                answer = control.recalled(self._perform(request, request.identifier, wish))
        except REFUSALS as error:
            answer = control.failure(error)
        if answer is None:
            return isinstance(wish, control.Receive) and self._service.waits(self, request.request)
        frame = control.framed(answer.operation, request.request, answer.payload)
        if isinstance(wish, control.OneQueue) and request.operation == Operation.PURGE:
            self._service.answer_when_empty(self, frame, wish.queue)
        else:
            self._service.answer(self, frame)
        return False

    def _perform(self, request: ControlFrame, identifier: int, wish: object) -> bytes:
        """Carry out a numbered operation, unless it was performed before; return its outcome."""
        invoker, performers = self.introduction.invoker, self._service.performers
        if not invoker:
            name = Operation(request.operation).name
            raise ControlError(f"{name} is performed once for whoever introduces itself: HELLO comes first")
        now = self._service.clock.now()
        outcome = performers.invoke(invoker, identifier, now)
        if outcome is None:
            try:
                answer = control.done(self._act(request, wish))
            except REFUSALS as error:
                # Remember this outcome, too: the memory has to move on with each identifier, because they come round.
                answer = control.failure(error)
            outcome = control.kept(answer)
            performers.performed(invoker, identifier, outcome, now)
        return outcome

    def _act(self, request: ControlFrame, wish: object) -> object | None:
        """Feed the core. Return the result for the answer, or None if the answer comes later."""
        service = self._service
        match wish:
            case control.Send(destination, drafts):
                if len({draft.transactional for draft in drafts}) > 1:
                    raise UsageError("messages sent together are all transactional or none is")
                return self._send([(destination, drafts)], together=False)
            case control.SendTogether(messages):
                return self._send(_by_destination(messages), together=True)
            case control.Receive():
                if request.request in self.consumers:
                    raise UsageError(f"request {request.request} is outstanding: give each its own number")
                service.consume(self, request.request, wish)
                return None
            case control.Settle(transaction, settlement, messages):
                consumer = service.consumers.get(transaction)
                if consumer is None or consumer.client is not self or not consumer.given:
                    raise control.RolledBack(
                        f"transaction {transaction} is not open on this connection: its messages are where they were"
                    )
                if messages and settlement is not Settlement.COMMIT:
                    raise UsageError("messages are sent by a transaction that commits, and by no other")
                sent = self._send(_by_destination(messages), together=True) if messages else control.Sent([])
                service.settle(consumer, settlement)
                return sent
            case control.Peek(queue, limit):
                _check_limit(limit)
                found = service.core.peek(service.directory.local_queue(queue), limit)
                return _as_messages(0, found)
            case control.Abandon(number):
                if number in self.consumers:
                    service.give_up(self.consumers[number])
                return control.Nothing()
            case control.Explain(subject, limit):
                _check_limit(limit)
                service.explain(self, request.request, subject, limit)
                return None
            case control.Nothing() if request.operation == Operation.SCRUB:
                self.deeds.did("scrub")
                service.scrub(self, request.request)
                return None
            case control.Nothing() if request.operation == Operation.KEYS:
                service.operators.read_keys()
                self.deeds.did("keys")
                return control.Nothing()
            case (
                control.Hold()
                | control.Block()
                | control.PeerFacts()
                | control.OneQueue()
                | control.SendBack()
                | control.QueueWish()
            ):
                return carry_out(request.operation, wish, service.operators, service.directory, self.deeds)
            case control.InvokerIntroduction():
                return service.introduce(self, wish)
            case _:
                operators = service.operators
                questions = {Operation.PEERS: operators.peers, Operation.DECLARED: operators.queues.declared}
                return questions.get(Operation(request.operation), operators.status)()

    def _send(self, parts: list[tuple[str, list[Draft]]], *, together: bool) -> control.Sent:
        """Accept all messages of a request, or none of them."""
        service, directory = self._service, self._service.directory
        if together and not all(draft.transactional for _, drafts in parts for draft in drafts):
            raise UsageError("the messages of a transaction are transactional")
        destinations = [directory.destinations(text) for text, _ in parts]
        _check_copies((len(queues), drafts) for queues, (_, drafts) in zip(destinations, parts, strict=True))
        found: list[tuple[Destination, Draft]] = []
        for queues, (_, drafts) in zip(destinations, parts, strict=True):
            found += copies(queues, map(directory.with_format_names, drafts))
        now = service.clock.now()
        try:
            ordinals = service.core.enqueue(found, now, together=together)
        except QuotaExceeded:
            # Look for room now: a large batch may need more than was known, and a full disk may have room again.
            if not found_for(sum(draft.size_bytes for _, draft in found), service.core, service.store):
                raise
            ordinals = service.core.enqueue(found, now, together=together)
        service.turns.count(messages=len(found))
        for (text, drafts), queues in zip(parts, destinations, strict=True):
            self.deeds.moved("send", text, len(drafts) * len(queues))
        return control.Sent.of(ordinals)


def _messages(request: int, transaction: int, messages: list[MessageRow]) -> bytes:
    return control.frame(Operation.DONE, request, _as_messages(transaction, messages))


def _as_messages(transaction: int, messages: list[MessageRow]) -> control.Messages:
    return control.Messages(
        transaction,
        [message.packet for message in messages],
        [message.delivery_count for message in messages],
    )


def _by_destination(messages: Iterable[tuple[str, Draft]]) -> list[tuple[str, list[Draft]]]:
    """Group successive messages for the same destination, in order."""
    return [(text, [draft for _, draft in run]) for text, run in groupby(messages, itemgetter(0))]


def _check_copies(parts: Iterable[tuple[int, Sequence[Draft]]]) -> None:
    """Refuse a request that makes too many copies. A part is a number of queues and the drafts for these queues."""
    count = size_bytes = most = 0
    for copy_count, drafts in parts:
        count += copy_count * len(drafts)
        most = max(most, copy_count)
        if copy_count > 1:
            size_bytes += copy_count * sum(draft.size_bytes for draft in drafts)
    if count > control.BATCH_LIMIT:
        raise UsageError(f"{count} messages in one request: at most {control.BATCH_LIMIT}")
    if most > 1 and size_bytes > COPIES_LIMIT_BYTES:
        raise UsageError(
            f"copies for {most} queues have {size_bytes:,} bytes: name fewer queues at once, "
            f"at most {COPIES_LIMIT_BYTES:,} bytes are taken"
        )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= control.BATCH_LIMIT:
        raise UsageError(f"limit is {limit}: must be 1 to {control.BATCH_LIMIT}")
