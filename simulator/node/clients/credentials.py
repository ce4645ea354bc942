"""Who is at the other end of a Unix domain socket, by what the kernel says: nobody can claim to be somebody else."""

from __future__ import annotations

import pwd
import socket
import struct
from functools import lru_cache
from typing import Any, Final, NamedTuple

PEER_CREDENTIALS: Final = getattr(socket, "SO_PEERCRED", None)
"""None where the system has none, as macOS; then nobody knows who it is."""
_ucred: Final = struct.Struct("=iII")


class Credentials(NamedTuple):
    """The process that called connect(), and its user and group at that moment.

    pid: 0 for a process of another PID namespace. The process may be gone, and its number another's.
    user: the user's name; empty if the system knows none.
    """

    pid: int
    uid: int
    gid: int
    user: str

    def facts(self) -> dict[str, Any]:
        """The same for a line of the log."""
        return {key: value for key, value in self._asdict().items() if value != ""}


def credentials_of(connected: socket.socket) -> Credentials | None:
    """Who connected; None if the system does not tell."""
    if PEER_CREDENTIALS is None:
        return None
    try:
        found = connected.getsockopt(socket.SOL_SOCKET, PEER_CREDENTIALS, _ucred.size)
    except OSError:
        return None
    pid, uid, gid = _ucred.unpack(found)
    return Credentials(pid, uid, gid, name_of(uid))


@lru_cache(maxsize=256)
def name_of(uid: int) -> str:
    """The name of a user; empty if the system knows none. It is asked once, as a directory service may be slow."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
