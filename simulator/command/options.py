"""What several commands have in common: their options, how they run, what they print, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.environment import (
    DIRECTORY_VARIABLE,
    TOPOLOGY_VARIABLE,
    typed_again,
)

if TYPE_CHECKING:
    import trio

    from mqproto.simulator.topology.places import Place

DONE: Final = 0
FINDING: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130
PATIENCE_S: Final = 2.0
"""After what time a program that waits says for what."""

TopologyOption = Annotated[
    str,
    typer.Option(
        "--topology", "-t", envvar=TOPOLOGY_VARIABLE, help="A shipped topology, a .toml file or a node alone."
    ),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        envvar=DIRECTORY_VARIABLE,
        help="Where the stores are; one per topology by default.",
    ),
]
NodeOption = Annotated[str | None, typer.Option("--node", "-n", help="The node to talk to.")]
WaypointsOption = Annotated[
    bool, typer.Option("--waypoints", help="Log each step of each message, for mqproto history.")
]
TracesOption = Annotated[
    str,
    typer.Option(
        "--traces",
        metavar="URL",
        help="Send OpenTelemetry spans of messages with a traceparent to this collector, over OTLP/HTTP: "
        "http://127.0.0.1:4318. OTEL_EXPORTER_OTLP_ENDPOINT does the same.",
        show_default=False,
    ),
]
HistoryOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="The document history, which several may share: sqlite:///PATH or postgresql+psycopg://...; "
        "by default history.sqlite beside the stores.",
        show_default=False,
    ),
]


def _configured(context: typer.Context, value: str) -> str:
    """Take what is in a file for what was not typed, and heed SIGHUP."""
    if value and not context.resilient_parsing:
        from mqproto.simulator.base.program import settings
        from mqproto.simulator.base.program.again import AGAIN

        def read() -> dict[str, Any]:
            return settings.read(settings.Chosen.of(value), context.command, context)

        context.default_map = read()
        AGAIN.heed(read, complain)
    return value


ConfigOption = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="FILE[#NAME]",
        callback=_configured,
        is_eager=True,
        help="A TOML file of settings, by the names they have here; what is typed comes first. SIGHUP reads it again.",
        show_default=False,
    ),
]
SupervisedOption = Annotated[bool, typer.Option("--supervised", hidden=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]

T = TypeVar("T")


def place_of(topology: str, directory: Path | None, *, waypoints: bool = False) -> Place:
    """The topology that was typed, and where its nodes have their stores.

    waypoints: whether all of them are to write those.
    """
    from mqproto.simulator.topology.places import Place

    place = Place.of(topology, directory)
    return place.with_waypoints() if waypoints else place


def only_node(place: Place) -> str:
    """The node of a topology that has one.

    Raises:
        UsageError: it has several.
    """
    nodes = list(place.topology.nodes)
    if len(nodes) > 1:
        raise UsageError(f"{place.topology.name} has several nodes: name one of {', '.join(nodes)}")
    return nodes[0]


def start_again(place: Place, topology: str, directory: Path | None) -> tuple[str, str]:
    """What has to be typed to start a node, before its name; and the options of all other commands for these nodes."""
    from mqproto.simulator.topology.places import is_run

    command = "restart" if is_run(place.directory, place.topology.name) else "node"
    options = typed_again(topology, directory)
    return f"mqproto {command}{options}", options


def all_down(place: Place, topology: str, directory: Path | None) -> int:
    """Say that no node runs; the exit status."""
    complain(
        f"no node of {place.topology.name} is running; start them: mqproto run{typed_again(topology, directory)}"
    )
    return FINDING


def run_task(task: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run under trio. One error that came through nurseries is that error."""
    import trio

    try:
        return trio.run(task)
    except BaseExceptionGroup as group:
        raise only_one(group) from None


def end_with_input() -> None:
    """End this process, as SIGTERM does, when its standard input ends: so it does not outlive who started it."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1_024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="input", daemon=True).start()


def called(node: str, name: str) -> str:
    """What the files of a gateway or trigger of a node are called.

    Raises:
        UsageError: they cannot be called so.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
        raise UsageError(f"--name {name!r}: files are called so; up to 40 letters, digits, - and _")
    return f"{node}-{name}"


async def say_why_it_waits(ready: trio.Event, start: str, log: Path) -> None:
    """Tell who sits in front of a screen for what a gateway or trigger waits, if it is not ready soon.

    start: the command that starts its node.
    """
    import trio

    await trio.sleep(PATIENCE_S)
    if not ready.is_set():
        complain(f"waits until its node runs ({start}); the log is {log}")


def only_one(error: BaseException) -> BaseException:
    """The error within groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def complain(text: str) -> None:
    """One line on the standard error output."""
    print(f"mqproto: {' '.join(text.splitlines())}", file=sys.stderr)


def print_json(value: object) -> None:
    """JSON, on lines of its own where a person looks."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))
