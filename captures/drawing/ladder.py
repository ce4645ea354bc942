"""A ladder: its columns are participants, and its rungs, in order from top to bottom, are what passes between them.

This module has the elements of a ladder and draws it as SVG; characters.py draws it as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mqproto.captures.drawing.shapes import SvgElement

TIME_WIDTH: Final = 100
COLUMN_WIDTH: Final = 340
MARGIN: Final = 120
HEAD_HEIGHT: Final = 64
ROW_HEIGHT: Final = 26
LEGEND_HEIGHT: Final = 18
LEGEND_WIDTH: Final = 44
"""The width of the example next to each line of a legend."""
NAME_SHOWN: Final = 38
"""How many characters of a column's name are shown: enough for a GUID, too few to reach the next column."""
CHARACTER_WIDTH: Final = 6.6  # of the monospaced font below, at 11 pixels
HEAD: Final = 8
"""The length of an arrow's head."""
FONT: Final = "ui-monospace, Consolas, DejaVu Sans Mono, monospace"
COLOURS: Final = {
    "handshake": "#6b7280",
    "session": "#0f766e",
    "message": "#1d4ed8",
    "acknowledgment": "#7c3aed",
    "wrong": "#b91c1c",
}
DARK: Final = {
    "handshake": "#a8adb2",
    "session": "#5eead4",
    "message": "#93c5fd",
    "acknowledgment": "#c4b5fd",
    "wrong": "#fca5a5",
}
"""The color of each style on a dark sheet."""
AGAIN, WRONG, LACKS, CUT, FOLDED = "↻", "✗", "…", "✖", "×"
MEANINGS: Final = {
    "handshake": "begins a connection",
    "session": "session acknowledgment: what came, and what is saved",
    "message": "message of an application",
    "acknowledgment": "OrderAck, FinalAck, or acknowledgment to an administration queue",
    "wrong": "breach of the protocol",
}
"""What the color of each kind of packet means."""


class Rung(NamedTuple):
    """Something that passes from one column to another, or happens at one column.

    start, end: the columns' numbers.
    style: one of COLOURS.
    hints: more texts, shown when a mouse points at the rung.
    again: whether the rung repeats an earlier one.
    shorter: shorter texts for less room; the first that fits is shown.
    alike: how many equal rungs this one stands for.
    until: the time of the last of these rungs.
    marks: signs before the text, from AGAIN, WRONG and LACKS.
    told: texts that are written below the rung if the ladder is drawn as text, without a mouse.
    """

    time: str
    start: int
    end: int
    style: str
    text: str
    hints: Sequence[str] = ()
    again: bool = False
    shorter: Sequence[str] = ()
    alike: int = 1
    until: str = ""
    marks: str = ""
    told: Sequence[str] = ()

    def fitting(self, room: int) -> str:
        """Return the text, shortened to fit this many characters."""
        signs = self.marks + (f"{' ' * bool(self.marks)}{self.alike:,} {FOLDED}" if self.alike > 1 else "")
        signs += " " * bool(signs)
        for text in (self.text, *self.shorter):
            if len(signs) + len(text) <= room:
                return signs + text
        text = signs + (self.shorter[-1] if self.shorter else self.text)
        return f"{text[: max(0, room - 1)]}{LACKS}"


class Pause(NamedTuple):
    """A time without events."""

    text: str


class Break(NamedTuple):
    """An event that concerns a whole connection between two columns, or all connections of one column.

    is_cut: whether the connection ended early or did not begin; otherwise it was closed.
    directed: whether it is known that the first column did it.
    """

    time: str
    start: int
    end: int
    text: str
    is_cut: bool = True
    alike: int = 1
    until: str = ""
    directed: bool = False

    def fitting(self, room: int) -> str:
        """Return the text, shortened to fit this many characters."""
        signs = (f"{CUT} " if self.is_cut else "") + (f"{self.alike:,} {FOLDED} " if self.alike > 1 else "")
        text = signs + self.text
        return text if len(text) <= room else f"{text[: max(0, room - 1)]}{LACKS}"


