"""Starts queue managers as processes, waits until they are ready, and kills, restarts and reaps them.

A node process is `mqproto node NAME --topology FILE --supervised`. It prints `opening` before it opens its store, and
`ready` when it listens. It ends when its standard input ends, so nodes do not outlive their supervisor, however that
ends.

`Supervisor.keep` starts a node again however often it ends, with growing pauses. A caller that kills nodes on purpose
uses `start`, `kill` and `watch`. `Programs` are gateways and triggers, which are started and killed in the same way.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
import trio

from mqproto.base.errors import MqprotoError
from mqproto.simulator.base.log import COMPLAINT
from mqproto.simulator.base.logfile import appended, written
from mqproto.simulator.base.processes import cpu_s_of
from mqproto.simulator.rig.network import Gate
from mqproto.simulator.storage.files import SYSTEM_FILES
from mqproto.simulator.topology import Topology, places
from mqproto.simulator.topology.views import Address, as_toml, seen_by

PROGRAM: Final = "mqproto.simulator.cli.cli"
OPENING: Final = b"opening"
READY: Final = b"ready"
"""The first words of two lines that a supervised node prints: one before it opens its store, and one when it
listens."""
READY_TIMEOUT_S: Final = 30
PAUSE_LIMIT_S: Final = 60.0
"""The maximum pause, in seconds, before a node is started again."""
STEADY_S: Final = 60.0
"""The time, in seconds, that a node has to run to count as steady.

When a steady node ends, it is started again at once, and the series of pauses starts over.
"""
STOP_TIMEOUT_S: Final = 10
TAIL_BYTES: Final = 8_192


class NodeError(MqprotoError):
    """A node process ended on its own. The text contains the process's own last error."""


@dataclass(frozen=True, slots=True)
class Started:
    """The times, on trio's clock, at which a node process was spawned and was ready."""

    spawned_s: float
    ready_s: float


class Pauses:
    """The pauses before a node is started again: none, 1 s, 2 s, 4 s, and so on up to a minute."""

    def __init__(self) -> None:
        self._count = 0

    def after(self, ran_s: float) -> float:
        """Return the pause after a node ran for `ran_s`; pass 0 if it did not start."""
        if ran_s >= STEADY_S:
            self._count = 0
        self._count += 1
        # The exponent is bounded as well: a node may die for years.
        return 0.0 if self._count == 1 else min(2.0 ** min(self._count - 2, 10), PAUSE_LIMIT_S)


class NodeProcess:
    """The process of one node.

    log_from: the size of the node's log when the process was started; earlier lines are from other processes.
    """

    def __init__(self, name: str, process: trio.Process, log: Path, log_from: int = 0) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.log_from = log_from
        self.is_wanted = False
        """Whether the process is expected to run, because it has been ready and has not been asked to end."""
        self._said = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def says(self, word: bytes) -> bool:
        """Wait until the process has printed a line that begins with this word. Return False if the process ends
        first.
        """
        assert self.process.stdout is not None
        while not self.has_said(word):
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                return False
            self._said += chunk
        return True

    def has_said(self, word: bytes) -> bool:
        """Return whether we have read a line that begins with this word. Once the process is reaped, all its output has
        been read.
        """
        return bool(self.line(word))

    def line(self, word: bytes) -> str:
        """Return the first line that begins with this word, or an empty text if there is none."""
        lines = self._said.split(b"\n")[:-1]
        return next((line.decode("utf-8", "replace") for line in lines if line.startswith(word)), "")

    async def reaped(self) -> None:
        """Wait for the end of the process, and read the rest of its output."""
        await self.process.wait()
        assert self.process.stdout is not None
        self._said += b"".join([chunk async for chunk in self.process.stdout])
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                await pipe.aclose()

    def failure(self) -> NodeError:
        """Return the reason why the process ended: the signal that killed it after it was ready, or else the error in
        its log.

        Another process for the same node, started by somebody else, may write to that log as well.
        """
        status = self.process.returncode
        if status is not None and status < 0 and self.has_said(READY):
            reason = _ending(status)
        else:
            reason = last_error(self.log, self.log_from) or _ending(status)
        return NodeError(f"{self.name}: {reason}")

    def cpu_s(self) -> float | None:
        """Return the process's user and system time so far, or None if the kernel does not report it."""
        return cpu_s_of(self.pid)


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


