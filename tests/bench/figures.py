"""The result of every measurement: figures, each with the values of all rounds, and one table of them.

A figure is judged by its median. A comparison of two things is a figure of ratios, one for each round in which both
were measured. If a machine is busy for a while, both become slower, and the ratio stays the same.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.errors import MqprotoError

UNKNOWN: Final = "unknown"
"""The text that is shown if the system does not report a value."""
HEADINGS: Final = ("figure", "unit", "min", "median", "max", "rounds", "wanted", "")
NUMBERS: Final = range(2, 6)
"""The positions of the table's columns that contain numbers."""

Told = Callable[[str], None]
"""A function that is called with texts about the progress of a measurement."""


class BenchError(MqprotoError):
    """The measured program did not do what it should, so a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that may follow the name of a measurement. Each measurement uses those that apply to it.

    quick: whether to use small sizes, for a quick look.
    messages: the number of messages; None for the usual number.
    windows: the values of WindowSize for sessions.
    protected: whether to measure encrypted and signed messages as well.
    beside_nats: whether to measure NATS servers in the same rounds.
    megabytes: the sizes of captures; empty for the usual one.
    connections: the number of connections in a capture.
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
    """One measured quantity.

    values: one value for each round, in order; empty if this system does not report them.
    at_least, at_most: the desired limits for the median; None if there are none.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        """The median. If the number of rounds is even, it is the mean of the two values in the middle."""
        return statistics.median(self.values)

    @property
    def wanted(self) -> str:
        """The desired limits in words; empty if there are none."""
        if self.at_least is not None:
            return f"at least {shown(self.at_least)}"
        return "" if self.at_most is None else f"at most {shown(self.at_most)}"

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is within the desired limits; None if there are no limits or no values."""
        if not self.values or not self.wanted:
            return None
        if self.at_least is not None:
            return self.median >= self.at_least
        assert self.at_most is not None
        return self.median <= self.at_most

    @property
    def row(self) -> tuple[str, ...]:
        """Return the figure as a row of the table."""
        values = (min(self.values), self.median, max(self.values)) if self.values else (None,) * 3
        reached = {True: "reached", False: "not reached", None: ""}[self.is_reached]
        return self.name, self.unit, *map(shown, values), f"{len(self.values)}", self.wanted, reached


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one measurement.

    title: what was measured, in words, with the chosen sizes.
    notes: facts that are needed to interpret its figures.
    broken: texts about what is wrong, not merely slow, such as memory beyond a limit. If there are any, the exit status
        is 1.
    """

    title: str
    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


async def in_turns(
    what: str, rounds: int, jobs: Mapping[str, Callable[[], Any]], told: Told, *, warm: bool = False
) -> dict[str, list[Any]]:
    """Do each job once in each round. Return the results by the jobs' names.

    Args:
        warm: whether to begin with a round that does not count.
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
    """Return all values, or none if one of them is unknown.

    A median over only some of the rounds would be misleading.
    """
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else ()


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Return the ratio of two quantities for each round. Both were measured in the same rounds."""
    return tuple(one / other for one, other in zip(above, below, strict=True))


def shown(value: float | None) -> str:
    """Return a number with three digits, or with all digits before the decimal point if there are more."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}"


def as_markdown(machine: Mapping[str, str], results: Mapping[str, Result]) -> str:
    """Return everything as one page with columns, which can also be read as plain text.

    A measurement's name is in the row in which its figures begin.
    """
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
    """Yield the lines of a table in Markdown. The first row has the headings."""
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
    """Return everything in a form that can be written as JSON, for programs.

    Each figure has the values of all rounds.
    """
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
