"""`python -m tests.bench`: which benchmarks there are, and what may be typed behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqproto.base.errors import MqprotoError, UsageError
from simulator.command.options import DONE, FINDING, JsonOption, complain, first_of, print_json, run_task

if TYPE_CHECKING:
    from tests.bench.figures import Result
    from tests.bench.measures.beside import Peer

app = typer.Typer(help="How fast it is here.", no_args_is_help=True)

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Write bench.md, bench.json and pictures here."),
]
RunsOption = Annotated[int, typer.Option(min=1, help="How often it is measured; the median counts.")]
BesideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="PEER",
        help="Others' servers in the same rounds: nats (NATS JetStream).",
    ),
]
QuickOption = Annotated[bool, typer.Option("--quick", help="Small sizes, for a look: the figures say less.")]

Told = Callable[[str], None]
Bench = Callable[[Told], "Result"]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much of everything `bench all` measures."""

    rounds: int
    messages: int
    seconds: float
    backlog: int
    kills: int
    worlds: int
    packets: int


FULL: Final = _Sizes(
    rounds=21, messages=20_000, seconds=15, backlog=100_000, kills=5, worlds=200, packets=300_000
)
QUICK: Final = _Sizes(
    rounds=5, messages=2_000, seconds=1.5, backlog=5_000, kills=2, worlds=20, packets=30_000
)


@app.command("codec")
def bench_codec(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = FULL.rounds,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """The generated codec beside code written by hand, and construct."""
    return _bench(as_json, out, codec=partial(_codec, rounds))


@app.command("chain")
def bench_chain(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=1, help="How many in each run.")
    ] = FULL.messages,
    runs: RunsOption = 5,
    window: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=32_767, help="WindowSize of every session; repeatable.", show_default="64 and 1024"
        ),
    ] = None,
    body_bytes: Annotated[int, typer.Option("--body-bytes", min=0, max=4_000_000)] = 1_024,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a profile of each process here; all are slower for it."),
    ] = None,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Beside it messages that are encrypted.")
    ] = False,
    sign: Annotated[bool, typer.Option("--sign", help="Beside it messages that are signed.")] = False,
    beside: BesideOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """Three node processes, every message on disk before it is acknowledged: throughput, CPU, flushes."""
    if (encrypt or sign) and find_spec("cryptography") is None:
        raise UsageError("there is no cryptography here: pip install 'mqproto[security]'")
    protection = [word for word, is_asked in (("encrypted", encrypt), ("signed", sign)) if is_asked]
    chain = partial(_chain, messages, window or (), body_bytes, runs, profile, protection, _peers(beside))
    return _bench(as_json, out, chain=chain)


