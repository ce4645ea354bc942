"""`mqproto failed list`, `show`, `retry` and `resolve`: one desk for all that has failed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from simulator.base.program.environment import DEFAULT_TOPOLOGY, typed_again
from simulator.command.options import (
    DONE,
    FINDING,
    DirectoryOption,
    HistoryOption,
    JsonOption,
    TopologyOption,
    complain,
    place_of,
    print_json,
    run_task,
)

if TYPE_CHECKING:
    from simulator.edges.operators.failures import Failure
    from simulator.edges.operators.stores import Unknown
    from simulator.topology.places import Place

READING: Final = "reading stores, for what has failed"

app = typer.Typer(help="Messages that have failed: see them, try them again, or say that they are settled.")
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MESSAGE|KEY]...", help="Messages by their identifiers, or by their producer's ids."
    ),
]
QueueOption = Annotated[
    str, typer.Option("--queue", "-q", help="Only those that were in this queue, or on their way there.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", help="Only those whose failure and reason have this text in them.")
]
SinceOption = Annotated[
    datetime | None, typer.Option("--since", help="Only those that failed then or later, UTC.")
]
UntilOption = Annotated[datetime | None, typer.Option("--until", help="Only those that failed before, UTC.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that the other options leave.")]


@app.command("list")
def list_(
    queue: QueueOption = "",
    reason: ReasonOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """What failed, and why: all in error queues, in-doubt queues and dead-letter queues. Nodes may run, or not."""
    place = place_of(topology, directory)
    from simulator.base.screen import working
    from simulator.edges.operators.failedreport import told
    from simulator.edges.operators.stores import Unknown

    unknown = Unknown()
    with working(READING):
        failures = _failures(place, unknown, None, queue, reason, since, until)
    if as_json:
        print_json({"failed": [failure.as_json() for failure in failures], **asdict(unknown)})
    else:
        for line in (*told(failures), *unknown.told()):
            print(line)
    return DONE


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="MESSAGE|KEY")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """One message that has failed: why, and all that is in it."""
    place = place_of(topology, directory)
    from simulator.base.screen import working
    from simulator.command.talk import message_as_json
    from simulator.edges.operators.failedreport import shown
    from simulator.edges.operators.failures import Chosen, failures_in
    from simulator.edges.operators.stores import Unknown

    with working(READING):
        found = list(failures_in(place, Unknown(), Chosen(names=[name])))
    if not found:
        raise UsageError(_nobody_has(name, typed_again(topology, directory)))
    if len(found) > 1:
        ids = ", ".join(failure.id for failure, _ in found)
        raise UsageError(f"{len(found)} messages have the id {name}: name one of {ids}")
    [(failure, message)] = found
    if as_json:
        print_json(failure.as_json() | {"copy": message_as_json(message)})
    else:
        for line in shown(failure, message):
            print(line)
    return DONE


@app.command()
def retry(
    names: NamesArgument = None,
    every: AllOption = False,
    queue: QueueOption = "",
    reason: ReasonOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    history: HistoryOption = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send messages where they were once more, in their order, each under the id that it had. Their nodes must run.

    A dead letter has as much time again as it was sent with: see that somebody receives it in time.
    """
    place = place_of(topology, directory)
    from simulator.base.screen import working
    from simulator.edges.operators import desk
    from simulator.edges.operators.stores import Unknown

    unknown = Unknown()
    with working(READING) as say:
        failures = _failures(place, unknown, _asked_for(names, every), queue, reason, since, until)
        say("sending once more")
        count = run_task(partial(desk.retry, place, history, failures))
    return _done(names, failures, unknown, count, "sent once more", as_json, typed_again(topology, directory))


@app.command()
def resolve(
    names: NamesArgument = None,
    note: Annotated[str, typer.Option("--note", help="What was done; the history keeps it.")] = "",
    every: AllOption = False,
    queue: QueueOption = "",
    reason: ReasonOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    history: HistoryOption = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Take messages out for good that somebody has seen to. What comes of them again is a duplicate."""
    place = place_of(topology, directory)
    from simulator.base.screen import working
    from simulator.edges.operators import desk
    from simulator.edges.operators.stores import Unknown

    unknown = Unknown()
    with working(READING) as say:
        failures = _failures(place, unknown, _asked_for(names, every), queue, reason, since, until)
        say("taking them out")
        count = run_task(partial(desk.resolve, place, history, failures, note))
    return _done(names, failures, unknown, count, "resolved", as_json, typed_again(topology, directory))


def _asked_for(names: list[str] | None, every: bool) -> list[str] | None:
    """The names, or None for all.

    Raises:
        UsageError: neither was said, or both.
    """
    if bool(names) == every:
        raise UsageError(
            "say which: messages by their identifiers or ids, or --all, with --reason for some of them"
        )
    return names or None


def _failures(
    place: Place,
    unknown: Unknown,
    names: list[str] | None,
    queue: str,
    reason: str,
    since: datetime | None,
    until: datetime | None,
) -> list[Failure]:
    from simulator.edges.operators.failures import Chosen, failures_in

    chosen = Chosen(
        names=names,
        queue=queue,
        reason=reason,
        since=since and since.replace(tzinfo=UTC),
        until=until and until.replace(tzinfo=UTC),
    )
    return [failure for failure, _ in failures_in(place, unknown, chosen)]


def _done(
    names: list[str] | None,
    failures: list[Failure],
    unknown: Unknown,
    count: int,
    what: str,
    as_json: bool,
    again: str,
) -> int:
    """Say what was done, and which of the names nobody has. Status 1 if there is one.

    again: what a proposed command needs to find the stores.
    """

    known = {name for failure in failures for name in (failure.id, failure.key)}
    missing = [name for name in names or [] if name not in known]
    if as_json:
        print_json({"messages": count, "unknown": missing})
    else:
        print(f"{counted(count, 'message')} {what}")
    for name in missing:
        complain(_nobody_has(name, again))
    for line in unknown.told() if missing else ():
        complain(line)
    return FINDING if missing else DONE


def _nobody_has(name: str, again: str) -> str:
    return f"no message that failed is called {name}: `mqproto failed list{again}` has them"
