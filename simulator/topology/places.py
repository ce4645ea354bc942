"""The paths of a node's files, and of the sockets for its clients.

They depend on the directory and on the node's name.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import PrivateName, parse_queue_name
from mqproto.simulator.base.program import environment
from mqproto.simulator.base.traces.asked import checked_collector
from mqproto.simulator.topology import Topology, TopologyError, load
from mqproto.simulator.topology.file import read_address, state_folder
from mqproto.simulator.topology.nodes import METRICS_PORT
from mqproto.simulator.topology.resolve import is_bare, node_of

SOCKET_PATH_LIMIT_BYTES: Final = 103
"""The maximum length of a socket's path, in bytes: sun_path has 104 bytes on macOS and 108 on Linux, one of which is a
NUL."""


@dataclass(frozen=True, slots=True)
class Place:
    """A topology, and the directory of its nodes' stores.

    declared: the topology as written in its file; None unless the queues in `topology` are those that running nodes
        report.
    silent: the nodes that did not answer when they were asked for their queues, so that nobody waits for them again.
    """

    topology: Topology
    directory: Path
    declared: Topology | None = None
    silent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topology: str, directory: Path | None) -> Place:
        """Return the place for a topology and a directory that were given on the command line.

        Raises:
            TopologyError: there is no such topology, or it is not valid.
        """
        loaded = load(topology, directory)
        return cls(loaded, directory or default_directory(loaded))

    @property
    def again(self) -> str:
        """The options with which another command finds the same nodes, with a space in front.

        They are empty if none are needed.
        """
        return again(self.topology, self.directory)

    def with_waypoints(self) -> Place:
        """Return the place in which all nodes write the waypoints of messages to their logs."""
        return replace(self, topology=self.topology.with_waypoints())

    def with_free_ports(self) -> Place:
        """Return the place in which all nodes listen at free ports of 127.0.0.1."""
        return replace(self, topology=self.topology.with_free_ports())

    def with_gateway(self, address: str, name: str, *, allow_remote: bool) -> Place:
        """Return the place in which a node takes messages over HTTP at this address, which may be beyond loopback."""
        remote = {"allow_remote": True} if allow_remote else {}
        table = {**(self.topology.nodes[name].gateway or {}), **remote, "listen": address}
        node = replace(self.topology.nodes[name], gateway=table)
        return replace(self, topology=self.topology.with_node(node))

    def with_metrics(self, address: str, name: str = "") -> Place:
        """Return the place in which one node, or all of them, answer /metrics at `HOST` or `HOST:PORT`.

        Args:
            name: the node; empty for all nodes.

        Raises:
            TopologyError: the text is not an address, or another listener has this address.
        """
        host, port = read_address(address, "--metrics", METRICS_PORT)
        if not name:
            return replace(self, topology=self.topology.with_metrics(host, port))
        node = replace(self.topology.nodes[name], metrics=(host, port))
        return replace(self, topology=self.topology.with_node(node))

    def with_traces(self, url: str, name: str = "") -> Place:
        """Return the place in which one node, or all of them, send spans to a collector.

        Args:
            name: the node; empty for all nodes.

        Raises:
            UsageError: the text is not the URL of a collector.
        """
        collector = checked_collector(url)
        if not name:
            return replace(self, topology=self.topology.with_traces(collector))
        node = replace(self.topology.nodes[name], traces=collector)
        return replace(self, topology=self.topology.with_node(node))

    def name_at(self, node: str, subject: str) -> str:
        """Return the name by which a request to a node must refer to a queue.

        If the node's own file lacks the queue, this is the queue's private name. Otherwise, it is the given text, which
        the node interprets.
        """
        with suppress(FormatNameError, TopologyError):
            text = f"{self.topology.host_of(subject).name}\\{subject}" if is_bare(subject) else subject
            found = self.topology.resolve(text, at=node)
            if self.declared is None or found.queue is None or found.node.name == node:
                return subject
            with suppress(TopologyError):
                if self.declared.resolve(text, at=node).format_name == found.format_name:
                    return subject
            return str(PrivateName(found.node.guid, found.queue.identifier))
        return subject


def host_of(place: Place, node: str | None, queue: str) -> str:
    """Return the requested node; if none is requested, the node that hosts the queue."""
    if node:
        return place.topology.node_named(node).name
    if is_bare(queue):
        [first, *others] = place.topology.nodes
        # If a single node does not run, nobody knows its queues.
        return place.topology.host_of(queue).name if others else first
    return node_of(place.topology, parse_queue_name(queue), None).name


def default_directory(topology: Topology) -> Path:
    """Return the default directory for the stores of a topology's nodes."""
    return state_folder(topology.name)


