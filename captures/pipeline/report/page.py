"""The report as one HTML file, which needs nothing else: no network, no other file; and no script but for its search.

Whatever comes from captures is escaped; besides, the page forbids its browser to run or load anything but what is named
here by its digest, and pictures stand in it as images, in which nothing can run.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from captures.pipeline.report.embedded import embedded
from captures.pipeline.report.facts import Example, Facts, Found, Hop, Place
from captures.pipeline.report.figures import hops_figure, latency_figure, sequences_figure, traffic_figure
from captures.pipeline.report.judgments import EXAMPLES
from captures.pipeline.report.markup import BAD, GOOD, link, picture, table, tag
from captures.pipeline.report.messages import KEPT, STUCK
from captures.pipeline.report.routemap import drawn_hops, map_figure
from captures.pipeline.report.words import (
    about,
    counted,
    decode_command,
    duration,
    escaped,
    frame_filter,
    gaps_text,
    rate,
    share,
    size,
    when,
)

HOPS_LISTED: Final = 25
ENDED_BADLY: Final = 10
"""How many messages that are stuck are listed, and how many that were refused or expired."""
WORST: Final = 5
"""How many of each other list."""
HERE: Final = files("captures.pipeline.report")


def page(facts: Facts) -> str:
    """The whole file. The same facts give the same text."""
    style, script = (HERE.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    shown = {row["message"] for row in facts.messages.embedded}
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Message queuing: {escaped(facts.folder)}</title><style>{style}</style></head><body>",
        *_head(facts),
        "<main>",
        *_search(facts),
        *_worst(facts),
        *_routes(facts),
        *_latency(facts),
        *_sequences(facts),
        *_traffic(facts),
        *_findings(facts, shown),
        *_captures(facts),
        "</main>",
        f'<script type="application/json" id="messages">{embedded(facts)}</script>',
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(facts: Facts) -> Iterator[str]:
    captured, messages = facts.captured, facts.messages
    ended = sum(messages.outcomes.get(outcome, 0) for outcome in GOOD)
    failed = sum(messages.outcomes.get(outcome, 0) for outcome in BAD)
    stuck = sum(messages.outcomes.get(outcome, 0) for outcome in STUCK)
    faults = facts.judgments.faults
    span = "no frames"
    if captured.first_ns is not None and captured.last_ns is not None:
        span = f"{when(captured.first_ns)} UTC, {duration(captured.last_ns - captured.first_ns)}"
    yield f"<header><h1>What became of {counted(messages.count, 'message')}</h1>"
    yield f'<p class="faint">{counted(captured.files, "capture")}, {captured.frames:,} frames, {span}</p>'
    numbers = [
        ("", f"{ended:,}", "came to their destination"),
        ("bad" if failed else "", f"{failed:,}", "refused or expired"),
        ("bad" if stuck else "", f"{stuck:,}", "not seen to end"),
        ("", f"{messages.resends:,}", "copies sent again"),
        ("bad" if faults else "", f"{faults:,}", "breaches of the protocol"),
    ]
    if messages.arrived.count:
        numbers.insert(1, ("", about(messages.arrived.quantile(0.5)), "median to the destination"))
    items = "".join(f'<li class="{style}"><b>{number}</b> {what}</li>' for style, number, what in numbers)
    yield f'<ul class="numbers">{items}</ul>'
    links = {
        "worst": "Stuck, failed, slow",
        "routes": "Routes",
        "latency": "Latency",
        "sequences": "Sequences",
        "traffic": "Traffic",
        "findings": "Findings",
        "captures": "Captures",
    }
    yield (
        "<nav>" + "".join(f'<a href="#{name}">{text}</a>' for name, text in links.items()) + "</nav></header>"
    )


def _search(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section class="search"><h2>What happened to my message?</h2>'
    if messages.every:
        yield '<label for="search">A part of its label, or its identifier</label>'
    else:
        command = shlex.join(["mqproto", "report", facts.folder, "--message", "LABEL"])
        yield (
            f"<p>This page has {len(messages.embedded):,} of {messages.count:,} messages: of all that are stuck, that "
            f"failed, that were slow, and that were sent again, up to {KEPT} each. "
            f"For any other: <code>{escaped(command, limit=None)}</code></p>"
        )
        yield f'<label for="search">Among these {len(messages.embedded):,}: a part of a label, or an identifier</label>'
    example = next((row["label"] for row in messages.embedded if row["label"]), "")
    hint = f' placeholder="{escaped(example)}"' if example else ""
    yield f'<input id="search" type="search" autocomplete="off" spellcheck="false"{hint} disabled>'
    yield '<p id="said" class="faint" role="status"></p><ul id="results"></ul><div id="history"></div>'
    yield "<noscript><p>The search needs JavaScript; all else is here without.</p></noscript></section>"


def _worst(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section id="worst"><h2>Stuck, failed and slow messages</h2>'
    if not messages.count:
        yield "<p>The captures have no message of an application.</p>"
    failed = sum(messages.outcomes.get(outcome, 0) for outcome in BAD)
    stuck = sum(messages.outcomes.get(outcome, 0) for outcome in STUCK)
    lists = (
        (
            "Not seen to end",
            messages.stuck[:ENDED_BADLY],
            stuck,
            "Those first seen longest ago come first.",
            "whereabouts",
        ),
        (
            "Refused or expired",
            messages.failed[:ENDED_BADLY],
            failed,
            "The earliest come first.",
            "whereabouts",
        ),
        ("Longest to their destination", messages.slowest[:WORST], 0, "", "route"),
        ("Longest until their OrderAck", messages.latest[:WORST], 0, "", "route"),
        ("Sent again most often", messages.resent[:WORST], 0, "", "route"),
    )
    for title, rows, count, caption, last in lists:
        if not rows:
            continue
        heads = (
            "message",
            "~first seen, UTC",
            ">to destination",
            ">until OrderAck",
            ">resends",
            "~end",
            last,
        )
        of_all = "" if count <= len(rows) else f", {len(rows)} of {count:,}"
        yield f"<h3>{title}{of_all}</h3>"
        yield from table(heads, (_worst_row(row, last) for row in rows), caption)
    if messages.count and not any(rows for _, rows, *_ in lists):
        yield "<p>None: every message came where it should at once.</p>"
    yield "</section>"


def _worst_row(row: dict[str, Any], last: str) -> Iterator[str]:
    acked_ns = row["order_acked_ns"]
    yield link(row["message"], row["label"])
    yield when(row["first_ns"])
    yield duration(row["latency_ns"] if row["hops"] > 1 else None)
    yield duration(None if acked_ns is None else acked_ns - row["first_ns"])
    yield f"{row['resends']:,}"
    yield tag(row["outcome"])
    yield escaped(row["whereabouts"] if last == "whereabouts" else _route(row["route"]))


def _route(labels: Sequence[str]) -> str:
    """From where to where, and over how many hops."""
    return f"{labels[0]} → {labels[-1]}" + (f", {len(labels) - 1} hops" if len(labels) > 2 else "")


def _routes(facts: Facts) -> Iterator[str]:
    routes = facts.routes
    yield '<section id="routes"><h2>Route map</h2>'
    if not routes.hops:
        yield "<p>No message crossed a hop.</p></section>"
        return
    yield "<p>An arrow is a hop. Times are medians; thicker arrows carried more messages.</p>"
    yield from picture(map_figure(routes))
    count, in_all = len(drawn_hops(routes)), len(routes.hops)
    if count < in_all:
        yield f"<p>The map has {count:,} of {in_all:,} hops: those that most messages crossed.</p>"
    heads = (
        "from", "to", ">messages", ">a second", ">copies each", ">waited: 50 %", ">95 %", ">answered: 50 %", ">95 %",
    )  # fmt: skip
    left_out = len(routes.hops[HOPS_LISTED:])
    yield from table(
        heads,
        map(_hop_row, routes.hops[:HOPS_LISTED]),
        "Waited: in the queue manager they left. Answered: by the one they came to.",
    )
    if left_out or routes.left_out:
        more = f"{counted(left_out, 'more hop')}{' at least' if routes.left_out else ''}"
        yield f"<p>{more} with no more messages than these are not listed.</p>"
    yield "</section>"


def _hop_row(hop: Hop) -> Iterator[str]:
    yield escaped(hop.from_label)
    yield escaped(hop.to_label)
    yield f"{hop.messages:,}"
    yield rate(hop.messages, hop.last_ns - hop.first_ns)
    yield f"{hop.copies / hop.messages:.2f}"
    for spread in (hop.waited, hop.answered):
        for part in (0.5, 0.95):
            yield about(spread.quantile(part)) if spread.count else "–"


def _latency(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section id="latency"><h2>Latency</h2>'
    shown = [latency_figure(messages.arrived, messages.confirmed), hops_figure(facts.routes)]
    for each in shown:
        if each is not None:
            yield f"<h3>{each.title}</h3>"
        yield from picture(each)
    if not any(shown):
        yield "<p>Nothing was seen at two places, and nothing was answered.</p>"
    elif not messages.arrived.count:
        yield (
            "<p>Each message was seen on one hop alone, so how long it took to its destination cannot be told from "
            "these captures.</p>"
        )
    yield "</section>"


def _sequences(facts: Facts) -> Iterator[str]:
    sequences = facts.sequences
    yield '<section id="sequences"><h2>Sequences and their gaps</h2>'
    gaps = "no number was missing on any hop"
    if sequences.gaps:
        gaps = f"on all hops together {gaps_text(sequences)}"
    yield f"<p>{counted(sequences.count, 'transactional sequence')}; {gaps}.</p>"
    if any(each.gaps for each in sequences.shown):
        yield "<p>A pale box is a gap, until its numbers came; a dark one was still open at the end.</p>"
    yield from picture(sequences_figure(sequences, facts.captured.last_ns or 0))
    yield "</section>"


def _traffic(facts: Facts) -> Iterator[str]:
    yield '<section id="traffic"><h2>Traffic over time</h2>'
    if facts.traffic is None:
        yield "<p>The captures have no packets of message queuing.</p></section>"
        return
    yield from picture(traffic_figure(facts.traffic))
    kinds = facts.traffic.kinds
    yield from table(
        ("kind", ">packets", ">share"),
        ((escaped(kind), f"{count:,}", share(count, sum(kinds.values()))) for kind, count in kinds.items()),
    )
    yield "</section>"


def _findings(facts: Facts, shown: set[str]) -> Iterator[str]:
    judged = facts.judgments
    yield '<section id="findings"><h2>Findings</h2>'
    if not judged.found:
        yield "<p>Nothing was found to be wrong.</p>"
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
    if judged.verdicts:
        said = ", ".join(f"{count:,} {escaped(verdict)}" for verdict, count in judged.verdicts.items())
        yield f"<p>Arrivals of messages at queue managers: {said}.</p>"
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


def _captures(facts: Facts) -> Iterator[str]:
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
    if judged.clocks:
        yield "<h3>Clocks</h3>"
        points = ("capture point", ">ahead by", ">within", ">packets seen at both")
        yield from table(
            points, map(_clock_row, judged.clocks), "All times in this report are by the reference clock."
        )
    yield "</section>"


def _file_row(row: dict[str, Any]) -> Iterator[str]:
    first_ns, last_ns = row["first_ns"], row["last_ns"]
    yield escaped(row["file"])
    yield size(row["size_bytes"])
    yield f"{row['frames']:,}"
    yield when(first_ns)
    yield duration(None if first_ns is None or last_ns is None else last_ns - first_ns)
    yield f"byte {row['damage_offset']:,}: {escaped(row['damage'])}" if row["damage"] else "none"


def _clock_row(row: dict[str, Any]) -> Iterator[str]:
    yield f"{escaped(row['series'])}, interface {row['interface']}"
    yield duration(row["offset_ns"])
    yield "unknown" if row["uncertainty_ns"] is None else duration(row["uncertainty_ns"])
    yield f"{row['packets']:,}"
