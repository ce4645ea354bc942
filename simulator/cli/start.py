"""The program `mqproto`.

If a module is not installed, it prints one line that names the extra to install.

For that reason, this module imports only the standard library. The commands are in `cli.py`, which needs typer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Final, NoReturn

from mqproto.simulator.base.program.extras import to_install, version_line

MISUSE: Final = 2
SAFE_PATH: Final = "PYTHONSAFEPATH"


def main() -> NoReturn:
    """Run the command and exit."""
    keep_the_installation(sys.argv, sys.path, os.environ)
    if sys.argv[1:] == ["--version"]:
        print(version_line())
        sys.exit()
    try:
        from mqproto.simulator.cli.cli import main as run
    except ModuleNotFoundError as missing:
        advice = to_install(missing, sys.argv[1:])
        if advice is None:
            raise
        print(f"mqproto: {advice}", file=sys.stderr)
        sys.exit(MISUSE)
    run()


def keep_the_installation(
    arguments: Sequence[str], path: Sequence[str], environment: MutableMapping[str, str]
) -> None:
    """Make sure that the processes that we start find the same modules as we do.

    They run `python -m`, which looks first in the working directory, where another checkout may be.

    Args:
        arguments: `sys.argv`.
        path: `sys.path`, whose first entry, for a script, is the folder that the script is in.
        environment: the environment of those processes.
    """
    script, first = arguments[0], path[0]
    if os.path.dirname(os.path.realpath(script)) == os.path.realpath(first):
        environment.setdefault(SAFE_PATH, "1")
