"""`mqproto audit`: each message that was answered 200, and who has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.command.options import (
    DEFAULT_TOPOLOGY,
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
    from simulator.edges.audit.ends import End
    from simulator.edges.audit.reading import reader_of
    from simulator.edges.audit.report import as_json, counted, each_as_json, each_told, told

    place = place_of(topology, directory)
    reader, missing = reader_of(place, history, log or [])
    answered = reader.read()
    if in_json:
        messages = {"messages": each_as_json(answered)} if each else {}
        print_json(as_json(answered, reader.unread, missing) | messages)
    else:
        for line in (*(each_told(answered) if each else ()), *told(answered, reader.unread, missing)):
            print(line)
    return FINDING if counted(answered)[End.UNACCOUNTED] else DONE
