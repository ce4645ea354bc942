"""`mqproto bench`: which benchmarks there are, and what may be typed behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from mqproto.errors import UsageError
from simulator.options import DONE, FINDING, JsonOption, complain, print_json, run_task

app = typer.Typer(help="How fast it is here.", no_args_is_help=True)

RoundsOption = Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")]
MessagesOption = Annotated[
    int, typer.Option("--messages", "-m", min=1, help="How many go through the chain at full speed.")
]
RunsOption = Annotated[int, typer.Option(min=1, help="Runs of the chain at full speed; the median counts.")]
WindowOption = Annotated[int, typer.Option(min=1, max=32_767, help="WindowSize of every session.")]
BodyOption = Annotated[int, typer.Option("--body-bytes", min=0, max=1_000_000)]


@app.command("codec")
def bench_codec(rounds: RoundsOption = 21, as_json: JsonOption = False) -> int:
    """The generated codec beside code written by hand, construct, dissect.cstruct, Kaitai Struct and scapy."""
    return _bench(as_json, codec=partial(_codec, rounds))


@app.command("chain")
def bench_chain(
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write a profile of each process here; all are slower for it."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Three node processes, every message on disk before it is acknowledged."""
    return _bench(as_json, chain=partial(_chain, messages, window, body_bytes, runs, profile))


@app.command("backlog")
def bench_backlog(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=1, help="How many wait for the destination.")
    ] = 100_000,
    as_json: JsonOption = False,
) -> int:
    """The destination is down, messages pile up, it comes back. Status 1 if a node needs over 150 MB."""
    return _bench(as_json, backlog=partial(_backlog, messages))


WorldsOption = Annotated[
    int, typer.Option("--worlds", min=1, help="Simulated worlds of each sort in each of five rounds.")
]


@app.command("world")
def bench_world(worlds: WorldsOption = 200, as_json: JsonOption = False) -> int:
    """Simulated worlds of three nodes and 100 messages, with and without faults, on one core."""
    return _bench(as_json, world=partial(_world, worlds))


PacketsOption = Annotated[int, typer.Option("--packets", min=1, help="How many the capture has, at least.")]


@app.command("analyse")
def bench_analyse(
    packets: PacketsOption = 300_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    connections: Annotated[int, typer.Option(min=1, max=65_536, help="They share the packets.")] = 64,
    flat: Annotated[
        list[int] | None,
        typer.Option(
            min=1, metavar="MB", help="A further capture of this size, to compare costs; repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Captures into tables on two cores, beside tshark. Status 1 if Spark's executor needs over 2 GiB.

    What is written meanwhile goes to the folder for temporary files, TMPDIR: some three times the size of the largest
    capture.

    \b
    mqproto bench analyse --packets 1500000
    mqproto bench analyse --flat 100 --flat 1000 --flat 10000
    mqproto bench analyse --packets 8000000 --connections 1 --rounds 1
    """
    return _bench(as_json, analysis=partial(_analysis, packets, rounds, connections, flat or ()))


@app.command("all")
def bench_all(
    rounds: RoundsOption = 21,
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    backlog: Annotated[
        int, typer.Option("--backlog", min=1, help="How many wait for the destination.")
    ] = 100_000,
    worlds: WorldsOption = 200,
    packets: PacketsOption = 300_000,
    as_json: JsonOption = False,
) -> int:
    """All of them: codec, chain, backlog, worlds and the analysis of captures."""
    benches: dict[str, Callable[[], Any]] = {
        "codec": partial(_codec, rounds),
        "chain": partial(_chain, messages, window, body_bytes, runs),
        "backlog": partial(_backlog, backlog),
        "world": partial(_world, worlds),
    }
    if find_spec("pyspark") is None:
        complain("the analysis is left out: pyspark is not installed: pip install 'mqproto[spark]'")
    else:
        benches["analysis"] = partial(_analysis, packets)
    return _bench(as_json, **benches)


def _codec(rounds: int) -> Any:
    from simulator.bench.codec import bench_codec

    return bench_codec(rounds)


def _chain(messages: int, window: int, body_bytes: int, runs: int, profiles: Path | None = None) -> Any:
    from simulator.bench import chain

    # A message at a time is another matter than many: a profile is of the latter alone.
    paced = chain.PACED_MESSAGES if profiles is None else 1
    return run_task(
        partial(chain.bench_chain, messages, window, body_bytes, paced, runs=runs, profiles=profiles)
    )


def _backlog(messages: int) -> Any:
    from simulator.bench import backlog

    return run_task(partial(backlog.bench_backlog, messages))


def _world(worlds: int) -> Any:
    from simulator.bench.worlds import bench_worlds

    return bench_worlds(worlds)


def _analysis(packets: int, rounds: int = 3, connections: int = 64, flat_mb: Sequence[int] = ()) -> Any:
    from simulator.analysing import ProgressLine
    from simulator.bench import analysis

    if find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed: pip install 'mqproto[spark]'")
    line = ProgressLine()
    with line.shown():
        return analysis.bench_analysis(packets, rounds, connections, flat_mb, line)


def _bench(as_json: bool, **benches: Callable[[], Any]) -> int:
    """Run some, show their figures, and return the exit status."""
    from simulator.bench import shown
    from simulator.bench.machine import machine

    figures: dict[str, Any] = {"machine": machine()} | {name: bench() for name, bench in benches.items()}
    if as_json:
        print_json(shown.figures_as_json(figures))
    else:
        shown.show_figures(figures)
    return FINDING if any(getattr(each, "over_limit", False) for each in figures.values()) else DONE