def start_command(topology: Topology, node: str, directory: Path | None = None) -> str:
    """Return the command that starts a node.

    If `mqproto run` runs the other nodes, the command tells it to start this one, too. Otherwise, if there are other
    nodes, the text offers two commands: one starts only this node, and the other starts all nodes. A node that has no
    store where others have theirs may run on another machine.

    directory: the directory of the node's store; None for the usual one.
    """
    where = environment.directory_again(_elsewhere(topology, directory))
    stores = directory or default_directory(topology)
    if is_run(stores, topology.name):
        anew = run_anew(topology, directory, node)
        return anew or f"`mqproto restart {node}{again(topology, directory)}`"
    if [*topology.nodes] == [node] == [topology.name]:
        return f"`mqproto node --name {node}{where}`"
    alone = f"`mqproto node {node}{again(topology, directory)}`"
    if len(topology.nodes) == 1:
        return alone
    here = [name for name in topology.nodes if store_path(stores, name).exists()]
    unless = ", unless it runs on another machine" if here and node not in here else ""
    return f"{alone}, or all nodes with `{run_command(topology, directory)}`{unless}"


def start_again(place: Place) -> tuple[Callable[[str], str], str]:
    """Return a function, and the options for other commands.

    The function takes a node's name and returns the command that starts the node. With the options, any other command
    finds the same nodes.
    """
    return partial(start_command, place.topology, directory=place.directory), place.again


def run_anew(topology: Topology, directory: Path | None, lacks: str) -> str:
    """Return the command that starts `mqproto run` again, if its copy of a topology is out of date.

    The copy is out of date if it lacks the node or queue, although the topology has it. Otherwise, the text is empty.

    Args:
        lacks: the name of the missing node or queue.
    """
    stores = directory or default_directory(topology)
    copies = [copy for name in topology.nodes if (copy := seen_path(stores, name)).is_file()]
    if not copies or not is_run(stores, topology.name):
        return ""
    # Whenever it starts a node, it writes down what it knows about all nodes.
    latest = max(copies, key=lambda copy: copy.stat().st_mtime)
    known: dict[str, dict[str, Any]] = tomllib.loads(latest.read_text("utf-8"))["node"]
    for name, node in topology.nodes.items():
        for lacking in {name} - {*known} or node.queues.keys() - {*known[name].get("queue", {})}:
            if lacking.casefold() == lacks.casefold():
                since_s = run_socket(stores, topology.name).stat().st_mtime
                since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since_s))
                return (
                    f"`{run_command(topology, directory)}` after you have ended the one that goes on: its copy of "
                    f"{topology.typed} is of {since}, without {lacking}"
                )
    return ""


def run_command(topology: Topology, directory: Path | None = None) -> str:
    """Return the command that runs all nodes."""
    return f"mqproto run{again(topology, directory)}"


def again(topology: Topology, directory: Path | None = None) -> str:
    """Return the options with which another command finds the same nodes, with a space in front.

    The text is empty if no options are needed.
    """
    return environment.typed_again(topology.typed, _elsewhere(topology, directory))


def _elsewhere(topology: Topology, directory: Path | None) -> Path | None:
    """Return the directory if it is not the usual one; otherwise, None."""
    return None if directory == default_directory(topology) else directory


def store_path(directory: Path, name: str) -> Path:
    """Return the path of a node's store."""
    return directory / f"{name}.sqlite"


def seen_path(directory: Path, name: str) -> Path:
    """Return the path of the file with the topology that `mqproto run` gives one of its nodes."""
    return directory / f"{name}.seen.toml"


def keys_path(directory: Path, name: str) -> Path:
    """Return the path of the folder with a node's keys."""
    return directory / f"{name}.keys"


def public_path(directory: Path, name: str) -> Path:
    """Return the path of the folder with a node's public keys and certificates. Everyone may read it."""
    return directory / f"{name}.public"


