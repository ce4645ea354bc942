"""Which addresses may be used: those on loopback, and all others for those who ask."""

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
    """The addresses that a person means by HOST or HOST:PORT, the name resolved once and for all.

    Raises:
        UsageError: it is no address, or one of those that the name stands for is not on loopback, and nobody asked for
            that.
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
    """Whether nobody else can be there."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listening_at(address: str, port: int) -> socket.socket:
    """A socket that listens there; a line on the standard error output says so, for those who start the client.

    Raises:
        UsageError: the address cannot be had.
    """
    listener = listen(address, port, allow_remote=True, advice="name another port with --listen")
    print(f"listening at {Endpoint(address, port)}", file=sys.stderr, flush=True)
    return listener
