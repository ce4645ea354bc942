"""A ladder diagram as SVG: one file that needs no other, for browsers and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from captures.decode.facts import NodeKey
from captures.decode.sight import Kind
from captures.decode.views.ladder import NANOSECONDS, PAUSE_NS, Arrow, Ladder
from captures.drawing.ladder import Pause, Rung, drawn
from captures.drawing.shapes import as_svg, document

_STYLES: Final = {
    Kind.PING: "handshake",
    Kind.ENCRYPTED: "handshake",
    Kind.CUT: "handshake",
    Kind.ESTABLISH_CONNECTION: "handshake",
    Kind.CONNECTION_PARAMETERS: "handshake",
    Kind.SESSION_ACK: "session",
    Kind.ORDER_ACK: "acknowledgment",
    Kind.FINAL_ACK: "acknowledgment",
    Kind.ADMIN_ACK: "acknowledgment",
    Kind.REPORT: "acknowledgment",
    Kind.MALFORMED: "wrong",
}


def svg(ladder: Ladder, label: Callable[[NodeKey], str], title: str) -> Iterator[str]:
    """The lines of the file.

    Args:
        label: what a queue manager is called, now that all is known.
        title: above the diagram, such as the name of the capture.
    """
    nodes = ladder.nodes(label)
    rungs = list(_rungs(ladder.arrows, lambda key: nodes.index(label(key))))
    left_out = f"{ladder.left_out_count:,} packets more are not drawn" if ladder.left_out_count else ""
    shape, width, height = drawn(nodes, rungs, title, left_out)
    yield from document(title, width, height, as_svg(shape))


def _rungs(arrows: list[Arrow], place: Callable[[NodeKey], int]) -> Iterator[Rung | Pause]:
    """Every arrow; before one that comes after a long silence, the silence."""
    before_ns = began_ns = arrows[0].time_ns if arrows else 0
    for arrow in arrows:
        if arrow.time_ns - before_ns > PAUSE_NS:
            yield Pause(f"{(arrow.time_ns - before_ns) / NANOSECONDS:,.1f} s later")
        before_ns = arrow.time_ns
        hints = [f"#{arrow.number}", *map(str, arrow.findings)]
        hints += ["crossed this hop before"] * arrow.again
        hints += ["bytes before it are not in the capture"] * arrow.missing
        yield Rung(
            f"{(arrow.time_ns - began_ns) / NANOSECONDS:.6f}",
            place(arrow.source),
            place(arrow.destination),
            "wrong" if arrow.is_wrong else _STYLES.get(arrow.kind, "message"),
            arrow.marked_text,
            hints,
            arrow.again,
        )
