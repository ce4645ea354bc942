"""The program `mqproto`. What is not installed is said in one line, together with the extra that brings it.

So this module needs the standard library alone. `cli.py`, which needs typer, has the commands.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

from simulator.base.program.build import keep_the_build
from simulator.base.program.extras import to_install

MISUSE: Final = 2


def main() -> NoReturn:
    """Run the command and exit."""
    keep_the_build(sys.argv, sys.path, os.environ)
    try:
        from simulator.cli.cli import main as run
    except ModuleNotFoundError as missing:
        advice = to_install(missing, sys.argv[1:])
        if advice is None:
            raise
        print(f"mqproto: {advice}", file=sys.stderr)
        sys.exit(MISUSE)
    run()
