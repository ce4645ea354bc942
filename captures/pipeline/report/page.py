"""The report as one HTML file that needs neither a network nor other files; its only script is the search.

`page.html.j2` is the template of the page. All values in it are escaped. The page also forbids its browser to run or
load anything except the parts that it names by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from jinja2.filters import do_mark_safe

from mqproto.captures.decode.views import quality, words as numbers
from mqproto.captures.pipeline.report.counts.judgments import EXAMPLES
from mqproto.captures.pipeline.report.counts.messages import KEPT
from mqproto.captures.pipeline.report.drawing import figures, routemap
from mqproto.captures.pipeline.report.facts import overtime, security, words
from mqproto.captures.pipeline.report.facts.facts import (
    TO_DESTINATION,
    TO_ORDER_ACK,
    Facts,
    Hop,
    Queue,
    Sentence,
    Spell,
    Step,
    slowest,
)
from mqproto.captures.pipeline.report.facts.security import Secured
from mqproto.captures.pipeline.report.facts.words import TEXT_LIMIT, escaped, harmless, style
from mqproto.edge.exactlyonce import Verdict

HERE: Final = files("mqproto.captures.pipeline.report")


def page(facts: Facts) -> str:
    """Return the whole file; the same facts always give the same text."""
    style, script = (HERE.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    return _environment().from_string(HERE.joinpath("page.html.j2").read_text("utf-8")).render(
        facts=facts,
        style=files("mqproto.captures.drawing").joinpath("palette.css").read_text("utf-8") + style,
        script=script,
        shown={row["message"] for row in facts.messages.embedded},
        slow=_slow(facts),
        queue_names={queue.name: queue.called for queue in facts.queues.queues},
        find_command=shlex.join(["mqproto", "report", facts.folder, "--find", "LABEL"]),
    )  # fmt: skip


def _environment() -> Environment:
    """Return Jinja's environment for the page, in which every text is escaped."""
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=_harmless,
    )
    for module in (numbers, words, overtime, security, figures, routemap, quality):
        environment.globals |= vars(module)
    environment.globals |= {
        "any": any,
        "zip": zip,
        "quote": partial(quote, safe=""),
        "digest": _digest,
        "embedded": embedded,
        "once": _once,
        "style_of": words.style,
        "EXAMPLES": EXAMPLES,
        "KEPT": KEPT,
        "TO_DESTINATION": TO_DESTINATION,
        "TO_ORDER_ACK": TO_ORDER_ACK,
    }
    environment.filters |= {
        "joined": _joined,
        "lacking": lambda point: [*quality.lacks(point)],
        "n": "{:,}".format,
        "name": lambda head: head.lstrip(">~"),
        "slowest": slowest,
    }
    return environment


def _harmless(value: Any, limit: int | None = TEXT_LIMIT) -> Any:
    """Return a text as harmless HTML; a value that is already HTML stays as it is."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return do_mark_safe(escaped(value, limit)) if is_text else value


def _joined(texts: Iterable[str], between: str = "") -> str:
    """Return joined texts as HTML, none of them shortened."""
    return do_mark_safe(between.join(_harmless(each, None) for each in texts))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _slow(facts: Facts) -> list[tuple[int, str, Spell, dict[str, Iterable[str]]]]:
    """Return all slow times, the longest first.

    Each has its length, the title of the hop or queue, the spell, and the search that finds the hop or queue.
    """
    found = []
    rows: list[Queue | Hop] = [*facts.queues.queues, *facts.routes.hops]
    for each in rows:
        for spell in each.course.spells if each.course is not None else ():
            length_ns = (spell.until_ns or facts.captured.last_ns or 0) - spell.from_ns
            found.append((length_ns, each.title, spell, each.sought))
    return sorted(found, key=lambda each: -each[0])


def _once(verdicts: dict[str, int]) -> str:
    """Say whether each message came exactly once, as far as the captures show."""
    known, doubt = (verdicts.get(each, 0) for each in (Verdict.DUPLICATE, Verdict.IN_DOUBT))
    if not known + doubt:
        return "Exactly once: no copy of a message was seen to come to a queue manager that had it."
    copies = f"{known + doubt:,} further {'copy' if known + doubt == 1 else 'copies'}"
    said = f"Exactly once: {copies} of messages and acknowledgments came to a queue manager that had them"
    if not doubt:
        return f"{said} and had answered for them, so that it knows each for a duplicate."
    return f"{said}; it had answered for {known:,}, and {doubt:,} are in doubt: the captures do not tell that it had."


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

    marks: short remarks about the message's security, each with its style; usually empty.
    security: the claims and proofs in full; usually empty.
    styles: how each outcome is shown.
    called: the names that people use for queues.
    partial: whether the JSON leaves out some findings about messages.

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
