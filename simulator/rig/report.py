"""The results of a demo or a crash run: the promises, the counts behind them, and how they are displayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from mqproto.simulator.base.screen import plain_table, show_verdict, wide_console
from mqproto.simulator.rig.observer import NodeCount, NodeUsage, excess, node_table
from mqproto.simulator.rig.proof import Comparison, WireCount
from mqproto.simulator.rig.strikes import Stage
from mqproto.simulator.rig.verdict import Found, judged, named
from mqproto.simulator.topology import Action


@dataclass(slots=True)
class Outage:
    """One fault, and the time at which messages flowed again.

    All times are in seconds since the traffic began.

    flowed_at_s: the time at which the consumer received a message after messages had crossed each link of the route,
        one link after the other; None if that did not happen. Only messages that crossed after the link was restored,
        or after the node's new process was spawned, count.
    spawned_at_s: the time at which the new process was spawned, if a node was killed or stopped.
    restored_at_s: the time at which the link or the node was working again.
    delivered_before: how many messages the consumer had received when the fault began.
    """

    action: Action
    subject: str
    began_at_s: float
    delivered_before: int
    reset_count: int = 0
    spawned_at_s: float | None = None
    restored_at_s: float | None = None
    flowed_at_s: float | None = None

    @property
    def is_restart(self) -> bool:
        """Whether a node was killed or stopped, and started again."""
        return self.action in (Action.KILL, Action.STOP)

    def since(self, moment_s: float | None) -> float | None:
        """Return the number of seconds from a moment until messages flowed again; None if either time is unknown."""
        if moment_s is None or self.flowed_at_s is None:
            return None
        return max(0.0, self.flowed_at_s - moment_s)

    def broken(self) -> str | None:
        """Return the broken promise in words, if any."""
        what = f"{self.action} of {self.subject} at {self.began_at_s:.1f} s"
        if self.restored_at_s is None:
            return f"{what}: it never came back"
        if self.flowed_at_s is None:
            return f"{what}: no message came through after it"
        return None


@dataclass(slots=True)
class DemoReport:
    """The report of a demo.

    in_doubt: the number of commits whose answer was lost.
    committed_in_doubt: the number of these commits that had happened.
    unsettled: the number of messages for which the sender is still waiting for an acknowledgment.
    usage: the maximum resources that each node used in any one of its lives.
    """

    workload: str
    left_out: tuple[str, ...]
    duration_s: float
    comparison: Comparison
    wire: WireCount
    nodes: dict[str, NodeCount]
    outages: list[Outage]
    p50_ms: float
    p99_ms: float
    sent_bytes: int
    in_doubt: int
    committed_in_doubt: int
    unsettled: int
    capture: str
    usage: dict[str, NodeUsage] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """All broken promises, in words; empty if all were kept."""
        return list(self._broken())

    def _broken(self) -> Iterator[str]:
        yield from judged("demo", self.comparison.found(), excess(self.usage))
        if self.unsettled:
            yield f"the sender still waits for acknowledgments of {self.unsettled} messages"
        yield from self.wire.faults[:5]
        if len(self.wire.faults) > 5:
            yield f"the capture has {len(self.wire.faults) - 5} more faults"
        if not self.wire.forwarded and not self.wire.faults:
            yield "the capture has no forwarded message, so nothing shows that they pass untouched"
        for outage in self.outages:
            if broken := outage.broken():
                yield broken

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for programs."""
        report = asdict(self)
        del report["wire"]["crossings"]
        return {**report, "broken": self.broken}


@dataclass(frozen=True, slots=True)
class FlowReport:
    """The messages from one producer to one consumer.

    transactional: whether each message must arrive exactly once and in order; if not, it is enough that no message is
        lost.
    commits_in_doubt: the number of the consumer's commits whose answer was lost.
    commits_done: the number of these commits that had happened.
    rolled_back: the number of transactions that the consumer rolled back.
    longest_outage_s: the longest time, in seconds, without a received message.
    longest_silence_s: the longest such time while all nodes ran.
    """

    transactional: bool
    comparison: Comparison
    commits_in_doubt: int
    commits_done: int
    longest_outage_s: float
    longest_silence_s: float
    rolled_back: int = 0

    def found(self) -> Found:
        """Return the broken promises. Recoverable messages may arrive twice and out of order, but none may be lost."""
        return self.comparison.found(once=self.transactional)


@dataclass(slots=True)
class CrashReport:
    """The report of a crash run.

    kills: the number of kills, keyed by node and then by the stage in which the node died.
    at_once: the number of times that several nodes died at the same instant.
    again: the number of times that a node was killed again while it started.
    retained: the number of messages left in the stores after the calm, keyed by queue.
    failures: the events that ended the run early; if there are any, nothing else is judged.
    stores: the folder of the stores; it is removed if no promise was broken.
    has_kills: whether nodes were killed at all.
    rolled: the number of times that the keys of each node were replaced; empty if nodes have none.
    usage: the maximum resources that each node used in any one of its lives.
    """

    seed: int
    minutes: float
    duration_s: float
    flows: dict[str, FlowReport]
    kills: dict[str, dict[Stage, int]]
    at_once: int
    again: int
    nodes: dict[str, NodeCount]
    retained: dict[str, int]
    failures: list[str]
    stores: str
    has_kills: bool = True
    rolled: dict[str, int] = field(default_factory=dict)
    usage: dict[str, NodeUsage] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """All broken promises, in words; empty if all were kept."""
        if self.failures:
            return self.failures
        return [
            *judged(
                "crash",
                named({name: flow.found() for name, flow in self.flows.items()}),
                excess(self.usage),
            ),
            *(f"{count:,} messages still wait in {queue}" for queue, count in self.retained.items()),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for programs."""
        return {**asdict(self), "broken": self.broken}


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
    """Return a table of faults: their start and length, the number of messages received before, and when messages
    flowed again.

    The column "flowing" has the seconds since the link was restored or the node was ready; "from spawn" has the seconds
    since the node's process began.
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
    """Return a table with a line for each node: the number of times that it was killed in each stage."""
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
