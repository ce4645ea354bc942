"""Reports for people: the totals of many worlds, and the events of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from mqproto.simulator.world.faults.table import FAULTS
from mqproto.simulator.world.run import WorldResult
from mqproto.simulator.world.scenarios.scenario import Burst, Consumer, Fault, Scenario
from mqproto.simulator.world.scenarios.traffic import KINDS
from mqproto.simulator.world.world import Breach

EVENTS: Final[dict[str, str]] = {
    "store put back": "stores put back as they were earlier",
    "store moved away": "stores moved away",
    "numbered anew": "numbered anew, as their destination knew of a later moment",
    "core forwarded": "passed on by intermediates",
    "came back to its source": "passed on by their own source, to which they came back",
    "core resent": "sent again, no OrderAck having come",
    "core duplicates": "duplicates dropped",
    "bridged": "sent over a gap in their sequence",
    "bridged again": "sent over a gap once more",
    "came again when it was forgotten": "delivered again when their identifiers were forgotten",
    "core held_ever": "held behind a gap",
    "core overflowed": "too many to hold, dropped",
    "lost on purpose": "lost by an intermediate on purpose",
    "sparse acknowledgment": "acknowledgments that leave some messages out",
    "not saved, and not said to be": "not saved on purpose, and sent again",
    "order ack": "OrderAcks sent",
    "final ack": "FinalAcks sent",
    "administration acknowledgment": "administration acknowledgments received",
    "core refused": "refused",
    "refused by closing": "sessions that a node closed on a message which it refuses",
    "note message-set-aside": "set aside, as their neighbour refuses them",
    "acknowledgment set aside": "administration acknowledgments among these",
    "note message-ended-on-its-way": "given up, as a copy ended on its way",
    "turned away from a full queue": "refused as their queue was full",
    "left an outgoing queue that was purged": "left an outgoing queue that was ever purged",
    "core expired": "expired",
    "dead letter": "dead letters",
    "dead letter in a chosen queue": "dead letters in queues that their sources had chosen",
    "dead letter in doubt": "dead letters of messages that may have arrived",
    "dead letter recalled": "dead letters that left when the destination's word came late",
    "journaled": "journaled",
    "ended in its queue": "ended in their queue, unreceived",
    "refused at once": "refused to the application that sends",
    "rolled back": "rolled back by a consumer",
    "given back behind others": "given back behind what another had given back",
    "poison rejected": "rejected by a consumer after many tries",
    "rejected": "rejected by a consumer",
    "consumer left": "given up by a consumer that left",
    "asked twice": "requests of consumers that had asked already, refused",
    "an operator was answered": "questions of operators answered, and the answers compared",
    "crash within a commit, kept": "commits that a crash cut, and that lasted",
    "crash within a commit, gone": "commits that a crash cut, and that did not",
    "crash at its start": "starts that a crash cut",
    "full disk": "commits and starts that a full disk refused",
    "batch that waited for room": "commits that waited for room on a full disk",
    "disk fails": "commits and starts that a failing disk refused",
}
"""The entries of a tally that the table shows, each with its name in the table."""


@dataclass(slots=True)
class RunTotals:
    """The totals of many runs."""

    run_count: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    maxima: dict[str, int] = field(default_factory=dict)
    broken: list[tuple[int, Breach]] = field(default_factory=list)
    """The seed and the breach of each run that broke an invariant."""

    def add(self, result: WorldResult) -> None:
        """Add the result of one run."""
        self.run_count += 1
        self.tally.update(result.tally)
        self._raise_maxima(result.maxima)
        if result.breach is not None:
            self.broken.append((result.scenario.seed, result.breach))

    def merge(self, other: RunTotals) -> None:
        """Add all runs of another summary."""
        self.run_count += other.run_count
        self.tally.update(other.tally)
        self._raise_maxima(other.maxima)
        self.broken = sorted([*self.broken, *other.broken], key=lambda pair: pair[0])

    def _raise_maxima(self, maxima: dict[str, int]) -> None:
        for name, value in maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0), value)

    @property
    def accepted_count(self) -> int:
        """The number of messages that were accepted in all runs."""
        return sum(self.tally[f"accepted {kind}"] for kind in KINDS)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the rows of the table: the kind of entry, its name, and how many there were or how long it took."""
        for name, kind in KINDS.items():
            if not kind.unmet:
                yield "messages", name, f"{self.tally[f'accepted {name}']:,}"
        to_strangers = sum(self.tally[f"accepted {name}"] for name, kind in KINDS.items() if kind.unmet)
        yield "messages", "to a stranger, of any kind", f"{to_strangers:,}"
        for name in FAULTS:
            yield "faults", name, f"{self.tally[f'fault {name}']:,}"
        for name, words in EVENTS.items():
            yield "events", words, f"{self.tally[name]:,}"
        for name in sorted(self.maxima):
            yield "longest", name, f"{self.maxima[name] / 1_000:,.1f} s"

    def as_json(self) -> dict[str, Any]:
        """Return the summary in a form that can be written as JSON, for programs."""
        return {
            "runs": self.run_count,
            "tally": dict(sorted(self.tally.items())),
            "longest_ms": dict(sorted(self.maxima.items())),
            "broken": [
                {"seed": seed, "invariant": breach.invariant, "at_ms": breach.at_ms, "detail": breach.detail}
                for seed, breach in self.broken
            ],
        }


def describe(scenario: Scenario) -> Iterator[str]:
    """Yield lines that describe a scenario, in the order in which things happen."""
    yield (
        f"{len(scenario.nodes)} nodes, {scenario.message_count} messages, {len(scenario.faults)} faults, "
        f"a storm of {scenario.storm_ms:,} ms"
    )
    for link in scenario.links:
        yield f"link {link.name}: {link.latency_ms} to {link.latency_ms + link.jitter_ms} ms"
    for consumer in scenario.consumers:
        yield f"consumer {_fields(consumer)}"
    if scenario.settings:
        yield "settings " + ", ".join(f"{name} = {value}" for name, value in scenario.settings.items())
    if scenario.askers:
        yield f"asked first by a Ping: who is called by {', '.join(scenario.askers)}"
    if scenario.doubters:
        yield f"let go of what was sent when its time is over: {', '.join(scenario.doubters)}"
    parts = [(burst.at_ms, _fields(burst)) for burst in scenario.bursts]
    parts += [(fault.at_ms, _fields(fault)) for fault in scenario.faults]
    for at_ms, words in sorted(parts):
        yield f"{at_ms:>9,} ms  {words}"


def _fields(part: Burst | Fault | Consumer) -> str:
    """Return the non-empty fields of a part as text."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value and name != "at_ms")
