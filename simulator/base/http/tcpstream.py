"""A TCP stream that needs few turns of the loop.

It sends at once what the kernel accepts, and waits before it reads. trio's own stream gives all other tasks a turn
after each call, and tries to read before it waits. So each request costs three turns of the loop and a useless system
call. A user of this stream must yield elsewhere between two requests.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

READ_BYTES: Final = 65_536


class TcpStream(trio.abc.HalfCloseableStream):
    """Takes over the socket of a trio stream. Only one task may send at a time, and only one may read."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)
        self._left_bytes: int | None = None

    @property
    def is_quiet(self) -> bool:
        """Return whether the stream is open at both ends and no data is waiting to be read."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def limit_buffer(self, size_bytes: int) -> None:
        """Limit the kernel's send buffer, which has the data that the other end has not taken yet, to about this
        size.
        """
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all data. Other tasks get a turn only if the kernel does not take it all at once."""
        sent = self.send_at_once(data)
        if sent < len(data):
            with memoryview(data) as rest:
                while sent < len(rest):
                    await trio.lowlevel.wait_writable(self._socket)
                    sent += self.send_at_once(rest[sent:])

    def send_at_once(self, data: bytes | bytearray | memoryview) -> int:
        """Send as many bytes as the kernel takes now. Return how many were sent."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken() from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel accepts more data."""
        await trio.lowlevel.wait_writable(self._socket)

    def wait_no_more(self, left_bytes: int) -> None:
        """Read only data that is already here, at most `left_bytes`; after that, reading raises trio.WouldBlock."""
        self._left_bytes = left_bytes

    def _come(self, max_bytes: int) -> bytes:
        if not self._left_bytes:
            raise trio.WouldBlock
        try:
            data = self._socket.recv(min(max_bytes, self._left_bytes))
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            raise self._broken() from error
        self._left_bytes -= len(data)
        return data

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return data as soon as there is any; empty at the end of the data."""
        if self._left_bytes is not None:
            return self._come(max_bytes or READ_BYTES)
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv(max_bytes or READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._broken() from error

    async def send_eof(self) -> None:
        """Shut down the sending side."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._broken() from error
        await trio.lowlevel.checkpoint()

    def _broken(self) -> Exception:
        return trio.ClosedResourceError() if self._socket.fileno() < 0 else trio.BrokenResourceError()

    def close(self) -> None:
        """Close the stream. A task that waits gets trio.ClosedResourceError. A second call does nothing."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def aclose(self) -> None:
        """Close the stream, like `close`."""
        self.close()
        await trio.lowlevel.checkpoint()
