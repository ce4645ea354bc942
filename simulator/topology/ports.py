"""Free ports, for callers that accept any port."""

from __future__ import annotations

import socket


def reserved_address() -> tuple[str, int]:
    """Return 127.0.0.1 and a port. For a minute, the system gives this port only to programs that ask for its number.

    A port that was merely free a moment ago may be taken by the time that a server listens at it. Here the server
    closed a connection first, so the port is in TIME_WAIT. The system does not give such a port to programs that ask
    for any port, but SO_REUSEADDR, which servers set, lets them listen at it. The UDP port of the same number is free
    as well, at this moment.
    """
    while True:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.socket(type=socket.SOCK_DGRAM) as pings,
        ):
            host, port = listener.getsockname()
            try:
                pings.bind((host, port))
            except OSError:
                continue
            with socket.create_connection((host, port)) as client:
                served, _ = listener.accept()
                served.close()
                client.recv(1)
        return host, port
