"""A sequence of transactional messages as a strip of numbers that are confirmed, accepted, missing, held or sent.

Numbers go from left to right. The strip ends where the sequence ends, and begins shortly before the first unconfirmed
number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqproto.captures.drawing.shapes import SvgElement

WIDTH: Final = 560
NARROW: Final = 300
"""The width of a strip on a small screen, where letters keep their size."""
HEIGHT: Final = 34
BAR: Final = 16
SETTLED_SHOWN: Final = 8
"""How many confirmed numbers are shown before the others."""
FEW: Final = 64
"""If there are at most this many numbers, marks separate them."""
LEAST: Final = 3
"""The smallest width of a part."""
DIGIT: Final = 6.6
COLOURS: Final = {
    "confirmed": "#94a3b8",
    "accepted": "#0f766e",
    "missing": "#b91c1c",
    "held": "#c47f00",
    "sent": "#1d4ed8",
    "unsent": "#dbe4f0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceProgress:
    """The progress of a sequence.

    confirmed: the last number for which the sender has an OrderAck; 0 if there is none.
    accepted: the last number that the destination has received in order; None if unknown.
    missing: the first and the last number of the gap after `accepted`, if there is one.
    held: how many messages the destination holds that come after the gap.
    sent: the last number that was sent.
    last: the last number of the sequence.
    """

    confirmed: int
    accepted: int | None
    missing: tuple[int, int] | None
    held: int
    sent: int
    last: int


class Part(NamedTuple):
    """Numbers in the same state, from the first to the last."""

    style: str
    first: int
    last: int


def parts(numbers: SequenceProgress) -> Iterator[Part]:
    """Yield the parts that make up the strip, beginning with the last few confirmed numbers.

    Each number is in exactly one part.
    """
    first = max(1, numbers.confirmed - SETTLED_SHOWN + 1)
    ends = [("confirmed", numbers.confirmed)]
    if numbers.accepted is not None:
        ends.append(("accepted", min(numbers.accepted, numbers.last)))
    if numbers.missing is not None:
        ends.append(("missing", numbers.missing[1]))
        ends.append(("held", numbers.missing[1] + numbers.held))
    ends += [("sent", numbers.sent), ("unsent", numbers.last)]
    for style, last in ends:
        if last >= first:
            yield Part(style, first, last)
            first = last + 1


def strip(numbers: SequenceProgress, wide: int = WIDTH) -> SvgElement:
    """Return a picture of the strip, with this width and a height of HEIGHT."""
    shown = list(parts(numbers))
    if not shown:
        return SvgElement("g", {})
    first, last = shown[0].first, shown[-1].last
    one = wide / (last - first + 1)
    inner = []
    for part in shown:
        x = (part.first - first) * one
        width = max(LEAST, (part.last - part.first + 1) * one)
        inner.append(
            SvgElement(
                "rect",
                {"class": f"part {part.style}", "x": max(0.0, min(x, wide - width)), "y": 0, "width": width,
                 "height": BAR, "fill": COLOURS[part.style]},
                [SvgElement("title", {}, f"{part.style}: {_span(part)}")],
            )
        )  # fmt: skip
    if last - first < FEW:
        inner += [
            SvgElement(
                "line",
                {"class": "between", "x1": at * one, "x2": at * one, "y1": 0, "y2": BAR, "stroke": "#ffffff"},
            )
            for at in range(1, last - first + 1)
        ]
    free = -1.0
    for number in dict.fromkeys((first, *(part.last for part in shown))):
        text = f"{number:,}"
        x = (number - first + 0.5) * one
        half = len(text) * DIGIT / 2
        x = min(max(x, half), wide - half)
        if x - half > free:
            free = x + half + DIGIT
            inner.append(
                SvgElement(
                    "text",
                    {"class": "number", "x": x, "y": HEIGHT - 4, "text-anchor": "middle", "fill": "#595959"},
                    text,
                )
            )
    return SvgElement("g", {"class": "strip", "font-size": 11}, inner)


def spoken(numbers: SequenceProgress) -> str:
    """Return the progress in words."""
    return ", ".join(f"{part.style} {_span(part)}" for part in parts(numbers)) or "nothing was sent"


def _span(part: Part) -> str:
    return f"{part.first:,}" if part.first == part.last else f"{part.first:,} to {part.last:,}"
