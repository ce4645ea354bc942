"""What people see: the demo's live table and its end, the figures of the benchmarks.

On a terminal long work shows its progress; in a pipe it says nothing until it is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from simulator.report import CrashReport, DemoReport, FlowReport, NodeCount, Outage
from simulator.strikes import Stage

if TYPE_CHECKING:
    from simulator.backlog import BacklogFigures
    from simulator.bench import CodecFigures
    from simulator.chain import ChainFigures
    from simulator.throughput import AnalysisFigures
    from simulator.world.bench import WorldFigures

PIPE_COLUMNS: Final = 200
COUNTS = ("sent", "forwarded", "delivered", "held", "resent", "waiting")


def wide_console(*, stderr: bool = False, markup: bool = True) -> Console:
    """The terminal as wide as it is; a pipe as wide as any of our tables, so that none is folded for a program."""
    console = Console(highlight=False, stderr=stderr, markup=markup)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def plain_table(*headings: str) -> Table:
    """A table without lines; the first column is words, the others are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return table


class ProgressScreen:
    """Nodes while they run: one line for each, and what happens to them above it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = wide_console(stderr=quiet)
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show progress while the block runs, if this is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as self._live:
            yield
        self._live = None

    def say(self, text: str) -> None:
        """One line that stays; for the terminal only."""
        if self._console.is_terminal:
            self._console.print(text, markup=False)

    def show(self, text: str) -> None:
        """One line that is replaced by the next."""
        if self._live is not None:
            self._live.update(text)

    def update(self, nodes: Mapping[str, NodeCount], caption: str) -> None:
        """The counts of each node, and a line below them."""
        if self._live is not None:
            self._live.update(node_table(nodes, caption))


def node_table(nodes: Mapping[str, NodeCount], caption: str = "") -> Table:
    """One line for each node."""
    table = plain_table("node", "state", *COUNTS)
    table.caption = caption
    for name, counts in nodes.items():
        table.add_row(name, counts.state, *(f"{getattr(counts, count):,}" for count in COUNTS))
    return table


def show_report(report: DemoReport) -> None:
    """The end of a demo, for people."""
    console = wide_console()
    console.print(
        f"sent {report.workload} through {', '.join(report.nodes)} in {report.duration_s:.0f} s", markup=False
    )
    for text in report.left_out:
        console.print(f"left out {text}", markup=False)
    console.print()
    console.print(node_table(report.nodes))
    console.print()
    console.print(outage_table(report.outages))
    console.print()
    for name, value in _proof(report):
        console.print(f"{name:<26} {value}", markup=False)
    console.print()
    console.print(f"capture, for Wireshark:    {report.capture}", markup=False)
    show_verdict(console, report.broken, "every message arrived once, in order, as it was sent")


def show_verdict(console: Console, broken: list[str], kept: str) -> None:
    """The promises that were not kept, or that they were."""
    for promise in broken:
        console.print("[bold red]broken:[/] ", end="")
        console.print(promise, markup=False)
    if not broken:
        console.print(f"[bold green]{kept}[/]")


def _proof(report: DemoReport) -> Iterator[tuple[str, str]]:
    comparison, wire = report.comparison, report.wire
    yield "sent", f"{comparison.sent:,} messages, {report.sent_bytes:,} bytes"
    yield "delivered, SHA-256 equal", f"{comparison.delivered - comparison.altered:,}"
    yield "lost", f"{comparison.lost:,}"
    yield "duplicated", f"{comparison.duplicated:,}"
    yield "out of order", f"{comparison.out_of_order:,}"
    yield "resends", f"{sum(node.resent for node in report.nodes.values()):,}"
    yield "gaps held", f"{sum(node.held for node in report.nodes.values()):,}"
    yield "commits in doubt", f"{report.in_doubt:,}, {report.committed_in_doubt:,} of them had happened"
    yield "session acks", f"{wire.session_acks:,} packets, {wire.riding_session_acks:,} on messages"
    yield "OrderAcks", f"{wire.order_acks:,}"
    yield "FinalAcks", f"{wire.final_acks:,}"
    yield "send to delivery", f"p50 {report.p50_ms:,.0f} ms, p99 {report.p99_ms:,.0f} ms, outages included"
    yield "forwarded untouched", f"{wire.forwarded:,} packets compared, {len(wire.faults):,} differ"


def outage_table(outages: list[Outage]) -> Table:
    """When each fault began, how long it lasted, how many had been delivered, and when messages flowed again.

    flowing: after the link was there again, or the restarted node was ready; from spawn: after its process began.
    """
    table = plain_table("fault", "at", "lasted", "delivered", "flowing", "from spawn")
    for outage in outages:
        lasted_s = None if outage.restored_at_s is None else outage.restored_at_s - outage.began_at_s
        table.add_row(
            f"{outage.action} {outage.subject}",
            _seconds(outage.began_at_s),
            _seconds(lasted_s),
            f"{outage.delivered_before:,}",
            _seconds(outage.since(outage.restored_at_s), digits=2),
            _seconds(outage.since(outage.spawned_at_s), digits=2),
        )
    return table


def _seconds(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f} s"


def show_crash_report(report: CrashReport) -> None:
    """The end of a crash run, for people."""
    console = wide_console()
    console.print(
        f"killed nodes for {report.minutes:g} minutes (seed {report.seed}), {report.duration_s:.0f} s in all"
    )
    console.print()
    console.print(kill_table(report))
    console.print(
        f"several at one instant {report.at_once:,} times, the same one again on its way up {report.again:,}"
    )
    console.print()
    console.print(flow_table(report.flows))
    console.print()
    nodes = report.nodes.values()
    for name, value in (
        ("resends", f"{sum(node.resent for node in nodes):,}, those of a node's last moments not counted"),
        ("gaps held", f"{sum(node.held for node in nodes):,}"),
        ("retained after calm", f"{sum(report.retained.values()):,}"),
    ):
        console.print(f"{name:<26} {value}", markup=False)
    console.print()
    if report.broken:
        console.print(f"stores and logs:           {report.stores}", markup=False)
        console.print(
            f"the same kills again:      mqproto crash --minutes {report.minutes:g} --seed {report.seed}"
        )
    show_verdict(console, report.broken, "every accepted message arrived; orders once and in order")


def kill_table(report: CrashReport) -> Table:
    """One line for each node: how often it was killed while it did what."""
    table = plain_table("kills while", *Stage, "all")
    for name, stages in report.kills.items():
        table.add_row(name, *(f"{stages[stage]:,}" for stage in Stage), f"{sum(stages.values()):,}")
    return table


def flow_table(flows: Mapping[str, FlowReport]) -> Table:
    """One column for each flow."""
    table = plain_table("", *(f"{name}, {_kind(flow)}" for name, flow in flows.items()))
    for name, value in (
        ("accepted", lambda flow: f"{flow.comparison.sent:,}"),
        ("delivered", lambda flow: f"{flow.comparison.delivered:,}"),
        ("lost", lambda flow: f"{flow.comparison.lost:,}"),
        ("duplicated", lambda flow: f"{flow.comparison.duplicated:,}"),
        ("out of order", lambda flow: f"{flow.comparison.out_of_order:,}"),
        ("altered, or never sent", lambda flow: f"{flow.comparison.altered + flow.comparison.strangers:,}"),
        ("sends in doubt", lambda flow: f"{flow.comparison.in_doubt:,}"),
        ("  of them delivered", lambda flow: f"{flow.comparison.in_doubt_delivered:,}"),
        ("commits in doubt", lambda flow: f"{flow.commits_in_doubt:,}"),
        ("  of them done", lambda flow: f"{flow.commits_done:,}"),
        ("longest outage", lambda flow: _seconds(flow.longest_outage_s)),
        ("  with all nodes up", lambda flow: _seconds(flow.longest_silence_s)),
    ):
        table.add_row(name, *map(value, flows.values()))
    return table


def _kind(flow: FlowReport) -> str:
    return "transactional" if flow.transactional else "recoverable"


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
    table = plain_table(f"codec, {codec.packet_bytes:,} bytes", "generated", "interpreted", "ratio")
    table.add_row(
        "parse", f"{codec.parse_us:.1f} µs", f"{codec.reference_parse_us:.0f} µs", f"{codec.parse_ratio:.0f}x"
    )
    table.add_row(
        "build", f"{codec.build_us:.1f} µs", f"{codec.reference_build_us:.0f} µs", f"{codec.build_ratio:.0f}x"
    )
    console.print(table)
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
        f"[bold]{worlds.runs_per_s:,.0f} a second on a core[/]"
    )
    console.print(
        f"{worlds.runs} runs: median {worlds.median_ms:.1f} ms, fastest {worlds.fastest_ms:.1f} ms of CPU"
    )
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
