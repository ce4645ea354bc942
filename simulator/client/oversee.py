"""The operators' commands: show queues, explain why something waits, pause, purge, send messages back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from msgspec import structs
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.text import Text

from mqproto.base.errors import UsageError
from mqproto.base.foreign import TEXT_LIMIT, shown
from mqproto.base.words import counted, duration
from mqproto.manager.status import LocalStatus, NodeStatus, OutgoingStatus
from mqproto.simulator.base.screen import plain_table, wide_console
from mqproto.simulator.client import Client, MessageId, NodeUnreachable, connect
from mqproto.simulator.client.explain import Explainer, is_kept
from mqproto.simulator.client.live import Away, as_it_is, ask_all, none_answered
from mqproto.simulator.node.control import Explanation
from mqproto.simulator.topology import Topology, places
from mqproto.simulator.topology.directory import NodeDirectory, known_as
from mqproto.simulator.topology.places import Place
from mqproto.simulator.topology.resolve import is_bare, is_system_queue
from mqproto.transfer.outgoing import ORDER_SUFFIX


async def statuses(place: Place) -> dict[str, NodeStatus | Away]:
    """Return the status of each node."""
    return await ask_all(place, Client.queues)


# Why something waits


async def explanations(
    place: Place, node: str | None, subject: str, limit: int
) -> dict[str, Explanation | Away]:
    """Return the answers of all nodes, or of one, about a queue, a node or a message.

    Args:
        place: the place with the current queues, from `mqproto.simulator.client.live.as_it_is`.

    Raises:
        UsageError, FormatNameError: the subject is not a queue, a node or a message.
        NodeUnreachable: the named node is not running.
    """
    if node is None and _is_queue_of_one(place.topology, subject):
        subject = f"{place.topology.host_of(subject).name}\\{subject}"

    async def ask(client: Client) -> Explanation:
        return await client.explain(place.name_at(client.node, subject), limit)

    return await ask_all(place, ask, node)


def _is_queue_of_one(topology: Topology, subject: str) -> bool:
    """Return whether the subject is a queue's name without its node, so that its node has to be found.

    The name of a system queue does not count, because every node has such a queue.
    """
    is_node = subject.casefold() in {name.casefold() for name in topology.nodes}
    return (
        is_bare(subject) and not is_node and MessageId.parse(subject) is None and not is_system_queue(subject)
    )


def explained(explainer: Explainer, subject: str, found: Mapping[str, Explanation | Away]) -> Iterator[str]:
    """Yield the explanation in words."""
    anything = False
    for line in explainer.lines(found):
        anything = True
        yield line
    if not anything:
        yield f"nothing waits for {subject}" if subject else "nothing waits anywhere"


def explanations_as_json(topology: Topology, found: Mapping[str, Explanation | Away]) -> list[dict[str, Any]]:
    """Return the explanation as values for programs."""
    return [
        {"node": name, "running": one.is_running}
        if isinstance(one, Away)
        else {
            "node": name,
            "running": True,
            "status": _status_as_json(topology, one.status),
            "messages": [asdict(message) for message in one.messages],
            "receivers": [structs.asdict(receiver) for receiver in one.receivers],
            "unlisted_receivers": one.unlisted_receivers,
        }
        for name, one in found.items()
    ]


# Queues


def queues_as_json(topology: Topology, found: Mapping[str, NodeStatus | Away]) -> list[dict[str, Any]]:
    """Return every queue of every node as values for programs."""
    return [
        {"node": name, "running": status.is_running}
        if isinstance(status, Away)
        else {"node": name, "running": True, **_status_as_json(topology, status)}
        for name, status in found.items()
    ]


def _status_as_json(topology: Topology, status: NodeStatus) -> dict[str, Any]:
    r"""Return all values of a status for programs.

    Outgoing queues also have the name that people use: `destination\orders`.
    """
    values = asdict(status)
    for queue in values["outgoing"]:
        queue["to"] = known_as(topology, queue["name"])
    return values


COUNTS: Final = ("waiting", "unsettled", "held", "resent")
MEASURED_COLUMNS: Final = 10_000
WORDS: Final = ("bytes", "state", "next hop", "why")


def show_queues(topology: Topology, found: Mapping[str, NodeStatus | Away], options: str = "") -> None:
    """Print a table of all queues of all nodes.

    Empty system queues are left out, and so are empty columns.

    Args:
        options: the options that a suggested command needs to find the nodes.
    """
    rows = list(_rows(topology, found))
    filled = [any(row[place] for row in rows) for place in range(len(COUNTS) + len(WORDS) + 1)]
    table = plain_table(
        "queue", *(name for name, is_filled in zip(COUNTS, filled[1:], strict=False) if is_filled)
    )
    for name, is_filled in zip(WORDS, filled[1 + len(COUNTS) :], strict=True):
        if is_filled:
            table.add_column(name, justify="left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell, is_filled in zip(row, filled, strict=True) if is_filled))
    console = wide_console()
    if (
        Measurement.get(console, console.options.update(max_width=MEASURED_COLUMNS), table).maximum
        > console.width
    ):
        _print_narrow(console, rows, filled)
    else:
        console.print(table, markup=False)
    for line in (*_unlisted(found, options), *_dropped(topology, found)):
        print(line)


def _print_narrow(console: Console, rows: Sequence[tuple[str, ...]], filled: Sequence[bool]) -> None:
    """Print the same table on a narrow screen, with the reason for waiting below each row.

    Long names are cut.
    """
    headings = ("queue", *COUNTS, *WORDS[:-1])
    table = plain_table()
    for place, (heading, is_filled) in enumerate(zip(headings, filled, strict=False)):
        if is_filled:
            justify: Literal["left", "right"] = "right" if 0 < place <= len(COUNTS) else "left"
            table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        cells = zip(row, filled, headings, strict=False)
        table.add_row(*(Text(shown(cell, TEXT_LIMIT)) for cell, is_filled, _ in cells if is_filled))
    drawn = console.render_lines(table, pad=False)
    for line, (*_, why) in zip(drawn, [("",), *rows], strict=True):
        console.print(Text("").join(Text(part.text, part.style or "") for part in line), soft_wrap=True)
        if why:
            console.print(Text(f"  {shown(why, TEXT_LIMIT)}"), soft_wrap=True)


def _unlisted(found: Mapping[str, NodeStatus | Away], options: str) -> Iterator[str]:
    """Yield a line for each node with more outgoing queues than its status lists."""
    for name, status in found.items():
        if not isinstance(status, Away) and status.unlisted:
            yield (
                f"{name} has {status.unlisted:,} more outgoing queues, with {status.unlisted_waiting:,} messages; see "
                f"who made them: mqproto peers {name}{options}"
            )


def _dropped(topology: Topology, found: Mapping[str, NodeStatus | Away]) -> Iterator[str]:
    """Yield a line about the duplicates that each node has dropped since it started."""
    for name, status in found.items():
        if not isinstance(status, Away) and status.duplicates:
            senders = [
                f"{one.dropped:,} of {topology.manager_name(one.source) or one.source}"
                for one in status.duplicates_of
            ]
            count = counted(status.duplicates, "duplicate")
            yield f"{name} has dropped {count}: {', '.join(senders)}"


def _rows(topology: Topology, found: Mapping[str, NodeStatus | Away]) -> Iterator[tuple[str, ...]]:
    for name, status in found.items():
        if isinstance(status, Away):
            yield name, "", "", "", "", "", str(status), "", ""
            continue
        for local in status.local:
            if local.waiting or not is_kept(local.name):
                yield _local_row(name, local)
        for queue in status.outgoing:
            if queue.waiting or not queue.name.endswith(ORDER_SUFFIX):
                yield _outgoing_row(topology, name, queue, status)


def _local_row(node: str, queue: LocalStatus) -> tuple[str, ...]:
    size = ""
    if queue.quota_bytes is not None and queue.size_bytes and not is_kept(queue.name):
        size = f"{queue.size_bytes:,} of {queue.quota_bytes:,}"
    kind = "transactional" if queue.transactional else "local"
    return (
        f"{node}\\{queue.name}",
        f"{queue.waiting:,}",
        _count(queue.unsettled),
        _count(queue.held),
        "",
        size,
        "being emptied" if queue.purging else "kept" if is_kept(queue.name) else kind,
        "",
        "",
    )


def _outgoing_row(
    topology: Topology, node: str, queue: OutgoingStatus, status: NodeStatus
) -> tuple[str, ...]:
    return (
        f"{node} to {known_as(topology, queue.name)}",
        f"{queue.waiting:,}",
        "",
        "",
        _count(queue.resent),
        "",
        queue.state,
        next_hop(topology, queue),
        why_it_waits(queue, status) if queue.waiting or queue.state == "on hold" else "",
    )


def next_hop(topology: Topology, queue: OutgoingStatus) -> str:
    """Return the next hop's name, or its address if it is not in the topology."""
    return topology.manager_name(queue.next_manager) or queue.next_hop


