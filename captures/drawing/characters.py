"""Draws a ladder as text for terminals, from the same rows that ladder.py draws as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.captures.drawing.ladder import Break, Pause, Row, Rung, Span, signs_of

TIME_COLUMNS: Final = 12
LEAST_SPACING: Final = 8
"""The smallest distance between two queue managers, in columns."""
LINE, GONE, SILENT = "│", "╎", "┊"


def lines(
    columns: Sequence[str], rows: Sequence[Row], width: int, gone: Sequence[Span] = ()
) -> Iterator[str]:
    """Yield the lines of the diagram, then the legend of its signs.

    Args:
        width: the largest number of characters in a line.
        gone: spans of rows in which a column has no connection.

    Raises:
        UsageError: the columns do not fit.
    """
    if not columns:
        return
    places, spacing = _placed(columns, width)
    yield _heads(columns, places, spacing, width)
    for number, row in enumerate(rows):
        away = {span.column for span in gone if span.first <= number < span.last}
        signs = [GONE if column in away else LINE for column in range(len(columns))]
        if isinstance(row, Pause):
            text = row.text.removesuffix(" later")
            yield _uprights(f"{text:>{TIME_COLUMNS}}", places, [SILENT] * len(columns))
            continue
        line = _uprights(f"{row.time:>{TIME_COLUMNS}}", places, signs)
        yield from _crossing(row, line, places, width)
        if row.until:
            yield _uprights(f"{f'– {row.until}':>{TIME_COLUMNS}}", places, signs)
        if isinstance(row, Rung):
            for finding in row.told:
                text = f"{'':>{TIME_COLUMNS}} {finding}"
                yield text if len(text) <= width else f"{text[: width - 1]}…"
    yield from _legend(rows, gone, width)


def _placed(columns: Sequence[str], width: int) -> tuple[list[int], int]:
    """Return the places of the columns, and the distance between them."""
    room = width - TIME_COLUMNS - 2
    margin = min(len(columns[-1]) // 2 + 1, room // 4)
    first = TIME_COLUMNS + 1 + min(len(columns[0]) // 2 + 1, room // 4)
    spacing = (width - 1 - margin - first) // max(1, len(columns) - 1)
    if len(columns) > 1 and spacing < LEAST_SPACING:
        raise UsageError(
            f"{len(columns)} queue managers do not fit into {width} columns; choose some with --node or "
            "--connection, or draw an SVG: --svg FILE.svg"
        )
    return [first + spacing * column for column in range(len(columns))], spacing


def _heads(columns: Sequence[str], places: Sequence[int], spacing: int, width: int) -> str:
    line = ""
    for name, place in zip(columns, places, strict=True):
        room = min(spacing if len(places) > 1 else width, 2 * (width - place))
        shown = name if len(name) < room else f"{name[: room - 2]}…"
        line = line.ljust(max(0, place - len(shown) // 2)) + shown
    return line


def _uprights(left: str, places: Sequence[int], signs: Sequence[str]) -> str:
    cells = list(left.ljust(max(places) + 1))
    for place, sign in zip(places, signs, strict=True):
        cells[place] = sign
    return "".join(cells)


def _crossing(row: Rung | Break, line: str, places: Sequence[int], width: int) -> Iterator[str]:
    """Yield one row with its text; an event at one column has its text next to it."""
    start, end = places[row.start], places[row.end]
    if start == end:
        sign = "↺" if isinstance(row, Rung) else "●"
        text = row.fitting(10_000)
        if start + 3 + len(text) > width:
            text = row.fitting(max(8, start - TIME_COLUMNS - 3))
            if len(text) + 3 < start - TIME_COLUMNS:
                yield f"{line[: start - len(text) - 3]} {text} {sign}{line[start:]}"
                return
            text = row.fitting(max(0, width - start - 3))
        yield f"{line[: start + 1]}{sign} {text}"
        return
    low, high = min(start, end), max(start, end)
    room = high - low - 1
    text = row.fitting(max(1, room - 4))
    if isinstance(row, Break):
        body = f" {text} ".center(room - row.directed, "╌")
        if row.directed:
            body = f"{body}►" if end > start else f"◄{body}"
    else:
        body = f" {text} ".center(room - 1, "─")[: room - 1]
        body = f"{body}►" if end > start else f"◄{body}"
    yield f"{line[: low + 1]}{body[:room]}{line[high:]}"


def _legend(rows: Sequence[Row], gone: Sequence[Span], width: int) -> Iterator[str]:
    """Yield the legend, one entry on each line."""
    entries = [f"{sign}  {meaning}" for sign, meaning in signs_of(rows, gone)]
    if entries:
        yield ""
    for entry in entries:
        yield entry if len(entry) <= width else f"{entry[: width - 1]}…"
