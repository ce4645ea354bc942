"""Shapes of a picture: as SVG for files, and as JSON for a page that makes its own elements from them.

Each shape has its colors as attributes, which a page may override by `class`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

SVG: str = "http://www.w3.org/2000/svg"


class SvgElement(NamedTuple):
    """One element of SVG.

    inner: other shapes, or the element's text, which may come from an untrusted source.
    """

    name: str
    attributes: Mapping[str, str | float]
    inner: str | Sequence[SvgElement] = ""


def as_svg(shape: SvgElement) -> Iterator[str]:
    """Yield a shape as lines of SVG; attributes and texts are escaped."""
    attributes = "".join(f' {name}="{text(_shown(value))}"' for name, value in shape.attributes.items())
    if isinstance(shape.inner, str):
        inner = text(shape.inner)
        yield f"<{shape.name}{attributes}>{inner}</{shape.name}>" if inner else f"<{shape.name}{attributes}/>"
        return
    yield f"<{shape.name}{attributes}>"
    for one in shape.inner:
        yield from as_svg(one)
    yield f"</{shape.name}>"


def document(title: str, width: int, height: int, inner: Iterable[str]) -> Iterator[str]:
    """Yield the lines of an SVG file.

    Args:
        title: the picture's title. It is the first child because browsers and screen readers look for it there.
        inner: the lines of the picture.
    """
    yield f'<svg xmlns="{SVG}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield from as_svg(SvgElement("title", {}, title))
    yield from inner
    yield "</svg>"


def as_json(shape: SvgElement) -> list[Any]:
    """Return a shape as `[name, attributes, inner]`."""
    inner: Any = shape.inner
    if not isinstance(inner, str):
        inner = [as_json(one) for one in inner]
    return [shape.name, {name: _shown(value) for name, value in shape.attributes.items()}, inner]


def text(inner: str) -> str:
    """Return text for XML; a character that XML cannot hold becomes a question mark."""
    return escape(
        "".join(
            each if each >= " " and not "\ud800" <= each <= "\udfff" and each not in "\ufffe\uffff" else "?"
            for each in inner.replace("\n", " · ")
        )
    )


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}" if abs(value) < 100_000 else f"{value:.0f}"
