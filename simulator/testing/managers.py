"""Queue managers as processes of a test's own: what the fixture `queue_managers` gives.

They listen on ports of 127.0.0.1 that nobody else is given, and every connection between two of them goes through a
link that can be cut. They end with the process that started them, even if that is killed.
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
from mqproto.simulator.faults.links import BreakableLink, Links
from mqproto.simulator.faults.supervisor import NodeProcess, Supervisor, supervised
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
    """Queue managers that run within a block. It begins when all of them listen.

    Args:
        folder: for their stores and logs; those of an earlier block go on.
        topology: how many, qm1, qm2 and so on, each linked to the next; or a topology, with free ports in place of its
            own, or what `--topology` takes.
        queues: of a number of queue managers, the queues that each has, `NAME` or `NAME:transactional`.
        capture: has each record what it sends and receives: qm1 in `run-qm1.pcapng`, if this is `run.pcapng`.

    Raises:
        UsageError: they cannot be.
        NodeError: one did not start.
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
    """What the fixture is: called, it starts queue managers that run until the test has ended."""

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
        """Start queue managers, as `started` does, in a folder of their own."""
        return self._ends.enter_context(started(self._new_folder(), topology, queues=queues, capture=capture))


class QueueManagers:
    """Queue managers that run, by name."""

    def __init__(self, portal: BlockingPortal, supervisor: Supervisor, links: Links) -> None:
        self.topology = supervisor.topology
        """With the ports that they listen on. Clients of trio and asyncio take it, and `directory`."""
        self.directory: Path = supervisor.directory
        """Where their stores and logs are."""
        self.file = self.directory / "topology.toml"
        """The topology for other processes: what `--topology` takes, beside `--directory`."""
        self.file.write_text(as_toml(self.topology), "utf-8")
        self._portal = portal
        self._supervisor = supervisor
        self._links = links

    @property
    def names(self) -> list[str]:
        """All of them, in order, whether they run or not."""
        return list(self.topology.nodes)

    def connect(self, name: str, journal: Path | None = None) -> AbstractContextManager[BlockingClient]:
        """A client of one: see `mqproto.simulator.client.blocking.connect`."""
        return connect(self.topology, name, self.directory, journal=journal)

    def log(self, name: str) -> str:
        """What one has logged since it was first started."""
        return (self.directory / f"{self._known(name)}.log").read_text("utf-8", "replace")

    def kill(self, name: str) -> None:
        """End the process of one with SIGKILL. What it had acknowledged is on disk, and there when it starts again."""
        self._portal.call(self._supervisor.kill, self._running(name).name)

    def start(self, name: str) -> None:
        """Start one again, and return when it listens.

        Raises:
            UsageError: it runs.
            NodeError: it did not start.
        """
        if self._known(name) in self._supervisor.running:
            raise UsageError(f"{name} runs: kill it first")
        self._portal.call(self._supervisor.start, name)

    def cut(self, one: str, other: str) -> None:
        """Reset the connections between two, and have none made, until `mend`."""
        self._break(one, other, Action.CUT)

    def stall(self, one: str, other: str) -> None:
        """Carry nothing between two, without a word to either, until `mend`."""
        self._break(one, other, Action.STALL)

    def mend(self, one: str, other: str) -> None:
        """Carry everything again."""
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
    """That many queue managers, each linked to the next, with the short timers of three-node.

    Raises:
        UsageError: there are none, or a queue is not written so.
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
        # What goes wrong in the caller's block leaves as itself, not in the nursery's group.
        try:
            detours = await nursery.start(links.run)
            async with supervised(topology, folder, detours, capture) as supervisor:
                yield supervisor, links
        except BaseException as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
