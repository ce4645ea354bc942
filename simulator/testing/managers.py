"""Queue managers that run as processes and belong to a test. The fixture `queue_managers` starts them.

They listen on free ports of 127.0.0.1, and every connection between two of them goes through a link that can be cut.
They end when the process that started them ends, even if it is killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from mqproto.base.errors import UsageError
from mqproto.simulator.client.blocking import BlockingClient, connect, held
from mqproto.simulator.rig.links import BreakableLink, Links
from mqproto.simulator.rig.supervisor import NodeProcess, Supervisor, supervised
from mqproto.simulator.topology import Action, Topology, load, parse
from mqproto.simulator.topology.views import as_toml

QUEUES: Final = ("orders:transactional", "replies:transactional", "notes")
TRANSACTIONAL: Final = "transactional"


@contextmanager
def started(
    folder: Path,
    topology: int | str | Topology = 3,
    *,
    queues: Sequence[str] = QUEUES,
    capture: Path | None = None,
) -> Iterator[QueueManagers]:
    """Run queue managers during a block. The block begins when all of them are listening.

    Args:
        folder: the folder for their stores and logs; a later block continues with the stores of an earlier one.
        topology: a number of queue managers, a topology, or any value of `--topology`. With a number, the queue
            managers are named qm1, qm2 and so on, each linked to the next. Otherwise, the topology's ports are replaced
            by free ones.
        queues: the queues of each queue manager, as `NAME` or `NAME:transactional`, if `topology` is a number.
        capture: a path to which the name of each queue manager is added; None for no captures. With `run.pcapng`, qm1
            records its traffic in `run-qm1.pcapng`.

    Raises:
        UsageError: the topology or a queue is not valid.
        NodeError: a queue manager did not start.
    """
    if isinstance(topology, int):
        topology = line_of(topology, queues)
    elif isinstance(topology, str):
        topology = load(topology)
    running = _running(topology.with_free_ports(), folder, capture)
    with (
        start_blocking_portal("trio", name="queue managers") as portal,
        held(portal, running) as (supervisor, links),
    ):
        yield QueueManagers(portal, supervisor, links)


class Starting:
    """The value of the fixture. Call it to start queue managers that run until the test ends."""

    def __init__(self, new_folder: Callable[[], Path], ends: ExitStack) -> None:
        self._new_folder = new_folder
        self._ends = ends

    def __call__(
        self,
        topology: int | str | Topology = 3,
        *,
        queues: Sequence[str] = QUEUES,
        capture: Path | None = None,
    ) -> QueueManagers:
        """Start queue managers, as `started` does, in a new folder."""
        return self._ends.enter_context(started(self._new_folder(), topology, queues=queues, capture=capture))


class QueueManagers:
    """Running queue managers, by name."""

    def __init__(self, portal: BlockingPortal, supervisor: Supervisor, links: Links) -> None:
        self.topology = supervisor.topology
        """The topology with the ports on which they listen.

        Clients for trio and asyncio take it and `directory` as arguments.
        """
        self.directory: Path = supervisor.directory
        """The folder of their stores and logs."""
        self.file = self.directory / "topology.toml"
        """The topology file, for other processes. They pass it to `--topology`, and also need `--directory`."""
        self.file.write_text(as_toml(self.topology), "utf-8")
        self._portal = portal
        self._supervisor = supervisor
        self._links = links

    @property
    def names(self) -> list[str]:
        """The names of all queue managers, running or not, in order."""
        return list(self.topology.nodes)

    def connect(self, name: str, journal: Path | None = None) -> AbstractContextManager[BlockingClient]:
        """Return a client of a queue manager, from `mqproto.simulator.client.blocking.connect`."""
        return connect(self.topology, name, self.directory, journal=journal)

    def log(self, name: str) -> str:
        """Return the log of a queue manager since its first start."""
        return (self.directory / f"{self._known(name)}.log").read_text("utf-8", "replace")

    def kill(self, name: str) -> None:
        """Kill a queue manager with SIGKILL. Everything that it has acknowledged is on disk and survives this."""
        self._portal.call(self._supervisor.kill, self._running(name).name)

    def start(self, name: str) -> None:
        """Start a queue manager again, and return when it is listening.

        Raises:
            UsageError: it is running.
            NodeError: it did not start.
        """
        if self._known(name) in self._supervisor.running:
            raise UsageError(f"{name} runs: kill it first")
        self._portal.call(self._supervisor.start, name)

    def cut(self, one: str, other: str) -> None:
        """Reset the connections between two queue managers, and refuse new ones, until `mend`."""
        self._break(one, other, Action.CUT)

    def stall(self, one: str, other: str) -> None:
        """Stop all data between two queue managers, without closing anything, until `mend`."""
        self._break(one, other, Action.STALL)

    def mend(self, one: str, other: str) -> None:
        """Undo `cut` and `stall` between two queue managers."""
        self._portal.call(self._link(one, other).restore)

    def _break(self, one: str, other: str, action: Action) -> None:
        self._portal.call(self._link(one, other).break_off, action)

    def _link(self, one: str, other: str) -> BreakableLink:
        for link in self._links.links:
            if {link.link.first, link.link.second} == {one, other}:
                return link
        there = ", ".join(map(str, self._links.links)) or "none"
        raise UsageError(f"no link joins {one} and {other}; there is {there}")

    def _known(self, name: str) -> str:
        return self.topology.node_named(name).name

    def _running(self, name: str) -> NodeProcess:
        found = self._supervisor.running.get(self._known(name))
        if found is None:
            raise UsageError(f"{name} does not run: start it first")
        return found


def line_of(count: int, queues: Sequence[str]) -> Topology:
    """Return a topology of `count` queue managers, each linked to the next.

    The timers are short, as in three-node.

    Raises:
        UsageError: `count` is less than 1, or a queue is not valid.
    """
    if count < 1:
        raise UsageError(f"queue_managers({count}): start one at least")
    names = [f"qm{number}" for number in range(1, count + 1)]
    lines = []
    for name in names:
        lines.append(f"[node.{name}]")
        for text in queues:
            queue, *properties = text.split(":")
            if properties not in ([], [TRANSACTIONAL]):
                raise UsageError(f"queue {text!r}: write NAME, or NAME:{TRANSACTIONAL}")
            lines += [
                f'[node.{name}.queue."{queue}"]',
                f"transactional = {'true' if properties else 'false'}",
            ]
    lines += [f'[[link]]\nbetween = ["{one}", "{other}"]' for one, other in pairwise(names)]
    topology = parse("\n".join(lines), "queue_managers.toml")
    settings = load("three-node").node_named("sender").settings
    nodes = {name: replace(node, settings=settings) for name, node in topology.nodes.items()}
    return replace(topology, nodes=nodes)


@asynccontextmanager
async def _running(
    topology: Topology, folder: Path, capture: Path | None
) -> AsyncIterator[tuple[Supervisor, Links]]:
    links = Links(topology)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        # An error in the caller's block leaves as itself, not in the nursery's exception group.
        try:
            detours = await nursery.start(links.run)
            async with supervised(topology, folder, detours, capture) as supervisor:
                yield supervisor, links
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
