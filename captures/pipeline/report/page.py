"""The report as one HTML file, which needs nothing else: no network, no other file; and no script but for its search.

Whatever comes from captures is escaped; besides, the page forbids its browser to run or load anything but what is named
here by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from mqproto.captures.pipeline.report.counts.messages import KEPT
from mqproto.captures.pipeline.report.embedded import embedded
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.facts.outcomes import BAD, GOOD, STUCK, total, unknown
from mqproto.captures.pipeline.report.facts.words import (
    TO_DESTINATION,
    about,
    counted,
    duration,
    escaped,
    when,
)
from mqproto.captures.pipeline.report.sections.captures import captures
from mqproto.captures.pipeline.report.sections.findings import findings
from mqproto.captures.pipeline.report.sections.messages import worst
from mqproto.captures.pipeline.report.sections.quality import quality
from mqproto.captures.pipeline.report.sections.queues import queues
from mqproto.captures.pipeline.report.sections.routes import latency, routes
from mqproto.captures.pipeline.report.sections.security import security
from mqproto.captures.pipeline.report.sections.slow import slow
from mqproto.captures.pipeline.report.sections.traffic import sequences, traffic
from mqproto.edge.exactlyonce import Verdict

SUGGESTED: Final = 200
"""How many names a filter offers."""
HERE: Final = files("mqproto.captures.pipeline.report")


def page(facts: Facts) -> str:
    """The whole file. The same facts give the same text."""
    style, script = (HERE.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    style = files("mqproto.captures.drawing").joinpath("palette.css").read_text("utf-8") + style
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    shown = {row["message"] for row in facts.messages.embedded}
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Message queuing: {escaped(facts.folder)}</title><style>{style}</style></head><body>",
        *_head(facts),
        "<main>",
        *quality(facts),
        *_search(facts),
        *worst(facts),
        *slow(facts),
        *queues(facts),
        *routes(facts),
        *latency(facts),
        *sequences(facts),
        *traffic(facts),
        *security(facts),
        *findings(facts, shown),
        *captures(facts),
        "</main>",
        f'<script type="application/json" id="messages">{embedded(facts)}</script>',
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _head(facts: Facts) -> Iterator[str]:
    captured, messages = facts.captured, facts.messages
    ended, failed, stuck = (total(messages.outcomes, each) for each in (GOOD, BAD, STUCK))
    untold = unknown(messages.outcomes)
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
        ("", f"{untold:,}", "not known: the captures cannot tell"),
        ("", f"{messages.resends:,}", "copies sent again"),
        ("bad" if faults else "", f"{faults:,}", "breaches of the protocol"),
    ]
    if failing := facts.security.failing:
        numbers.append(("bad", f"{failing:,}", "with a signature that does not hold"))
    if messages.arrived.count:
        numbers.insert(1, ("", about(messages.arrived.quantile(0.5)), f"median {TO_DESTINATION}"))
    items = "".join(f'<li class="{style}"><b>{number}</b> {what}</li>' for style, number, what in numbers)
    yield f'<ul class="numbers">{items}</ul>'
    if messages.count:
        yield f"<p>{_once(facts.judgments.verdicts)}</p>"
    links = {
        "quality": "What the captures lack",
        "worst": "Stuck, failed, slow",
        "slow": "When it was slow",
        "queues": "Queues",
        "routes": "Routes",
        "latency": "Latency",
        "sequences": "Sequences",
        "traffic": "Traffic",
        **({"security": "Signatures and encryption"} if facts.security.is_there else {}),
        "findings": "Findings",
        "captures": "Captures",
    }
    yield (
        "<nav>" + "".join(f'<a href="#{name}">{text}</a>' for name, text in links.items()) + "</nav></header>"
    )


def _once(verdicts: dict[str, int]) -> str:
    """Whether each came exactly once, as far as the captures show."""
    known, doubt = (verdicts.get(each, 0) for each in (Verdict.DUPLICATE, Verdict.IN_DOUBT))
    if not known + doubt:
        return "Exactly once: no copy of a message was seen to come to a queue manager that had it."
    copies = f"{known + doubt:,} further {'copy' if known + doubt == 1 else 'copies'}"
    said = f"Exactly once: {copies} of messages came to a queue manager that had them"
    if not doubt:
        return f"{said} and had answered for them, so that it knows each for a duplicate."
    return f"{said}; it had answered for {known:,}, and {doubt:,} are in doubt: the captures do not tell that it had."


def _filters(facts: Facts) -> Iterator[str]:
    """What narrows the whole page: messages that are found, and the tables of messages, queues and hops."""
    queues = [queue.called or queue.name for queue in facts.queues.queues]
    hosts = sorted(set(facts.routes.labels.values()))
    yield '<div class="filters">'
    for name, title, known in (("queue", "Queue", queues), ("host", "Host", hosts)):
        yield (
            f'<div><label for="{name}">{title}</label><input id="{name}" type="search" autocomplete="off" '
            f'spellcheck="false" list="{name}s-known" disabled><datalist id="{name}s-known">'
        )
        yield from (f'<option value="{escaped(text)}"></option>' for text in known[:SUGGESTED])
        yield "</datalist></div>"
    yield (
        '<div><label for="order">Queues and hops</label><select id="order" disabled>'
        '<option value="slow">the slowest first</option><option value="count">those with most messages first</option>'
        "</select></div></div>"
    )


def _search(facts: Facts) -> Iterator[str]:
    messages = facts.messages
    yield '<section class="search"><h2>What happened to my message?</h2>'
    if messages.every:
        yield '<label for="search">A part of its label, or its identifier</label>'
    else:
        command = shlex.join(["mqproto", "report", facts.folder, "--find", "LABEL"])
        yield (
            f"<p>This page has {len(messages.embedded):,} of {messages.count:,} messages: of all that are stuck, of "
            f"which the end is not known, that failed, that were slow, and that were sent again, up to {KEPT} each. "
            f"For any other: <code>{escaped(command, limit=None)}</code></p>"
        )
        yield f'<label for="search">Among these {len(messages.embedded):,}: a part of a label, or an identifier</label>'
    example = next((row["label"] for row in messages.embedded if row["label"]), "")
    hint = f' placeholder="{escaped(example)}"' if example else ""
    yield f'<input id="search" type="search" autocomplete="off" spellcheck="false"{hint} disabled>'
    yield from _filters(facts)
    yield '<p id="said" class="faint" role="status"></p><ul id="results"></ul><div id="history"></div>'
    yield "<noscript><p>The search needs JavaScript; all else is here without.</p></noscript></section>"
