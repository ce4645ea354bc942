"""`mqproto bench`: which benchmarks there are, and what may be typed behind them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from simulator.options import DONE, FINDING, JsonOption, print_json, run_task

app = typer.Typer(help="How fast it is here.", no_args_is_help=True)

RoundsOption = Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")]
MessagesOption = Annotated[
    int, typer.Option("--messages", "-m", min=1, help="How many go through the chain at full speed.")
]
RunsOption = Annotated[int, typer.Option(min=1, help="Runs of the chain at full speed; the median counts.")]
WindowOption = Annotated[int, typer.Option(min=1, max=32_767, help="WindowSize of every session.")]
BodyOption = Annotated[int, typer.Option("--body-bytes", min=0, max=1_000_000)]


@app.command("codec")
def bench_codec(rounds: RoundsOption = 51, as_json: JsonOption = False) -> int:
    """The generated codec against construct interpreting the same layouts."""
    return _bench(as_json, rounds=rounds)


@app.command("chain")
def bench_chain(
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    as_json: JsonOption = False,
) -> int:
    """Three node processes, every message on disk before it is acknowledged."""
    return _bench(as_json, messages=messages, runs=runs, window=window, body_bytes=body_bytes)


@app.command("backlog")
def bench_backlog(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=1, help="How many wait for the destination.")
    ] = 100_000,
    as_json: JsonOption = False,
) -> int:
    """The destination is down, messages pile up, it comes back. Status 1 if a node needs over 150 MB."""
    return _bench(as_json, backlog=messages)


WorldsOption = Annotated[int, typer.Option("--worlds", min=1, help="Simulated worlds; the median counts.")]


@app.command("world")
def bench_world(worlds: WorldsOption = 200, as_json: JsonOption = False) -> int:
    """Simulated worlds of three nodes and 100 messages, on one core."""
    return _bench(as_json, worlds=worlds)


@app.command("all")
def bench_all(
    rounds: RoundsOption = 51,
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    backlog: Annotated[
        int, typer.Option("--backlog", min=1, help="How many wait for the destination.")
    ] = 100_000,
    worlds: WorldsOption = 200,
    as_json: JsonOption = False,
) -> int:
    """All of them: codec, chain, backlog and worlds."""
    return _bench(
        as_json,
        rounds=rounds,
        messages=messages,
        runs=runs,
        window=window,
        body_bytes=body_bytes,
        backlog=backlog,
        worlds=worlds,
    )


def _bench(
    as_json: bool,
    *,
    rounds: int = 0,
    messages: int = 0,
    runs: int = 3,
    window: int = 64,
    body_bytes: int = 1_024,
    backlog: int = 0,
    worlds: int = 0,
) -> int:
    from simulator import backlog as waiting
    from simulator import bench, chain, screen
    from simulator.world.bench import bench_worlds

    figures: dict[str, Any] = {"machine": bench.machine()}
    if rounds:
        figures["codec"] = bench.bench_codec(rounds)
    if messages:
        figures["chain"] = run_task(partial(chain.bench_chain, messages, window, body_bytes, runs=runs))
    if backlog:
        figures["backlog"] = run_task(partial(waiting.bench_backlog, backlog))
    if worlds:
        figures["world"] = bench_worlds(worlds)
    if as_json:
        print_json(screen.figures_as_json(figures))
    else:
        screen.show_figures(figures)
    return FINDING if "backlog" in figures and figures["backlog"].over_limit else DONE
