"""Results as one table: on a terminal, as Markdown, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mqproto.base.errors import UsageError
from simulator.base.screen import plain_table, wide_console
from tests.bench.figures import UNKNOWN, Figure, Result, shown

HEADINGS: Final = ("figure", "unit", "min", "median", "max", "runs", "wanted", "")
REACHED: Final[Mapping[bool | None, str]] = {True: "reached", False: "not reached", None: ""}


def row_of(figure: Figure) -> tuple[str, ...]:
    """A figure under the headings."""
    values = (
        (shown(figure.minimum), shown(figure.median), shown(figure.maximum))
        if figure.values
        else (UNKNOWN,) * 3
    )
    wanted = str(figure.wanted or "")
    return figure.name, figure.unit, *values, f"{len(figure.values)}", wanted, REACHED[figure.is_reached]


def as_json(machine: Mapping[str, str], results: Iterable[Result]) -> dict[str, Any]:
    """All of it; of each figure the values of all runs."""
    return {"machine": dict(machine), "benchmarks": {result.name: result.as_json() for result in results}}


def as_markdown(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    """All of it on one page; a benchmark's name stands where its figures begin."""
    lines = ["# How fast it is here", ""]
    lines += (f"- {name}: {value}" for name, value in machine.items())
    lines += ["", "A figure is judged by its median.", ""]
    lines += [_line("benchmark", *HEADINGS), _line("---", "---", "---", *["---:"] * 4, "---", "---")]
    for result in results:
        for place, figure in enumerate(result.figures):
            lines.append(_line(f"**{result.name}**" if place == 0 else "", *row_of(figure)))
    lines.append("")
    for result in results:
        lines.append(f"- **{result.name}**: {_cell(result.title)}")
        lines += (f"  - {_cell(note)}" for note in result.notes)
        lines += (f"  - **broken: {_cell(broken)}**" for broken in result.broken)
    for result in results:
        if result.beside is not None:
            numbers = ["---:"] * (len(result.beside.headings) - 1)
            lines += ["", f"Medians of {result.name}, side by side:", "", _line(*result.beside.headings)]
            lines += [_line("---", *numbers), *(_line(*row) for row in result.beside.rows)]
        lines += (f"\n![{result.name}]({picture})" for picture in result.pictures)
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def show(machine: Mapping[str, str], results: Iterable[Result]) -> None:
    """All of it for people."""
    console = wide_console()
    for result in results:
        console.print(f"[bold]{result.name}[/]: ", end="")
        console.print(result.title, markup=False)
        if result.figures:
            table = plain_table(*HEADINGS)
            for figure in result.figures:
                style = "red" if figure.is_reached is False else None
                table.add_row(*row_of(figure), style=style)
            console.print(table)
        if result.beside is not None:
            table = plain_table(*result.beside.headings)
            for row in result.beside.rows:
                table.add_row(*row)
            console.print(table)
        for note in result.notes:
            console.print(note, markup=False)
        for broken in result.broken:
            console.print("[bold red]broken:[/] ", end="")
            console.print(broken, markup=False)
        console.print()
    for name, value in machine.items():
        console.print(f"{name}: {value}", markup=False)


def write(folder: Path, machine: Mapping[str, str], results: Sequence[Result]) -> None:
    """bench.md, bench.json, and the pictures.

    Raises:
        UsageError: they cannot be written there.
    """
    try:
        for name, text in _files(machine, results):
            (prepared(folder) / name).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to ({error.strerror}): name another folder") from None


def prepared(folder: Path) -> Path:
    """The same folder, made if it is not there.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror}): name another folder") from None
    return folder


def _files(machine: Mapping[str, str], results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    yield "bench.md", as_markdown(machine, results)
    yield "bench.json", json.dumps(as_json(machine, results), ensure_ascii=False, indent=2) + "\n"
    for result in results:
        yield from result.pictures.items()
