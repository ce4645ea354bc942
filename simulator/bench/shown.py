"""Benchmarks' figures, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console

from simulator.bench.codec import BY_HAND, MOST_BY_HAND
from simulator.screen import plain_table, wide_console

if TYPE_CHECKING:
    from simulator.bench.analysis import AnalysisFigures
    from simulator.bench.backlog import BacklogFigures
    from simulator.bench.chain import ChainFigures
    from simulator.bench.codec import CodecFigures
    from simulator.bench.worlds import WorldFigures


def figures_as_json(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Benchmarks for programs."""
    return {name: value if isinstance(value, dict) else asdict(value) for name, value in figures.items()}


def show_figures(figures: Mapping[str, Any]) -> None:
    """Benchmarks for people."""
    console = wide_console()
    if "codec" in figures:
        _show_codec(console, figures["codec"])
    if "chain" in figures:
        _show_chain(console, figures["chain"])
    if "backlog" in figures:
        _show_backlog(console, figures["backlog"])
    if "world" in figures:
        _show_worlds(console, figures["world"])
    if "analysis" in figures:
        _show_analysis(console, figures["analysis"])
    console.print(
        f"on {', '.join(f'{name} {value}' for name, value in figures['machine'].items())}", markup=False
    )


def _show_codec(console: Console, codec: CodecFigures) -> None:
    for task, times in codec.us.items():
        table = plain_table(f"{task}, µs", "min", "median", "max", "times by hand")
        for name, runs in times.items():
            ratio = f"{median(codec.ratios(task, name)):.2f}" if BY_HAND in times else ""
            table.add_row(name, *(f"{value:.1f}" for value in (min(runs), median(runs), max(runs))), ratio)
        console.print(table)
        console.print()
    for line in codec.missing:
        console.print(line, markup=False)
    wanted = f"at most {MOST_BY_HAND} wanted of the generated code, {'' if codec.reached else 'not '}reached"
    console.print(f"{codec.rounds} rounds; {wanted}")
    console.print()


def _show_chain(console: Console, chain: ChainFigures) -> None:
    console.print(
        f"chain of {len(chain.cpu_s_per_1000) - 1}, bodies of {chain.body_bytes:,} bytes, window {chain.window}: "
        f"[bold]{chain.messages_per_s:,.0f} messages a second[/]"
    )
    runs = chain.runs_messages_per_s
    console.print(
        f"{len(runs)} runs of {chain.messages:,} messages: "
        f"min {min(runs):,.0f}, median {chain.messages_per_s:,.0f}, max {max(runs):,.0f}"
    )
    table = plain_table("CPU seconds per 1,000", "at full speed", f"at {chain.paced_per_s} a second")
    for name in chain.cpu_s_per_1000:
        table.add_row(name, _cpu(chain.cpu_s_per_1000[name]), _cpu(chain.paced_cpu_s_per_1000[name]))
    console.print(table)
    console.print(
        f"send to delivery at {chain.paced_per_s} a second: p50 {chain.p50_ms:.1f} ms, p99 {chain.p99_ms:.1f} ms"
    )
    console.print(f"this disk takes {chain.flush_ms:.2f} ms to flush 64 KiB (median, before the run)")
    console.print()


def _show_worlds(console: Console, worlds: WorldFigures) -> None:
    console.print(
        f"worlds of {worlds.nodes} nodes and {worlds.messages} messages, every invariant checked: "
        f"[bold]{worlds.runs_per_s:,.0f} a second on a core[/], {worlds.wanted_per_s} wanted"
    )
    table = plain_table("worlds a second on a core", "min", "median", "max")
    for name, rounds in (
        (f"with {worlds.faults:.1f} faults each", worlds.faulted_per_s),
        ("without faults", worlds.calm_per_s),
    ):
        table.add_row(name, *(f"{value:,.0f}" for value in (min(rounds), median(rounds), max(rounds))))
    console.print(table)
    console.print(f"{len(worlds.calm_per_s)} rounds of {worlds.worlds} worlds each")
    console.print()


