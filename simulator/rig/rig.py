"""One run: nodes as processes, the messages from one node to another, and the measurements."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.base.screen import ProgressScreen
from mqproto.simulator.client import Client, connect
from mqproto.simulator.rig.load.consumer import Consumer
from mqproto.simulator.rig.load.producer import Producer
from mqproto.simulator.rig.load.workload import Workload
from mqproto.simulator.rig.observer import LOOK_S, Look, NodeUsage, Observer, node_table
from mqproto.simulator.rig.proof import Committed, Comparison, Sent, compare
from mqproto.simulator.rig.supervisor import NodeProcess, Processes, Supervisor, supervised
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.views import Address

SENDER, INTERMEDIATE, DESTINATION = "sender", "intermediate", "destination"


def new_folder(prefix: str, directory: Path | None = None) -> Path:
    """Return a new folder for a run.

    Args:
        directory: the folder in which to make the new one; by default the folder for temporary files.

    Raises:
        UsageError: nothing can be written there.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=f"mqproto-{prefix}-", dir=directory))
    except OSError as error:
        advice = "name another folder with " + ("--directory" if directory else "TMPDIR")
        where = directory or (Path(error.filename).parent if error.filename else "temporary files")
        raise UsageError(f"{where}: {error.strerror}; {advice}") from None


async def until(holds: Callable[[], object], look_s: float = LOOK_S) -> None:
    """Wait until `holds` returns a true value."""
    while not holds():  # noqa: ASYNC110 - there is no event to wait for.
        await trio.sleep(look_s)


class Flow:
    """One kind of message, from a producer to a consumer."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self.producer = producer
        self.consumer = consumer

    @property
    def is_empty(self) -> bool:
        """Whether every sent message has arrived."""
        came = len(self.consumer.received) >= len(self.producer.sent)
        return came and not self.producer.has_due and not self.consumer.is_in_doubt

    def comparison(self) -> Comparison:
        """Return the comparison of the flow's sent and received messages."""
        return compare(self.producer.sent, self.consumer.received)

    def taken(self) -> tuple[list[Sent], list[Committed]]:
        """Return the messages sent and received since the last call, and forget them."""
        sent, received = self.producer.sent[:], self.consumer.received[:]
        self.producer.sent.clear()
        self.consumer.received.clear()
        return sent, received


class Rig:
    """The nodes of one run and the flows between two of them.

    Args:
        directory: the folder for the stores and logs of the nodes.
    """

    def __init__(self, topology: Topology, directory: Path, screen: ProgressScreen | None = None) -> None:
        self.topology = topology
        self.directory = directory
        self.screen = screen or ProgressScreen(quiet=True)
        self.flows: dict[str, Flow] = {}
        self.observer = Observer(topology.nodes, self.connect, self.seen)
        self.usage: dict[str, NodeUsage] = {}
        """The maximum resources that each program used in any one of its lives."""
        self.start_s = self.end_s = 0.0
        self.supervisor: Supervisor

    def connect(self, name: str) -> AbstractAsyncContextManager[Client]:
        """Return a client of a node."""
        return connect(self.topology, name, self.directory)

    def flow(
        self,
        queue: str,
        workload: Workload,
        moods: random.Random | None = None,
        *,
        to: str = "",
        transactional: bool = True,
        protected: bool = False,
    ) -> Flow:
        """Add a flow of messages from the sender to a queue of the destination, and return it.

        Args:
            to: the producer's name for the queue, if that is not the queue's path.
            moods: as for Consumer.
        """
        path = rf"{DESTINATION}\{queue}"
        self.flows[queue] = Flow(
            Producer(
                partial(self.connect, SENDER),
                to or path,
                workload,
                transactional=transactional,
                protected=protected,
            ),
            Consumer(partial(self.connect, DESTINATION), path, moods),
        )
        return self.flows[queue]

    @asynccontextmanager
    async def running(
        self, detours: Mapping[tuple[str, str], Address] | None = None
    ) -> AsyncIterator[trio.Nursery]:
        """Run the nodes and the consumers; yield the nursery of the consumers.

        Raises:
            NodeError: a node does not start.
        """
        async with (
            supervised(self.topology, self.directory, detours) as self.supervisor,
            trio.open_nursery() as nursery,
        ):
            self.start_s = trio.current_time()
            for flow in self.flows.values():
                nursery.start_soon(flow.consumer.run)
            yield nursery
            self.end_s = trio.current_time()
            nursery.cancel_scope.cancel()

    async def watch(self) -> None:
        """Show the counts of the nodes, and measure their use of resources, until a node ends on its own."""
        with self.screen.shown():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.observer.run)
                nursery.start_soon(self.measure)
                node = await self.supervisor.watch()
                nursery.cancel_scope.cancel()
        self.ended(node)

    def elapsed_s(self) -> float:
        """Return the number of seconds since the nodes began to run."""
        return trio.current_time() - self.start_s

    @property
    def sent_count(self) -> int:
        """The number of messages that were handed over."""
        return sum(len(flow.producer.sent) for flow in self.flows.values())

    @property
    def received_count(self) -> int:
        """The number of messages that have arrived."""
        return sum(len(flow.consumer.received) for flow in self.flows.values())

    def caption(self) -> str:
        """Return a caption that shows the progress of the run."""
        return f"{self.elapsed_s():.0f} s"

    def seen(self, name: str) -> None:
        """Show the new counts of a node."""
        nodes = self.observer.nodes
        nodes[SENDER].sent, nodes[DESTINATION].delivered = self.sent_count, self.received_count
        self.screen.show(node_table(nodes, self.caption()))

    def ended(self, node: NodeProcess) -> None:
        """Raise the error of a node that ended on its own.

        Raises:
            NodeError: always, with the node's reason.
        """
        raise node.failure()

    async def measure(self, *others: Processes) -> None:
        """Measure the resources that the nodes and other programs use, until this is cancelled."""
        looks: dict[int, Look] = {}
        while True:
            for processes in (self.supervisor, *others):
                for name, node in processes.running.items():
                    look = looks.get(node.pid) or looks.setdefault(node.pid, Look(node, node.log_from))
                    self.usage.setdefault(name, NodeUsage()).raise_to(look.figures())
            await trio.sleep(LOOK_S)
