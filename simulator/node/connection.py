"""A connected socket, which a node uses both for neighbours and for clients."""

from __future__ import annotations

import errno
import socket
from collections import deque
from typing import Final, Protocol

import trio

from mqproto.simulator.base.sockets import round_trip_s
from mqproto.simulator.base.tap import Tap

READ_BYTES: Final = 256 * 1024
"""The maximum number of bytes that one read takes. Reads of 1,400 bytes have only a fifteenth of the throughput."""
FAREWELL_S: Final = 2.0
FAREWELL_BYTES: Final = 16 * 2**20
"""Limits for a connection that we close: the seconds (above) in which to send its queued data, and the number of bytes
that it may receive in that time.
"""


def read_buffer() -> memoryview:
    """Return a buffer for reads. All connections of a thread may share it, so that idle ones cost next to nothing."""
    return memoryview(bytearray(READ_BYTES))


class Socket(Protocol):
    """A connected socket, or something used like one."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def send(self, data: bytes | memoryview, /) -> int: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class Connection:
    """Sends as much as the kernel takes at once, and the rest in a separate task.

    Args:
        connected: the socket; it belongs to the connection from now on.
        nursery: runs the task that sends the data that the kernel did not take at once.
        buffer: the buffer that `read` fills.
        tap: gets every byte that leaves or arrives.
    """

    def __init__(
        self, connected: Socket, nursery: trio.Nursery, buffer: memoryview, tap: Tap | None = None
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._nursery = nursery
        self._buffer = buffer
        self._tap = tap
        self._unsent: deque[memoryview] = deque()
        self._flushed = trio.Event()
        self._flushed.set()
        self.unsent_bytes = 0
        self.failure: OSError | None = None
        """The error that prevents all further sending, if any. A reader sees an end or an error as well."""

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._socket.fileno() == -1

    @property
    def round_trip_s(self) -> float | None:
        """TCP's round-trip time; None if the system does not report it."""
        return None if self.is_closed else round_trip_s(self._socket)

    def send(self, data: bytes) -> None:
        """Send all data in order, without waiting. If the connection is broken, the data is dropped."""
        if self.failure is not None or self.is_closed:
            return
        sent = 0
        if not self._unsent:
            sent = self._try_to_send(data)
            if sent == len(data) or self.failure is not None:
                return
            self._flushed = trio.Event()
            self._nursery.start_soon(self._drain)
        self._unsent.append(memoryview(data)[sent:])
        self.unsent_bytes += len(data) - sent

    def _try_to_send(self, data: bytes | memoryview) -> int:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.failure = error
            self._broken()
            return 0
        if self._tap is not None:
            self._tap.sent(data[:sent])
        return sent

    def _broken(self) -> None:
        if self._tap is not None:
            self._tap.broken()

    async def _drain(self) -> None:
        try:
            while self._unsent and self.failure is None and not self.is_closed:
                await trio.lowlevel.wait_writable(self._socket)
                sent = self._try_to_send(self._unsent[0])
                self.unsent_bytes -= sent
                rest = self._unsent.popleft()[sent:]
                if rest:
                    self._unsent.appendleft(rest)
        except trio.ClosedResourceError:
            pass
        finally:
            self._unsent.clear()
            self.unsent_bytes = 0
            self._flushed.set()

    async def flushed(self) -> None:
        """Wait until no data remains to be sent, because all of it has left or the connection is broken."""
        await self._flushed.wait()

    async def readable(self) -> None:
        """Wait until there is data to read, or the end of the stream, or an error.

        Raises:
            trio.ClosedResourceError: `close` was called before or during the wait.
        """
        if self.is_closed:
            raise trio.ClosedResourceError
        await trio.lowlevel.wait_readable(self._socket)

    def read(self, limit_bytes: int = READ_BYTES) -> memoryview | None:
        """Return the data that has arrived, up to a limit. It is empty at the end of the stream, and None if nothing
        has arrived.

        The result is in the buffer, so use it before the next checkpoint.

        Raises:
            OSError: the connection broke.
        """
        try:
            size = self._socket.recv_into(self._buffer[:limit_bytes])
        except BlockingIOError:
            return None
        except OSError:
            self._broken()
            raise
        if self._tap is not None:
            self._tap.received(self._buffer[:size])
        if size == 0 and self.failure is not None:
            raise self.failure
        return self._buffer[:size]

    async def finish(self) -> None:
        """Send the queued data, wait until the other side ends, too, and close. This takes at most 2 s and 16 MiB.

        If we closed at once, the kernel could send a reset, which would overtake the last data.
        """
        with trio.move_on_after(FAREWELL_S):
            await self.flushed()
            try:
                self._socket.shutdown(socket.SHUT_WR)
                if self._tap is not None:
                    self._tap.finished()
                data: memoryview | None = None
                came_bytes = 0
                while (data is None or data) and came_bytes < FAREWELL_BYTES:
                    await self.readable()
                    data = self.read()
                    came_bytes += len(data or b"")
            except (OSError, trio.ClosedResourceError):
                pass
        self.close()

    def close(self) -> None:
        """Close at once. Tasks that wait for the socket get trio.ClosedResourceError. A second call does nothing."""
        if not self.is_closed:
            if self._tap is not None:
                self._tap.finished()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def end_of(error: OSError | None) -> str:
    """Describe how a connection ended; an `error` of None means an orderly end."""
    if error is None or error.errno == errno.EPIPE:
        return "closed by the peer"
    if error.errno == errno.ECONNRESET:
        return "reset by the peer"
    return f"broken: {error.strerror}"