@app.command("latency")
def bench_latency(
    rate: Annotated[
        list[int] | None,
        typer.Option(min=1, max=100_000, help="Messages a second; repeatable.", show_default="200 and 2000"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each run lasts.")] = FULL.seconds,
    runs: RunsOption = 5,
    beside: BesideOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """How long a message takes from when it is due to be sent, until it is received three nodes further."""
    return _bench(as_json, out, latency=partial(_latency, rate or (), seconds, runs, _peers(beside)))


@app.command("backlog")
def bench_backlog(
    messages: Annotated[
        int,
        typer.Option(
            "--messages",
            "-m",
            min=1,
            help="How many of one size wait; of mixed sizes a fiftieth, but 1,000 at least.",
        ),
    ] = FULL.backlog,
    runs: RunsOption = 5,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """Many messages wait: memory, throughput beside them, restarts; then fewer of mixed sizes, from 0 to 4 MiB.

    Status 1 if a node needs over 200 MB.
    """
    return _bench(as_json, out, backlog=partial(_backlog, messages, runs))


@app.command("outage")
def bench_outage(
    kills: Annotated[int, typer.Option(min=1, help="How often the node is killed.")] = FULL.kills,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """The node in the middle is killed under load and started again: until messages flow."""
    return _bench(as_json, out, outage=partial(_outage, kills))


@app.command("growth")
def bench_growth(quick: QuickOption = False, as_json: JsonOption = False, out: OutOption = None) -> int:
    """What a message costs by its size, and by the number of queues, sessions and nodes; with --out a plot, too."""
    return _bench(as_json, out, growth=partial(_growth, quick))


@app.command("edges")
def bench_edges(
    runs: RunsOption = 5, quick: QuickOption = False, as_json: JsonOption = False, out: OutOption = None
) -> int:
    """POSTs to a gateway beside uvicorn with SQLite; a trigger's deliveries beside a worker on a table of SQLite."""
    return _bench(as_json, out, edges=partial(_edges, quick, runs))


@app.command("world")
def bench_world(
    worlds: Annotated[
        int, typer.Option("--worlds", min=1, help="How many of each sort in each of five rounds.")
    ] = FULL.worlds,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """Simulated worlds of three nodes and 100 messages, with and without faults, on one core."""
    return _bench(as_json, out, world=partial(_world, worlds))


@app.command("analyse")
def bench_analyse(
    packets: Annotated[
        int, typer.Option("--packets", min=1, help="How many the capture has, at least.")
    ] = FULL.packets,
    rounds: RunsOption = 5,
    connections: Annotated[int, typer.Option(min=1, max=65_536, help="They share the packets.")] = 64,
    flat: Annotated[
        list[int] | None,
        typer.Option(
            min=1, metavar="MB", help="A further capture of this size, to compare costs; repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """Captures into tables on two cores. Status 1 if Spark's executor needs over 2 GiB.

    What is written meanwhile goes to the folder for temporary files, TMPDIR: some three times the size of the largest
    capture.

    \b
    python -m tests.bench analyse --packets 1500000
    python -m tests.bench analyse --flat 100 --flat 1000 --flat 10000
    python -m tests.bench analyse --packets 8000000 --connections 1 --rounds 1
    """
    if find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed: pip install 'mqproto[spark]'")
    return _bench(as_json, out, analysis=partial(_analysis, packets, rounds, connections, flat or ()))


@app.command("all")
def bench_all(
    quick: QuickOption = False,
    backlog: Annotated[
        int | None,
        typer.Option(
            "--backlog", min=1, help="How many messages wait; 1000000 takes minutes.", show_default="100000"
        ),
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> int:
    """All of them, in one table. Status 1 for what is broken, such as a message lost; never for what is slow."""
    sizes = QUICK if quick else FULL
    benches: dict[str, Bench] = {
        "chain": partial(_chain, sizes.messages, (), 1_024, 5, None, (), ()),
        "latency": partial(_latency, (), sizes.seconds, 5, ()),
        "backlog": partial(_backlog, backlog or sizes.backlog, 5),
        "outage": partial(_outage, sizes.kills),
        "growth": partial(_growth, quick),
    }
    benches["edges"] = partial(_edges, quick, 5)
    benches["codec"] = partial(_codec, sizes.rounds)
    benches["world"] = partial(_world, sizes.worlds)
    if find_spec("pyspark") is None:
        complain("the analysis is left out: pyspark is not installed: pip install 'mqproto[spark]'")
    else:
        benches["analysis"] = partial(_analysis, sizes.packets, 5, 64, ())
    return _bench(as_json, out, **benches)


def _peers(names: Sequence[str] | None) -> list[Peer]:
    """Whose servers are measured as well.

    Raises:
        UsageError: nobody's whom we know.
    """
    from tests.bench.measures.beside import Peer

    known = {peer.value for peer in Peer}
    if unknown := [name for name in names or () if name not in known]:
        raise UsageError(f"--beside {unknown[0]}: it is one of {', '.join(sorted(known))}")
    return [Peer(name) for name in dict.fromkeys(names or ())]


def _codec(rounds: int, told: Told) -> Result:
    from tests.bench.measures import codec

    told("codec")
    return codec.bench_codec(rounds)


def _chain(
    messages: int,
    windows: Sequence[int],
    body_bytes: int,
    runs: int,
    profiles: Path | None,
    protection: Sequence[str],
    beside: Sequence[Peer],
    told: Told,
) -> Result:
    from tests.bench.measures import chain

    windows = windows or chain.WINDOWS
    return run_task(
        partial(chain.bench_chain, messages, windows, body_bytes, runs, profiles, told, protection, beside)
    )


def _latency(rates: Sequence[int], seconds: float, runs: int, beside: Sequence[Peer], told: Told) -> Result:
    from tests.bench.measures import latency

    return run_task(partial(latency.bench_latency, rates or latency.RATES, seconds, runs, told, beside))


def _backlog(messages: int, runs: int, told: Told) -> Result:
    from tests.bench.measures import backlog

    flow = min(messages, backlog.FLOW_MESSAGES)
    return run_task(partial(backlog.bench_backlog, messages, flow, runs, told))


def _outage(kills: int, told: Told) -> Result:
    from tests.bench.measures import outage

    return run_task(partial(outage.bench_outage, kills, told=told))


def _growth(quick: bool, told: Told) -> Result:
    from tests.bench.measures import growth

    return run_task(partial(growth.bench_growth, growth.SHORT if quick else growth.FULL, told))


def _edges(quick: bool, runs: int, told: Told) -> Result:
    from tests.bench.measures import edges

    return run_task(partial(edges.bench_edges, edges.QUICK if quick else edges.FULL, runs, told=told))


def _world(worlds: int, told: Told) -> Result:
    from tests.bench import results
    from tests.bench.measures.worlds import bench_worlds

    told("worlds")
    return results.of_worlds(bench_worlds(worlds))


def _analysis(packets: int, rounds: int, connections: int, flat_mb: Sequence[int], told: Told) -> Result:
    from simulator.command.analysing import ProgressLine
    from tests.bench import results
    from tests.bench.measures import analysis

    told("")  # Spark's own line says more.
    line = ProgressLine()
    with line.shown():
        return results.of_analysis(analysis.bench_analysis(packets, rounds, connections, flat_mb, line))


def _bench(as_json: bool, out: Path | None, **benches: Bench) -> int:
    """Run some, show their figures, write them if a folder is named, and return the exit status."""
    from simulator.base.screen import ProgressScreen
    from tests.bench import shown
    from tests.bench.measures.machine import machine

    if out is not None:
        shown.prepared(out)
    screen = ProgressScreen(quiet=True)
    facts = machine()
    results = []
    for name, bench in benches.items():
        with screen.shown():
            results.append(_measured(name, bench, screen.show, alone=len(benches) == 1))
    if as_json:
        print_json(shown.as_json(facts, results))
    else:
        shown.show(facts, results)
    if out is not None:
        shown.write(out, facts, results)
        complain(f"written to {out}")
    return FINDING if any(result.broken for result in results) else DONE


def _measured(name: str, bench: Bench, told: Told, *, alone: bool) -> Result:
    """What came of one. If it did not do what it should it has no figures, and the others are measured nonetheless.

    alone: whether there are no others; then what was asked of it may be at fault.
    """
    from tests.bench.figures import Result

    try:
        return bench(told)
    except (MqprotoError, ExceptionGroup) as error:
        reason = first_of(error)
        if not isinstance(reason, MqprotoError) or (alone and isinstance(reason, UsageError)):
            raise reason from None
        return Result(name, "gave no figures", [], broken=[str(reason)])
