"""`mqproto console`: a page in the browser that shows nodes which run, and lets operators act."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.simulator.base.program.declared import value
from mqproto.simulator.base.program.output import DONE, run_task
from mqproto.simulator.command.options import ConfigOption

if TYPE_CHECKING:
    from mqproto.simulator.base.log import LogLines
    from mqproto.simulator.console.serving import Options
    from mqproto.simulator.topology.places import Place

LOG: Final = "console.log"
"""Beside the stores: who did what by the console, and what is wrong with it."""

ListenOption = Annotated[
    str | None,
    "The console's address on this machine; by default 127.0.0.1:9170, or any free port.",
    value("HOST:PORT"),
]
TokensOption = Annotated[
    Path | None,
    "Let others use it too, with tokens of mqproto tokens that have --queue '*': role read to look, "
    "all to act.",
    "--tokens",
]


def console(
    place: Place,
    listen: ListenOption = None,
    tokens: TokensOption = None,
    _config: ConfigOption = "",
) -> int:
    """A page in the browser: what running nodes do, as they do it. Until Ctrl-C.

    \b
    $ mqproto console
    http://127.0.0.1:9170/#token=...
    """
    options = options_of(listen, tokens)
    run_task(partial(_serve, place, options))
    return DONE


def options_of(listen: str | None, tokens: Path | None) -> Options:
    """What was typed.

    Raises:
        TopologyError: it is not an address.
    """
    from mqproto.simulator.console.serving import PORT, Options
    from mqproto.simulator.topology.file import read_address

    address = None if listen is None else read_address(listen, "--listen", PORT)
    return Options(address=address, tokens=tokens)


@asynccontextmanager
async def beside(place: Place, options: Options) -> AsyncIterator[str]:
    """A console that runs as long as the block lasts; the address to open."""
    import sys

    import trio

    from mqproto.simulator.base.logfile import LogFile
    from mqproto.simulator.console.serving import serve_console

    with ExitStack() as held:
        log: LogLines = sys.stderr
        if os.access(place.directory, os.W_OK):  # Where readers look, nobody writes.
            log = held.enter_context(closing(LogFile(place.directory / LOG)))
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve_console, place, options, log)
            nursery.cancel_scope.cancel()


async def _serve(place: Place, options: Options) -> None:
    from mqproto.simulator.base.program.again import asked_to_end

    with asked_to_end() as signals:
        async with beside(place, options) as address:
            print(address, flush=True)
            async for _ in signals:
                break
