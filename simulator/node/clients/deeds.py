"""Logs who changed what, with a line for each operation that changes something.

    {"event": "operated", "operation": "purge", "queue": "orders", "messages": 17,
     "pid": 4242, "uid": 1000, "gid": 1000, "user": "ann", ...}

The line about an operator's order is written before the batch with the order is committed, so nothing happens without a
named author. A process that dies in between leaves a line about something that did not happen.

Clients send and receive thousands of times a second. So, for each connection, only the first operation of each kind on
each queue is logged at once, and later ones are counted. The counts are logged once a minute, and at the end of the
connection. A node that is killed loses the counts since they were last logged.

Reading is not logged. Requests that are refused because the client may only look are logged in the same way, as
`not-allowed`. The author is the process at the other end of the Unix domain socket. The kernel names it, so nobody can
forge it.
"""

from __future__ import annotations

import pwd
import socket
import struct
from collections.abc import Callable
from functools import lru_cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqproto.base.foreign import shown

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

PEER_CREDENTIALS: Final = getattr(socket, "SO_PEERCRED", None)
"""The socket option that identifies the process at the other end. It is None on systems without this option, such as
macOS, where clients stay unknown.
"""
COMMAND_BYTES: Final = 4_096
EVENT: Final = "operated"
REFUSED: Final = "not-allowed"
TELL_S: Final = 60.0
KINDS: Final = 64
"""The maximum number of counts that a connection has, one for each operation on each queue.

If there would be more, the oldest count is logged and dropped.
"""
NAME_CHARACTERS: Final = 200
"""The maximum number of characters of a queue's name, or of a program, in a line."""
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


class _OperationCount:
    """The operations of one kind on one queue since the last log line."""

    def __init__(self) -> None:
        self.requests = 0
        self.messages = 0


class ClientActivity:
    """The actions of one connection.

    Args:
        who: the client; None if unknown.
        is_counting: called when the first count is waiting to be logged. `tell` must then be called within `TELL_S`.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        who: Credentials | None,
        is_counting: Callable[[ClientActivity], None],
    ) -> None:
        self.who = who
        self._log = log
        self._who = {"uid": "not known"} if who is None else who.facts()
        self._is_counting = is_counting
        self._counts: dict[tuple[str, str, str], _OperationCount] = {}
        self._waits = False
        """Whether a call of `tell` is already expected."""

    def did(self, operation: str, queue: str = "", **facts: Any) -> None:
        """Log an operator's order."""
        named = {"queue": _short(queue)} if queue else {}
        self._log.info(EVENT, operation=operation, **named, **facts, **self._who)

    def moved(self, operation: str, queue: str, messages: int) -> None:
        """Count messages that were sent or taken."""
        self._counted(EVENT, operation, queue, messages)

    def was_refused(self, operation: str) -> None:
        """Count a request that was not allowed."""
        self._counted(REFUSED, operation, "", 0)

    def _counted(self, event: str, operation: str, queue: str, messages: int) -> None:
        key = event, operation, _short(queue)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= KINDS:
                oldest = next(iter(self._counts))
                self._tell(oldest, self._counts.pop(oldest))
            self._counts[key] = count = _OperationCount()
            first = _OperationCount()
            first.requests, first.messages = 1, messages
            self._tell(key, first)
            return
        count.requests += 1
        count.messages += messages
        if not self._waits:
            self._waits = True
            self._is_counting(self)

    def tell(self) -> None:
        """Log the counts."""
        self._waits = False
        for key, count in self._counts.items():
            self._tell(key, count)
            self._counts[key] = _OperationCount()

    def _tell(self, key: tuple[str, str, str], count: _OperationCount) -> None:
        if not count.requests:
            return
        event, operation, queue = key
        facts: dict[str, Any] = {"operation": operation}
        if event == EVENT:
            facts |= {"queue": queue, "messages": count.messages}
        if count.requests > 1:
            facts["requests"] = count.requests
        write = self._log.warning if event == REFUSED else self._log.info
        write(event, **facts, **self._who)


def _short(queue: str) -> str:
    return queue if len(queue) <= NAME_CHARACTERS else queue[: NAME_CHARACTERS - 3] + "..."
