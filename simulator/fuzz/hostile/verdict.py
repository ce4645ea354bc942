"""The measurements of each attack, and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mqproto.simulator.base.screen import plain_table, show_verdict, wide_console
from mqproto.simulator.fuzz.hostile.attackers import Spent
from mqproto.simulator.fuzz.tactics.outofturn import TACTICS
from mqproto.simulator.rig.observer import LOG_LIMIT_BYTES, MB, MEMORY_LIMIT_BYTES, NodeUsage, excess
from mqproto.simulator.rig.proof import Comparison
from mqproto.simulator.rig.verdict import Found, RunOracle, judged

LEAST_SHARE: Final = 0.5
"""The minimum honest throughput during an attack, as a share of the throughput before it."""
RECOVERY_S: Final = 10.0
"""The number of seconds, after an attack's end, within which everything that was sent before that end must arrive."""
ANSWER_S: Final = 5.0
"""The maximum number of seconds that the attacked node may take to answer an operator's `queues`."""


@dataclass(slots=True)
class Ordeal:
    """One attack on one node, and what happened to the honest messages.

    form: how many attackers there were, and where they came from.
    restarts: whether a neighbour of the node was killed and started again during the attack; if so, throughput is not
        judged.
    before_per_s, during_per_s: the numbers of honest messages that arrived per second before and during the attack.
    typical_ms, worst_ms: the median and the longest time until the arrival of an honest message that was sent during
        the attack.
    recovered_s: the time from the attack's end until all messages had arrived; None if it was longer than the patience.
    answer_s: the longest time that the node took to answer `queues`.
    wrongs: the nodes that ended, and the packets that are kept even though they are incomplete.
    found: what is wrong with honest messages.
    """

    tactic: str
    form: str
    node: str
    restarts: bool = False
    seconds: float = 0.0
    spent: Spent = field(default_factory=Spent)
    before_per_s: float = 0.0
    during_per_s: float = 0.0
    typical_ms: float = 0.0
    worst_ms: float = 0.0
    recovered_s: float | None = None
    answer_s: float = 0.0
    nodes: dict[str, NodeUsage] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    found: Found = field(default_factory=lambda: Comparison().found())

    @property
    def share(self) -> float:
        """The honest throughput during the attack, as a share of the throughput before it."""
        return self.during_per_s / self.before_per_s if self.before_per_s else 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the honest throughput during the attack was too low.

        It is not judged if a neighbour was restarted.
        """
        return not self.restarts and self.share < LEAST_SHARE

    def broken(self, *, timed: bool) -> list[str]:
        """Return the broken promises in words.

        Args:
            timed: whether throughput and times count; otherwise only promises that do not depend on the machine do.
        """
        return list(self._broken(timed=timed))

    def _broken(self, *, timed: bool) -> Iterator[str]:
        yield from self.wrongs
        if not self.spent.cases:
            yield "nobody attacked: no case was begun"
        blocked = "honest messages are blocked after the attack"
        slow = (
            f"honest throughput was {self.during_per_s:,.0f} a second, {self.share:.0%} of "
            f"{self.before_per_s:,.0f} before, at least {LEAST_SHARE:.0%}"
        )
        came: Found = {
            RunOracle.LOST: [blocked] if self.recovered_s is None else [],
            RunOracle.THROUGHPUT: [slow] if timed and self.is_slow else [],
        }
        yield from judged("strangers", self.found, excess(self.nodes), came)
        if not timed:
            return
        if self.recovered_s is not None and self.recovered_s > RECOVERY_S:
            yield f"all had come {self.recovered_s:.1f} s after the attack, at most {RECOVERY_S:g} s"
        if self.answer_s > ANSWER_S:
            yield f"`queues` of {self.node} took {self.answer_s:.1f} s, at most {ANSWER_S:g} s"

    def line(self, *, timed: bool) -> str:
        """Return a line about the attack, with the promises that were broken."""
        broken = self.broken(timed=timed)
        verdict = "FAILED" if broken else "held"
        recovered = "never" if self.recovered_s is None else f"{self.recovered_s:.1f} s"
        share = "restart" if self.restarts else f"{self.share:.0%}"
        return (
            f"{verdict:6} {self.tactic}, {self.form}, at {self.node}: "
            f"{self.spent.cases:,} cases, {self.spent.sent_bytes / MB:,.1f} MB in {self.seconds:.1f} s; "
            f"{self.during_per_s:,.0f} honest a second ({share}), "
            f"{self.typical_ms:,.0f} ms late, worst {self.worst_ms:,.0f} ms, all after {recovered}; "
            f"{self.peak_mb:,.0f} MB, {self.log_bytes:,} bytes of log, {self.cpu:.0%} of a core"
            + "".join(f"; {wrong}" for wrong in broken)
        )

    @property
    def peak_mb(self) -> float:
        """The highest peak of resident memory among all nodes, in MB."""
        return max((figures.peak_bytes or 0 for figures in self.nodes.values()), default=0) / MB

    @property
    def log_bytes(self) -> int:
        """The number of bytes that were added to the log by the node that wrote the most."""
        return max((figures.log_bytes for figures in self.nodes.values()), default=0)

    @property
    def cpu(self) -> float:
        """The share of one core that the attacked node used."""
        return self.nodes[self.node].cpu if self.node in self.nodes else 0.0


@dataclass(slots=True)
class Report:
    """The results of a run.

    timed: whether throughput and times were judged.
    stores: the folder with the nodes' stores and logs; it is removed if no promise was broken.
    """

    seed: int
    timed: bool
    ordeals: list[Ordeal] = field(default_factory=list)
    seconds: float = 0.0
    stores: str = ""

    @property
    def broken(self) -> list[str]:
        """The broken promises, each with its attack and the command that runs it again."""
        return [
            f"{ordeal.tactic}, {ordeal.form}, at {ordeal.node}: {wrong}; again: {self.again(ordeal)}"
            for ordeal in self.ordeals
            for wrong in ordeal.broken(timed=self.timed)
        ]

    def again(self, ordeal: Ordeal) -> str:
        """Return the command that runs one attack again."""
        return f"mqproto fuzz strangers --seed {self.seed} --only '{ordeal.tactic}'"

    def as_json(self) -> Mapping[str, Any]:
        """Return the report as values for programs."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "attacks": [
                msgspec.to_builtins(ordeal)
                | {"share": round(ordeal.share, 3), "broken": ordeal.broken(timed=self.timed)}
                for ordeal in self.ordeals
            ],
            "broken": self.broken,
        }


def show_report(report: Report) -> None:
    """Print the limits and the broken promises. The line about each attack was printed earlier."""
    console = wide_console()
    console.print()
    console.print(
        f"seed {report.seed}: {len(report.ordeals)} attacks in {report.seconds:.0f} s; a node may have "
        f"{MEMORY_LIMIT_BYTES / MB:.0f} MB, and write {LOG_LIMIT_BYTES:,} bytes of log in an attack; "
        f"at least {LEAST_SHARE:.0%} of what came before it comes during it, and all within {RECOVERY_S:g} s after it",
        markup=False,
    )
    if report.broken:
        console.print(f"stores and logs: {report.stores}", markup=False)
    show_verdict(console, report.broken, "nothing honest was lost, doubled, out of order or blocked")


def show_attacks() -> None:
    """Print every attack and what it does."""
    found = plain_table("attack")
    found.add_column("what it does", no_wrap=True)
    for name, tactic in TACTICS.items():
        found.add_row(name, (tactic.__doc__ or "").partition("  [MS-")[0])
    wide_console(markup=False).print(found)
