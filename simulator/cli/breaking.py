"""The commands that break a topology that `mqproto run` runs, and mend it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY, typed_again
from mqproto.simulator.command.options import (
    DONE,
    DirectoryOption,
    TopologyOption,
    place_of,
    run_task,
)

NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE", help="Which nodes.", show_default=False)]
OneEnd = Annotated[str, typer.Argument(metavar="NODE", help="One end.", show_default=False)]
OtherEnd = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="The other end; by default whatever it has a link with.", show_default=False
    ),
]


def kill(
    nodes: NodesArgument, topology: TopologyOption = DEFAULT_TOPOLOGY, directory: DirectoryOption = None
) -> int:
    """Kill nodes of `mqproto run` with SIGKILL. They stay down until mqproto restart.

    \b
    $ mqproto kill destination
    destination: process 4711 was killed; undone by: mqproto restart destination
    """
    return _have_done("kill", nodes, topology, directory)


def restart(
    nodes: NodesArgument, topology: TopologyOption = DEFAULT_TOPOLOGY, directory: DirectoryOption = None
) -> int:
    """Start nodes of `mqproto run` that were killed; those that run are stopped first."""
    return _have_done("restart", nodes, topology, directory)


def cut(
    one: OneEnd,
    other: OtherEnd = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
) -> int:
    """Cut a link: its connections are reset, and none can be made until mqproto mend.

    Of `mqproto run --capture` it can be cut if that has --breakable as well.
    """
    return _have_done("cut", [one, *filter(None, [other])], topology, directory)


def stall(
    one: OneEnd,
    other: OtherEnd = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
) -> int:
    """Stall a link: nothing crosses it, and nothing is closed, until mqproto mend.

    Of `mqproto run --capture` it can be stalled if that has --breakable as well.
    """
    return _have_done("stall", [one, *filter(None, [other])], topology, directory)


def slow(
    one: OneEnd,
    other: OtherEnd = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
) -> int:
    """Make a link slow: all that crosses it waits, each way, until mqproto mend.

    Of `mqproto run --capture` it can be slow if that has --breakable as well.
    """
    return _have_done("slow", [one, *filter(None, [other])], topology, directory)


def mend(
    one: Annotated[
        str,
        typer.Argument(metavar="NODE", help="One end; by default all links are mended.", show_default=False),
    ] = "",
    other: OtherEnd = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
) -> int:
    """Mend links that were cut, stalled or slow."""
    return _have_done("mend", [*filter(None, [one, other])], topology, directory)


def _have_done(deed: str, nodes: list[str], topology: str, directory: Path | None) -> int:
    from mqproto.simulator.faults import byhand
    from mqproto.simulator.topology import places

    place = place_of(topology, directory)
    again = typed_again(topology, directory)
    path = places.run_socket(place.directory, place.topology.name)
    otherwise = f"no mqproto run has the nodes of {place.topology.name}; start it: mqproto run{again}"
    done = run_task(partial(byhand.asked, path, byhand.Deed(deed), nodes, otherwise))
    for effect in done.effects:
        print(effect.told(again))
    done.raise_failure()
    return DONE
