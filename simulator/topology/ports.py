"""Ports for those who are content with any."""

from __future__ import annotations

import socket


def reserved_address() -> tuple[str, int]:
    """127.0.0.1 and a port that for a minute is given only to those who ask for it by its number.

    A port that was merely free a moment ago may be anybody's by the time one listens at it. Here a connection was
    closed by its server first, so the port is in TIME_WAIT: the system hands it to nobody who asks for any port, and
    SO_REUSEADDR, which servers set, lets them listen at it. Nobody listens at that port of UDP either, at this moment.
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
