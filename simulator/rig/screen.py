"""The screen of a demo or a crash run: the nodes while it lasts, and the report at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rich.table import Table

from mqproto.simulator.base.screen import plain_table, show_verdict, wide_console
from mqproto.simulator.rig.report import CrashReport, DemoReport, FlowReport, NodeCount, Outage
from mqproto.simulator.rig.strikes import Stage

COUNTS: Final = ("sent", "forwarded", "delivered", "held", "resent", "waiting")


def node_table(nodes: Mapping[str, NodeCount], caption: str = "") -> Table:
    """Return a table with one line for each node."""
    table = plain_table("node", "state", *COUNTS)
    table.caption = caption
    for name, counts in nodes.items():
        table.add_row(name, counts.state, *(f"{getattr(counts, count):,}" for count in COUNTS))
    return table


def show_report(report: DemoReport) -> None:
    """Print the report of a demo, for people."""
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
    yield (
        "producer to consumer",
        f"p50 {report.p50_ms:,.0f} ms, p99 {report.p99_ms:,.0f} ms, outages included",
    )
    yield "forwarded untouched", f"{wire.forwarded:,} packets compared, {len(wire.faults):,} differ"


def outage_table(outages: list[Outage]) -> Table:
    """Return when each fault began, how long it lasted, how many messages had come, and when they flowed again.

    flowing: after the link was back or the restarted node was ready; from spawn: after its process began.
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
    """Print the report of a crash run, for people."""
    console = wide_console()
    console.print(
        f"{'killed nodes' if report.has_kills else 'no node was killed'} for {report.minutes:g} minutes "
        f"(seed {report.seed}), {report.duration_s:.0f} s in all"
    )
    if report.has_kills:
        console.print()
        console.print(kill_table(report))
        console.print(
            f"several at one instant {report.at_once:,} times, the same one again on its way up {report.again:,}"
        )
    if report.rolled:
        each = ", ".join(f"{name} {count:,}" for name, count in report.rolled.items())
        console.print(
            f"all encrypted and signed; keys replaced {sum(report.rolled.values()):,} times: {each}"
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
            f"the same plan again:       mqproto crash --minutes {report.minutes:g} --seed {report.seed}"
            + " --no-kills" * (not report.has_kills)
            + " --keys" * bool(report.rolled)
        )
    show_verdict(console, report.broken, "every accepted message arrived; orders once and in order")


def kill_table(report: CrashReport) -> Table:
    """Return a line for each node: how often it was killed in each stage."""
    table = plain_table("kills while", *Stage, "all")
    for name, stages in report.kills.items():
        table.add_row(name, *(f"{stages[stage]:,}" for stage in Stage), f"{sum(stages.values()):,}")
    return table


def flow_table(flows: Mapping[str, FlowReport]) -> Table:
    """Return a table with one column for each flow."""
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
        ("rolled back", lambda flow: f"{flow.rolled_back:,}"),
        ("longest outage", lambda flow: _seconds(flow.longest_outage_s)),
        ("  with all nodes up", lambda flow: _seconds(flow.longest_silence_s)),
    ):
        table.add_row(name, *map(value, flows.values()))
    return table


def _kind(flow: FlowReport) -> str:
    return "transactional" if flow.transactional else "recoverable"
