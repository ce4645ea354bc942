"""The results of a demo or a crash run: the promises, and the counts behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from mqproto.simulator.rig.proof import Comparison, WireCount
from mqproto.simulator.rig.strikes import Stage
from mqproto.simulator.topology import Action

RESTART_LIMIT_S: Final = 2.0
"""Messages must flow again this soon after a restarted node is ready."""


@dataclass(slots=True)
class Outage:
    """One fault, and when messages flowed again; times in seconds since the traffic began.

    flowed_at_s: when messages had crossed each link of the route in turn, and the consumer had one, all after the link
        was restored or the node's new process was spawned; None if that did not happen.
    spawned_at_s: when the new process was spawned, if a node was killed or stopped.
    restored_at_s: when the link, or the node, was back.
    delivered_before: messages that the consumer had when the fault began.
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
        """Return the seconds from a moment until messages flowed again; None if either is unknown."""
        if moment_s is None or self.flowed_at_s is None:
            return None
        return max(0.0, self.flowed_at_s - moment_s)

    def broken(self) -> str | None:
        """Return the broken promise in words, if any."""
        what = f"{self.action} of {self.subject} at {self.began_at_s:.1f} s"
        if self.restored_at_s is None:
            return f"{what}: it never came back"
        pause_s = self.since(self.restored_at_s)
        if pause_s is None:
            return f"{what}: no message came through after it"
        if self.is_restart and pause_s > RESTART_LIMIT_S:
            return f"{what}: messages flowed {pause_s:.1f} s after the restart, must be {RESTART_LIMIT_S:g} s"
        return None


@dataclass(slots=True)
class NodeCount:
    """The counts of one node, over all its processes."""

    sent: int = 0
    forwarded: int = 0
    delivered: int = 0
    held: int = 0
    resent: int = 0
    waiting: int = 0
    state: str = "starting"


@dataclass(slots=True)
class DemoReport:
    """The report of a demo.

    in_doubt: commits whose answer was lost; `committed_in_doubt` of them had happened.
    unsettled: messages for which the sender still waits for an acknowledgment.
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
    failures: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """All broken promises, in words; empty if all were kept."""
        return list(self._broken())

    def _broken(self) -> Iterator[str]:
        yield from self.failures
        yield from self.comparison.broken()
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
        """Return the report for programs."""
        report = asdict(self)
        del report["wire"]["crossings"]
        return {**report, "broken": self.broken}


@dataclass(frozen=True, slots=True)
class FlowReport:
    """The messages of one producer to one consumer.

    transactional: whether each must come exactly once and in order; otherwise none may be lost.
    commits_in_doubt: the consumer's commits whose answer was lost; `commits_done` of them had happened.
    rolled_back: transactions that the consumer rolled back.
    longest_outage_s: the longest time without a received message.
    longest_silence_s: the longest such time while all nodes ran.
    """

    transactional: bool
    comparison: Comparison
    commits_in_doubt: int
    commits_done: int
    longest_outage_s: float
    longest_silence_s: float
    rolled_back: int = 0

    def broken(self) -> list[str]:
        """Return the broken promises. Recoverable messages may come twice and out of order, but none may be lost."""
        comparison = self.comparison
        if not self.transactional:
            comparison = replace(comparison, duplicated=0, out_of_order=0)
        return comparison.broken()


@dataclass(slots=True)
class CrashReport:
    """The report of a crash run.

    kills: counts by node, then by what it was doing when it died.
    at_once: how often several nodes died at the same instant.
    again: how often a node was killed again on its way up.
    retained: messages left in the stores after the calm, by queue.
    failures: what ended the run early; then nothing else is judged.
    stores: the folder of the stores; it is removed if no promise was broken.
    has_kills: whether nodes were killed at all.
    rolled: how often the keys of each node were replaced; empty if nodes have none.
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

    @property
    def broken(self) -> list[str]:
        """All broken promises, in words; empty if all were kept."""
        if self.failures:
            return self.failures
        return [
            *(f"{name}: {promise}" for name, flow in self.flows.items() for promise in flow.broken()),
            *(f"{count:,} messages still wait in {queue}" for queue, count in self.retained.items()),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {**asdict(self), "broken": self.broken}