def called(node: str, name: str) -> str:
    """Return the base name for the files of a node's gateway or trigger.

    Raises:
        UsageError: the files cannot have this name.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
        raise UsageError(f"--name {name!r}: files are called so; up to 40 letters, digits, - and _")
    return f"{node}-{name}"


def history_url(directory: Path) -> str:
    """Return the URL of the default document history of gateways and triggers."""
    return f"sqlite:///{directory.resolve() / 'history.sqlite'}"


def history_there(directory: Path, url: str) -> str:
    """Return the URL of the document history.

    It is the given URL, if any, or else that of the file next to the stores; empty if there is neither.
    """
    is_there = (directory / "history.sqlite").is_file()
    return url or (history_url(directory) if is_there else "")


def socket_path(directory: Path, name: str) -> Path:
    """Return the path of a node's Unix domain socket.

    The path is short enough for sun_path, however long the directory's name is.
    """
    place = hashlib.sha256(os.fsencode(store_path(directory.resolve(), name))).hexdigest()[:16]
    return runtime_directory() / f"{place}.sock"


def run_socket(directory: Path, topology: str) -> Path:
    """Return the path of the socket at which `mqproto run` takes orders for the nodes of a topology."""
    place = hashlib.sha256(os.fsencode(directory.resolve() / f"{topology}.run")).hexdigest()[:16]
    return runtime_directory() / f"{place}.sock"


def is_run(directory: Path, topology: str) -> bool:
    """Return whether `mqproto run` runs the nodes of a topology."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(run_socket(directory, topology))) == 0


def client_socket(directory: Path, name: str) -> Path:
    """Return the path of the socket for a node's client.

    It is the readers' socket if the directory is a readers' folder; otherwise, it is the node's own.
    """
    return (
        reading_socket(directory, name) if is_for_readers(directory, name) else socket_path(directory, name)
    )


def is_for_readers(directory: Path, name: str) -> bool:
    """Return whether this folder has a node's socket for readers, even if the node no longer runs."""
    try:
        return reading_socket(directory, name).is_socket()
    except OSError:
        return False


def reading_socket(folder: Path, name: str) -> Path:
    """Return the path of a node's socket in a folder for readers."""
    return folder / f"{name}.read"


def readers_folder(group: str) -> Path:
    """Return the default folder for the sockets of readers of this user's nodes."""
    return Path(tempfile.gettempdir()) / f"mqproto-{os.getuid()}-{group}"


def runtime_directory() -> Path:
    """Return this user's folder for sockets.

    It is $XDG_RUNTIME_DIR/mqproto, or mqproto-UID in the folder for temporary files.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "mqproto" if runtime else Path(tempfile.gettempdir()) / f"mqproto-{os.getuid()}"


def prepared(socket: Path) -> Path:
    """Make the folder of a socket and check that only this user can enter it; return the path.

    Raises:
        UsageError: the path is too long, or others could enter the folder.
    """
    check_length(socket, "set XDG_RUNTIME_DIR to a shorter folder")
    folder = socket.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # In a folder where anybody may create entries, somebody else may have been there first.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(f"{folder} must be a folder that only you can enter: remove it, or chmod 700 it")
    return socket


@contextmanager
def listening(path: Path, backlog: int) -> Iterator[socket.socket]:
    """Yield a listening socket at a path that only this user can reach.

    The caller has checked that an old socket at the path belongs to a dead process.

    Raises:
        UsageError: the path cannot be used.
    """
    prepared(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(backlog)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def check_length(socket: Path, advice: str) -> None:
    """Check that a socket can have this path.

    Raises:
        UsageError: the path is too long; the text ends with the advice.
    """
    if len(os.fsencode(socket)) > SOCKET_PATH_LIMIT_BYTES:
        raise UsageError(f"{socket} is too long for a socket: {advice}")


def make(directory: Path) -> None:
    """Make a directory for stores, if it does not exist.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made ({error.strerror}): name another directory") from None


def keep_private(directory: Path, name: str) -> None:
    """Make all existing files of a node's store and logs private to their owner."""
    for pattern in (f"{name}.sqlite*", f"{name}.life*", f"{name}.log*"):
        for path in directory.glob(pattern):
            # Another user's file stays as it is: the store reports files that it cannot open.
            with suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
                    path.chmod(0o600)


def who_may_enter(directory: Path) -> str:
    """Return the mode of a folder as text, such as 755, if other users can enter or list it.

    Otherwise, the text is empty.
    """
    mode = stat.S_IMODE(directory.stat().st_mode)
    return f"{mode:o}" if mode & 0o077 else ""
