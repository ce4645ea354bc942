"""Identifies the process at the other end of a Unix domain socket. The kernel reports it, so nobody can forge it."""

from __future__ import annotations

import pwd
import socket
import struct
from functools import lru_cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqproto.base.foreign import shown

PEER_CREDENTIALS: Final = getattr(socket, "SO_PEERCRED", None)
"""The socket option that identifies the process at the other end. It is None on systems without this option, such as
macOS, where clients stay unknown.
"""
COMMAND_BYTES: Final = 4_096
NAME_CHARACTERS: Final = 200
_ucred: Final = struct.Struct("=iII")


class Credentials(NamedTuple):
    """The process that called connect() or listen() at the other end, and its user and group at that moment.

    pid: the process's number, or 0 if it is in another PID namespace. The process may have ended since, and its number
        may now belong to another process.
    user: the user's name; empty if the system does not know it.
    """

    pid: int
    uid: int
    gid: int
    user: str

    def facts(self) -> dict[str, Any]:
        """Return the credentials for a log line."""
        return {key: value for key, value in self._asdict().items() if value != ""}


def credentials_of(connected: socket.socket) -> Credentials | None:
    """Return the credentials of the process at the other end, or None if the system does not report them."""
    if PEER_CREDENTIALS is None:
        return None
    try:
        found = connected.getsockopt(socket.SOL_SOCKET, PEER_CREDENTIALS, _ucred.size)
    except OSError:
        return None
    pid, uid, gid = _ucred.unpack(found)
    return Credentials(pid, uid, gid, name_of(uid))


def program_of(pid: int) -> str:
    r"""Return the program that a process runs, such as `mqproto trigger destination\orders`; empty if it is unknown.

    For a program that is not ours, return only its name, because its arguments may be secret.
    """
    try:
        return program_in(Path(f"/proc/{pid}/cmdline").read_bytes()[:COMMAND_BYTES])
    except OSError:
        return ""


def program_in(command: bytes) -> str:
    """Return the program in a command line in which a NUL ends each word, as in /proc."""
    first, *rest = command.decode("utf-8", "replace").rstrip("\0").split("\0")
    if Path(first).name.startswith("python"):
        given = [*dropwhile(lambda word: word[:1] == "-" and word not in ("-c", "-m"), rest)]
        given = given[1:] if given[:1] == ["-m"] else given
        if given and given[0] != "-c":
            first, *rest = given
    name = Path(first).name
    is_ours = name.partition(".")[0] == "mqproto"
    said = takewhile(lambda word: word[:1] != "-", rest[:2]) if is_ours else ()
    return shown(" ".join(("mqproto" if is_ours else name, *said)), NAME_CHARACTERS)


@lru_cache(maxsize=256)
def name_of(uid: int) -> str:
    """Return a user's name, or an empty text if the system does not know it. The name is cached, because a directory
    service may be slow.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
