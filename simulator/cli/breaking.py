"""The commands that break, and mend, a topology which `mqproto run` is running."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, run_task

if TYPE_CHECKING:
    from mqproto.simulator.topology.places import Place

NodesArgument = Annotated[list[str], ARGUMENT, "Names of the nodes.", value("NODE")]
OneEnd = Annotated[str, ARGUMENT, "One end of the link.", value("NODE")]
OtherEnd = Annotated[
    str, ARGUMENT, "The other end; by default, every node that is linked to the first.", value("NODE")
]


def kill(place: Place, nodes: NodesArgument) -> int:
    """Kill nodes of `mqproto run` with SIGKILL. They stay down until mqproto restart.

    \b
    $ mqproto kill destination
    destination: process 4711 was killed; to undo: mqproto restart destination
    """
    return _have_done(place, "kill", *nodes)


def restart(place: Place, nodes: NodesArgument) -> int:
    """Start killed nodes of `mqproto run` again. Running nodes are stopped first."""
    return _have_done(place, "restart", *nodes)


def cut(place: Place, one: OneEnd, other: OtherEnd = "") -> int:
    """Cut a link: its connections are reset, and new ones are refused until mqproto mend.

    If `mqproto run` has --capture, it also needs --breakable for this command.
    """
    return _have_done(place, "cut", one, other)


def stall(place: Place, one: OneEnd, other: OtherEnd = "") -> int:
    """Stall a link: nothing crosses it, and nothing is closed, until mqproto mend.

    If `mqproto run` has --capture, it also needs --breakable for this command.
    """
    return _have_done(place, "stall", one, other)


def slow(place: Place, one: OneEnd, other: OtherEnd = "") -> int:
    """Slow a link down: everything that crosses it is delayed in both directions until mqproto mend.

    If `mqproto run` has --capture, it also needs --breakable for this command.
    """
    return _have_done(place, "slow", one, other)


def mend(
    place: Place,
    one: Annotated[str, ARGUMENT, "One end of a link; by default all links are mended.", value("NODE")] = "",
    other: OtherEnd = "",
) -> int:
    """Mend links that were cut, stalled or slowed down."""
    return _have_done(place, "mend", one, other)


def _have_done(place: Place, deed: str, *nodes: str) -> int:
    from mqproto.simulator.rig import byhand

    done = run_task(partial(byhand.asked, place, byhand.Deed(deed), [*filter(None, nodes)]))
    for effect in done.effects:
        print(effect.told(place.again))
    done.raise_failure()
    return DONE
