"""A ladder diagram as SVG: one file that needs no other, for browsers and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from captures.decode.facts import NodeKey
from captures.decode.sight import Kind
from captures.decode.views.ladder import NANOSECONDS, PAUSE_NS, Arrow, Ladder

TIME_WIDTH: Final = 100
COLUMN_WIDTH: Final = 340
MARGIN: Final = 120
HEAD_HEIGHT: Final = 64
ROW_HEIGHT: Final = 26
CHARACTER_WIDTH: Final = 6.6  # of the monospaced font below, at 11 pixels
COLOURS: Final = {
    "handshake": "#6b7280",
    "session": "#0f766e",
    "message": "#1d4ed8",
    "acknowledgment": "#7c3aed",
    "wrong": "#b91c1c",
}
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
    rows = list(_rows(ladder.arrows))
    places = {node: TIME_WIDTH + MARGIN + COLUMN_WIDTH * column for column, node in enumerate(nodes)}
    width = TIME_WIDTH + 2 * MARGIN + COLUMN_WIDTH * max(0, len(nodes) - 1)
    height = HEAD_HEIGHT + ROW_HEIGHT * (len(rows) + 2)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="ui-monospace, Consolas, DejaVu Sans Mono, monospace" '
        'font-size="11">'
    )
    yield f"<title>{_text(title)}</title>"
    yield from _definitions()
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    yield f'<text x="12" y="18" font-size="13" font-weight="bold">{_text(title)}</text>'
    bottom = height - ROW_HEIGHT
    for node, x in places.items():
        yield f'<line x1="{x}" y1="{HEAD_HEIGHT - 8}" x2="{x}" y2="{bottom}" stroke="#cbd5e1" stroke-width="1.5"/>'
        half = max(40, len(node) * 4 + 10)
        yield (
            f'<rect x="{x - half}" y="28" width="{2 * half}" height="24" rx="4" fill="#f1f5f9" stroke="#94a3b8"/>'
        )
        yield f'<text x="{x}" y="44" text-anchor="middle" font-weight="bold">{_text(node)}</text>'
    began_ns = ladder.arrows[0].time_ns if ladder.arrows else 0
    for row, (arrow, pause_ns) in enumerate(rows):
        y = HEAD_HEIGHT + ROW_HEIGHT * (row + 1)
        if arrow is None:
            later = f"{pause_ns / NANOSECONDS:,.1f} s later"
            yield f'<text x="{TIME_WIDTH - 14}" y="{y}" text-anchor="end" fill="#92400e">{later}</text>'
            yield (
                f'<line x1="{TIME_WIDTH}" y1="{y - 4}" x2="{width - 20}" y2="{y - 4}" stroke="#f59e0b" '
                'stroke-dasharray="2 6"/>'
            )
            continue
        time = f"{(arrow.time_ns - began_ns) / NANOSECONDS:.6f}"
        yield f'<text x="{TIME_WIDTH - 14}" y="{y}" text-anchor="end" fill="#64748b">{time}</text>'
        yield from _drawn(arrow, places[label(arrow.source)], places[label(arrow.destination)], y)
    if ladder.left_out_count:
        y = height - 10
        yield f'<text x="12" y="{y}" fill="#92400e">{ladder.left_out_count:,} packets more are not drawn</text>'
    yield "</svg>"


def _definitions() -> Iterator[str]:
    yield "<defs>"
    for name, colour in COLOURS.items():
        yield (
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        )
    yield "</defs>"


def _rows(arrows: list[Arrow]) -> Iterator[tuple[Arrow | None, int]]:
    """Every arrow; before one that comes after a long silence, the silence."""
    before_ns = arrows[0].time_ns if arrows else 0
    for arrow in arrows:
        if arrow.time_ns - before_ns > PAUSE_NS:
            yield None, arrow.time_ns - before_ns
        before_ns = arrow.time_ns
        yield arrow, 0


def _drawn(arrow: Arrow, start: int, end: int, y: int) -> Iterator[str]:
    style = "wrong" if arrow.is_wrong else _STYLES.get(arrow.kind, "message")
    colour = COLOURS[style]
    dashes = ' stroke-dasharray="5 3"' if arrow.again else ""
    hints = [f"#{arrow.number} {arrow.text}", *map(str, arrow.findings)]
    hints += ["crossed this hop before"] * arrow.again + [
        "bytes before it are not in the capture"
    ] * arrow.missing
    yield f"<g><title>{_text(chr(10).join(hints))}</title>"
    if start == end:
        yield f'<circle cx="{start}" cy="{y}" r="4" fill="none" stroke="{colour}"/>'
        yield f'<text x="{start + 10}" y="{y + 4}" fill="{colour}">{_text(arrow.marked_text)}</text>'
    else:
        shown = int((abs(end - start) - 24) / CHARACTER_WIDTH)
        text = arrow.marked_text
        text = text if len(text) <= shown else f"{text[: shown - 1]}…"
        yield (
            f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="{colour}" '
            f'stroke-width="1.4"{dashes} marker-end="url(#{style})"/>'
        )
        halo = 'stroke="#ffffff" stroke-width="3" paint-order="stroke"'  # where it crosses another column
        yield (
            f'<text x="{(start + end) / 2:g}" y="{y - 5}" text-anchor="middle" fill="{colour}" {halo}>'
            f"{_text(text)}</text>"
        )
    yield "</g>"


def _text(text: str) -> str:
    """Text for XML; what XML cannot hold becomes a question mark."""
    return escape(
        "".join(
            each if each >= " " and not "\ud800" <= each <= "\udfff" and each not in "\ufffe\uffff" else "?"
            for each in text.replace("\n", " · ")
        )
    )
