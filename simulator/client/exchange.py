"""Requests to a node, and their answers, over successive connections.

When a connection breaks, the next one continues: unanswered requests are sent again. Numbered operations keep their
identifiers, so that each is carried out once ("Duplicate Operation Detection Support"). An operation is in doubt only
if the node does not come back in time, or has forgotten this client when it does. Earlier operations are then not sent
again. With a journal, all this also holds if this process dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.edge.operations import Invoker
from mqproto.simulator.base.storeerrors import StoreError
from mqproto.simulator.client.journal import Journal
from mqproto.simulator.client.nodeline import BUSY_PAUSE_S, NodeLine, NodeUnreachable
from mqproto.simulator.node import control
from mqproto.simulator.node.control import ControlFrame, InDoubt, Operation

PATIENCE_S: Final = 10.0
"""The number of seconds that a client waits for a node that is gone; after that, its requests fail."""
SILENCE_S: Final = 30.0
"""The number of seconds without any answer after which unanswered operations are sent again.

They are sent over another connection.
"""


class PendingRequest:
    """A request that has no answer yet.

    volatile: whether the node forgets, when its process ends, that it carried out the request.
    tag: a tag that the journal keeps, with the operation and its outcome, until it is told to forget it.
    """

    def __init__(
        self, operation: Operation, data: bytes, *, volatile: bool = False, tag: bytes = b""
    ) -> None:
        self.operation = operation
        self.data = data
        self.volatile = volatile
        self.tag = tag
        self.request = 0
        self.identifier: int | None = None
        self.asked_of: int | None = None
        """The life that the node's store had when the request was first sent; None if it has not been sent."""
        self.answered = trio.Event()
        self.answer: ControlFrame | None = None
        self.failure: MqprotoError | None = None
        self.connection = 0
        """Which connection brought the answer: 1 for the first one; 0 if there is no answer yet."""

    def outcome(self) -> Any:
        """Return the answer to this request, or raise one of the errors of `Exchange.ask`.

        `answered` must have been set.
        """
        if self.failure is not None:
            raise self.failure
        assert self.answer is not None, "it is answered"
        return control.result(self.operation, self.answer)


