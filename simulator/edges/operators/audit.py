"""`mqproto audit`: each message that was answered 200, and who has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.base.program.environment import DEFAULT_TOPOLOGY, typed_again
from simulator.command.options import (
    DONE,
    FINDING,
    DirectoryOption,
    HistoryOption,
    JsonOption,
    TopologyOption,
    place_of,
    print_json,
)


def audit(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    history: HistoryOption = "",
    log: Annotated[
        list[Path] | None,
        typer.Option(
            help="One more log, beside those in the folder of the stores; repeatable.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="List every message.")] = False,
    in_json: JsonOption = False,
) -> int:
    """Count each message that a gateway has answered 200 against who has it. Status 1 if of one nobody knows.

    The document history, the stores and the logs are read, and nothing is asked of any program; nodes may run.
    """
    place = place_of(topology, directory)
    from simulator.base.screen import working
    from simulator.edges.operators.ends import End
    from simulator.edges.operators.reading import audited
    from simulator.edges.operators.report import as_json, each_as_json, each_told, told
    from simulator.edges.trigger import standing

    with working("reading the history, stores and logs"):
        found = audited(place, history, log or [])
        held = [] if in_json else standing.told(standing.standings(place, history))
    if in_json:
        print_json(as_json(found) | ({"messages": each_as_json(found)} if each else {}))
    else:
        for line in (
            *(each_told(found) if each else ()),
            *told(found, typed_again(topology, directory)),
            *held,
        ):
            print(line)
    return FINDING if found.counted()[End.UNACCOUNTED] else DONE
