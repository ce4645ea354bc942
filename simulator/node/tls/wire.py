"""A connected socket that encrypts, with the interface of a non-blocking socket.

OpenSSL works on memory, and this module reads and writes the socket. So a piece of 64 KiB takes one system call in each
direction, whereas OpenSSL itself reads each record of 16 KiB with two calls. In addition, close_notify can be sent
while the peer is still sending.
"""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import suppress
from typing import Final, cast

import trio

from mqproto.simulator.node.connection import Connection

PIECE_BYTES: Final = 64 * 1024
"""The number of bytes that are encrypted or read at a time. A connection holds about as many in each direction."""
RECORD_BYTES: Final = 16_384 + 256 + 5
"""The size of the longest record, in bytes. An incomplete record may take up almost as much memory again."""

REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "HTTP_REQUEST": "it speaks HTTP, and no TLS",
    "WRONG_VERSION_NUMBER": "it speaks no TLS",
    "UNEXPECTED_EOF_WHILE_READING": "it ended the connection",
    "UNSUPPORTED_PROTOCOL": "it offers nothing newer than TLS 1.1",
}
NOT_PINNED: Final = "its certificate is not pinned"
VERDICTS: Final = {
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    # Its signer is not trusted either: itself, an authority that came with it, or one that did not.
    **dict.fromkeys((18, 19, 20, 21), NOT_PINNED),
    26: "the extendedKeyUsage of its certificate lacks serverAuth or clientAuth, and a node is both",
}
"""OpenSSL's verdicts on a certificate, keyed by the numbers of its X509_V_ERR_*."""


class TlsError(Exception):
    """TLS with this peer failed. The text says why; its subject is the peer."""


class TlsSocket:
    """One end of a TLS connection. It owns the socket.

    Args:
        connected: the socket; it becomes non-blocking.
        accepted: whether the peer connected to us.
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, *, accepted: bool) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._came, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._leaving, server_side=accepted)
        self._unsent = memoryview(b"")
        """Encrypted bytes that the system has not taken yet."""
        self._promised = 0
        """The number of unencrypted bytes of the last `send` whose encrypted form is in `_unsent`."""
        self.has_more = False
        """Whether bytes to read are already in memory. If so, the system does not report the socket as readable because
        of them.
        """

    @property
    def certificate(self) -> bytes:
        """The certificate that the peer showed in the handshake, as DER; empty if none."""
        return self._tls.getpeercert(binary_form=True) or b""

    async def handshake(self, threads: trio.CapacityLimiter) -> None:
        """Exchange the certificates. The computation, which takes a millisecond or more, runs in one of these threads.

        Raises:
            TlsError: the handshake failed.
            OSError: the connection broke.
        """
        while True:
            try:
                await trio.to_thread.run_sync(self._tls.do_handshake, limiter=threads)
            except ssl.SSLWantReadError:
                await self._all_left()
                await self._more_came()
            except ssl.SSLError as error:
                with suppress(OSError):
                    self._flush()  # This tells the peer why.
                raise TlsError(explained(error)) from None
            else:
                await self._all_left()
                self.has_more = True  # The peer may have sent more at once.
                return

    async def _all_left(self) -> None:
        while True:
            try:
                return self._flush()
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def _more_came(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)
        with suppress(BlockingIOError):
            if data := self._socket.recv(RECORD_BYTES):
                self._came.write(data)
            else:
                self._came.write_eof()

    # The calls of a socket

    def fileno(self) -> int:
        """Return the file descriptor to wait for; -1 after `close`."""
        return self._socket.fileno()

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """Return an option of the underlying socket."""
        return self._socket.getsockopt(level, option, size)

    def setblocking(self, flag: bool) -> None:
        """Accept only False, because this socket never blocks."""
        assert not flag

    def send(self, data: bytes | memoryview) -> int:
        """Encrypt and send bytes. Return how many of them the system took. The next call must begin with the rest.

        Raises:
            BlockingIOError: the system takes none now.
            OSError: the connection broke.
        """
        view, sent = memoryview(data), 0
        while sent < len(view):
            try:
                if not self._promised:
                    self._promised = self._tls.write(view[sent : sent + PIECE_BYTES])
                self._flush()
            except BlockingIOError:
                if sent:
                    return sent
                raise
            except ssl.SSLError as error:
                raise _broken(error) from None
            sent, self._promised = sent + self._promised, 0
        return sent

    def _flush(self) -> None:
        while self._unsent or self._leaving.pending:
            if not self._unsent:
                self._unsent = memoryview(self._leaving.read())
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def recv_into(self, buffer: memoryview) -> int:
        """Receive and decrypt into a buffer; return the number of bytes, or 0 at the end of the stream.

        Args:
            buffer: has room for a piece and a record.

        Raises:
            BlockingIOError: nothing has arrived, or there is no room for the next record.
            OSError: the connection broke, or its bytes were altered on the way.
        """
        size, is_over = self._decrypt(buffer, 0)
        try:
            while not is_over and len(buffer) - size >= PIECE_BYTES + RECORD_BYTES:
                data = self._socket.recv(PIECE_BYTES)
                if not data:
                    is_over = True
                    break
                self._came.write(data)
                size, is_over = self._decrypt(buffer, size)
        except BlockingIOError:
            if not size:
                raise
        finally:
            # The end is reported after everything that came before it.
            self.has_more = is_over
        if not size and not is_over:
            raise BlockingIOError(errno.EAGAIN, "there is no room for a record")  # 0 would be an end.
        with suppress(OSError):  # The next send will report it.
            self._flush()  # TLS itself may have to answer.
        return size

    def _decrypt(self, buffer: memoryview, size: int) -> tuple[int, bool]:
        """Fill the buffer after its first `size` bytes. Return how many bytes it then holds, and whether the peer has
        ended.
        """
        try:
            while True:
                read = cast(int, self._tls.read(len(buffer) - size, buffer[size:]))
                if not read:
                    return size, True
                size += read
        except ssl.SSLWantReadError:
            return size, False
        except ssl.SSLZeroReturnError:
            return size, True
        except ssl.SSLError as error:
            raise _broken(error) from None

    def shutdown(self, how: int) -> None:
        """Tell the peer that nothing more will come."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # It need not wait for the peer to say the same.
        with suppress(BlockingIOError):
            self._flush()
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class TlsConnection(Connection):
    """A `Connection` over TLS. A tap gets the bytes in unencrypted form."""

    _socket: TlsSocket

    async def readable(self) -> None:
        """Wait until there is data to read, or the end of the stream, or an error.

        Raises:
            trio.ClosedResourceError: `close` was called before or during the wait.
        """
        if self._socket.has_more and not self.is_closed:
            await trio.lowlevel.checkpoint()
        else:
            await super().readable()


def explained(error: ssl.SSLError) -> str:
    """Return in words why TLS failed; the subject is the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return VERDICTS.get(error.verify_code, f"its certificate is not taken: {error.verify_message}")
    reason = error.reason or "UNEXPECTED_EOF_WHILE_READING"
    if "_ALERT_" in reason:
        return f"it refuses our certificate or our TLS ({_words(reason.partition('_ALERT_')[2])})"
    return REASONS.get(reason, _words(reason))


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _broken(error: ssl.SSLError) -> OSError:
    return OSError(errno.EPROTO, explained(error))