Row = Rung | Pause | Break


class Span(NamedTuple):
    """Rows in which a column has no connection, from the first to the last."""

    column: int
    first: int
    last: int


class Drawing(NamedTuple):
    """A picture and its size."""

    shape: SvgElement
    width: int
    height: int


def signs_of(rows: Sequence[Row], gone: Sequence[Span]) -> Iterator[tuple[str, str]]:
    """Yield the signs that a ladder contains, and their meanings."""
    rungs = [row for row in rows if isinstance(row, Rung)]
    marks = {mark for rung in rungs for mark in rung.marks}
    breaks = [row for row in rows if isinstance(row, Break)]
    if AGAIN in marks or any(rung.again for rung in rungs):
        yield AGAIN, "the same on this hop again"
    if WRONG in marks:
        yield WRONG, "a breach of the protocol"
    if LACKS in marks:
        yield LACKS, "the capture lacks bytes before it"
    if any(row.alike > 1 for row in rungs) or any(row.alike > 1 for row in breaks):
        yield f"n {FOLDED}", "so many alike in a row; times of the first and the last"
    if any(each.is_cut for each in breaks):
        yield CUT, "a connection is reset, cut or refused"
    if any(not each.is_cut and each.start != each.end for each in breaks):
        yield "╌", "a connection is closed"
    if gone:
        yield "╎", "a node without any connection, as far as the capture shows"
    if any(isinstance(row, Pause) for row in rows):
        yield "┊", "nothing for some time"


def drawn(
    columns: Sequence[str],
    rows: Sequence[Row],
    title: str = "",
    left_out: str = "",
    gone: Sequence[Span] = (),
    meanings: Mapping[str, str] = MEANINGS,
) -> Drawing:
    """Return the whole picture.

    Args:
        title: the text above the picture.
        left_out: what is not drawn, in words.
        gone: spans of rows in which a column has no connection.
        meanings: the meanings of the colors.
    """
    used = {row.style for row in rows if isinstance(row, Rung)}
    legend = [*((style, text) for style, text in meanings.items() if style in used), *signs_of(rows, gone)]
    right = max(MARGIN, _half(columns[-1]) + 4) if columns else MARGIN
    width = TIME_WIDTH + MARGIN + COLUMN_WIDTH * max(0, len(columns) - 1) + right
    bottom = HEAD_HEIGHT + ROW_HEIGHT * (len(rows) + 1)
    height = bottom + ROW_HEIGHT + LEGEND_HEIGHT * (len(legend) + (1 if legend else 0))
    places = [TIME_WIDTH + MARGIN + COLUMN_WIDTH * column for column in range(len(columns))]
    inner = [SvgElement("rect", {"class": "sheet", "width": width, "height": height, "fill": "#ffffff"})]
    if title:
        inner.append(SvgElement("text", {"x": 12, "y": 18, "font-size": 13, "font-weight": "bold"}, title))
    for column, (x, name) in enumerate(zip(places, columns, strict=True)):
        inner += _column(name, x, bottom, [span for span in gone if span.column == column])
    for place, row in enumerate(rows):
        y = _y(place)
        if isinstance(row, Pause):
            inner += _pause(row, y, width)
        else:
            inner += _time(row, y)
            inner += _rung(row, places, y) if isinstance(row, Rung) else _break(row, places, y)
    if left_out:
        inner.append(
            SvgElement("text", {"class": "warning", "x": 12, "y": bottom + 16, "fill": "#92400e"}, left_out)
        )
    inner += _legend(legend, bottom + ROW_HEIGHT)
    return Drawing(
        SvgElement("g", {"class": "ladder", "font-family": FONT, "font-size": 11}, inner), width, height
    )


def _y(place: float) -> float:
    return HEAD_HEIGHT + ROW_HEIGHT * (place + 1)


def _half(name: str) -> int:
    """Return half the width of a column's head."""
    return max(40, min(len(name), NAME_SHOWN) * 4 + 10)