def why_it_waits(queue: OutgoingStatus, status: NodeStatus) -> str:
    """Return, in a few words, why messages wait; `mqproto explain` gives details."""
    reason, at_ms = queue.last_failure, queue.retry_at_ms
    if queue.state == "on hold":
        return "paused by an operator"
    if queue.unacked and not reason:
        reason, at_ms = "no OrderAck", queue.resend_at_ms
    if at_ms is not None:
        reason += f", next try in {duration((at_ms - status.uptime_ms) / 1_000)}"
    return reason.removeprefix(", ")


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


# Orders


async def hold(place: Place, node: str | None, queue: str, *, on_hold: bool) -> str:
    """Pause or resume a node's outgoing queues to `queue`; return the node.

    Raises:
        UsageError: no node has such a queue, several have one, or the named node has none.
        NodeUnreachable: the node is not running.
    """
    place = await as_it_is(place, queue)
    name = place.topology.node_named(node).name if node else await _only_sender(place, queue)
    called = place.name_at(name, queue)
    async with connect(place.topology, name, place.directory) as client:
        await (client.pause(called) if on_hold else client.resume(called))
    return name


async def _only_sender(place: Place, queue: str) -> str:
    found = await statuses(place)
    senders = [
        name
        for name, status in found.items()
        if not isinstance(status, Away)
        and NodeDirectory(place.topology, place.topology.nodes[name]).outgoing_queues(
            queue, [outgoing.name for outgoing in status.outgoing]
        )
    ]
    if len(senders) == 1:
        return senders[0]
    if senders:
        raise UsageError(f"{' and '.join(senders)} send to {queue}: say which with --node {senders[0]}")
    if not any(found.values()):
        start = places.run_command(place.topology, place.directory)
        raise NodeUnreachable(none_answered(place.topology.name, found, start))
    raise UsageError(
        f"no running node has sent anything to {queue}; see what there is: mqproto queues{place.again}"
    )


