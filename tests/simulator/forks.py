"""Programs as separate processes that start at once: forks of a process that has imported their slow modules.

Imports take a quarter of a second of processor time for a node, and more than half a second for a gateway; tests start
hundreds of them. Each fork has its own pipes, ends on its own, and is killed like any other process. A separate process
is the forks' parent, which waits for each of them and reports how it ended.

python -m tests.simulator.forks FD MODULE ...
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final, NamedTuple

import trio

from tests.conformance import ROOT

SIZE: Final = struct.Struct("<I")
TOLD: Final = struct.Struct("<i")
"""The format of a message from the parent process: one number. The first message has a fork's process id; the second
tells how the fork ended.
"""


class Asked(NamedTuple):
    """The program to run, and what it is given by the process that asks."""

    script: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    files: tuple[int, int]
    """The soft and the hard limit on the number of files that the program may open."""


class Fork:
    """A forked process: the parts of a `trio.Process` that tests use."""

    def __init__(self, told: socket.socket, pid: int, stdin: int, stdout: int) -> None:
        self._told = told
        self._ended: int | None = None
        self._waiting = trio.Lock()
        self.pid = pid
        self.stdin = trio.lowlevel.FdStream(stdin)
        self.stdout = trio.lowlevel.FdStream(stdout)

    @property
    def returncode(self) -> int | None:
        """The fork's exit status, as in `subprocess`; None while it runs."""
        if self._ended is None:
            with suppress(BlockingIOError):
                [status] = TOLD.unpack(self._told.recv(TOLD.size, socket.MSG_DONTWAIT))
                self._ended = os.waitstatus_to_exitcode(status)
                trio.lowlevel.notify_closing(self._told)
                self._told.close()
        return self._ended

    def poll(self) -> int | None:
        return self.returncode

    async def wait(self) -> int:
        """Wait until the fork has ended; return its exit status."""
        async with self._waiting:  # For one socket trio lets one task wait.
            while (ended := self.returncode) is None:
                with suppress(trio.ClosedResourceError):  # Somebody else looked first.
                    await trio.lowlevel.wait_readable(self._told)
            return ended

    async def stdout_until(self, lines: int | None) -> bytes:
        """Return the fork's output as soon as it has this many lines; if `lines` is None, return all of it."""
        said = b""
        while lines is None or said.count(b"\n") < lines:
            part = await self.stdout.receive_some()
            if not part:
                break
            said += part
        return said

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Forks processes that need these modules, from a process that is started by the first request."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._control: socket.socket | None = None

    async def start(self, script: str, *arguments: str, stderr: int = 2) -> Fork:
        """Run a script with these arguments; return the fork once its pipes exist and it is running."""
        control = self._control = self._control or self._launched()
        told, teller = socket.socketpair()
        (its_stdin, stdin), (stdout, its_stdout) = os.pipe(), os.pipe()
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        asked = pickle.dumps(Asked(script, list(arguments), dict(os.environ), os.getcwd(), files))
        theirs = [its_stdin, its_stdout, stderr, teller.fileno()]
        socket.send_fds(control, [SIZE.pack(len(asked))], theirs)
        control.sendall(asked)
        for one in (its_stdin, its_stdout):
            os.close(one)
        teller.close()
        with trio.CancelScope(shield=True):  # It runs already, and is nobody's until its process is known.
            await trio.lowlevel.wait_readable(told)
        [pid] = TOLD.unpack(told.recv(TOLD.size))
        return Fork(told, pid, stdin, stdout)

    def _launched(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules]
        with theirs:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


def forked(control: socket.socket) -> Asked:
    """Fork a process for each request.

    This function returns in the forked processes. In the parent, it never returns: the parent ends together with the
    process that sends the requests.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        head, given, _, _ = socket.recv_fds(control, SIZE.size, 4)
        if not head:
            os._exit(0)
        [size] = SIZE.unpack(head)
        asked: Asked = pickle.loads(control.recv(size, socket.MSG_WAITALL))
        if os.fork() == 0:
            break
        for one in given:
            os.close(one)
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, teller = given
    if child := os.fork():
        for one in standard:
            os.close(one)
        with suppress(BrokenPipeError):
            os.write(teller, TOLD.pack(child))
            os.write(teller, TOLD.pack(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.close(teller)
    for number, one in enumerate(standard):
        os.dup2(one, number)
        os.close(one)
    # That of the process that forks is /dev/null, which can seek.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, asked.files)
    return asked


if __name__ == "__main__":
    for module in sys.argv[2:]:
        import_module(module)
    now = forked(socket.socket(fileno=int(sys.argv[1])))
    sys.argv = ["-c", *now.arguments]
    exec(now.script, {"__name__": "__main__"})