def _shown(name: str) -> str:
    """Return a name, without its middle if it is too long, so that names with different ends stay different."""
    if len(name) <= NAME_SHOWN:
        return name
    return f"{name[: NAME_SHOWN // 2]}{LACKS}{name[1 - NAME_SHOWN // 2 :]}"


def _column(name: str, x: int, bottom: int, gone: Iterable[Span]) -> Iterator[SvgElement]:
    """Yield the line of a column, broken where it has no connection, and its head."""
    top = float(HEAD_HEIGHT - 8)
    for span in gone:
        yield _upright("column", x, top, _y(span.first))
        yield _upright("gone", x, _y(span.first), _y(span.last))
        top = _y(span.last)
    yield _upright("column", x, top, bottom)
    half = _half(name)
    head = [
        SvgElement(
            "rect",
            {"class": "head", "x": x - half, "y": 28, "width": 2 * half, "height": 24, "rx": 4, "fill": "#f1f5f9",
             "stroke": "#94a3b8"},
        ),
        SvgElement("text", {"x": x, "y": 44, "text-anchor": "middle", "font-weight": "bold"}, _shown(name)),
    ]  # fmt: skip
    yield from head if _shown(name) == name else [SvgElement("g", {}, [SvgElement("title", {}, name), *head])]


def _upright(name: str, x: float, top: float, bottom: float) -> SvgElement:
    looks: dict[str, str | float] = {"stroke": "#cbd5e1", "stroke-width": 1.5}
    if name == "gone":
        looks = {"stroke": COLOURS["wrong"], "stroke-width": 2, "stroke-dasharray": "2 5"}
    return SvgElement("line", {"class": name, "x1": x, "y1": top, "x2": x, "y2": bottom, **looks})


def _pause(pause: Pause, y: float, width: int) -> Iterator[SvgElement]:
    yield SvgElement(
        "text",
        {"class": "warning", "x": TIME_WIDTH - 14, "y": y, "text-anchor": "end", "fill": "#92400e"},
        pause.text,
    )
    yield _line("pause", TIME_WIDTH, width - 20, y - 4, "#f59e0b", "2 6")


def _time(row: Rung | Break, y: float) -> Iterator[SvgElement]:
    looks: dict[str, str | float] = {
        "class": "time",
        "x": TIME_WIDTH - 14,
        "text-anchor": "end",
        "fill": "#64748b",
    }
    yield SvgElement("text", {**looks, "y": y - 5 if row.until else y}, row.time)
    if row.until:
        yield SvgElement("text", {**looks, "y": y + 7}, f"– {row.until}")


def _rung(rung: Rung, places: Sequence[int], y: float) -> Iterator[SvgElement]:
    start, end = places[rung.start], places[rung.end]
    colour = COLOURS[rung.style]
    whole = rung.fitting(10_000)
    inner = [SvgElement("title", {}, "\n".join((whole, *rung.hints)))]
    if start == end:
        inner += _at_one(start, y, colour, whole)
    else:
        step = 1 if end > start else -1
        back = end - step * HEAD
        inner.append(_line("arrow", start, back, y, colour, "5 3" if rung.again else ""))
        inner.append(_point(start, end, y, colour))
        inner.append(_over((start + end) / 2, y, colour, rung.fitting(_room(start, end))))
    yield SvgElement("g", {"class": f"rung {rung.style}"}, inner)


def _break(row: Break, places: Sequence[int], y: float) -> Iterator[SvgElement]:
    """Yield an event of a connection, drawn across the connection."""
    start, end = places[row.start], places[row.end]
    style = "wrong" if row.is_cut else "handshake"
    colour = COLOURS[style]
    whole = row.fitting(10_000)
    inner = [SvgElement("title", {}, whole)]
    if start == end:
        inner += _at_one(start, y, colour, whole)
    else:
        inner.append(_line("cut" if row.is_cut else "closed", start, end, y, colour, "1 5"))
        if row.directed:
            inner.append(_point(start, end, y, colour))
        inner.append(_over((start + end) / 2, y, colour, row.fitting(_room(start, end))))
        if row.is_cut:
            inner.append(_cross(start, y, colour))
            inner += [] if row.directed else [_cross(end, y, colour)]
    yield SvgElement("g", {"class": f"rung {style}"}, inner)


