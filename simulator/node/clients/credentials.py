"""Who is at the other end of a Unix domain socket, by what the kernel says: nobody can claim to be somebody else."""

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
"""None where the system has none, as macOS; then nobody knows who it is."""
COMMAND_BYTES: Final = 4_096
NAME_CHARACTERS: Final = 200
_ucred: Final = struct.Struct("=iII")


class Credentials(NamedTuple):
    """The process that called connect(), or listen() at the other end, and its user and group at that moment.

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
    """Who connected, or whom we have connected to; None if the system does not tell."""
    if PEER_CREDENTIALS is None:
        return None
    try:
        found = connected.getsockopt(socket.SOL_SOCKET, PEER_CREDENTIALS, _ucred.size)
    except OSError:
        return None
    pid, uid, gid = _ucred.unpack(found)
    return Credentials(pid, uid, gid, name_of(uid))


def program_of(pid: int) -> str:
    r"""What runs in a process, such as `mqproto trigger destination\orders`; empty if the system does not tell.

    Of other programs than ours the name alone is told, as what is typed behind it may be secret.
    """
    try:
        return program_in(Path(f"/proc/{pid}/cmdline").read_bytes()[:COMMAND_BYTES])
    except OSError:
        return ""


def program_in(command: bytes) -> str:
    """The same of the words of a command, each with a zero behind it."""
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
    """The name of a user; empty if the system knows none. It is asked once, as a directory service may be slow."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
