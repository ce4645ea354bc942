"""`mqproto audit`, `mqproto erase`, and `list`, `show`, `retry` and `resolve` of `mqproto failed`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, MISUSE, Printout, run_task
from mqproto.simulator.command.options import Commands, FirstByDefault
from mqproto.simulator.edges.options import HistoryOption, LogOption

if TYPE_CHECKING:
    from mqproto.simulator.edges.operators.failures import FailedMessage, FailureFilter
    from mqproto.simulator.edges.operators.reading import Unknown
    from mqproto.simulator.topology.places import Place

READING: Final = "reading stores, for what has failed"

NamesArgument = Annotated[
    list[str] | None,
    ARGUMENT,
    "Identifiers of messages, or the ids that their producers gave them.",
    value("[MESSAGE|KEY]..."),
]
AllOption = Annotated[bool, "Act on all messages that the other options select.", "--all"]


@dataclass
class Narrowing:
    """The options that select failed messages."""

    queue: Annotated[str, "Only messages that were in this queue, or on their way there.", "-q"] = ""
    reason: Annotated[str, "Only messages with this text in their failure or reason."] = ""
    since: Annotated[datetime | None, "Only messages that failed at this time or later, UTC."] = None
    until: Annotated[datetime | None, "Only messages that failed before this time, UTC."] = None

    def chosen(self, names: list[str] | None = None, *, in_doubt: bool = False) -> FailureFilter:
        """Return the filter for these messages. If `names` is None, it accepts any name."""
        from mqproto.simulator.edges.operators.failures import FailureFilter

        since, until = (one and one.replace(tzinfo=UTC) for one in (self.since, self.until))
        return FailureFilter(
            names=names, queue=self.queue, reason=self.reason, since=since, until=until, in_doubt=in_doubt
        )


def audit(
    place: Place,
    history: HistoryOption = "",
    log: LogOption = None,
    each: Annotated[bool, "List every message."] = False,
) -> Printout:
    """Account for each message that a gateway has answered with 200. Status 1 if one is unaccounted for.

    The command reads the document history, the stores and the logs. Nodes may be running; they are not asked.
    """
    from mqproto.edge.custody import End
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.reading import audited
    from mqproto.simulator.edges.operators.report import audit_as_json, audit_told
    from mqproto.simulator.edges.trigger import standing

    with working("reading the history, stores and logs"):
        found = audited(place, history, log or [])
        held = standing.told(standing.standings(place, history))
    lines = chain(audit_told(found, place.again, each=each), held)
    status = FINDING if found.counted()[End.UNACCOUNTED] else DONE
    return Printout(audit_as_json(found, each=each), lines, status)


# What has failed

failed = Commands(
    cls=FirstByDefault,
    help="List failed messages (mqproto failed), try them again, or mark them as settled.",
)


@failed.command("list")
def list_(
    place: Place,
    narrowing: Narrowing,
    in_doubt: Annotated[bool, "Only messages that may have been processed."] = False,
    history: HistoryOption = "",
) -> Printout:
    """List failed messages and the reasons, from all error, in-doubt and dead-letter queues. Nodes need not run."""
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.reading import failed_in

    with working(READING):
        return _listed(*failed_in(place, narrowing.chosen(in_doubt=in_doubt), history))


def _listed(failures: list[FailedMessage], unknown: Unknown) -> Printout:
    from mqproto.simulator.edges.operators.report import failures_told

    value = {"failed": [failure.as_json() for failure in failures], **asdict(unknown)}
    return Printout(value, chain(failures_told(failures), unknown.told()))


@failed.command()
def show(
    place: Place,
    name: Annotated[str, ARGUMENT, value("MESSAGE|KEY")],
    history: HistoryOption = "",
) -> Printout:
    """Show why a message failed, and everything that it contains."""
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.client.talk import message_as_json
    from mqproto.simulator.edges.operators.reading import Unknown, failures_in
    from mqproto.simulator.edges.operators.report import failure_shown

    with working(READING):
        found = list(failures_in(place, Unknown(), Narrowing().chosen([name]), history))
    if not found:
        raise UsageError(_nobody_has(name, place.again))
    if len(found) > 1:
        ids = ", ".join(failure.id for failure, _ in found)
        raise UsageError(f"{len(found)} messages have the id {name}: name one of {ids}")
    [(failure, message)] = found
    value = failure.as_json() | {"copy": message_as_json(message)}
    return Printout(value, failure_shown(failure, message))


@failed.command()
def retry(
    place: Place,
    narrowing: Narrowing,
    names: NamesArgument = None,
    every: AllOption = False,
    limit: Annotated[
        int | None, "Send at most this many of the messages.", "--limit", "--count", "-c", value(min=1)
    ] = None,
    dry_run: Annotated[bool, "List the messages without sending any."] = False,
    history: HistoryOption = "",
) -> Printout:
    """Send failed messages to their queues again, in their order and with their ids. The nodes must be running.

    A dead letter gets its original time limits again: make sure that somebody receives it in time.
    """
    from mqproto.simulator.edges.operators import desk

    chosen = narrowing.chosen(_asked_for(names, every))
    act = None if dry_run else partial(desk.retry, place, history)
    return _see_to(place, chosen, act, "sent once more", history, limit)


@failed.command()
def resolve(
    place: Place,
    narrowing: Narrowing,
    names: NamesArgument = None,
    note: Annotated[str, "A note for the history about what was done."] = "",
    every: AllOption = False,
    history: HistoryOption = "",
) -> Printout:
    """Remove failed messages that somebody has dealt with. If one arrives again, it counts as a duplicate."""
    from mqproto.simulator.edges.operators import desk

    chosen = narrowing.chosen(_asked_for(names, every))
    act = partial(desk.resolve, place, history, note=note)
    return _see_to(place, chosen, act, "resolved", history)


def _asked_for(names: list[str] | None, every: bool) -> list[str] | None:
    """Return the names, or None for all messages.

    Raises:
        UsageError: both names and `every` were given, or neither.
    """
    if bool(names) == every:
        raise UsageError(
            "say which: messages by their identifiers or ids, or --all, with --reason for some of them"
        )
    return names or None


def _see_to(
    place: Place,
    chosen: FailureFilter,
    act: Callable[[list[FailedMessage]], Coroutine[Any, Any, int]] | None,
    done: str,
    history: str,
    limit: int | None = None,
) -> Printout:
    """Carry out an action on failed messages. Status 1 if some of the given names fit no message, and 2 if none does.

    Args:
        act: the action; None to only list the messages.
        done: words for the completed action.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators.reading import failed_in

    with working(READING) as say:
        found, unknown = failed_in(place, chosen, history)
        called = {name: _called(name, found) for name in chosen.names or ()}
        for name, some in called.items():
            if len(ids := {one.key for one in some}) > 1:
                raise UsageError(f"several producers have the id {name}: name {' or '.join(sorted(ids))}")
        meant = {one.lies_as for some in called.values() for one in some}
        failures = [one for one in found if chosen.names is None or one.lies_as in meant][:limit]
        count = 0
        say(f"being {done}")
        if act is not None:
            count = run_task(partial(act, failures))
    missing = [name for name, some in called.items() if not some]
    text = f"{counted(count, 'message')} {done}"
    told = Printout({"messages": count, "unknown": missing}, [text]) if act else _listed(failures, unknown)
    if not missing:
        return told
    complaints = chain((_nobody_has(name, place.again) for name in missing), unknown.told())
    return told._replace(status=FINDING if found else MISUSE, complaints=complaints)


