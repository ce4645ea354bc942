"""The outcome of each way, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqproto.edge.custody import End, Evidence, end_of, reason_of
from mqproto.simulator.base.screen import plain_table, wide_console
from mqproto.simulator.edges.operators.reading import Audit
from mqproto.simulator.rig.observer import NodeUsage, excess
from mqproto.simulator.rig.validation.ends import HEADING, NAME, TITLE
from mqproto.simulator.rig.validation.ends.lists import Lists
from mqproto.simulator.rig.validation.ends.ways import WAYS, EndWay
from mqproto.simulator.rig.verdict import RunOracle, judged
from mqproto.simulator.topology.places import Place


@dataclass(frozen=True)
class EndsReport:
    """The results of a run.

    audit: the audit that was taken while everything ran.
    trouble: the failure that stopped the run; empty if the run reached its end.
    usage: the maximum resources that each program used in any one of its lives.
    """

    audit: Audit
    lists: Lists
    place: Place
    trouble: str = ""
    usage: Mapping[str, NodeUsage] = field(default_factory=dict)

    def of(self, way: EndWay) -> Evidence | None:
        """Return the audit's evidence about the message that was sent for a way; None if none was sent."""
        messages = [message for message, sent in self.lists.answered.items() if sent.way == way.name]
        return self.audit.answered.get(messages[-1]) if messages else None

    @property
    def broken(self) -> list[str]:
        """The broken promises, one line each."""
        lost = [f"{way.name}: no message went this way" for way in WAYS if self.of(way) is None]
        found = {
            RunOracle.LOST: [self.trouble] * bool(self.trouble) + lost,
            RunOracle.AUDIT: list(self._otherwise()),
        }
        return judged(NAME, found, self.lists.found(), excess(self.usage))

    def _otherwise(self) -> Iterator[str]:
        """Yield statements of the audit that were not expected, or that contradict the records of the messages'
        holders."""
        for way in WAYS:
            known = self.of(way)
            if known is not None and (end_of(known), reason_of(known)) != (way.end, way.reason):
                yield f"{way.name}: {_said(end_of(known), reason_of(known))}, expected {_said(way.end, way.reason)}"
        yield from self.lists.differences(self.audit.answered)
        answered, ends = len(self.lists.answered), self.audit.counted()
        if (counted := sum(map(len, ends.values()))) != answered:
            yield f"{answered} were answered 200, and the ends of {counted} are known"

    @property
    def logs(self) -> str:
        """The folder of stores and logs if a promise is broken; otherwise an empty text."""
        return str(self.place.directory) if self.broken else ""

    def as_json(self) -> dict[str, Any]:
        """Return the report in a form for programs."""
        return {
            "scenario": NAME,
            "title": TITLE,
            "heading": HEADING,
            "answered": len(self.lists.answered),
            "ends": {str(end): len(messages) for end, messages in self.audit.counted().items()},
            "ways": [
                {
                    "way": way.name,
                    "owner": way.owner,
                    "end": str(end_of(known)) if (known := self.of(way)) is not None else "",
                    "reason": reason_of(known) if known is not None else "",
                    "expected": [str(way.end), way.reason],
                }
                for way in WAYS
            ],
            "broken": self.broken,
            "logs": self.logs,
        }


def show(report: EndsReport) -> None:
    """Print a row for each way, and the broken promises."""
    table = plain_table("", "the audit says", "reason", "who has it")
    for column in table.columns:
        column.justify = "left"
    for way in WAYS:
        known = report.of(way)
        end, reason = (end_of(known), reason_of(known)) if known is not None else ("nothing", "")
        table.add_row(way.name + "!" * ((end, reason) != (way.end, way.reason)), end, reason, way.owner)
    wide_console().print(table, markup=False)
    for line in report.broken:
        print(line)
    ends = report.audit.counted()
    print(
        f"{len(report.lists.answered)} messages on {len(WAYS)} ways: answered {len(report.audit.answered)}, ends "
        f"{sum(map(len, ends.values()))}, unaccounted {len(ends[End.UNACCOUNTED])}"
    )
    if report.logs:
        print(f"{NAME}: logs are in {report.logs}")


def _said(end: End, reason: str) -> str:
    return f"{end}: {reason}" if reason else str(end)
