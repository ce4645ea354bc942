"""`bench chain`: transactional messages through three node processes, each of them on disk at every hop.

As fast as it goes, in rounds, with each window in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from mqproto.turn.guard import STRONG
from simulator.base.program.profiling import profile_of, profiled
from simulator.security.keyfiles import SIGNING
from tests.bench.figures import RUNS, Figure, Result, Wanted, known
from tests.bench.load.bodies import Alike
from tests.bench.load.row import CLIENT, THREE, Flow, in_a_row, row
from tests.bench.measures.beside import NODES, Peer, figures_beside, started, table_beside
from tests.bench.measures.machine import flush_ms

MESSAGES: Final = 20_000
BODY_BYTES: Final = 1_024
WINDOWS: Final = (64, 1_024)
"""MSMQ's default, and one between nodes that are both ours."""
WANTED_PER_S: Final = {64: 20_000, 1_024: 30_000}
WANTED_CPU_US: Final = 60
WARM_UP_MESSAGES: Final = 2_000
LINES: Final[dict[str, Callable[[Flow], float | None]]] = {
    "messages/s": lambda flow: flow.messages_per_s,
    "CPU of all three, µs/message": lambda flow: flow.cpu_us(*THREE),
}
"""What is told of a run where others' servers are measured as well."""
FLUSH: Final = "a flush of 64 KiB, before each run"


async def bench_chain(
    messages: int = MESSAGES,
    windows: Sequence[int] = WINDOWS,
    body_bytes: int = BODY_BYTES,
    runs: int = RUNS,
    profiles: Path | None = None,
    told: Callable[[str], None] = lambda text: None,
    protection: Sequence[str] = (),
    beside: Sequence[Peer] = (),
) -> Result:
    """Measure.

    Args:
        messages: in each run.
        protection: of "encrypted" and "signed" what the messages are of a run that follows each, by the same nodes.
        profiles: a folder for profiles of the nodes and of the client, which make all of them slower.
        told: is told how far it is.
        beside: whose servers are measured in the same rounds.

    Raises:
        BenchError: a message was lost, came twice, out of order or altered.
        NodeError: a node does not start, or one of those servers.
        UsageError: they are not here, or do not take messages of this size.
    """
    word = " and ".join(protection)
    body = bytes(body_bytes)
    kinds = {"": Alike(body)}
    if word:
        kinds[word] = Alike(
            body,
            privacy_level=STRONG if "encrypted" in protection else 0,
            signer=SIGNING if "signed" in protection else "",
        )
    flows: dict[int, dict[str, list[Flow]]] = {window: {kind: [] for kind in kinds} for window in windows}
    flushes_ms = []
    async with AsyncExitStack() as stack:
        others = await stack.enter_async_context(started(beside, body_bytes))
        theirs: dict[int, dict[str, list[Flow]]] = {
            window: {title: [] for title in others.chains} for window in windows
        }
        rows = {}
        for window in flows:
            folder = profiles and profiles / f"window-{window}"
            rows[window] = await stack.enter_async_context(
                row(in_a_row(window=window), folder, with_keys=bool(word))
            )
            for alike in kinds.values():
                await rows[window].flood(min(messages, WARM_UP_MESSAGES), alike)
        for other in others.chains.values():
            await other.flood(min(messages, WARM_UP_MESSAGES), body_bytes, max(windows))
        with profiled(profiles and profile_of(profiles, CLIENT)):
            for number in range(runs):
                flushes_ms.append(flush_ms())
                for window in flows:
                    told(f"chain, window {window:,}: run {number + 1} of {runs}")
                    for kind, alike in kinds.items():
                        flows[window][kind].append(await rows[window].flood(messages, alike))
                    for title, other in others.chains.items():
                        told(f"chain, window {window:,}, {title}: run {number + 1} of {runs}")
                        theirs[window][title].append(await other.flood(messages, body_bytes, window))
    notes = ["each run is checked: every message once, in order, unaltered; the client is no node"]
    if profiles is not None:
        notes.append(f"all of it is slower than it is without profiles, which are in {profiles}")
    return Result(
        name="chain",
        title=f"three nodes, {messages:,} messages of {body_bytes:,} bytes a run, flushed at each node",
        figures=[
            *(
                figure
                for window, by_kind in flows.items()
                for kind in by_kind
                for figure in _figures(window, kind, by_kind[kind])
            ),
            *(
                figure
                for window, by_title in theirs.items()
                for figure in figures_beside(f"window {window:,}", flows[window][""], by_title)
            ),
            Figure(FLUSH, "ms", tuple(flushes_ms)),
        ],
        notes=[*notes, *others.notes],
        beside=table_beside(
            {f"window {window:,}": {NODES: flows[window][""], **theirs[window]} for window in flows},
            others.promises,
            LINES,
        )
        if others.chains
        else None,
    )


def _figures(window: int, kind: str, flows: list[Flow]) -> list[Figure]:
    is_plain = not kind
    wanted = Wanted(at_least=WANTED_PER_S[window]) if is_plain and window in WANTED_PER_S else None
    title = f"window {window:,}" if is_plain else f"window {window:,}, {kind}"

    def figure(name: str, unit: str, values: list[float | None], wanted: Wanted | None = None) -> Figure:
        return Figure(f"{title}: {name}", unit, known(values), wanted)

    return [
        figure("throughput", "messages/s", [flow.messages_per_s for flow in flows], wanted),
        figure(
            "CPU of the three nodes",
            "µs/message",
            [flow.cpu_us() for flow in flows],
            Wanted(at_most=WANTED_CPU_US) if is_plain else None,
        ),
        *(
            figure(f"CPU of {name}", "µs/message", [flow.cpu_us(name) for flow in flows])
            for name in (*THREE, CLIENT)
        ),
        *(
            figure(f"flushes of {name}", "1/s", [flow.flushes_per_s(name) for flow in flows])
            for name in THREE
        ),
    ]
