"""A link between two nodes that can be cut, refused, stalled and slowed: a TCP proxy on loopback.

The initiating node takes the proxy's address for that of its neighbour. The neighbour sees that the connection comes
from the initiating node's own host, on which its permission to connect depends. The faults are those of a transport: a
connection breaks, cannot be opened, or stops. Lost segments are left to the kernel's TCP.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.recorder import RecordedConnection, Recorder
from mqproto.simulator.base.sockets import RESET_ON_CLOSE, refuse_itself

READ_BYTES: Final = 256 * 1024
BACKLOG: Final = 128
CONNECTION_LIMIT: Final = 256

# Temporary errors of accept(): the client has gone again, or the process has no descriptor or memory to
# spare.
PASSING: Final = {errno.ECONNABORTED, errno.EPROTO, errno.EINTR}
EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
EXHAUSTED_PAUSE_S: Final = 0.1


@dataclass(slots=True)
class LinkStatistics:
    """The counts of one link since it was made.

    connection_count: the number of connections that reached the target.
    unreachable_count: the number of connections that were reset because the target did not accept them.
    cut_count: the number of connections that `cut` or `refuse` reset.
    bytes_to_server, bytes_to_client: the numbers of bytes that were handed to the kernel towards the target, and
        towards the client.
    """

    connection_count: int = 0
    unreachable_count: int = 0
    cut_count: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0


class LinkProxy:
    """One link. `run` carries the traffic; the controls may be called at any moment from the same thread.

    At most 256 connections are open at once, each with two buffers of 256 KiB; further ones wait in the kernel's
    backlog.

    Args:
        listen: the address to which nodes connect; port 0 takes a free one.
        target: the address of the node at the other end.
        recorder: records every byte that crosses the link.
        recorded_host: the address to record for the side that connects, by default its own; its port is recorded
            unchanged.
        recorded_server: the address and port to record for the other side, by default `target`.

    Raises:
        UsageError: an address is not IPv4, or `listen` is not loopback.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        target: tuple[str, int],
        recorder: Recorder | None = None,
        *,
        recorded_host: str | None = None,
        recorded_server: tuple[str, int] | None = None,
    ) -> None:
        self.address = Endpoint(*listen).validated()
        self.statistics = LinkStatistics()
        self._target = Endpoint(*target).validated()
        self._recorder = recorder
        self._recorded_host = recorded_host and Endpoint(recorded_host, 0).validated().host
        self._recorded_server = Endpoint(*(recorded_server or target)).validated()
        if not ipaddress.IPv4Address(self.address.host).is_loopback:
            raise UsageError(f"{self.address} is not on loopback: a link joins nodes of one machine")
        self._listener: socket.socket | None = None  # bound while `run` runs, listening unless refusing
        self._welcome = Gate()
        self._flow = Gate()
        self._haste = Gate()  # shut while the link is slow
        self._delay_s = 0.0
        self._connections: set[_Connection] = set()

    @property
    def open_count(self) -> int:
        """The number of connections that are open now, or being opened."""
        return len(self._open_connections())

    @property
    def is_refusing(self) -> bool:
        """Whether connections are refused, as after `refuse`."""
        return not self._welcome.is_open

    async def run(self, *, task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry traffic until this task is cancelled, then reset every connection. The value passed to `task_status` is
        the listening address.

        Raises:
            OSError: the address cannot be bound.
            UsageError: the link is already running.
        """
        if self._listener is not None:
            raise UsageError(f"the link at {self.address} runs already")
        self._listener = self._bind()
        places = trio.Semaphore(CONNECTION_LIMIT)
        try:
            self.address = Endpoint(*self._listener.getsockname())
            if self._welcome.is_open:
                self._listener.listen(BACKLOG)
            async with trio.open_nursery() as nursery:
                task_status.started(self.address)
                while True:
                    await places.acquire()
                    connection = await self._next_connection()
                    self._connections.add(connection)
                    nursery.start_soon(self._carry, connection, places)
        finally:
            self._listener.close()
            self._listener = None

    def cut(self) -> int:
        """Reset every open connection at both ends. Return the number of these connections. New ones are still
        accepted.
        """
        connections = [*self._open_connections(), *self._waiting_clients()]
        for connection in connections:
            connection.reset(*Side, comment="the link was cut")
        self.statistics.cut_count += len(connections)
        return len(connections)

    def refuse(self) -> int:
        """Cut all open connections, and refuse new ones. Return the number of connections that were cut."""
        cut_count = self.cut()
        if self._welcome.is_open:
            self._welcome.shut()
            if self._listener is not None:
                trio.lowlevel.notify_closing(self._listener)
                with suppress(OSError):
                    # A process being started has a copy, which would go on listening at our port.
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
                # A bound socket that does not listen refuses connects and keeps the port for us.
                self._listener = self._bind()
        return cut_count

    def stall(self) -> None:
        """Stop all data. Nothing is closed; both ends fill the kernel's buffers and then have to wait.

        Data already handed to the kernel may still arrive.
        """
        self._flow.shut()

    def slow(self, delay_s: float) -> None:
        """Delay all data by this time. In a period of this length, at most READ_BYTES of a long stream cross."""
        self._delay_s = delay_s
        self._haste.shut()

    def restore(self) -> None:
        """Undo `refuse`, `stall` and `slow`. Data that is waiting on a slow link crosses at once."""
        self._haste.open()
        if self._listener is not None and not self._welcome.is_open:
            self._listener.listen(BACKLOG)
        self._welcome.open()
        self._flow.open()

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self.address)
        except BaseException:
            listener.close()
            raise
        return listener

    async def _next_connection(self) -> _Connection:
        """Wait for the next client. None is accepted while the link refuses or stalls."""
        while True:
            await self._welcome.passed()
            listener = self._listener
            assert listener is not None
            try:
                await trio.lowlevel.wait_readable(listener)
                await self._flow.passed()
                return self._accept(listener)
            except (trio.ClosedResourceError, BlockingIOError):
                continue  # `refuse` closed the listener, or `cut` was faster.
            except OSError as error:
                if listener.fileno() == -1 or error.errno in PASSING:
                    continue
                if error.errno not in EXHAUSTED:
                    raise
                await trio.sleep(EXHAUSTED_PAUSE_S)

    def _open_connections(self) -> list[_Connection]:
        """Return the connections that have not ended. A task may not have noticed yet that its connection has ended."""
        return [connection for connection in self._connections if not connection.has_ended]

    def _waiting_clients(self) -> Iterator[_Connection]:
        """Yield clients that consider themselves connected but have not been accepted yet."""
        while self._listener is not None and self._welcome.is_open:
            try:
                yield self._accept(self._listener)
            except OSError:
                return

    def _accept(self, listener: socket.socket) -> _Connection:
        client, (host, port) = listener.accept()
        return _Connection(client, host, Endpoint(self._recorded_host or host, port))

    async def _carry(self, connection: _Connection, places: trio.Semaphore) -> None:
        """Carry one connection from its acceptance to its end."""
        try:
            with connection.scope:
                try:
                    await connection.connect(self._target)
                except OSError:
                    if not connection.has_ended:  # else it was cut meanwhile
                        self.statistics.unreachable_count += 1
                        connection.reset()
                    return
                self.statistics.connection_count += 1
                if self._recorder is not None:
                    connection.record = self._recorder.connection(connection.client, self._recorded_server)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, connection, Side.CLIENT)
                    nursery.start_soon(self._pump, connection, Side.SERVER)
                connection.close()
        finally:
            connection.reset(*Side, comment="the link was taken down")
            self._connections.discard(connection)
            places.release()

    async def _pump(self, connection: _Connection, sender: Side) -> None:
        """Carry the data that `sender` sends, until it ends its stream."""
        source, sink = connection.sockets[sender], connection.sockets[sender.other]
        buffer = memoryview(bytearray(READ_BYTES))
        while not connection.has_ended:
            await trio.lowlevel.wait_readable(source)
            await self._flow.passed()
            try:
                size_bytes = source.recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError:
                connection.reset(sender)
                return
            try:
                if size_bytes == 0:
                    sink.shutdown(socket.SHUT_WR)
                    if connection.record is not None:
                        connection.record.finished(sender)
                    return
                if not self._haste.is_open:
                    with trio.move_on_after(self._delay_s):
                        await self._haste.passed()
                    await self._flow.passed()
                await self._hand_over(connection, sender, buffer[:size_bytes])
            except OSError:
                connection.reset(sender.other)
                return

    async def _hand_over(self, connection: _Connection, sender: Side, data: memoryview) -> None:
        """Send all of `data` to the other side; count and record each part as it goes.

        Raises:
            OSError: the other side accepts no more.
        """
        sink = connection.sockets[sender.other]
        while data:
            try:
                sent_bytes = sink.send(data)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(sink)
                await self._flow.passed()
                continue
            if sender is Side.CLIENT:
                self.statistics.bytes_to_server += sent_bytes
            else:
                self.statistics.bytes_to_client += sent_bytes
            if connection.record is not None:
                connection.record.sent(sender, bytes(data[:sent_bytes]))
            data = data[sent_bytes:]


class Gate:
    """A gate, open or shut. Tasks wait at it while it is shut."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def open(self) -> None:
        self._opened.set()

    def shut(self) -> None:
        if self.is_open:
            self._opened = trio.Event()

    async def passed(self) -> None:
        """Wait until the gate is open. If it is open now, return at once, without a checkpoint."""
        while not self.is_open:
            await self._opened.wait()


class _Connection:
    """The two sockets of one connection, and how it ends."""

    def __init__(self, accepted: socket.socket, host: str, client: Endpoint) -> None:
        accepted.setblocking(False)
        self._host = host
        self.client = client  # as recorded
        self.sockets = {Side.CLIENT: accepted}
        self.scope = trio.CancelScope()
        self.record: RecordedConnection | None = None
        self.has_ended = False

    async def connect(self, target: Endpoint) -> None:
        """Connect to the target.

        Raises:
            OSError: the target refuses the connection, or the link was cut in the meantime.
        """
        if self.has_ended:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sockets[Side.SERVER] = server
        server.setblocking(False)
        if all(ipaddress.IPv4Address(each).is_loopback for each in (self._host, target.host)):
            server.bind((self._host, 0))
        try:
            server.connect(target)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(server)
            if failure := server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(failure, os.strerror(failure)) from None
        refuse_itself(server)
        for end in self.sockets.values():
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self, *senders: Side, comment: str = "") -> None:
        """Send RST to both ends at once; the recording shows the RST as coming from `senders`."""
        if not self.has_ended and self.record is not None:
            self.record.reset(*senders, comment=comment)
        self._end(resets=True)

    def close(self) -> None:
        """Close both sockets after both sides have finished."""
        self._end(resets=False)

    def _end(self, *, resets: bool) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self.scope.cancel()
        for end in self.sockets.values():
            if resets:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            trio.lowlevel.notify_closing(end)
            end.close()
