"""What an application does from the command line: send, receive, peek, and see what waits where."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import trio
from rich.markup import escape

from mqproto.applications import Draft
from mqproto.errors import UsageError
from mqproto.status import NodeStatus
from simulator import places
from simulator.client import NodeUnreachable, ReceivedMessage, connect
from simulator.directory import known_as
from simulator.screen import plain_table, wide_console
from simulator.topology import Topology, load
from simulator.topology.resolve import is_bare
from simulator.workload import BODY_LIMIT_BYTES

TRANSACTION_LIMIT: Final = 500
"""Messages in one transaction of `receive`; more take several."""


@dataclass(frozen=True, slots=True)
class Place:
    """A topology, and where its nodes have their stores."""

    topology: Topology
    directory: Path

    @classmethod
    def of(cls, topology: str, directory: Path | None) -> Place:
        """What was typed.

        Raises:
            TopologyError: there is no such topology, or it cannot be.
        """
        loaded = load(topology)
        return cls(loaded, directory or places.default_directory(loaded))


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What all messages of one `send` have in common. transactional is None for as the queue is declared."""

    label: str = ""
    transactional: bool | None = None
    recoverable: bool = False
    priority: int = 3


def bodies(*, body: str | None, file: Path | None, stdin: str | None, lines: bool) -> list[bytes]:
    """The bodies that were given, in one of the three ways.

    Raises:
        UsageError: none or several were given, or one cannot be read, or is too long.
    """
    if stdin not in (None, "-"):
        raise UsageError(f"{stdin!r} after the queue: write - for stdin, --body TEXT or --file PATH")
    if sum(given is not None for given in (body, file, stdin)) != 1:
        raise UsageError("give one body: --body TEXT, --file PATH, or - for stdin")
    if body is not None:
        data = body.encode("utf-8", "surrogateescape")
    elif file is not None:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}; name a file to send") from None
    else:
        data = sys.stdin.buffer.read()
    found = (
        [line.rstrip(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if lines and data else [data]
    )
    longest = max(map(len, found))
    if longest > BODY_LIMIT_BYTES:
        raise UsageError(f"{longest:,} bytes are too many; a message carries at most {BODY_LIMIT_BYTES:,}")
    return found


async def send(
    place: Place, node: str | None, queue: str, found: Sequence[bytes], options: SendOptions
) -> list[str]:
    """Send each body; their identifiers.

    Raises:
        UsageError: the queue is unknown, or does not take such messages.
        NodeUnreachable: the node is not running.
    """
    topology = place.topology
    at = topology.node_named(node).name if node else next(iter(topology.nodes))
    names = [_whole(place, name.strip()) for name in queue.split(",")]
    takes_transactional = {name: _takes_transactional(topology, name, at) for name in names}
    transactional = options.transactional
    if transactional is None:
        transactional = takes_transactional[names[0]]
    for name, takes in takes_transactional.items():
        if transactional != takes:
            # Its queue manager would drop them without a word.
            kind, option = ("transactional", "--no-") if takes else ("not transactional", "--")
            hint = (
                f"leave {option}transactional out"
                if options.transactional is not None
                else "send to it by itself"
            )
            raise UsageError(f"{name} is {kind} and takes no others: {hint}")
    drafts = [
        Draft(
            body=body,
            label=options.label,
            transactional=transactional,
            recoverable=options.recoverable,
            priority=options.priority,
        )
        for body in found
    ]
    async with connect(topology, at, place.directory) as client:
        return [str(identifier) for identifier in await client.send_many(",".join(names), drafts)]


def _whole(place: Place, queue: str) -> str:
    """The name with its node, if it is a queue's alone."""
    return f"{_host(place, None, queue)}\\{queue}" if is_bare(queue) else queue


def _takes_transactional(topology: Topology, queue: str, at: str) -> bool:
    declared = topology.resolve(queue, at=at).queue
    return declared is not None and declared.transactional


async def receive(
    place: Place,
    node: str | None,
    queue: str,
    count: int,
    timeout_s: float,
    *,
    commit: bool,
    show: Callable[[ReceivedMessage], None],
) -> int:
    """Receive up to `count` messages in transactions, and show each before its transaction ends; how many came.

    Raises:
        UsageError: the queue is unknown, or another node's.
        NodeUnreachable: the node is not running.
    """
    if not commit and count > TRANSACTION_LIMIT:
        raise UsageError(f"--rollback gives back one transaction: at most {TRANSACTION_LIMIT}, not {count:,}")
    found = 0
    async with connect(place.topology, _host(place, node, queue), place.directory) as client:
        while found < count:
            try:
                limit = min(count - found, TRANSACTION_LIMIT) if commit else count
                async with client.transaction(queue, limit=limit, timeout_s=timeout_s) as messages:
                    for message in messages:
                        show(message)
                    sys.stdout.flush()
                    found += len(messages)
                    if not commit:
                        raise _RollBackError
            except _RollBackError:
                return found
            if not messages:
                break
    return found


class _RollBackError(Exception):
    """Ends a transaction without a commit."""


async def peek(place: Place, node: str | None, queue: str, count: int) -> list[ReceivedMessage]:
    """The first messages of a queue, which stay there; errors as `receive`."""
    async with connect(place.topology, _host(place, node, queue), place.directory) as client:
        return await client.peek(queue, limit=count)


def _host(place: Place, node: str | None, queue: str) -> str:
    """The node that was asked for, else the one that hosts the queue."""
    if node:
        return place.topology.node_named(node).name
    if is_bare(queue):
        return place.topology.host_of(queue).name
    return place.topology.resolve(queue, at=None).node.name


def show_message(message: ReceivedMessage, *, as_json: bool) -> None:
    """One message on stdout: its body and a line's end, or one line of JSON."""
    if as_json:
        print(json.dumps(message_as_json(message), ensure_ascii=False))
    else:
        sys.stdout.flush()
        body = _on_a_terminal(message.body) if sys.stdout.isatty() else message.body
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.buffer.flush()


def _on_a_terminal(body: bytes) -> bytes:
    """The body with escapes for what is not text, which could put a terminal out of order."""
    text = body.decode("utf-8", "backslashreplace")
    shown = (char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    return "".join(shown).encode("utf-8")


def message_as_json(message: ReceivedMessage) -> dict[str, Any]:
    """A message for programs: the body as text where it is UTF-8, in base64 where it is not."""
    try:
        body: dict[str, str] = {"body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode("ascii")}
    return {
        "id": str(message.id),
        "label": message.label.encode("utf-8", "replace").decode("utf-8"),
        "transactional": message.transactional,
        "priority": message.priority,
        **({"destinations": message.destinations} if message.destinations else {}),
        **body,
    }


async def statuses(place: Place) -> dict[str, NodeStatus | None]:
    """What each node says of itself; None for one that is not running."""
    found: dict[str, NodeStatus | None] = dict.fromkeys(place.topology.nodes)

    async def ask(name: str) -> None:
        try:
            async with connect(place.topology, name, place.directory) as client:
                found[name] = await client.queues()
        except NodeUnreachable:
            return

    async with trio.open_nursery() as nursery:
        for name in found:
            nursery.start_soon(ask, name)
    return found


def queues_as_json(found: dict[str, NodeStatus | None]) -> list[dict[str, Any]]:
    """Every queue of every node for programs."""
    return [
        {"node": name, "running": status is not None, **(asdict(status) if status else {})}
        for name, status in found.items()
    ]


def show_queues(topology: Topology, found: dict[str, NodeStatus | None]) -> None:
    """Every queue of every node for people."""
    table = plain_table("queue", "waiting", "unsettled", "held", "resent")
    for heading in ("state", "next hop", "last failure"):
        table.add_column(heading, justify="left", overflow="fold")
    for row in _rows(topology, found):
        table.add_row(*map(escape, row))
    wide_console().print(table, markup=False)


def _rows(topology: Topology, found: dict[str, NodeStatus | None]) -> Iterator[Iterable[str]]:
    for name, status in found.items():
        if status is None:
            yield name, "", "", "", "", "not running", "", ""
            continue
        for local in status.local:
            kind = "transactional" if local.transactional else "local"
            yield (
                f"{name}\\{local.name}",
                f"{local.waiting:,}",
                f"{local.unsettled:,}",
                f"{local.held:,}",
                "",
                kind,
                "",
                "",
            )
        for queue in status.outgoing:
            resent = f"{queue.resent:,}" if queue.sequence else ""
            yield (
                f"{name} to {known_as(topology, queue.name)}",
                f"{queue.waiting:,}",
                "",
                "",
                resent,
                queue.state,
                queue.next_hop,
                queue.last_failure,
            )
