"""Parts of a page: links to messages, tags, pictures, tables; what they are given is escaped, or said to be HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from mqproto.captures.pipeline.report.drawing.figures import Figure
from mqproto.captures.pipeline.report.facts.outcomes import style
from mqproto.captures.pipeline.report.facts.security import Mark
from mqproto.captures.pipeline.report.facts.words import escaped, harmless


def link(message: str, label: str | None) -> str:
    """A message by its label, and by the number that its queue manager gave it, as labels may be alike."""
    number = message.rpartition("\\")[-1]
    return (
        f'<a href="#message={quote(message, safe="")}" title="{escaped(message)}">{escaped(label) or "no label"}</a> '
        f'<span class="faint">\\{escaped(number)}</span>'
    )


def tag(outcome: str) -> str:
    """How a message ended."""
    return f'<span class="tag {style(outcome)}">{escaped(outcome)}</span>'


def marks(found: Iterable[Mark]) -> str:
    """A few words each, that can be seen at a glance."""
    return " ".join(f'<span class="tag {mark.style}">{escaped(mark.text)}</span>' for mark in found)


def pictures(figures: Iterable[Figure]) -> Iterator[str]:
    """Pictures with their titles, beside each other where there is room."""
    yield '<div class="charts">'
    yield from (
        f"<figure><figcaption>{escaped(each.title)}</figcaption>{each.svg}</figure>" for each in figures
    )
    yield "</div>"


class Line(NamedTuple):
    """A row of a table, with what it is found by, and sorted by.

    sought: texts by what they are: `queue`, `host`.
    ranks: numbers by what they are: `slow`, `count`.
    """

    cells: Iterable[str]
    sought: dict[str, Iterable[str]]
    ranks: dict[str, int]

    @property
    def attributes(self) -> str:
        """As HTML."""
        texts = {name: "\n".join(map(harmless, found)) for name, found in self.sought.items()}
        said = {**texts, **{name: str(number) for name, number in self.ranks.items()}}
        return "".join(f' data-{name}="{html.escape(value)}"' for name, value in said.items())


def table(
    heads: Sequence[str], rows: Iterable[Iterable[str] | Line], caption: str = "", *, named: str = ""
) -> Iterator[str]:
    """A table of cells that are HTML. By its head's first letter > a column is to the right, by ~ it is not broken.

    Args:
        named: by which the script of the page finds it, to filter and to sort its rows; it is as high as it likes
            up to a limit.
    """
    marks = {">": ' class="right"', "~": ' class="nowrap"'}
    styles = [marks.get(head[0], ' class="text"') for head in heads]
    if named:
        yield f'<div class="wide tall" tabindex="0" role="group" aria-label="{named}"><table id="{named}">'
    else:
        about = html.escape(", ".join(head.lstrip(">~") for head in heads))
        yield f'<div class="wide" tabindex="0" role="group" aria-label="{about}"><table>'
    if caption:
        yield f"<caption>{caption}</caption>"
    names = [head.lstrip(">~") for head in heads]
    columns = zip(styles, names, strict=True)
    yield (
        '<tr class="heads">'
        + "".join(f'<th scope="col"{style}>{name}</th>' for style, name in columns)
        + "</tr>"
    )
    # A small screen shows each cell with its head, as rows have no room there.
    marked = [f'{style} data-head="{name}"' for style, name in zip(styles, names, strict=True)]
    for row in rows:
        cells, attributes = (row.cells, row.attributes) if isinstance(row, Line) else (row, "")
        yield (
            f"<tr{attributes}>"
            + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(marked, cells, strict=True))
            + "</tr>"
        )
    yield "</table></div>"
