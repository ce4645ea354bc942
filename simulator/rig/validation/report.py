"""The results of a run with edges, which show whether each message was processed once and in order, or is in the error
queue with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.table import Table

from mqproto.simulator.base.screen import show_verdict, wide_console
from mqproto.simulator.rig.load.validator import CODE, Cue
from mqproto.simulator.rig.observer import NodeUsage, excess
from mqproto.simulator.rig.validation.ledger import EdgeLedger
from mqproto.simulator.rig.verdict import Found, RunOracle, judged

GATEWAY: Final = "sender"
"""The name in the logs of the node with the gateway."""
TRIGGER: Final = "destination trigger"
"""The trigger's name in the logs."""
STORY_LINES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesReport(EdgeLedger):
    """The results of a run.

    calls: the number of times that the consumer took each action.
    dropped_by_consumer: the number of calls for messages that the consumer had already processed.
    questions: the number of times that the consumer was asked whether it had processed a message.
    said: the number of lines of each event in the log of each program.
    story: the story of the message with the most events, line by line.
    kills: the number of times that each program was killed and started again.
    usage: the maximum resources that each program used in any one of its lives.
    """

    seed: int
    duration_s: float
    folder: str
    kills: dict[str, int]
    calls: Counter[Cue]
    dropped_by_consumer: int
    questions: int
    said: Counter[tuple[str, str]]
    story: list[str]
    usage: dict[str, NodeUsage] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """The broken promises; empty if all were kept."""
        return judged("edges", self.found(), self._refused_otherwise(), excess(self.usage))

    def _refused_otherwise(self) -> Found:
        """Return messages that the consumer refused although it should have accepted them."""
        return {
            RunOracle.LOST: [
                f"{failed.key} is in the error queue for another reason: {failed.failure}, {failed.reason}"
                for failed in self.failed
                if self.letters is None and not failed.reason.startswith(CODE)
            ]
        }

    @property
    def stages(self) -> dict[str, tuple[str, str, str]]:
        """For each stage, the outcomes of messages, the repetitions, and the dropped duplicates."""
        handover, said = self.handover, self.said
        calls = self.calls.total()
        nodes = {
            event: sum(said[name, event] for name in ("sender", "intermediate", "destination"))
            for event in ("resent", "duplicate-dropped")
        }
        return {
            "producers": (
                f"{len(self.messages):,} messages",
                f"{handover.requests - len(self.messages):,} of {handover.requests:,} requests",
                "",
            ),
            "gateway": (
                f"{len(handover.accepted):,} accepted, {len(handover.refused):,} refused",
                "",
                f"{said[GATEWAY, 'duplicate-dropped']:,}",
            ),
            "queue managers": ("", f"{nodes['resent']:,} resent", f"{nodes['duplicate-dropped']:,}"),
            "trigger": (
                f"{said[TRIGGER, 'committed']:,} committed, {said[TRIGGER, 'dead-lettered']:,} given up",
                f"{said[TRIGGER, 'rolled-back']:,} of {said[TRIGGER, 'attempted']:,} attempts",
                f"{said[TRIGGER, 'duplicate-dropped']:,}",
            ),
            "consumer": (
                f"{len(self.processed):,} processed",
                f"{calls - len(self.processed) - len(self.failed):,} of {calls:,} calls",
                f"{self.dropped_by_consumer:,}",
            ),
            "error queue": (f"{len(self.failed):,} messages", "", ""),
            "audit": (_listed(Counter(map(str, self.audited.values()))), "", ""),
        }

    @property
    def troubles(self) -> dict[str, str]:
        """The failures of the run, with the number of times that each happened."""
        reasons = Counter(failed.reason for failed in self.failed)
        failures = {
            cue.value: count
            for cue, count in self.calls.items()
            if cue not in (Cue.ACCEPT, Cue.BUSINESS_ERROR)
        }
        return {
            "killed, and started again": _listed(self.kills),
            "between producers and gateway": _listed(self.handover.retries),
            "between trigger and consumer": _listed(failures),
            "refused by the gateway": _listed(Counter(self.handover.refused.values())),
            "refused by the consumer": _listed(reasons),
            "in doubt, so it was asked": f"{self.questions:,} times whether it had processed a message",
        }

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for programs."""
        return {
            "seed": self.seed,
            "duration_s": round(self.duration_s, 1),
            "messages": len(self.messages),
            "requests": self.handover.requests,
            "retries": dict(self.handover.retries),
            "accepted": len(self.handover.accepted),
            "refused": len(self.handover.refused),
            "processed": len(self.processed),
            "error_queue": [
                each._asdict() | {"body": each.body.decode("utf-8", "replace")} for each in self.failed
            ],
            "consumer": {cue.value: count for cue, count in self.calls.items()}
            | {"duplicates dropped": self.dropped_by_consumer, "questions": self.questions},
            "audit": Counter(map(str, self.audited.values())),
            "said": {f"{who} {event}": count for (who, event), count in sorted(self.said.items())},
            "kills": self.kills,
            "broken": self.broken,
        }


def show(report: EdgesReport) -> None:
    """Print the report of a run, for people."""
    console = wide_console()
    console.print(
        f"{len(report.messages):,} messages over HTTP to a gateway, through three queue managers, by a trigger to a "
        f"consumer over HTTP, in {report.duration_s:.0f} s (seed {report.seed})",
        markup=False,
    )
    console.print()
    stages = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("stage", "messages", "done again", "duplicates dropped"):
        stages.add_column(heading, justify="right" if heading.startswith("dup") else "left")
    for name, stage in report.stages.items():
        stages.add_row(name, *stage)
    console.print(stages)
    console.print()
    for name, value in report.troubles.items():
        console.print(f"{name:<30} {value}", markup=False)
    console.print()
    console.print("the message that most happened to:", markup=False)
    for line in report.story[:STORY_LINES]:
        console.print(f"  {line}", markup=False)
    if len(report.story) > STORY_LINES:
        console.print(f"  ... and {len(report.story) - STORY_LINES} lines more", markup=False)
    console.print()
    if report.broken:
        console.print(f"stores and logs:           {report.folder}", markup=False)
    show_verdict(
        console,
        report.broken,
        "every accepted message was processed once and in order, or is in the error queue"
        + ("" if report.letters is None else ", or is a dead letter"),
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"
