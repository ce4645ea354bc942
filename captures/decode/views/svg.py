"""A ladder diagram as one self-contained SVG file, for browsers and documents, in light or dark colors."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.captures.decode.views.arrows import Label
from mqproto.captures.decode.views.ladder import Ladder
from mqproto.captures.drawing.ladder import drawn, stylesheet
from mqproto.captures.drawing.shapes import as_svg, document


def svg(ladder: Ladder, label: Label, title: str) -> Iterator[str]:
    """Yield the lines of the file.

    Args:
        label: a function that returns the name of a queue manager, now that everything is known.
        title: the text above the diagram, such as the name of the capture.
    """
    columns, rows, gone = ladder.picture(label)
    left_out = f"{ladder.left_out_count:,} packets more are not drawn" if ladder.left_out_count else ""
    shape, width, height = drawn(columns, rows, title, left_out, gone)
    style = f"<style>{stylesheet()}</style>"
    yield from document(title, width, height, [style, *as_svg(shape)])
