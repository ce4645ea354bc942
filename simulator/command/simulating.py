"""The options of `mqproto simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mqproto.simulator.base.program.declared import value
from mqproto.simulator.command.options import JsonOption


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The options that determine which worlds to run, and what to write about them."""

    seeds: Annotated[int | None, "How many worlds to run; 100 by default.", value(min=1)] = None
    seed: Annotated[
        int | None, "Run and show the world of this seed; with --seeds, begin with it.", value(min=0)
    ] = None
    scenario: Annotated[Path | None, "Run the world in this file.", value(exists=True)] = None
    shrink: Annotated[bool, "Find a smaller world that also breaks."] = False
    trace: Annotated[bool, "Print everything that happens."] = False
    save: Annotated[Path | None, "Write the world to this file."] = None
    capture: Annotated[
        Path | None, "Write everything that crossed the links of a single world to this pcapng."
    ] = None
    captures: Annotated[Path | None, "A folder for the capture and the result of each world."] = None
    segment_bytes: Annotated[
        int, "The maximum payload of one frame of the capture.", value(min=1, max=65_495)
    ] = 65_495
    processes: Annotated[int | None, "Processes to use; by default, one for each core.", value(min=1)] = None
    as_json: JsonOption = False