def _called(name: str, found: list[FailedMessage]) -> list[FailedMessage]:
    """Return the messages that a name refers to.

    If it is the complete name of a message, messages whose longer names end with it do not count.
    """
    whole = [one for one in found if name in (one.id, one.key)]
    return whole or [one for one in found if one.is_called(name)]


def _nobody_has(name: str, again: str) -> str:
    return f"no message that failed is called {name}: `mqproto failed list{again}` has them"


# What somebody wants gone


def erase(
    place: Place,
    names: Annotated[
        list[str],
        ARGUMENT,
        "Identifiers of messages, or the ids that their producers gave them.",
        value("MESSAGE|KEY..."),
    ],
    note: Annotated[str, "The reason, for the operators' log."] = "",
    history: HistoryOption = "",
) -> Printout:
    """Erase the bodies of finished messages from all files of their nodes. The record of each message stays.

    Identifiers, times, outcomes and checksums are kept. Nodes may be running; each store is rewritten, which takes as
    long as a backup. The command refuses to erase a message that is waiting or on its way.
    """
    if not all(names):
        raise UsageError("an empty text names no message: type identifiers, or producers' ids")
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators import erasing

    with working("erasing, and writing stores anew"):
        done = run_task(partial(erasing.erase, place, history, names, note))
    text = f"{counted(len(done.messages), 'message')} erased, {done.copies} taken out of queues"
    every = f"`mqproto audit --each{place.again}` has all that was answered 200"
    complaints = [f"nobody knows {name}: {every}" for name in done.missing]
    complaints += [f"not written anew: {trouble}" for trouble in done.trouble]
    for name in done.left:
        beside = "run its program once more, or, if nobody does, " if erasing.is_journal(name) else ""
        complaints.append(f"{name} has it still: {beside}remove that file")
    status = FINDING if done.messages or done.left or done.trouble else MISUSE
    return Printout(asdict(done), [text], DONE if done.is_whole else status, complaints)