def _show_backlog(console: Console, backlog: BacklogFigures) -> None:
    console.print(
        f"backlog of {backlog.messages:,} messages, bodies of {backlog.body_bytes:,} bytes, "
        f"window {backlog.window}: drained at [bold]{backlog.messages_per_s:,.0f} messages a second[/]"
    )
    table = plain_table("resident memory", "all waiting", "peak")
    for name, peak_bytes in backlog.peak_bytes.items():
        waiting = _megabytes(backlog.resident_bytes[name]) if name in backlog.resident_bytes else "down"
        table.add_row(name, waiting, _megabytes(peak_bytes))
    console.print(table)
    console.print(f"accepted in {backlog.accept_s:.1f} s, resends {backlog.resent:,}")
    console.print(
        f"after the destination was ready again: first message {backlog.first_message_s:.2f} s, "
        f"last {backlog.drain_s:.1f} s"
    )
    limit = _megabytes(backlog.limit_bytes)
    for name in backlog.over_limit:
        console.print(f"[bold red]over the limit of {limit}:[/] {name}")
    if not backlog.over_limit:
        unknown = [name for name, peak_bytes in backlog.peak_bytes.items() if peak_bytes is None]
        told = f"unknown of {', '.join(unknown)}" if unknown else "none"
        console.print(f"nodes over the limit of {limit}: {told}")
    console.print()


def _show_analysis(console: Console, analysis: AnalysisFigures) -> None:
    console.print(
        f"analysis of {analysis.packets:,} packets on {analysis.connections:,} connections, "
        f"{_megabytes(analysis.size_bytes)}, by Spark {analysis.spark} on {analysis.master}: "
        f"[bold]{analysis.whole.packets_per_s:,.0f} packets a second[/]"
    )
    table = plain_table("", "packets/s", "wanted", "MB/s", "s")
    for name, pace in (
        ("source to header columns", analysis.source),
        ("table of packets", analysis.table),
        ("all tables", analysis.whole),
        ("tshark with our dissector", analysis.tshark),
    ):
        if pace is not None:
            wanted = "" if pace.wanted_per_s is None else f"{pace.wanted_per_s:,}"
            rates = f"{pace.packets_per_s:,.0f}", wanted, f"{pace.bytes_per_s / 1e6:.0f}"
            table.add_row(name, *rates, f"{pace.median_s:.1f}")
    console.print(table)
    if analysis.tshark_ratio is None:
        console.print("tshark is not installed, so nothing was compared with it: apt-get install tshark")
    else:
        wanted = f"{analysis.tshark_wanted_ratio} wanted"
        console.print(f"the table of packets is {analysis.tshark_ratio:.0f}x as fast as tshark; {wanted}")
    console.print()
    table = plain_table("µs a packet", *(_megabytes(cost.size_bytes) for cost in analysis.costs))
    for name in analysis.costs[0].stages_us:
        table.add_row(name, *(f"{cost.stages_us[name]:.1f}" for cost in analysis.costs))
    console.print(table)
    console.print()
    _show_costs(console, analysis)


def _show_costs(console: Console, analysis: AnalysisFigures) -> None:
    programs = sorted({name for cost in analysis.costs for name in cost.peak_bytes})
    most = (f"{name}, at most" for name in programs)
    table = plain_table(
        "capture", "packets", "rounds", "µs a packet", "of processors", *most, "all at a time"
    )
    for cost in analysis.costs:
        cpu = "unknown" if cost.cpu_us_per_packet is None else f"{cost.cpu_us_per_packet:.1f}"
        table.add_row(
            _megabytes(cost.size_bytes),
            f"{cost.packets:,}",
            f"{len(cost.rounds_s)}",
            f"{cost.us_per_packet:.1f}",
            cpu,
            *(_megabytes(cost.peak_bytes.get(name)) for name in programs),
            _megabytes(cost.executor_bytes),
        )
    console.print(table)
    if analysis.flat_ratio is not None:
        wanted = f"{analysis.flat_wanted_ratio} wanted"
        console.print(
            f"a packet costs {analysis.flat_ratio:.2f} times as much in one as in another; {wanted}"
        )
    limit = _megabytes(analysis.limit_bytes)
    if analysis.over_limit:
        console.print(f"[bold red]over the limit of {limit}:[/] Spark's executor")
    elif any(cost.executor_bytes is None for cost in analysis.costs):
        console.print("what Spark's executor needs is unknown: this system has no /proc")
    else:
        console.print(f"Spark's executor, Java and Python together, is within {limit}")
    console.print()


def _megabytes(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.0f} MB"


def _cpu(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
