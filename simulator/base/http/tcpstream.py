"""A TCP connection that costs few turns: what the kernel takes is sent at once, what comes is waited for, then read.

trio's own stream lets all other tasks have a turn after each call, and tries to read before it waits: three turns of
the loop and a call of the kernel in vain for each request. Whoever uses this one waits elsewhere between two requests.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

READ_BYTES: Final = 65_536


class TcpStream(trio.abc.HalfCloseableStream):
    """Takes over the socket of a stream of trio's. One task sends at a time, and one reads."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = socket.socket(fileno=stream.socket.detach())
        self._socket.setblocking(False)
        self._left_bytes: int | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it is open at both ends, and nothing has come."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def limit_buffer(self, size_bytes: int) -> None:
        """Have the kernel keep about so much of what the other end has not taken, and take no more meanwhile."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it; a turn of others passes only if the kernel does not take it."""
        sent = self.send_at_once(data)
        if sent < len(data):
            with memoryview(data) as rest:
                while sent < len(rest):
                    await trio.lowlevel.wait_writable(self._socket)
                    sent += self.send_at_once(rest[sent:])

    def send_at_once(self, data: bytes | bytearray | memoryview) -> int:
        """How many bytes the kernel takes now."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._broken() from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return when the kernel takes something."""
        await trio.lowlevel.wait_writable(self._socket)

    def wait_no_more(self, left_bytes: int) -> None:
        """Have what has come read, and no more than so much; after that, reading raises trio.WouldBlock."""
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
        """What has come, once something has; empty at the end."""
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
        """Nothing more is sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._broken() from error
        await trio.lowlevel.checkpoint()

    def _broken(self) -> Exception:
        return trio.ClosedResourceError() if self._socket.fileno() < 0 else trio.BrokenResourceError()

    def close(self) -> None:
        """Close it; whoever waits sees trio.ClosedResourceError. Twice is once."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def aclose(self) -> None:
        """The same, as a stream has it."""
        self.close()
        await trio.lowlevel.checkpoint()
