"""The commands that send and receive messages and that look after queues; `cli.py` lists all commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, Printout, complain, print_json, run_task
from mqproto.simulator.command.options import JsonOption, NodeOption, answered
from mqproto.simulator.edges.options import HistoryOption, LogOption
from mqproto.simulator.topology.places import start_again

if TYPE_CHECKING:
    from mqproto.simulator.client.live import Away
    from mqproto.simulator.edges.trigger.standing import TriggerStanding
    from mqproto.simulator.node.control import Explanation
    from mqproto.simulator.topology.places import Place

MANY: Final = 1_000
"""The smallest number of messages for which `send` shows its progress."""
LocalArgument = Annotated[str, ARGUMENT, r"A queue, such as 'destination\orders' or 'sender\deadxact'."]
OutgoingArgument = Annotated[
    str, ARGUMENT, r"A queue, such as 'destination\orders', or just its node, for non-transactional messages."
]


def send(
    place: Place,
    queue: Annotated[
        str | None,
        ARGUMENT,
        r"A queue, such as 'destination\orders', or format names separated by commas; optional with --import.",
    ] = None,
    source: Annotated[str | None, ARGUMENT, "Type - to read the body from stdin.", value("[-]")] = None,
    body: Annotated[str | None, "The body, as text.", "-b"] = None,
    file: Annotated[Path | None, "Use the content of this file as the body.", "-f"] = None,
    lines: Annotated[bool, "Send each line of --file or stdin as one message.", "-l"] = False,
    count: Annotated[int, "Send the message this many times.", "-c", value(min=1, max=1_000_000)] = 1,
    body_type: Annotated[
        str | None,
        "Type of the body: xml or xml:int for .NET's XmlMessageFormatter, xml:json for a JSON value, "
        "a COM type such as VT_BSTR, or a number to send the bytes unchanged.",
        value("KIND"),
    ] = None,
    label: Annotated[str, "The label, of up to 249 UTF-16 code units."] = "",
    application_tag: Annotated[int, "A number for applications to use.", value(min=0, max=0xFFFFFFFF)] = 0,
    correlation_id: Annotated[
        str, r"The message that this one refers to: GUID\number, or 20 bytes in hexadecimal."
    ] = "",
    extension: Annotated[str | None, "The extension, as text."] = None,
    extension_file: Annotated[Path | None, "Use the content of this file as the extension."] = None,
    header: Annotated[
        list[str] | None,
        "A header for the service behind a trigger: traceparent, ce-*, content-type, or one that the "
        "trigger forwards. Headers are sent as the extension.",
        value("'NAME: VALUE'"),
    ] = None,
    sender_id: Annotated[
        str, "Name the user with this SID, S-1-5-21-..., as the sender; only --sign proves it.", value("SID")
    ] = "",
    encrypt: Annotated[bool, "Encrypt the body; the node of the queue must have keys."] = False,
    cipher: Annotated[
        str,
        "The cipher: AES-256, AES-192 or AES-128, or one of the weak RC2-128, RC4-128, RC2-40 and RC4-40.",
        value("NAME"),
    ] = "",
    sign: Annotated[bool, "Sign with the key of the node."] = False,
    certificate: Annotated[
        str, "Sign with this user's key; to make one, use 'mqproto keys make --user'.", value("USER")
    ] = "",
    transactional: Annotated[bool | None, "Transactional or not; by default, the queue decides."] = None,
    transaction: Annotated[bool, "Send all messages in one transaction."] = False,
    recoverable: Annotated[bool, "Let the message survive restarts."] = False,
    priority: Annotated[int, "The priority; transactional messages always have 0.", value(min=0, max=7)] = 3,
    reach_s: Annotated[
        int | None, "Time limit, in seconds, to reach the queue.", "--time-to-reach-queue", value(min=0)
    ] = None,
    receive_s: Annotated[
        int | None, "Time limit, in seconds, to receive the message.", "--time-to-be-received", value(min=0)
    ] = None,
    dead_letter: Annotated[bool, "Keep the message as a dead letter if it fails."] = False,
    dead_letter_queue: Annotated[
        str, "Keep a failed message in this queue of the sender, not in the system's dead-letter queue."
    ] = "",
    journal: Annotated[bool, "Keep a copy in the sender's journal."] = False,
    final_ack: Annotated[bool, "Keep the message until the destination confirms receipt."] = False,
    admin_queue: Annotated[str, "The queue for acknowledgments."] = "",
    ack: Annotated[list[str] | None, "arrival, receipt, no-arrival or no-receipt; by default, all."] = None,
    response_queue: Annotated[str, "The queue for answers."] = "",
    trace_queue: Annotated[str, "The public queue for reports about the message's route."] = "",
    imported: Annotated[
        Path | None,
        "Send the messages in this output of `mqproto store export`; - for stdin. Status 1 if any cannot be sent.",
        "--import",
    ] = None,
    resume: Annotated[
        Path | None,
        "Record the sent messages in this file. If the command is killed and run again within 30 days, it "
        "continues and sends nothing twice; after that, it reports which messages are in doubt.",
    ] = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send a message, or one for each line of the input, and print the identifiers."""
    from mqproto.messages.drafts import Draft
    from mqproto.simulator.client import talk
    from mqproto.wire import INFINITE

    privacy_level, algorithm = talk.privacy(cipher, encrypts=encrypt)
    like = Draft(
        body=b"",
        label=label,
        recoverable=recoverable,
        priority=priority,
        time_to_reach_queue_s=INFINITE if reach_s is None else reach_s,
        time_to_be_received_s=INFINITE if receive_s is None else receive_s,
        journal_negative=dead_letter,
        dead_letter_queue=dead_letter_queue,
        journal_positive=journal,
        final_ack=final_ack,
        admin_queue=admin_queue,
        acknowledgments=talk.acknowledgments(admin_queue, ack),
        response_queue=response_queue,
        trace_queue=trace_queue,
        application_tag=application_tag,
        correlation_id=talk.correlation_id(correlation_id),
        extension=talk.extension(extension, extension_file, header or ()),
        sender_id=talk.sender_id(sender_id),
        signer=talk.signer(certificate, signs=sign),
        privacy_level=privacy_level,
        encryption_algorithm=algorithm,
    )
    if imported is not None:
        is_bare = like == Draft(body=b"") and transactional is None and not transaction and count == 1
        if not is_bare or source or body or file or lines or body_type:
            raise UsageError(
                "--import sends messages as they were: leave all out but the queue, --node, --resume and --json"
            )
        return _send_imported(place, node, queue, imported, resume, as_json=as_json)
    if queue is None:
        raise UsageError("name the queue to send to, or a file to --import")
    bodies = talk.bodies(body=body, file=file, stdin=source, lines=lines) * count
    if body_type is not None:
        bodies, number = talk.typed(bodies, body_type)
        like = replace(like, body_type=number)
    with _counted(len(bodies)) as count_sent:
        task = partial(talk.send, place, node, queue, bodies, like, resume, count_sent)
        identifiers = run_task(partial(task, transactional=transactional, together=transaction))
    return Printout({"queue": queue, "sent": identifiers}, identifiers).show(as_json=as_json)


