"""Decides which addresses may be used: those on loopback, and others only on request."""

from __future__ import annotations

import ipaddress
import socket
import sys

import trio

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.command.probe import target


async def allowed(text: str, *, allow_remote: bool) -> list[tuple[str, int]]:
    """Return the addresses of HOST or HOST:PORT. A name is resolved once and for all.

    Raises:
        UsageError: the text is not an address; or, without `allow_remote`, one of the name's addresses is not on
            loopback.
    """
    host, port = target(text)
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(f"no computer is called {host}: give another name, or an address") from None
    addresses = [str(entry[4][0]) for entry in found]
    beyond = [address for address in addresses if not is_loopback(address)]
    if beyond and not allow_remote:
        what = host if host == beyond[0] else f"{host}, {beyond[0]},"
        raise UsageError(f"{what} is not on loopback: ask for that with --allow-remote")
    return [(address, port) for address in dict.fromkeys(addresses)]


def is_loopback(address: str) -> bool:
    """Return whether an address is on this computer's loopback."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listening_at(address: str, port: int) -> socket.socket:
    """Return a listening socket, and report its address on standard error, for the person who starts the client.

    Raises:
        UsageError: the address is not available.
    """
    listener = listen(address, port, allow_remote=True, advice="name another port with --listen")
    print(f"listening at {Endpoint(address, port)}", file=sys.stderr, flush=True)
    return listener
