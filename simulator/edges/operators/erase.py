"""`mqproto erase`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from simulator.base.program.environment import DEFAULT_TOPOLOGY, typed_again
from simulator.command.options import (
    DONE,
    FINDING,
    DirectoryOption,
    HistoryOption,
    JsonOption,
    TopologyOption,
    complain,
    place_of,
    print_json,
    run_task,
)


def erase(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGE|KEY...", help="Messages by their identifiers, or by their producer's ids."
        ),
    ],
    note: Annotated[str, typer.Option("--note", help="Why; the log of operators keeps it.")] = "",
    history: HistoryOption = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Have the bodies of messages gone that are over, from all files of their nodes. That they were there stays known.

    Identifiers, times, outcomes and checksums are kept. Nodes may run, or not; each store is written anew, which takes
    as long as a backup. A message that waits or is on its way is refused.
    """
    if not all(names):
        raise UsageError("an empty text names no message: type identifiers, or producers' ids")
    place = place_of(topology, directory)
    from dataclasses import asdict

    from simulator.base.screen import working
    from simulator.edges.operators.erasing import erase as erased_by
    from simulator.edges.operators.erasing import is_journal

    with working("erasing, and writing stores anew"):
        done = run_task(partial(erased_by, place, history, names, note))
    if as_json:
        print_json(asdict(done))
    else:
        print(f"{counted(len(done.messages), 'message')} erased, {done.copies} taken out of queues")
    for name in done.missing:
        again = typed_again(topology, directory)
        complain(f"nobody knows {name}: `mqproto audit --each{again}` has all that was answered 200")
    for trouble in done.trouble:
        complain(f"not written anew: {trouble}")
    for name in done.left:
        beside = "run its program once more, or, if nobody does, " if is_journal(name) else ""
        complain(f"{name} has it still: {beside}remove that file")
    return DONE if done.is_whole else FINDING