@contextmanager
def _counted(count: int) -> Iterator[Callable[[int], None]]:
    """Show how many of `count` messages have been handed to the node; show nothing if there are few."""
    if count < MANY:
        yield lambda sent: None
        return
    from mqproto.simulator.base.screen import working

    with working(f"sending {counted(count, 'message')}") as say:
        yield lambda sent: say(f"sending: {sent:,} of {counted(count, 'message')}")


def _send_imported(
    place: Place, node: str | None, queue: str | None, file: Path, journal: Path | None, *, as_json: bool
) -> int:
    from mqproto.simulator.client import talk
    from mqproto.simulator.client.live import as_it_is

    place = run_task(partial(as_it_is, place))
    importing = talk.importing(place, node, queue, file, journal)
    chosen, left_out = importing.found.chosen, importing.found.left_out
    for one in left_out:
        complain(str(one))
    doubtful = [one.message for one in chosen if one.may_have_left]
    if doubtful:
        names = ", ".join(doubtful[:3]) + ", ..." * (len(doubtful) > 3)
        complain(
            f"{len(doubtful):,} of {counted(len(chosen), 'message')} may have left before, and may arrive twice: "
            f"{names}"
        )
    sent: list[str] = []

    def show(identifiers: list[str]) -> None:
        sent.extend(identifiers)
        if not as_json:
            print("\n".join(identifiers), flush=True)

    if chosen:
        run_task(partial(importing.send, show))
    elif not left_out:
        complain(f"{file} has no messages: nothing was sent")
    if as_json:
        print_json(
            {
                "queue": queue,
                "sent": sent,
                "left_out": [
                    {"line": one.line, "message": one.message, "reason": one.reason} for one in left_out
                ],
                "may_arrive_twice": doubtful,
            }
        )
    return FINDING if left_out else DONE


