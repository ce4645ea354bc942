"""Requests to a node, and their answers, over one connection."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec
import trio

from mqproto.errors import MqprotoError
from simulator import control
from simulator.connection import Connection
from simulator.control import Frame, FrameBuffer, Operation

ANSWER_LIMIT_BYTES: Final = 2**32 - 1

LEAVES_DOUBT: Final = {operation for operation in control.REQUESTS if operation >= control.FIRST_CHANGING} - {
    Operation.RECEIVE_IN_TRANSACTION
}
"""What a node may have done although its answer did not arrive. What was received in a transaction, it takes back."""


class NodeUnreachable(MqprotoError):  # noqa: N818
    """The node does not run, or its connection broke; nothing was asked of it whose outcome matters."""


class InDoubt(MqprotoError):  # noqa: N818
    """The connection broke between a request and its answer: it may have been carried out, or not."""


class Pending:
    """A request that has no answer yet."""

    def __init__(self, operation: Operation, number: int) -> None:
        self.operation = operation
        self.number = number
        self.answered = trio.Event()
        self.answer: Frame | None = None


class Exchange:
    """Numbers requests, and hands each answer to whoever waits for it. Several tasks may use it at once.

    Args:
        connection: to the node; `listen` closes it at the end.
        node: how errors call the node.
    """

    def __init__(self, connection: Connection, node: str) -> None:
        self.connection = connection
        self.node = node
        self.is_lost = False
        self._pending: dict[int, Pending] = {}
        self._numbers = count(1)

    async def ask(self, operation: Operation, payload: msgspec.Struct) -> Any:
        """Send a request and wait for its answer.

        Raises:
            NodeUnreachable, InDoubt: the connection broke.
            UsageError, FormatNameError: what the node says was wrong with the request.
        """
        return await self.answer(self.request(operation, payload))

    def request(self, operation: Operation, payload: msgspec.Struct) -> Pending:
        """Send a request."""
        if self.is_lost:
            raise NodeUnreachable(f"the connection to node {self.node} is broken: connect again")
        pending = Pending(operation, next(self._numbers) & 0xFFFFFFFF)
        self._pending[pending.number] = pending
        self.connection.send(control.frame(operation, pending.number, payload))
        return pending

    async def answer(self, pending: Pending) -> Any:
        """Wait for the answer to a request; errors as `ask`."""
        await pending.answered.wait()
        return self.outcome(pending)

    def outcome(self, pending: Pending) -> Any:
        """The answer, once the request is `answered`; errors as `ask`."""
        if pending.answer is not None:
            return control.result(pending.operation, pending.answer)
        what = f"the connection to node {self.node} broke before it answered {pending.operation.name}"
        if pending.operation in LEAVES_DOUBT:
            raise InDoubt(f"{what}: it may have been carried out, or not")
        raise NodeUnreachable(f"{what}: connect again")

    async def listen(self) -> None:
        """Take answers until the connection ends; then whoever waits hears of that."""
        buffer = FrameBuffer(ANSWER_LIMIT_BYTES)
        # Who is cancelled together with us still asks the node what became of his messages; our end is `close`.
        with trio.CancelScope(shield=True), suppress(OSError, trio.ClosedResourceError):
            while True:
                await self.connection.readable()
                data = self.connection.read()
                if data is None:
                    continue
                if not data:
                    break
                for answer in buffer.feed(data):
                    if pending := self._pending.pop(answer.request, None):
                        pending.answer = answer
                        pending.answered.set()
        # The node waits for our end before it forgets the connection.
        self.connection.close()
        self.is_lost = True
        for pending in self._pending.values():
            pending.answered.set()