async def purge(place: Place, node: str | None, queue: str) -> tuple[str, int]:
    """Empty a queue at its own node or, if another node is named, empty that node's outgoing queue to it.

    Return the node that emptied the queue, and the number of deleted messages.

    Raises:
        UsageError: there is no such queue.
        NodeUnreachable: the node is not running.
    """
    place = await as_it_is(place, queue)
    name = places.host_of(place, node, queue)
    async with connect(place.topology, name, place.directory) as client:
        return name, await client.purge(place.name_at(name, queue))


async def send_back(
    place: Place, node: str | None, queue: str, identifiers: Sequence[str]
) -> tuple[int, int]:
    """Send dead letters or journaled messages again: those with the given identifiers, or all.

    Return how many were sent, and how many remain in the queue.

    Raises:
        UsageError: the queue is of another kind or lacks such a message, or the text is not an identifier.
        NodeUnreachable: the node is not running.
    """
    chosen = [_identifier(text) for text in identifiers]
    place = await as_it_is(place, queue)
    name = places.host_of(place, node, queue)
    directory = NodeDirectory(place.topology, place.topology.nodes[name])
    async with connect(place.topology, name, place.directory) as client:
        if chosen:
            sent = await client.send_back(queue, chosen)
            return sent, len(chosen) - sent
        # A node sends what it has in memory; what comes back meanwhile is not sent a second time.
        waiting = await _waiting(client, directory.local_queue(queue))
        sent = part = await client.send_back(queue)
        while part and sent < waiting:
            part = await client.send_back(queue)
            sent += part
        return sent, max(waiting - sent, 0)


async def _waiting(client: Client, queue: str) -> int:
    return sum(local.waiting for local in (await client.queues()).local if local.name == queue)


def _identifier(text: str) -> MessageId:
    found = MessageId.parse(text)
    if found is None:
        raise UsageError(
            f"{text!r} is not a message's identifier: write GUID\\number, as `mqproto send` prints it"
        )
    return found
