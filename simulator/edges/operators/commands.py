"""`mqproto audit`, `mqproto failed list`, `show`, `retry` and `resolve`, and `mqproto erase`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY, typed_again
from mqproto.simulator.command.options import (
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
    from mqproto.simulator.edges.operators.failures import Chosen, Failure
    from mqproto.simulator.topology.places import Place

READING: Final = "reading stores, for what has failed"

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
    place = place_of(topology, directory)
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.ends import End
    from mqproto.simulator.edges.operators.reading import audited
    from mqproto.simulator.edges.operators.report import audit_as_json, audit_told
    from mqproto.simulator.edges.trigger import standing

    with working("reading the history, stores and logs"):
        found = audited(place, history, log or [])
        held = [] if in_json else standing.told(standing.standings(place, history))
    if in_json:
        print_json(audit_as_json(found, each=each))
    else:
        _print(audit_told(found, typed_again(topology, directory), each=each))
        _print(held)
    return FINDING if found.counted()[End.UNACCOUNTED] else DONE


# What has failed

failed = typer.Typer(
    help="Messages that have failed: see them, try them again, or say that they are settled."
)


@failed.command("list")
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
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.reading import Unknown, failures_in
    from mqproto.simulator.edges.operators.report import failures_told

    unknown, chosen = Unknown(), _chosen(None, queue, reason, since, until)
    with working(READING):
        failures = [failure for failure, _ in failures_in(place, unknown, chosen)]
    if as_json:
        print_json({"failed": [failure.as_json() for failure in failures], **asdict(unknown)})
    else:
        _print(failures_told(failures))
        _print(unknown.told())
    return DONE


@failed.command()
def show(
    name: Annotated[str, typer.Argument(metavar="MESSAGE|KEY")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """One message that has failed: why, and all that is in it."""
    place = place_of(topology, directory)
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.command.talk import message_as_json
    from mqproto.simulator.edges.operators.reading import Unknown, failures_in
    from mqproto.simulator.edges.operators.report import failure_shown

    with working(READING):
        found = list(failures_in(place, Unknown(), _chosen([name])))
    if not found:
        raise UsageError(_nobody_has(name, typed_again(topology, directory)))
    if len(found) > 1:
        ids = ", ".join(failure.id for failure, _ in found)
        raise UsageError(f"{len(found)} messages have the id {name}: name one of {ids}")
    [(failure, message)] = found
    if as_json:
        print_json(failure.as_json() | {"copy": message_as_json(message)})
    else:
        _print(failure_shown(failure, message))
    return DONE


@failed.command()
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
    from mqproto.simulator.edges.operators import desk

    chosen = _chosen(_asked_for(names, every), queue, reason, since, until)
    act = partial(desk.retry, place, history)
    return _see_to(place, chosen, act, "sent once more", as_json, typed_again(topology, directory))


@failed.command()
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
    from mqproto.simulator.edges.operators import desk

    chosen = _chosen(_asked_for(names, every), queue, reason, since, until)
    act = partial(desk.resolve, place, history, note=note)
    return _see_to(place, chosen, act, "resolved", as_json, typed_again(topology, directory))


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


def _chosen(
    names: list[str] | None,
    queue: str = "",
    reason: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> Chosen:
    from mqproto.simulator.edges.operators.failures import Chosen

    utc = [one and one.replace(tzinfo=UTC) for one in (since, until)]
    return Chosen(names=names, queue=queue, reason=reason, since=utc[0], until=utc[1])


def _see_to(
    place: Place,
    chosen: Chosen,
    act: Callable[[list[Failure]], Coroutine[Any, Any, int]],
    done: str,
    as_json: bool,
    again: str,
) -> int:
    """Do something about what has failed. Status 1 if a name is nobody's.

    done: what has been done then, in words.
    again: what a proposed command needs to find the stores.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.reading import Unknown, failures_in

    unknown = Unknown()
    with working(READING) as say:
        failures = [failure for failure, _ in failures_in(place, unknown, chosen)]
        say(f"being {done}")
        count = run_task(partial(act, failures))
    known = {name for failure in failures for name in (failure.id, failure.key)}
    missing = [name for name in chosen.names or () if name not in known]
    if as_json:
        print_json({"messages": count, "unknown": missing})
    else:
        print(f"{counted(count, 'message')} {done}")
    for name in missing:
        complain(_nobody_has(name, again))
    for line in unknown.told() if missing else ():
        complain(line)
    return FINDING if missing else DONE


def _nobody_has(name: str, again: str) -> str:
    return f"no message that failed is called {name}: `mqproto failed list{again}` has them"


# What somebody wants gone


def erase(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGE|KEY...", help="Messages by their identifiers, or by their producer's ids."
        ),
    ],
    note: Annotated[str, typer.Option("--note", help="Why; the log of operators keeps it.")] = "",
    history: HistoryOption = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Have the bodies of messages gone that are over, from all files of their nodes. That they were there stays known.

    Identifiers, times, outcomes and checksums are kept. Nodes may run, or not; each store is written anew, which takes
    as long as a backup. A message that waits or is on its way is refused.
    """
    if not all(names):
        raise UsageError("an empty text names no message: type identifiers, or producers' ids")
    place = place_of(topology, directory)
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators import erasing

    with working("erasing, and writing stores anew"):
        done = run_task(partial(erasing.erase, place, history, names, note))
    if as_json:
        print_json(asdict(done))
    else:
        print(f"{counted(len(done.messages), 'message')} erased, {done.copies} taken out of queues")
    for name in done.missing:
        again = typed_again(topology, directory)
        complain(f"nobody knows {name}: `mqproto audit --each{again}` has all that was answered 200")
    for trouble in done.trouble:
        complain(f"not written anew: {trouble}")
    for name in done.left:
        beside = "run its program once more, or, if nobody does, " if erasing.is_journal(name) else ""
        complain(f"{name} has it still: {beside}remove that file")
    return DONE if done.is_whole else FINDING


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
