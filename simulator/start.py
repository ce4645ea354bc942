"""The program `mqproto`. What is not installed is said in one line, together with the extra that brings it.

So this module imports the standard library alone. `cli.py`, which needs typer, has the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

EXTRA_OF: Final = {"decode": "captures", "wireshark": "captures", "analyse": "spark", "report": "spark"}
"""What a command needs; all others need `simulator`."""
OURS: Final = ("mqproto", "captures", "simulator")
MISUSE: Final = 2


def main() -> NoReturn:
    """Run the command and exit."""
    try:
        from simulator.cli import main as run
    except ModuleNotFoundError as missing:
        advice = to_install(missing, sys.argv[1:])
        if advice is None:
            raise
        print(f"mqproto: {advice}", file=sys.stderr)
        sys.exit(MISUSE)
    run()


def to_install(missing: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """What to do about a module that is not there; None if it is ours or Python's own, so that no extra brings it.

    Args:
        arguments: what was typed behind `mqproto`.
    """
    module = (missing.name or "").partition(".")[0]
    if not module or module in OURS or module in sys.stdlib_module_names:
        return None
    extra = EXTRA_OF.get(next(iter(arguments), ""), "simulator")
    return f"{missing.name} is not installed: pip install 'mqproto[{extra}]'"
