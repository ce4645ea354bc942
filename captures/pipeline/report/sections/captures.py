"""The files that were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqproto.captures.pipeline.report.drawing.markup import table
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.facts.words import counted, duration, escaped, size, when


def captures(facts: Facts) -> Iterator[str]:
    captured, judged = facts.captured, facts.judgments
    yield '<section id="captures"><h2>What was read</h2>'
    yield (
        f"<p>{counted(captured.files, 'capture')} with {size(captured.size_bytes)}. Of {captured.frames:,} frames "
        f"{captured.segment_frames:,} are TCP segments, {captured.ping_frames:,} pings, {captured.other_frames:,} "
        f"others; {captured.cut_frames:,} were captured in part. {captured.damaged:,} captures are damaged.</p>"
    )
    if judged.sessions:
        said = ", ".join(f"{count:,} {escaped(state)}" for state, count in judged.sessions.items())
        yield f"<p>Sessions by their state at the end: {said}.</p>"
    heads = ("file", ">size", ">frames", "~first frame, UTC", ">length", "damage")
    yield from table(heads, map(_file_row, captured.shown))
    if captured.files > len(captured.shown):
        yield f"<p>And {captured.files - len(captured.shown):,} more.</p>"
    yield "</section>"


def _file_row(row: dict[str, Any]) -> Iterator[str]:
    first_ns, last_ns = row["first_ns"], row["last_ns"]
    yield escaped(row["file"])
    yield size(row["size_bytes"])
    yield f"{row['frames']:,}"
    yield when(first_ns)
    yield duration(None if first_ns is None or last_ns is None else last_ns - first_ns)
    yield f"byte {row['damage_offset']:,}: {escaped(row['damage'])}" if row["damage"] else "none"
