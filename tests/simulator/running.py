"""Running nodes for tests: in this process if that is enough, in a separate one if they are to be killed."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.simulator.client import Client, connect
from mqproto.simulator.node.node import RunningNode, run_node
from mqproto.simulator.topology import Topology
from tests.conformance import ROOT
from tests.simulator.forks import Fork, Forks

DESTINATION = r"destination\private$\orders"

SERVE = """
import pickle, sys
from functools import partial
from pathlib import Path
from mqproto.simulator.node.node import run_node, serve
from mqproto.simulator.topology.places import Place
topology, name, directory = pickle.load(sys.stdin.buffer), sys.argv[1], Path(sys.argv[2])
front = None
if (table := topology.nodes[name].gateway) is not None:
    from mqproto.simulator.edges.gateway.run import run_gateway
    from mqproto.simulator.edges.options import GatewayOptions
    front = partial(run_gateway, GatewayOptions.of(Place(topology, directory), name, table))
serve(partial(run_node, topology, name, directory, front=front), name, supervised=True)
"""
NODES: Final = Forks("mqproto.simulator.node.node")


RUNNING: Final[dict[tuple[Path, str], RunningNode]] = {}
"""The nodes that `running` runs in this process, by folder and name."""


def own_host(number: int) -> str:
    """Return a loopback address for port 1801; tests of other checkouts use other addresses.

    number: from 1 to 254; each test that listens there has a different one.
    """
    first, second, *_ = hashlib.sha256(str(ROOT).encode()).digest()
    return f"127.{1 + first % 254}.{second}.{number}"


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Poll a condition until it holds; this is for conditions that nothing reports."""
    while not await holds():  # noqa: ASYNC110
        await trio.sleep(0.02)


async def until_sent(client: Client) -> None:
    """Wait until a node has no messages that wait to be sent or to be confirmed."""

    async def is_sent() -> bool:
        return not any(queue.waiting for queue in (await client.queues()).outgoing)

    await until(is_sent)


class Log(io.StringIO):
    """A node's log, to be read and waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._written = trio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines about one kind of event, oldest first."""
        lines = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def line(self, event: str) -> dict[str, Any]:
        """Return the last line about an event, as soon as there is one."""
        return (await self.at_least(1, event))[-1]

    async def at_least(self, count: int, event: str) -> list[dict[str, Any]]:
        """Return all lines about an event, as soon as there are `count`."""
        while len(self.lines(event)) < count:
            await self.more()
        return self.lines(event)

    async def more(self) -> None:
        """Wait for the next line."""
        self._written = trio.Event()
        await self._written.wait()


@asynccontextmanager
async def running(
    topology: Topology,
    name: str,
    directory: Path,
    log: io.StringIO | None = None,
    *,
    capture: Path | None = None,
) -> AsyncIterator[RunningNode]:
    """Run a node in this process, and stop it at the end of the block."""
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[RunningNode]) -> None:
            await run_node(
                topology, name, directory, capture=capture, log=log or Log(), task_status=task_status
            )

        node: RunningNode = await nursery.start(run)
        RUNNING[directory, name] = node
        try:
            yield node
        finally:
            del RUNNING[directory, name]
        node.stop()


@asynccontextmanager
async def running_with_client(topology: Topology, name: str, directory: Path) -> AsyncIterator[Client]:
    """Run a node in this process; yield a client of it."""
    async with running(topology, name, directory), connect(topology, name, directory) as client:
        yield client


class NodeProcess:
    """A node in a separate process, ready when `start` returns."""

    def __init__(self, topology: Topology, name: str, directory: Path) -> None:
        self.topology = topology
        self.name = name
        self.directory = directory
        self.process: Fork | None = None

    async def start(self) -> None:
        """Start the node and wait until it reports that it is ready."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            process = await NODES.start(SERVE, self.name, str(self.directory), stderr=log.fileno())
        self.process = process
        await process.stdin.send_all(pickle.dumps(self.topology))
        said = b""
        while said.count(b"\n") < 2:
            chunk = await process.stdout.receive_some()
            assert chunk, f"{self.name} did not start: {(self.directory / f'{self.name}.log').read_text()}"
            said += chunk
        assert said.startswith(f"opening {self.name}\nready ".encode())

    async def end(self, number: signal.Signals) -> int:
        """Send the node a signal and wait for its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """Wait until the node has ended; return its exit status."""
        assert self.process is not None
        process = self.process
        status = await process.wait()
        self.process = None  # Not before: who is not waited for any more is to be killed.
        for stream in (process.stdin, process.stdout):
            await stream.aclose()
        return status

    def client(self) -> Any:
        """Return a client of the node."""
        return connect(self.topology, self.name, self.directory)


@asynccontextmanager
async def processes(topology: Topology, directory: Path) -> AsyncIterator[dict[str, NodeProcess]]:
    """Run every node of a topology in a separate process; kill them at the end of the block."""
    nodes = {name: NodeProcess(topology, name, directory) for name in topology.nodes}
    async with AsyncExitStack() as ends:
        async with trio.open_nursery() as nursery:
            for node in nodes.values():
                ends.push_async_callback(_kill, node)
                nursery.start_soon(node.start)
        yield nodes


async def _kill(node: NodeProcess) -> None:
    if node.process is not None:
        with trio.CancelScope(shield=True):
            await node.end(signal.SIGKILL)
