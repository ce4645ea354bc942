"""A socket for readers: a group of the operating system whose members may look at a node but change nothing.

The node's own socket is in a folder that only its user can enter. Readers have their own socket in their own folder.
What a client may ask for depends only on its socket, whatever it claims to be.

    FOLDER              0750, the node's user and the group
    FOLDER/NAME.read    0660, the socket: clients find it if --directory names the folder
    FOLDER/NAME.toml    0640, for a node without a topology: a copy of its file for commands
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.simulator.node.control import Operation
from mqproto.simulator.topology import places

BACKLOG: Final = 16
LOOKS: Final = frozenset(
    {
        Operation.HELLO,
        Operation.QUEUES,
        Operation.PEEK,
        Operation.ABANDON,
        Operation.EXPLAIN,
        Operation.PEERS,
        Operation.DECLARED,
    }
)
"""The operations that change nothing. Readers may not use any other operation, even one from a later version."""


def called(operation: int) -> str:
    """Return an operation's name for people, such as `send back`."""
    return Operation(operation).name.lower().replace("_", " ")


def refusal(operation: int, node: str) -> UsageError:
    """Return the error for a reader that asks for an operation that is not among LOOKS."""
    return UsageError(
        f"readers of {node} may look and change nothing, and {called(operation)} does: be {_user()}, the user that it "
        "runs as, and leave the --directory of readers out"
    )


@contextmanager
def listening_for_readers(
    group: str, folder: Path, node: str, alone: Path | None = None
) -> Iterator[socket.socket]:
    """Listen on a socket for a group, in a folder that only this group can enter.

    Args:
        alone: the file of a node without a topology, which commands read; None for a node of a topology.

    The socket file stays after the node has ended, because it marks the folder as one for readers.

    Raises:
        UsageError: there is no such group, this user may not give files to the group, or the folder is unusable.
    """
    path = places.reading_socket(folder, node)
    places.check_length(path, "name a shorter --readers-folder")
    number = number_of(group)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            _prepare(folder, number, path)
            if alone is not None and alone.is_file():
                _copy(alone, folder / alone.name, number)
            path.unlink(missing_ok=True)
            listener.setblocking(False)
            listener.bind(str(path))
            _give(path, number, 0o660)
            listener.listen(BACKLOG)
        except OSError as error:
            raise UsageError(
                f"--readers {group}: {folder} cannot be given to this group ({error.strerror}): make {_user()} a "
                f"member of it, or name a folder of {_user()}'s with --readers-folder"
            ) from None
        yield listener


def _prepare(folder: Path, group: int, path: Path) -> None:
    """Prepare the folder for readers.

    Raises:
        UsageError: something else is in its place.
        OSError: the folder cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # If anybody may create entries there, somebody else may have been first.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(f"{folder} must be a folder of {_user()}'s: name another with --readers-folder")
    if any(folder.glob("*.sqlite")):
        raise UsageError(f"{folder} has stores in it: name a folder for readers alone with --readers-folder")
    others = [other for other in folder.glob(places.reading_socket(Path(), "*").name) if other != path]
    if others and found.st_gid != group:
        raise UsageError(f"{folder} is for another group, as {others[0].name} is there: name another folder")
    _give(folder, group, 0o750)


def _copy(file: Path, copy: Path, group: int) -> None:
    """Copy the file for readers in such a way that the copy is always either complete or absent."""
    part = copy.with_name(f".{copy.name}-{os.getpid()}")
    shutil.copyfile(file, part)
    _give(part, group, 0o640)
    part.replace(copy)


def _give(path: Path, group: int, mode: int) -> None:
    """Give a group access to a path. Until the group owns the path, only this user may use it."""
    path.chmod(mode & 0o700)
    os.chown(path, -1, group)
    path.chmod(mode)


def number_of(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsageError(
            f"--readers {group}: the system has no such group; `getent group` lists them"
        ) from None


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
