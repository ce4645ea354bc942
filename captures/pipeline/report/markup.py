"""Parts of a page: links to messages, tags, pictures, tables; what they are given is escaped, or said to be HTML."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

from captures.pipeline.report.drawing import Figure
from captures.pipeline.report.messages import FAILED
from captures.pipeline.report.words import escaped

GOOD: Final = ("confirmed", "reached", "acknowledged")
BAD: Final = FAILED


def link(message: str, label: str | None) -> str:
    """A message by its label, and by the number that its queue manager gave it, as labels may be alike."""
    number = message.rpartition("\\")[-1]
    return (
        f'<a href="#message={quote(message, safe="")}" title="{escaped(message)}">{escaped(label) or "no label"}</a> '
        f'<span class="faint">\\{escaped(number)}</span>'
    )


def tag(outcome: str) -> str:
    """How a message ended."""
    style = "good" if outcome in GOOD else "bad" if outcome in BAD else "open"
    return f'<span class="tag {style}">{escaped(outcome)}</span>'


def picture(figure: Figure | None) -> Iterator[str]:
    """A picture, which is an image of its own: nothing in it runs."""
    if figure is not None:
        data = base64.b64encode(figure.svg).decode()
        yield (
            f'<figure tabindex="0" role="group" aria-label="{figure.title}"><img id="figure-{figure.name}" '
            f'alt="{html.escape(figure.alt)}" src="data:image/svg+xml;base64,{data}"></figure>'
        )


def table(heads: Sequence[str], rows: Iterable[Iterable[str]], caption: str = "") -> Iterator[str]:
    """A table of cells that are HTML. By its head's first letter > a column is to the right, by ~ it is not broken."""
    marks = {">": ' class="right"', "~": ' class="nowrap"'}
    styles = [marks.get(head[0], ' class="text"') for head in heads]
    yield '<div class="wide"><table>'
    if caption:
        yield f"<caption>{caption}</caption>"
    columns = zip(styles, heads, strict=True)
    yield (
        "<tr>"
        + "".join(f'<th scope="col"{style}>{head.lstrip(">~")}</th>' for style, head in columns)
        + "</tr>"
    )
    for row in rows:
        yield (
            "<tr>"
            + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(styles, row, strict=True))
            + "</tr>"
        )
    yield "</table></div>"