def _point(start: float, end: float, y: float, colour: str) -> SvgElement:
    back = end - HEAD if end > start else end + HEAD
    return SvgElement(
        "path", {"class": "point", "d": f"M{back} {y - 4:g}L{end} {y:g}L{back} {y + 4:g}z", "fill": colour}
    )


def _cross(x: float, y: float, colour: str) -> SvgElement:
    way = f"M{x - 4:g} {y - 4:g}L{x + 4:g} {y + 4:g}M{x - 4:g} {y + 4:g}L{x + 4:g} {y - 4:g}"
    return SvgElement("path", {"class": "stroke", "d": way, "stroke": colour, "stroke-width": 2})


def _room(start: int, end: int) -> int:
    return int((abs(end - start) - 24) / CHARACTER_WIDTH)


def _at_one(x: int, y: float, colour: str, text: str) -> Iterator[SvgElement]:
    yield SvgElement(
        "circle", {"class": "stroke", "cx": x, "cy": y, "r": 4, "fill": "none", "stroke": colour}
    )
    yield SvgElement("text", {"class": "beside", "x": x + 10, "y": y + 4, "fill": colour}, text)


def _over(x: float, y: float, colour: str, text: str) -> SvgElement:
    return SvgElement(
        "text",
        {"class": "over", "x": x, "y": y - 5, "text-anchor": "middle", "fill": colour,
         # A halo, where it crosses another column.
         "stroke": "#ffffff", "stroke-width": 3, "paint-order": "stroke"},
        text,
    )  # fmt: skip


def _line(name: str, start: float, end: float, y: float, colour: str, dashes: str = "") -> SvgElement:
    looks: dict[str, str | float] = {"stroke": colour, "stroke-width": 1.4}
    if dashes:
        looks["stroke-dasharray"] = dashes
    return SvgElement("line", {"class": name, "x1": start, "y1": y, "x2": end, "y2": y, **looks})


def _legend(entries: Sequence[tuple[str, str]], top: float) -> Iterator[SvgElement]:
    for place, (sign, meaning) in enumerate(entries):
        y = top + LEGEND_HEIGHT * (place + 1)
        inner: list[SvgElement] = []
        if sign in COLOURS:
            inner.append(_line("example", 12, 12 + LEGEND_WIDTH - 12, y - 4, COLOURS[sign]))
        elif sign == AGAIN:
            inner.append(_line("example", 12, 26, y - 4, COLOURS["message"], "5 3"))
            inner.append(SvgElement("text", {"x": 34, "y": y}, sign))
        else:
            inner.append(SvgElement("text", {"x": 12, "y": y}, sign))
        inner.append(
            SvgElement("text", {"class": "time", "x": 12 + LEGEND_WIDTH, "y": y, "fill": "#64748b"}, meaning)
        )
        style = sign if sign in COLOURS else "message"
        yield SvgElement("g", {"class": f"legend {style}"}, inner)


def stylesheet() -> str:
    """Return the style sheet with the dark-mode colors of a picture that is a separate file."""
    rules = [
        ".sheet{fill:#15181b}",
        "text{fill:#e8e8e8}",
        ".column{stroke:#4b5563}",
        ".head{fill:#1e2328;stroke:#8a9096}",
        ".time{fill:#a8adb2}",
        ".warning{fill:#e9b95c}",
        ".over{stroke:#15181b}",
        f".gone{{stroke:{DARK['wrong']}}}",
    ]
    for style, colour in DARK.items():
        rules.append(f".{style} line,.{style} .stroke{{stroke:{colour}}}")
        rules.append(f".{style} .point,.{style} .over,.{style} .beside{{fill:{colour}}}")
    return f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