class Processes:
    """Programs as processes in one folder. Each ends when its standard input ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running: dict[str, NodeProcess] = {}

    async def open(self, name: str, arguments: Sequence[str], log: Path) -> NodeProcess:
        """Start a process.

        Args:
            arguments: a module, followed by the module's arguments.
            log: the file for the process's standard error.
        """
        with appended(log) as file:
            log_from = file.tell()
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        node = self.running[name] = NodeProcess(name, process, log, log_from)
        return node

    async def until(self, node: NodeProcess, word: bytes) -> None:
        """Wait until a starting process prints OPENING or READY.

        Raises:
            NodeError: the process ended instead, or did not print the word within 30 s.
        """
        with trio.move_on_after(READY_TIMEOUT_S) as patience:
            if await node.says(word):
                return
        node.process.kill()
        await self._reap(node)
        if patience.cancelled_caught:
            raise NodeError(f"{node.name} was not {word.decode()} after {READY_TIMEOUT_S} s; see {node.log}")
        raise node.failure()

    async def kill(self, name: str) -> NodeProcess:
        """Send SIGKILL to a process; return when the process is reaped and all its output is read."""
        node = self.running[name]
        node.is_wanted = False
        node.process.kill()
        await self._reap(node)
        return node

    async def stop(self, name: str) -> None:
        """Send SIGTERM to a process, and SIGKILL if the process has not ended after 10 s."""
        if (node := self.running.get(name)) is None:
            return
        node.is_wanted = False
        node.process.terminate()
        with trio.move_on_after(STOP_TIMEOUT_S):
            await node.process.wait()
        if node.process.returncode is None:
            node.process.kill()
        await self._reap(node)

    async def stop_all(self) -> None:
        """Stop all processes, all at the same time."""
        async with trio.open_nursery() as nursery:
            for name in list(self.running):
                nursery.start_soon(self.stop, name)

    async def _reap(self, node: NodeProcess) -> None:
        with trio.CancelScope(shield=True):
            await node.reaped()
        if self.running.get(node.name) is node:
            del self.running[node.name]


class Supervisor(Processes):
    """The nodes of one topology, each in its own process.

    Args:
        topology: the nodes, and the addresses on which they listen.
        directory: the folder for the nodes' stores, their logs, and the topology as each of them sees it.
        detours: the addresses of proxies, keyed by pairs: the node that connects, and its neighbour.
        capture: if given, each node records its traffic in the file that `capture_of` returns.
    """

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        detours: Mapping[tuple[str, str], Address] | None = None,
        capture: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.topology = topology
        self._detours = detours or {}
        self._capture = capture
        self._turns = {name: trio.Lock() for name in topology.nodes}
        """The lock of each node. If tasks other than `keep` may stop, start or reap nodes, each task holds the lock
        while it does so.
        """
        self._wanted = {name: Gate() for name in topology.nodes}
        """For each node, a gate that is shut while the node is down on purpose, so that `keep` leaves it down."""
        places.make(directory)

    def topology_file(self, name: str) -> Path:
        """Return the file with the topology as one node sees it."""
        return places.seen_path(self.directory, name)

    async def start(self, name: str) -> Started:
        """Spawn a node and wait until it listens.

        Raises:
            NodeError: the node ended instead, or was not ready within 30 s.
        """
        spawned_s = trio.current_time()
        node = await self.spawn(name)
        await self.until(node, READY)
        node.is_wanted = True
        return Started(spawned_s, trio.current_time())

    async def spawn(self, name: str) -> NodeProcess:
        """Start a node's process. To wait until it listens, use `start`.

        Raises:
            NodeError: another process already runs the node; the node's files are left alone.
        """
        store = places.store_path(self.directory, name)
        if SYSTEM_FILES.is_locked(store):
            raise NodeError(f"{name}: {store}: another node has it open: stop that one first")
        log = self.directory / f"{name}.log"
        # Another run may have been tried here since, and left files with other ports.
        seen = as_toml(seen_by(self.topology, name, self._detours))
        written(self.topology_file(name), seen)
        command = [PROGRAM, "node", name, "--supervised", "--topology", str(self.topology_file(name))]
        command += ["--directory", str(self.directory), "--log", str(log)]
        if self._capture is not None:
            command += ["--capture", str(capture_of(self._capture, name))]
        return await self.open(name, command, log)

    async def start_all(self) -> dict[str, NodeError]:
        """Start all nodes at the same time. Return the errors of the nodes that ended instead, keyed by name."""
        failures: dict[str, NodeError] = {}

        async def start(name: str) -> None:
            try:
                await self.start(name)
            except NodeError as failure:
                failures[name] = failure

        async with trio.open_nursery() as nursery:
            for name in self.topology.nodes:
                nursery.start_soon(start, name)
        return failures

    async def keep(self, name: str, tell: Callable[[str], None]) -> None:
        """Until this task is cancelled, start a node again whenever it ends, unless it was put down.

        Args:
            tell: called with a line when the node ends, when it cannot be started, and when it runs again.
        """
        pauses = Pauses()
        ran_s = 0.0
        while True:
            await self._wanted[name].passed()
            if (node := self.running.get(name)) is not None:
                since_s = trio.current_time()
                await node.process.wait()
                ran_s = trio.current_time() - since_s
                async with self._turns[name]:
                    if self.running.get(name) is not node:
                        continue  # It was put down, or brought up, and is reaped.
                    await self._reap(node)
                pause_s = pauses.after(ran_s)
                tell(f"{node.failure()}; it starts again{_in(pause_s)}")
            else:
                pause_s = pauses.after(0)
            while name not in self.running and self._wanted[name].is_open:
                await trio.sleep(pause_s)
                async with self._turns[name]:
                    if name in self.running or not self._wanted[name].is_open:
                        break
                    try:
                        await self.start(name)
                    except (NodeError, OSError) as failure:
                        pause_s = pauses.after(0)
                        reason = str(failure) if isinstance(failure, NodeError) else f"{name}: {failure}"
                        tell(f"{reason}; it is tried again{_in(pause_s)}")
                    else:
                        tell(f"{name} is back, process {self.running[name].pid}")

    async def put_down(self, name: str) -> int | None:
        """Kill a node; `keep` leaves it down until `bring_up`. Return its process ID, or None if it was not running."""
        async with self._turns[name]:
            self._wanted[name].shut()
            return (await self.kill(name)).pid if name in self.running else None

    async def bring_up(self, name: str) -> int:
        """Start a node that was put down, or restart one that is running; return its process ID.

        Raises:
            NodeError: the node does not start; `keep` keeps trying.
        """
        async with self._turns[name]:
            try:
                if name in self.running:
                    await self.stop(name)
                await self.start(name)
                return self.running[name].pid
            finally:
                self._wanted[name].open()

    def is_put_down(self, name: str) -> bool:
        """Whether a node is down on purpose."""
        return not self._wanted[name].is_open

    def is_up(self, name: str) -> bool:
        """Whether a node has been ready and has not ended."""
        node = self.running.get(name)
        return node is not None and node.is_wanted and node.process.returncode is None

    async def watch(self) -> NodeProcess:
        """Wait until a node that was ready ends on its own; reap its process and return it."""
        while True:
            for node in self.running.values():
                if node.process.poll() is not None and node.is_wanted:
                    await self._reap(node)
                    return node
            # Waiting for several processes would take a task for each; polling is enough here.
            await trio.sleep(0.1)


AnySupervisor = TypeVar("AnySupervisor", bound=Supervisor)


@asynccontextmanager
async def supervised(
    topology: Topology,
    directory: Path,
    detours: Mapping[tuple[str, str], Address] | None = None,
    capture: Path | None = None,
) -> AsyncIterator[Supervisor]:
    """Start all nodes of a topology, and stop them at the end, even after an error.

    Raises:
        NodeError: a node did not start.
    """
    async with stopped_at_the_end(Supervisor(topology, directory, detours, capture)) as supervisor:
        for failure in (await supervisor.start_all()).values():
            raise failure
        yield supervisor


@asynccontextmanager
async def stopped_at_the_end(supervisor: AnySupervisor) -> AsyncIterator[AnySupervisor]:
    """Stop the running nodes at the end, even after an error."""
    try:
        yield supervisor
    finally:
        with trio.CancelScope(shield=True):
            await supervisor.stop_all()


class Programs(Processes):
    """The running programs. Their standard error goes to `NAME.err`."""

    async def start(self, name: str, arguments: Sequence[str]) -> str:
        """Start a command of `mqproto`, and wait until it is ready; return the line that says so.

        Raises:
            NodeError: the command ended instead, or was not ready within 30 s.
        """
        arguments = [*arguments, "--directory", str(self.directory), "--supervised"]
        return await self.run(name, [PROGRAM, *arguments])

    async def run(self, name: str, arguments: Sequence[str]) -> str:
        """Do the same as `start`, but for another module. The module has to report when it is ready, and to end when
        its standard input ends.
        """
        program = await self.open(name, arguments, self.directory / f"{name}.err")
        await self.until(program, READY)
        return program.line(READY)


@asynccontextmanager
async def programs_in(directory: Path) -> AsyncIterator[Programs]:
    """Yield the programs that are started in the block. However the block ends, they are killed at its end."""
    programs = Programs(directory)
    try:
        yield programs
    finally:
        with trio.CancelScope(shield=True):
            for name in list(programs.running):
                await programs.kill(name)


def capture_of(capture: Path, name: str) -> Path:
    """Return the capture file of one node: `run-sender.pcapng` next to `run.pcapng`."""
    return capture.with_name(f"{capture.stem}-{name}{capture.suffix}")


def _in(pause_s: float) -> str:
    return f" in {pause_s:g} s" if pause_s else ""


class _Complaint(msgspec.Struct):
    event: str = ""
    reason: str = ""


def last_error(log: Path, start: int = 0) -> str:
    """Return the last error that a node has written to its log after the first `start` bytes; empty if there is
    none.
    """
    with log.open("rb") as file:
        # A shorter log began anew meanwhile.
        start = start if file.seek(0, os.SEEK_END) >= start else 0
        lines = _tail(file, start).decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        if found := re.fullmatch(r"mqproto: (?:error: )?(.+)", line):
            return found[1]
        with suppress(msgspec.DecodeError):
            complaint = msgspec.json.decode(line, type=_Complaint)
            if complaint.event == COMPLAINT:
                return complaint.reason
    return ""


def _tail(file: BinaryIO, start: int) -> bytes:
    file.seek(0, os.SEEK_END)
    file.seek(max(start, file.tell() - TAIL_BYTES))
    return file.read()
