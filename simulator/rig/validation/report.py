"""What a run with edges has shown: each message processed once and in order, or in the error queue with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rich.table import Table

from mqproto.edge.custody import End
from mqproto.simulator.base.screen import show_verdict, wide_console
from mqproto.simulator.rig.load.posting import Handover, Outgoing
from mqproto.simulator.rig.load.validator import CODE, Cue
from mqproto.simulator.rig.observer import Figures, excess
from mqproto.simulator.rig.verdict import Oracle, by_oracle, judged

UNKNOWN_QUEUE: Final = "unknown-queue"
GATEWAY: Final = "sender gateway"
TRIGGER: Final = "destination trigger"
"""As their logs call them."""
STORY_LINES: Final = 40
LOOKED: Final = (Oracle.LOST, Oracle.DOUBLED, Oracle.ALTERED, Oracle.GROUPS, Oracle.AUDIT)


class Failed(NamedTuple):
    """A message of the error queue: the producer's id of it, its body, and why it is there."""

    key: str
    body: bytes
    failure: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgesReport:
    """All that a run ends with.

    messages: all that the producers had to hand in, those of each in order.
    processed: bodies by key, in the order in which the consumer processed them.
    calls: what the consumer did at each, and how often.
    dropped_by_consumer: calls for what it had processed already.
    questions: how often it was asked whether it had.
    audited: by the identifier of each message that was answered 200 who has it, as `mqproto audit` says before the
        error queue is emptied.
    letters: of a rough run, the dead letters at the first node; else None: then there is no reason for any.
    said: how many lines of each event are in the log of each program.
    story: of the message that most happened to, line by line.
    kills: how often each program was killed, and started again.
    usage: the most that each program took in one of its lives.
    """

    seed: int
    duration_s: float
    folder: str
    kills: dict[str, int]
    messages: list[Outgoing]
    handover: Handover
    processed: dict[str, bytes]
    calls: Counter[Cue]
    dropped_by_consumer: int
    questions: int
    failed: list[Failed]
    audited: dict[str, End]
    letters: set[str] | None
    said: Counter[tuple[str, str]]
    story: list[str]
    usage: dict[str, Figures] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """The promises that were not kept; none if all were."""
        return judged("edges", by_oracle(LOOKED, self._found()), excess(self.usage))

    def _found(self) -> Iterator[tuple[Oracle, str]]:
        for wrong in self.handover.wrong:
            yield Oracle.DOUBLED, wrong
        in_error_queue = Counter(failed.key for failed in self.failed)
        for key in sorted(key for key, count in in_error_queue.items() if count > 1):
            yield Oracle.DOUBLED, f"{key} is in the error queue {in_error_queue[key]} times"
        for message in self.messages:
            if self.letters is None or message.key not in self.handover.accepted:
                yield from self._found_of(message, set(in_error_queue))
        for key in {*self.processed, *in_error_queue} - {message.key for message in self.messages}:
            yield Oracle.ALTERED, f"{key!r} was never handed in, and came out"
        for text in self._out_of_order():
            yield Oracle.GROUPS, text
        if self.letters is None:
            audited = self._audited_otherwise(set(in_error_queue))
        else:
            audited = self._unaccounted(set(in_error_queue), self.letters)
        for text in audited:
            yield Oracle.AUDIT, text
        for message_id in self.audited.keys() - set(self.handover.accepted.values()):
            yield Oracle.AUDIT, f"{message_id} was never answered 200, and the audit has it"
        for failed in self.failed if self.letters is None else []:
            if not failed.reason.startswith(CODE):
                text = f"is in the error queue for another reason: {failed.failure}, {failed.reason}"
                yield Oracle.LOST, f"{failed.key} {text}"

    def _found_of(self, message: Outgoing, in_error_queue: set[str]) -> Iterator[tuple[Oracle, str]]:
        key = message.key
        ends = (key in self.processed) + (key in in_error_queue)
        if key in self.handover.accepted:
            if not ends:
                yield Oracle.LOST, f"{key} was accepted, and is lost"
            elif ends > 1:
                yield Oracle.DOUBLED, f"{key} was processed, and is in the error queue"
        elif key in self.handover.refused:
            if self.handover.refused[key] != UNKNOWN_QUEUE or message.queue == "orders":
                yield Oracle.LOST, f"{key} was refused: {self.handover.refused[key]}"
            if ends:
                yield Oracle.ALTERED, f"{key} was refused, and came out"
        else:
            yield Oracle.LOST, f"{key} never had an answer that was final"
        if self.processed.get(key, message.body) != message.body:
            yield Oracle.ALTERED, f"{key} came out with another body"

    def _audited_otherwise(self, in_error_queue: set[str]) -> Iterator[str]:
        """What producers, consumer and error queue have seen is what the audit says."""
        for key, message in self.handover.accepted.items():
            end = self.audited.get(message, End.UNACCOUNTED)
            has_it = End.PROCESSED if key in self.processed else End.IN_ERROR_QUEUE
            if end is not has_it and key in self.processed.keys() | in_error_queue:
                yield f"{key} is {has_it}, and the audit says {end}"

    def _unaccounted(self, in_error_queue: set[str], letters: set[str]) -> Iterator[str]:
        """Each accepted message is where the audit says, and that is an end."""
        for key, message in self.handover.accepted.items():
            end = self.audited.get(message, End.UNACCOUNTED)
            is_there = {
                End.PROCESSED: key in self.processed,
                End.IN_ERROR_QUEUE: key in in_error_queue,
                End.DEAD_LETTER: message in letters,
                End.LETTER_IN_DOUBT: message in letters,
            }
            if not is_there.get(end, False):
                yield f"{key} is {end}, as the audit says"

    def _out_of_order(self) -> Iterator[str]:
        """The unit of order is the producer: what it handed in first is processed first."""
        places = {key: place for place, key in enumerate(self.processed)}
        last: dict[int, tuple[int, str]] = {}
        for message in self.messages:
            place = places.get(message.key)
            if place is None:
                continue
            before, key = last.get(message.group, (-1, ""))
            if place < before:
                yield f"{message.key} was processed before {key}"
            last[message.group] = max((place, message.key), (before, key))

    @property
    def stages(self) -> dict[str, tuple[str, str, str]]:
        """For each stage what came of the messages, what was done again, and how many duplicates were dropped."""
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
        """What went wrong, and how often."""
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
        """For programs."""
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
    """The end of a run, for people."""
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
