"""How facts are drawn: as SVG, the same bytes for the same facts.

Colours are of Okabe and Ito, and differ in brightness as well; sorts differ in pattern or place too, so that nobody has
to tell colours apart. Text stays text, and `Figure.alt` has what the picture says for those who do not see it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.transforms import Bbox

from mqproto.captures.pipeline.report.facts.words import harmless

INK: Final = "#1a1a1a"
FAINT: Final = "#767676"
BLUE, SKY, ORANGE, RED = "#00507a", "#56b4e9", "#e69f00", "#a83200"
WIDTH_IN: Final = 9.2
LABEL_LIMIT: Final = 28
CLEARANCE: Final = 3
"""Dots between texts."""
WIDER: Final = 1.06
STYLE: Final[Any] = {
    "svg.hashsalt": "mqproto",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    # A label with two $ in it is no formula.
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture.

    alt: what it shows, for those who do not see it.
    """

    name: str
    title: str
    alt: str
    svg: bytes


def drawn(draw: Callable[[Any], object], height_in: float, *, is_laid_out: bool = True) -> bytes:
    """What somebody draws on a canvas, as SVG.

    Args:
        is_laid_out: whether axes get their places from what stands beside them.
    """
    out = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # Nobody's matplotlibrc has a say.
        mpl.rcParams.update(STYLE)
        # Labels may have letters that the font which text is measured with lacks; a browser has others.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        # What is measured before it is saved is measured as it is saved: SVG has 72 dots per inch.
        canvas = Canvas(figsize=(WIDTH_IN, height_in), dpi=72, layout="constrained" if is_laid_out else None)
        draw(canvas)
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def enlarged(box: Any) -> Any:
    """The box of a text, in dots, as large as it may be in a browser, whose letters may be wider; and some room."""
    wider = (WIDER - 1) * box.width / 2
    return Bbox.from_extents(box.x0 - wider, box.y0, box.x1 + wider, box.y1).padded(CLEARANCE)


def shortened(label: str, limit: int = LABEL_LIMIT) -> str:
    """A label with a length that a picture has room for."""
    shown = harmless(label)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