def receive(
    place: Place,
    queue: LocalArgument,
    count: Annotated[int, "Receive at most this many messages.", "-c", value(min=1)] = 1,
    timeout_s: Annotated[float, "Seconds to wait for the next message.", value(min=0)] = 5,
    reject: Annotated[bool, "Reject the messages; the sender gets them as dead letters."] = False,
    resume: Annotated[
        Path | None,
        "Record the received messages in this file. If the command is killed and run again within 30 days, "
        "it prints every message exactly once; after that, it reports which messages are in doubt.",
    ] = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Receive messages in a transaction, and print their bodies. Status 1 if none arrived."""
    from mqproto.simulator.client import talk

    if resume is not None and reject:
        raise UsageError("--resume keeps what was taken: leave --reject out")
    show = partial(talk.show_message, as_json=as_json)
    take = partial(talk.receive, show=show, reject=reject, journal=resume)
    found = run_task(partial(take, place, node, queue, count, timeout_s))
    if not found:
        complain(
            f"no message came to {queue} within {timeout_s:g} s; see why: mqproto explain {shlex.quote(queue)}"
            f"{place.again}"
        )
    return DONE if found else FINDING


def peek(
    place: Place,
    queue: LocalArgument,
    count: Annotated[int, "Show at most this many messages.", "-c", value(min=1, max=500)] = 1,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show the first messages of a queue without removing them. Status 1 if it is empty."""
    from mqproto.simulator.client import talk

    messages = run_task(partial(talk.peek, place, node, queue, count))
    for message in messages:
        talk.show_message(message, as_json=as_json)
    if not messages:
        complain(f"{queue} is empty")
    return DONE if messages else FINDING


def queues(place: Place) -> Printout:
    """Show how many messages wait in each queue of every running node. Status 1 if no node runs."""
    from mqproto.simulator.client import oversee
    from mqproto.simulator.client.live import as_it_is

    place = run_task(partial(as_it_is, place))
    found = run_task(partial(oversee.statuses, place))
    show = partial(oversee.show_queues, place.topology, found, place.again)
    return Printout(oversee.queues_as_json(place.topology, found), show, *answered(place, found))


def top(
    place: Place,
    node: NodeOption = None,
    once: Annotated[bool, "Print once and exit; this is the default in a pipe."] = False,
    interval_s: Annotated[float, "Seconds between updates.", value(min=0.1, max=60)] = 1.0,
) -> int:
    """Show nodes, sessions and queues live until Ctrl-C, with waiting messages, their ages, and rates.

    Rates are averages between two updates. In a pipe, the command asks twice and prints once. Status 1 if no node runs.

    \b
    $ mqproto top --once
    node                     sessions    in/s   fwd/s  resent dropped  stored
    sender                          1       0       0       3       0  0.1 MiB
    ...
    queue                             waiting  oldest    in/s   out/s  state
    sender to destination\\orders        2,100     6 s     954       0  connected
      no OrderAck, next try in 1.0 s
    ...
    """
    from mqproto.simulator.cli.top import run

    look = run(place, node, once=once, interval_s=interval_s)
    return DONE if look is None else Printout(None, (), *answered(place, look.found)).show(as_json=False)


def explain(
    place: Place,
    subject: Annotated[
        str,
        ARGUMENT,
        "A queue, a destination node, or a message (its identifier or its producer's id); by default, everything.",
        value("QUEUE|NODE|MESSAGE|KEY"),
    ] = "",
    count: Annotated[int, "Show at most this many messages of each queue.", "-c", value(min=1, max=500)] = 5,
    history: HistoryOption = "",
    node: NodeOption = None,
) -> Printout:
    """Explain why messages wait, since when, what happens next, and what to do. Status 1 if the subject is unknown.

    \b
    $ mqproto explain orders
    sender to destination\\orders: 1 message waits, the oldest for 14 s
      connected to intermediate (127.0.0.2:1801)
      number 1: no OrderAck from destination for 14 s; sent again in 0.4 s
        (resend 7, interval 5 s)
      963EBEB9-8A2F-504A-9728-78C61096BF80\\2 'second', 5 bytes, 14 s old:
        number 1, the next hop has it, ...
    intermediate to destination: 7 messages wait, the oldest for 14 s
      not connected to destination (127.0.0.3:1801) for 14 s:
        connection refused by 127.0.0.3:1801; next try in 0.1 s
    destination is not running; start it with `mqproto node destination`, or ...
    """
    from msgspec import to_builtins

    from mqproto.simulator.client import oversee
    from mqproto.simulator.client.explain import Explainer
    from mqproto.simulator.client.live import as_it_is
    from mqproto.simulator.edges.operators.account import asked_after
    from mqproto.simulator.edges.trigger.standing import told
    from mqproto.simulator.rig.byhand import broken_now

    place = run_task(partial(as_it_is, place))
    account, found = run_task(partial(asked_after, place, subject, count, history, node))
    triggers = _triggers_of(place, history, found)
    by_hand = run_task(partial(broken_now, place))
    said = oversee.explanations_as_json(place.topology, found)
    for one in said:
        one["triggers"] = to_builtins(triggers[one["node"]])
        one["broken_links"] = [to_builtins(link) for link in by_hand if one["node"] in link.nodes]
    explainer = Explainer(place.topology, *start_again(place), in_full=account is None)
    held = told(chain(*triggers.values()))
    broken = (link.told() for link in by_hand)
    # The line that answers comes first: who has the message, or who holds the queue.
    if account:
        value = account.as_json() | {"nodes": said}
        status = DONE if account.is_known else FINDING
        return Printout(value, chain(account.told(explainer), held, broken), status)
    lines = chain(held, oversee.explained(explainer, subject, found), broken)
    return Printout(said, lines, *answered(place, found))


def _triggers_of(
    place: Place, history: str, found: Mapping[str, Explanation | Away]
) -> dict[str, list[TriggerStanding]]:
    """Return the triggers of the explained queues, grouped by node.

    If a node is not running, the triggers of all its queues are returned.
    """
    from mqproto.simulator.edges.history.errors import HistoryError
    from mqproto.simulator.edges.trigger.standing import standings

    known: list[TriggerStanding] = []
    try:
        known = standings(place, history)
    except HistoryError as error:
        complain(f"whether a trigger holds a queue is not known: {error}")
    triggers: dict[str, list[TriggerStanding]] = {name: [] for name in found}
    for standing in known:
        node, _, queue = standing.queue.partition("\\")
        if node in found:
            explanation = found[node]
            if not explanation or queue in {local.name for local in explanation.status.local}:
                triggers[node].append(standing)
    return triggers


def history(
    place: Place,
    subject: Annotated[
        str,
        ARGUMENT,
        "The identifier of a message, as `mqproto send` prints it, or its producer's id.",
        value("MESSAGE|KEY"),
    ],
    log: LogOption = None,
    history: HistoryOption = "",
) -> Printout:
    """Show from the logs what happened to a message, and where it is now. Status 1 if it is unknown.

    Nodes log the steps of messages if they were started with --waypoints.
    """
    if not subject:
        raise UsageError("an empty text names no message: type its identifier, or its producer's id")
    from mqproto.simulator.client import oversee, story
    from mqproto.simulator.client.explain import Explainer
    from mqproto.simulator.edges.operators.account import account_of

    logs = dict.fromkeys(path.resolve() for path in (*story.logs_in(place.directory), *(log or ())))
    account = run_task(partial(account_of, place, subject, history, log or ()))
    found = account.story(logs, place.topology)
    now = [oversee.explanations_as_json(place.topology, one) for one in account.now]
    explainer = Explainer(place.topology, *start_again(place), in_full=False)
    complaints = []
    if not found.has_waypoints:
        complaints.append(
            f"no log in {place.directory} has waypoints; nodes write them after "
            f"`mqproto run{place.again} --waypoints`"
        )
    if is_unknown := not (found.steps or account.is_known):
        complaints.append(f"nobody knows {subject}: none of {len(logs)} logs, and no running node")
    return Printout(
        story.as_json(found) | account.as_json() | {"now": now},
        chain(story.told(found, place.topology), ["now:"], account.told(explainer)),
        FINDING if is_unknown else DONE,
        complaints,
    )


def validate(
    scenarios: Annotated[
        list[str] | None,
        ARGUMENT,
        "Names of shipped scenarios, including `ends`, or .toml files; by default, all shipped scenarios.",
        value("[SCENARIO]..."),
    ] = None,
    show_list: Annotated[bool, "List the scenarios without running any.", "--list"] = False,
) -> Printout:
    """Run a gateway, nodes, a trigger, and a consumer that fails on cue. Status 1 if a count is not as expected."""
    from rich.console import Console

    from mqproto.simulator.rig.validation import ends, scenario as validation, validate as running
    from mqproto.simulator.rig.validation.ends.report import show
    from mqproto.simulator.rig.validation.ends.running import validate_ends

    names = scenarios or [*validation.shipped(), ends.NAME]
    chosen = {name: validation.load(name) for name in names if name != ends.NAME}
    if show_list:
        titles = {name: f"{scenario.title} ({scenario.heading})" for name, scenario in chosen.items()}
        if ends.NAME in names:
            titles[ends.NAME] = f"{ends.TITLE} ({ends.HEADING})"
        return Printout(titles, (f"{name}: {title}" for name, title in titles.items()))
    with Console(stderr=True).status("") as status:
        outcomes = run_task(partial(running.validate, chosen, status.update)) if chosen else []
        report = run_task(partial(validate_ends, status.update)) if ends.NAME in names else None

    def shown() -> None:
        if outcomes:
            validation.show(outcomes)
        if report:
            show(report)

    holds = all(outcome.holds for outcome in outcomes) and not (report and report.broken)
    value = [*validation.as_json(outcomes), *([report.as_json()] if report else [])]
    return Printout(value, shown, DONE if holds else FINDING)


def purge(
    place: Place,
    queue: Annotated[
        str, ARGUMENT, "A queue of the node; any other queue stands for the node's outgoing queue to it."
    ],
    node: NodeOption = None,
) -> Printout:
    """Delete all messages of a queue. Senders that asked for dead letters or acknowledgments get them.

    To keep the messages, receive them instead:

    \b
    $ mqproto receive orders --count 100000 --json > orders.jsonl
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.client import oversee

    with working(f"deleting messages of {queue}"):
        at, count = run_task(partial(oversee.purge, place, node, queue))
    text = f"{at}: {counted(count, 'message')} of {queue} deleted"
    return Printout({"node": at, "queue": queue, "deleted": count}, [text])


def send_back(
    place: Place,
    queue: Annotated[str, ARGUMENT, r"A queue, such as 'sender\deadxact' or 'destination\orders;journal'."],
    messages: Annotated[
        list[str] | None, ARGUMENT, "Identifiers of messages; by default, all messages.", value("MESSAGE")
    ] = None,
    node: NodeOption = None,
) -> Printout:
    """Send dead letters, or messages of a journal, to their destinations again. Status 1 if some cannot be sent.

    Each message gets its original time limits again; if nobody receives it in time, it comes back.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.operators import desk

    task = partial(desk.send_back, place, node, queue, messages or [])
    with working(f"sending messages of {queue} once more"):
        sent, kept = run_task(task)
    text = f"{counted(sent, 'message')} sent once more"
    text += f"; {kept:,} cannot be sent now: their queue is full, or is not there any more" * bool(kept)
    return Printout({"queue": queue, "sent": sent, "kept": kept}, [text], FINDING if kept else DONE)


def pause(place: Place, queue: OutgoingArgument, node: NodeOption = None) -> Printout:
    """Stop sending to a queue until `mqproto resume`, even after restarts."""
    return _hold(place, queue, node, on_hold=True)


def resume(place: Place, queue: OutgoingArgument, node: NodeOption = None) -> Printout:
    """Resume sending to a queue that was paused."""
    return _hold(place, queue, node, on_hold=False)


def _hold(place: Place, queue: str, node: str | None, *, on_hold: bool) -> Printout:
    from mqproto.simulator.client import oversee

    sender = run_task(partial(oversee.hold, place, node, queue, on_hold=on_hold))
    state = "paused" if on_hold else "resumed"
    return Printout({"node": sender, "queue": queue, "state": state}, [f"{sender} to {queue}: {state}"])
