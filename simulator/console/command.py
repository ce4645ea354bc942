"""`mqproto console`, a page in the browser that shows running nodes, and lets operators act."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.simulator.base.program.declared import value
from mqproto.simulator.base.program.output import Program, run_task
from mqproto.simulator.command.options import ConfigOption

if TYPE_CHECKING:
    from mqproto.simulator.base.log import LogLines
    from mqproto.simulator.topology.places import Place

LOG: Final = "console.log"
"""The name of the log, which is kept with the stores.

It records what the console's users do, and the console's problems.
"""

ListenOption = Annotated[
    str | None,
    "The console's address on this machine; by default 127.0.0.1:9170, or any free port if that one is taken.",
    value("HOST:PORT"),
]
TokensOption = Annotated[
    Path | None,
    "A file of mqproto tokens. A token for --queue '*' lets other users look (role read) or also act (role all).",
    "--tokens",
]


def console(
    place: Place,
    listen: ListenOption = None,
    tokens: TokensOption = None,
    _config: ConfigOption = "",
) -> Program:
    """Serve a page that shows running nodes live, until Ctrl-C.

    \b
    $ mqproto console
    http://127.0.0.1:9170/#token=...
    """
    from mqproto.simulator.console.serving import PORT, check
    from mqproto.simulator.topology.file import read_address

    address = None if listen is None else read_address(listen, "--listen", PORT)
    return Program(
        partial(check, address, tokens), partial(run_task, partial(_serve, place, address, tokens))
    )


@asynccontextmanager
async def beside(
    place: Place, address: tuple[str, int] | None = None, tokens: Path | None = None
) -> AsyncIterator[str]:
    """Run a console while the block runs; yield the address to open."""
    import sys

    import trio

    from mqproto.simulator.base.logfile import LogFile
    from mqproto.simulator.console.serving import serve_console

    with ExitStack() as held:
        log: LogLines = sys.stderr
        if os.access(place.directory, os.W_OK):  # Where readers look, nobody writes.
            log = held.enter_context(closing(LogFile(place.directory / LOG)))
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve_console, place, log, address, tokens)
            nursery.cancel_scope.cancel()


async def _serve(place: Place, address: tuple[str, int] | None, tokens: Path | None) -> None:
    from mqproto.simulator.base.program.again import asked_to_end

    with asked_to_end() as signals:
        async with beside(place, address, tokens) as where:
            print(where, flush=True)
            async for _ in signals:
                break
