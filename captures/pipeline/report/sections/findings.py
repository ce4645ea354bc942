"""What is wrong, and where to see it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from mqproto.captures.decode.views.quality import found_nothing
from mqproto.captures.pipeline.report.counts.judgments import EXAMPLES
from mqproto.captures.pipeline.report.drawing.markup import table
from mqproto.captures.pipeline.report.facts.facts import Example, Facts, Found, Place
from mqproto.captures.pipeline.report.facts.words import decode_command, escaped, frame_filter


def findings(facts: Facts, shown: set[str]) -> Iterator[str]:
    judged = facts.judgments
    yield '<section id="findings"><h2>Findings</h2>'
    if not judged.found:
        said = found_nothing(facts.captured.reasons)
        yield f"<p>{escaped(said[0].upper() + said[1:])}.</p>"
    else:
        yield "<p>A fault is a breach of the protocol. A note is worth a look: a network that fails may explain it.</p>"
    for each in judged.found:
        style = "bad" if each.severity == "fault" else "open"
        is_open = " open" if each.severity == "fault" else ""
        yield (
            f'<details{is_open}><summary><span class="tag {style}">{escaped(each.severity)}</span> '
            f"<b>{escaped(each.code)}</b> {each.count:,}: {escaped(each.meaning)}"
            f"{f' <span class=faint>{escaped(each.section)}</span>' if each.section else ''}</summary>"
        )
        yield from table(
            ("~packet", "what", "where to see it"),
            (_example_row(example, shown) for example in each.examples[:EXAMPLES]),
            _of_all(each),
        )
        yield "</details>"
    yield "</section>"


def _of_all(each: Found) -> str:
    return f"The first {EXAMPLES} of {each.count:,}." if each.count > EXAMPLES else ""


def _example_row(example: Example, shown: set[str]) -> Iterator[str]:
    number = f"#{example.number}" if example.number else "–"
    if example.message in shown and example.message is not None:
        number = f'<a href="#message={quote(example.message, safe="")}">{number}</a>'
    yield number
    yield escaped(example.text)
    if example.place is None:
        yield escaped(example.series)
        return
    file, frame = example.place
    command = decode_command(file, message=example.message, time_ns=example.time_ns)
    also = "".join(_other(number, place, file) for number, place in example.others.items())
    where = f"<code>{frame_filter(frame)}</code> in " if frame else ""
    yield f"{where}{escaped(file)}<br><code>{escaped(command, limit=None)}</code>{also}"


def _other(number: int, place: Place | None, file: str) -> str:
    """A packet that a finding rests on."""
    if place is None:
        return f"<br>with #{number}"
    elsewhere = "" if place.file == file else f" in {escaped(place.file)}"
    return f"<br>with #{number}: <code>{frame_filter(place.frame)}</code>{elsewhere}"
