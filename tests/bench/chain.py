"""`bench chain` and `latency`: transactional messages through three node processes, on disk at each hop.

The chain runs as fast as it can. For the latency, each message is sent when it is due, however long the earlier ones
take (load/traffic.py). So a stall shows in the figures of all messages that it held up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from mqproto.simulator.rig.proof import percentile
from tests.bench.figures import Figure, Options, Result, Told, in_turns, known, ratios
from tests.bench.load import nats
from tests.bench.load.row import (
    BODY_BYTES,
    CLIENT,
    THREE,
    WARM_UP_MESSAGES,
    WINDOW,
    Flow,
    in_a_row,
    row,
)
from tests.bench.load.traffic import alike
from tests.bench.machine import flush_ms

MESSAGES: Final = 20_000
QUICK_MESSAGES: Final = 2_000
WANTED_PER_S: Final = {64: 20_000, 1_024: 30_000}
"""The desired numbers of messages per second, keyed by the size of the window.

The windows are MSMQ's default, and the one that our nodes use between themselves.
"""
WANTED_CPU_US: Final = 60
PROTECTED: Final = "encrypted and signed"
RATES: Final = (200, 2_000)
SECONDS: Final = 15.0
"""The time, in seconds, for which messages are sent.

At 200 a second, this makes 3,000 messages, of which three are beyond p99.9.
"""
QUICK_SECONDS: Final = 1.5
PERCENTILES: Final = (50, 99, 99.9)
WANTED_MS: Final[dict[tuple[int, float], float]] = {(200, 99): 10}
FLUSH: Final = "a flush of 64 KiB, in each round"


async def measure_chain(options: Options, told: Told) -> Result:
    """Measure the chain with each window in turn.

    Raises:
        BenchError: a message was lost or altered, or arrived twice or out of order.
        NodeError: a node or a server does not start.
        UsageError: there is no such server here.
    """
    count = options.messages or (QUICK_MESSAGES if options.quick else MESSAGES)
    body = bytes(BODY_BYTES)
    async with _beside(options) as others, AsyncExitStack() as stack:
        jobs: dict[str, Any] = {FLUSH: flush_ms}
        for window in options.windows:
            title = f"window {window:,}"
            topology = in_a_row(window=window)
            nodes = await stack.enter_async_context(row(topology, with_keys=options.protected))
            jobs[title] = partial(nodes.flood, count, alike(body))
            if options.protected:
                jobs[f"{title}, {PROTECTED}"] = partial(nodes.flood, count, alike(body, protected=True))
            for name, chain in others.items():
                jobs[f"{title}, {name}"] = partial(chain.flood, count, BODY_BYTES, window)
        found = await in_turns("chain", options.rounds, jobs, told, warm=True)
    figures: list[Figure] = []
    for window in options.windows:
        title = f"window {window:,}"
        figures += _costs(title, found[title], WANTED_PER_S.get(window), WANTED_CPU_US)
        if options.protected:
            figures += _costs(f"{title}, {PROTECTED}", found[f"{title}, {PROTECTED}"])
        for name in others:
            theirs = f"{title}, {name}"
            figures += [*_compared(f"{title}: nodes / {name}", found[title], found[theirs])]
            figures += _costs(theirs, found[theirs])
    return Result(
        f"three nodes, {count:,} messages of {BODY_BYTES:,} bytes a round, flushed at each node",
        [*figures, Figure(FLUSH, "ms", tuple(found[FLUSH]))],
        [
            "each round is checked: every message once, in order, unaltered; the client is not a node",
            *_notes(others),
        ],
    )


async def measure_latency(options: Options, told: Told) -> Result:
    """Measure the time from when a message is due until its consumer has it, three flushes later.

    The errors are the same as for `measure_chain`.
    """
    seconds = QUICK_SECONDS if options.quick else SECONDS
    async with _beside(options) as others, row(in_a_row()) as nodes:
        await nodes.flood(WARM_UP_MESSAGES, alike(bytes(BODY_BYTES)))
        jobs: dict[str, Any] = {FLUSH: flush_ms}
        for rate in RATES:
            count = max(1, round(rate * seconds))
            jobs[f"{rate:,}/s"] = partial(nodes.pace, count, rate, alike(bytes(BODY_BYTES)))
            for name, chain in others.items():
                jobs[f"{rate:,}/s, {name}"] = partial(chain.pace, count, rate, BODY_BYTES)
        found = await in_turns("latency", options.rounds, jobs, told)
    flushes_ms = found.pop(FLUSH)
    wanted_ms = {f"{rate:,}/s: p{percent:g}": limit for (rate, percent), limit in WANTED_MS.items()}
    figures = []
    for title, flows in found.items():
        for percent in PERCENTILES:
            name = f"{title}: p{percent:g}"
            values = tuple(percentile(flow.delays_ms, percent) for flow in flows)
            figures.append(Figure(name, "ms", values, at_most=wanted_ms.get(name)))
        figures += _processors(title, flows)
    return Result(
        f"three nodes, window {WINDOW}, messages of {BODY_BYTES:,} bytes for {seconds:g} s a round",
        [*figures, Figure(FLUSH, "ms", tuple(flushes_ms))],
        [
            "a message's time begins when it was due to be sent, and ends when its consumer has it",
            *_notes(others),
        ],
    )


@asynccontextmanager
async def _beside(options: Options) -> AsyncIterator[dict[str, nats.Chain]]:
    """If NATS servers were requested, run them with both settings for the whole measurement."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(nats.chain_of(flushed=flushed))
            for name, flushed in nats.SETTINGS.items()
            if options.beside_nats
        }


def _notes(others: dict[str, nats.Chain]) -> Iterator[str]:
    for name, chain in others.items():
        yield f"{name}: {chain.told}"
    if others:
        yield nats.NOTE


def _costs(
    title: str, flows: Sequence[Flow], per_s: float | None = None, cpu_us: float | None = None
) -> Iterator[Figure]:
    """Yield the figures of a chain of nodes or servers that runs as fast as it can."""
    yield Figure(f"{title}: throughput", "messages/s", tuple(flow.messages_per_s for flow in flows), per_s)
    yield from _processors(title, flows, cpu_us)
    for name in THREE:
        yield Figure(f"{title}: CPU of {name}", "µs/message", known([flow.cpu_us(name) for flow in flows]))
    for name in flows[0].flushes:
        values = tuple(flow.flushes_per_s(name) for flow in flows)
        yield Figure(f"{title}: flushes of {name}", "1/s", values)


def _processors(title: str, flows: Sequence[Flow], wanted_us: float | None = None) -> Iterator[Figure]:
    three, client = (known([flow.cpu_us(*names) for flow in flows]) for names in ((), (CLIENT,)))
    yield Figure(f"{title}: CPU of all three", "µs/message", three, at_most=wanted_us)
    yield Figure(f"{title}: CPU of {CLIENT}", "µs/message", client)


def _compared(title: str, ours: Sequence[Flow], theirs: Sequence[Flow]) -> Iterator[Figure]:
    """Yield the ratios of our nodes' figures to those of the NATS servers, with one ratio for each round."""
    rates = [[flow.messages_per_s for flow in flows] for flows in (ours, theirs)]
    yield Figure(f"{title}, throughput", "ratio", ratios(*rates), at_least=1)
    spent = [known([flow.cpu_us() for flow in flows]) for flows in (ours, theirs)]
    yield Figure(f"{title}, CPU of all three", "ratio", ratios(*spent) if all(spent) else ())
