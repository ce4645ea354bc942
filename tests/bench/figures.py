"""What every benchmark comes to: figures, each with the values of all its runs, and with what was wanted of it.

A figure is judged by its median. What compares two things is a figure of ratios, one for each round in which both were
measured, so that a machine that was busy for a while makes both of them slower and the ratio stays what it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.errors import MqprotoError

RUNS: Final = 5
"""How often everything is measured, if nobody says otherwise."""


UNKNOWN: Final = "unknown"
"""Stands where the system does not tell."""


class BenchError(MqprotoError):
    """What was measured did not do what it should, so a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a figure should be; `at_least` and `at_most` are reached when they are met exactly."""

    at_least: float | None = None
    at_most: float | None = None

    def is_reached(self, value: float) -> bool:
        """Whether this value will do."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{words} {shown(bound)}" for words, bound in bounds if bound is not None)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured.

    values: of all runs, in their order; empty where this system does not tell.
    wanted: None where nothing was.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    wanted: Wanted | None = None

    @property
    def minimum(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        """The mean of the two in the middle, if the runs are an even number."""
        return statistics.median(self.values)

    @property
    def maximum(self) -> float:
        return max(self.values)

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is what was wanted; None if nothing was, or nothing is known."""
        return self.wanted.is_reached(self.median) if self.wanted and self.values else None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        known = bool(self.values)
        return {
            "name": self.name,
            "unit": self.unit,
            "runs": list(self.values),
            "min": self.minimum if known else None,
            "median": self.median if known else None,
            "max": self.maximum if known else None,
            "wanted": str(self.wanted) if self.wanted else None,
            "reached": self.is_reached,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """What is easier to read side by side than figure by figure; the first heading, which is of words, may be empty."""

    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def as_json(self) -> list[list[str]]:
        """For programs: its lines, the headings first."""
        return [list(line) for line in (self.headings, *self.rows)]


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark.

    title: what was measured, in words, with the sizes that were chosen.
    beside: the medians of all who were measured, if they are several; all of them are in the figures too.
    notes: what its figures have to be read with.
    broken: what is wrong, in words, and not merely slow: memory beyond a limit. It makes the exit status 1.
    pictures: SVG, by the name of its file.
    """

    name: str
    title: str
    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)
    beside: Table | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs; pictures are files of their own."""
        return {
            "name": self.name,
            "title": self.title,
            "figures": [figure.as_json() for figure in self.figures],
            "notes": self.notes,
            "broken": self.broken,
            **({"beside": self.beside.as_json()} if self.beside is not None else {}),
        }


def known(values: Sequence[float | None]) -> tuple[float, ...]:
    """All of the values, or none if one of them is not known: a median of some runs would not be that of all."""
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else ()


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Of two things that were measured in the same rounds, the ratio in each."""
    return tuple(one / other for one, other in zip(above, below, strict=True))


def shown(value: float) -> str:
    """Three digits, or all before the point."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{digits}f}"