class Exchange:
    """Numbers requests, and hands each answer to the task that waits for it.

    Several tasks may use it at once.

    Args:
        path: the node's socket.
        node: the name of the node in errors.
        journal: keeps numbered operations; None if they need not outlive this process.
        patience_s: how long the node may be away before requests fail.
    """

    def __init__(self, path: Path, node: str, journal: Journal | None, patience_s: float) -> None:
        self.node = node
        self.hello = control.Hello(control.VERSION, node, b"")
        self.lost = trio.Event()
        """Set when the client gives up waiting for the node."""
        self.line = NodeLine(path)
        self._journal = journal
        self._patience_s = patience_s
        self._identity = journal.invoker if journal else uuid4().bytes
        self._birth = journal.birth if journal else b""
        self._invoker = Invoker(control.PROFILE, *(self._journal.state() if self._journal else ()))
        self._requests = count(1)
        self._pending: dict[int, PendingRequest] = {}
        """The requests, keyed by number, that were sent, or will be sent as soon as there is a connection."""
        self._waiting: deque[PendingRequest] = deque()
        """The numbered operations that have no identifier yet."""
        self._begin = trio.Event()
        self._life = trio.CancelScope(shield=True)
        self._silence = trio.CancelScope()
        """The scope that is cancelled when the node has been silent for too long."""
        for each in self._invoker.pending:
            pending = PendingRequest(Operation(each.operation), each.parameter)
            pending.identifier = each.identifier
            pending.asked_of = 0  # It may have been sent to an earlier life.
            self._enter(pending)

    async def recovered(self) -> None:
        """Wait until each operation that the journal had when it was opened has a known outcome."""
        for pending in [each for each in self._pending.values() if each.identifier is not None]:
            await pending.answered.wait()

    # For callers

    async def ask(self, operation: Operation, payload: msgspec.Struct) -> Any:
        """Send a request and wait for its answer.

        Raises:
            NodeUnreachable, InDoubt: the node is gone.
            UsageError, FormatNameError, RolledBack: the node's objection to the request.
        """
        return await self.answer(self.request(operation, payload))

    def request(
        self, operation: Operation, payload: msgspec.Struct, *, volatile: bool = False, tag: bytes = b""
    ) -> PendingRequest:
        """Send a request.

        A numbered operation waits while the node cannot remember any more outstanding operations.

        Raises:
            NodeUnreachable: the node is gone.
            UsageError: a text has a lone surrogate.
        """
        if self.lost.is_set():
            raise NodeUnreachable(f"node {self.node} is gone: connect again")
        try:
            data = control.encode(payload)
        except UnicodeEncodeError as error:
            odd = error.object[error.start : error.end]
            raise UsageError(
                f"{odd!r} is not a character: write the text {error.object!r} in UTF-8"
            ) from None
        pending = PendingRequest(operation, data, volatile=volatile, tag=tag)
        if operation in control.NUMBERED:
            self._waiting.append(pending)
            self._begin_more()
        else:
            self._enter(pending)
            self._send(pending)
        return pending

    async def answer(self, pending: PendingRequest) -> Any:
        """Wait for the answer to a request, and return it; raise the errors of `ask`."""
        try:
            await pending.answered.wait()
        except trio.Cancelled:
            self.forgo(pending)
            raise
        return pending.outcome()

    def forgo(self, pending: PendingRequest) -> None:
        """Drop a numbered operation if it has not been sent yet."""
        if pending in self._waiting:
            self._waiting.remove(pending)

    def close(self) -> None:
        """Make no more connections. Tasks that still wait for answers fail."""
        self._life.cancel()
        self.line.hang_up()

    # The connections

    async def open(self, nursery: trio.Nursery, command: str) -> None:
        """Connect for the first time.

        Raises:
            NodeUnreachable: nobody listens at the socket, or nobody answers.
            UsageError: the node speaks another version, or the journal belongs to another node.
        """
        self.line.open(nursery, command)
        await self._connect()

    async def run(self) -> None:
        """Take answers over successive connections, until the node is gone for too long or `close` is called."""
        with self._life:
            # A task that is cancelled together with us still asks the node about its messages, so this is
            # shielded.
            async with trio.open_nursery() as nursery:
                if self._journal is not None:
                    nursery.start_soon(self._begin_in_journal, self._journal)
                while True:
                    await self._listen()
                    try:
                        await self._reconnect()
                    except MqprotoError:
                        break
                nursery.cancel_scope.cancel()
        self._give_up()

    async def _connect(self) -> None:
        """Make a new connection, introduce this invoker, and send all unanswered requests again."""
        introduction = control.InvokerIntroduction(
            self._identity, self._journal is not None, self._invoker.following, self._birth
        )
        hello = await self.line.connect(self.node, introduction)
        try:
            self._check(hello)
        except BaseException:
            self.line.end()
            raise
        self.hello, self.node = hello, hello.node
        self._ask_again()

    def _check(self, hello: control.Hello) -> None:
        if self.hello.guid and self.hello.guid != hello.guid:
            raise UsageError(f"another node answers at the socket of {self.node}")
        asked = {} if hello.remembered else self._asked_before()
        doubt = InDoubt(
            f"node {hello.node} has forgotten this client, so what was asked for may have been carried out, or not (it "
            f"remembers one with a journal for {control.LASTING_KEPT_DAYS} days, others for minutes, and none when its "
            "store is another)"
        )
        if self._journal is not None:
            answers = dict.fromkeys(asked, control.failure(doubt))
            self._journal.belongs_to(hello.guid, hello.node, hello.birth, answers)
        self._birth = hello.birth
        for pending in asked.values():
            del self._pending[pending.request]
            self._fail(pending, doubt)

    def _asked_before(self) -> dict[int, PendingRequest]:
        """Return the operations without an outcome that were sent, perhaps by an earlier process.

        They are keyed by identifier.
        """
        return {
            pending.identifier: pending
            for pending in self._pending.values()
            if pending.identifier is not None and pending.asked_of is not None
        }

    async def _listen(self) -> None:
        """Take answers until the connection ends."""
        with suppress(OSError, trio.ClosedResourceError), trio.CancelScope() as self._silence:
            while not self.line.is_closed:
                self._silence.deadline = trio.current_time() + SILENCE_S if self._invoker.outstanding else inf
                if (answers := await self.line.read()) is None:
                    break
                for answer in answers:
                    if pending := self._pending.pop(answer.request, None):
                        pending.answer = answer
                        self._answered(pending)
        # The node waits for our end before it forgets the connection.
        self.line.end()

    async def _reconnect(self) -> None:
        with trio.move_on_after(self._patience_s):
            while True:
                try:
                    await self._connect()
                except NodeUnreachable:
                    await trio.sleep(BUSY_PAUSE_S)
                else:
                    return
        raise NodeUnreachable(f"node {self.node} is gone")

    def _ask_again(self) -> None:
        """Send all unanswered requests again, in their original order, except those that are now in doubt."""
        too_old = {each.identifier for each in self._invoker.learn(self.hello.profile)}
        for pending in list(self._pending.values()):
            forgot = pending.volatile and pending.asked_of not in (None, self.hello.life)
            if pending.identifier is not None and (pending.identifier in too_old or forgot):
                del self._pending[pending.request]
                doubt = self._doubt(pending)
                if self._journal is not None:
                    self._journal.end(pending.identifier, control.failure(doubt))
            else:
                self._send(pending)
        self._begin_more()

    def _give_up(self) -> None:
        """Fail all requests, because no answer will come."""
        self.lost.set()
        self.line.end()
        unanswered = [*self._pending.values(), *self._waiting]
        unsent = [each for each in unanswered if each.identifier is None or each.asked_of is None]
        if self._journal is not None and not _withdrawn(self._journal, unsent):
            unsent = [each for each in unsent if each.identifier is None]
        for each in unanswered:
            if each in unsent:
                text = f"node {self.node} is gone, and has not answered {each.operation.name}: connect again"
                self._fail(each, NodeUnreachable(text))
            else:
                self._doubt(each)
        self._pending.clear()
        self._waiting.clear()

    # One request

    def _enter(self, pending: PendingRequest) -> None:
        pending.request = next(self._requests) & 0xFFFFFFFF
        self._pending[pending.request] = pending

    def _send(self, pending: PendingRequest) -> None:
        if not self.line.is_there:
            return  # It is sent with the others when there is a connection.
        if pending.asked_of is None:
            pending.asked_of = self.hello.life
        if pending.identifier is not None:
            self._silence.deadline = min(self._silence.deadline, trio.current_time() + SILENCE_S)
        self.line.send(control.framed(pending.operation, pending.request, pending.data, pending.identifier))

    def _begin_more(self) -> None:
        """Begin waiting operations, if there are any."""
        if self._journal is None:
            self._begin_waiting()
        else:
            self._begin.set()

    def _begin_waiting(self) -> list[PendingRequest]:
        """Give identifiers to the operations that may begin now, and return these operations.

        Without a journal, also send the operations. With a journal, they must be written to it first.
        """
        begun = []
        while self._waiting and self._invoker.may_begin:
            pending = self._waiting.popleft()
            pending.identifier = self._invoker.begin(pending.operation, pending.data).identifier
            begun.append(pending)
        if self._journal is None:
            self._send_begun(begun)
        return begun

    def _send_begun(self, begun: Iterable[PendingRequest]) -> None:
        for pending in begun:
            self._enter(pending)
            self._send(pending)

    async def _begin_in_journal(self, journal: Journal) -> None:
        """Begin operations, and write them to the journal first.

        If many wait at once, they share one transaction there.
        """
        while True:
            await self._begin.wait()
            self._begin = trio.Event()
            begun = self._begin_waiting()
            if not begun:
                continue
            rows = [
                (pending.identifier, pending.operation, pending.data, pending.tag)
                for pending in begun
                if pending.identifier is not None
            ]
            try:
                # A request with an identifier must be sent, or its caller told, even if the node is just given up.
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(journal.begin, rows)
            except StoreError as error:
                self._take_back(begun, error)
            else:
                self._send_begun(begun)

    def _take_back(self, begun: list[PendingRequest], reason: StoreError) -> None:
        """Fail operations that were never sent.

        Their identifiers go to the next operations, so the node sees no gap.
        """
        for pending in reversed(begun):
            assert pending.identifier is not None
            self._invoker.take_back(pending.identifier)
            pending.identifier = None
            self._fail(pending, reason)
        self._begin_more()

    def _answered(self, pending: PendingRequest) -> None:
        """Record that a request was answered, so that another operation may begin."""
        pending.connection = self.line.count
        pending.answered.set()
        if pending.identifier is not None:
            assert pending.answer is not None
            self._invoker.end(pending.identifier)
            if self._journal is not None:
                self._journal.end(pending.identifier, pending.answer)
            self._begin_more()

    def _doubt(self, pending: PendingRequest) -> InDoubt:
        """Fail a request as in doubt, and return the error.

        A journal keeps the request, so a later process may learn its outcome.
        """
        doubt = InDoubt(
            f"the connection to node {self.node} broke before it answered {pending.operation.name}: it may have been "
            "carried out, or not"
        )
        self._fail(pending, doubt)
        return doubt

    def _fail(self, pending: PendingRequest, failure: MqprotoError) -> None:
        if pending.identifier is not None:
            self._invoker.end(pending.identifier)
        pending.failure = failure
        pending.answered.set()


def _withdrawn(journal: Journal, unsent: list[PendingRequest]) -> bool:
    """Withdraw unsent operations from the journal.

    Return whether this is on disk; if not, the next client sends them.
    """
    for pending in reversed(unsent):
        if pending.identifier is not None:
            journal.withdraw(pending.identifier)
    try:
        journal.flush()
    except StoreError:
        return False
    return True
