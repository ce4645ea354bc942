"""`python -m tests.bench chain`: one benchmark; `all`: every one, as `make bench` has them."""

from __future__ import annotations

import sys

from simulator.cli.cli import app, run_command
from tests.bench import command

app.add_typer(command.app, name="bench")


def run(arguments: list[str]) -> int:
    """Run one, report what goes wrong in one line, and return the exit status."""
    return run_command(["bench", *arguments])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
