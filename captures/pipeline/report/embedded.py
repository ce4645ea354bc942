"""The messages of a page, as JSON for its script."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from mqproto.captures.pipeline.report.facts.facts import Facts, Sentence, Step
from mqproto.captures.pipeline.report.facts.security import Secured
from mqproto.captures.pipeline.report.facts.words import harmless, style

TEXTS: Final = {
    "id": "message",
    "label": "label",
    "queue": "queue",
    "delivery": "delivery",
    "sequence": "sequence",
    "outcome": "outcome",
    "file": "file",
}
VALUES: Final = {
    "number": "sequence_number",
    "bytes": "body_bytes",
    "resends": "resends",
    "complete": "complete",
}
OTHERS: Final = ("first", "route", "verdict", "steps", "findings", "marks", "security")
FINDINGS_OF_ONE: Final = 12
"""The maximum number of findings for one message."""
Word = Callable[[str | None], int | None]


def embedded(facts: Facts) -> str:
    """Return JSON in which each message is a list of values in the order of `columns`.

    A text is given as its place in `words`. Times are in µs since 1970.

    marks: the message's security at a glance, in words that have a style; mostly empty.
    security: the same in full; mostly empty.
    styles: how each outcome is shown.
    called: the names that people use for queues.
    partial: whether some findings about messages are left out here.

    The JSON may be put between script tags, because no text in it can end them.
    """
    words: dict[str, int] = {}

    def word(text: str | None) -> int | None:
        return None if text is None else words.setdefault(harmless(text), len(words))

    findings: defaultdict[str, list[list[int | None]]] = defaultdict(list)
    partial = any(each.count > len(each.examples) for each in facts.judgments.found)
    for each in facts.judgments.found:
        for example in each.examples:
            if example.message is not None and len(findings[example.message]) < FINDINGS_OF_ONE:
                findings[example.message].append([word(each.code), word(example.text)])
            elif example.message is not None:
                partial = True
    messages = []
    for row in facts.messages.embedded:
        told = facts.messages.stories[row["message"]]
        messages.append(
            [
                *(word(row[name]) for name in TEXTS.values()),
                *(row[name] for name in VALUES.values()),
                row["first_ns"] // 1_000,
                [word(label) for label in row["route"]],
                _sentence(told.verdict, word),
                [_step(step, word) for step in told.steps],
                findings[row["message"]],
                *_secured(told.secured, word),
            ]
        )
    data = {
        "columns": [*TEXTS, *VALUES, *OTHERS],
        "texts": [*TEXTS],
        "words": [*words],
        "partial": partial,
        "styles": {harmless(outcome): style(outcome) for outcome in facts.messages.outcomes},
        "called": {
            harmless(queue.name): harmless(queue.called) for queue in facts.queues.queues if queue.called
        },
        "messages": messages,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sentence(said: Sentence, word: Word) -> list[int | None]:
    """Return one value, or three if the sentence contains a duration."""
    if said.ns is None:
        return [word(said.before + said.after)]
    return [word(said.before), said.ns // 1_000, word(said.after)]


def _step(step: Step, word: Word) -> list[Any]:
    place = [] if step.place is None else [word(step.place.file), step.place.frame]
    return [step.time_ns // 1_000, _sentence(step.said, word), *place]


def _secured(secured: Secured | None, word: Word) -> tuple[list[Any], list[Any]]:
    if secured is None:
        return [], []
    marks = [[word(mark.style), word(mark.text)] for mark in secured.marks()]
    return marks, [[word(name), word(text)] for name, text in secured.told().items()]
