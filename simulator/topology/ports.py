"""Free ports, for callers that accept any port."""

from __future__ import annotations

import socket


def reserved_address() -> tuple[str, int]:
    """Return 127.0.0.1 and a port. For a minute, only programs that ask for this port by number get it.

    A port that was merely free a moment ago may be taken before a server listens at it. So this function makes a
    connection to the port, and closes it first at the server's end, which leaves the port in TIME_WAIT. The system does
    not give such a port to programs that ask for any free port. But servers set SO_REUSEADDR, which lets them listen at
    it. The UDP port of the same number is free as well when this function returns.
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
