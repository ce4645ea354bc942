"""What all who connect have to know of sockets."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER, on and zero seconds: close() sends RST, drops what was not sent, and leaves the port free at once."""


def refuse_itself(connected: socket.socket) -> None:
    """See that a socket is connected to somebody else.

    Where nobody listens on a port that the system also gives to those who call, it gives a caller that very port once
    in some 28,000 calls. The call then meets itself, TCP takes that for a connection (RFC 9293 3.5, simultaneous
    open), all that is sent comes back, and nobody else can listen there.

    Raises:
        ConnectionRefusedError: it is connected to itself; to close it frees the port.
    """
    if connected.getsockname() == connected.getpeername():
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
