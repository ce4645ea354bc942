"""A ladder: those who talk as columns, and what passes between them as rungs, from top to bottom in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from captures.drawing.shapes import Shape

TIME_WIDTH: Final = 100
COLUMN_WIDTH: Final = 340
MARGIN: Final = 120
HEAD_HEIGHT: Final = 64
ROW_HEIGHT: Final = 26
CHARACTER_WIDTH: Final = 6.6  # of the monospaced font below, at 11 pixels
HEAD: Final = 8
"""How long the head of an arrow is."""
FONT: Final = "ui-monospace, Consolas, DejaVu Sans Mono, monospace"
COLOURS: Final = {
    "handshake": "#6b7280",
    "session": "#0f766e",
    "message": "#1d4ed8",
    "acknowledgment": "#7c3aed",
    "wrong": "#b91c1c",
}


class Rung(NamedTuple):
    """What passes from one column to another, or happens at one.

    start, end: the columns' numbers.
    style: one of COLOURS.
    hints: what a mouse is told beside the text.
    again: whether it did so before.
    """

    time: str
    start: int
    end: int
    style: str
    text: str
    hints: Sequence[str] = ()
    again: bool = False


class Pause(NamedTuple):
    """Nothing for a while."""

    text: str


class Drawing(NamedTuple):
    """A picture and its size."""

    shape: Shape
    width: int
    height: int


def drawn(
    columns: Sequence[str], rungs: Sequence[Rung | Pause], title: str = "", left_out: str = ""
) -> Drawing:
    """The whole picture.

    Args:
        title: what stands above it.
        left_out: what is not drawn, in words.
    """
    width = TIME_WIDTH + 2 * MARGIN + COLUMN_WIDTH * max(0, len(columns) - 1)
    height = HEAD_HEIGHT + ROW_HEIGHT * (len(rungs) + 2)
    places = [TIME_WIDTH + MARGIN + COLUMN_WIDTH * column for column in range(len(columns))]
    inner = [Shape("rect", {"class": "sheet", "width": width, "height": height, "fill": "#ffffff"})]
    if title:
        inner.append(Shape("text", {"x": 12, "y": 18, "font-size": 13, "font-weight": "bold"}, title))
    for x, name in zip(places, columns, strict=True):
        inner += _column(name, x, height - ROW_HEIGHT)
    for row, rung in enumerate(rungs):
        y = HEAD_HEIGHT + ROW_HEIGHT * (row + 1)
        inner += _pause(rung, y, width) if isinstance(rung, Pause) else _rung(rung, places, y)
    if left_out:
        inner.append(
            Shape("text", {"class": "warning", "x": 12, "y": height - 10, "fill": "#92400e"}, left_out)
        )
    return Drawing(
        Shape("g", {"class": "ladder", "font-family": FONT, "font-size": 11}, inner), width, height
    )


def _column(name: str, x: int, bottom: int) -> Iterator[Shape]:
    yield Shape(
        "line",
        {"class": "column", "x1": x, "y1": HEAD_HEIGHT - 8, "x2": x, "y2": bottom, "stroke": "#cbd5e1",
         "stroke-width": 1.5},
    )  # fmt: skip
    half = max(40, len(name) * 4 + 10)
    yield Shape(
        "rect",
        {"class": "head", "x": x - half, "y": 28, "width": 2 * half, "height": 24, "rx": 4, "fill": "#f1f5f9",
         "stroke": "#94a3b8"},
    )  # fmt: skip
    yield Shape("text", {"x": x, "y": 44, "text-anchor": "middle", "font-weight": "bold"}, name)


def _pause(pause: Pause, y: int, width: int) -> Iterator[Shape]:
    yield Shape(
        "text",
        {"class": "warning", "x": TIME_WIDTH - 14, "y": y, "text-anchor": "end", "fill": "#92400e"},
        pause.text,
    )
    yield Shape(
        "line",
        {"class": "pause", "x1": TIME_WIDTH, "y1": y - 4, "x2": width - 20, "y2": y - 4, "stroke": "#f59e0b",
         "stroke-dasharray": "2 6"},
    )  # fmt: skip


def _rung(rung: Rung, places: Sequence[int], y: int) -> Iterator[Shape]:
    yield Shape(
        "text",
        {"class": "time", "x": TIME_WIDTH - 14, "y": y, "text-anchor": "end", "fill": "#64748b"},
        rung.time,
    )
    start, end = places[rung.start], places[rung.end]
    colour = COLOURS[rung.style]
    inner = [Shape("title", {}, "\n".join((rung.text, *rung.hints)))]
    if start == end:
        inner.append(Shape("circle", {"cx": start, "cy": y, "r": 4, "fill": "none", "stroke": colour}))
        inner.append(Shape("text", {"x": start + 10, "y": y + 4, "fill": colour}, rung.text))
    else:
        step = 1 if end > start else -1
        line: dict[str, str | float] = {
            "class": "arrow", "x1": start, "y1": y, "x2": end - step * HEAD, "y2": y, "stroke": colour,
            "stroke-width": 1.4,
        }  # fmt: skip
        if rung.again:
            line["stroke-dasharray"] = "5 3"
        inner.append(Shape("line", line))
        back = end - step * HEAD
        inner.append(
            Shape(
                "path", {"class": "point", "d": f"M{back} {y - 4}L{end} {y}L{back} {y + 4}z", "fill": colour}
            )
        )
        shown = int((abs(end - start) - 24) / CHARACTER_WIDTH)
        text = rung.text if len(rung.text) <= shown else f"{rung.text[: shown - 1]}…"
        inner.append(
            Shape(
                "text",
                {"class": "over", "x": (start + end) / 2, "y": y - 5, "text-anchor": "middle", "fill": colour,
                 # A halo, where it crosses another column.
                 "stroke": "#ffffff", "stroke-width": 3, "paint-order": "stroke"},
                text,
            )
        )  # fmt: skip
    yield Shape("g", {"class": f"rung {rung.style}"}, inner)
