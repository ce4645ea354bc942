"""Helpers for sockets that listen or connect."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from typing import Final, Protocol

from mqproto.base.errors import UsageError

BACKLOG: Final = 128
ADVICE: Final = "name another address in the topology, or have `mqproto run --free-ports` choose one"
"""What to do if a node's address is not available."""
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER (on, zero seconds) that makes close() send RST and free the port at once.

Unsent data is dropped.
"""


def refuse_itself(connected: socket.socket) -> None:
    """Refuse a socket that is connected to itself.

    If nobody listens on a port in the ephemeral range, the system gives the caller that very port in about one of
    28,000 calls. The call then meets itself, and TCP treats that as a connection (RFC 9293 3.5, simultaneous open).
    Everything sent comes back, and nobody else can listen there.

    Raises:
        ConnectionRefusedError: it is connected to itself. Closing it frees the port.
    """
    if connected.getsockname() == connected.getpeername():
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


_tcp_info: Final = struct.Struct("=8B16I")
"""The beginning of Linux's tcp_info, up to tcpi_rtt, which is in microseconds."""
TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None


class HasOptions(Protocol):
    """A socket, or a wrapper around one."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def round_trip_s(connected: HasOptions) -> float | None:
    """Return TCP's smoothed round-trip time, as the system measures it; None if that is not reported."""
    if TCP_INFO is None:
        return None
    try:
        found = connected.getsockopt(socket.IPPROTO_TCP, TCP_INFO, _tcp_info.size)
    except OSError:
        return None
    if len(found) < _tcp_info.size:
        return None
    *_, round_trip_us = _tcp_info.unpack(found)
    return round_trip_us / 1_000_000 if round_trip_us else None


def listen(
    host: str,
    port: int,
    *,
    kind: socket.SocketKind = socket.SOCK_STREAM,
    allow_remote: bool = False,
    advice: str = ADVICE,
    backlog: int = BACKLOG,
    is_trial: bool = False,
) -> socket.socket:
    """Listen for connections or datagrams; only those from this machine, unless `allow_remote` is set.

    Args:
        advice: what to do if the address is not available.
        backlog: how many connections may wait until they are accepted.
        is_trial: whether only to check the address. An address that another program uses then counts as available.

    Raises:
        UsageError: the address is not available; the text says what to do.
    """
    is_stream = kind == socket.SOCK_STREAM
    where = f"{host}:{port}" if is_stream else f"{host}:{port} (UDP)"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    except (OSError, UnicodeError):
        raise UsageError(f"no computer is called {host}: give an address") from None
    if not allow_remote and not ipaddress.ip_address(address[0]).is_loopback:
        raise UsageError(
            f"{where} can be reached from outside: `mqproto node`, gateway and trigger take --allow-remote"
        )
    listener = socket.socket(family, kind)
    try:
        listener.setblocking(False)
        if is_stream:  # With datagrams this would let two programs share one port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if is_stream and not is_trial:
            listener.listen(backlog)
    except OSError as error:
        if is_trial and error.errno == errno.EADDRINUSE:
            return listener
        listener.close()
        trouble = {
            errno.EADDRINUSE: f"is taken by another program; stop it or {advice}",
            errno.EADDRNOTAVAIL: f"is not an address of this machine; {advice}",
        }.get(error.errno or 0, f"cannot be listened at ({error.strerror}); {advice}")
        raise UsageError(f"{where} {trouble}") from None
    return listener
