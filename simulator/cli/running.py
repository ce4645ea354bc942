"""`mqproto run`, which keeps the nodes of a topology running and shows what they do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio
from rich.console import Console
from rich.live import Live

from mqproto.base.errors import UsageError
from mqproto.manager.status import NodeStatus
from mqproto.simulator.base.program.again import asked_to_end
from mqproto.simulator.base.screen import plain_table, wide_console
from mqproto.simulator.client import oversee
from mqproto.simulator.client.live import Away
from mqproto.simulator.rig import byhand
from mqproto.simulator.rig.links import Links
from mqproto.simulator.rig.supervisor import Supervisor, capture_of, stopped_at_the_end
from mqproto.simulator.topology import Topology, places
from mqproto.simulator.topology.file import written_address
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.views import Address

LOOK_S: Final = 0.5
LINE_S: Final = 10.0
"""The minimum number of seconds between two lines about the same node, if the output is a pipe.

A line is printed only if something has changed.
"""


Beside = Callable[[Place], AbstractAsyncContextManager[str]]
"""A function that starts a service for the running nodes, which lasts until they end.

It yields the address of the service.
"""


async def run_topology(
    place: Place,
    *,
    capture: Path | None,
    breakable: bool,
    console: Beside | None = None,
) -> int:
    """Run all nodes until SIGINT or SIGTERM.

    A node that ends or fails to start is restarted, however often.

    Args:
        breakable: whether each link goes through proxies, with which `mqproto cut` and `mqproto stall` break it.
        console: serves a page while the nodes run.

    Returns:
        0, or 1 if a node was not running at the end.

    Raises:
        NodeError: no node starts.
        UsageError: another run has these nodes.
    """
    orders = places.run_socket(place.directory, place.topology.name)
    if places.is_run(place.directory, place.topology.name):
        raise UsageError(
            f"another mqproto run has the nodes of {place.topology.name} in {place.directory}: stop that one first"
        )
    topology = place.topology
    screen = wide_console(markup=False)
    tell = partial(screen.print, soft_wrap=True)  # A path may be longer than any line.
    with asked_to_end() as signals:
        async with (
            _links(topology, breakable=breakable) as (links, detours),
            stopped_at_the_end(Supervisor(topology, place.directory, detours, capture)) as supervisor,
        ):
            failures = await supervisor.start_all()
            if len(failures) == len(topology.nodes):
                raise next(iter(failures.values()))
            for node in topology.nodes.values():
                if (failure := failures.get(node.name)) is not None:
                    tell(f"{failure}; it is tried again")
                    continue
                tls = "" if node.tls is None else ", for TLS on {}:{}".format(*node.tls.address)
                pid = supervisor.running[node.name].pid
                listens = f"{node.name} listens on {node.host}:{node.port}{tls}, process {pid}"
                tell(f"{listens}, its store is in {place.directory}")
                if node.metrics is not None:
                    where = written_address(*node.metrics)
                    tell(f"{node.name} answers http://{where}/metrics, /live and /ready")
                if capture is not None:
                    tell(f"{node.name} records in {capture_of(capture, node.name)}")
            async with trio.open_nursery() as nursery, AsyncExitStack() as beside:
                await nursery.start(byhand.Hands(supervisor, links, tell).serve, orders)
                if console is not None:
                    tell(f"console: {await beside.enter_async_context(console(place))}")
                tell("Ctrl-C stops them all")
                for name in topology.nodes:
                    nursery.start_soon(supervisor.keep, name, tell)
                nursery.start_soon(_show, place, screen)
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()
            down = sorted(
                name
                for name in topology.nodes
                if not supervisor.is_up(name) and not supervisor.is_put_down(name)
            )
    screen.print("all nodes have stopped")
    if down:
        screen.print(f"not running at the end: {', '.join(down)}; its log in {place.directory} says why")
    return 1 if down else 0


@asynccontextmanager
async def _links(
    topology: Topology, *, breakable: bool
) -> AsyncIterator[tuple[Links | None, Mapping[tuple[str, str], Address]]]:
    """Yield the proxies of all links, and the addresses at which the two nodes of a link find each other.

    If links are not to be broken, yield None and no addresses.
    """
    if not breakable:
        yield None, {}
        return
    links = Links(topology)
    async with trio.open_nursery() as nursery:
        yield links, await nursery.start(links.run)
        nursery.cancel_scope.cancel()


async def _show(place: Place, console: Console) -> None:
    """Show a live table on a terminal; in a pipe, print a line for each node that has changed."""
    last: dict[str, str] = {}
    with _live(console) as live:
        while True:
            found = await oversee.statuses(place)
            rows = {name: _figures(status) for name, status in found.items()}
            if live is not None:
                table = plain_table("node", *HEADINGS)
                for name, figures in rows.items():
                    table.add_row(name, *figures)
                live.update(table)
                await trio.sleep(LOOK_S)
                continue
            for name, figures in rows.items():
                line = ", ".join(
                    f"{heading} {figure}" for heading, figure in zip(HEADINGS, figures, strict=True)
                )
                if isinstance(away := found[name], Away):
                    line = str(away)
                if last.get(name) != line:
                    last[name] = line
                    console.print(f"{name}: {line}")
            sys.stdout.flush()
            await trio.sleep(LINE_S)


@contextmanager
def _live(console: Console) -> Iterator[Live | None]:
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield live


HEADINGS: Final = ("sessions", "in queues", "on the way", "forwarded", "held", "resent", "dropped")


DOWN: Final = "down"


def _figures(status: NodeStatus | Away) -> tuple[str, ...]:
    if isinstance(status, Away):
        return (DOWN, *[""] * (len(HEADINGS) - 1))
    figures = (
        status.sessions_open,
        sum(queue.waiting for queue in status.local),
        sum(queue.waiting for queue in status.outgoing),
        status.forwarded,
        sum(queue.held for queue in status.local),
        status.resent,
        status.duplicates,
    )
    return tuple(f"{figure:,}" for figure in figures)
