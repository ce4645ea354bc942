"""A client's connection to its node: the socket, the introduction, and the frames in both directions."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.node import control
from mqproto.simulator.node.connection import Connection, read_buffer
from mqproto.simulator.node.control import ControlFrame, FrameBuffer, Operation

ANSWER_LIMIT_BYTES: Final = 2**32 - 1
CONNECT_TIMEOUT_S: Final = 10.0
BUSY_PAUSE_S: Final = 0.02


class NodeUnreachable(MqprotoError):  # noqa: N818
    """The node is not running. No request was sent, so no outcome is in doubt."""


class NodeLine:
    """Successive connections to a node's socket.

    count: the number of connections so far.
    """

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._connection: Connection | None = None
        self._buffer = FrameBuffer(ANSWER_LIMIT_BYTES)

    def open(self, nursery: trio.Nursery, command: str) -> None:
        """Set the nursery for connections, and the command that error texts suggest for starting the node."""
        self._nursery = nursery
        self._command = command

    async def connect(self, node: str, introduction: control.InvokerIntroduction) -> control.Hello:
        """Make a new connection, and introduce the client.

        Raises:
            NodeUnreachable: nobody listens at the socket, or nobody answers.
            UsageError: the node speaks another version, or the socket belongs to another user.
        """
        connected = await _connected(self._path, node)
        if connected is None:
            raise NodeUnreachable(f"node {node} is not running: start it with {self._command}")
        connection = Connection(connected, self._nursery, read_buffer())
        buffer = FrameBuffer(ANSWER_LIMIT_BYTES)
        try:
            connection.send(control.frame(Operation.HELLO, 0, introduction))
            with trio.move_on_after(CONNECT_TIMEOUT_S) as patience:
                hello = await _hello(connection, buffer, node)
            if patience.cancelled_caught:
                raise NodeUnreachable(
                    f"node {node} does not answer within {CONNECT_TIMEOUT_S:g} s: it is stopped, or very busy"
                )
            if hello.version != control.VERSION:
                raise UsageError(
                    f"node {hello.node} speaks version {hello.version} of this protocol, we speak {control.VERSION}: "
                    "start it anew"
                )
        except BaseException:
            connection.close()
            raise
        self._connection, self._buffer = connection, buffer
        self.count += 1
        return hello

    @property
    def is_there(self) -> bool:
        """Whether a connection has been made, and `end` has not been called since. It may be closed already."""
        return self._connection is not None

    @property
    def is_closed(self) -> bool:
        """Whether no more data will arrive over the connection."""
        return self._connection is None or self._connection.is_closed

    def is_on(self, connection: int) -> bool:
        """Return whether the connection with this number is the current one."""
        return self.is_there and self.count == connection

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that the node has not read yet."""
        return self._connection.unsent_bytes if self._connection else 0

    async def flushed(self) -> None:
        """Wait until the node has read everything that was sent, or the connection is broken."""
        if self._connection:
            await self._connection.flushed()

    def send(self, frame: bytes) -> None:
        """Send a frame. There must be a connection."""
        assert self._connection is not None
        self._connection.send(frame)

    async def read(self) -> Iterable[ControlFrame] | None:
        """Read data, and return the answers that are now complete; return None at the end of the connection."""
        assert self._connection is not None
        return await _read(self._connection, self._buffer)

    def hang_up(self) -> None:
        """Close the connection, so that messages handed out over it return to their queue.

        The client continues with its next connection.
        """
        if self._connection:
            self._connection.close()

    def end(self) -> None:
        """Close the connection. There is none from now on, until `connect` makes another one."""
        self.hang_up()
        self._connection = None


async def _connected(path: Path, node: str) -> socket.socket | None:
    """Return a socket connected to the node, or None if nobody listens."""
    with ExitStack() as undo:
        connecting = undo.enter_context(socket.socket(socket.AF_UNIX))
        connecting.setblocking(False)
        with trio.move_on_after(CONNECT_TIMEOUT_S):
            while True:
                try:
                    connecting.connect(str(path))
                except BlockingIOError:
                    # The backlog is full, and no event tells when it is not.
                    await trio.sleep(BUSY_PAUSE_S)
                except PermissionError:
                    raise UsageError(
                        f"the socket of node {node} is another user's: be the user that it runs as, or "
                        "one of its readers"
                    ) from None
                except OSError:
                    break
                else:
                    undo.pop_all()
                    return connecting
    return None


async def _hello(connection: Connection, buffer: FrameBuffer, node: str) -> control.Hello:
    with suppress(OSError):
        while (answers := await _read(connection, buffer)) is not None:
            for answer in answers:
                hello: control.Hello = control.result(Operation.HELLO, answer)
                return hello
    raise NodeUnreachable(f"node {node} closed the connection: connect again")


async def _read(connection: Connection, buffer: FrameBuffer) -> Iterable[ControlFrame] | None:
    await connection.readable()
    data = connection.read()
    return () if data is None else buffer.feed(data) if data else None
