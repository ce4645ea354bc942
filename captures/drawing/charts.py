"""Charts of three kinds, in the colors of their page: bars over time, lines over time, and histograms.

Places on a `Canvas` go from 0 to 1, to the right and upwards. Bars over time show how many items there were in each
step. Lines over time show the median and the 95th percentile of the items' durations, on a logarithmic scale. A
histogram shows how many items took how long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqproto.captures.drawing.shapes import SvgElement, as_svg

WIDTH: Final = 440
"""The width of a chart in pixels.

Two charts fit side by side on a wide page, and one fits on a small screen without scrolling.
"""
CHARACTER: Final = 7
"""The largest average width of a letter in pixels; letters are 12 pixels high."""
LINE: Final = 15


class Canvas(NamedTuple):
    """An area to draw in, in pixels from the left and from the top."""

    left: float
    top: float
    width: float
    height: float

    def x(self, at: float) -> float:
        """Return the place at a given fraction of the width, counted from the left."""
        return self.left + at * self.width

    def y(self, at: float) -> float:
        """Return the place at a given fraction of the height, counted from the bottom."""
        return self.top + (1 - at) * self.height


class Tick(NamedTuple):
    """A mark on an axis, at a given fraction of the axis's length."""

    at: float
    text: str


def boxes(canvas: Canvas, style: str, found: Iterable[tuple[float, float, float]]) -> SvgElement:
    """Return the shapes of bars; each bar has a left end, a right end and a height."""
    foot = f"{canvas.y(0):.4g}"
    path = "".join(
        f"M{canvas.x(left):.4g} {foot}V{canvas.y(high):.4g}H{canvas.x(right):.4g}V{foot}Z"
        for left, right, high in found
        if high > 0
    )
    return SvgElement("path", {"class": style, "d": path})


def line(canvas: Canvas, style: str, points: Iterable[tuple[float, float | None]]) -> SvgElement:
    """Return a line through all points. Missing points interrupt it; a single point shows as a dot."""
    path = ""
    is_down = False
    for x, y in points:
        if y is not None:
            path += f"{'L' if is_down else 'M'}{canvas.x(x):.4g} {canvas.y(y):.4g}{'' if is_down else 'h.01'}"
        is_down = y is not None
    return SvgElement("path", {"class": style, "d": path})


def axes(
    canvas: Canvas, across: Iterable[Tick], up: Iterable[Tick], below: str = "", above: str = ""
) -> Iterator[SvgElement]:
    """Yield lines at all marks, with their texts, and the titles of the axes."""
    for at, said in up:
        yield SvgElement(
            "path", {"class": "grid", "d": f"M{canvas.left:g} {canvas.y(at):.4g}h{canvas.width:g}"}
        )
        yield label(canvas.left - 6, canvas.y(at) + 4, said, "end")
    foot = canvas.top + canvas.height
    for at, said in across:
        yield SvgElement("path", {"class": "grid", "d": f"M{canvas.x(at):.4g} {canvas.top:g}V{foot + 3:g}"})
        half = CHARACTER * len(said) / 2
        yield label(min(max(canvas.x(at), half), WIDTH - half), foot + LINE + 2, said, "middle")
    yield SvgElement("path", {"class": "axis", "d": f"M{canvas.left:g} {foot:g}h{canvas.width:g}"})
    if below:
        yield label(canvas.x(1), foot + 2 * LINE + 2, below, "end")
    if above:
        yield label(0, 11, above)


def label(x: float, y: float, said: str, anchor: str = "start") -> SvgElement:
    """Return an element that shows a text at this place."""
    return SvgElement("text", {"x": round(x, 1), "y": round(y, 1), "text-anchor": anchor}, said)


def marks(most: int, limit: int = 3) -> list[int]:
    """Return round numbers from 0 up to `most`, in at most `limit` steps."""
    step = next(
        each * 10**power for power in range(40) for each in (1, 2, 5) if each * 10**power * limit >= most
    )
    return [*range(0, max(most, 1) + 1, step)]


def picture(style: str, width: float, height: float, said: str, inner: Iterable[SvgElement]) -> str:
    """Return a picture for a page, with a text for readers who cannot see it."""
    named = {"class": style, "viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": said}
    return "".join(as_svg(SvgElement("svg", named, [*inner])))
