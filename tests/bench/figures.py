"""What every measurement comes to: figures, each with the values of all its rounds, and one table of them.

A figure is judged by its median. What compares two things is a figure of ratios, one for each round in which both were
measured, so that a machine that was busy for a while makes both of them slower and the ratio stays what it is.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.errors import MqprotoError

UNKNOWN: Final = "unknown"
"""Stands where the system does not tell."""
HEADINGS: Final = ("figure", "unit", "min", "median", "max", "rounds", "wanted", "")
NUMBERS: Final = range(2, 6)
"""Those of the headings under which there are numbers."""

Told = Callable[[str], None]
"""Is told how far a measurement is."""


class BenchError(MqprotoError):
    """What was measured did not do what it should, so a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """What may be typed behind a measurement; each takes what it has a use for.

    quick: small sizes, for a look.
    messages: how many of them; None for as many as is usual.
    windows: WindowSize of sessions.
    protected: measure encrypted and signed messages as well.
    beside_nats: measure servers of NATS in the same rounds.
    megabytes: sizes of captures; empty for the usual one.
    connections: how many of them share a capture.
    """

    rounds: int = 5
    quick: bool = False
    messages: int | None = None
    windows: tuple[int, ...] = (64, 1_024)
    protected: bool = False
    beside_nats: bool = False
    megabytes: tuple[int, ...] = ()
    connections: int = 64


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured.

    values: of all rounds, in their order; empty where this system does not tell.
    at_least, at_most: what was wanted of the median; None where nothing was.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        """The mean of the two in the middle, if the rounds are an even number."""
        return statistics.median(self.values)

    @property
    def wanted(self) -> str:
        """In words; empty if nothing was."""
        if self.at_least is not None:
            return f"at least {shown(self.at_least)}"
        return "" if self.at_most is None else f"at most {shown(self.at_most)}"

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is what was wanted; None if nothing was, or nothing is known."""
        if not self.values or not self.wanted:
            return None
        if self.at_least is not None:
            return self.median >= self.at_least
        assert self.at_most is not None
        return self.median <= self.at_most

    @property
    def row(self) -> tuple[str, ...]:
        """It under the headings of the table."""
        values = (min(self.values), self.median, max(self.values)) if self.values else (None,) * 3
        reached = {True: "reached", False: "not reached", None: ""}[self.is_reached]
        return self.name, self.unit, *map(shown, values), f"{len(self.values)}", self.wanted, reached


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement.

    title: what was measured, in words, with the sizes that were chosen.
    notes: what its figures have to be read with.
    broken: what is wrong, in words, and not merely slow, such as memory beyond a limit. It makes the exit status 1.
    """

    title: str
    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


async def in_turns(
    what: str, rounds: int, jobs: Mapping[str, Callable[[], Any]], told: Told, *, warm: bool = False
) -> dict[str, list[Any]]:
    """Do each job once in each round; by its name, what it came to.

    Args:
        warm: whether there is a round before these that does not count.
    """
    found: dict[str, list[Any]] = {name: [] for name in jobs}
    for number in range(0 if warm else 1, rounds + 1):
        for name, job in jobs.items():
            told(f"{what}, {name}: {f'round {number} of {rounds}' if number else 'warming up'}")
            value = job()
            if inspect.isawaitable(value):
                value = await value
            found[name] += [value] if number else []
    return found


def known(values: Sequence[float | None]) -> tuple[float, ...]:
    """All of the values, or none if one of them is not known: a median of some rounds would not be that of all."""
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else ()


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Of two things that were measured in the same rounds, the ratio in each."""
    return tuple(one / other for one, other in zip(above, below, strict=True))


def shown(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}"


def as_markdown(machine: Mapping[str, str], results: Mapping[str, Result]) -> str:
    """All of it on one page, in columns, so that it can be read as it is; a name stands where its figures begin."""
    rows: list[tuple[str, ...]] = [("benchmark", *HEADINGS)]
    for name, result in results.items():
        for place, figure in enumerate(result.figures):
            rows.append(("" if place else f"**{name}**", *figure.row))
    lines = ["# How fast it is here", "", *_table(rows), ""]
    for name, result in results.items():
        lines.append(f"- **{name}**: {result.title}")
        lines += (f"  - {note}" for note in result.notes)
        lines += (f"  - **broken**: {broken}" for broken in result.broken)
    return "\n".join([*lines, *(f"- {name}: {value}" for name, value in machine.items()), ""])


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """As Markdown has it; the first row has the headings."""
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if place - 1 in NUMBERS else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"| {' | '.join(cells)} |"
        if not number:
            ends = [":" if place - 1 in NUMBERS else "-" for place in range(len(widths))]
            yield f"| {' | '.join(end.rjust(width, '-') for end, width in zip(ends, widths, strict=True))} |"


def as_json(machine: Mapping[str, str], results: Mapping[str, Result]) -> dict[str, Any]:
    """The same for programs; of each figure the values of all rounds."""
    return {
        "machine": dict(machine),
        "benchmarks": {
            name: {
                "title": result.title,
                "figures": [
                    {"name": each.name, "unit": each.unit, "rounds": each.values, "wanted": each.wanted}
                    for each in result.figures
                ],
                "notes": result.notes,
                "broken": result.broken,
            }
            for name, result in results.items()
        },
    }
